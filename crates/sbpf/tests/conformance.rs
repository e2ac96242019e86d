//! All conformance cases, in the interpreter.

#[path = "conformance/cases.rs"]
mod cases;

use std::sync::Arc;

#[test]
fn every_case_in_the_interpreter() {
    let count = cases::run_all(|program| Arc::new(program.interpreter()));
    assert!(count > 400, "only {count} cases were found");
}
