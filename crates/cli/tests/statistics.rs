//! The statistics of a target, as `functions`, `top` and `metrics` show them.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use common::{Process, Server, diskside, good, json, numbers, until};

#[test]
fn a_target_tells_its_functions_and_what_it_did() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1000));
    // A look whether a file is compressed, or has a header, reads some of it.
    let as_it_is = ["--decompress", "none", "--header", "none"];
    good(&[&["run", "stats64", &server.at("n.u64"), "--where", "device"][..], &as_it_is].concat());
    let functions = json(&["functions", server.target()]);
    let programs = functions["programs"].as_array().expect("a list");
    assert!(programs.iter().any(|p| p["name"] == "stats64" && p["shipped"] == true), "{functions}");
    let top = json(&["top", server.target()]);
    assert!(top["succeeded"].as_u64() >= Some(1), "{top}");
    assert!(good(&["top", server.target()]).contains("engines"));
    server.file("text", b"some text");
    assert_eq!(good(&["cat", &server.at("text")]), "some text");
    let top = json(&["top", server.target()]);
    let entry = |kind: &str, field: &str| {
        let mut entries = top["entries"].as_array().expect("a list").iter();
        entries.find(|entry| entry["kind"] == kind).map(|entry| entry[field].clone())
    };
    assert_eq!(entry("export", "name").expect("an entry"), "data");
    assert_eq!(entry("export", "read_bytes").expect("an entry"), 9, "{top}");
    assert_eq!(entry("export, by functions", "read_bytes").expect("an entry"), 8000, "{top}");
    assert!(good(&["top", server.target()]).contains("export, by functions"));
}

/// How much is read ahead was fixed, and nothing said how much that was.
#[test]
fn how_much_is_read_ahead_is_asked_for_and_told() {
    let server = Server::start("");
    let here = server.file("n.u64", &numbers(1000)).display().to_string();
    let there = server.at("n.u64");
    let mut results = Vec::new();
    for (file, place) in [(&here, "auto"), (&there, "host"), (&there, "device")] {
        for (options, depth) in [(&[][..], 4), (&["--depth", "0"], 0), (&["--depth", "9", "--threads", "2"], 9)] {
            let ran = json(&[&["run", "stats64", file, "--where", place, "--chunk", "256"][..], options].concat());
            let told = [&ran["stats"]["depth"], &ran["parts"][0]["depth"]].map(serde_json::Value::as_u64);
            assert_eq!(told, [Some(depth); 2], "{place} {options:?}: {ran}");
            results.push(ran["rows"].clone());
        }
    }
    assert!(results.windows(2).all(|two| two[0] == two[1]), "{results:?}");
    let (_, _, said) = diskside(&["run", "stats64", &there, "--where", "device", "--depth", "7", "--stats"]);
    let mut lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.iter().position(|name| *name == "depth").expect("a column");
    assert_eq!(values[at], "7", "{said}");
    let (code, _, said) = diskside(&["run", "stats64", &here, "--depth", "65"]);
    assert!(code == 2 && said.contains("65 is not in 0..=64"), "{said}");
}

/// The settings of a target's configuration hold for calls that ask for nothing else.
#[test]
fn a_target_is_configured_with_how_much_is_read_ahead() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = |depth: &str| {
        let path = dir.path().join("target.toml");
        std::fs::write(&path, format!("[compute]\ndepth = {depth}\n")).expect("written");
        path.display().to_string()
    };
    let server = Server::start_with("", &["--config", &config("2")]);
    server.file("n.u64", &numbers(1000));
    for (options, depth) in [(&[][..], 2), (&["--depth", "3"], 3)] {
        let ran = json(&[&["run", "stats64", &server.at("n.u64"), "--where", "device"][..], options].concat());
        assert_eq!(ran["stats"]["depth"], depth, "{ran}");
    }
    let (code, _, said) = diskside(&["serve", "--config", &config("65"), "--listen", "127.0.0.1:0"]);
    assert!(code == 2 && said.contains("compute.depth: 65 is not between 0 and 64"), "{code}: {said}");
}

/// A function's output was counted before folding on this machine, and after it at a device.
#[test]
fn output_is_counted_before_it_is_folded_on_both_sides() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1000));
    for place in ["host", "device"] {
        let ran = json(&["run", "stats64", &server.at("n.u64"), "--where", place, "--chunk", "800"]);
        let told = [&ran["stats"]["chunks"], &ran["stats"]["output_bytes"]].map(serde_json::Value::as_u64);
        assert_eq!(told, [Some(10), Some(320)], "{place}: {ran}");
    }
}

/// A run of a second had no column that explained it: time in `combine` was measured nowhere. It is shown for each part, and for
/// what this machine folds of several parts.
#[test]
fn the_time_in_combine_is_shown_wherever_it_runs() {
    let server = Server::start("");
    let files = ["a.u64", "b.u64"].map(|name| server.file(name, &numbers(1000)).display().to_string());
    let text = "#include \"diskside.h\"\nstruct sum { __u64 total; };\nSEC(\"read/sum\")\n\
                __s64 sum(struct sum *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
                out->total = in_len;\nreturn sizeof(*out);\n}\nSEC(\"combine/sum\")\n\
                __s64 add(struct sum *acc, __u64 acc_len, __u64 acc_cap, const struct sum *part, __u64 part_len) {\n\
                __u64 mixed = part->total;\nfor (int i = 0; i < 1000000; i++)\nmixed = mixed * 31 ^ mixed >> 7;\n\
                acc->total = acc_len ? acc->total + mixed : mixed;\nreturn sizeof(*acc);\n}\n";
    let path = server.dir.join("sum.bpf.c");
    std::fs::write(&path, text).expect("written");
    let function = path.to_str().expect("UTF-8");
    let ns = |value: &serde_json::Value| value["fold_ns"].as_u64().unwrap_or_else(|| panic!("{value}"));
    for place in ["host", "device"] {
        let ran = json(&["run", function, &server.at("a.u64"), "--where", place, "--chunk", "800"]);
        assert!(ns(&ran["parts"][0]) > 0, "{place}: {ran}");
        assert_eq!(ns(&ran["stats"]), ns(&ran["parts"][0]), "one part is not folded again, {place}: {ran}");
    }
    // One file here, and one there: each is a part, and their results are folded here.
    let both = [&files[0], &server.at("b.u64")];
    let ran = json(&["run", function, both[0], both[1], "--chunk", "800", "--no-combine"]);
    assert_eq!(ns(&ran["stats"]), 0, "nothing is folded: {ran}");
    let ran = json(&["run", function, both[0], both[1], "--chunk", "800"]);
    let parts: u64 = ran["parts"].as_array().expect("a list").iter().map(ns).sum();
    assert!(ns(&ran["stats"]) > parts, "{ran}");
    let (_, _, said) = diskside(&["run", function, both[0], both[1], "--chunk", "800", "--stats"]);
    let names = said.lines().next().expect("names").split_whitespace().collect::<Vec<_>>();
    assert!(names.contains(&"fold") && said.contains("the results of all parts were folded here in "), "{said}");
}

/// Counters were kept by a program's index, which the next program gets when a command's own was unloaded: it showed the calls
/// and bytes of others, and what had run before lost its name. They belong to the function now, wherever it was loaded.
#[test]
fn a_function_of_ones_own_keeps_its_name_and_counts_nothing_of_others() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1000));
    let source = |name: &str| {
        let text = format!(
            "#include \"diskside.h\"\nSEC(\"read/{name}\")\n__s64 {name}(__u64 *out, const __u64 *in, __u64 in_len,\n\
             const void *args, const struct ds_call *call) {{ *out = in_len + sizeof(\"{name}\"); return 8; }}\n"
        );
        let path = server.dir.join(format!("{name}.bpf.c"));
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (first, second) = (source("first"), source("second"));
    for path in [&first, &first, &second] {
        good(&["run", path, &server.at("n.u64"), "--where", "device"]);
    }
    let top = json(&["top", server.target()]);
    let mut found = Vec::new();
    for entry in top["entries"].as_array().expect("a list").iter().filter(|entry| entry["kind"] == "function") {
        assert_eq!(entry["program"].as_str().expect("a hash").len(), 16, "{entry}");
        found.push((
            entry["name"].as_str().expect("a name"),
            entry["operations"].as_u64(),
            entry["read_bytes"].as_u64(),
        ));
    }
    assert_eq!(found, [("first", Some(2), Some(16_000)), ("second", Some(1), Some(8000))], "{top}");
    let metrics = good(&["metrics", server.target()]);
    assert!(metrics.contains(r#"name="first",program=""#), "{metrics}");
}

/// A scraper asks, also after others that are none, and hears whether the target is there.
#[test]
fn prometheus_is_told_what_a_target_did() {
    let mut server = Server::start("");
    server.file("n.u64", &numbers(1000));
    good(&["run", "stats64", &server.at("n.u64"), "--where", "device"]);
    let by_functions = r#"diskside_operations_read_bytes_total{kind="export, by functions",id="0",name="data"} 8000"#;
    let once = good(&["metrics", server.target()]);
    assert!(once.contains(by_functions) && once.contains("\ndiskside_calls_succeeded_total 1\n"), "{once}");

    let (_exporter, url) = Process::start(&["metrics", server.target(), "--listen", "127.0.0.1:0"]);
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).expect("a URL");
    let ask = |request: &str| {
        let mut connection = TcpStream::connect(address).expect("it listens");
        connection.write_all(request.as_bytes()).expect("sent");
        let mut reply = String::new();
        connection.read_to_string(&mut reply).expect("text");
        reply
    };
    drop(TcpStream::connect(address).expect("it listens"));
    assert!(ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let scrape = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let reply = ask(scrape);
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.contains(by_functions), "{reply}");
    assert!(reply.contains("\ndiskside_up 1"), "{reply}");
    server.process.kill();
    // A scrape may be a second old. This one waited for 30 s, and Prometheus waits for 10 s.
    let killed = std::time::Instant::now();
    until("the server is down", || ask(scrape).contains("\ndiskside_up 0"));
    assert!(killed.elapsed() < std::time::Duration::from_secs(20), "{:?}", killed.elapsed());
}
