//! All conformance cases, compiled by LLVM with checks hoisted and without.
#![cfg(feature = "compiler")]

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

fn compiled(module: &Module) -> CompiledModule {
    let compiler = Compiler::at(env!("CARGO_BIN_EXE_diskside-llvm"));
    compile(module, &compiler).expect("what verifies compiles").code
}
