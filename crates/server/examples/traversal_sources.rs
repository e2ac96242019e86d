//! Steps a second of prepared traversals over what can hold their bytes, run by the reactor and run by threads, in turns.
//! Threads have those that ask for a larger budget than a reactor gives.
//!
//! ```text
//! cargo run --release -p diskside-server --example traversal_sources [DIRECTORY]
//! ```
//!
//! The exported file is in the directory, by default in `target/`: not in memory, and read once before.

#[allow(dead_code, unreachable_pub, reason = "the tests' host; only a part of it is used here")]
#[path = "../tests/compute/client.rs"]
mod client;
#[path = "../tests/common/mod.rs"]
mod common;

use client::{COMPUTE, Client, VOLUME, start};
use common::builder;
use diskside_nvme::wire::Sqe;
use diskside_server::config::{ExportSpec, VolumeSpec};
use diskside_wire::file::{FileFlags, FileRequest, OpenedFile};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// A leaf with one key, and its value: two reads, three steps a lookup, as the shortest there are.
const STEPS: u64 = 3;
const KEY: u64 = 40;
const VALUE_AT: u64 = 64 << 10;
const LEN: usize = 1 << 20;
const DEPTH: usize = 32;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;

fn store() -> Vec<u8> {
    let mut words = [u64::MAX; 64];
    (words[0], words[1], words[2], words[33]) = (0, 1, KEY, 1 << 63 | VALUE_AT);
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(LEN, 0);
    bytes[VALUE_AT as usize..][..64].fill(7);
    bytes
}

/// Lookups a second, `DEPTH` of them at a time.
fn measure(client: &mut Client, handle: u32) -> f64 {
    let input: Vec<u8> = [KEY, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let sqe = Sqe::function_call(COMPUTE, handle, &input, 64, 0);
    let mut open: VecDeque<u16> = (0..DEPTH).map(|_| client.queue.post(sqe, None, 64).unwrap()).collect();
    let (began, mut count) = (Instant::now(), 0_u64);
    while let Some(cid) = open.pop_front() {
        assert_eq!(client.queue.wait(cid).unwrap().ok(), [7; 64]);
        count += 1;
        if began.elapsed() < ROUND {
            open.push_back(client.queue.post(sqe, None, 64).unwrap());
        }
    }
    count as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "target".into());
    let directory = tempfile::tempdir_in(directory).unwrap();
    std::fs::write(directory.path().join("store"), store()).unwrap();
    let builder = builder().reactors(1).volume(VolumeSpec::new("data", "mem:4MiB").writable());
    let running = start(builder.export(ExportSpec::new("data", directory.path()).writable()));
    let mut client = Client::connect(&running);
    client.fill(&store());
    let layout = LayoutRequest {
        action: LayoutAction::Set,
        id: 7,
        nsid: VOLUME,
        generation: 1,
        file_len: LEN as u64,
        runs: vec![LayoutRun { logical: 0, physical: 0, len: LEN as u64 }],
    };
    let bytes = layout.encode();
    client.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0).ok();
    let lookup = FileRequest::Lookup { dir: None, path: b"data/store", flags: FileFlags::READ };
    let opened =
        client.run(&FunctionRequest { args: lookup.to_bytes(), ..FunctionRequest::new(FunctionKind::File, 0) });
    let file = OpenedFile::read_from_bytes(&opened.0).unwrap().handle();
    let pind = client.pind("kv_get");
    for (name, source) in [
        ("a volume in memory", Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN as u64)),
        ("a file of a mounted volume", Endpoint { generation: 1, ..Endpoint::whole(EndpointKind::Layout(7)) }),
        ("an exported file", Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) }),
    ] {
        let request = FunctionRequest {
            function: Some("kv_get".into()),
            sources: vec![source],
            args: vec![0; 16],
            result_len_max: 64,
            ..FunctionRequest::new(FunctionKind::Traverse, pind)
        };
        let handles = [0, 1 << 20].map(|budget| client.prepare(&FunctionRequest { budget, ..request.clone() }));
        let (mut here, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            here.push(measure(&mut client, handles[0]));
            threads.push(measure(&mut client, handles[1]));
        }
        let median = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2] * STEPS as f64 / 1e3
        };
        let (here, threads) = (median(&mut here), median(&mut threads));
        println!("{name}: {here:.0} k steps/s by the reactor, {threads:.0} k by threads: {:.1} times", here / threads);
    }
}
