//! All conformance cases, compiled: with a check at every access, and with checks hoisted.

#[path = "../../sbpf/tests/conformance/cases.rs"]
mod cases;

use diskside_sbpf::ir::Module;
use diskside_sbpf_cranelift::{CompiledModule, Options, compile};
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
    compile(module, &Options::default()).expect("what verifies compiles")
}
