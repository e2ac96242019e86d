//! One cell of `bench/rocksdb/run`, as a line of JSON: a database is filled, and read with RocksDB's own reads or with those at
//! the server.
//!
//! ```text
//! load DIRECTORY --records=N --value=BYTES --table=OPTIONS       fills a database for YCSB
//! run DIRECTORY URL --workload=a|b|c|d|e|f|u --batch=N           runs a workload of YCSB
//! make-trace FILE --keys=N --seed=N                              writes a synthetic trace (`cluster19`)
//! describe-trace FILE                                            says of what a trace consists
//! load-trace DIRECTORY FILE --table=OPTIONS                      fills a database with the values that a trace expects
//! replay DIRECTORY URL FILE                                      makes the requests of a trace
//! ```
//!
//! `run` and `replay` also take `--mode=plain|auto|server --cache=BYTES --values=BYTES --index=cached|memory --table=OPTIONS
//! --threads=N --warm=S --seconds=S --sampled=N --spin=US`; the volume at URL is the one that the directory is on. They say `warm`
//! when they begin to measure. Whatever reads a trace also takes `--lines=N`, to read only so many, and `--skip-bad`.
//! Each value that is read is checked. Reads of tables bypass this machine's page cache.

mod arguments;
mod cluster19;
mod contents;
mod measuring;
mod opened;
mod replay;
mod trace;
mod ycsb;
mod zipfian;

use arguments::Arguments;
use opened::Plan;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use trace::Trace;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out() -> Result<(), Failure> {
    let arguments = Arguments::of_process();
    let path = |place, name| arguments.word(place).map(Path::new).ok_or_else(|| Failure::from(format!("say {name}")));
    match arguments.word(0) {
        Some("load") => ycsb::load(path(1, "a directory")?, &ycsb::Records::of(&arguments)?, &arguments.table()),
        Some("run") => {
            let (directory, url) = (path(1, "a directory")?, arguments.word(2).ok_or("say the URL of the volume")?);
            ycsb::run(directory, url, &Plan::of(&arguments)?, &ycsb::Records::of(&arguments)?)
        }
        Some("make-trace") => {
            let mut file = BufWriter::new(File::create(path(1, "a file")?)?);
            cluster19::make(arguments.number("keys", 200_000)?, arguments.number("seed", 19)?, &mut file)?;
            Ok(file.flush()?)
        }
        Some("describe-trace") => {
            let path = path(1, "a file")?;
            let trace = read(path, &arguments)?;
            trace.bad.first.iter().for_each(|line| eprintln!("{}: {line}; left out", path.display()));
            println!("{}", trace.summary());
            Ok(())
        }
        Some("load-trace") => {
            let trace = read(path(2, "a file")?, &arguments)?;
            replay::load(path(1, "a directory")?, &trace, &arguments.table())
        }
        Some("replay") => {
            let (directory, url) = (path(1, "a directory")?, arguments.word(2).ok_or("say the URL of the volume")?);
            replay::run(directory, url, &Plan::of(&arguments)?, &read(path(3, "a file")?, &arguments)?)
        }
        _ => Err("say load, run, make-trace, describe-trace, load-trace or replay".into()),
    }
}

fn read(path: &Path, arguments: &Arguments) -> Result<Trace, Failure> {
    let in_file = |error: Failure| Failure::from(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| in_file(error.into()))?;
    let lines_max = arguments.number("lines", u64::MAX)?;
    Trace::read(BufReader::new(file), lines_max, arguments.has("skip-bad")).map_err(in_file)
}
