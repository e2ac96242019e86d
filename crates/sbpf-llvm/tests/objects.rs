//! The sections and references that an object may have, and the privileges that the real compiler drops before it
//! reads.
#![cfg(feature = "compiler")]

use diskside_sbpf_llvm::wire::Answer;
use diskside_sbpf_llvm::{CompiledModule, Compiler};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const COMPILER: &str = env!("CARGO_BIN_EXE_diskside-llvm");

fn start() -> Child {
    let mut command = Command::new(COMPILER);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
}

fn answer(text: &str) -> Answer {
    let mut child = start();
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", out.status);
    Answer::parse(&out.stdout).expect("an answer")
}

fn refusal(text: &str) -> String {
    let Answer::Object { object, .. } = answer(text) else {
        panic!("LLVM takes this: {:?}", answer(text));
    };
    CompiledModule::from_object(&object).expect_err("it is refused").to_string()
}

/// An entry with this body, and what stands before it.
fn module(before: &str, body: &str) -> String {
    format!(
        "{before}\ndefine {{ i64, i64 }} @ds_entry(ptr %m, i64 %r1, i64 %r2, i64 %r3, i64 %r4, i64 %r5, i64 %r10) {{\n\
         {body}\nret {{ i64, i64 }} zeroinitializer\n}}"
    )
}

#[test]
fn what_code_may_call_is_a_list() {
    let said = refusal(&module("declare i64 @system(i64)", "%x = call i64 @system(i64 %r1)"));
    assert!(said.ends_with("`system` is not on the list of what code may call"), "{said}");
    let listed = module("declare void @ds_refill(ptr)", "call void @ds_refill(ptr %m)");
    let Answer::Object { object, .. } = answer(&listed) else { panic!("LLVM takes this") };
    CompiledModule::from_object(&object).expect("it is on the list");
}

#[test]
fn other_relocations_are_refused() {
    // The address of a function, loaded from the table of a dynamic linker that is not there.
    let said = refusal(&module("declare void @ds_refill(ptr)", "store volatile ptr @ds_refill, ptr %m"));
    assert!(said.contains("is not on the list"), "{said}");
}

#[test]
fn data_of_its_own_is_refused() {
    for global in ["@g = global i64 1", "@g = global i64 0", "@g = thread_local global i64 1"] {
        let said = refusal(&module(global, "store volatile i64 %r1, ptr @g"));
        assert!(said.contains("writable") || said.contains("not on the list"), "{global}: {said}");
    }
}

#[test]
fn an_object_without_the_entry_is_refused() {
    assert_eq!(refusal("define void @other() {\nret void\n}"), "it has no function `ds_entry`");
    assert_eq!(refusal("@ds_entry = constant [8 x i64] zeroinitializer"), "it has no function `ds_entry`");
}

#[test]
fn text_that_is_none_is_an_answer() {
    match answer("define nonsense") {
        Answer::Error(message) => assert!(message.contains("expected type"), "{message}"),
        other => panic!("{other:?}"),
    }
}

/// Any cut and any changed byte of an object is linked or refused, and nothing else.
#[test]
fn damaged_objects_do_no_harm() {
    let text = module("declare void @ds_refill(ptr)", "call void @ds_refill(ptr %m)");
    let Answer::Object { object, .. } = answer(&text) else { panic!("LLVM takes this") };
    for len in 0..object.len() {
        let _ = CompiledModule::from_object(&object[..len]);
    }
    for at in 0..object.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut damaged = object.clone();
            damaged[at] ^= change;
            let _ = CompiledModule::from_object(&damaged);
        }
    }
}

#[test]
fn the_compiler_gives_up_everything_before_it_reads() {
    let mut child = start();
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap_or_default();
    let started = Instant::now();
    while !read("status").contains("Seccomp:\t2") {
        assert!(started.elapsed() < Duration::from_secs(60), "{}", read("status"));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(read("status").contains("NoNewPrivs:\t1"), "{}", read("status"));
    let limits = read("limits");
    let limit = |name: &str| -> Vec<String> {
        let line = limits.lines().find(|l| l.starts_with(name)).expect("a line for each limit");
        line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect()
    };
    assert_eq!(limit("Max open files"), ["0", "0"]);
    assert_eq!(limit("Max file size"), ["0", "0"]);
    assert_eq!(limit("Max cpu time"), ["15", "15"]);
    assert_eq!(limit("Max address space"), ["2147483648", "2147483648"]);
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
}

#[test]
fn the_identity_names_version_and_processor() {
    let native = Compiler::at(COMPILER).identity().expect("it says");
    assert!(native.starts_with("LLVM 19."), "{native}");
    let named = Compiler::at(COMPILER).with_baseline("x86-64").expect("every one is that").identity().expect("it says");
    assert!(named.trim_end().ends_with(" x86-64"), "{named}");
    assert_ne!(native, named);
    let error = Compiler::at(COMPILER).with_baseline("i486").expect_err("that is none");
    assert!(error.starts_with("`i486` is none of x86-64,"), "{error}");
}
