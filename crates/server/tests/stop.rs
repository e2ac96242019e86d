//! Ends: in good order, on a signal, and by losing power.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Controller, builder, memory_target, pattern, start};
use diskside_nvme::wire::Sqe;
use diskside_server::config::VolumeSpec;
use diskside_volume::media::{FaultPlan, FaultyMedium, LossyMedium, MemoryMedium, OpenOptions};

const BLOCK: usize = 4096;

#[test]
fn a_stop_finishes_what_is_in_flight_and_answers_it() {
    let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(300), ..FaultPlan::default() };
    let medium = Arc::new(FaultyMedium::new(Arc::new(MemoryMedium::new(1 << 20, false).unwrap()), 4096, plan));
    let running = start(builder().medium(VolumeSpec::new("data", "slow").writable(), Arc::clone(&medium) as _));
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 64);
    let data = pattern(BLOCK, 4);
    let writes: Vec<u16> = (0..20).map(|at| queue.post(Sqe::write(1, at, 1), Some(&data), 0).unwrap()).collect();
    while medium.accesses() < 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.handle().stop();
    for cid in writes {
        queue.wait(cid).unwrap().ok();
    }
    assert!(queue.step().is_err(), "then the connection is closed");
    running.wait().unwrap();
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_secs(3600), ..FaultPlan::default() };
    let medium = Arc::new(FaultyMedium::new(Arc::new(MemoryMedium::new(1 << 20, false).unwrap()), 4096, plan));
    let slow = VolumeSpec::new("data", "slow").writable();
    let running = start(builder().medium(slow, Arc::clone(&medium) as _).limits(|limits| limits.stop_ms = 200));
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 4);
    queue.post(Sqe::read(1, 0, 1), None, BLOCK).unwrap();
    while medium.accesses() < 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    running.handle().stop();
    running.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn an_idle_target_stops_at_once() {
    let volume = VolumeSpec::new("data", "mem:1MiB").writable();
    let running = start(builder().volume(volume).limits(|limits| limits.stop_ms = 120_000));
    let _controller = Controller::connect(&running);
    let began = Instant::now();
    running.handle().stop();
    running.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "it did not wait for its limit: {:?}", began.elapsed());
}

#[test]
fn a_target_that_is_dropped_or_stopped_before_it_starts_ends() {
    drop(memory_target(1));
    let target = builder().build().unwrap();
    target.handle().stop();
    target.serve().unwrap();
}

/// Power is lost while a host writes: every write that was acknowledged before an acknowledged flush is there
/// afterwards, and what was written later is there whole or not at all, block by block.
#[test]
fn what_was_flushed_survives_the_loss_of_power() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let options = |size| OpenOptions { read_only: false, buffered: false, size, block_bytes: 4096 };
    for seed in 0..8_u64 {
        let medium = Arc::new(LossyMedium::open(&path, &options(Some(1 << 20))).unwrap());
        let running = start(builder().medium(VolumeSpec::new("data", "lossy").writable(), Arc::clone(&medium) as _));
        let controller = Controller::connect(&running);
        let mut queue = controller.io_queue(1, 16);
        for lba in 0..64 {
            queue.write(1, lba, &block_of(seed, lba, 0)).ok();
        }
        queue.flush(1).ok();
        // By block: the number of the last write that a flush acknowledged, and of the last write at all.
        let (mut flushed, mut written) = ([0_u64; 64], [0_u64; 64]);
        let crashing = Arc::new(AtomicBool::new(false));
        let crasher = std::thread::spawn({
            let crashing = Arc::clone(&crashing);
            move || {
                std::thread::sleep(Duration::from_millis(20 + 13 * seed));
                crashing.store(true, Ordering::SeqCst);
                medium.crash();
            }
        });
        for number in 1.. {
            let lba = (number * 7 + seed) % 64;
            written[lba as usize] = number;
            let ended = queue.write(1, lba, &block_of(seed, lba, number));
            if !ended.status.is_success() {
                break;
            }
            if number % 5 == 0 {
                if !queue.flush(1).status.is_success() {
                    break;
                }
                flushed = written;
            }
        }
        assert!(crashing.load(Ordering::SeqCst), "nothing fails before the power is lost");
        crasher.join().unwrap();
        running.handle().stop_now();
        running.wait().unwrap();

        let running = start(builder().medium(
            VolumeSpec::new("data", "lossy").writable(),
            Arc::new(LossyMedium::open(&path, &options(None)).unwrap()),
        ));
        let controller = Controller::connect(&running);
        let mut queue = controller.io_queue(1, 16);
        for lba in 0..64 {
            let block = queue.read(1, lba, 1).ok();
            let number = u64::from_le_bytes(block[..8].try_into().unwrap());
            assert_eq!(block, block_of(seed, lba, number), "a whole block");
            let (flushed, written) = (flushed[lba as usize], written[lba as usize]);
            assert!(
                (flushed..=written).contains(&number),
                "seed {seed}, block {lba}: write {number}, flushed up to {flushed}, written up to {written}"
            );
        }
    }
}

fn block_of(seed: u64, lba: u64, number: u64) -> Vec<u8> {
    let mut block = pattern(BLOCK, seed << 32 ^ lba << 16 ^ number);
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}

#[test]
fn a_signal_stops_the_process_in_good_order() {
    if let Some(name) = std::env::var_os("SERVE_UNTIL_SIGNAL") {
        let target = builder().volume(VolumeSpec::new(name.to_str().unwrap(), "mem:1MiB").writable()).build().unwrap();
        println!("\nlistening at {}", target.handle().local_addresses()[0]);
        target.serve_until_signal(|_| ()).unwrap();
        println!("stopped");
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_signal_stops_the_process_in_good_order", "--nocapture"])
        .env("SERVE_UNTIL_SIGNAL", "data")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening at ") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the target did not start");
    }
    // An answer: the target serves, and so waits for signals.
    let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let mut queue = common::Queue::negotiate(Box::new(common::tcp(address))).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(queue.step().is_err(), "the connection is closed");
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("stopped"), "{rest}");
    assert!(child.wait().unwrap().success());
}
