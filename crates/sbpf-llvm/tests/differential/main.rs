//! As the Cranelift tier's test of the same name, with code of LLVM: results, output bytes, traps in all
//! their fields and the budget left are those of the interpreter.
#![cfg(feature = "compiler")]

mod forms;
#[path = "../../../sbpf-cranelift/tests/differential/generate/mod.rs"]
mod generate;
#[path = "../../../sbpf-cranelift/tests/differential/harness.rs"]
mod harness;
#[path = "../../../sbpf-cranelift/tests/differential/rng.rs"]
mod rng;
#[path = "../../../sbpf-cranelift/tests/differential/run.rs"]
mod run;

#[test]
fn all_tiers_agree() {
    harness::all_tiers_agree();
}
