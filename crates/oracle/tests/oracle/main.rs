//! One answer, wherever a function runs.

mod bad;
mod generated;
mod mounted;
mod rule;
mod shipped;

use diskside_oracle::Oracle;
use diskside_oracle::case::{self, Case};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where objects and failing cases are kept.
fn kept() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle");
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn oracle() -> Oracle {
    Oracle::new(&kept())
}

/// The cases of all files of a directory.
fn cases(directory: &str) -> Vec<Case> {
    let entries = std::fs::read_dir(directory).expect("cases");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    paths.iter().flat_map(|path| case::read(path).unwrap_or_else(|why| panic!("{why}"))).collect()
}

/// The reports of cases that do not end the same everywhere.
fn check_all(cases: &[Case]) -> Vec<String> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let oracle = oracle();
                let inputs: Vec<_> = cases.iter().flat_map(|case| case.inputs.clone()).collect();
                oracle.world().prepare(&inputs);
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(difference) = oracle.check(case) {
                        failures.lock().expect("no panic").push(oracle.tell(&difference));
                    }
                }
            });
        }
    });
    failures.into_inner().expect("no panic")
}
