//! The LLVM tier beside running calls: it takes over, it is kept on disk, and when it fails nobody
//! notices but those who look.

use diskside_engine::split::Split;
use diskside_engine::{Call, Engine, Function, LlvmOptions, Outcome, Sink, Source, TierChoice};
use diskside_sbpf::activation::Tier;
use diskside_sbpf::asm::assemble;
use diskside_sbpf::helpers;
use diskside_sbpf::image::Kind;
use diskside_sbpf_llvm::Compiler;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The sum of the input's bytes, as eight bytes.
const SUM: &str = "
    mov %r0, 0
    mov %r4, %r2
    add %r4, %r3
next:
    ldxb %r5, [%r2]
    add %r0, %r5
    add %r2, 1
    jlt %r2, %r4, next
    stxdw [%r1], %r0
    mov %r0, 8
    exit";

fn sum() -> Function {
    let helpers = Arc::new(helpers::standard());
    let mut image = assemble(SUM).expect("it assembles").into_image(Kind::Read, &helpers).expect("it links");
    (image.note.split, image.note.concatenates) = (Some(Split::Bytes), true);
    Function::from_image(&Arc::new(image), None, &helpers).expect("it verifies")
}

/// Runs over this many chunks of 64 KiB.
fn run(engine: &Engine, function: &Function, chunks: usize, tier: TierChoice) -> Outcome {
    let bytes: Arc<[u8]> = vec![3; chunks * (64 << 10)].into();
    let mut call = Call::new(function, vec![Source::Bytes { name: "input".into(), bytes }], Vec::new());
    call.chunk_len = Some(64 << 10);
    call.tier = tier;
    let outcome = engine.run(&call, &mut Sink::Memory).expect("it runs");
    let expected = (3u64 * (64 << 10)).to_le_bytes();
    assert!(outcome.result.chunks(8).all(|sum| sum == expected), "every chunk has the same sum, in any tier");
    assert_eq!(outcome.result.len(), chunks * 8);
    outcome
}

fn engine(compiler: Compiler, store: Option<&Path>, input_len_min: u64) -> Engine {
    let store = store.map(Path::to_owned);
    Engine::new(helpers::standard()).with_llvm(LlvmOptions { compiler, store, input_len_min })
}

/// Runs until what is waited for is there.
fn run_until(engine: &Engine, function: &Function, done: impl Fn(&Outcome) -> bool) -> Outcome {
    for _ in 0..10_000 {
        let outcome = run(engine, function, 2, TierChoice::Best);
        if done(&outcome) {
            return outcome;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it did not happen: {:?}", engine.code().stats());
}

#[test]
fn a_compiler_that_crashes_is_counted_and_cranelift_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("crashes");
    let text = dir.path().join("text");
    std::fs::write(&text, "#!/bin/sh\nkill -SEGV $$\n").expect("it is written");
    // A file that this process writes may be held open for writing by one that another test starts: then it is not run.
    let installed = Command::new("install").args(["-m", "700"]).args([&text, &script]).status();
    assert!(installed.expect("it is started").success());
    let engine = engine(Compiler::at(script), None, 1);
    let function = sum();
    run_until(&engine, &function, |_| engine.code().stats().llvm_failed > 0);
    let outcome = run(&engine, &function, 4, TierChoice::Best);
    assert_eq!(outcome.stats.tier, Tier::Cranelift);
    let stats = engine.code().stats();
    assert_eq!((stats.llvm_failed, stats.llvm_compiled), (1, 0), "it is asked once: {stats:?}");
    let why = stats.llvm_last_failure.expect("a reason");
    assert!(why.contains("the compiler"), "{why}");
}

#[test]
fn little_input_starts_no_compiler() {
    let engine = engine(Compiler::at("/nonexistent"), None, 1 << 30);
    let function = sum();
    for _ in 0..5 {
        assert_eq!(run(&engine, &function, 4, TierChoice::Best).stats.tier, Tier::Cranelift);
    }
    assert_eq!(engine.code().stats(), Default::default());
}

#[test]
fn a_store_that_others_may_write_is_not_used_and_said() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("it is ours");
    let engine = engine(Compiler::at("/nonexistent"), Some(dir.path()), 1);
    let why = engine.code().stats().store_failure.expect("a reason");
    assert!(why.contains("nobody else may use"), "{why}");
}

#[test]
fn without_a_compiler_the_tier_is_absent() {
    let function = sum();
    let call = Call::new(&function, Vec::new(), Vec::new());
    let mut only = call.clone();
    only.tier = TierChoice::Only(Tier::Llvm);
    let error = Engine::new(helpers::standard()).run(&only, &mut Sink::Memory).expect_err("it is not there");
    assert!(error.to_string().contains("diskside-llvm"), "{error}");
}

#[cfg(feature = "llvm-tests")]
mod with_the_compiler {
    use super::*;

    fn compiler() -> Compiler {
        Compiler::find().expect("build it first: cargo build -p diskside-sbpf-llvm --features compiler")
    }

    #[test]
    fn its_code_takes_over_while_calls_go_on() {
        let engine = engine(compiler(), None, 128 << 10);
        let function = sum();
        assert_eq!(run(&engine, &function, 1, TierChoice::Best).stats.tier, Tier::Cranelift);
        run_until(&engine, &function, |outcome| outcome.stats.tier == Tier::Llvm);
        let stats = engine.code().stats();
        assert_eq!((stats.llvm_compiled, stats.llvm_loaded, stats.llvm_failed), (1, 0, 0));
    }

    #[test]
    fn a_restart_is_warm() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = dir.path().join("code");
        let function = sum();
        let first = engine(compiler(), Some(&store), 1 << 40);
        assert_eq!(run(&first, &function, 1, TierChoice::Only(Tier::Llvm)).stats.tier, Tier::Llvm);
        assert_eq!(first.code().stats().llvm_compiled, 1);

        // As a new process: what is stored is used although no compilation is due.
        let second = engine(compiler(), Some(&store), 1 << 40);
        run_until(&second, &function, |outcome| outcome.stats.tier == Tier::Llvm);
        let stats = second.code().stats();
        assert_eq!((stats.llvm_compiled, stats.llvm_loaded, stats.llvm_failed), (0, 1, 0));

        // Damaged, it is compiled again.
        let file = std::fs::read_dir(&store).expect("it is there").next().expect("one file").expect("it is read");
        let mut bytes = std::fs::read(file.path()).expect("it is ours");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(file.path(), bytes).expect("it is ours");
        let third = engine(compiler(), Some(&store), 1 << 40);
        run(&third, &function, 1, TierChoice::Only(Tier::Llvm));
        assert_eq!(third.code().stats().llvm_compiled, 1);
    }
}
