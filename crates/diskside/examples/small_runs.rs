//! Runs `stats64` over one file again and again, and prints medians in nanoseconds: of opening it and running at the
//! target, as a user of the library writes it; of a file that is opened late, whose path the target gets; and of that
//! where nobody says where the function is to run.
//!
//! `cargo run --release -p diskside --example small_runs -- URL RUNS`: what `bench/python/run` compares Python with.

use diskside::Location;
use diskside::session::{Decompress, File, Header, RunOptions, Session, SessionError, SessionOptions, Where};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, runs] = &arguments[..] else { return Err("say URL RUNS".into()) };
    let (session, runs) = (Session::new(SessionOptions::default()), runs.parse()?);
    let location: Location = url.parse()?;
    let at_target = RunOptions { place: Where::Device, ..RunOptions::default() };
    let opened = median_ns(&session, runs, &at_target, || session.open(url))?;
    // As the Python package asks.
    let looked_at = RunOptions { decompress: Decompress::Auto, header: Header::Auto, ..at_target };
    let late = median_ns(&session, runs, &looked_at, || session.open_late(&location))?;
    let anywhere = RunOptions { place: Where::Auto, ..looked_at };
    let auto = median_ns(&session, runs, &anywhere, || session.open_late(&location))?;
    println!("{opened} {late} {auto}");
    Ok(())
}

fn median_ns(
    session: &Session,
    runs: usize,
    options: &RunOptions,
    open: impl Fn() -> Result<File, SessionError>,
) -> Result<u128, Box<dyn std::error::Error>> {
    let function = session.function("stats64")?;
    let mut times = Vec::new();
    for _ in 0..runs {
        let began = Instant::now();
        let file = open()?;
        let ran = session.run(&[file], &function, &[], options, None)?;
        times.push(began.elapsed().as_nanos());
        assert_eq!(ran.result.len(), 32, "a row of stats64");
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
