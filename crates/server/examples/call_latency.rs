//! Compares an empty prepared Call with a 4-KiB read on the same connection, one at a time, in alternation: the figure
//! `calls` of `bench/pushdown`.
//!
//! ```text
//! cargo run --release -p diskside-server --example call_latency -- [PAIRS [ROUNDS]]
//! ```
//!
//! A line a round, as JSON: medians, in seconds.

#[allow(dead_code, unreachable_pub, reason = "the tests' host; only a part of it is used here")]
#[path = "../tests/compute/client.rs"]
mod client;
#[path = "../tests/common/mod.rs"]
mod common;

use client::{COMPUTE, Client, VOLUME, target};
use diskside_nvme::wire::Sqe;
use diskside_wire::function::FunctionCommand;
use std::time::{Duration, Instant};

fn main() -> Result<(), std::num::ParseIntError> {
    let mut arguments = std::env::args().skip(1);
    let pairs: usize = arguments.next().map_or(Ok(20_000), |number| number.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(1), |number| number.parse())?;
    let running = target(1);
    let mut client = Client::connect(&running);
    let request = client.over("stats64", &[], 0);
    let handle = client.prepare(&request);
    let len = client.result(&request).len();
    for _ in 0..rounds {
        let (mut calls, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..pairs.max(1) {
            let began = Instant::now();
            client.queue.command(Sqe::function_call(COMPUTE, handle, &[], len as u32, 0), None, len).ok();
            calls.push(began.elapsed());
            let began = Instant::now();
            client.queue.command(Sqe::read(VOLUME, 0, 1), None, 4096).ok();
            reads.push(began.elapsed());
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64()
        };
        println!("{{\"call\": {:.9}, \"read\": {:.9}}}", median(&mut calls), median(&mut reads));
    }
    Ok(())
}
