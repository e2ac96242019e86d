//! Measures functions as users write them, in our tiers and as native code of the same source.
//!
//! Two ratios of speeds are what is claimed: Cranelift's to scalar native code, LLVM's to native code with this
//! machine's vectors. Engines take turns within each round; a cell is the median of the rounds, in processor time of
//! the measuring thread. Each engine's output is compared with native code's before and after each turn.

mod data;
mod functions;
mod report;

use clap::Parser;
use diskside_bench_runner::compare::{self, Cell};
use diskside_bench_runner::measure::Plan;
use diskside_bench_runner::{native, tiers};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measure functions as users write them beside native code of the same source.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// Over 1 MiB instead of 16, in fewer and shorter rounds: under four minutes.
    #[arg(long)]
    quick: bool,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Write a plot of all ratios.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only these functions.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds that the medians are taken of.
    #[arg(long)]
    rounds: Option<usize>,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    let (rounds, slice_ms, size) = if options.quick { (3, 30, 1 << 20) } else { (5, 150, 16 << 20) };
    let plan = Plan { rounds: options.rounds.unwrap_or(rounds), slice: Duration::from_millis(slice_ms) };
    // The order of `report::COLUMNS`.
    let [scalar, vector] = native::ENGINES;
    let [_, cranelift, llvm] = tiers::ENGINES;
    let engines = [scalar, vector, cranelift, llvm];
    let unknown = options.only.iter().find(|name| functions::all().all(|function| function.name() != **name));
    if let Some(name) = unknown {
        return Err(format!("there is no function `{name}` in bench/programs/functions"));
    }
    let mut report = report::Report::new(size, plan.rounds);
    for function in functions::all() {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == function.name()) {
            continue;
        }
        eprintln!("measuring {}", function.name());
        let cells = match function.task(size) {
            Ok(task) => compare::run(&task, &engines, &plan),
            Err(why) => engines.iter().map(|_| Cell::Unable(why.clone())).collect(),
        };
        report.add(&function, cells);
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, report.to_svg()).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if options.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{}", report.to_text());
    }
    for program in report.unable() {
        eprintln!("unable: {program}");
    }
    let faults = report.faults();
    if faults.is_empty() { Ok(()) } else { Err(format!("wrong: {}", faults.join("\nwrong: "))) }
}
