//! Connections that break, targets that restart: what is sent again, what fails, and what is said.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{
    Wire, address, builder, memory_target, options, pattern, read, read_now, start, url, url_at, write, write_now,
};
use diskside_host::function::Files;
use diskside_host::{ConnectOptions, Connection, InlineVolume, Volume};
use diskside_io::request::{AsyncIo, Cause, Request, Status, block_on, block_on_all};
use diskside_server::config::{ExportSpec, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_volume::medium::Medium;
use diskside_wire::file::FileFlags;

#[test]
fn reads_and_writes_survive_connections_that_break_anywhere() {
    let running = memory_target(16);
    let wire = Wire::to(address(&running));
    for io_queues in [1, 2] {
        let options = ConnectOptions { io_queues, retries_max: 50, ..options() };
        let volume = Volume::connect(&url_at(wire.address), &options).unwrap();
        for round in 0..12_u64 {
            // Cut inside headers, inside data, after a few commands, after many.
            wire.cut_after(100 + round * round * 7_777);
            let blocks = 24_576;
            let writes: Vec<_> = (0..20)
                .map(|at| volume.submit(write(at * blocks, &pattern(24_576, (round * 100 + at) as u32))))
                .collect();
            for outcome in block_on_all(writes) {
                assert_eq!((outcome.status, outcome.transferred_bytes), (Status::Success, 24_576), "round {round}");
            }
            let reads: Vec<_> = (0..20).map(|at| volume.submit(read(at * blocks, 24_576))).collect();
            for (at, outcome) in block_on_all(reads).into_iter().enumerate() {
                assert_eq!(outcome.into_read().unwrap()[..], pattern(24_576, (round * 100) as u32 + at as u32));
            }
        }
        // Also when nothing is left to be sent.
        let deadline = Instant::now() + Duration::from_secs(20);
        while volume.connection().stats().associations <= volume.connection().stats().losses {
            assert!(Instant::now() < deadline, "no new association");
            std::thread::sleep(Duration::from_millis(1));
        }
        let stats = volume.connection().stats();
        assert!(stats.losses > 3 && stats.retries > 0, "{stats:?}");
        assert!(volume.connection().last_problem().is_some());
    }
}

/// A file could not be opened when the connection broke after the request had left: a machine that had slept failed its first
/// command, though the server answered again by then.
#[test]
fn files_are_looked_up_over_connections_that_break_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["one", "two", "three"] {
        std::fs::write(directory.path().join(name), name).unwrap();
    }
    let running = start(builder().export(ExportSpec::new("data", directory.path())));
    let wire = Wire::to(address(&running));
    let volume = format!("nvme-tcp://{}/{}", wire.address, common::NQN);
    let options = ConnectOptions { retries_max: 50, ..options() };
    let connection = Connection::connect(&volume.parse().unwrap(), &options).unwrap();
    let files = Files::new(&connection).unwrap();
    for round in 0..24_u64 {
        wire.cut_after(round * 61);
        assert_eq!(files.stat(b"data/three").unwrap().len_bytes, 5, "round {round}");
        assert_eq!(files.list(b"data").unwrap().len(), 3, "round {round}");
        let file = files.open(b"data/two", FileFlags::READ).unwrap();
        assert_eq!(file.info().len_bytes, 3, "round {round}");
    }
    assert!(connection.stats().losses > 3, "{:?}", connection.stats());
}

#[test]
fn an_inline_volume_survives_losses_too() {
    let running = memory_target(4);
    let wire = Wire::to(address(&running));
    let mut inline =
        InlineVolume::connect(&url_at(wire.address), &ConnectOptions { retries_max: 50, ..options() }).unwrap();
    for round in 0..5_u64 {
        wire.cut_after(5_000 + round * 50_000);
        let requests: Vec<_> = (0..40).map(|at| inline.submit(write(at * 4096, &[round as u8; 4096]))).collect();
        for request in requests {
            assert_eq!(inline.block_on(request).status, Status::Success);
        }
    }
    assert!(inline.volume().connection().stats().losses > 0);
}

/// A target whose memory says that it has a volatile write cache.
fn cached_target() -> diskside_server::Running {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut spec = VolumeSpec::new("data", format!("lossy:{}", path.display())).writable();
    spec.size = Some("4MiB".parse().unwrap());
    start(builder().volume(spec))
}

#[test]
fn a_flush_after_a_loss_tells_once_that_writes_may_be_gone() {
    let running = cached_target();
    let wire = Wire::to(address(&running));
    let volume = Volume::connect(&url_at(wire.address), &options()).unwrap();
    assert!(volume.connection().controller().write_cache, "the test needs a volatile write cache");
    let flush = || block_on(volume.submit(Request::Flush)).status;
    let lose = || {
        let before = volume.connection().stats().associations;
        wire.cut();
        let deadline = Instant::now() + Duration::from_secs(10);
        while volume.connection().stats().associations == before {
            assert!(Instant::now() < deadline, "no new association");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    write_now(&volume, 0, &[1; 4096]);
    assert_eq!(flush(), Status::Success);
    lose();
    assert_eq!(flush(), Status::Success, "everything was flushed before the loss");
    write_now(&volume, 0, &[2; 4096]);
    lose();
    let told = flush();
    assert!(matches!(told, Status::IoError(Cause::Lost(_))), "{told:?}");
    assert!(told.to_string().contains("write them again"), "{told}");
    assert_eq!(flush(), Status::Success, "it is told once");
    let durable = Request::Write { offset: 0, buffer: diskside_io::buffer::Buffer::zeroed(4096), durable: true };
    assert_eq!(block_on(volume.submit(durable)).status, Status::Success);
    lose();
    assert_eq!(flush(), Status::Success, "what was written durably cannot be lost");
}

#[test]
fn acknowledged_flushes_survive_a_target_that_loses_everything_else() {
    // The target dies in the middle of the load, together with everything that no flush covers, and
    // comes back elsewhere. Each block carries the number of its last write: after a flush was
    // acknowledged, no block may be older than it was at the time of the flush.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let target = || {
        let mut spec = VolumeSpec::new("data", format!("lossy:{}", path.display())).writable();
        spec.size = Some("1MiB".parse().unwrap());
        start(builder().volume(spec))
    };
    let mut running = Some(target());
    let wire = Wire::to(address(running.as_ref().unwrap()));
    let volume = Volume::connect(&url_at(wire.address), &ConnectOptions { retries_max: 50, ..options() }).unwrap();
    let mut flushed = [0_u64; 16];
    let mut told = 0;
    for number in 1..=40_u64 {
        let block = (number % 16) as usize;
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let mut written = flushed;
        written[block] = number;
        if number.is_multiple_of(10) {
            let before = running.take().unwrap();
            before.handle().stop_now();
            before.wait().unwrap();
            wire.cut();
            running = Some(target());
            wire.lead_to(address(running.as_ref().unwrap()));
        }
        write_now(&volume, block as u64 * 4096, &bytes);
        match block_on(volume.submit(Request::Flush)).status {
            Status::Success => flushed = written,
            status => {
                assert!(matches!(status, Status::IoError(Cause::Lost(_))), "{status}");
                told += 1;
                write_now(&volume, block as u64 * 4096, &bytes);
                assert_eq!(block_on(volume.submit(Request::Flush)).status, Status::Success);
                flushed = written;
            }
        }
        for (block, &expected) in flushed.iter().enumerate() {
            let bytes = read_now(&volume, block as u64 * 4096, 4096);
            assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), expected, "block {block} at write {number}");
        }
    }
    assert!(volume.connection().stats().losses >= 4, "{:?}", volume.connection().stats());
    // Writes were flushed before each death, so that nothing had to be reported, or it was reported and repaired.
    assert!(told <= 4);
}

#[test]
fn a_target_that_stays_away_fails_what_waits_in_words() {
    let running = memory_target(1);
    let wire = Wire::to(address(&running));
    let options = ConnectOptions { loss_timeout: Duration::from_millis(300), ..options() };
    let volume = Volume::connect(&url_at(wire.address), &options).unwrap();
    wire.refuse(true);
    wire.cut();
    let started = Instant::now();
    let waited = block_on(volume.submit(read(0, 4096)));
    assert!(matches!(waited.status, Status::IoError(Cause::Lost(_))), "{:?}", waited.status);
    let lost = format!("the server {} was lost, and was not back within 0.3 s (--loss-timeout-ms)", wire.address);
    assert!(waited.status.to_string().contains(&lost), "{}", waited.status);
    assert_eq!(waited.buffer.unwrap().len(), 4096);
    assert!(started.elapsed() < Duration::from_secs(10));
    let later = block_on(volume.submit(write(0, &[0; 4096])));
    assert!(matches!(later.status, Status::IoError(Cause::Lost(_))));
    assert!(volume.connection().volume(1).is_err());
}

#[test]
fn without_patience_a_loss_fails_at_once() {
    let running = memory_target(1);
    let wire = Wire::to(address(&running));
    let volume =
        Volume::connect(&url_at(wire.address), &ConnectOptions { loss_timeout: Duration::ZERO, ..options() }).unwrap();
    wire.cut();
    let outcomes = block_on_all((0..100).map(|_| volume.submit(read(0, 4096))));
    assert!(matches!(outcomes.last().unwrap().status, Status::IoError(Cause::Lost(_))));
}

fn faulty_target(plan: FaultPlan) -> diskside_server::Running {
    let memory: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4 << 20, false).unwrap());
    let medium = Arc::new(FaultyMedium::new(memory, 4096, plan));
    start(builder().medium(VolumeSpec::new("data", "faulty").writable(), medium))
}

#[test]
fn a_failing_medium_is_named() {
    let running = faulty_target(FaultPlan { seed: 1, eio_ppm: 1_000_000, ..FaultPlan::default() });
    let volume = Volume::connect(&url(&running), &options()).unwrap();
    let outcome = block_on(volume.submit(read(0, 4096)));
    assert!(matches!(outcome.status, Status::IoError(Cause::Remote { .. })), "{:?}", outcome.status);
    assert!(outcome.status.to_string().contains("Unrecovered Read Error"), "{}", outcome.status);
    let outcome = block_on(volume.submit(write(0, &[0; 4096])));
    assert!(outcome.status.to_string().contains("Write Fault"), "{}", outcome.status);

    let running = faulty_target(FaultPlan { seed: 1, enospc_ppm: 1_000_000, ..FaultPlan::default() });
    let volume = Volume::connect(&url(&running), &options()).unwrap();
    let outcome = block_on(volume.submit(write(0, &[0; 4096])));
    assert!(matches!(outcome.status, Status::OutOfSpace(Cause::Remote { .. })), "{:?}", outcome.status);
}

#[test]
fn a_late_command_is_aborted_or_its_connection_is_given_up() {
    let plan = FaultPlan { seed: 3, delay_ppm: 1_000_000, delay_max: Duration::from_secs(3), ..FaultPlan::default() };
    let running = faulty_target(plan);
    let options = ConnectOptions { command_timeout: Duration::from_millis(100), retries_max: 1, ..options() };
    let volume = Volume::connect(&url(&running), &options).unwrap();
    let outcomes = block_on_all((0..8).map(|at| volume.submit(read(at * 4096, 4096))));
    let failed = outcomes.iter().filter(|outcome| outcome.status != Status::Success).count();
    let stats = volume.connection().stats();
    assert!(stats.timeouts > 0 && (stats.aborts > 0 || stats.losses > 0), "{stats:?}");
    assert!(failed > 0, "nothing that takes seconds can succeed: {outcomes:?}");
}

#[test]
fn an_idle_connection_is_kept_alive() {
    let running = memory_target(1);
    let options = ConnectOptions { keep_alive: Duration::from_secs(2), ..options() };
    let volume = Volume::connect(&url(&running), &options).unwrap();
    // Longer than the target waits for a host; and that is long, also on a machine that is busy.
    std::thread::sleep(Duration::from_millis(4500));
    read_now(&volume, 0, 4096);
    assert_eq!(volume.connection().stats().losses, 0, "{:?}", volume.connection().last_problem());
}

/// Waits until a volume's reads are answered so.
fn wait_until_told(volume: &Volume, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let told = block_on(volume.submit(read(0, 4096))).status.to_string();
        if told.contains(what) {
            return;
        }
        assert!(Instant::now() < deadline, "`{told}` instead of `{what}`");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Commands name a volume by its number alone. Another volume that took a number over once got the writes of hosts that had
/// not heard of it yet.
#[test]
fn another_volume_cannot_have_the_number_that_a_connected_host_knows() {
    // Memory has another UUID each time, unless it is given one.
    let uuid = Some("00112233-4455-6677-8899-aabbccddeeff".to_owned());
    let data = VolumeSpec { nsid: Some(1), uuid, ..VolumeSpec::new("data", "mem:1MiB").writable() };
    let running = start(builder().volume(data.clone()));
    let volume = Volume::connect(&url(&running), &options()).unwrap();
    read_now(&volume, 0, 4096);
    running.handle().remove_volume("data").unwrap();
    let other = VolumeSpec { nsid: Some(1), ..VolumeSpec::new("other", "mem:1MiB").writable() };
    let refused = running.handle().add_volume(&other).unwrap_err().to_string();
    assert!(refused.contains("namespace 1 was another volume") && refused.contains("still connected"), "{refused}");
    let free = running.handle().add_volume(&VolumeSpec::new("third", "mem:1MiB").writable()).unwrap();
    assert_eq!(free.nsid, 2, "a number that nobody chose is one that no host knows");
    wait_until_told(&volume, "went away");

    // The same volume may come back, and is one again for its host.
    running.handle().add_volume(&data).unwrap();
    wait_until_told(&volume, "success");
    write_now(&volume, 0, &[1; 4096]);

    // When its host is gone, its number is free.
    running.handle().remove_volume("data").unwrap();
    assert!(running.handle().add_volume(&other).is_err());
    drop(volume);
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = running.handle().add_volume(&other) {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(read_now(&common::connect(&running), 0, 4096), [0; 4096]);
}

/// Writes that waited for their target once were sent to whatever had the volume's number when it could be reached again.
#[test]
fn writes_that_wait_for_their_target_do_not_go_to_another_volume_of_its_number() {
    let running = memory_target(1);
    let wire = Wire::to(address(&running));
    let volume = Volume::connect(&url_at(wire.address), &ConnectOptions { retries_max: 50, ..options() }).unwrap();
    write_now(&volume, 0, &[1; 4096]);
    // Some of them are on their way when the connection breaks, others have not begun.
    wire.refuse(true);
    wire.cut_after(200_000);
    let writes: Vec<_> = (0..40).map(|at| volume.submit(write(at * 16_384, &[2; 16_384]))).collect();
    let other = start(builder().volume(VolumeSpec::new("other", "mem:1MiB").writable()));
    wire.lead_to(address(&other));
    wire.refuse(false);
    let mut refused = 0;
    for outcome in block_on_all(writes) {
        if outcome.status != Status::Success {
            assert!(outcome.status.to_string().contains("another one than before"), "{}", outcome.status);
            refused += 1;
        }
    }
    assert!(refused >= 20, "{refused}: 200,000 bytes carry twelve of forty");
    wait_until_told(&volume, "another one than before");
    let fresh = common::connect(&other);
    assert_eq!(read_now(&fresh, 0, 1 << 20), vec![0; 1 << 20], "not a byte of them is in the other volume");
}
