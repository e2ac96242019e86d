//! The fuzzer's entry point to the state behind the standard commands, run for a moment on random commands: what a fuzzer
//! would find at once is found here, on stable Rust and in every test run. `DISKSIDE_FUZZ_ROUNDS=n` runs longer.

#[path = "../../nvme/tests/support/rng.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared with tests that use more of it")]
mod rng;
#[path = "support/standard.rs"]
#[allow(unreachable_pub, reason = "it is shared with a fuzzer")]
mod standard;

use rng::Rng;
use standard::Lab;

#[test]
fn random_commands_leave_what_the_specification_says() {
    let rounds = std::env::var("DISKSIDE_FUZZ_ROUNDS").map_or(60, |text| text.parse().expect("a number"));
    let lab = Lab::new();
    for round in 0..rounds {
        let mut rng = Rng::new(round);
        let len = rng.between(1, 900);
        let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        let run = std::panic::AssertUnwindSafe(|| lab.run(&bytes));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("round {round} failed");
            std::panic::resume_unwind(panic);
        }
    }
}

/// The first inputs of the fuzzer: each reaches something of its own.
#[test]
fn kept_inputs_leave_it_too() {
    let lab = Lab::new();
    let kept =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/compute")).expect("it is there");
    let mut count = 0;
    for input in kept {
        lab.run(&std::fs::read(input.expect("readable").path()).expect("readable"));
        count += 1;
    }
    assert!(count > 0);
}
