//! All conformance cases, compiled by LLVM with checks hoisted and without.
#![cfg(all(feature = "compiler", target_arch = "x86_64"))]

#[path = "../../sbpf/tests/conformance/cases.rs"]
mod cases;

use diskside_sbpf::ir::Module;
use diskside_sbpf_llvm::{CompiledModule, Compiler, compile};
use std::sync::Arc;

#[test]
fn every_case_compiled_with_all_checks() {
    assert!(cases::run_all(|program| Arc::new(compiled(program.plain()))) > 400);
}

#[test]
fn every_case_compiled_with_checks_hoisted() {
    assert!(cases::run_all(|program| Arc::new(compiled(program.optimised()))) > 400);
}

/// Without the instructions that every recent processor has, roundings and others are calls.
#[test]
fn every_case_compiled_for_the_oldest_processor() {
    let compiler = Compiler::at(env!("CARGO_BIN_EXE_diskside-llvm")).with_baseline("x86-64").expect("any is that");
    let count = cases::run_all(|program| {
        Arc::new(compile(program.optimised(), &compiler).expect("what verifies compiles").code)
    });
    assert!(count > 400);
}

fn compiled(module: &Module) -> CompiledModule {
    let compiler = Compiler::at(env!("CARGO_BIN_EXE_diskside-llvm"));
    compile(module, &compiler).expect("what verifies compiles").code
}
