//! The commands of SPDK's host, one by one, sent to a server with all that it serves by default.
//!
//! SPDK v23.05 could not use such a server: it enables every command set (CC.CSS 110b), lists the namespaces, and gave the
//! controller up since Identify Namespace failed for those of memory and programs. Its tools name no host unless they are
//! told to. When it detaches it forgets its requests for events and uses their identifiers again.

mod common;

use common::{Controller, NQN, Queue, builder, pattern, start, tcp};
use diskside_nvme::Status;
use diskside_nvme::wire::{
    CONTROLLER_ID_DYNAMIC, Cc, Csts, Sqe, admin_opcode, cns, descriptor_type, feature, log_page, property,
};
use diskside_server::config::VolumeSpec;
use diskside_server::{Handle, Running};

/// What SPDK's tools say of their host.
const NO_NAME: &str = "";
/// Requests for events that it keeps outstanding, as the controller allows.
const EVENT_REQUESTS: u16 = 4;
const COALESCING: u8 = 0x08;
const VECTOR: u8 = 0x09;

fn serve() -> Running {
    start(builder().volume(VolumeSpec::new("data", "mem:4MiB").writable()))
}

fn admin_queue(handle: &Handle) -> Queue {
    Queue::negotiate(Box::new(tcp(handle.local_addresses()[0]))).unwrap()
}

fn ready(queue: &mut Queue) {
    let cc = Cc::default().with_enable(1).with_css(6).with_iosqes(6).with_iocqes(4);
    queue.command(Sqe::property_set(property::CC, false, cc.0.into()), None, 0).ok();
    let csts = queue.command(Sqe::property_get(property::CSTS, false), None, 0);
    assert_eq!(Csts(csts.result as u32).ready(), 1);
}

fn identify(queue: &mut Queue, cns: u8, nsid: u32, csi: u8) -> Vec<u8> {
    queue.command(Sqe::identify(cns, nsid, csi), None, 4096).ok()
}

/// The command set of a namespace, as its descriptors say.
fn command_set(descriptors: &[u8]) -> u8 {
    let mut rest = descriptors;
    loop {
        let (kind, len) = (rest[0], usize::from(rest[1]));
        assert!(len > 0, "there is one");
        if kind == descriptor_type::CSI {
            return rest[4];
        }
        rest = &rest[4 + len..];
    }
}

#[test]
fn its_host_attaches_reads_and_detaches() {
    let running = serve();
    let handle = running.handle();
    let mut admin = admin_queue(handle);
    let id = admin.connect(NQN, NO_NAME, 0, 32, CONTROLLER_ID_DYNAMIC, 10_000).expect("it needs no name");
    for (offset, eight_bytes) in [(property::VS, false), (property::CAP, true), (property::CC, false)] {
        assert!(admin.command(Sqe::property_get(offset, eight_bytes), None, 0).status.is_success());
    }
    ready(&mut admin);
    identify(&mut admin, cns::CONTROLLER, 0, 0);
    admin.command(Sqe::set_features(feature::ASYNC_EVENT_CONFIG, 1 << 8), None, 0).ok();
    let aer = |admin: &mut Queue| admin.post(Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, 0), None, 0).unwrap();
    let events: Vec<u16> = (0..EVENT_REQUESTS).map(|_| aer(&mut admin)).collect();
    assert!(admin.command(Sqe::get_features(feature::KEEP_ALIVE_TIMER, 0), None, 0).status.is_success());
    identify(&mut admin, cns::COMMAND_SET_CONTROLLER, 0, 0);
    admin.command(Sqe::set_features(feature::NUMBER_OF_QUEUES, 0), None, 0).ok();

    let list = identify(&mut admin, cns::ACTIVE_NAMESPACES, 0, 0);
    let nsids = list.chunks_exact(4).map(|nsid| u32::from_le_bytes(nsid.try_into().unwrap()));
    let nsids: Vec<u32> = nsids.take_while(|nsid| *nsid != 0).collect();
    assert_eq!(nsids, [1, 1023, 1024], "a host that knows more finds memory and programs there");
    let mut volumes = Vec::new();
    for &nsid in &nsids {
        let namespace = identify(&mut admin, cns::NAMESPACE, nsid, 0);
        let csi = command_set(&identify(&mut admin, cns::NAMESPACE_DESCRIPTORS, nsid, 0));
        let capacity = u64::from_le_bytes(namespace[8..16].try_into().unwrap());
        // A namespace without capacity is not active to SPDK.
        if capacity > 0 {
            identify(&mut admin, cns::COMMAND_SET_NAMESPACE, nsid, csi);
            volumes.push((nsid, csi, capacity));
        } else {
            assert_eq!(namespace, [0; 4096], "nothing is said of what is not NVM");
            assert_ne!(csi, 0);
        }
    }
    assert_eq!(volumes, [(1, 0, 1024)]);
    admin.command(Sqe::get_log_page(log_page::SUPPORTED_PAGES, 0, 1024, 0, false), None, 1024).ok();

    let mut io = Queue::negotiate(Box::new(tcp(handle.local_addresses()[0]))).unwrap();
    io.connect(NQN, NO_NAME, 1, 128, id, 0).unwrap();
    let bytes = pattern(4096, 1);
    io.write(1, 7, &bytes).ok();
    assert_eq!(io.read(1, 7, 1).ok(), bytes);

    // It detaches. The requests for events are forgotten, and their identifiers free for others.
    drop(io);
    for cid in &events[..3] {
        admin.next_is(*cid);
        let csts = admin.command(Sqe::property_get(property::CSTS, false), None, 0);
        assert!(csts.status.is_success(), "{}", csts.status);
    }
    admin.next_is(events[3]);
    let cc = Cc(admin.command(Sqe::property_get(property::CC, false), None, 0).result as u32).with_shutdown(1);
    admin.command(Sqe::property_set(property::CC, false, cc.0.into()), None, 0).ok();
    let csts = admin.command(Sqe::property_get(property::CSTS, false), None, 0);
    assert_eq!(Csts(csts.result as u32).shutdown(), 0b10, "it is shut down");
}

/// No test failed when a host that enables the NVM command set alone (CC.CSS 000b), and so knows no namespaces of others, was shown
/// those of memory and programs in the list of active namespaces.
#[test]
fn a_host_of_the_nvm_command_set_alone_is_shown_volumes_alone() {
    let running = serve();
    let mut host = Controller::connect(&running);
    host.enable(0);
    let nsids = |queue: &mut Queue, cns: u8| {
        let list = identify(queue, cns, 0, 0);
        let nsids = list.chunks_exact(4).map(|nsid| u32::from_le_bytes(nsid.try_into().unwrap()));
        nsids.take_while(|nsid| *nsid != 0).collect::<Vec<u32>>()
    };
    for cns in [cns::ACTIVE_NAMESPACES, cns::ALLOCATED_NAMESPACES] {
        assert_eq!(nsids(&mut host.admin, cns), [1], "CNS {cns:#x}");
    }
}

#[test]
fn an_identifier_that_is_in_use_names_no_second_command() {
    let running = serve();
    let mut admin = Controller::connect(&running).admin;
    let event = admin.post(Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, 0), None, 0).unwrap();
    admin.next_is(event);
    let refused = admin.command(Sqe::get_features(feature::ARBITRATION, 0), None, 0);
    refused.fails_with(Status::COMMAND_ID_CONFLICT.dnr());
}

#[test]
fn requests_for_events_that_were_taken_back_are_not_answered() {
    let running = serve();
    let mut admin = Controller::connect(&running).admin;
    admin.command(Sqe::set_features(feature::ASYNC_EVENT_CONFIG, 1 << 8), None, 0).ok();
    let post = |admin: &mut Queue| admin.post(Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, 0), None, 0).unwrap();
    let (first, second) = (post(&mut admin), post(&mut admin));
    admin.next_is(first);
    admin.command(Sqe::property_get(property::CSTS, false), None, 0).ok();
    running.handle().add_volume(&VolumeSpec::new("more", "mem:1MiB")).unwrap();
    assert_eq!(admin.wait(second).unwrap().result & 0xff, 2, "the other one hears of it");
}

#[test]
fn features_that_it_asks_for_have_answers() {
    let running = serve();
    let mut controller = Controller::connect(&running);
    let mut get =
        |fid: u8, value: u32| controller.admin.command(Sqe::get_features(fid, 0).with_dword(11, value), None, 0);
    let coalescing = get(COALESCING, 0);
    assert_eq!((coalescing.status, coalescing.result), (Status::SUCCESS, 0), "nothing is coalesced");
    let vector = get(VECTOR, 3);
    assert_eq!((vector.status, vector.result), (Status::SUCCESS, 3), "of the vector that was asked for");
    for fid in [COALESCING, VECTOR] {
        let set = controller.admin.command(Sqe::set_features(fid, 1), None, 0);
        set.fails_with(Status::FEATURE_NOT_CHANGEABLE.dnr());
    }
}

#[test]
fn the_number_of_queues_is_settled_once_there_is_one() {
    let running = serve();
    let mut controller = Controller::connect(&running);
    let four = 3 << 16 | 3;
    let settled = controller.admin.command(Sqe::set_features(feature::NUMBER_OF_QUEUES, four), None, 0);
    assert_eq!((settled.status, settled.result), (Status::SUCCESS, four.into()));
    let _queue = controller.io_queue(1, 32);
    let late = controller.admin.command(Sqe::set_features(feature::NUMBER_OF_QUEUES, 0), None, 0);
    late.fails_with(Status::COMMAND_SEQUENCE_ERROR.dnr());
    let still = controller.admin.command(Sqe::get_features(feature::NUMBER_OF_QUEUES, 0), None, 0);
    assert_eq!(still.result, u64::from(four), "what was granted stays");
}

/// An operator who has a list of hosts wants to know who comes.
#[test]
fn a_host_without_a_name_is_let_in_only_where_names_decide_nothing() {
    let running = serve();
    let handle = running.handle();
    admin_queue(handle).connect(NQN, NO_NAME, 0, 32, CONTROLLER_ID_DYNAMIC, 0).unwrap();
    handle.set_hosts(&["nqn.2026-11.org.example:known".into()]).unwrap();
    let refused = admin_queue(handle).connect(NQN, NO_NAME, 0, 32, CONTROLLER_ID_DYNAMIC, 0);
    assert_eq!(refused, Err(Status::CONNECT_INVALID_HOST.dnr()));
}
