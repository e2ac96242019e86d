//! Every tier gives the same: results, output bytes, traps in all their fields, budget left.
//!
//! Random programs that verify run in the interpreter on the plain IR (the reference), in the
//! interpreter on the optimised IR (which proves every hoisted check again), and compiled from both,
//! on random inputs: empty, off by one at both ends, misaligned, with budgets that end in the middle
//! of a loop.
//!
//! `DISKSIDE_FUZZ_SECONDS` runs longer than the smoke test, `DISKSIDE_FUZZ_SEED` starts elsewhere or
//! repeats a failure. Before each program its seed goes to `differential.seed` in the target's
//! temporary directory, so that a crash can be repeated, too.

mod forms;
mod generate;
mod harness;
mod rng;
mod run;

#[test]
fn all_tiers_agree() {
    harness::all_tiers_agree();
}
