//! The fuzzers' entry points for commands, run for a moment on mutations of valid ones.

#[path = "../../nvme/tests/support/mod.rs"]
mod nvme;
mod support;

use nvme::mutation::{mutate, smoke_with};
use support::{commands, seeds};

fn smoke_seeds(run: fn(&[u8]), seeds: &[(&str, Vec<u8>)], salt: u64) {
    for (name, input) in seeds {
        println!("{name}");
        run(input);
    }
    smoke_with(run, salt, |rng| {
        let (_, input) = rng.pick(seeds);
        mutate(rng, input)
    });
}

#[test]
fn commands_and_answers_decode_to_what_was_encoded() {
    smoke_seeds(commands::function, &seeds::function(), 5);
    smoke_seeds(commands::answers, &seeds::answers(), 6);
    smoke_seeds(commands::standard, &seeds::standard(), 7);
}

/// The fuzzers' kept inputs, and so what they start from, are commands as hosts send them.
#[test]
fn every_seed_is_taken_by_a_target() {
    for (name, input) in seeds::function() {
        assert!(commands::is_delivered(&input, false), "{name} does not come to the target");
    }
    for (name, input) in seeds::standard() {
        let admin = !["execute", "memory-write", "memory-read", "memory-fill", "memory-copy"].contains(&name);
        assert!(commands::is_delivered(&input, admin), "{name} does not come to the target");
    }
}
