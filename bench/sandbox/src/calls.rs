//! The cost of a call: one that does nothing, and one that looks for a key in a node of a B-tree.

use crate::workload::{EMPTY, NODE_SEARCH, Workload, node_key};
use diskside_bench_runner::compare::Cell;
use diskside_bench_runner::measure::{Plan, median, ns_per_call};
use diskside_bench_runner::{Engine, Runner};

/// A row: what was called, and a cell for each engine.
pub type Row = (&'static str, Vec<Cell>);

/// Different keys enough that branch predictors do not learn their order.
const KEYS: u64 = 4096;

/// Measures all rows.
pub fn run(engines: &[Engine], plan: &Plan) -> Vec<Row> {
    vec![
        ("empty", row(engines, plan, &EMPTY, |_| None)),
        ("node search, one key", row(engines, plan, &NODE_SEARCH, |_| Some(node_key(7)))),
        ("node search, random keys", row(engines, plan, &NODE_SEARCH, |turn| Some(node_key(turn % KEYS)))),
    ]
}

fn row(engines: &[Engine], plan: &Plan, workload: &Workload, key: fn(u64) -> Option<[u8; 8]>) -> Vec<Cell> {
    let task = workload.task(workload.size_least);
    let mut entrants: Vec<_> = engines.iter().map(|e| (e.prepare)(&task)).collect();
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
    let mut wrong: Vec<Option<String>> = vec![None; engines.len()];
    let expected = match &mut entrants[0] {
        Ok((native, _)) => results(&mut **native, key),
        Err(error) => Err(error.clone()),
    };
    for _ in 0..plan.rounds {
        for (index, entrant) in entrants.iter_mut().enumerate() {
            let Ok((runner, _)) = entrant else { continue };
            if results(&mut **runner, key) != expected {
                wrong[index] = Some("results differ from native code's".into());
                continue;
            }
            let measured = ns_per_call(plan.slice, |turn| {
                if let Some(key) = key(turn) {
                    runner.set_args(&key);
                }
                runner.call().map(drop)
            });
            match measured {
                Ok(ns) => samples[index].push(ns),
                Err(error) => wrong[index] = Some(error),
            }
        }
    }
    entrants
        .into_iter()
        .zip(&mut samples)
        .zip(wrong)
        .map(|((entrant, samples), wrong)| match (entrant, wrong) {
            (Err(why), _) => Cell::Unable(why),
            (Ok(_), Some(why)) => Cell::Wrong(why),
            (Ok(_), None) => median(samples).map_or(Cell::Unable("not run".into()), Cell::Ns),
        })
        .collect()
}

/// What the first calls return.
fn results(runner: &mut dyn Runner, key: fn(u64) -> Option<[u8; 8]>) -> Result<Vec<i64>, String> {
    (0..64)
        .map(|turn| {
            if let Some(key) = key(turn) {
                runner.set_args(&key);
            }
            runner.call()
        })
        .collect()
}
