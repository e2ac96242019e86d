//! Mistakes of users: the exit codes of `docs/json.md`, and words that say what to do.

mod common;

use common::{Server, diskside, good, numbers};
use std::os::unix::fs::symlink;

/// Exit code and message; nothing is printed.
fn fails(args: &[&str]) -> (i32, String) {
    let (code, out, said) = diskside(args);
    assert!(out.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out));
    (code, said)
}

/// A chunk of no length and one too long were the function's failure, and a regular expression that is none, too; a pattern of an
/// export that is not there was the environment's.
#[test]
fn the_exit_code_says_who_has_to_act() {
    let server = Server::start("");
    let here = server.file("log", b"a line\n").display().to_string();
    std::fs::create_dir(server.dir.join("empty")).expect("made");
    let empty = server.dir.join("empty").display().to_string();
    let (there, target) = (server.at("log"), server.target());
    let pattern = |path: &str| format!("{target}/{path}");
    for file in [&here, &there] {
        for (args, code, words) in [
            (&["wc", file, "--chunk", "0"][..], 2, "a chunk has 1 byte to 1GiB"),
            (&["wc", file, "--chunk", "2GiB"], 2, "a chunk has 1 byte to 1GiB"),
            (&["wc", file, "--offset", "-5"], 2, "a number of bytes is 0 or more; positions count from the beginning"),
            (&["wc", file, "--length", "-1"], 2, "a number of bytes is 0 or more"),
            (&["wc", file, "--offset", "8"], 2, "bytes 8..8 are not in "),
            (
                &["wc", file, "--offset", "8", "--length", "18446744073709551615"],
                2,
                "--offset 8 --length 18446744073709551615: no file has so many bytes",
            ),
            (
                &["regex", file, "--arg", "pattern=a(b"],
                2,
                "`a(b` is no regular expression: a `(` is not closed, at byte 1",
            ),
            (&["topk", file, "--arg", "row_len=1"], 1, "read/topk returned -22: the element does not lie within a row"),
            (&["none.o", file], 4, "cannot read none.o"),
            (&["nothing", file], 2, "no function is called `nothing`"),
        ] {
            let (exit, said) = fails(&[&["run"], args].concat());
            assert_eq!(exit, code, "{args:?}: {said}");
            assert!(said.contains(words), "{args:?}: {said}");
        }
    }
    for (file, code, words) in [
        (&pattern("data/*.zip"), 2, "No such file or directory"),
        (&pattern("dat/*.log"), 2, "there is no export `dat`"),
        (&pattern("dat/log"), 4, "there is no export `dat`; did you mean "),
        (&pattern("data/lgo"), 4, "; did you mean "),
        (&"diskside://127.0.0.1:1/data/*".to_owned(), 4, "no server listens there"),
        (&"diskside://127.0.0.1:1/data/log".to_owned(), 4, "no server listens there"),
    ] {
        let (exit, said) = fails(&["run", "wc", file]);
        assert!(exit == code && said.contains(words), "{file}: {exit}: {said}");
    }
    for (directory, code, words) in [
        (&pattern("data/nothing"), 4, "No such file or directory"),
        (&pattern("data/empty"), 2, "there are no files in it"),
        (&empty, 2, "there are no files in it"),
        (&format!("{empty}/nothing"), 4, "No such file or directory"),
    ] {
        let (exit, said) = fails(&["run", "wc", "--recursive", directory]);
        assert!(exit == code && said.contains(words), "{directory}: {exit}: {said}");
    }
}

/// They said `returned -22: Invalid argument`, and nobody knew of what.
#[test]
fn shipped_functions_say_in_words_what_is_wrong() {
    let server = Server::start("");
    let here = server.file("n", &numbers(1_000)).display().to_string();
    let keys = server.file("keys", &numbers(200_000)).display().to_string();
    let pairs = server.file("pairs", &[255, 1].repeat(100)).display().to_string();
    for (args, words) in [
        (
            &["topk", &here, "--arg", "row_len=8", "--arg", "offset=4"][..],
            "-22: the element does not lie within a row: check row_len",
        ),
        (
            &["bottomk", &here, "--offset", "4"],
            "-22: the input does not begin with a row: --offset has to be a multiple of row_len",
        ),
        (&["knn", &here, "--arg", "row_len=8", "--arg", "target=1,2"], "-22: the target is not as long as a row"),
        (
            &["histogram", &here, "--arg", "row_len=8", "--arg", "offset=8"],
            "-22: the element does not lie within a row",
        ),
        (&["aggregate", &here, "--arg", "row_len=4"], "-22: the key or the value does not lie within a row"),
        (
            &["aggregate", &keys, "--arg", "row_len=8", "--heap", "64KiB"],
            "-12: the keys of a piece do not fit in memory: give it more (--heap), or ask for shorter pieces (--chunk)",
        ),
        (
            &["array_stats", &here, "--arg", "type=f64", "--length", "4"],
            "-22: the input is not a whole number of elements: check their type",
        ),
        (
            &["array_stats", &here, "--arg", "type=f64", "--arg", "shape=1000000"],
            "-22: the input is no chunk of this shape",
        ),
        (&["array_histogram", &here, "--arg", "type=f64", "--arg", "edges=1"], "-22: edges are the ends of each bin"),
        (
            &["filter_u64", &here, "--arg", "lo=1", "--arg", "row_len=8", "--arg", "offset=1"],
            "-22: the element does not lie",
        ),
        (
            &["grep_scalar", &here, "--arg", "pattern="],
            "-22: the pattern is empty, which every row has: use grep_count",
        ),
        (
            &["bitmap", &pairs],
            "-28: the input expands to more than 32 times its length, for which there is no room: with --chunk 2",
        ),
        (
            &["bitmap", &pairs, "--length", "3"],
            "-22: the input is pairs of bytes, how often and what, and ends within one",
        ),
    ] {
        let url = args[1].replace(&server.dir.display().to_string(), &server.url);
        let (code, here) = fails(&[&["run"], args].concat());
        assert_eq!(code, 1, "{args:?}: {here}");
        assert!(here.contains(&format!(" returned {words}")), "{args:?}: {here}");
        // In the same words at the server, which has another name for the file.
        if args[0] != "bitmap" {
            let run = [&["run", args[0], &url, "--where", "device"], &args[2..]].concat();
            assert_eq!(fails(&run), (1, here.replace(args[1], &url)));
        }
    }
    // What it says to do does it.
    let out = server.dir.join("out").display().to_string();
    assert_eq!(fails(&["run", "bitmap", &pairs, "--chunk", "2", "--out", &out]).0, 0);
    assert_eq!(std::fs::read(out).expect("written"), [1; 25_500]);
}

/// Of whole numbers it said what they would be as floating-point numbers, which nobody had asked for.
#[test]
fn the_type_of_an_array_is_asked_for() {
    let server = Server::start("");
    let here = server.file("n", &numbers(10)).display().to_string();
    for function in ["array_stats", "array_histogram"] {
        let (code, said) = fails(&["run", function, &here]);
        assert!(code == 2 && said.contains(&format!("{function}: argument `type` (one of u8, i8,")), "{said}");
        assert!(said.contains("must be given: u8, i8, u16, i16, u32, i32, u64, i64, f32 or f64"), "{said}");
    }
}

/// A number below those of 32 bits was shown as the least of them.
#[test]
fn what_a_function_returned_is_told_as_it_is() {
    let server = Server::start("");
    let here = server.file("n", b"12345678").display().to_string();
    let function = |value: &str| {
        let body = format!(
            "#include \"diskside.h\"\nDS_CONCATENATE;\nSEC(\"read/f\")\n__s64 f(char *out, const __u64 *in, __u64 in_len, \
             const void *args, const struct ds_call *call) {{ return {value}; }}\n"
        );
        server.file("f.bpf.c", body.as_bytes()).display().to_string()
    };
    for (value, words) in [
        ("-5000000000", "returned -5000000000: this is no errno"),
        ("-9223372036854775807 - 1", "returned -9223372036854775808: this is no errno"),
        ("-4096", "returned -4096: this is no errno"),
        ("-2", "returned -2: No such file or directory (os error 2)"),
        // A run that went well says nothing.
        ("ds_fail(0, \"nothing\", 7), -2", "returned -2: nothing"),
    ] {
        let f = function(value);
        for file in [&here, &server.at("n")] {
            let (code, said) = fails(&["run", &f, file]);
            assert_eq!((code, said), (1, format!("diskside: {file}, bytes 0..8: read/f {words}\n")));
        }
    }
}

/// A table of the library that was full, and a key that was too long, failed with a bare errno: "No space left on device" of a
/// function that writes to no device. The message names the table, and what to do.
#[test]
fn a_full_table_of_the_library_says_what_is_full() {
    let server = Server::start("");
    // As many keys as there are lines, of 4 bytes; one of 5 at the end.
    let keys = |count: usize| (0..count).map(|at| format!("{at:04}\n")).collect::<String>();
    let few = server.file("few", keys(100).as_bytes()).display().to_string();
    let many = server.file("many", keys(9000).as_bytes()).display().to_string();
    let long = server.file("long", b"0001\n00002\n").display().to_string();
    let function = |row: &str, table: &str, key: &str, room: usize| {
        let body = format!(
            "#include <diskside/groups.h>\n#include <diskside/tables.h>\nDS_SPLIT_LINES;\nDS_OUTPUT(0, 1, {room});\n\
             struct row {{ {row} __u32 lines; }};\n{table}(rows, struct row, key);\nSEC(\"read/f\")\n\
             __s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call) {{\n\
             struct ds_text rest = ds_text(in, in_len), line;\nstruct rows table = {{0}};\n__u64 number;\n\
             while (ds_next_line(&rest, &line)) {{\nds_parse_u64(line, &number);\n\
             struct row *row = rows_at(&table, {key});\nif (!row)\nreturn table.error;\nrow->lines++;\n}}\n\
             return rows_write(&table, out, call->out_cap);\n}}\n\
             static void add(struct row *to, const struct row *from) {{ to->lines += from->lines; }}\n\
             SEC(\"combine/f\")\n__s64 fold(struct row *acc, __u64 acc_len, __u64 acc_cap, const struct row *part, \
             __u64 part_len) {{\nreturn rows_merge(acc, acc_len, {merged}, part, part_len, add);\n}}\n",
            merged = if room == 1608 { "200 * sizeof(*acc)" } else { "acc_cap" }
        );
        server.file(&format!("{table}{room}.bpf.c"), body.as_bytes()).display().to_string()
    };
    for (row, table, key) in [("char key[4];", "DS_GROUPS", "line"), ("__u32 key;", "DS_TABLE", "number")] {
        let of = |room: usize| function(row, table, key, room);
        let (code, said) = fails(&["run", &of(799), &few]);
        let told = "read/f returned -28: the rows of `rows` do not fit in their output: give it more (DS_OUTPUT), or ask for \
                    shorter pieces (--chunk)\n";
        assert!(code == 1 && said.ends_with(told), "{table}: {said}");
        let (code, said) = fails(&["run", &of(80_000), &many, "--heap", "64KiB"]);
        let told = "read/f returned -12: the heap has no room for more rows of `rows`: give it more (--heap), or ask for shorter \
                    pieces (--chunk)\n";
        assert!(code == 1 && said.ends_with(told), "{table}: {said}");
        // A piece has at most 100 rows, and all of them have 9,000.
        let (code, said) = fails(&["run", &of(1608), &many, "--chunk", "500"]);
        let told = "combine/f returned -28: the rows of `rows` of all pieces do not fit in one result: run it over less at a \
                    time (--offset, --length)\n";
        assert!(code == 1 && said.ends_with(told), "{table}: {said}");
    }
    let groups = function("char key[4];", "DS_GROUPS", "line", 80_000);
    let (code, said) = fails(&["run", &groups, &long]);
    let told = "read/f returned -7: a key is longer than the member `key` of the rows of `rows`: make it longer, or cut the key\n";
    assert!(code == 1 && said.ends_with(told), "{said}");
}

/// It was asked whether the link itself was meant.
#[test]
fn a_link_that_leads_nowhere_says_where_it_leads() {
    let server = Server::start("");
    server.file("log", b"a line\n");
    symlink("gone", server.dir.join("lnk")).expect("made");
    let link = server.dir.join("lnk").display().to_string();
    let not_there = "No such file or directory (os error 2)";
    for args in [&["run", "wc", &link][..], &["cp", &link, "x"]] {
        let said =
            format!("diskside: cannot open {link}: {not_there}; it is a symbolic link to gone, which is not there\n");
        assert_eq!(fails(args), (4, said));
    }
    let (code, said) = fails(&["cat", &server.at("lnk")]);
    assert!(code == 4 && !said.contains("/lnk?"), "{said}");
}

/// The error of a URL without a host said how volumes are written, and that of a directory only that it is one.
#[test]
fn urls_and_directories_are_told_what_to_write() {
    let server = Server::start("");
    server.file("log", b"a line\n");
    std::fs::create_dir(server.dir.join("sub")).expect("made");
    let (here, there) = (server.dir.join("sub").display().to_string(), server.at("sub"));
    let url = |text: &str| fails(&["run", "wc", text]);
    let said = "diskside: \"diskside://\" names no host: write diskside://HOST[:PORT]/EXPORT/PATH\n".to_owned();
    assert_eq!(url("diskside://"), (2, said));
    let (code, said) = url("diskside://::1/data/x");
    assert!(code == 2 && said.contains("as in diskside://[2001:db8::1]:4420"), "{said}");
    for text in ["nvme-tcp://server/nqn.2026-11.io.diskside:x/1", "server"] {
        let (code, said) = fails(&["ls", text]);
        let told = format!(
            "{text:?} is no URL of a target that serves directories: write diskside://HOST[:PORT]/EXPORT/PATH; `diskside ls \
             diskside://HOST[:PORT]` lists its exports\n"
        );
        assert!(code == 2 && said.contains(&told), "{said}");
    }
    let (code, said) = url("diskside://127.0.0.1:1/data/x");
    assert!(code == 4 && said.starts_with("diskside: cannot connect to 127.0.0.1:1: "), "{said}");
    let (code, said) = url(&there);
    assert!(code == 4 && said.contains("Is a directory"), "{said}");
    assert!(said.ends_with(&format!("; --recursive takes all files below it, '{there}/*' those in it\n")), "{said}");
    let (code, said) = url(&here);
    assert!(code == 4 && said.ends_with("name the files in it, or --recursive takes all below it\n"), "{said}");
    let (code, said) = fails(&["cp", &there, "-"]);
    let told = format!("diskside: {there}: it is a directory, which has no bytes of its own: name the files in it\n");
    assert_eq!((code, said), (4, told));
}

/// A copy to `logs/` became a file `logs` in an export where no such directory was, and here the error was of one that is there.
#[test]
fn a_name_that_ends_in_a_slash_is_of_a_directory() {
    let server = Server::start(",rw");
    let log = server.file("log", b"a line\n").display().to_string();
    let here = server.dir.join("none/").display().to_string();
    for (to, told) in [
        (here.clone(), "No such file or directory (os error 2): make the directory first\n"),
        (server.at("none/"), "there is no such directory; make it first, or leave out the slash\n"),
        (format!("{log}/"), "Not a directory (os error 20): name a file\n"),
    ] {
        for command in [&["cp", &log, &to][..], &["run", "wc", &log, "--out", &to]] {
            let (code, said) = fails(command);
            assert!(code == 4 && said.ends_with(told), "{command:?}: {code}, {said}");
        }
    }
    assert!(!server.dir.join("none").exists());
    std::fs::create_dir(server.dir.join("none")).expect("made");
    good(&["cp", &log, &server.at("none/")]);
    good(&["cp", &log, &here]);
    assert_eq!(std::fs::read(server.dir.join("none/log")).expect("written"), b"a line\n");
}

/// `cp s.log "$URL/*.log"` made a file whose name was `*.log`.
#[test]
fn a_pattern_is_no_name_for_what_is_written() {
    let server = Server::start("");
    let here = server.file("log", b"a line\n").display().to_string();
    let to = server.at("*.log");
    let (code, said) = fails(&["cp", &here, &to]);
    let told = format!(
        "diskside: {to} is a pattern, and names no file to write: name one; --literal writes a file of this very name\n"
    );
    assert_eq!((code, said), (2, told));
    let (code, said) = fails(&["run", "grep", &here, "--arg", "pattern=a", "--out", &server.at("a?")]);
    assert!(code == 2 && said.contains("is a pattern, and names no file to write"), "{said}");
    assert!(!server.dir.join("*.log").exists());
    let (code, _, said) = diskside(&["cp", "--literal", &here, &to]);
    assert_eq!(diskside(&["cp", &here, &to]).0, 0, "what is there by that very name is meant");
    assert_eq!((code, std::fs::read(server.dir.join("*.log")).expect("written")), (0, b"a line\n".to_vec()), "{said}");
    // As many names have brackets.
    let (code, _, said) = diskside(&["cp", &here, &server.at("log[1]")]);
    assert!(code == 0 && server.dir.join("log[1]").exists(), "{said}");
}
