//! `diskside inspect` over functions that call much of the library.

mod common;

use common::good;

/// The report on a function of twenty lines had 185, because clang copies functions of headers into loops, and each copy of an
/// access had its own advice. The advice on the author's own lines was somewhere between them.
#[test]
fn a_report_on_loops_says_the_same_once_and_puts_headers_last() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    let mut blocks = guide.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let source = blocks.find(|block| block.contains("read/by_status")).expect("it shows the function");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("by_status.bpf.c");
    std::fs::write(&path, source).expect("written");
    let report = good(&["inspect", path.to_str().expect("text")]);
    let programs: Vec<&str> = report.split("\n\n").skip(1).collect();
    assert!(report.lines().count() < 90 && programs.len() == 2, "{report}");
    for program in programs {
        let advice: Vec<&str> = program.lines().filter(|line| line.starts_with("      instead: ")).collect();
        let different: std::collections::HashSet<&str> = advice.iter().copied().collect();
        assert_eq!(different.len(), advice.len(), "{program}");
        let (own, of_headers) = program.split_once("  in headers:\n").expect("loops of headers");
        for (of, is_of_headers) in [(own, false), (of_headers, true)] {
            let loops: Vec<&str> = of.lines().filter(|line| line.starts_with("  loop at instruction ")).collect();
            let in_header = |line: &&str| line.split_once("): ").expect("a place, and what").0.contains(".h:");
            assert!(!loops.is_empty() && loops.iter().all(|line| in_header(line) == is_of_headers), "{program}");
        }
    }
    // How many there are is told: of loops, and of accesses that one reason holds for.
    assert!(report.contains(" more like it\n") && report.contains(" accesses ("), "{report}");
}

/// A loop of the author's that began with inlined code of a header was listed among those of headers, where nobody looks for it.
#[test]
fn a_loop_that_begins_with_code_of_a_header_is_its_authors() {
    let header = "static inline __attribute__((always_inline)) int goes_on(const volatile __u8 *in, __u64 at, __u64 len) {\n\
                  return at < len && in[at] != 10;\n}\n";
    let source = "#include \"diskside.h\"\n#include \"lines.h\"\nSEC(\"read/first\")\n\
                  __s64 first(__u64 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
                  __u64 at = 0, sum = 0;\nwhile (goes_on(in, at, in_len))\nsum += in[at++];\n*out = sum;\nreturn 8;\n}\n";
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("lines.h"), header).expect("written");
    let path = dir.path().join("first.bpf.c");
    std::fs::write(&path, source).expect("written");
    let report = good(&["inspect", path.to_str().expect("text")]);
    assert!(!report.contains("in headers:"), "{report}");
    let (_, place) = report.split_once("  loop at instruction ").expect("a loop");
    assert!(place.split_once("): ").expect("a place").0.contains("first.bpf.c:"), "{report}");
}
