//! How connections and controllers begin and end, and how they share memory and each other.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use diskside_nvme::controller::{
    self, AllowedHosts, BlockSize, Completion, ConnectionConfig, ConnectionError, Operation, State,
};
use diskside_nvme::host::{self, AdminEvent, CommandError, Data, Event, Login, Submission};
use diskside_nvme::wire::{CopySourceEntry, Sqe, feature};
use diskside_nvme::{BufferSlice, Buffers, DISCOVERY_NQN, Nqn, Status, Transmit};
use support::memory::Memory;
use support::pair::{ControllerEnd, Pair, SUBSYSTEM, Target, admin_config, bytes_of, identity, namespace};
use zerocopy::IntoBytes;

fn target() -> Target {
    let mut target = Target::new();
    target.add(1, 1 << 12, BlockSize::B512);
    target
}

/// Tries to connect with a configuration; the error, or `None` if it works.
fn try_connect(target: &mut Target, config: host::ConnectionConfig) -> Option<host::ConnectionError> {
    let now = Instant::now();
    let mut memory = Memory::default();
    let mut connection = host::Connection::new(config, now);
    let mut end = ControllerEnd::new(target.accept(now));
    let mut transmit = Transmit::new();
    while connection.poll_transmit(&mut transmit) {
        let bytes = bytes_of(&mut transmit, &mut memory, false);
        connection.handle_transmitted(&mut transmit);
        let back = end.exchange(target, now, &bytes);
        connection.handle_bytes(now, &back, &mut memory);
    }
    end.connection.handle_close(&mut target.memory);
    connection.error().cloned()
}

fn admin_queue() -> host::ConnectionConfig {
    host::ConnectionConfig {
        host: identity(),
        subsystem: Nqn::new(SUBSYSTEM).unwrap(),
        queue_id: 0,
        controller_id: 0xffff,
        entries: 32,
        keep_alive_ms: 0,
        header_digest: false,
        data_digest: false,
        in_capsule_len: 8192,
        transfer_len_max: 1 << 20,
        connect_timeout: Duration::from_secs(5),
        login: Login::Never,
    }
}

#[test]
fn who_may_not_connect_is_told_why() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let io = pair.admin.io_queue_config(1).unwrap();
    let other_host = host::HostIdentity { nqn: Nqn::new("nqn.2026-01.test:other").unwrap(), id: identity().id };
    let other_id = host::HostIdentity { id: [8; 16], ..identity() };
    let elsewhere = Nqn::new("nqn.2026-01.test:elsewhere").unwrap();
    let cases = [
        ("an unknown subsystem", host::ConnectionConfig { subsystem: elsewhere, ..admin_queue() }, Some(0x1_0100)),
        ("a static controller", host::ConnectionConfig { controller_id: 5, ..admin_queue() }, Some(0x1_0010)),
        ("too many entries", host::ConnectionConfig { entries: 129, ..admin_queue() }, Some(44)),
        (
            "an unknown controller",
            host::ConnectionConfig { controller_id: 77, queue_id: 2, ..io.clone() },
            Some(0x1_0010),
        ),
        (
            "another host's controller",
            host::ConnectionConfig { host: other_host, queue_id: 2, ..io.clone() },
            Some(0x1_0200),
        ),
        ("another identifier", host::ConnectionConfig { host: other_id, queue_id: 2, ..io.clone() }, Some(0x1_0000)),
        ("too large a queue number", host::ConnectionConfig { queue_id: 129, ..io.clone() }, Some(42)),
        ("more entries than MQES", host::ConnectionConfig { entries: 129, queue_id: 2, ..io.clone() }, Some(44)),
        ("a queue number that is in use", io.clone(), None),
        (
            "an I/O queue of the discovery controller",
            host::ConnectionConfig { subsystem: Nqn::discovery(), queue_id: 1, ..io.clone() },
            Some(42),
        ),
    ];
    for (name, config, parameter) in cases {
        match (try_connect(&mut pair.target, config), parameter) {
            (Some(host::ConnectionError::Refused { status, parameter: Some(got), .. }), Some(want)) => {
                assert!(status.is(Status::CONNECT_INVALID_PARAMETERS) && status.do_not_retry(), "{name}: {status}");
                assert_eq!(got.to_result(), want, "{name}");
            }
            (Some(host::ConnectionError::Refused { status, .. }), None) => {
                assert!(status.is(Status::INVALID_QUEUE_IDENTIFIER), "{name}: {status}");
            }
            (error, _) => panic!("{name}: {error:?}"),
        }
    }
    let free = host::ConnectionConfig { queue_id: 2, ..io };
    assert_eq!(try_connect(&mut pair.target, free), None, "with everything right it works");
}

#[test]
fn a_host_that_is_not_on_the_list_is_refused_and_later_thrown_out() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let friend = Nqn::new("nqn.2026-01.test:friend").unwrap();
    pair.target.subsystem.set_allowed_hosts(AllowedHosts::Only([friend.clone()].into()));
    pair.admin_end.connection.handle_wake(pair.now);
    assert_eq!(pair.admin_end.connection.state(), State::Closed);
    assert_eq!(pair.admin_end.connection.error(), Some(&ConnectionError::ControllerGone));
    let refused = try_connect(&mut pair.target, admin_queue());
    assert!(
        matches!(&refused, Some(host::ConnectionError::Refused { name: "Connect Invalid Host", .. })),
        "{refused:?}"
    );
    let host = host::HostIdentity { nqn: friend, id: [1; 16] };
    assert_eq!(try_connect(&mut pair.target, host::ConnectionConfig { host, ..admin_queue() }), None);
}

#[test]
fn a_subsystem_that_is_removed_takes_its_connections_along() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    assert!(pair.target.subsystems.remove(&Nqn::new(SUBSYSTEM).unwrap()));
    let (_, end) = pair.io.as_mut().unwrap();
    for connection in [&mut pair.admin_end.connection, &mut end.connection] {
        connection.handle_wake(pair.now);
        assert_eq!(connection.state(), State::Closed);
    }
}

#[test]
fn a_peer_that_says_nothing_is_closed_in_time() {
    let target = target();
    let now = Instant::now();
    let mut connection = target.accept(now);
    let at = connection.poll_timeout().expect("it does not wait for ever");
    connection.handle_timeout(at - Duration::from_millis(1));
    assert_eq!(connection.state(), State::Negotiating);
    connection.handle_timeout(at);
    assert_eq!(connection.error(), Some(&ConnectionError::ConnectTimeout));
    assert_eq!(connection.state(), State::Closed);
}

#[test]
fn a_discovery_connection_without_keep_alive_ends_after_two_idle_minutes() {
    let mut config = admin_config(DISCOVERY_NQN, 0);
    config.keep_alive_ms = 0;
    let mut pair = Pair::connect(target(), config);
    pair.sleep(Duration::from_secs(100));
    pair.admin.discover(pair.now);
    pair.sleep(Duration::from_secs(100));
    assert_eq!(pair.admin_end.connection.state(), State::Live, "it was used in between");
    pair.sleep(Duration::from_secs(30));
    let error = pair.admin_end.connection.error();
    assert_eq!(error, Some(&ConnectionError::KeepAliveExpired(Duration::from_secs(120))));
}

/// A host that asked for no Keep Alive and fell silent kept its controller for ever.
#[test]
fn a_controller_without_keep_alive_ends_after_ten_minutes_without_a_command() {
    let mut config = admin_config(SUBSYSTEM, 0);
    config.keep_alive_ms = 0;
    let mut pair = Pair::connect(target(), config);
    pair.sleep(Duration::from_secs(500));
    pair.admin.abort(pair.now, 0, 0x99);
    pair.sleep(Duration::from_secs(500));
    assert_eq!(pair.admin_end.connection.state(), State::Live, "it was used in between");
    pair.sleep(Duration::from_secs(300));
    let error = pair.admin_end.connection.error();
    assert_eq!(error, Some(&ConnectionError::KeepAliveExpired(Duration::from_secs(600))));
}

/// A target that was stopped for longer than its hosts' Keep Alive (SIGSTOP, a suspended machine) took that for their silence, and
/// closed every connection when it went on.
#[test]
fn a_target_that_stood_still_hears_its_hosts_first() {
    let mut config = admin_config(SUBSYSTEM, 0);
    config.keep_alive_ms = 5000;
    let still = Duration::from_secs(3600);
    // One host is heard again, the other is not.
    for is_heard in [true, false] {
        let mut pair = Pair::connect(target(), config.clone());
        let due = pair.admin_end.connection.poll_timeout().expect("the host's Keep Alive");
        let late = due + still;
        pair.admin_end.connection.handle_timeout(late);
        assert_eq!(pair.admin_end.connection.state(), State::Live, "nobody looked");
        let again = pair.admin_end.connection.poll_timeout().expect("it has its time once more");
        assert_eq!(again, late + Duration::from_secs(5));
        pair.now = late;
        if is_heard {
            pair.sleep(Duration::from_secs(1));
            // It stands still again, and excuses its hosts again.
            let due = pair.admin_end.connection.poll_timeout().expect("the host's Keep Alive");
            pair.admin_end.connection.handle_timeout(due + still);
            assert_eq!(pair.admin_end.connection.state(), State::Live);
        } else {
            // A target that is always late does not keep a host that is gone.
            pair.admin_end.connection.handle_timeout(again + still);
            assert_eq!(pair.admin_end.connection.state(), State::Closed);
        }
    }
    // So has a host that was about to connect.
    let mut connection = target().accept(Instant::now());
    let due = connection.poll_timeout().expect("it does not wait for ever");
    connection.handle_timeout(due + still);
    assert_eq!(connection.state(), State::Negotiating);
    let due = connection.poll_timeout().expect("it does not wait for ever");
    connection.handle_timeout(due);
    assert_eq!(connection.error(), Some(&ConnectionError::ConnectTimeout));
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The queues of one controller may live on different threads: what one must tell another goes by its waker.
#[test]
fn queues_wake_each_other() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 0));
    let woken = Arc::new(Count::default());
    let connection = controller::Connection::new(
        pair.target.subsystems.clone(),
        ConnectionConfig::default(),
        Waker::from(woken.clone()),
        pair.now,
    );
    let mut config = admin_queue();
    (config.queue_id, config.controller_id) = (1, pair.admin.controller().unwrap().controller_id);
    pair.io = Some((host::Connection::new(config, pair.now), ControllerEnd::new(connection)));
    pair.run();
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    pair.admin.abort(pair.now, 1, 0x99);
    pair.run();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "an Abort concerns the queue of its command");
    pair.admin_end.connection.handle_close(&mut pair.target.memory);
    assert!(woken.0.load(Ordering::Relaxed) > 1, "the end of the admin queue ends its controller");
}

/// A command of an I/O queue that waits for a buffer is aborted; one that the medium has is cancelled.
#[test]
fn aborts_reach_the_other_queue() {
    let mut target = target();
    target.memory = Memory::with_pool(1);
    let mut pair = Pair::connect(target, admin_config(SUBSYSTEM, 1));
    let (io, end) = pair.io.as_mut().unwrap();
    let mut cids = Vec::new();
    for user_data in 0..2 {
        let buffer = pair.memory.insert(vec![user_data as u8; 16384]);
        let data = Data::Send(BufferSlice::new(buffer, 16384));
        let submission = Submission { sqe: Sqe::write(1, user_data * 32, 32), data, user_data, timeout: None };
        cids.push(io.submit(pair.now, submission, &mut pair.memory).unwrap());
    }
    let mut transmit = Transmit::new();
    assert!(io.poll_transmit(&mut transmit));
    let commands = bytes_of(&mut transmit, &mut pair.memory, false);
    io.handle_transmitted(&mut transmit);
    // The first command has the only buffer, the second waits.
    end.connection.handle_bytes(pair.now, &commands, &mut pair.target.memory);
    assert!(end.connection.awaits_buffers());

    pair.admin.abort(pair.now, 1, cids[1]);
    let aborted = |pair: &mut Pair| match pair.admin_events().as_slice() {
        [AdminEvent::Aborted { queue_id: 1, aborted, .. }] => *aborted,
        events => panic!("{events:?}"),
    };
    assert!(aborted(&mut pair), "it had not begun");
    let outcome = |event: Option<Event>| match event {
        Some(Event::Completed(completed)) => (completed.user_data, completed.outcome),
        event => panic!("{event:?}"),
    };
    let ended: std::collections::BTreeMap<_, _> = (0..2).map(|_| outcome(pair.io_event())).collect();
    assert_eq!(ended[&0], Ok(host::Answer::default()));
    let want = CommandError::Status { status: Status::COMMAND_ABORT_REQUESTED, result: 0 };
    assert_eq!(ended[&1], Err(want));
    assert_eq!(pair.target.memory.in_use(), 0);
}

#[test]
fn a_command_that_the_medium_has_is_cancelled_as_a_hint() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let (io, end) = pair.io.as_mut().unwrap();
    let submission = Submission { sqe: Sqe::flush(1), data: Data::None, user_data: 1, timeout: None };
    let cid = io.submit(pair.now, submission, &mut pair.memory).unwrap();
    let mut transmit = Transmit::new();
    io.poll_transmit(&mut transmit);
    let command = bytes_of(&mut transmit, &mut pair.memory, false);
    io.handle_transmitted(&mut transmit);
    end.connection.handle_bytes(pair.now, &command, &mut pair.target.memory);
    let flush = end.connection.poll_request().expect("the medium is asked");

    // The admin queue passes the Abort on; the I/O queue asks the embedder to cancel.
    pair.admin.abort(pair.now, 1, cid);
    let mut transmit = Transmit::new();
    pair.admin.poll_transmit(&mut transmit);
    let command = bytes_of(&mut transmit, &mut pair.memory, false);
    pair.admin.handle_transmitted(&mut transmit);
    pair.admin_end.connection.handle_bytes(pair.now, &command, &mut pair.target.memory);
    let (_, end) = pair.io.as_mut().unwrap();
    end.connection.handle_wake(pair.now);
    let cancel = end.connection.poll_request().expect("the embedder hears of it");
    assert!(matches!(cancel.operation, Operation::Cancel) && cancel.tag == flush.tag, "{cancel:?}");
    let answer = Completion::failed(Status::COMMAND_ABORT_REQUESTED);
    end.connection.complete(pair.now, flush.tag, answer, &mut pair.target.memory);
    let events = pair.admin_events();
    assert!(
        matches!(events.as_slice(), [AdminEvent::Aborted { aborted: false, .. }]),
        "the controller only says that it did not end it itself: {events:?}"
    );
}

/// Once, the admin queue, which has nothing to do, ended first on shutdown, and with it the controller: answers that I/O
/// queues still owed were cut off.
#[test]
fn shutdown_answers_what_the_media_have() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let (io, end) = pair.io.as_mut().unwrap();
    for user_data in 0..2 {
        let submission = Submission { sqe: Sqe::flush(1), data: Data::None, user_data, timeout: None };
        io.submit(pair.now, submission, &mut pair.memory).unwrap();
    }
    let mut transmit = Transmit::new();
    io.poll_transmit(&mut transmit);
    let commands = bytes_of(&mut transmit, &mut pair.memory, false);
    io.handle_transmitted(&mut transmit);
    end.connection.handle_bytes(pair.now, &commands, &mut pair.target.memory);
    let requests: Vec<_> = std::iter::from_fn(|| end.connection.poll_request()).collect();
    assert_eq!(requests.len(), 2);

    pair.target.subsystems.shutdown();
    pair.admin_end.connection.handle_wake(pair.now);
    assert_eq!(pair.admin_end.connection.state(), State::Closed);
    end.connection.handle_wake(pair.now);
    assert!(!end.connection.wants_input(), "nothing new is begun");
    for request in requests {
        assert_ne!(end.connection.state(), State::Closed, "an answer is still owed");
        end.connection.complete(pair.now, request.tag, Completion::success(), &mut pair.target.memory);
    }
    assert_eq!(end.connection.state(), State::Draining);
    let mut transmit = Transmit::new();
    assert!(end.connection.poll_transmit(&mut transmit));
    let answers = bytes_of(&mut transmit, &mut pair.target.memory, true);
    end.connection.handle_transmitted(&mut transmit);
    assert_eq!(end.connection.state(), State::Closed);
    io.handle_bytes(pair.now, &answers, &mut pair.memory);
    for _ in 0..2 {
        let event = io.poll_event();
        assert!(matches!(&event, Some(Event::Completed(completed)) if completed.outcome.is_ok()), "{event:?}");
    }
    let refused = try_connect(&mut pair.target, admin_queue());
    assert!(refused.is_none_or(|error| matches!(error, host::ConnectionError::Refused { .. })));
}

/// In-capsule data for which there is no buffer stops the stream, unless data that was asked for is behind it: then it is
/// kept aside, since the buffers to wait for may be the ones that this data fills.
#[test]
fn a_full_pool_never_stops_data_that_was_asked_for() {
    let mut target = target();
    target.memory = Memory::with_pool(1);
    let mut pair = Pair::connect(target, admin_config(SUBSYSTEM, 1));
    let (io, end) = pair.io.as_mut().unwrap();
    let now = pair.now;
    let send = |io: &mut host::Connection, memory: &mut Memory, slba: u64, blocks: u32| {
        let data = Data::SendBytes(vec![slba as u8; blocks as usize * 512]);
        let submission = Submission { sqe: Sqe::write(1, slba, blocks), data, user_data: slba, timeout: None };
        io.submit(now, submission, memory).unwrap();
        let mut transmit = Transmit::new();
        io.poll_transmit(&mut transmit);
        let bytes = bytes_of(&mut transmit, memory, false);
        io.handle_transmitted(&mut transmit);
        bytes
    };
    // The large write gets the buffer and is asked for its data. The small one comes before that data.
    let large = send(io, &mut pair.memory, 100, 32);
    let small = send(io, &mut pair.memory, 1, 8);
    let memory = &mut pair.target.memory;
    assert_eq!(end.connection.handle_bytes(pair.now, &large, memory), large.len());
    assert_eq!(end.connection.handle_bytes(pair.now, &small, memory), small.len(), "it is kept aside");
    assert!(end.connection.awaits_buffers() && end.connection.wants_input());
    pair.run();
    assert_eq!(pair.target.media.media[0][512], 1);
    assert_eq!(pair.target.media.media[0][100 * 512], 100);

    // With nothing asked for, the stream waits in front of the small write's data.
    let (io, end) = pair.io.as_mut().unwrap();
    let hog = diskside_nvme::BufferPool::acquire(&mut pair.target.memory, 1).unwrap();
    let small = send(io, &mut pair.memory, 2, 8);
    let taken = end.connection.handle_bytes(pair.now, &small, &mut pair.target.memory);
    assert_eq!(taken, 72, "the command was read, its data was not");
    assert!(!end.connection.wants_input());
    pair.target.memory.release(hog);
    assert!(!end.connection.handle_buffers(pair.now, &mut pair.target.memory));
    let rest = end.connection.handle_bytes(pair.now, &small[72..], &mut pair.target.memory);
    assert_eq!(rest, small.len() - 72);
    pair.run();
    assert_eq!(pair.target.media.media[0][2 * 512], 2);
}

#[test]
fn a_host_that_does_not_read_its_answers_is_not_read_from_either() {
    let target = target();
    let mut pair = Pair::connect(target, admin_config(SUBSYSTEM, 0));
    let connection = &mut pair.admin_end.connection;
    // Identify Controller and again, with nobody taking the answers.
    let mut taken = 0;
    for cid in 0..30_u16 {
        let mut sqe = Sqe::get_log_page(0x05, 0, 64 << 10, 0, true);
        sqe.set_cid(0x1000 + cid);
        sqe.set_sgl(diskside_nvme::wire::Sgl::transport(64 << 10));
        let capsule = [&[4, 0, 72, 0, 72, 0, 0, 0], sqe.as_bytes()].concat();
        taken += usize::from(connection.handle_bytes(pair.now, &capsule, &mut pair.target.memory) == 72);
    }
    assert_eq!(taken, 4, "at 256 KiB of answers it stops");
    assert!(!connection.wants_input());
    let mut transmit = Transmit::new();
    assert!(connection.poll_transmit(&mut transmit));
    assert!(connection.wants_input(), "they are on their way");
}

#[test]
fn blocks_are_copied_between_namespaces_once_the_host_enabled_it() {
    let mut target = target();
    target.add(2, 64, BlockSize::B512);
    target.add(3, 64, BlockSize::B4096);
    let mut pair = Pair::connect(target, admin_config(SUBSYSTEM, 1));
    pair.write(2, 5, &[9; 1024], 512).unwrap();
    let copy = |pair: &mut Pair, from: u32| {
        let entry = CopySourceEntry::new(from, 5, 2);
        pair.io(Sqe::copy(1, 70, 1, 2), Data::SendBytes(entry.as_bytes().to_vec()))
    };
    let status = |result: Result<host::Answer, CommandError>| match result {
        Err(CommandError::Status { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    assert!(status(copy(&mut pair, 2)).is(Status::INVALID_FIELD), "format 2h was not enabled");
    let mut behavior = vec![0; 512];
    behavior[4] = 1 << 2;
    pair.admin(Sqe::set_features(feature::HOST_BEHAVIOR, 0), Data::SendBytes(behavior)).unwrap();
    copy(&mut pair, 2).unwrap();
    assert_eq!(pair.read(1, 70, 2, 512).unwrap(), [9; 1024]);
    assert!(status(copy(&mut pair, 3)).is(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT));
    assert!(status(copy(&mut pair, 4)).is(Status::INVALID_NAMESPACE_OR_FORMAT));
}

#[test]
fn a_namespace_that_goes_while_its_data_is_on_the_way_takes_no_write() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let (io, end) = pair.io.as_mut().unwrap();
    let data = Data::SendBytes(vec![1; 16384]);
    let submission = Submission { sqe: Sqe::write(1, 0, 32), data, user_data: 1, timeout: None };
    io.submit(pair.now, submission, &mut pair.memory).unwrap();
    let mut transmit = Transmit::new();
    io.poll_transmit(&mut transmit);
    let command = bytes_of(&mut transmit, &mut pair.memory, false);
    io.handle_transmitted(&mut transmit);
    end.connection.handle_bytes(pair.now, &command, &mut pair.target.memory);
    // Another volume takes its place, with another medium.
    pair.target.subsystem.remove_namespace(1);
    let medium = pair.target.media.add(1 << 20);
    pair.target.subsystem.add_namespace(namespace(1, medium, 64, BlockSize::B512)).unwrap();
    pair.run();
    let event = pair.io_event();
    match event {
        Some(Event::Completed(completed)) => match completed.outcome {
            Err(CommandError::Status { status, .. }) => assert!(status.is(Status::INVALID_NAMESPACE_OR_FORMAT)),
            outcome => panic!("{outcome:?}"),
        },
        event => panic!("{event:?}"),
    }
    assert_eq!(pair.target.memory.in_use(), 0);
}

/// What an idle connection costs, as the README says.
#[test]
fn an_idle_connection_is_small() {
    let own = size_of::<controller::Connection>();
    assert!(own <= 2048, "{own} bytes");
}
