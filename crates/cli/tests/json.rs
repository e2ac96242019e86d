//! The fields of every command's JSON are those of `docs/json.md`, with the types on that page.

mod common;

use common::{Process, Server, numbers};
use serde_json::Value;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../docs/json.md");
const NQN: &str = "nqn.2026-11.io.diskside:json";
const HOST: &str = "nqn.2026-11.org.example:host";

/// Fields of a command as the page has them: path and type.
fn documented(command: &str) -> BTreeMap<String, String> {
    let section = PAGE.split(&format!("\n## diskside {command}\n")).nth(1).expect("the page has the command");
    let section = section.split("\n## ").next().expect("its text");
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.trim_end_matches('`').to_owned(), cells.next()?.to_owned()))
    });
    rows.collect()
}

/// Paths and types of a document's values. An empty list has none.
fn flatten(value: &Value, path: &str, found: &mut Vec<(String, &'static str)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(value, &path, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| flatten(item, &format!("{path}[]"), found)),
        Value::String(_) => found.push((path.to_owned(), "text")),
        Value::Number(_) => found.push((path.to_owned(), "number")),
        Value::Bool(_) => found.push((path.to_owned(), "true or false")),
        Value::Null => found.push((path.to_owned(), "null")),
    }
}

/// The page's row for a path: its own, or that of any name in its place.
fn type_of<'p>(page: &'p BTreeMap<String, String>, path: &str) -> Option<(&'p str, &'p str)> {
    let any = path.rsplit_once('.').map(|(parent, _)| format!("{parent}.*"));
    let row = page.get_key_value(path).or_else(|| page.get_key_value(any?.as_str()));
    row.map(|(path, ty)| (path.as_str(), ty.as_str()))
}

/// Every field of these outputs is on the page, and every field of the page in one of them, except those named.
fn check(command: &str, outputs: &[Value], unseen: &[&str]) {
    let mut page = documented(command);
    let mut left: Vec<String> = page.keys().cloned().collect();
    page.insert("schema".into(), "number".into());
    for output in outputs {
        assert_eq!(output["schema"], 1, "{command}");
        let mut found = Vec::new();
        flatten(output, "", &mut found);
        for (path, ty) in found {
            let (row, expected) =
                type_of(&page, &path).unwrap_or_else(|| panic!("{command}: {path} is not on the page"));
            let is_right = expected == "any" || expected == ty || expected.split(" or ").any(|one| one == ty);
            assert!(is_right, "{command}: {path} is {ty}, and on the page {expected}");
            left.retain(|path| path != row);
        }
    }
    left.retain(|path| !unseen.contains(&path.as_str()));
    assert_eq!(left, Vec::<String>::new(), "{command}: on the page, but nowhere in the output");
}

/// The document that a command prints, whatever its exit code.
fn output(args: &[&str]) -> Value {
    let (_, out, said) = common::diskside(&[args, &["--json"]].concat());
    serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"))
}

/// A server whose hosts have a rate, a weight, and something to have.
fn with_quotas() -> (Process, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("diskside.toml");
    let served = dir.path().join("served");
    std::fs::create_dir(&served).expect("made");
    let text = format!(
        "listen = ['127.0.0.1:0']\n[[export]]\nname = 'data'\npath = '{}'\nrw = true\n\
         [[quota]]\nof = ['*']\niops = 1000000\ncpu_share = 50\nfiles = 10\n",
        served.display()
    );
    std::fs::write(&config, text).expect("written");
    let args = ["serve", "--config", &config.display().to_string(), "--user", "root"];
    let (process, line) = Process::start_until(&args, "diskside://");
    let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("it says where");
    (process, url.strip_suffix("/data").expect("the export's name").to_owned(), dir)
}

const EXEC: &[u8] =
    b"#include \"diskside.h\"\nSEC(\"exec/f\")\n__s64 f(const struct ds_exec *call) { ds_log(\"x\", 1); return 7; }\n";
const HINTED: &[u8] = b"#include \"diskside.h\"\nDS_COST(8, 1, DS_IN_ORDER);\nSEC(\"exec/f\")\n\
    __s64 f(const struct ds_exec *call) { return 7; }\n";
const BAD: &[u8] = b"#include \"diskside.h\"\nSEC(\"read/bad\")\n__s64 bad(char *out, const char *in, __u64 in_len, \
    const void *args, const struct ds_call *call) { return *(__s64 *)0; }\n";

#[test]
fn the_page_has_every_field_and_no_other() {
    let server = Server::start_with("", &["--nqn", NQN, "--volume", "v=mem:1MiB,rw"]);
    let local = server.file("n.u64", &numbers(10_000)).display().to_string();
    let text = server.file("t", b"one\ntwo\n").display().to_string();
    let source = |name: &str, text: &[u8]| server.file(name, text).display().to_string();
    let (exec, bad) = (source("exec.bpf.c", EXEC), source("bad.bpf.c", BAD));
    let hinted = source("hinted.bpf.c", HINTED);
    let (file, target, out) = (server.at("n.u64"), server.target(), server.dir.join("out").display().to_string());
    let volume = format!("nvme-tcp://{}/{NQN}", target.strip_prefix("diskside://").expect("its scheme"));
    let runs = [
        output(&["run", "stats64", &file]),
        output(&["run", "stats64", &file, "--where", "host"]),
        output(&["run", "grep", &text, "--arg", "pattern=o"]),
        output(&["run", "filter_u64", &local, "--arg", "lo=1"]),
        output(&["run", "stats64", &local, "--out", &out]),
        output(&["run", "stats64", &file.replacen("://", "://localhost:1,", 1)]),
    ];
    let unseen =
        ["log[]", "refusals[].file", "refusals[].why", "answered[].failed[].server", "answered[].failed[].why"];
    check("run", &runs, &unseen);
    let launches = [
        output(&["launch", "ndp_aggregate", &file]),
        output(&["launch", "ndp_filter", &text, "--arg", "pattern=two"]),
        output(&["launch", "ndp_filter", &local, "--arg", "pattern=!"]),
    ];
    check("launch", &launches, &["log[]"]);
    check("execute", &[output(&["execute", &exec, &local, "--out", &format!("1={out}")])], &[]);
    let functions = [output(&["functions"]), output(&["functions", target]), output(&["functions", "--helpers"])];
    check("functions", &functions, &["functions[].arguments", "functions[].result", "functions[].effects[]"]);
    let inspected = ["stats64", "histogram", &exec, &hinted].map(|object| output(&["inspect", object]));
    check("inspect", &inspected, &["programs[].effects[]"]);
    check("verify", &[output(&["verify", "stats64"]), output(&["verify", &bad])], &["programs[].effects[]"]);
    check("discover", &[output(&["discover", &volume])], &[]);
    check("info", &[output(&["info", &volume])], &[]);
    check("cp", &[output(&["cp", &local, &server.at("copy")])], &[]);
    check("ls", &[output(&["ls", target]), output(&["ls", &server.url])], &[]);
    check("stat", &[output(&["stat", &file])], &[]);
    let (_process, limited, _dir) = with_quotas();
    common::good(&["mkdir", &format!("{limited}/data/directory"), "--hostnqn", HOST]);
    check("top", &[output(&["top", target]), output(&["top", &limited, "--hostnqn", HOST])], &[]);
    check("ping", &[output(&["ping", &format!("{volume}/1"), "--count", "1"])], &[]);
}

/// Large numbers were text, others numbers, in one column.
#[test]
fn numbers_are_given_in_full() {
    let server = Server::start("");
    let bytes: Vec<u8> = [u64::MAX, 1, 1 << 53].iter().flat_map(|n| n.to_le_bytes()).collect();
    let local = server.file("n.u64", &bytes).display().to_string();
    let (code, out, said) = common::diskside(&["run", "topk", &local, "--json"]);
    assert_eq!((code, said.as_str()), (0, ""));
    let out = String::from_utf8(out).expect("text");
    assert!(out.contains("18446744073709551615") && out.contains("9007199254740992"), "{out}");
    assert!(!out.contains("\"18446744073709551615\""), "{out}");
}

/// They were printed as the integers that their bits are, unless the function said `DS_ARG_F64`.
#[test]
fn values_of_ds_f64_and_ds_f32_are_numbers() {
    let server = Server::start("");
    let file = server.file("n", b"12345678").display().to_string();
    let source = b"#include \"diskside.h\"
struct args { ds_f64 by; ds_f32 list[]; };
struct row { ds_f64 wide; ds_f32 narrow; __u32 whole; ds_f64 two[2]; };
SEC(\"read/f\")
__s64 f(struct row *out, const char *in, __u64 in_len, const struct args *args, const struct ds_call *call) {
    out->wide = ds_f64_mul(args->by, ds_f64_from_u64(3));
    out->narrow = args->list[1];
    out->whole = 7;
    out->two[1] = ds_f64_from_f32(args->list[0]);
    return sizeof(*out);
}
";
    let function = server.file("f.bpf.c", source).display().to_string();
    let run = ["run", &function, &file, "--arg", "by=0.5", "--arg", "list=0.25,0.1"];
    assert_eq!(common::good(&run), "wide    1.5\nnarrow  0.1\nwhole   7\ntwo     [0 0.25]\n");
    let row = &common::json(&run)["rows"][0];
    assert_eq!(*row, serde_json::json!({ "wide": 1.5, "narrow": 0.1, "whole": 7, "two": [0.0, 0.25] }));
}
