//! A volume with atomic writes that takes a recorded trace of deltas: how many a second, and how fast their pages are written to
//! their places. `bench/checkpoint/run --replay` runs it.
//!
//!     replay FILE PAGE direct|buffered DEPTH COUNT

use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::time::Instant;

use diskside_io::request::block_on;
use diskside_volume::blocking::moved_elsewhere;
use diskside_volume::medium::{Access, Action};
use diskside_volume::{VolumeSpec, media};
use diskside_wire::delta::{Delta, encode_delta};

/// Bytes of the volume.
const LEN: usize = 128 << 20;
/// Deltas in flight, as of a host.
const IN_FLIGHT: usize = 64;
/// Rows of a page that change, and their bytes: as measured with MariaDB.
const RUNS: usize = 3;
const RUN_LEN: usize = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, page, access, depth, count] = &arguments[..] else { return Err("see the source".into()) };
    let (page, count): (usize, usize) = (page.parse()?, count.parse()?);
    let buffered = if access == "buffered" { ",buffered" } else { "" };
    let options = format!("rw,size={LEN},atomic={}KiB,delta_depth={depth}{buffered}", page >> 10);
    let spec: VolumeSpec = format!("data={path},{options}").parse()?;
    let (content, records) = record(page, count);
    std::fs::write(path, content)?;
    std::fs::File::open(path)?.sync_all()?;
    let medium = media::open(&spec)?;
    let mut pages = HashSet::new();
    let mut in_flight = VecDeque::new();
    let began = Instant::now();
    for record in &records {
        let delta = Delta::parse(record)?;
        pages.insert(delta.offset);
        if in_flight.len() == IN_FLIGHT {
            in_flight.pop_front().map(block_on).map(moved_elsewhere).transpose()?;
        }
        match medium.start(&Access::Delta(delta)).action {
            Action::Elsewhere(future) => in_flight.push_back(future),
            other => return Err(format!("{other:?}").into()),
        }
    }
    for future in in_flight {
        moved_elsewhere(block_on(future))?;
    }
    let taken = began.elapsed().as_secs_f64();
    drop(medium);
    let all = began.elapsed().as_secs_f64();
    println!(
        "{{\"deltas_per_s\": {:.0}, \"pages_per_s\": {:.0}, \"pages\": {}}}",
        count as f64 / taken,
        pages.len() as f64 / all,
        pages.len()
    );
    Ok(())
}

/// A trace: the content before it, and its deltas.
fn record(page: usize, count: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut chance = 1_u64;
    let mut below = |bound: usize| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) as usize % bound
    };
    let before: Vec<u8> = (0..LEN).map(|at| ((at * 31) >> 7) as u8).collect();
    let mut content = before.clone();
    let records = (0..count).map(|_| {
        let at = below(LEN / page) * page;
        let base = content[at..at + page].to_vec();
        for _ in 0..RUNS {
            let from = at + below(page - RUN_LEN);
            let byte = below(256) as u8;
            content[from..from + RUN_LEN].fill(byte);
        }
        encode_delta(at as u64, &content[at..at + page], at as u64, &base, page).expect("few bytes changed")
    });
    let records = records.collect();
    (before, records)
}
