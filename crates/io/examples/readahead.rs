//! Sums a file's words with read-ahead, beside reading it alone and computing alone, in one run.
//!
//! `cargo run --release -p diskside-io --example readahead -- FILE [CHUNK_BYTES [DEPTH]]`
//!
//! The last figure is the throughput with read-ahead over that of the slower of the two alone.

use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use diskside_io::buffer::Buffer;
use diskside_io::readahead::{ChunkReader, ReadAhead};

const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: readahead FILE [CHUNK_BYTES [DEPTH]]")?;
    let mut how = ReadAhead::default();
    if let Some(bytes) = args.next() {
        how.chunk_bytes = bytes.parse()?;
    }
    if let Some(depth) = args.next() {
        how.depth = depth.parse()?;
    }
    let file = std::fs::File::open(&path)?;
    let len = file.metadata()?.len();
    let chunk = Buffer::with_hugepages(how.chunk_bytes, how.hugepages);

    let mut alone = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let mut buffer = Buffer::with_hugepages(how.chunk_bytes, how.hugepages);
        let started = Instant::now();
        let mut at = 0;
        while at < len {
            at += file.read_at(&mut buffer, at)? as u64;
        }
        alone[0].push(started.elapsed());

        let started = Instant::now();
        for _ in 0..len / how.chunk_bytes as u64 {
            black_box(sum(&chunk));
        }
        alone[1].push(started.elapsed());

        let started = Instant::now();
        for chunk in ChunkReader::open(&path, .., &how)? {
            black_box(sum(&chunk?));
        }
        alone[2].push(started.elapsed());
    }
    let [read, compute, ahead] = alone.map(|mut times| {
        times.sort();
        len as f64 / times[ROUNDS / 2].as_secs_f64() / 1e9
    });
    println!(
        "read alone {read:.2} GB/s, compute alone {compute:.2} GB/s, read-ahead {ahead:.2} GB/s, of the slower {:.2}",
        ahead / read.min(compute)
    );
    Ok(())
}

/// Deliberately not vectorised: about as much work a byte as a light function does.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum: u64, word| {
        black_box(sum.wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes"))))
    })
}
