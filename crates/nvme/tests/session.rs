//! A whole session between our host and our controller, without faults.

mod support;

use std::time::Duration;

use diskside_nvme::controller::{BlockSize, Listener, State};
use diskside_nvme::host::{AdminEvent, CommandError, Data, NamespaceInfo};
use diskside_nvme::wire::{CopySourceEntry, DsmRange, Sqe, feature, log_page};
use diskside_nvme::{DISCOVERY_NQN, Status};
use support::memory::Memory;
use support::pair::{Pair, SUBSYSTEM, Target, admin_config, namespace};
use zerocopy::IntoBytes;

fn target() -> Target {
    let mut target = Target::new();
    target.add(1, 1 << 14, BlockSize::B512);
    target.add(2, 1 << 11, BlockSize::B4096);
    target
}

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 512) as u8 ^ (i % 251) as u8 ^ salt).collect()
}

fn status<T>(result: Result<T, CommandError>) -> Status {
    match result {
        Err(CommandError::Status { status, .. }) => status,
        Err(error) => panic!("failed otherwise: {error}"),
        Ok(_) => Status::SUCCESS,
    }
}

#[test]
fn what_is_written_is_read_at_every_size_and_with_every_digest() {
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut config = admin_config(SUBSYSTEM, 1);
        (config.header_digest, config.data_digest) = (header_digest, data_digest);
        let mut pair = Pair::connect(target(), config);
        for (salt, (nsid, block_len)) in [(1, 512), (2, 4096)].into_iter().enumerate() {
            // Up to 8 KiB travel in the capsule, more by R2T, more than 128 KiB in several H2CData.
            for blocks in [1, 2, 16, 17, 64, 256] {
                let bytes = pattern((blocks * block_len) as usize, salt as u8 ^ blocks as u8);
                pair.write(nsid, 3, &bytes, block_len).unwrap();
                assert_eq!(pair.read(nsid, 3, blocks, block_len).unwrap(), bytes, "{blocks} blocks of {block_len}");
            }
        }
        assert_eq!(pair.target.memory.in_use(), 0, "every buffer was given back");
        assert_eq!(pair.memory.in_use(), 0);
    }
}

#[test]
fn a_pool_of_one_buffer_is_enough() {
    let mut target = target();
    target.memory = Memory::with_pool(1);
    let mut pair = Pair::connect(target, admin_config(SUBSYSTEM, 1));
    let bytes = pattern(64 << 10, 3);
    for _ in 0..3 {
        pair.write(1, 0, &bytes, 512).unwrap();
        pair.write(1, 200, &bytes[..4096], 512).unwrap();
    }
    assert_eq!(pair.read(1, 0, 128, 512).unwrap(), bytes);
}

#[test]
fn every_command_of_the_nvm_command_set_does_its_work() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let bytes = pattern(16 * 512, 9);
    pair.write(1, 0, &bytes, 512).unwrap();
    pair.io(Sqe::flush(1), Data::None).unwrap();
    pair.io(Sqe::verify(1, 0, 16), Data::None).unwrap();

    pair.io(Sqe::compare(1, 0, 16), Data::SendBytes(bytes.clone())).unwrap();
    let mut other = bytes.clone();
    other[700] ^= 1;
    assert!(status(pair.io(Sqe::compare(1, 0, 16), Data::SendBytes(other))).is(Status::COMPARE_FAILURE));

    let sources = [CopySourceEntry::new(0, 8, 4), CopySourceEntry::new(0, 0, 2)];
    pair.io(Sqe::copy(1, 100, 2, 0), Data::SendBytes(sources.as_bytes().to_vec())).unwrap();
    let copied = pair.read(1, 100, 6, 512).unwrap();
    assert_eq!(copied, [&bytes[8 * 512..12 * 512], &bytes[..2 * 512]].concat());

    pair.io(Sqe::write_zeroes(1, 2, 2, true), Data::None).unwrap();
    let ranges = [DsmRange::new(8, 4), DsmRange::new(0, 1)];
    pair.io(Sqe::deallocate(1, 2), Data::SendBytes(ranges.as_bytes().to_vec())).unwrap();
    let mut want = bytes;
    want[..512].fill(0);
    want[2 * 512..4 * 512].fill(0);
    want[8 * 512..12 * 512].fill(0);
    assert_eq!(pair.read(1, 0, 16, 512).unwrap(), want);
}

#[test]
fn a_range_list_may_come_in_a_larger_buffer_as_linux_sends_it() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    pair.write(1, 0, &pattern(512, 1), 512).unwrap();
    let mut page = vec![0xff; 4096];
    page[..16].copy_from_slice(DsmRange::new(0, 1).as_bytes());
    pair.io(Sqe::deallocate(1, 1), Data::SendBytes(page)).unwrap();
    assert_eq!(pair.read(1, 0, 1, 512).unwrap(), [0; 512]);
}

#[test]
fn namespaces_tell_their_size_and_format() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let info = pair.admin.controller().unwrap().clone();
    assert_eq!((info.io_queues, info.io_queue_entries, info.in_capsule_len), (1, 32, 8192));
    assert_eq!((info.model.as_str(), info.serial.as_str()), ("Diskside", "S1"));
    assert_eq!((info.transfer_len_max, info.write_cache, info.namespaces.as_slice()), (1 << 20, true, &[1, 2][..]));
    for nsid in [1, 2, 3] {
        pair.admin.identify_namespace(pair.now, nsid);
    }
    let infos: Vec<_> = pair
        .admin_events()
        .into_iter()
        .map(|event| match event {
            AdminEvent::Namespace { nsid, info } => (nsid, info),
            event => panic!("{event:?}"),
        })
        .collect();
    let want = |nsid: u32, blocks, block_len| {
        let uuid = Some([nsid as u8; 16]);
        NamespaceInfo {
            nsid,
            csi: 0,
            blocks,
            block_len,
            atomic_len: block_len,
            delta_len_max: 0,
            read_only: false,
            deallocate_zeroes: true,
            uuid,
            nguid: uuid,
        }
    };
    assert_eq!(infos[0], (1, Ok(want(1, 1 << 14, 512))));
    assert_eq!(infos[1], (2, Ok(want(2, 1 << 11, 4096))));
    assert_eq!(infos[2], (3, Err(CommandError::NoSuchNamespace)));
}

#[test]
fn hosts_hear_of_namespaces_that_come_and_go() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let medium = pair.target.media.add(1 << 20);
    let added = namespace(7, medium, 256, BlockSize::B4096);
    pair.target.subsystem.add_namespace(added.clone()).unwrap();
    let changed = |pair: &mut Pair| match pair.admin_events().as_slice() {
        [AdminEvent::NamespacesChanged { active, changed }] => (active.clone(), changed.clone()),
        events => panic!("{events:?}"),
    };
    assert_eq!(changed(&mut pair), (vec![1, 2, 7], vec![7]));
    pair.write(7, 255, &pattern(4096, 1), 4096).unwrap();

    pair.target.subsystem.update_namespace(namespace(7, medium, 128, BlockSize::B4096)).unwrap();
    assert_eq!(changed(&mut pair), (vec![1, 2, 7], vec![7]));
    assert!(status(pair.read(7, 255, 1, 4096)).is(Status::LBA_OUT_OF_RANGE));

    pair.target.subsystem.remove_namespace(7).unwrap();
    assert_eq!(changed(&mut pair), (vec![1, 2], vec![7]));
    assert!(status(pair.read(7, 0, 1, 4096)).is(Status::INVALID_NAMESPACE_OR_FORMAT));
}

#[test]
fn a_thousand_namespaces_are_listed() {
    let mut target = Target::new();
    let medium = target.media.add(1 << 20);
    for nsid in 1..=1024 {
        target.subsystem.add_namespace(namespace(nsid, medium, 8, BlockSize::B512)).unwrap();
    }
    let pair = Pair::connect(target, admin_config(SUBSYSTEM, 1));
    assert_eq!(pair.admin.controller().unwrap().namespaces, (1..=1024).collect::<Vec<_>>());
}

#[test]
fn discovery_tells_what_there_is_and_when_it_changes() {
    let target = target();
    let listener = |address: &str| Listener { address: address.parse().unwrap(), any: false, port: 4420 };
    target.subsystems.set_listeners(vec![listener("192.0.2.1"), listener("2001:db8::1")]);
    let mut pair = Pair::connect(target, admin_config(DISCOVERY_NQN, 0));
    pair.admin.discover(pair.now);
    let found = match pair.admin_events().as_slice() {
        [AdminEvent::Discovered(Ok(found))] => found.clone(),
        events => panic!("{events:?}"),
    };
    let addresses: Vec<_> = found.iter().map(|entry| (entry.nqn.as_str(), entry.address.as_str())).collect();
    assert_eq!(addresses, [(SUBSYSTEM, "192.0.2.1"), (SUBSYSTEM, "2001:db8::1")]);
    assert_eq!((found[0].service.as_str(), found[0].transport, found[0].kind), ("4420", 3, 2));

    pair.target.subsystems.set_listeners(vec![listener("192.0.2.9")]);
    assert!(matches!(pair.admin_events().as_slice(), [AdminEvent::DiscoveryChanged]));
    pair.target.subsystem.set_allowed_hosts(diskside_nvme::controller::AllowedHosts::Only(Default::default()));
    assert!(matches!(pair.admin_events().as_slice(), [AdminEvent::DiscoveryChanged]));
    pair.admin.discover(pair.now);
    assert!(
        matches!(pair.admin_events().as_slice(), [AdminEvent::Discovered(Ok(found))] if found.is_empty()),
        "what a host may not use it does not see"
    );
}

#[test]
fn keep_alive_holds_a_controller_and_its_absence_ends_it() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    pair.sleep(Duration::from_secs(60));
    assert_eq!(pair.admin_end.connection.state(), State::Live);
    // The host falls silent.
    let now = pair.admin_end.connection.poll_timeout().expect("the host's Keep Alive");
    assert!(now <= pair.now + Duration::from_secs(5));
    pair.admin_end.connection.handle_timeout(now);
    assert_eq!(pair.admin_end.connection.state(), State::Closed);
    let (_, end) = pair.io.as_mut().unwrap();
    end.connection.handle_wake(now);
    assert_eq!(end.connection.state(), State::Closed, "an I/O queue ends with its controller");
    assert!(pair.target.subsystem.controllers().is_empty());
}

/// A target that stood still was not missed before a command had taken twice the time that commands may take: a minute.
#[test]
fn a_controller_that_does_not_answer_keep_alive_is_given_up() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let start = pair.now;
    // It hears nothing any more: nothing is carried to it. Every 2.5 s Keep Alive is sent, and 5 s later it is late.
    let mut transmit = diskside_nvme::Transmit::new();
    for tenths in 1..=74 {
        pair.admin.handle_timeout(start + Duration::from_millis(100 * tenths));
        while pair.admin.poll_transmit(&mut transmit) {
            support::pair::bytes_of(&mut transmit, &mut pair.memory, false);
            pair.admin.handle_transmitted(&mut transmit);
        }
        assert_eq!(pair.admin.state(), diskside_nvme::host::State::Live, "after {tenths} tenths of a second");
    }
    pair.admin.handle_timeout(start + Duration::from_millis(7600));
    assert_ne!(pair.admin.state(), diskside_nvme::host::State::Live);
    pair.admin.handle_close();
    let events: Vec<_> = std::iter::from_fn(|| pair.admin.poll_event()).collect();
    let silent = diskside_nvme::host::ConnectionError::Silent(Duration::from_secs(5));
    assert!(matches!(events.last(), Some(AdminEvent::Closed(error)) if *error == silent), "{events:?}");
}

#[test]
fn shutdown_is_orderly() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    pair.admin.shutdown(pair.now);
    pair.run();
    assert_eq!(pair.admin.state(), diskside_nvme::host::State::Closed);
    let (_, end) = pair.io.as_mut().unwrap();
    assert_eq!(end.connection.state(), State::Closed, "shutting down ends the I/O queues");
    pair.admin.handle_close();
    let events = pair.admin_events();
    assert!(
        matches!(events.as_slice(), [AdminEvent::Closed(diskside_nvme::host::ConnectionError::Disconnected)]),
        "{events:?}"
    );
}

#[test]
fn the_write_cache_can_be_switched_off() {
    use diskside_nvme::controller::Operation;
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    assert_eq!(pair.admin(Sqe::get_features(feature::VOLATILE_WRITE_CACHE, 0), Data::None).unwrap().result, 1);
    for (cache, fua, durable) in [(1, false, false), (1, true, true), (0, false, true), (0, true, true)] {
        pair.admin(Sqe::set_features(feature::VOLATILE_WRITE_CACHE, cache), Data::None).unwrap();
        let mut sqe = Sqe::write_zeroes(1, 0, 1, false);
        if fua {
            sqe = sqe.with_fua();
        }
        let (io, end) = pair.io.as_mut().unwrap();
        let submission = diskside_nvme::host::Submission { sqe, data: Data::None, user_data: 0, timeout: None };
        io.submit(pair.now, submission, &mut pair.memory).unwrap();
        let mut transmit = diskside_nvme::Transmit::new();
        assert!(io.poll_transmit(&mut transmit));
        let bytes = support::pair::bytes_of(&mut transmit, &mut pair.memory, false);
        io.handle_transmitted(&mut transmit);
        end.connection.handle_bytes(pair.now, &bytes, &mut pair.target.memory);
        let request = end.connection.poll_request().unwrap();
        assert!(matches!(request.operation, Operation::WriteZeroes { fua, .. } if fua == durable), "{request:?}");
        end.connection.complete(
            pair.now,
            request.tag,
            diskside_nvme::controller::Completion::success(),
            &mut pair.target.memory,
        );
    }
}

#[test]
fn smart_counts_what_hosts_did() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    pair.write(2, 0, &pattern(1 << 20, 1), 4096).unwrap();
    pair.read(2, 0, 256, 4096).unwrap();
    pair.read(2, 0, 1, 4096).unwrap();
    assert!(!status(pair.read(2, 1 << 30, 1, 4096)).is_success());
    let log = pair.admin(Sqe::get_log_page(log_page::SMART, 0, 512, 0, false), Data::ReceiveBytes(512)).unwrap().bytes;
    let counter = |at: usize| u128::from_le_bytes(log[at..at + 16].try_into().unwrap());
    assert_eq!((counter(32), counter(48)), (3, 3), "1 MiB and a bit is three data units of 512,000 bytes");
    assert_eq!((counter(64), counter(80), counter(176)), (2, 1, 1), "reads, writes, entries of the error log");
    let log = pair.admin(Sqe::get_log_page(log_page::ERROR, 0, 64, 0, false), Data::ReceiveBytes(64)).unwrap().bytes;
    assert_eq!((log[0], log[8], log[31]), (1, 1, 2), "one error, on queue 1, of a Read");
}
