//! Hosts that come, authenticate, do it again, or do not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_nvme::auth::{AuthError, Host, Policy};
use diskside_nvme::controller::{ConnectionError, State};
use diskside_nvme::host::{self, Admin, AdminConfig, AdminEvent, Data, Login};
use diskside_nvme::wire::{AcquireAction, PersistChange, RegisterAction, ReservationType, Sqe, property};
use diskside_nvme::{DISCOVERY_NQN, Status, Transmit};

use super::gate::{ready_admin, target};
use super::raw::{Queue, With, host_of};
use super::support::memory::Memory;
use super::support::pair::{ControllerEnd, Pair, SUBSYSTEM, Target, admin_config, bytes_of, identity, random};
use super::{credentials, key, names};

fn config(login: Login) -> AdminConfig {
    AdminConfig { login, ..admin_config(SUBSYSTEM, 1) }
}

/// How a host that does not get in sees it.
fn refused(mut target: Target, config: AdminConfig) -> host::ConnectionError {
    let (now, mut memory) = (Instant::now(), Memory::default());
    let mut end = ControllerEnd::new(target.accept(now));
    let mut admin = Admin::new(config, now);
    let mut transmit = Transmit::new();
    loop {
        let mut idle = true;
        while admin.poll_transmit(&mut transmit) {
            let bytes = bytes_of(&mut transmit, &mut memory, false);
            admin.handle_transmitted(&mut transmit);
            let back = end.exchange(&mut target, now, &bytes);
            admin.handle_bytes(now, &back, &mut memory);
            idle = false;
        }
        while let Some(event) = admin.poll_event() {
            match event {
                AdminEvent::Compute(work) => admin.computed(now, work.run(&mut random)),
                event => panic!("it should not get in: {event:?}"),
            }
            idle = false;
        }
        if idle {
            break;
        }
    }
    admin.handle_close();
    match admin.poll_event() {
        Some(AdminEvent::Closed(error)) => error,
        event => panic!("it is closed: {event:?}"),
    }
}

#[test]
fn a_host_with_its_key_reads_and_writes() {
    for two_way in [false, true] {
        for login in [Login::IfAsked, Login::Always] {
            let login = login(Arc::new(credentials(two_way)));
            let mut pair = Pair::connect(target(), config(login));
            pair.write(1, 0, &[7; 1024], 512).unwrap();
            assert_eq!(pair.read(1, 1, 1, 512).unwrap(), [7; 512]);
        }
    }
}

/// Its queue becomes one of its controller later than others' do, and was to be fenced off like these.
#[test]
fn a_reservation_waits_for_a_host_that_authenticated() {
    let login = || Login::Always(Arc::new(credentials(false)));
    let target = target();
    let beside = target.beside();
    let other = host::HostIdentity { id: [1; 16], ..identity() };
    let mut a = Pair::connect(target, AdminConfig { host: other, ..config(login()) });
    let mut b = Pair::connect(beside, config(login()));
    let keys = |current: u64, new: u64| Data::SendBytes([current.to_le_bytes(), new.to_le_bytes()].concat());
    let register = Sqe::reservation_register(1, RegisterAction::Register, false, PersistChange::Keep);
    a.io(register, keys(0, 1)).unwrap();
    let sqe = Sqe::reservation_acquire(1, AcquireAction::Acquire, ReservationType::WriteExclusive);
    let submission = host::Submission { sqe, data: keys(1, 0), user_data: 7, timeout: None };
    a.io.as_mut().unwrap().0.submit(a.now, submission, &mut a.memory).unwrap();
    a.run();
    assert!(a.io_event().is_none(), "B's queue has not heard of it");
    b.run();
    a.run();
    let Some(host::Event::Completed(completed)) = a.io_event() else { panic!("B's queue has heard of it") };
    completed.outcome.unwrap();
}

#[test]
fn who_does_not_get_in_is_told_why() {
    let with = |seed| {
        let mut wrong = credentials(true);
        wrong.key = key(seed, None);
        Arc::new(wrong)
    };
    assert_eq!(refused(target(), config(Login::Never)), host::ConnectionError::AuthenticationRequired);
    let error = refused(target(), config(Login::IfAsked(with(9))));
    assert!(matches!(error, host::ConnectionError::Authentication(AuthError::Theirs(_))), "{error:?}");
    let stranger = AdminConfig {
        host: host::HostIdentity { nqn: diskside_nvme::Nqn::new("nqn.2026-01.test:other").unwrap(), id: [1; 16] },
        ..config(Login::IfAsked(with(1)))
    };
    match refused(target(), stranger) {
        host::ConnectionError::Refused { status, .. } => assert!(status.is(Status::CONNECT_INVALID_HOST)),
        error => panic!("{error:?}"),
    }
    // The host finds that the controller has another key than it keeps for it.
    let mut other = credentials(true);
    other.controller_key = Some(key(9, None));
    let error = refused(target(), config(Login::Always(Arc::new(other))));
    assert_eq!(error, host::ConnectionError::Authentication(AuthError::WrongControllerKey));
}

/// Somebody who answers in the server's place need not have any key, if nobody asks for one.
#[test]
fn a_host_with_a_key_does_not_fall_back() {
    let open = || {
        let mut target = Target::new();
        target.add(1, 8, diskside_nvme::controller::BlockSize::B512);
        target
    };
    let error = refused(open(), config(Login::Always(Arc::new(credentials(false)))));
    assert_eq!(error, host::ConnectionError::AuthenticationNotAsked);
    Pair::connect(open(), config(Login::IfAsked(Arc::new(credentials(false)))));
    // Discovery tells names and addresses, to anybody.
    let discovery = AdminConfig {
        subsystem: diskside_nvme::Nqn::discovery(),
        io_queues: 0,
        ..config(Login::Always(Arc::new(credentials(false))))
    };
    Pair::connect(open(), discovery);
}

#[test]
fn a_host_that_does_not_go_on_is_closed() {
    let now = Instant::now();
    let mut target = target();
    let mut queue = Queue::new(&mut target, now);
    queue.connect(&mut target, now, 0, None, &identity());
    let at = queue.connection.poll_timeout().unwrap();
    assert_eq!(at, now + target.config.authentication_timeout);
    queue.connection.handle_timeout(at - Duration::from_millis(1));
    assert_eq!(queue.connection.state(), State::Live);
    // What it says meanwhile wins it no time.
    let diskside_nvme::auth::Step::Send(message) = host_of(names(), false).start() else { panic!("it sends") };
    queue.send(&mut target, at - Duration::from_millis(1), &message).unwrap();
    queue.connection.handle_timeout(at);
    assert_eq!(queue.connection.error(), Some(&ConnectionError::Authentication(AuthError::Timeout)));
    queue.connection.handle_close(&mut target.memory);
    assert!(target.subsystem.controllers().is_empty());
}

#[test]
fn keep_alive_counts_once_the_host_is_in() {
    let now = Instant::now();
    let mut target = target();
    let (queue, _) = ready_admin(&mut target, now);
    assert_eq!(queue.connection.poll_timeout(), Some(now + Duration::from_millis(5000)));
}

/// Linux does so when its key is written again, on queues that work.
#[test]
fn a_live_queue_works_on_while_it_authenticates_again() {
    let now = Instant::now();
    let mut target = target();
    let (mut queue, _) = ready_admin(&mut target, now);
    let works = |queue: &mut Queue, target: &mut Target| {
        let answer = queue.command(target, now, Sqe::property_get(property::CSTS, false), With::Nothing).unwrap();
        assert_eq!((answer.status, answer.result), (Status::SUCCESS, 1));
    };
    for transaction in 1..4 {
        let host = Host::new(names(), credentials(transaction % 2 == 0), transaction);
        queue.authenticate(&mut target, now, host, works).unwrap();
        works(&mut queue, &mut target);
    }
    assert_eq!(queue.connection.poll_timeout(), Some(now + Duration::from_millis(5000)), "nothing else is due");

    // One that is begun must be ended.
    let diskside_nvme::auth::Step::Send(message) = host_of(names(), false).start() else { panic!("it sends") };
    target.config.authentication_timeout = Duration::from_secs(1);
    let (mut slow, _) = ready_admin(&mut target, now);
    slow.send(&mut target, now, &message).unwrap();
    slow.connection.handle_timeout(now + Duration::from_secs(1));
    assert_eq!(slow.connection.error(), Some(&ConnectionError::Authentication(AuthError::Timeout)));

    // With another key it is over.
    let mut wrong = credentials(false);
    wrong.key = key(77, None);
    let error = queue.authenticate(&mut target, now, Host::new(names(), wrong, 9), works).unwrap_err();
    assert!(matches!(error, AuthError::Theirs(_)));
    assert_eq!(queue.connection.error(), Some(&ConnectionError::Authentication(AuthError::WrongHostKey)));
    assert_eq!(queue.connection.state(), State::Closed);
}

/// Linux authenticates its I/O queues again, too, each for itself and while they read and write; tests did so with the admin queue
/// alone.
#[test]
fn an_io_queue_reads_and_writes_on_while_it_authenticates_again() {
    let now = Instant::now();
    let mut target = target();
    let (admin, cntlid) = ready_admin(&mut target, now);
    let place_of = |target: &Target| target.subsystem.controllers()[0].io_queues.clone();
    let enter = |target: &mut Target| {
        let mut queue = Queue::new(target, now);
        queue.serves = true;
        assert!(queue.connect(target, now, 1, Some(cntlid), &identity()).status.is_success());
        queue.authenticate(target, now, host_of(names(), true), |_, _| {}).unwrap();
        queue
    };
    let mut fill = 0;
    let mut works = |queue: &mut Queue, target: &mut Target| {
        fill += 1;
        let written = queue.command(target, now, Sqe::write(1, 3, 1), With::InCapsule(&[fill; 512])).unwrap();
        assert_eq!(written.status, Status::SUCCESS);
        let read = queue.command(target, now, Sqe::read(1, 3, 1), With::Transport(512)).unwrap();
        assert_eq!((read.status, read.data), (Status::SUCCESS, vec![fill; 512]));
    };
    let mut queue = enter(&mut target);
    for transaction in 1..4 {
        let host = Host::new(names(), credentials(transaction % 2 == 0), transaction);
        queue.authenticate(&mut target, now, host, &mut works).unwrap();
        works(&mut queue, &mut target);
        assert_eq!(queue.connection.poll_timeout(), None, "nothing is due");
    }

    // With another key it is over for this queue, and for no other.
    let mut wrong = credentials(false);
    wrong.key = key(77, None);
    let error = queue.authenticate(&mut target, now, Host::new(names(), wrong, 9), &mut works).unwrap_err();
    assert!(matches!(error, AuthError::Theirs(_)), "{error:?}");
    assert_eq!(queue.connection.error(), Some(&ConnectionError::Authentication(AuthError::WrongHostKey)));
    assert_eq!(queue.connection.state(), State::Closed);
    queue.connection.handle_close(&mut target.memory);
    assert_eq!((place_of(&target), admin.connection.state()), (Vec::new(), State::Live), "its place is free");

    // One that is begun must be ended.
    target.config.authentication_timeout = Duration::from_secs(1);
    let mut slow = enter(&mut target);
    let diskside_nvme::auth::Step::Send(message) = host_of(names(), false).start() else { panic!("it sends") };
    slow.send(&mut target, now, &message).unwrap();
    works(&mut slow, &mut target);
    assert_eq!(slow.connection.poll_timeout(), Some(now + Duration::from_secs(1)), "reads and writes win it no time");
    slow.connection.handle_timeout(now + Duration::from_secs(1));
    assert_eq!(slow.connection.error(), Some(&ConnectionError::Authentication(AuthError::Timeout)));
}

#[test]
fn keys_change_without_a_host_being_thrown_out() {
    let now = Instant::now();
    let mut target = target();
    let (mut queue, _) = ready_admin(&mut target, now);
    let mut policy = super::policy();
    policy.hosts.get_mut(&identity().nqn).unwrap().keys = vec![key(50, None)];
    target.subsystem.set_authentication(policy);
    queue.connection.handle_wake(now);
    assert_eq!(queue.connection.state(), State::Live);
    let error = refused(target, config(Login::IfAsked(Arc::new(credentials(false)))));
    assert!(matches!(error, host::ConnectionError::Authentication(_)));

    let mut target = super::gate::target();
    let (mut queue, _) = ready_admin(&mut target, now);
    target.subsystem.set_authentication(Policy { required: true, ..Policy::open() });
    queue.connection.handle_wake(now);
    assert_eq!(queue.connection.error(), Some(&ConnectionError::ControllerGone), "it may not connect at all any more");
}

/// A connection that was made with a key made keys of secure channels, and with them new connections, after that key had been
/// taken away.
#[test]
fn a_key_that_was_taken_away_is_none_for_connections_that_are_there() {
    let now = Instant::now();
    let mut target = target();
    let (mut queue, _) = ready_admin(&mut target, now);
    let mut policy = super::policy();
    policy.hosts.get_mut(&identity().nqn).unwrap().keys = vec![key(50, None)];
    target.subsystem.set_authentication(policy);
    let host = Host::new(names(), credentials(false), 1);
    let error = queue.authenticate(&mut target, now, host, |_, _| ()).unwrap_err();
    assert!(matches!(error, AuthError::Theirs(_)), "{error:?}");
    assert_eq!(queue.connection.error(), Some(&ConnectionError::Authentication(AuthError::WrongHostKey)));
}

#[test]
fn hosts_without_a_key_are_not_told_of_the_subsystem() {
    for (stranger, count) in [(false, 1), (true, 0)] {
        let target = target();
        let address = diskside_nvme::controller::Listener { address: [127, 0, 0, 1].into(), any: false, port: 4420 };
        target.subsystems.set_listeners(vec![address]);
        let mut config = AdminConfig { io_queues: 0, ..admin_config(DISCOVERY_NQN, 0) };
        if stranger {
            config.host.nqn = diskside_nvme::Nqn::new("nqn.2026-01.test:other").unwrap();
        }
        let mut pair = Pair::connect(target, config);
        pair.admin.discover(pair.now);
        match pair.admin_events().pop() {
            Some(AdminEvent::Discovered(Ok(found))) => assert_eq!(found.len(), count),
            event => panic!("{event:?}"),
        }
    }
}
