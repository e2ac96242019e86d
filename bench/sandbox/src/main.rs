//! Measures the sandbox beside native code and other engines, in one run.
//!
//! The same C source is compiled for every column by one clang: natively (scalar, and vectorised for
//! this machine), to eBPF for our tiers and for the eBPF peers, and to WebAssembly. Engines take
//! turns within each round; a cell is the median of the rounds, in CPU time of the measuring thread.
//! Every engine's output is compared with native code's before and after each measurement.

mod calls;
mod compile;
mod report;
mod workload;

use clap::Parser;
use diskside_bench_runner::{Engine, compare, measure, native, tiers};
use std::process::ExitCode;
use std::time::Duration;

/// Measure the sandbox beside native code and other engines.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// Fewer and shorter rounds, and 1 MiB only: under 50 seconds.
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Only these workloads, or `calls` or `compile`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds that the medians are taken of.
    #[arg(long)]
    rounds: Option<usize>,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == name)
    }

    fn plan(&self) -> measure::Plan {
        let (rounds, slice_ms) = if self.quick { (3, 40) } else { (5, 200) };
        measure::Plan { rounds: self.rounds.unwrap_or(rounds), slice: Duration::from_millis(slice_ms) }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let engines = engines();
    let plan = options.plan();
    let mut report = report::Report::new(&engines, &plan);
    let sizes: &[usize] = if options.quick { &[1 << 20] } else { &[1 << 20, 64 << 20] };
    for &size in sizes {
        for workload in workload::SCANS {
            if options.wants(workload.name) {
                eprintln!("measuring {} over {} MiB", workload.name, size >> 20);
                report.scan(size, workload, compare::run(&workload.task(size), &engines, &plan));
            }
        }
    }
    if options.wants("calls") {
        eprintln!("measuring calls");
        report.calls = calls::run(&engines, &plan);
    }
    if options.wants("compile") {
        eprintln!("measuring compilation");
        report.compile = compile::run(&engines);
    }
    if options.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{}", report.to_text());
    }
    for fault in &report.faults {
        eprintln!("fault: {fault}");
    }
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Everything that takes part; the first is what the ratios are to.
fn engines() -> Vec<Engine> {
    let mut engines = Vec::from(native::ENGINES);
    engines.extend(tiers::ENGINES);
    #[cfg(feature = "peers")]
    engines.extend(diskside_bench_peers::ENGINES);
    engines
}
