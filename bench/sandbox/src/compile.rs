//! How long it takes from an object's bytes to code that runs.

use crate::calls::Row;
use crate::workload::SCANS;
use diskside_bench_runner::Engine;
use diskside_bench_runner::compare::Cell;
use diskside_bench_runner::measure::median;

const TIMES: usize = 7;

/// Measures every scan's program with every engine.
pub fn run(engines: &[Engine]) -> Vec<Row> {
    SCANS
        .iter()
        .map(|workload| {
            let task = workload.task(workload.size_least);
            let cells = engines.iter().map(|engine| {
                let times: Result<Vec<f64>, String> =
                    (0..TIMES).map(|_| Ok((engine.prepare)(&task)?.1.as_nanos() as f64)).collect();
                match times {
                    Ok(mut times) => median(&mut times).map_or(Cell::Unable(String::new()), Cell::Ns),
                    Err(why) => Cell::Unable(why),
                }
            });
            (workload.name, cells.collect())
        })
        .collect()
}
