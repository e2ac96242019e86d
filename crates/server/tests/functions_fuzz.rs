//! The state behind function commands, run for a moment on random commands: what a fuzzer would
//! find at once is found here, on stable Rust and in every test run. `DISKSIDE_FUZZ_ROUNDS=n` runs longer.

mod common;
#[path = "support/functions.rs"]
#[allow(unreachable_pub, reason = "its items are those of a fuzzer's entry point")]
mod functions;
#[path = "../../nvme/tests/support/rng.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared with tests that use more of it")]
mod rng;

use functions::Lab;
use rng::Rng;
use std::sync::atomic::Ordering;

#[test]
fn random_commands_are_all_answered_and_leave_nothing_behind() {
    let rounds = std::env::var("DISKSIDE_FUZZ_ROUNDS").map_or(30, |text| text.parse().expect("a number"));
    let directory = tempfile::tempdir().expect("a directory");
    let lab = Lab::new(directory.path());
    for round in 0..rounds {
        let mut rng = Rng::new(round);
        let len = rng.between(1, 1500);
        let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        let run = std::panic::AssertUnwindSafe(|| lab.run(&bytes));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("round {round} failed");
            std::panic::resume_unwind(panic);
        }
    }
    assert!(rounds < 30 || lab.compared.load(Ordering::Relaxed) > 0, "nothing was compared");
}

/// Inputs that are kept.
#[test]
fn kept_inputs_are_answered_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let lab = Lab::new(directory.path());
    let kept = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/calls")).expect("it is there");
    let mut count = 0;
    for input in kept {
        lab.run(&std::fs::read(input.expect("readable").path()).expect("readable"));
        count += 1;
    }
    assert!(count > 0);
}
