//! The plug-in as the suite starts it.

#[path = "../../../crates/sbpf/tests/elf_writer/mod.rs"]
mod elf_writer;

use std::io::Write;
use std::process::{Command, Stdio};

/// Exit status, standard output and standard error.
fn plugin(args: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_diskside-conformance"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the plug-in starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(stdin.as_bytes()).expect("it reads");
    drop(input);
    let out = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

fn hex(bytes: &[u8]) -> String {
    let words: Vec<_> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    // Two spaces between bytes, as the suite writes them.
    words.join("  ")
}

const ADD_AND_EXIT: &str = "71 10 00 00 00 00 00 00  0f 20 00 00 00 00 00 00  95 00 00 00 00 00 00 00";

#[test]
fn program_on_standard_input_and_memory_as_argument() {
    for tier in ["interp", "cranelift"] {
        let answer = plugin(&["a0 01 02", "--tier", tier], &format!("{ADD_AND_EXIT}\n"));
        assert_eq!(answer, (Some(0), "a3\n".to_owned(), String::new()));
    }
}

#[test]
fn options_as_the_suite_passes_them() {
    let joined = plugin(&["a0 01 02 ", "--tier cranelift"], &format!("{ADD_AND_EXIT}\n"));
    assert_eq!(joined, (Some(0), "a3\n".to_owned(), String::new()));
    let empty = plugin(&["", ""], "b7 00 00 00 ff ff ff ff  95 00 00 00 00 00 00 00\n");
    assert_eq!(empty.1, "ffffffffffffffff\n");
    let argument = plugin(&["--program", ADD_AND_EXIT, "05"], "");
    assert_eq!(argument.1, "6\n");
}

#[test]
fn an_object_instead_of_instructions() {
    let mut object = elf_writer::Object::default();
    let section = object.code(".text", &[0x0000_0007_0000_00b7, 0x95]);
    object.symbol("main", elf_writer::GLOBAL_FUNC, section, 0, 16);
    let answer = plugin(&["--elf"], &hex(&object.to_bytes()));
    assert_eq!(answer, (Some(0), "7\n".to_owned(), String::new()));
}

#[test]
fn debug_prints_the_program() {
    let answer = plugin(&["a0", "--debug"], ADD_AND_EXIT);
    assert_eq!(answer.1, "a1\n");
    assert!(answer.2.contains("ldxb %r0, [%r1]"), "{}", answer.2);
}

#[test]
fn reasons_of_failure() {
    for (args, program, expected) in [
        (vec![], ADD_AND_EXIT, "instruction 0: out-of-bounds read of 1 bytes of input at offset 0"),
        (vec![], "95 00", "raw eBPF code of 2 bytes: the length must be a positive multiple of 8"),
        (vec![], "", "raw eBPF code of 0 bytes"),
        (vec![], "95 00 0g", "program: `0g` is no sequence of hexadecimal bytes"),
        (vec!["1 2 333"], ADD_AND_EXIT, "memory: `333` is no sequence of hexadecimal bytes"),
        (vec!["--elf"], ADD_AND_EXIT, "malformed ELF object: it does not start with a whole ELF header"),
        (vec![], "95 00 00 00 00 00 00 00", "V0304: "),
    ] {
        let (status, out, error) = plugin(&args, program);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
