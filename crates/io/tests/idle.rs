//! Idle rings and instances sleep. Alone in its process, whose processor time it measures.

use std::time::Duration;

use diskside_io::buffer::Buffer;
use diskside_io::instance::{InstanceConfig, Instances, Threads};
use diskside_io::request::{AsyncIo as _, Request, block_on};
use rustix::time::{ClockId, clock_gettime};

#[test]
fn idle_instances_use_no_processor_time() {
    let one = InstanceConfig { instances: 3, ..InstanceConfig::default() };
    let two = InstanceConfig { threads: Threads::Two, ..one.clone() };
    let kernel = InstanceConfig { sq_poll: Some(Duration::from_millis(1)), ..one.clone() };
    let device = InstanceConfig { io_poll: true, ..one.clone() };
    let running = [one, two, kernel, device].map(|config| {
        let instances = Instances::start(&config).unwrap();
        let file = instances.file(tempfile::tempfile().unwrap()).unwrap();
        // Whether a polling ring can write here does not matter: it was awake.
        let written = block_on(file.submit(Request::Write { offset: 0, buffer: Buffer::zeroed(1), durable: false }));
        assert!(config.io_poll || written.into_result().is_ok());
        (instances, file)
    });
    std::thread::sleep(Duration::from_millis(100));
    let before = clock_gettime(ClockId::ProcessCPUTime);
    std::thread::sleep(Duration::from_millis(400));
    let after = clock_gettime(ClockId::ProcessCPUTime);
    let used_ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1_000_000;
    assert!(used_ms < 100, "{used_ms} ms of processor time in 400 ms of idleness: some thread does not sleep");
    drop(running);
}
