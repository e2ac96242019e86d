//! A compiler that is away, crashes, hangs or talks nonsense is an error here and nothing worse.

use diskside_sbpf::activation::Program;
use diskside_sbpf::asm::assemble;
use diskside_sbpf::helpers;
use diskside_sbpf::image::Kind;
use diskside_sbpf_llvm::{ChildError, CompileError, Compiler, compile};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn program() -> Program {
    let helpers = Arc::new(helpers::standard());
    let image = assemble("mov %r0, 7\nexit").expect("it assembles").into_image(Kind::Raw, &helpers).expect("it links");
    Program::new(&Arc::new(image), 0, &helpers).expect("it verifies")
}

/// Held from the writing of a script to its end: a process that another test starts meanwhile would
/// hold the script open for writing, and then it cannot be run.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program in the compiler's place.
fn script(name: &str, body: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("it is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
    path
}

fn error_of(name: &str, body: &str) -> ChildError {
    let _alone = alone();
    let compiler = Compiler::at(script(name, body)).with_time_max(Duration::from_secs(60));
    match compile(program().optimised(), &compiler) {
        Err(CompileError::Child(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_that_is_not_there() {
    let error = compile(program().optimised(), &Compiler::at("/nonexistent/diskside-llvm")).expect_err("there is none");
    assert!(error.to_string().starts_with("/nonexistent/diskside-llvm cannot be started"), "{error}");
}

#[test]
fn one_that_crashes() {
    // At once, before it reads; and in the middle of its answer.
    for (name, body) in [("crash-early", "kill -SEGV $$"), ("crash-late", "cat > /dev/null; echo ok 5; kill -ABRT $$")]
    {
        match error_of(name, body) {
            ChildError::Crashed { status } => assert!(status.signal().is_some(), "{status}"),
            error => panic!("{error:?}"),
        }
    }
    let error = error_of("fails", "cat > /dev/null; exit 3");
    assert_eq!(error.to_string(), "the compiler ended with exit status: 3");
}

#[test]
fn one_that_hangs_is_stopped() {
    for (name, body) in [("hang-deaf", "exec sleep 1000"), ("hang-mute", "cat > /dev/null; exec sleep 1000")] {
        let _alone = alone();
        let compiler = Compiler::at(script(name, body)).with_time_max(Duration::from_millis(50));
        let started = Instant::now();
        let error = compile(program().optimised(), &compiler).expect_err("it never answers");
        assert!(matches!(error, CompileError::Child(ChildError::TimedOut { .. })), "{error:?}");
        assert!(started.elapsed() < Duration::from_secs(100), "it was waited for");
    }
}

#[test]
fn one_that_talks_nonsense() {
    for (name, body, why) in [
        ("mute", "", "no first line"),
        ("babble", "echo hello", "the first line is neither `ok` nor `error`"),
        ("short", "echo ok 1 100; echo x", "the answer has another length than it says"),
    ] {
        let error = error_of(name, &format!("cat > /dev/null; {body}"));
        assert_eq!(error.to_string(), format!("the compiler's answer makes no sense: {why}"));
    }
    let error = error_of("endless", "cat > /dev/null; exec yes");
    assert!(matches!(error, ChildError::Garbage(_) | ChildError::Crashed { .. }), "{error:?}");
    let error = error_of("refuses", "cat > /dev/null; printf 'error 2\\nno'");
    assert_eq!(error.to_string(), "LLVM refused: no");
}

#[test]
fn one_whose_object_is_none() {
    let _alone = alone();
    let compiler = Compiler::at(script("no-object", "cat > /dev/null; printf 'ok 0 4\\nELF!'"));
    let error = compile(program().optimised(), &compiler).expect_err("that is no object");
    assert!(error.to_string().starts_with("the compiler's object is refused: it is no relocatable"), "{error}");
}
