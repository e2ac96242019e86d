//! All conformance cases, in every tier: the same values and the same errors.

#[path = "../../../crates/sbpf/tests/conformance/cases.rs"]
mod cases;

use diskside_sbpf_cranelift::{Options, compile};
use std::sync::Arc;

#[test]
fn every_case_in_the_interpreter() {
    assert!(cases::run_all(|program| Arc::new(program.interpreter())) > 400);
}

#[test]
fn every_case_compiled_by_cranelift() {
    let count = cases::run_all(|program| {
        let code = compile(program.optimised(), &Options::default());
        Arc::new(code.expect("a verified program compiles"))
    });
    assert!(count > 400);
}
