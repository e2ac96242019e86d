//! Runs `stats64` over one file again and again, as a user of the library writes it, and prints the median in nanoseconds.
//!
//! `cargo run --release -p diskside --example small_runs -- URL RUNS`: what `bench/python/run` compares Python with.

use diskside::session::{RunOptions, Session, SessionOptions, Where};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, runs] = &arguments[..] else { return Err("say URL RUNS".into()) };
    let session = Session::new(SessionOptions::default());
    let function = session.function("stats64")?;
    let options = RunOptions { place: Where::Device, ..RunOptions::default() };
    let mut times = Vec::new();
    for _ in 0..runs.parse::<usize>()? {
        let began = Instant::now();
        let file = session.open(url)?;
        let ran = session.run(&[file], &function, &[], &options, None)?;
        times.push(began.elapsed().as_nanos());
        assert_eq!(ran.result.len(), 32, "a row of stats64");
    }
    times.sort_unstable();
    println!("{}", times[times.len() / 2]);
    Ok(())
}
