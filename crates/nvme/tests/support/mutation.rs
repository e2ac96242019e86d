//! Inputs of fuzzers' entry points on stable Rust: mutations of valid ones. `DISKSIDE_FUZZ_ROUNDS=n` runs longer.

use diskside_nvme::crc32c;
use diskside_nvme::wire::Sqe;

use super::rng::Rng;

pub fn rounds() -> u64 {
    std::env::var("DISKSIDE_FUZZ_ROUNDS").map_or(2000, |text| text.parse().expect("a number"))
}

/// Changes a few bytes, pieces or fields of a valid input.
pub fn mutate(rng: &mut Rng, session: &[u8]) -> Vec<u8> {
    let mut bytes = session.to_vec();
    for _ in 0..rng.between(1, 6) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(7) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => bytes.truncate(at.max(1)),
            3 => {
                let end = (at + rng.between(1, 64) as usize).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = rng.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, piece);
            }
            4 => {
                let end = (at + rng.between(1, 64) as usize).min(bytes.len());
                bytes.drain(at..end);
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            5 => {
                let number = rng.next().to_le_bytes();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            // A capsule, so that what is behind it in the stream is still understood.
            _ => {
                let mut sqe = Sqe::new(rng.next() as u8, rng.below(4) as u32);
                for n in [2, 3, 10, 11, 12, 13, 14, 15] {
                    if rng.chance(40) {
                        sqe = sqe.with_dword(n, rng.next() as u32 >> rng.below(32));
                    }
                }
                sqe.set_cid(rng.next() as u16);
                let mut capsule = vec![4, 0, 72, 0, 72, 0, 0, 0];
                capsule.extend_from_slice(zerocopy::IntoBytes::as_bytes(&sqe));
                bytes.extend_from_slice(&capsule);
            }
        }
    }
    bytes
}

/// Runs an entry point on many inputs; the one that panics is named.
pub fn smoke_with(run: fn(&[u8]), salt: u64, input: impl Fn(&mut Rng) -> Vec<u8>) {
    let mut rng = Rng::new(salt);
    for round in 0..rounds() {
        let input = input(&mut rng);
        let caught = std::panic::catch_unwind(|| run(&input));
        if let Err(panic) = caught {
            eprintln!("round {round} of salt {salt}: {} bytes, crc {:08x}", input.len(), crc32c(&input));
            std::panic::resume_unwind(panic);
        }
    }
}
