//! Idle connections sleep. Alone in its process, whose processor time it measures: host and target.

mod common;

use std::time::Duration;

use common::{memory_target, options, read_now, url};
use diskside_host::{ConnectOptions, Volume};
use rustix::time::{ClockId, clock_gettime};

#[test]
fn idle_connections_use_no_processor_time() {
    let running = memory_target(1);
    let options = ConnectOptions { io_queues: 4, ..options() };
    let volumes: Vec<_> = (0..8).map(|_| Volume::connect(&url(&running), &options).unwrap()).collect();
    volumes.iter().for_each(|volume| drop(read_now(volume, 0, 4096)));
    std::thread::sleep(Duration::from_millis(200));
    let before = clock_gettime(ClockId::ProcessCPUTime);
    std::thread::sleep(Duration::from_millis(500));
    let after = clock_gettime(ClockId::ProcessCPUTime);
    let used_ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1_000_000;
    assert!(used_ms < 125, "{used_ms} ms of processor time in 500 ms of idleness: some thread does not sleep");
}
