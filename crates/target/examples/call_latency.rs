//! What an empty prepared Call costs beside a 4-KiB read on the same connection: medians, in alternation.
//!
//! ```text
//! cargo run --release -p diskside-target --example call_latency
//! ```

#[allow(dead_code, unreachable_pub, reason = "the tests' host; only a part of it is used here")]
#[path = "../tests/compute/client.rs"]
mod client;
#[path = "../tests/common/mod.rs"]
mod common;

use client::{COMPUTE, Client, VOLUME, target};
use diskside_nvme::wire::Sqe;
use std::time::{Duration, Instant};

const ROUNDS: usize = 20_000;

fn main() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let request = client.over("stats64", &[], 0);
    let handle = client.prepare(&request);
    let len = client.result(&request).len();
    let (mut calls, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        client.queue.command(Sqe::function_call(COMPUTE, handle, &[], len as u32, 0), None, len).ok();
        calls.push(began.elapsed());
        let began = Instant::now();
        client.queue.command(Sqe::read(VOLUME, 0, 1), None, 4096).ok();
        reads.push(began.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let (call, read) = (median(&mut calls), median(&mut reads));
    println!("Call {call:?}, read {read:?}: {:.2} times as long", call.as_secs_f64() / read.as_secs_f64());
}
