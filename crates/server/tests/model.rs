//! Random commands over several queues agree with a plain copy of the volume, whatever the medium does to them.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Controller, Queue, builder, pattern, start};
use diskside_nvme::Status;
use diskside_nvme::wire::{CopySourceEntry, DsmRange, Sqe};
use diskside_server::config::VolumeSpec;
use diskside_volume::media::{FaultPlan, FaultyMedium, FileMedium, LossyMedium, MemoryMedium, OpenOptions};
use diskside_volume::medium::Medium;
use zerocopy::IntoBytes;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 512;
const COMMANDS: u64 = 400;

fn options() -> OpenOptions {
    OpenOptions { read_only: false, buffered: false, size: Some(BLOCKS * BLOCK as u64), block_bytes: 4096 }
}

fn memory() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new(BLOCKS * BLOCK as u64, false).unwrap())
}

/// One command after the other, each on another queue.
fn check(medium: Arc<dyn Medium>, seed: u64, reactors: usize) {
    let running = start(builder().reactors(reactors).medium(VolumeSpec::new("data", "model").writable(), medium));
    let controller = Controller::connect(&running);
    let mut queues: Vec<Queue> = (1..=3).map(|id| controller.io_queue(id, 8)).collect();
    let mut model = vec![0; BLOCKS as usize * BLOCK];
    let mut random = pattern(COMMANDS as usize * 32, seed).chunks(8).map(number).collect::<Vec<_>>().into_iter();
    let mut draw = |bound: u64| random.next().unwrap() % bound;
    for turn in 0..COMMANDS {
        let queue = &mut queues[turn as usize % 3];
        let blocks = 1 + if draw(4) == 0 { draw(96) } else { draw(4) };
        let lba = draw(BLOCKS - blocks);
        let range = lba as usize * BLOCK..(lba + blocks) as usize * BLOCK;
        match draw(8) {
            0 | 1 => {
                let data = pattern(range.len(), turn);
                queue.write(1, lba, &data).ok();
                model[range].copy_from_slice(&data);
            }
            2 => {
                queue.command(Sqe::write_zeroes(1, lba, blocks as u32, turn % 2 == 0), None, 0).ok();
                model[range].fill(0);
            }
            3 => {
                let dsm = DsmRange::new(lba, blocks as u32);
                queue.command(Sqe::deallocate(1, 1), Some(dsm.as_bytes()), 0).ok();
                model[range].fill(0);
            }
            4 => {
                // To the other half, so that source and destination do not overlap.
                let (from, blocks) = (lba % (BLOCKS / 2 - 100), blocks.min(100));
                let to = from + BLOCKS / 2;
                let source = CopySourceEntry::new(0, from, blocks as u32);
                queue.command(Sqe::copy(1, to, 1, 0).with_fua(), Some(source.as_bytes()), 0).ok();
                let from = from as usize * BLOCK;
                model.copy_within(from..from + blocks as usize * BLOCK, to as usize * BLOCK);
            }
            5 => {
                let mut data = model[range].to_vec();
                queue.command(Sqe::compare(1, lba, blocks as u32), Some(&data), 0).ok();
                *data.last_mut().unwrap() ^= 1;
                let differs = queue.command(Sqe::compare(1, lba, blocks as u32), Some(&data), 0);
                differs.fails_with(Status::COMPARE_FAILURE);
            }
            _ => assert_eq!(queue.read(1, lba, blocks as u32).ok(), model[range], "turn {turn}, block {lba}"),
        }
    }
    assert_eq!(queues[0].read(1, 0, 256).ok(), model[..256 * BLOCK]);
    assert_eq!(queues[0].read(1, 256, 256).ok(), model[256 * BLOCK..]);
    // The last answer may be here before the target hears that it was sent.
    let given_up = Instant::now() + Duration::from_secs(10);
    let in_flight =
        || running.handle().stats().reactors.iter().map(|reactor| reactor.memory_in_flight_bytes).sum::<u64>();
    while in_flight() > 0 {
        assert!(Instant::now() < given_up, "memory stays in flight: {:?}", running.handle().stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn memory_agrees() {
    check(memory(), 1, 2);
}

#[test]
fn memory_that_is_slow_and_moves_parts_agrees() {
    let plan = FaultPlan {
        seed: 2,
        short_ppm: 400_000,
        delay_ppm: 200_000,
        delay_max: Duration::from_millis(1),
        ..FaultPlan::default()
    };
    check(Arc::new(FaultyMedium::new(memory(), 4096, plan)), 2, 2);
}

#[test]
fn a_file_agrees() {
    let dir = tempfile::tempdir().unwrap();
    check(Arc::new(FileMedium::open(&dir.path().join("data.img"), &options()).unwrap()), 3, 2);
}

#[test]
fn a_file_without_holes_and_zero_ranges_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let medium = FileMedium::open(&dir.path().join("data.img"), &options()).unwrap();
    for _ in 0..2 {
        medium.refused(&diskside_volume::medium::Access::Zero { offset: 0, len: 4096, deallocate: true });
    }
    check(Arc::new(medium), 4, 1);
}

#[test]
fn a_file_that_moves_parts_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let medium = FileMedium::open(&dir.path().join("data.img"), &options()).unwrap();
    let plan = FaultPlan { seed: 5, short_ppm: 500_000, ..FaultPlan::default() };
    check(Arc::new(FaultyMedium::new(Arc::new(medium), 4096, plan)), 5, 1);
}

#[test]
fn a_lossy_file_agrees_as_long_as_the_power_is_on() {
    let dir = tempfile::tempdir().unwrap();
    check(Arc::new(LossyMedium::open(&dir.path().join("data.img"), &options()).unwrap()), 6, 1);
}
