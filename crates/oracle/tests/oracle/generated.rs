//! Generated functions. `DISKSIDE_ORACLE_CASES`, `DISKSIDE_ORACLE_SEED` and `DISKSIDE_ORACLE_SECONDS` make it longer, other,
//! or bounded.

use crate::oracle;
use diskside_oracle::{case, draw};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Cases of the quick suite.
const CASES: u64 = 300;
/// Targets keep a few dozens of programs for each host.
const CASES_OF_WORLD: u64 = 20 * draw::CASES_OF_SOURCE;
/// Failures that are reported before it gives up.
const TOLD: usize = 5;

#[test]
fn a_generated_function_gives_the_same_everywhere() {
    let number = |name: &str, usual| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")),
        Err(_) => usual,
    };
    let cases = number("DISKSIDE_ORACLE_CASES", CASES);
    let seed = number("DISKSIDE_ORACLE_SEED", 1);
    let patience = Duration::from_secs(number("DISKSIDE_ORACLE_SECONDS", 1 << 20));
    let (started, next) = (Instant::now(), AtomicU64::new(0));
    let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut worlds = (u64::MAX, None);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let enough = failures.lock().expect("no panic").len() >= TOLD;
                    if number >= cases || enough || started.elapsed() > patience {
                        break;
                    }
                    if worlds.0 != number / CASES_OF_WORLD {
                        let oracle = oracle();
                        oracle.world().prepare(&draw::inputs(seed));
                        worlds = (number / CASES_OF_WORLD, Some(oracle));
                    }
                    let oracle = worlds.1.as_ref().expect("made");
                    if let Err(difference) = oracle.check(&draw::case(seed, number)) {
                        // clang optimises into what eBPF does not have, now and then: no defect of ours.
                        if difference.what.starts_with("clang refuses") {
                            refused.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        let told = format!("case {number} of seed {seed}: {}", oracle.tell(&difference));
                        failures.lock().expect("no panic").push(told);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (failures, done, refused) = (failures.into_inner().expect("no panic"), done.into_inner(), refused.into_inner());
    let took_s = started.elapsed().as_secs_f64();
    println!("{done} cases of seed {seed} in {took_s:.1} s; clang refused {refused}");
    assert!(refused <= 40 + done / 50, "clang refused {refused} of {done}: the generator makes what it should not");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(done + refused == cases || started.elapsed() > patience, "{done} of {cases} were run");
}

/// The case that `DISKSIDE_ORACLE_CASE` names, as a failure tells it.
#[test]
fn a_case_gives_the_same_everywhere() {
    let Some(path) = std::env::var_os("DISKSIDE_ORACLE_CASE") else { return };
    let oracle = oracle();
    for case in case::read(path.as_ref()).expect("cases") {
        oracle.world().prepare(&case.inputs);
        if let Err(difference) = oracle.check(&case) {
            panic!("{}", oracle.tell(&difference));
        }
    }
}
