//! Two hosts and a reservation: what each may do, what it is told, and what has ended when a reservation is acquired.

mod fencing;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;

use diskside_nvme::controller::{Access, BlockSize, Namespace, ReservedUse, Visibility};
use diskside_nvme::host::{AdminConfig, CommandError, Data, Event, HostIdentity, Submission};
use diskside_nvme::wire::{
    AcquireAction, CopySourceEntry, DsmRange, HostBehavior, IdentifyController, IdentifyNamespace,
    IndependentNamespace, PersistChange, RegisterAction, ReleaseAction, ReservationNotice, ReservationPage,
    ReservationRegistrant, ReservationStatus, ReservationType, Sqe, cns, feature, log_page, nvm_opcode,
    reservation_opcode,
};
use diskside_nvme::{BufferSlice, Nqn, Status, Transmit};
use support::pair::{Pair, SUBSYSTEM, Target, admin_config, bytes_of, namespace};
use zerocopy::{FromBytes, IntoBytes};

const A: u8 = 0xa;
const B: u8 = 0xb;
const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

fn host_config(host: u8) -> AdminConfig {
    let nqn = Nqn::new(&format!("nqn.2026-01.test:{host:x}")).unwrap();
    AdminConfig { host: HostIdentity { nqn, id: [host; 16] }, ..admin_config(SUBSYSTEM, 1) }
}

/// Two volumes, 1 and 2, and the hosts A and B.
fn two() -> (Pair, Pair) {
    let mut target = Target::new();
    target.add(1, 64, BlockSize::B512);
    target.add(2, 64, BlockSize::B512);
    let beside = target.beside();
    (Pair::connect(target, host_config(A)), Pair::connect(beside, host_config(B)))
}

fn status(outcome: Result<impl Sized, CommandError>) -> Status {
    match outcome {
        Ok(_) => Status::SUCCESS,
        Err(CommandError::Status { status, .. }) => status,
        Err(error) => panic!("{error:?}"),
    }
}

/// A command that waits for nobody.
fn send(pair: &mut Pair, sqe: Sqe, bytes: &[u8]) -> Status {
    let data = if bytes.is_empty() { Data::None } else { Data::SendBytes(bytes.to_vec()) };
    status(pair.io(sqe, data))
}

fn keys(current: u64, other: u64) -> Vec<u8> {
    [current.to_le_bytes(), other.to_le_bytes()].concat()
}

fn register(pair: &mut Pair, key: u64) -> Status {
    let sqe = Sqe::reservation_register(1, RegisterAction::Register, false, PersistChange::Keep);
    send(pair, sqe, &keys(0, key))
}

/// Begins a command, which may wait for the other host's queue.
fn begin(pair: &mut Pair, sqe: Sqe, bytes: Vec<u8>) {
    let submission = Submission { sqe, data: Data::SendBytes(bytes), user_data: 77, timeout: None };
    pair.io.as_mut().unwrap().0.submit(pair.now, submission, &mut pair.memory).unwrap();
    pair.run();
}

fn ended(pair: &mut Pair) -> Option<Status> {
    pair.run();
    match pair.io_event()? {
        Event::Completed(completed) => Some(status(completed.outcome)),
        event => panic!("{event:?}"),
    }
}

fn acquire(pair: &mut Pair, other: &mut Pair, key: u64, kind: ReservationType) -> Status {
    begin(pair, Sqe::reservation_acquire(1, AcquireAction::Acquire, kind), keys(key, 0));
    other.run();
    ended(pair).expect("the other host's queue has taken note")
}

fn release(pair: &mut Pair, key: u64, kind: ReservationType) -> Status {
    send(pair, Sqe::reservation_release(1, ReleaseAction::Release, kind), &key.to_le_bytes())
}

/// GEN, type, and the hosts that are registered.
fn report(pair: &mut Pair) -> (u32, u8, Vec<u8>) {
    let bytes = pair.io(Sqe::reservation_report(1, 4096), Data::ReceiveBytes(4096)).unwrap().bytes;
    let (head, rest) = ReservationStatus::ref_from_prefix(&bytes).unwrap();
    let all = <[ReservationRegistrant]>::ref_from_bytes(rest).unwrap();
    let hosts = all[..head.registrants.get().into()].iter().map(|one| one.host_id[0]).collect();
    (head.generation.get(), head.kind, hosts)
}

/// The oldest page of the log: its count, type, namespace and how many there are behind it.
fn notice(pair: &mut Pair) -> (u64, u8, u32, u8) {
    let sqe = Sqe::get_log_page(log_page::RESERVATION, 0, 64, 0, false);
    let page = ReservationPage::read_from_bytes(&pair.admin(sqe, Data::ReceiveBytes(64)).unwrap().bytes).unwrap();
    (page.count.get(), page.kind, page.nsid.get(), page.more)
}

/// Which of Read, Compare, Verify, and then Write, Write Zeroes, Dataset Management with and without Deallocate, Flush and Copy
/// to the volume conflict.
fn conflicts(pair: &mut Pair) -> [bool; 9] {
    let block = [0; 512];
    let range = DsmRange::new(0, 1);
    let copy = CopySourceEntry::new(0, 8, 1);
    let hints = Sqe::deallocate(1, 1).with_dword(11, 0);
    let all = [
        status(pair.read(1, 0, 1, 512)),
        send(pair, Sqe::compare(1, 0, 1), &block),
        send(pair, Sqe::verify(1, 0, 1), &[]),
        send(pair, Sqe::write(1, 0, 1), &block),
        send(pair, Sqe::write_zeroes(1, 0, 1, false), &[]),
        send(pair, Sqe::deallocate(1, 1), range.as_bytes()),
        send(pair, hints, range.as_bytes()),
        send(pair, Sqe::flush(1), &[]),
        send(pair, Sqe::copy(1, 0, 1, 0), copy.as_bytes()),
    ];
    all.map(|status| {
        assert!(status == CONFLICT || status.is_success(), "{status}");
        status == CONFLICT
    })
}

const NONE: [bool; 9] = [false; 9];
const WRITES: [bool; 9] = [false, false, false, true, true, true, true, true, true];
const ALL: [bool; 9] = [true; 9];

#[test]
fn each_type_excludes_the_other_host_as_the_table_says() {
    use ReservationType::*;
    let (mut a, mut b) = two();
    assert_eq!(register(&mut a, 1), Status::SUCCESS);
    let table = [
        (WriteExclusive, WRITES, WRITES),
        (ExclusiveAccess, ALL, ALL),
        (WriteExclusiveRegistrantsOnly, WRITES, NONE),
        (ExclusiveAccessRegistrantsOnly, ALL, NONE),
        (WriteExclusiveAllRegistrants, WRITES, NONE),
        (ExclusiveAccessAllRegistrants, ALL, NONE),
    ];
    for (kind, stranger, registrant) in table {
        assert_eq!(acquire(&mut a, &mut b, 1, kind), Status::SUCCESS);
        assert_eq!(conflicts(&mut b), stranger, "{kind:?}");
        assert_eq!(register(&mut b, 2), Status::SUCCESS, "which anybody may");
        assert_eq!(conflicts(&mut b), registrant, "{kind:?}, registered");
        assert_eq!(conflicts(&mut a), NONE, "{kind:?}, the holder");
        let unregister = Sqe::reservation_register(1, RegisterAction::Unregister, false, PersistChange::Keep);
        assert_eq!(send(&mut b, unregister, &keys(2, 0)), Status::SUCCESS);
        assert_eq!(conflicts(&mut b), stranger, "{kind:?}, registered no more");
        assert_eq!(release(&mut a, 1, kind), Status::SUCCESS);
        assert_eq!(conflicts(&mut b), NONE);
    }
    assert_eq!(report(&mut b), (13, 0, vec![A]), "anybody may ask");
}

#[test]
fn a_volume_that_is_reserved_is_no_source_of_a_copy() {
    let (mut a, mut b) = two();
    let mut behavior = HostBehavior::read_from_bytes(&[0; 512]).unwrap();
    behavior.as_mut_bytes()[4] = 1 << 2;
    let enable = Sqe::set_features(feature::HOST_BEHAVIOR, 0);
    b.admin(enable, Data::SendBytes(behavior.as_bytes().to_vec())).unwrap();
    let from = |nsid| CopySourceEntry::new(nsid, 0, 1);
    let copy = |pair: &mut Pair, nsid, from: CopySourceEntry| send(pair, Sqe::copy(nsid, 8, 1, 2), from.as_bytes());
    assert_eq!(copy(&mut b, 2, from(1)), Status::SUCCESS);
    register(&mut a, 1);
    acquire(&mut a, &mut b, 1, ReservationType::WriteExclusive);
    assert_eq!(copy(&mut b, 2, from(1)), Status::SUCCESS, "it may be read");
    assert_eq!(copy(&mut b, 1, from(2)), CONFLICT);
    release(&mut a, 1, ReservationType::WriteExclusive);
    acquire(&mut a, &mut b, 1, ReservationType::ExclusiveAccess);
    assert_eq!(copy(&mut b, 2, from(1)), CONFLICT);
    assert_eq!(copy(&mut b, 2, from(2)), Status::SUCCESS);
}

/// Submits a command of a host, and returns the bytes that it sends for it.
fn posted(pair: &mut Pair, sqe: Sqe, len: u32) -> Vec<u8> {
    let data = match len {
        0 => Data::None,
        len if sqe.opcode() == nvm_opcode::READ => Data::ReceiveBytes(len),
        len => Data::Send(BufferSlice::new(pair.memory.insert(vec![9; len as usize]), len)),
    };
    let io = &mut pair.io.as_mut().unwrap().0;
    io.submit(pair.now, Submission { sqe, data, user_data: 5, timeout: None }, &mut pair.memory).unwrap();
    sent(pair)
}

fn sent(pair: &mut Pair) -> Vec<u8> {
    let (mut transmit, io) = (Transmit::new(), &mut pair.io.as_mut().unwrap().0);
    if !io.poll_transmit(&mut transmit) {
        return Vec::new();
    }
    let bytes = bytes_of(&mut transmit, &mut pair.memory, false);
    io.handle_transmitted(&mut transmit);
    bytes
}

#[test]
fn a_registration_outlives_its_hosts_connections_and_goes_with_the_namespace() {
    let (mut a, b) = two();
    register(&mut a, 1);
    let beside = a.target.beside();
    drop(a);
    drop(b);
    let target = beside.beside();
    let mut a = Pair::connect(beside, host_config(A));
    let mut b = Pair::connect(target, host_config(B));
    assert_eq!(report(&mut a), (1, 0, vec![A]));
    assert_eq!(acquire(&mut a, &mut b, 1, ReservationType::ExclusiveAccess), Status::SUCCESS, "with its key of before");
    let removed = a.target.subsystem.remove_namespace(1).unwrap();
    a.target.subsystem.add_namespace(removed.clone()).unwrap();
    assert_eq!(report(&mut b), (0, 0, vec![]));
    assert_eq!(conflicts(&mut b), NONE);
    register(&mut a, 1);
    acquire(&mut a, &mut b, 1, ReservationType::WriteExclusive);
    a.target.subsystem.update_namespace(Namespace { blocks: 32, ..removed }).unwrap();
    assert_eq!(report(&mut b), (1, 1, vec![A]), "another size is no other namespace");
    assert_eq!(conflicts(&mut b), WRITES);
}

#[test]
fn hosts_are_told_as_far_as_they_want_and_the_pages_are_bounded() {
    let (mut a, mut b) = two();
    register(&mut a, 1);
    register(&mut b, 2);
    assert_eq!(notice(&mut b), (0, 0, 0, 0));
    let clear = Sqe::reservation_release(1, ReleaseAction::Clear, ReservationType::WriteExclusive);
    send(&mut a, clear, &1_u64.to_le_bytes());
    // A part that there is not is refused. It took the page away nevertheless. (It goes out with the next one, before B hears of the event
    // and reads the page by itself.)
    let sqe = Sqe::get_log_page(log_page::RESERVATION, 68, 64, 0, false);
    let submission = Submission { sqe, data: Data::ReceiveBytes(64), user_data: 0, timeout: None };
    b.admin.submit(b.now, submission, &mut b.memory).unwrap();
    assert_eq!(notice(&mut b), (1, ReservationNotice::ReservationPreempted as u8, 1, 0));
    assert_eq!(notice(&mut a), (0, 0, 0, 0), "its own doing");

    // The same, masked; and a release that is not.
    let mask = Sqe::set_features(feature::RESERVATION_MASK, 1 << 3 | 1 << 1).with_nsid(1);
    b.admin(mask, Data::None).unwrap();
    register(&mut a, 1);
    register(&mut b, 2);
    send(&mut a, clear, &1_u64.to_le_bytes());
    assert_eq!(notice(&mut b), (0, 0, 0, 0));
    let kind = ReservationType::ExclusiveAccessRegistrantsOnly;
    register(&mut a, 1);
    register(&mut b, 2);
    for _ in 0..70 {
        // Nobody is excluded, so nobody is waited for: B, which would read the log, hears nothing meanwhile.
        begin(&mut a, Sqe::reservation_acquire(1, AcquireAction::Acquire, kind), keys(1, 0));
        assert_eq!(ended(&mut a), Some(Status::SUCCESS));
        assert_eq!(release(&mut a, 1, kind), Status::SUCCESS);
    }
    // The count of the first that is left says that some are lost.
    assert_eq!(notice(&mut b), (8, ReservationNotice::ReservationReleased as u8, 1, 63));
    assert_eq!(
        notice(&mut b),
        (0, 0, 0, 0),
        "with each page that it reads, B's host is told of the next, and has read them all"
    );
}

/// To B the first volume is read-only.
#[derive(Debug)]
struct Reader;

impl Visibility for Reader {
    fn access(&self, host: &Nqn, namespace: &Namespace) -> Access {
        let is_reader = host.as_str().ends_with(":b") && namespace.nsid == 1;
        if is_reader { Access::Read } else { Access::Write }
    }
}

#[test]
fn a_host_that_may_only_read_keeps_nobody_off() {
    let (mut a, mut b) = two();
    a.target.subsystem.set_visibility(Arc::new(Reader));
    let protected = Status::NAMESPACE_WRITE_PROTECTED.dnr();
    assert_eq!(register(&mut b, 2), protected);
    let sqe = Sqe::reservation_acquire(1, AcquireAction::Acquire, ReservationType::ExclusiveAccess);
    assert_eq!(send(&mut b, sqe, &keys(2, 0)), protected);
    register(&mut a, 1);
    acquire(&mut a, &mut b, 1, ReservationType::ExclusiveAccess);
    assert_eq!(report(&mut b), (1, 2, vec![A]));
    assert_eq!(status(b.read(1, 0, 1, 512)), CONFLICT);
    let capabilities = |pair: &mut Pair| {
        let mut identify = |cns| pair.admin(Sqe::identify(cns, 1, 0), Data::ReceiveBytes(4096)).unwrap().bytes;
        let (one, other) = (identify(cns::NAMESPACE), identify(cns::INDEPENDENT_NAMESPACE));
        let independent = IndependentNamespace::ref_from_prefix(&other).unwrap().0.reservations;
        (IdentifyNamespace::ref_from_bytes(&one).unwrap().reservations, independent)
    };
    assert_eq!((capabilities(&mut a), capabilities(&mut b)), ((0xfe, 0xfe), (0, 0)));
}

#[test]
fn a_controller_says_that_it_has_reservations() {
    let (mut a, _) = two();
    let identify = a.admin(Sqe::identify(cns::CONTROLLER, 0, 0), Data::ReceiveBytes(4096)).unwrap().bytes;
    let offered = IdentifyController::ref_from_bytes(&identify).unwrap().optional_nvm_commands.get();
    assert_ne!(offered & IdentifyController::RESERVATIONS, 0);
    let log = |pair: &mut Pair, lid| {
        pair.admin(Sqe::get_log_page(lid, 0, 4096, 0, false), Data::ReceiveBytes(4096)).unwrap().bytes
    };
    let effects = log(&mut a, log_page::EFFECTS);
    for opcode in [
        reservation_opcode::REGISTER,
        reservation_opcode::REPORT,
        reservation_opcode::ACQUIRE,
        reservation_opcode::RELEASE,
    ] {
        assert_eq!(effects[1024 + 4 * usize::from(opcode)], 1, "{opcode:#x}");
    }
    assert_eq!(log(&mut a, log_page::SUPPORTED_PAGES)[4 * usize::from(log_page::RESERVATION)], 1);
    let features = log(&mut a, log_page::FEATURES);
    assert_eq!(features[4 * 0x82..][..4], [0b11, 0, 1 << 4, 0]);
    assert_eq!(features[4 * 0x83..][..4], [0b01, 0, 1 << 4, 0]);
}

#[test]
fn a_host_without_an_identifier_reserves_nothing() {
    let mut target = Target::new();
    target.add(1, 64, BlockSize::B512);
    let mut config = host_config(A);
    config.host.id = [0; 16];
    let mut pair = Pair::connect(target, config);
    assert_eq!(register(&mut pair, 1), Status::HOST_IDENTIFIER_NOT_INITIALIZED.dnr());
    assert_eq!(report(&mut pair), (0, 0, vec![]));
}

/// An embedder that does something for a host itself asks.
#[test]
fn an_embedder_sees_what_a_host_is_kept_from() {
    let (mut a, mut b) = two();
    let told = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counts = Arc::clone(&told);
    a.target.subsystem.watch_reservations(move || {
        counts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let of = |pair: &Pair| pair.io.as_ref().unwrap().1.connection.reservations();
    let (of_a, of_b) = (of(&a), of(&b));
    let excluded = |of: &diskside_nvme::controller::HostReservations, nsid| {
        (of.exclude(nsid, ReservedUse::Read), of.exclude(nsid, ReservedUse::Write))
    };
    register(&mut a, 1);
    let before = of_b.version();
    acquire(&mut a, &mut b, 1, ReservationType::WriteExclusive);
    assert_ne!(of_b.version(), before);
    assert_eq!((excluded(&of_a, 1), excluded(&of_b, 1)), ((false, false), (false, true)));
    assert_eq!(excluded(&of_b, 2), (false, false));
    release(&mut a, 1, ReservationType::WriteExclusive);
    assert_eq!(excluded(&of_b, 1), (false, false));
    assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), 1, "of what a host lost, not of what it has again");
}

/// A command that nobody here knows may write whatever it likes.
#[test]
fn a_vendors_command_to_a_reserved_volume_is_refused() {
    let mut config = diskside_nvme::controller::SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1");
    let own = diskside_nvme::controller::CommandSet { io_commands: vec![(0xc0, 0), (0xc1, 0)], ..Default::default() };
    config.command_sets = vec![own];
    let mut target = Target::with_config(config);
    let medium = target.media.add(64 << 9);
    target.subsystem.add_namespace(namespace(1, medium, 64, BlockSize::B512)).unwrap();
    let beside = target.beside();
    let (mut a, mut b) = (Pair::connect(target, host_config(A)), Pair::connect(beside, host_config(B)));
    // The medium refuses them all, which shows that it was asked.
    let vendors = |pair: &mut Pair| [send(pair, Sqe::new(0xc0, 1), &[]), send(pair, Sqe::new(0xc1, 1), &[1; 64])];
    let asked = [Status::INVALID_OPCODE.dnr(); 2];
    assert_eq!(vendors(&mut b), asked);
    register(&mut a, 1);
    // The data of one is on its way.
    let bytes = posted(&mut b, Sqe::new(0xc1, 1), 16 << 10);
    let now = b.now;
    let (_, end) = b.io.as_mut().unwrap();
    let r2t = end.exchange(&mut b.target, now, &bytes);
    assert_eq!(acquire(&mut a, &mut b, 1, ReservationType::WriteExclusive), Status::SUCCESS);
    b.io.as_mut().unwrap().0.handle_bytes(now, &r2t, &mut b.memory);
    assert_eq!(ended(&mut b), Some(CONFLICT));
    assert_eq!(b.target.memory.in_use(), 0, "the buffer is given back");
    assert_eq!(vendors(&mut b), [CONFLICT; 2]);
    assert_eq!(vendors(&mut a), asked);
    assert_eq!(b.target.media.others.len(), 2);
}
