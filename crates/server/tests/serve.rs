//! A target on real sockets, and on the loop: commands end as they should, and survive what is in their way.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Controller, HOST, NQN, builder, memory_target, pattern, start};
use diskside_nvme::Status;
use diskside_nvme::wire::{CopySourceEntry, DsmRange, Sqe};
use diskside_server::Running;
use diskside_server::config::VolumeSpec;
use diskside_server::stats::IoStats;
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_volume::medium::Medium;
use zerocopy::IntoBytes;

const BLOCK: usize = 4096;

/// What every volume and every transport must do.
fn check_commands(controller: &Controller) {
    let mut queue = controller.io_queue(1, 64);
    let small = pattern(BLOCK, 1);
    queue.write(1, 3, &small).ok();
    assert_eq!(queue.read(1, 3, 1).ok(), small);
    // More than a capsule carries: the target asks for it by R2T.
    let large = pattern(96 * BLOCK, 2);
    queue.write(1, 100, &large).ok();
    assert_eq!(queue.read(1, 100, 96).ok(), large);
    queue.flush(1).ok();

    queue.command(Sqe::compare(1, 3, 1), Some(&small), 0).ok();
    queue.command(Sqe::compare(1, 3, 1), Some(&large[..BLOCK]), 0).fails_with(Status::COMPARE_FAILURE);
    queue.command(Sqe::verify(1, 0, 512), None, 0).ok();

    queue.command(Sqe::write_zeroes(1, 101, 2, false), None, 0).ok();
    queue.command(Sqe::write_zeroes(1, 104, 1, true).with_fua(), None, 0).ok();
    let ranges = [DsmRange::new(106, 1), DsmRange::new(108, 2)];
    queue.command(Sqe::deallocate(1, 2), Some(ranges.as_bytes()), 0).ok();
    let mut expected = large.clone();
    for zeroed in [1, 2, 4, 6, 8, 9] {
        expected[zeroed * BLOCK..(zeroed + 1) * BLOCK].fill(0);
    }
    assert_eq!(queue.read(1, 100, 96).ok(), expected);

    let sources = [CopySourceEntry::new(0, 100, 64), CopySourceEntry::new(0, 3, 1)];
    queue.command(Sqe::copy(1, 300, 2, 0), Some(sources.as_bytes()), 0).ok();
    assert_eq!(queue.read(1, 300, 64).ok(), expected[..64 * BLOCK]);
    assert_eq!(queue.read(1, 364, 1).ok(), small);

    queue.read(1, u64::MAX - 5, 1).fails_with(Status::LBA_OUT_OF_RANGE.dnr());
    queue.read(9, 0, 1).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
}

#[test]
fn memory_over_tcp() {
    let running = memory_target(16);
    check_commands(&Controller::connect(&running));
    let stats = running.handle().stats();
    let volume = stats.volumes["data"];
    let of_host = stats.hosts[HOST];
    assert_eq!(of_host.busy_us, 0, "busy is what a volume is, not who uses it");
    // Busy time and latencies are a volume's.
    let (busy_us, latency) = (volume.busy_us, volume.latency);
    assert_eq!(IoStats { busy_us, latency, ..of_host }, volume, "one host did it all");
    assert!(volume.reads >= 6 && volume.writes == 3 && volume.flushes == 1 && volume.zeroes == 3, "{volume:?}");
    assert_eq!(volume.errors, 0);
    assert_eq!(stats.reactors[0].memory_in_flight_bytes, 0);
}

#[test]
fn memory_over_the_loop() {
    let running = memory_target(16);
    check_commands(&Controller::connect_loop(&running));
}

#[test]
fn a_file_over_tcp_and_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img").display().to_string();
    let mut spec = VolumeSpec::new("data", &path).writable();
    spec.size = Some("16MiB".parse().unwrap());
    let running = start(builder().volume(spec));
    check_commands(&Controller::connect(&running));
    running.handle().stop();
    running.wait().unwrap();
    let running = start(builder().volume(VolumeSpec::new("data", &path).writable()));
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 4);
    assert_eq!(queue.read(1, 3, 1).ok(), pattern(BLOCK, 1));
}

#[test]
fn a_medium_that_moves_parts_late() {
    let plan = FaultPlan {
        seed: 5,
        short_ppm: 500_000,
        delay_ppm: 300_000,
        delay_max: Duration::from_millis(3),
        ..FaultPlan::default()
    };
    let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(16 << 20, false).unwrap()), 4096, plan);
    let running = start(builder().medium(VolumeSpec::new("data", "faulty").writable(), Arc::new(medium)));
    check_commands(&Controller::connect(&running));
}

#[test]
fn faults_of_the_medium_have_the_status_of_their_kind() {
    let faulty = |plan: FaultPlan| -> Arc<dyn Medium> {
        Arc::new(FaultyMedium::new(Arc::new(MemoryMedium::new(1 << 20, false).unwrap()), 4096, plan))
    };
    let always = 1_000_000;
    let running = start(
        builder()
            .medium(
                VolumeSpec::new("io", "-").writable(),
                faulty(FaultPlan { eio_ppm: always, ..FaultPlan::default() }),
            )
            .medium(
                VolumeSpec::new("space", "-").writable(),
                faulty(FaultPlan { enospc_ppm: always, ..FaultPlan::default() }),
            )
            .medium(
                VolumeSpec::new("flush", "-").writable(),
                faulty(FaultPlan { flush_eio_ppm: always, ..FaultPlan::default() }),
            ),
    );
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 4);
    let data = pattern(BLOCK, 1);
    queue.read(1, 0, 1).fails_with(Status::UNRECOVERED_READ_ERROR);
    queue.write(1, 0, &data).fails_with(Status::WRITE_FAULT);
    queue.write(2, 0, &data).fails_with(Status::CAPACITY_EXCEEDED);
    queue.read(2, 0, 1).ok();
    queue.write(3, 0, &data).ok();
    queue.flush(3).fails_with(Status::WRITE_FAULT);
    // Acknowledged writes may be lost: a later flush must not say otherwise.
    queue.flush(3).fails_with(Status::WRITE_FAULT);
    queue.write(3, 0, &data).fails_with(Status::WRITE_FAULT);
    queue.read(3, 0, 1).ok();
    assert_eq!(running.handle().stats().volumes["io"].errors, 2);
}

#[test]
fn a_read_only_volume_refuses_writes_only() {
    let running = start(builder().volume(VolumeSpec::new("data", "mem:1MiB")));
    refuses_writes_only(&running);
}

/// An embedder's own medium was written whatever its volume's description said.
#[test]
fn a_medium_that_could_be_written_is_not_unless_its_volume_says_so() {
    let medium = Arc::new(MemoryMedium::new(1 << 20, false).unwrap());
    let running = start(builder().medium(VolumeSpec::new("data", "own"), medium));
    refuses_writes_only(&running);
}

fn refuses_writes_only(running: &Running) {
    let controller = Controller::connect(running);
    let mut queue = controller.io_queue(1, 4);
    let refused = Status::NAMESPACE_WRITE_PROTECTED.dnr();
    queue.write(1, 0, &pattern(BLOCK, 1)).fails_with(refused);
    queue.command(Sqe::write_zeroes(1, 0, 1, false), None, 0).fails_with(refused);
    let range = DsmRange::new(0, 1);
    queue.command(Sqe::deallocate(1, 1), Some(range.as_bytes()), 0).fails_with(refused);
    assert_eq!(queue.read(1, 0, 1).ok(), vec![0; BLOCK]);
}

#[test]
fn many_commands_at_once_end_in_any_order_with_their_own_data() {
    let running = memory_target(64);
    check_many(&Controller::connect(&running));
    check_many(&Controller::connect_loop(&running));
}

fn check_many(controller: &Controller) {
    let mut queue = controller.io_queue(1, 128);
    let data: Vec<Vec<u8>> = (0..100).map(|seed| pattern(32 * BLOCK, seed)).collect();
    let writes: Vec<u16> =
        (0..100).map(|at| queue.post(Sqe::write(1, at as u64 * 32, 32), Some(&data[at]), 0).unwrap()).collect();
    writes.into_iter().for_each(|cid| drop(queue.wait(cid).unwrap().ok()));
    let reads: Vec<u16> =
        (0..100).map(|at| queue.post(Sqe::read(1, at as u64 * 32, 32), None, 32 * BLOCK).unwrap()).collect();
    for (cid, data) in reads.into_iter().zip(data) {
        assert_eq!(queue.wait(cid).unwrap().ok(), data);
    }
}

#[test]
fn the_queues_of_a_controller_on_two_reactors_see_each_others_writes() {
    let running = start(builder().reactors(2).volume(VolumeSpec::new("data", "mem:16MiB").writable()));
    let controller = Controller::connect(&running);
    let mut queues: Vec<_> = (1..=4).map(|id| controller.io_queue(id, 8)).collect();
    for turn in 0..200 {
        let data = pattern(4 * BLOCK, turn);
        queues[turn as usize % 4].write(1, 7, &data).ok();
        for queue in &mut queues {
            assert_eq!(queue.read(1, 7, 4).ok(), data);
        }
    }
    let stats = running.handle().stats();
    assert!(stats.reactors.iter().all(|reactor| reactor.connections_total >= 2), "{stats:?}");
}

#[test]
fn a_block_is_never_seen_half_written() {
    // One host writes a block all of one byte, over and over, while another reads it through another reactor.
    let running = start(builder().reactors(2).volume(VolumeSpec::new("data", "mem:1MiB").writable()));
    let controller = Controller::connect(&running);
    let (mut writer, mut reader) = (controller.io_queue(1, 16), controller.io_queue(2, 16));
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for byte in (0..=255).cycle() {
                if Instant::now() > until {
                    break;
                }
                writer.write(1, 0, &[byte; BLOCK]).ok();
            }
        });
        scope.spawn(move || {
            while Instant::now() < until {
                let reads: Vec<u16> = (0..8).map(|_| reader.post(Sqe::read(1, 0, 1), None, BLOCK).unwrap()).collect();
                for cid in reads {
                    let block = reader.wait(cid).unwrap().ok();
                    assert!(block.iter().all(|byte| *byte == block[0]), "{} and {}", block[0], block[BLOCK - 1]);
                }
            }
        });
    });
}

#[test]
fn hosts_that_are_not_named_are_refused() {
    let running = memory_target(1);
    let handle = running.handle();
    handle.set_hosts(&["nqn.2026-11.org.example:other".into()]).unwrap();
    let refused = Controller::connect_as(handle, HOST, 0).err().unwrap();
    assert!(!refused.is_success(), "{refused}");
    Controller::connect_as(handle, "nqn.2026-11.org.example:other", 0).unwrap();
    handle.set_hosts(&[]).unwrap();
    Controller::connect_as(handle, HOST, 0).unwrap();
}

#[test]
fn volumes_come_and_go_while_hosts_are_connected() {
    let running = memory_target(1);
    let handle = running.handle();
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 4);
    queue.read(2, 0, 1).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    let volume = handle.add_volume(&VolumeSpec::new("more", "mem:2MiB").writable()).unwrap();
    assert_eq!(volume.nsid, 2);
    queue.write(2, 1, &pattern(BLOCK, 3)).ok();
    assert_eq!(queue.read(2, 1, 1).ok(), pattern(BLOCK, 3));
    let error = handle.add_volume(&VolumeSpec::new("more", "mem:2MiB").writable()).unwrap_err().to_string();
    assert_eq!(error, "there is a volume `more` already");
    handle.remove_volume("more").unwrap();
    queue.read(2, 1, 1).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    assert_eq!(handle.remove_volume("more").unwrap_err().to_string(), "there is no volume `more`");
    assert_eq!(handle.volumes().len(), 1);
    assert_eq!(queue.read(1, 0, 1).ok(), vec![0; BLOCK]);
}

#[test]
fn an_address_in_use_is_named() {
    let running = memory_target(1);
    let address = running.handle().local_addresses()[0];
    let error = diskside_server::Target::builder().nqn(NQN).listen([address]).build().unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "cannot listen on {address}: Address already in use (os error 98): another program listens there; stop it, or \
             choose another port, or port 0 for a free one"
        )
    );
}

#[test]
fn an_address_of_another_machine_is_named() {
    // RFC 5737 keeps it for documentation: no machine has it.
    let address = "192.0.2.1:0".parse().unwrap();
    let error =
        diskside_server::Target::builder().nqn(NQN).listen([address]).insecure().build().unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot listen on 192.0.2.1:0: Cannot assign requested address (os error 99): this machine does not have the \
         address 192.0.2.1; 0.0.0.0 and [::] stand for all that it has"
    );
}
