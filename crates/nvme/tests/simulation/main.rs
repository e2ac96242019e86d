//! Hosts and a target under a seeded scheduler, against a model of the volume.
//!
//! Each seed is one world: its own sizes, digests, pool of buffers, mix of commands and mix of faults. The scheduler
//! chooses at each step which end of which connection does what next, so that connections overtake each other; bytes are
//! split anywhere, delayed, and (where digests would notice) damaged or lost; peers are killed; media fail with `EIO` and
//! `ENOSPC`, and answer long reads in pieces. Time jumps to the next timer when nothing else is left to do.
//!
//! These hold: every command ends exactly once; a command fails only if a fault explains it; the bytes that are read
//! are some that the model allows; no buffer is used after it was released, or leaked.
//!
//! `DISKSIDE_SIM_SEED=n` runs one seed (and prints what happens), `DISKSIDE_SIM_SEEDS=n` so many.

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod link;
mod model;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

const SEEDS: u64 = 1000;

#[test]
fn a_thousand_seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("DISKSIDE_SIM_SEED") {
        println!("{:?}", World::new(seed, true).run());
        return;
    }
    let seeds = number("DISKSIDE_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let total = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| some_seeds(&next, seeds))).collect();
        let mut total = world::Summary::default();
        for worker in workers {
            total.add(&worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        total
    });
    println!("{total:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(total.completed > 20 * total.worlds, "{total:?}");
    let happened =
        [total.killed, total.damaged, total.lost_bytes, total.media_failures, total.stalls, total.digest_errors];
    assert!(happened.iter().all(|count| *count > total.worlds / 50), "every kind of fault was met: {total:?}");
}

/// Takes seeds and runs their worlds until there are none left.
fn some_seeds(next: &AtomicU64, seeds: u64) -> world::Summary {
    let mut total = world::Summary::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds {
            return total;
        }
        match catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run())) {
            Ok(summary) => total.add(&summary),
            Err(panic) => {
                eprintln!("seed {seed} failed; replay it with DISKSIDE_SIM_SEED={seed}");
                resume_unwind(panic);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    for seed in [1, 7, 42] {
        let once = World::new(seed, false).run();
        assert_eq!(once, World::new(seed, false).run(), "seed {seed}");
    }
}
