//! Hosts that come, load a function, call it, and go, again and again.
//!
//! `cargo run --release -p diskside --example soak -- URL CALLS CALLS_A_SESSION FIRST`: what `bench/service/soak` keeps a server busy
//! with for a long time. A line for each session says how many calls are done. Each result is compared with the first one.

use diskside::host::ConnectOptions;
use diskside::session::{Pending, RunOptions, Session, SessionOptions, Where};
use std::collections::VecDeque;

/// Bytes that a call looks at.
const LEN: u64 = 4096;
/// Calls that are under way at a time.
const DEPTH: usize = 32;
/// Names of hosts.
const HOSTS: u64 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, calls, calls_a_session, first] = &arguments[..] else {
        return Err("say URL CALLS CALLS_A_SESSION FIRST".into());
    };
    let (calls, a_session, first): (u64, u64, u64) = (calls.parse()?, calls_a_session.parse()?, first.parse()?);
    let object = Session::new(SessionOptions::default()).function("stats64")?.object().to_vec();
    let (mut done, mut number, mut expected) = (0, first, None);
    while done < calls {
        let mut connect = ConnectOptions::default();
        connect.identity.nqn = format!("nqn.2026-11.io.diskside:soak:{}", number % HOSTS).parse()?;
        connect.identity.id = (u128::from(number % HOSTS) + 1).to_be_bytes();
        let session = Session::new(SessionOptions { connect, ..SessionOptions::default() });
        let function = session.load(&object, None)?;
        let file = session.open(url)?;
        let at_target = RunOptions { place: Where::Device, ..RunOptions::default() };
        let prepared = file.prepare(0..LEN, &function, &[], &at_target)?;
        let mut under_way: VecDeque<Pending<Vec<u8>>> = VecDeque::new();
        let now = a_session.min(calls - done);
        for _ in 0..now {
            if under_way.len() == DEPTH {
                check(under_way.pop_front(), &mut expected)?;
            }
            under_way.push_back(prepared.call(&[]));
        }
        while let Some(call) = under_way.pop_front() {
            check(Some(call), &mut expected)?;
        }
        (done, number) = (done + now, number + 1);
        println!("{done}");
    }
    Ok(())
}

/// Waits for a call, and compares what it gives with what the first one gave.
fn check(call: Option<Pending<Vec<u8>>>, expected: &mut Option<Vec<u8>>) -> Result<(), Box<dyn std::error::Error>> {
    let Some(call) = call else { return Ok(()) };
    let result = call.wait()?;
    if *expected.get_or_insert_with(|| result.clone()) == result {
        Ok(())
    } else {
        Err("another result than before".into())
    }
}
