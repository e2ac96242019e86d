//! A server that may have few files open: peers that nobody knows do not keep hosts out. The server is a process of its own, because
//! the other ends of its connections take descriptors, too.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _, stdin};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use common::{HOST, NQN, Queue, builder, start, tcp};
use diskside_nvme::wire::{CONTROLLER_ID_DYNAMIC, IcReq};
use diskside_server::config::VolumeSpec;
use rustix::process::{Resource, Rlimit, setrlimit};
use zerocopy::IntoBytes as _;

/// Tells a process that it is the server.
const VARIABLE: &str = "DISKSIDE_TEST_DESCRIPTORS";
const FILES: u64 = 256;

/// With a limit of open files below `limits.connections`, strangers took all descriptors, and accepting failed: no host was let in,
/// and those that were there opened no file.
#[test]
fn strangers_use_up_no_descriptors() {
    if std::env::var_os(VARIABLE).is_some() {
        return serve();
    }
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "strangers_use_up_no_descriptors", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    let address = told(&mut said, "listens at ").parse().unwrap();
    let strangers: Vec<_> = (0..2 * FILES)
        .map(|_| {
            let mut stranger = tcp(address);
            // It may have given way already.
            let _ = stranger.write_all(IcReq::new(false, false).as_bytes());
            stranger
        })
        .collect();
    let first = host(address);
    let connections: u64 = ask(&mut server, &mut said, "count", "connections: ").parse().unwrap();
    assert!((2..=FILES / 2).contains(&connections), "{connections}: half is for files of exports");

    // Something else took the descriptors that were left: the half-open connections give way, too.
    ask(&mut server, &mut said, "fill", "open: ");
    let second = host(address);
    drop((first, second, strangers));
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

/// An admin queue of a host that is let in.
fn host(address: SocketAddr) -> Queue {
    let mut queue = Queue::negotiate(Box::new(tcp(address))).unwrap();
    queue.connect(NQN, HOST, 0, 32, CONTROLLER_ID_DYNAMIC, 0).unwrap();
    queue
}

fn ask(server: &mut Child, said: &mut impl BufRead, word: &str, answer: &str) -> String {
    writeln!(server.stdin.as_mut().unwrap(), "{word}").unwrap();
    told(said, answer)
}

/// The rest of the line that has this.
fn told(said: &mut impl BufRead, before: &str) -> String {
    let mut lines = said.lines().map(Result::unwrap);
    lines.find_map(|line| Some(line.split_once(before)?.1.to_owned())).expect("the server ended")
}

/// The server, until its standard input ends.
fn serve() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum: Some(FILES) }).unwrap();
    let running = start(builder().volume(VolumeSpec::new("data", "mem:1MiB")));
    println!("\nlistens at {}", running.handle().local_addresses()[0]);
    let mut open = Vec::new();
    for word in stdin().lines().map(Result::unwrap) {
        if word == "count" {
            let reactors = running.handle().stats().reactors;
            println!("connections: {}", reactors.iter().map(|reactor| reactor.connections).sum::<u64>());
        } else {
            open.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
            println!("open: {}", open.len());
        }
    }
}
