//! The workloads: lambda-IO's five, a search by helper, a filter, an aggregate, and two for the cost of a
//! call.

use diskside_bench_runner::Task;
use diskside_bench_runner::native::Function;

/// What build.rs made of a workload's source.
pub struct Object {
    name: &'static str,
    /// The program in `ours`.
    program: &'static str,
    /// For our tiers.
    ours: &'static [u8],
    native: [Function; 2],
    peer: &'static [u8],
    wasm: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// A function with data for it.
#[derive(Debug)]
pub struct Workload {
    /// Name of the function.
    pub name: &'static str,
    /// What it does, in the table's notes.
    pub about: &'static str,
    /// Smallest size that makes sense.
    pub size_least: usize,
    /// Input, arguments and output capacity for a size in bytes.
    make: fn(usize) -> Data,
}

struct Data {
    input: Vec<u8>,
    args: Vec<u8>,
    out_cap: usize,
}

/// lambda-IO's five (FAST '23, table 3). The size is that of what moves: the input, and for
/// `bitmap` the output.
pub const SCANS: &[Workload] = &[
    Workload {
        name: "stats64",
        about: "sum, least and greatest of 64-bit integers",
        size_least: 64 << 10,
        make: |size| Data { input: noise(size), args: Vec::new(), out_cap: 4096 },
    },
    Workload {
        name: "stats32",
        about: "sum, least and greatest of 32-bit integers",
        size_least: 64 << 10,
        make: |size| Data { input: noise(size), args: Vec::new(), out_cap: 4096 },
    },
    Workload {
        name: "knn",
        about: "the 10 rows of 64 bytes nearest to a given one",
        size_least: 64 << 10,
        make: |size| Data { input: noise(size), args: knn_args(), out_cap: 4096 },
    },
    Workload { name: "grep", about: "lines that contain a string, byte by byte", size_least: 64 << 10, make: grep },
    Workload {
        name: "bitmap",
        about: "expands a run-length encoded bitmap; counted by its output",
        size_least: 64 << 10,
        make: |size| Data { input: runs(size), args: Vec::new(), out_cap: size },
    },
    Workload {
        name: "grep_find",
        about: "grep by the helper ds_find, against native code's loop",
        size_least: 64 << 10,
        make: grep,
    },
    Workload {
        name: "filter",
        about: "which 32-bit numbers lie between two others, as a bitmap",
        size_least: 64 << 10,
        make: |size| Data {
            input: noise(size),
            args: [1u32 << 30, 3 << 30].iter().flat_map(|n| n.to_le_bytes()).collect(),
            out_cap: size / 32,
        },
    },
    Workload {
        name: "aggregate",
        about: "count and sum for each of 256 groups",
        size_least: 64 << 10,
        make: |size| Data { input: noise(size), args: Vec::new(), out_cap: 4096 },
    },
];

/// How many of [`SCANS`], from the first, are lambda-IO's: what the means are taken over.
pub const SCANS_IN_MEANS: usize = 5;

/// A call that does nothing.
pub const EMPTY: Workload = Workload {
    name: "empty",
    about: "returns",
    size_least: 64,
    make: |size| Data { input: vec![0; size], args: vec![0; 8], out_cap: 64 },
};

const NODE_KEYS: u64 = 256;
const NODE_GAP: u64 = 1000;

/// A call that does little.
pub const NODE_SEARCH: Workload = Workload {
    name: "node_search",
    about: "finds a key's place among 256",
    size_least: NODE_KEYS as usize * 8,
    make: |_| Data {
        input: (0..NODE_KEYS).flat_map(|i| (i * NODE_GAP).to_le_bytes()).collect(),
        args: vec![0; 8],
        out_cap: 64,
    },
};

/// A key for [`NODE_SEARCH`]; the same for the same turn.
pub fn node_key(turn: u64) -> [u8; 8] {
    (mix(turn) % (NODE_KEYS * NODE_GAP)).to_le_bytes()
}

impl Workload {
    /// The task at a size.
    pub fn task(&self, size: usize) -> Task {
        let data = (self.make)(size);
        let object = object(self.name);
        Task {
            name: self.name,
            object: object.ours,
            program: object.program,
            native: object.native,
            peer_object: object.peer,
            wasm_module: object.wasm,
            input: data.input,
            args: data.args,
            out_cap: data.out_cap,
            zeroed_len: 0,
        }
    }
}

/// A workload's objects.
fn object(name: &str) -> &'static Object {
    OBJECTS.iter().find(|object| object.name == name).expect("build.rs compiles every workload")
}

/// A scrambled number (SplitMix64's finaliser).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn noise(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64).flat_map(|i| mix(i).to_le_bytes()).take(len).collect()
}

/// `struct knn_args`: row length, k, metric, target.
fn knn_args() -> Vec<u8> {
    const ROW_LEN: u32 = 64;
    let mut args: Vec<u8> = [ROW_LEN, 10, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    args.extend((0..ROW_LEN).map(|i| (i * 4) as u8));
    args
}

fn grep(size: usize) -> Data {
    let mut args = vec![0; 4];
    args.extend_from_slice(NEEDLE.as_bytes());
    Data { input: text(size), args, out_cap: 4096 }
}

/// Pairs of how often and what, up to 127 times each, that expand to a length.
fn runs(expanded_len: usize) -> Vec<u8> {
    let mut runs = Vec::with_capacity(expanded_len / 24);
    let mut left = expanded_len;
    let mut turn = 0;
    while left > 0 {
        turn += 1;
        let pick = mix(turn);
        let often = (pick % 128).min(left as u64);
        runs.extend([often as u8, (pick >> 32) as u8]);
        left -= often as usize;
    }
    runs
}

/// Lines of words; about one line in a thousand has the one that is looked for.
fn text(len: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "block",
        "sector",
        "extent",
        "queue",
        "namespace",
        "of",
        "the",
        "a",
        "flush",
        "target",
        "host",
        "write",
        "read",
        "nearest",
        "range",
        "capsule",
    ];
    let mut text = Vec::with_capacity(len + 128);
    let mut turn = 0;
    while text.len() < len {
        for _ in 0..8 + mix(turn) % 8 {
            turn += 1;
            let pick = mix(turn);
            let word = if pick % 12_000 == 0 { NEEDLE } else { WORDS[(pick >> 32) as usize % 16] };
            text.extend_from_slice(word.as_bytes());
            text.push(b' ');
        }
        text.pop();
        text.push(b'\n');
    }
    text.truncate(len);
    text
}

const NEEDLE: &str = "diskside";
