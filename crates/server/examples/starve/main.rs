//! A host that works, and peers that try to keep it from that: `bench/security/run` has both at a target at the same time.
//!
//! ```text
//! starve ADDRESS NQN KEYS (fill | work SECONDS | owing | unread | compilers | connections | broken)
//! ```
//!
//! `work` reads 4 KiB and calls a function over 1 MiB, in alternation, one at a time, and prints how long each took, in
//! microseconds. An attack runs until standard input ends, and then prints how much of it there was. The
//! directory KEYS has a file with the key of each host, whose name in the benchmark's configuration is the file's.

mod attacks;
#[allow(dead_code, unreachable_pub, reason = "the tests' host; only a part of it is used here")]
#[path = "../../tests/compute/client.rs"]
mod client;
#[path = "../../tests/common/mod.rs"]
mod common;
mod peer;
#[path = "../../tests/support/sealed.rs"]
mod sealed;

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diskside_nvme::wire::Sqe;
use diskside_wire::function::{Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest};

use self::attacks::{Attack, DONE};
use self::client::COMPUTE;
use self::peer::{MEMORY, Peer, Place, TEXT, shipped};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, nqn, keys, what @ ..] = &arguments[..] else {
        return Err("starve ADDRESS NQN KEYS (fill | work SECONDS | an attack)".into());
    };
    let place = Place::new(address.parse()?, nqn, keys.as_ref())?;
    match what.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fill"] => fill(&place),
        ["work", seconds] => work(&place, Duration::from_secs(seconds.parse()?)),
        [name] => attack(&place, name.parse()?),
        _ => Err("one of fill, work SECONDS, owing, unread, compilers, connections, broken".into()),
    }
}

/// Lines for functions that are to give much, and something for others to read.
fn fill(place: &Place) -> Result<(), Failure> {
    let mut host = Peer::connect(place, "worker")?;
    let line = [vec![b'x'; 1023], vec![b'\n']].concat();
    let part = line.repeat(256);
    for at in 0..32 {
        for nsid in [MEMORY, TEXT] {
            host.write(nsid, at * 64, &part)?;
        }
    }
    Ok(())
}

fn work(place: &Place, time: Duration) -> Result<(), Failure> {
    const CALL_LEN: u64 = 1 << 20;
    let mut host = Peer::connect(place, "worker")?;
    let sources = vec![Endpoint::new(EndpointKind::Volume(MEMORY), 0, CALL_LEN)];
    let request = FunctionRequest { sources, ..FunctionRequest::new(FunctionKind::Read, shipped("stats64")) };
    let handle = host.prepare(&request)?;
    let (mut reads_ns, mut calls_ns) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let mut lba = 0;
    while began.elapsed() < time {
        lba = (lba * 5 + 7) % 2048;
        let sent = Instant::now();
        host.command(Sqe::read(MEMORY, lba, 1), None, 4096)?;
        reads_ns.push(sent.elapsed().as_nanos() as u64);
        let sent = Instant::now();
        host.command(Sqe::function_call(COMPUTE, handle, &[], 4096, 0), None, 4096)?;
        calls_ns.push(sent.elapsed().as_nanos() as u64);
    }
    let of = |times_ns: &mut Vec<u64>| {
        times_ns.sort_unstable();
        let at = |part: f64| times_ns[((times_ns.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
        format!("{{\"count\": {}, \"p50_us\": {:.1}, \"p99_us\": {:.1}}}", times_ns.len(), at(0.5), at(0.99))
    };
    println!("{{\"read\": {}, \"call\": {}}}", of(&mut reads_ns), of(&mut calls_ns));
    Ok(())
}

fn attack(place: &Place, attack: Attack) -> Result<(), Failure> {
    let began = Instant::now();
    attack.start(place);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{{\"done\": {}, \"seconds\": {:.3}}}", DONE.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
    // Its threads have no end of their own.
    std::process::exit(0);
}
