//! Measures how functions affect plain reads of the same target.
//!
//! `cargo run --release -p diskside-host --example beside -- [--seconds=2] [--rounds=3] [--part=0.5] [--depth=32]
//! [--function=stats64] URL`
//!
//! First it looks how many random 4-KiB reads a second the target can do, `--depth` at a time. Then reads are sent at
//! `--part` of that rate, whether those before were answered or not, in turns without and with a function that runs over
//! the whole volume again and again, for another connection. A read's time counts from when it was due. One line a
//! turn, as JSON.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diskside_host::function::Compute;
use diskside_host::{ConnectOptions, InlineVolume, Url, Volume};
use diskside_io::buffer::{Buffer, Hugepages};
use diskside_io::request::{AsyncIo as _, Request, RequestFuture};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome};

type Failure = Box<dyn std::error::Error>;

const BLOCK: u64 = 4096;
/// Reads on their way at a time; one more waits, and its time counts.
const QUEUE_DEPTH: u16 = 256;
/// Bytes of one call: so few that the counter moves often.
const CALL: u64 = 64 << 20;
/// Calls on their way at a time: the engines never wait for the next.
const CALLS: usize = 2;
/// From one turn to the next: calls of the turn before end, and those of this one begin.
const PAUSE: Duration = Duration::from_millis(300);

fn main() -> Result<(), Failure> {
    let (flags, urls): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let value = |name: &str| flags.iter().find_map(|flag| flag.strip_prefix(name)?.strip_prefix('='));
    let plan = Plan {
        time: Duration::try_from_secs_f64(value("--seconds").map_or(Ok(2.0), str::parse)?)?,
        rounds: value("--rounds").map_or(Ok(3), str::parse)?,
        part: value("--part").map_or(Ok(0.5), str::parse)?,
        depth: value("--depth").map_or(Ok(32), str::parse)?,
    };
    let [url] = &urls[..] else { return Err("name one volume, as nvme-tcp://HOST:PORT/NQN/NSID".into()) };
    let url: Url = url.parse()?;
    let options = ConnectOptions { queue_depth: QUEUE_DEPTH, ..ConnectOptions::default() };
    let mut reads = Reads { volume: InlineVolume::connect(&url, &options)?, dice: 0x9e37_79b9_7f4a_7c15 };

    let function = value("--function").unwrap_or("stats64");
    let engine = Engine::default();
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let ended = engine.compute(&url, function).map_err(|error| error.to_string());
            engine.stop.store(true, Ordering::Relaxed);
            ended
        });
        let measured = plan.measure(&mut reads, &engine);
        engine.stop.store(true, Ordering::Relaxed);
        calls.join().map_err(|_| "the thread that calls panicked")??;
        measured
    })
}

struct Plan {
    time: Duration,
    rounds: usize,
    part: f64,
    depth: usize,
}

impl Plan {
    fn measure(&self, reads: &mut Reads, engine: &Engine) -> Result<(), Failure> {
        let peak = reads.closed_loop(self.depth, self.time)?;
        let rate = peak * self.part;
        println!("{{\"peak_per_s\": {peak:.0}, \"rate_per_s\": {rate:.0}}}");
        for round in 0..self.rounds {
            // Both take turns at coming first.
            for busy in [round % 2 == 1, round % 2 == 0] {
                engine.run.store(busy, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
                let (began, before) = (Instant::now(), engine.bytes.load(Ordering::Relaxed));
                let times = reads.open_loop(rate, self.time)?;
                if engine.stop.load(Ordering::Relaxed) {
                    return Ok(()); // It failed, and says why.
                }
                let bytes = engine.bytes.load(Ordering::Relaxed) - before;
                let speed = bytes as f64 / began.elapsed().as_secs_f64() / 1e6;
                let at = |part: f64| {
                    times.get(((times.len() as f64 - 1.0) * part) as usize).map_or(0.0, |&ns| ns as f64 / 1e3)
                };
                println!(
                    "{{\"round\": {round}, \"engine\": {busy}, \"reads\": {}, \"p50_us\": {:.1}, \"p90_us\": {:.1}, \
                     \"p99_us\": {:.1}, \"p999_us\": {:.1}, \"function_mb_per_s\": {speed:.0}}}",
                    times.len(),
                    at(0.5),
                    at(0.9),
                    at(0.99),
                    at(0.999),
                );
            }
        }
        // The function alone, for comparison.
        engine.run.store(true, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
        let (began, before) = (Instant::now(), engine.bytes.load(Ordering::Relaxed));
        std::thread::sleep(self.time);
        let bytes = engine.bytes.load(Ordering::Relaxed) - before;
        println!("{{\"function_alone_mb_per_s\": {:.0}}}", bytes as f64 / began.elapsed().as_secs_f64() / 1e6);
        Ok(())
    }
}

/// The one that calls: the thread that measures says when.
#[derive(Default)]
struct Engine {
    run: AtomicBool,
    /// Set when it must end, and when it ended by itself.
    stop: AtomicBool,
    /// Bytes that calls have run over.
    bytes: AtomicU64,
}

impl Engine {
    fn compute(&self, url: &Url, function: &str) -> Result<(), Failure> {
        let volume = Volume::connect(url, &ConnectOptions::default())?;
        let len = volume.len_bytes()?;
        let step = CALL.min(len);
        let compute = Compute::new(volume.connection())?;
        let program = compute.programs()?.into_iter().find(|program| program.name == function);
        let program = program.ok_or_else(|| format!("the target has no function `{function}`"))?;
        let (mut offset, mut flying) = (0, VecDeque::new());
        while !self.stop.load(Ordering::Relaxed) {
            let run = self.run.load(Ordering::Relaxed);
            while run && flying.len() < CALLS {
                offset = if offset + step > len { 0 } else { offset };
                let source = Endpoint::new(EndpointKind::Volume(volume.nsid()), offset, step);
                let read = FunctionRequest::new(FunctionKind::Read, program.index);
                flying.push_back(compute.call(&FunctionRequest { sources: vec![source], ..read }));
                offset += step;
            }
            match flying.pop_front() {
                Some(call) => {
                    let outcome = call.wait()?.trailer.outcome;
                    if outcome != Outcome::Ok {
                        return Err(format!("`{function}` ended with {outcome:?}").into());
                    }
                    self.bytes.fetch_add(step, Ordering::Relaxed);
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    }
}

struct Reads {
    volume: InlineVolume,
    dice: u64,
}

impl Reads {
    fn submit(&mut self, buffer: Buffer) -> Result<RequestFuture, Failure> {
        let blocks = self.volume.volume().len_bytes()? / BLOCK;
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        Ok(self.volume.submit(Request::Read { offset: self.dice % blocks * BLOCK, buffer }))
    }

    /// Reads as fast as it goes; gives reads a second.
    fn closed_loop(&mut self, depth: usize, time: Duration) -> Result<f64, Failure> {
        let started = Instant::now();
        let mut flying = VecDeque::new();
        for _ in 0..depth {
            flying.push_back(self.submit(Buffer::with_hugepages(BLOCK as usize, Hugepages::No))?);
        }
        let mut count = 0_u64;
        while let Some(future) = flying.pop_front() {
            let outcome = self.volume.block_on(future);
            outcome.status.to_result()?;
            count += 1;
            if started.elapsed() < time {
                flying.push_back(self.submit(outcome.buffer.ok_or("a read returns its buffer")?)?);
            }
        }
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    /// Sends reads at a rate; gives their times in ns from when they were due, sorted.
    fn open_loop(&mut self, rate: f64, time: Duration) -> Result<Vec<u64>, Failure> {
        let (started, total) = (Instant::now(), (rate * time.as_secs_f64()) as usize);
        let due_at = |index: usize| started + Duration::from_secs_f64(index as f64 / rate);
        let mut times = Vec::with_capacity(total);
        let mut flying: Vec<(Instant, RequestFuture)> = Vec::new();
        let mut spare = Vec::new();
        let mut sent = 0;
        while times.len() < total {
            let now = Instant::now();
            while sent < total && flying.len() < QUEUE_DEPTH as usize - 1 && due_at(sent) <= now {
                let buffer = spare.pop().unwrap_or_else(|| Buffer::with_hugepages(BLOCK as usize, Hugepages::No));
                let future = self.submit(buffer)?;
                flying.push((due_at(sent), future));
                sent += 1;
            }
            self.volume.poll();
            let mut at = 0;
            while at < flying.len() {
                if !flying[at].1.is_done() {
                    at += 1;
                    continue;
                }
                let (due, future) = flying.swap_remove(at);
                let outcome = self.volume.block_on(future);
                outcome.status.to_result()?;
                times.push(due.elapsed().as_nanos() as u64);
                spare.extend(outcome.buffer);
            }
        }
        times.sort_unstable();
        Ok(times)
    }
}
