//! The library as C programs use it.

mod build;

use build::{compile, libraries, root};
use std::path::Path;
use std::process::Command;

fn run(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("LD_LIBRARY_PATH", libraries()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_example_runs_over_a_file_here_and_at_a_target() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bytes: Vec<u8> = (1..=1000_i64).flat_map(i64::to_le_bytes).collect();
    std::fs::write(dir.path().join("n"), bytes).expect("written");
    let program = compile(dir.path(), &root().join("examples/stats.c"));
    let wanted = "1000 numbers, sum 500500, least 1, greatest 1000\n";
    assert_eq!(run(&program, &[&dir.path().join("n").display().to_string()]), wanted);
    let target = serve(dir.path());
    let url = format!("diskside://{}/data/n", target.handle().local_addresses()[0]);
    assert_eq!(run(&program, &[&url]), wanted);
    // Two servers that hold copies, of which nobody answers for the first one any more.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("bound");
    let both = url.replacen("://", &format!("://{gone},"), 1);
    assert_eq!(run(&program, &[&both]), wanted);
}

/// The page's own lines, with its server's name replaced.
#[test]
fn the_page_shows_what_works() {
    let page = std::fs::read_to_string(root().join("../../docs/pushdown.md")).expect("the page is there");
    let shown = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it shows C");
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("today.log"), "fine\nERROR here\nfine\nERROR there\n").expect("written");
    let target = serve(dir.path());
    let url = format!("diskside://{}/data/today.log", target.handle().local_addresses()[0]);
    let shown = shown.replace("diskside://server/logs/today.log", &url);
    assert!(shown.contains(&url), "{shown}");
    let source = dir.path().join("page.c");
    let free =
        "ds_result_free(found);\nds_file_free(log);\nds_function_free(grep);\nds_session_free(session);\nreturn 0;";
    let includes = "#include <libdiskside.h>\n#include <stdio.h>";
    std::fs::write(&source, format!("{includes}\nint main(void) {{\n{shown}\n{free}\n}}\n")).expect("written");
    let said = run(&compile(dir.path(), &source), &[]);
    assert_eq!(said, "ERROR here\nERROR there\n");
}

fn serve(dir: &Path) -> diskside_server::Running {
    use diskside_server::Target;
    use diskside_server::config::ExportSpec;
    Target::builder()
        .nqn("nqn.2026-11.org.example:capi")
        .listen(["127.0.0.1:0".parse().expect("an address")])
        .export(ExportSpec::new("data", dir).writable())
        .build()
        .and_then(Target::start)
        .expect("it serves")
}

/// Kind and source line, the same from a file here, at the device, and from the host over a target's file.
#[test]
fn a_function_that_fails_says_how_and_on_which_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("in"), [0; 96]).expect("written");
    let head = "(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n";
    let one = |name: &str, body: &str| format!("SEC(\"read/{name}\")\n__s64 {name}{head}{body}\nreturn 8;\n}}\n");
    let source = "#include \"diskside.h\"\n".to_owned()
        + &one("trap", "*out = in[in_len / 8];")
        + &one("budget", "for (volatile __u64 i = 0; i < 1ull << 60; i++) *out = i;")
        + &one("returned", "if (in_len) return -22;");
    let function = dir.path().join("f.bpf.c");
    std::fs::write(&function, source).expect("written");
    let program = compile(dir.path(), &root().join("tests/failures.c"));
    let target = serve(dir.path());
    let url = format!("diskside://{}/data/in", target.handle().local_addresses()[0]);
    let local = dir.path().join("in").display().to_string();
    for (file, place) in [(&local, "0"), (&url, "1"), (&url, "2")] {
        let said = run(&program, &[&function.display().to_string(), file, place]);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("-5 3 "), "where {place}: {said}");
        assert!(lines[0].contains("f.bpf.c:4: *out = in[in_len / 8];"), "where {place}: {said}");
        assert!(lines[0].ends_with("out-of-bounds read of 8 bytes of input at offset 64, which is 64 bytes long"));
        // The name of the function that was stopped, and the bytes of the file that it had: it ran over the file's end.
        assert_eq!(lines[1], "1 32 96 0", "where {place}: {said}");
        assert!(lines[2].starts_with("-5 4 ") && lines[2].contains("f.bpf.c:9"), "where {place}: {said}");
        assert_eq!(lines[3], "5 32 96 0", "where {place}: {said}");
        assert!(lines[4].starts_with("-22 7 "), "where {place}: {said}");
        assert_eq!(lines[5], "0 32 96 -22", "where {place}: {said}");
    }
}

#[test]
fn a_kernel_is_launched_with_a_mask_here_and_at_a_target() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut bytes = vec![1; 3 * 4096];
    bytes[5000..5006].copy_from_slice(b"needle");
    std::fs::write(dir.path().join("in"), bytes).expect("written");
    let kernel = root().join("../cli/tests/window.bpf.c").display().to_string();
    let program = compile(dir.path(), &root().join("tests/launch.c"));
    let target = serve(dir.path());
    let there = format!("diskside://{}/data", target.handle().local_addresses()[0]);
    for (place, side) in [(dir.path().display().to_string(), "host\n"), (there, "device\n")] {
        assert_eq!(run(&program, &[&kernel, &format!("{place}/in"), &format!("{place}/out")]), side);
        std::fs::remove_file(dir.path().join("out")).expect("it was made");
    }
}

#[test]
fn every_call_works_and_every_misuse_is_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = compile(dir.path(), &root().join("tests/calls.c"));
    let path = dir.path().join("file").display().to_string();
    assert_eq!(run(&program, &[&path]), "good\n");
}

/// How a session works is said in C, too, and what functions keep is named and cleared there.
#[test]
fn a_session_keeps_states_and_what_it_learnt_as_it_is_told() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let count = "#include \"diskside.h\"\nDS_OUTPUT(0, 1, 64);\nSEC(\"read/count\")\n\
        __s64 count(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        *out = ++*DS_STATE(__u64);\nreturn 8;\n}\n";
    std::fs::write(here.path().join("count.bpf.c"), count).expect("written");
    let select = root().join("../server/tests/compute/select.bpf.c");
    std::fs::copy(select, here.path().join("select.bpf.c")).expect("copied");
    // Four rows, and those above 5 are wanted: the second and the fourth.
    let mut slot: Vec<u8> = [4_u64, 5, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    slot.extend([5_u32, 6, 0, 7].into_iter().flat_map(u32::to_le_bytes));
    for dir in [&here, &there] {
        std::fs::write(dir.path().join("in"), &slot).expect("written");
    }
    let program = compile(here.path(), &root().join("tests/state.c"));
    let target = serve(there.path());
    let url = format!("diskside://{}/data", target.handle().local_addresses()[0]);
    assert_eq!(run(&program, &[&here.path().display().to_string(), &url]), "good\n");
    let learnt = std::fs::read_dir(here.path().join("learnt")).expect("a directory").count();
    assert_eq!(learnt, 3, "of each function that ran at the target");
}

/// Where it ended, and how many cells it read.
const WALK: &str = "#include \"diskside.h\"
SEC(\"traverse/walk\")
__s64 walk(struct ds_traverse *t) {
    __u64 *at = t->scratch, *steps = at + 1;
    if (t->data_len) {
        __u64 next = *(const __u64 *)t->data;
        ++*steps;
        if (!next) {
            t->result_len = 16;
            return 1;
        }
        *at = next;
    }
    t->next[0] = (struct ds_next){ .offset = *at, .len = 8 };
    t->nnext = 1;
    return 0;
}
";

/// Options and results, over files of two servers and of this machine.
#[test]
fn a_result_says_where_it_ran_why_and_what_it_took() {
    let [here, one, two] = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let numbers = |range: std::ops::Range<i64>| range.flat_map(i64::to_le_bytes).collect::<Vec<u8>>();
    for (dir, range) in [(&here, 0..1000), (&one, 1000..101_000), (&two, 101_000..201_000)] {
        std::fs::write(dir.path().join("n"), numbers(range)).expect("written");
    }
    let function = |name: &str, body: &str| {
        let head = "(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)";
        let source =
            format!("#include \"diskside.h\"\nSEC(\"read/{name}\")\n__s64 {name}{head} {{\n{body}\nreturn 8;\n}}\n");
        std::fs::write(here.path().join(name).with_extension("bpf.c"), source).expect("written");
    };
    function("talks", "ds_log(\"first\", 5);\nds_log(\"second\", 6);\n*out = in_len;");
    function("endless", "for (volatile __u64 i = 0; i < 1ull << 60; i++) *out = i;");
    let add = "const __u64 *given = args;\n*out = given[0] + given[1];\nfor (__u64 i = 0; i < in_len / 8; i++) *out += in[i];";
    function("adds", add);
    // Cells of eight bytes, each with the place of the next one; 0 ends it.
    let chain: Vec<u8> = [0_u64, 16, 24, 32, 0, 40, 4096].into_iter().flat_map(u64::to_le_bytes).collect();
    for dir in [&here, &one] {
        std::fs::write(dir.path().join("chain"), &chain).expect("written");
    }
    std::fs::write(here.path().join("walk.bpf.c"), WALK).expect("written");
    let program = compile(here.path(), &root().join("tests/results.c"));
    let servers = [&one, &two].map(|dir| serve(dir.path()));
    let urls = servers.each_ref().map(|target| format!("diskside://{}/data", target.handle().local_addresses()[0]));
    assert_eq!(run(&program, &[&here.path().display().to_string(), &urls[0], &urls[1]]), "good\n");
}
