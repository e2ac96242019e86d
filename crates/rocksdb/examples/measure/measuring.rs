//! Threads that work for a time, and what is found.

use crate::Failure;
use crate::opened::Plan;
use diskside_rocksdb::Reads;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The work of one thread.
pub(crate) trait Work: Send {
    /// Before its first operation.
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Failure>;
}

/// Lets each thread work, and measures what they do once they are warm: tables are opened when they are first read.
pub(crate) fn measure(plan: &Plan, reads: &Reads, workers: &mut [impl Work]) -> Result<Value, Failure> {
    let stop = AtomicBool::new(false);
    let totals: Result<Vec<_>, Failure> = std::thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || work(worker, plan.warm, stop))).collect();
        std::thread::sleep(plan.warm);
        println!("warm");
        std::thread::sleep(plan.time);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("a thread ends")).collect()
    });
    let mut latencies = Histogram::<u64>::new(3)?;
    totals?.iter().try_for_each(|one| latencies.add(one))?;
    let counters = reads.counters();
    let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(json!({
        "per_s": latencies.len() as f64 / plan.time.as_secs_f64(),
        "p50_us": us(0.5), "p99_us": us(0.99), "p999_us": us(0.999),
        "operations": latencies.len(), "in_memory": counters.in_memory, "at_server": counters.at_server,
        "plain": counters.plain, "sampled": counters.sampled, "fallbacks": counters.fallbacks,
        "mounted": reads.store().mounted_counters().map(ToString::to_string),
    }))
}

fn work(worker: &mut impl Work, warm: Duration, stop: &AtomicBool) -> Result<Histogram<u64>, Failure> {
    let mut latencies = Histogram::new(3)?;
    let begun = Instant::now();
    worker.prepare()?;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        worker.operation()?;
        if started - begun >= warm {
            latencies.record(started.elapsed().as_nanos() as u64)?;
        }
    }
    Ok(latencies)
}
