//! Until a host has authenticated nothing but authentication works: on every queue, at every step, for every command.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use diskside_nvme::auth::{AuthError, Names, Policy};
use diskside_nvme::controller::{
    Access, BlockSize, ConnectionError, Namespace, Place, State, SubsystemConfig, Visibility,
};
use diskside_nvme::host::HostIdentity;
use diskside_nvme::wire::{AUTHENTICATION_REQUIRED, Cc, ConnectData, FabricsType, Sqe, admin_opcode, property};
use diskside_nvme::{Nqn, Status};
use zerocopy::IntoBytes;

use super::raw::{Answer, Queue, With, host_of};
use super::support::pair::{SUBSYSTEM, Target, identity};
use super::{names, policy};

/// A target that lets in the host of the tests, with its key.
pub fn target() -> Target {
    let config =
        SubsystemConfig { authentication: policy(), ..SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1") };
    let mut target = Target::with_config(config);
    target.add(1, 1024, BlockSize::B512);
    target
}

/// An admin queue that has authenticated, and whose controller is ready.
pub fn ready_admin(target: &mut Target, now: Instant) -> (Queue, u16) {
    let mut admin = Queue::new(target, now);
    let cntlid = admin.connect(target, now, 0, None, &identity()).result as u16;
    admin.authenticate(target, now, host_of(names(), true), |_, _| {}).unwrap();
    enable(&mut admin, target, now);
    (admin, cntlid)
}

pub fn enable(admin: &mut Queue, target: &mut Target, now: Instant) {
    let cc = Cc::default().with_enable(1).with_css(6).with_iosqes(6).with_iocqes(4);
    let sqe = Sqe::property_set(property::CC, false, cc.0.into());
    assert!(admin.command(target, now, sqe, With::Nothing).unwrap().status.is_success());
}

fn property_of(queue: &mut Queue, target: &mut Target, now: Instant, offset: u32) -> u64 {
    let answer = queue.command(target, now, Sqe::property_get(offset, false), With::Nothing).unwrap();
    assert!(answer.status.is_success(), "{answer:?}");
    answer.result
}

/// A host that gives no name is nobody's: it is let in where nobody has a key, and thrown out when the first has one.
#[test]
fn a_host_without_a_name_is_let_in_only_where_nobody_has_a_key() {
    let now = Instant::now();
    let connect = |target: &mut Target| {
        let mut queue = Queue::new(target, now);
        let data = ConnectData::new([9; 16], 0xffff, Nqn::new(SUBSYSTEM).unwrap().to_field(), [0; 256]);
        let answer = queue.command(target, now, Sqe::connect(0, 32, true, 5000), With::InCapsule(data.as_bytes()));
        (queue, answer.expect("Connect is answered").status)
    };
    let mut target = target();
    let may_be_open = Policy { required: false, ..policy() };
    for policy in [policy(), may_be_open.clone()] {
        target.subsystem.set_authentication(policy);
        assert_eq!(connect(&mut target).1, Status::CONNECT_INVALID_HOST.dnr());
    }
    target.subsystem.set_authentication(Policy::open());
    let (mut queue, status) = connect(&mut target);
    assert!(status.is_success(), "{status}");
    target.subsystem.set_authentication(may_be_open);
    queue.connection.handle_wake(now);
    assert_eq!(queue.connection.state(), State::Closed);
}

/// Lets each host have so many connections.
#[derive(Debug)]
struct Bounded(Arc<AtomicUsize>);

/// One of them.
struct Given(Arc<AtomicUsize>);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Visibility for Bounded {
    fn access(&self, _host: &Nqn, _namespace: &Namespace) -> Access {
        Access::Write
    }

    fn admit(&self, _host: &Nqn) -> Option<Place> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.ok().map(|_| Place::of(Given(Arc::clone(&self.0))))
    }
}

/// A stranger who says a host's name could have had all connections that the host may have.
#[test]
fn who_has_not_authenticated_takes_no_place_of_whom_it_says_to_be() {
    let (now, mut target, left) = (Instant::now(), target(), Arc::new(AtomicUsize::new(2)));
    target.subsystem.set_visibility(Arc::new(Bounded(Arc::clone(&left))));
    let unproved = |target: &mut Target| {
        let mut queue = Queue::new(target, now);
        assert_ne!(queue.connect(target, now, 0, None, &identity()).result & AUTHENTICATION_REQUIRED, 0);
        queue
    };
    let strangers: Vec<Queue> = (0..5).map(|_| unproved(&mut target)).collect();
    assert_eq!(left.load(Ordering::Relaxed), 2);
    let (admin, cntlid) = ready_admin(&mut target, now);
    let mut io = Queue::new(&mut target, now);
    io.connect(&mut target, now, 1, Some(cntlid), &identity());
    io.authenticate(&mut target, now, host_of(names(), true), |_, _| {}).unwrap();
    assert_eq!(left.load(Ordering::Relaxed), 0);
    // One more proves its identity, and is refused.
    let mut third = unproved(&mut target);
    third.authenticate(&mut target, now, host_of(names(), true), |_, _| {}).unwrap();
    assert_eq!((third.connection.state(), third.connection.error()), (State::Closed, Some(&ConnectionError::TooMany)));
    // Where a name is enough it is refused at once, with a status that lets it come again.
    target.subsystem.set_authentication(Policy::open());
    let refused = Queue::new(&mut target, now).connect(&mut target, now, 0, None, &identity());
    assert_eq!(refused.status, Status::CONNECT_CONTROLLER_BUSY);
    drop(io);
    assert_eq!(left.load(Ordering::Relaxed), 1, "it is given back");
    drop((admin, strangers, third));
    assert_eq!(left.load(Ordering::Relaxed), 2);
}

const AUTHENTICATION: [u8; 2] = [FabricsType::AuthenticationSend as u8, FabricsType::AuthenticationReceive as u8];

/// Every opcode, every type of Fabrics commands, with data of every kind: all are refused alike, and leave nothing.
fn try_everything(queue: &mut Queue, target: &mut Target, now: Instant) {
    let refused = Answer { status: Status::from_bits(0x4191), result: 0, data: Vec::new() };
    let data = [0x5a; 64];
    for with in [With::Nothing, With::InCapsule(&data), With::Transport(4096)] {
        for opcode in (0..=255).filter(|opcode| *opcode != admin_opcode::FABRICS) {
            for nsid in [0, 1, u32::MAX] {
                let sqe = Sqe::new(opcode, nsid).with_dword(10, 1).with_dword(11, 7);
                let answer = queue.command(target, now, sqe, with);
                assert_eq!(answer.as_ref(), Some(&refused), "opcode {opcode:#04x}, {with:?}");
            }
        }
        for kind in (0..=255).filter(|kind| !AUTHENTICATION.contains(kind)) {
            let sqe = Sqe::new(admin_opcode::FABRICS, kind.into()).with_dword(11, property::CC).with_dword(12, 1);
            let answer = queue.command(target, now, sqe, with);
            assert_eq!(answer.as_ref(), Some(&refused), "Fabrics type {kind:#04x}, {with:?}");
        }
    }
    // The commands that there are, as a host would send them.
    let cc = Cc::default().with_enable(1).with_css(6).with_iosqes(6).with_iocqes(4);
    for sqe in [
        Sqe::property_set(property::CC, false, cc.0.into()),
        Sqe::property_get(property::CAP, true),
        Sqe::new(admin_opcode::KEEP_ALIVE, 0),
        Sqe::disconnect(),
        Sqe::flush(1),
    ] {
        assert_eq!(queue.command(target, now, sqe, With::Nothing), Some(refused.clone()), "{sqe:?}");
    }
    assert_eq!(queue.command(target, now, Sqe::identify(1, 0, 0), With::Transport(4096)), Some(refused.clone()));
    assert_eq!(queue.command(target, now, Sqe::read(1, 0, 1), With::Transport(512)), Some(refused.clone()));
    assert_eq!(queue.command(target, now, Sqe::write(1, 0, 1), With::InCapsule(&[1; 512])), Some(refused));
    assert!(!queue.connection.is_authenticated());
}

/// Messages of authentication that are none, and commands that carry them wrongly: refused, and nothing changes.
fn try_malformed_commands(queue: &mut Queue, target: &mut Target, now: Instant) {
    let invalid = Status::INVALID_FIELD.dnr();
    let send = Sqe::authentication_send(8);
    for (what, sqe, with) in [
        ("no message", Sqe::authentication_send(0), With::Nothing),
        ("another protocol", send.with_bits(10, 24, 8, 0xea), With::InCapsule(&[0; 8])),
        ("another SPSP0", send.with_bits(10, 8, 8, 2), With::InCapsule(&[0; 8])),
        ("a message beyond any", Sqe::authentication_send(1 << 20), With::Transport(1 << 20)),
        ("nothing to receive", Sqe::authentication_receive(0), With::Nothing),
    ] {
        let answer = queue.command(target, now, sqe, with).unwrap();
        assert_eq!(answer.status, invalid, "{what}");
    }
    let short = queue.command(target, now, send, With::InCapsule(&[0; 4])).unwrap();
    assert_eq!(short.status, Status::DATA_SGL_LENGTH_INVALID.dnr());
}

#[test]
fn an_admin_queue_does_nothing_before() {
    let now = Instant::now();
    for two_way in [false, true] {
        let mut target = target();
        let mut queue = Queue::new(&mut target, now);
        let answer = queue.connect(&mut target, now, 0, None, &identity());
        assert!(answer.status.is_success());
        assert_eq!(answer.result & !0xffff, AUTHENTICATION_REQUIRED);
        let mut steps = 0;
        queue
            .authenticate(&mut target, now, host_of(names(), two_way), |queue, target| {
                try_everything(queue, target, now);
                try_malformed_commands(queue, target, now);
                assert_eq!(target.subsystem.controllers().len(), 1);
                steps += 1;
            })
            .unwrap();
        assert_eq!(steps, if two_way { 6 } else { 5 }, "each step was tried");
        assert!(queue.connection.is_authenticated());
        assert_eq!(property_of(&mut queue, &mut target, now, property::CC), 0, "nothing set CC before");
        assert_eq!(property_of(&mut queue, &mut target, now, property::CSTS), 0);
        assert!(target.media.others.is_empty());
    }
}

#[test]
fn an_io_queue_does_nothing_before() {
    let now = Instant::now();
    let mut target = target();
    let (_admin, cntlid) = ready_admin(&mut target, now);
    for two_way in [false, true] {
        let mut queue = Queue::new(&mut target, now);
        let answer = queue.connect(&mut target, now, 1, Some(cntlid), &identity());
        assert_eq!(answer.result & !0xffff, AUTHENTICATION_REQUIRED);
        queue
            .authenticate(&mut target, now, host_of(names(), two_way), |queue, target| {
                try_everything(queue, target, now);
                try_malformed_commands(queue, target, now);
                assert!(target.subsystem.controllers()[0].io_queues.is_empty(), "it has no place before");
            })
            .unwrap();
        assert_eq!(target.subsystem.controllers()[0].io_queues, [1]);
        queue.holds_work = true;
        assert_eq!(queue.command(&mut target, now, Sqe::flush(1), With::Nothing), None, "the medium is asked");
        assert_eq!(queue.work.len(), 1);
        let mut memory = std::mem::take(&mut target.memory);
        queue.connection.handle_close(&mut memory);
        target.memory = memory;
    }
}

#[test]
fn one_message_is_worked_on_at_a_time() {
    let now = Instant::now();
    let mut target = target();
    let mut queue = Queue::new(&mut target, now);
    queue.connect(&mut target, now, 0, None, &identity());
    queue.holds_work = true;
    let diskside_nvme::auth::Step::Send(message) = host_of(names(), false).start() else { panic!("it sends") };
    assert_eq!(queue.send(&mut target, now, &message), None, "it is computed");
    let again = queue.send(&mut target, now, &message).unwrap();
    assert_eq!(again.status, Status::COMMAND_SEQUENCE_ERROR.dnr());
    assert_eq!(queue.receive(&mut target, now).status, Status::COMMAND_SEQUENCE_ERROR.dnr());
    assert_eq!(queue.work.len(), 1);
    // It is closed meanwhile: what was computed finds nobody.
    queue.connection.handle_close(&mut target.memory);
    let request = queue.work.pop().unwrap();
    let diskside_nvme::controller::Operation::Authenticate(work) = request.operation else { panic!("it is work") };
    queue.connection.computed(now, request.tag, work.run(&mut super::support::pair::random));
    assert!(target.subsystem.controllers().is_empty());
}

/// Connect of an I/O queue told anybody who knew a host's name which controllers it had, by different statuses, before any
/// proof. Now all of them get the same answer, and queues that may not be there end once their host has proved itself.
#[test]
fn io_queues_of_others_are_refused() {
    let now = Instant::now();
    let mut target = target();
    let other = HostIdentity { nqn: Nqn::new("nqn.2026-01.test:other").unwrap(), ..identity() };
    let other_names = Names { host: other.nqn.clone(), ..names() };
    let mut two = policy();
    two.hosts.insert(other.nqn.clone(), super::host_keys());
    target.subsystem.set_authentication(two);
    let refused = |target: &mut Target, qid, cntlid, identity: &HostIdentity, names: &Names| {
        let mut io = Queue::new(target, now);
        let answer = io.connect(target, now, qid, Some(cntlid), identity);
        let expected = u64::from(cntlid) | AUTHENTICATION_REQUIRED;
        assert_eq!((answer.status, answer.result), (Status::SUCCESS, expected), "{qid} of {cntlid}");
        io.authenticate(target, now, host_of(names.clone(), false), |_, _| {}).unwrap();
        let gone = ConnectionError::Authentication(AuthError::QueueGone);
        assert_eq!((io.connection.is_authenticated(), io.connection.error()), (false, Some(&gone)));
    };
    let mut admin = Queue::new(&mut target, now);
    let cntlid = admin.connect(&mut target, now, 0, None, &identity()).result as u16;
    // Its admin queue has not authenticated, then it is not ready.
    refused(&mut target, 1, cntlid, &identity(), &names());
    admin.authenticate(&mut target, now, host_of(names(), false), |_, _| {}).unwrap();
    refused(&mut target, 1, cntlid, &identity(), &names());
    enable(&mut admin, &mut target, now);
    // There is none of this number; this is not its host's identifier; and this is another host, with a key of its own.
    refused(&mut target, 1, cntlid + 1, &identity(), &names());
    refused(&mut target, 1, cntlid, &HostIdentity { id: [8; 16], ..identity() }, &names());
    refused(&mut target, 1, cntlid, &other, &other_names);
    let mut own = Queue::new(&mut target, now);
    own.connect(&mut target, now, 1, Some(cntlid), &identity());
    own.authenticate(&mut target, now, host_of(names(), false), |_, _| {}).unwrap();
    assert!(own.connection.is_authenticated());
    refused(&mut target, 1, cntlid, &identity(), &names());
    assert_eq!(target.subsystem.controllers()[0].io_queues, [1]);
}

/// A connection from outside that gave the name and identifier of the target's own host became a queue of its controller,
/// for which no grants hold.
#[test]
fn no_queue_from_outside_joins_a_controller_of_the_process_itself() {
    let now = Instant::now();
    let mut target = target();
    target.subsystem.set_authentication(Policy::open());
    let mut admin = Queue::trusted(&mut target, now);
    let cntlid = admin.connect(&mut target, now, 0, None, &identity()).result as u16;
    enable(&mut admin, &mut target, now);
    let mut outside = Queue::new(&mut target, now);
    let answer = outside.connect(&mut target, now, 1, Some(cntlid), &identity());
    assert_eq!(answer.status, Status::CONNECT_INVALID_PARAMETERS.dnr());
    assert!(
        Queue::trusted(&mut target, now).connect(&mut target, now, 1, Some(cntlid), &identity()).status.is_success()
    );
}

/// Anybody who knows a host's name and identifier, which are not secret, could otherwise keep it from its queues.
#[test]
fn a_queue_without_the_key_takes_nobodys_place() {
    let now = Instant::now();
    let mut target = target();
    let (mut admin, cntlid) = ready_admin(&mut target, now);
    let mut stranger = Queue::new(&mut target, now);
    assert!(stranger.connect(&mut target, now, 1, Some(cntlid), &identity()).status.is_success());
    let mut own = Queue::new(&mut target, now);
    assert!(own.connect(&mut target, now, 1, Some(cntlid), &identity()).status.is_success());
    let mut late = Queue::new(&mut target, now);
    assert!(late.connect(&mut target, now, 1, Some(cntlid), &identity()).status.is_success());
    own.authenticate(&mut target, now, host_of(names(), false), |_, _| {}).unwrap();
    assert_eq!(target.subsystem.controllers()[0].io_queues, [1]);
    // The stranger goes; the queue stays.
    stranger.connection.handle_close(&mut target.memory);
    assert_eq!(target.subsystem.controllers()[0].io_queues, [1]);
    // One that proves itself when the place is taken is closed.
    late.authenticate(&mut target, now, host_of(names(), false), |_, _| {}).unwrap();
    assert!(!late.connection.is_authenticated());
    assert!(late.connection.error().unwrap().to_string().contains("cannot be admitted"));
    assert_eq!(target.subsystem.controllers()[0].io_queues, [1]);
    // After a reset the controller is not ready: no queue is admitted then.
    let mut during = Queue::new(&mut target, now);
    assert!(during.connect(&mut target, now, 2, Some(cntlid), &identity()).status.is_success());
    let reset = Sqe::property_set(property::CC, false, 0);
    admin.command(&mut target, now, reset, With::Nothing).unwrap();
    during.authenticate(&mut target, now, host_of(names(), false), |_, _| {}).unwrap();
    assert!(!during.connection.is_authenticated());
}
