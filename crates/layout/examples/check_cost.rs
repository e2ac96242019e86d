//! Measures what the proof that a range of a file stays where it is adds to a request: before and after, without the
//! request.
//!
//! ```console
//! # cargo run --release -p diskside-layout --example check_cost -- FILE
//! ```
//!
//! FILE is on a mounted ext4 or XFS; it is only opened for reading.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use diskside_layout::{GuardConfig, Proof, admit, watched};

const REQUESTS: u32 = 200_000;
const ROUNDS: usize = 7;
const RANGE_LEN: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("say FILE")?;
    let path = Path::new(&path);
    for proof in [Proof::Epoch, Proof::Request] {
        let file = File::open(path)?;
        let admitted = admit(&file)?;
        let config = GuardConfig {
            proof,
            own_writer: false,
            place: admitted.place.clone(),
            moves_under_lease: admitted.moves_under_lease(),
            extents_max: 1 << 16,
            clock_tick: Duration::ZERO,
        };
        let guard = watched(file, config)?;
        let request = || -> Result<(), Box<dyn Error>> {
            let ticket = guard.begin(0..RANGE_LEN)?;
            black_box(ticket.layout());
            Ok(guard.finish(ticket)?)
        };
        request()?;
        println!("{proof:?}, {:?}: {:.0} ns a request", admitted.file_system, best_ns(request)?);
    }
    // For scale: the same range from the page cache.
    let file = File::open(path)?;
    let mut bytes = [0; RANGE_LEN as usize];
    let read = || -> Result<(), Box<dyn Error>> { Ok(file.read_at(black_box(&mut bytes), 0).map(drop)?) };
    println!("pread of {RANGE_LEN} cached bytes: {:.0} ns", best_ns(read)?);
    Ok(())
}

/// The best of several rounds.
fn best_ns(mut request: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..REQUESTS {
            request()?;
        }
        best = best.min(started.elapsed().as_nanos() as f64 / f64::from(REQUESTS));
    }
    Ok(best)
}
