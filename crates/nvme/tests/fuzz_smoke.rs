//! The fuzzers' entry points, run for a moment on mutations of valid sessions: what a fuzzer would find at once is found
//! here, on stable Rust and in every test run. `DISKSIDE_FUZZ_ROUNDS=n` runs longer.

mod support;

use diskside_nvme::auth;
use diskside_nvme::controller::{BlockSize, State};
use diskside_nvme::host::{Admin, Data};
use diskside_nvme::wire::Sqe;
use diskside_nvme::{Nqn, Transmit};
use std::time::Instant;
use support::fuzz;
use support::memory::Memory;
use support::mutation::{mutate, rounds, smoke_with};
use support::pair::{ControllerEnd, Pair, SUBSYSTEM, Target, admin_config, bytes_of, identity, random};
use support::rng::Rng;

/// Both directions of an admin queue that comes up, and of an I/O queue with some traffic.
struct Sessions {
    to_controller: Vec<Vec<u8>>,
    to_host: Vec<Vec<u8>>,
}

fn record() -> Sessions {
    let mut target = Target::new();
    target.add(1, 64, BlockSize::B512);
    let now = Instant::now();
    let mut memory = Memory::default();
    let mut admin = Admin::new(admin_config(SUBSYSTEM, 1), now);
    let mut end = ControllerEnd::new(target.accept(now));
    let (mut there, mut back) = (Vec::new(), Vec::new());
    let mut transmit = Transmit::new();
    while admin.poll_transmit(&mut transmit) {
        let bytes = bytes_of(&mut transmit, &mut memory, false);
        admin.handle_transmitted(&mut transmit);
        there.extend_from_slice(&bytes);
        let answer = end.exchange(&mut target, now, &bytes);
        back.extend_from_slice(&answer);
        admin.handle_bytes(now, &answer, &mut memory);
    }
    assert_eq!(end.connection.state(), State::Live);

    // An I/O queue's controller is gone in a replay: but everything before its commands' meaning is the same.
    let mut pair = Pair::connect(target, admin_config(SUBSYSTEM, 1));
    let mut io = Vec::new();
    for (sqe, data) in [
        (Sqe::write(1, 0, 16), Data::SendBytes(vec![1; 8192])),
        (Sqe::write(1, 0, 32), Data::SendBytes(vec![2; 16384])),
        (Sqe::read(1, 0, 64), Data::ReceiveBytes(32768)),
        (Sqe::flush(1), Data::None),
    ] {
        let answer = pair.io(sqe, data).expect("it works");
        io.push(answer.received_len);
    }
    assert_eq!(io, [0, 0, 32768, 0]);
    Sessions { to_controller: vec![there], to_host: vec![back] }
}

fn smoke(run: fn(&[u8]), sessions: &[Vec<u8>], salt: u64) {
    smoke_with(run, salt, |rng| {
        let session = rng.pick(sessions).clone();
        let mut input = vec![rng.next() as u8, rng.next() as u8];
        input.extend(mutate(rng, &session));
        input
    });
}

#[test]
fn controllers_survive_what_hosts_send() {
    smoke(fuzz::controller, &record().to_controller, 1);
}

#[test]
fn hosts_survive_what_controllers_send() {
    smoke(fuzz::host, &record().to_host, 2);
}

#[test]
fn authentication_survives_what_either_side_sends() {
    let names = || auth::Names { host: identity().nqn, subsystem: Nqn::new(SUBSYSTEM).unwrap() };
    let key = || auth::Secret::new(&[9; 32], None).unwrap();
    let accepted = || auth::Accepted { groups: vec![auth::Group::Null], ..auth::Accepted::usual() };
    let keys = auth::HostKeys { keys: vec![key()], controller_key: Some(key()), ..Default::default() };
    let mut controller = auth::Controller::new(names(), keys, accepted());
    let credentials =
        auth::Credentials { key: key(), controller_key: Some(key()), accepted: accepted(), concatenate: false };
    let mut host = auth::Host::new(names(), credentials, 1);
    let (mut step, mut said) = (host.start(), Vec::new());
    // Both sides' messages, each behind its length.
    let mut note = |message: &[u8]| {
        let len = message.len().div_ceil(4);
        said.push(len as u8);
        said.extend_from_slice(message);
        said.resize(said.len() + len * 4 - message.len(), 0);
    };
    loop {
        step = match step {
            auth::Step::Send(message) => {
                note(&message);
                if let auth::Sent::Compute(work) = controller.sent(&message) {
                    assert!(controller.computed(work.run(&mut random)));
                }
                host.sent()
            }
            auth::Step::Receive(len) => match controller.received(len as usize) {
                auth::Received::Message(message) | auth::Received::Authenticated(message) => {
                    note(&message);
                    host.received(&message)
                }
                other => panic!("{other:?}"),
            },
            auth::Step::Compute(work) => host.computed(work.run(&mut random)),
            auth::Step::Authenticated => break,
            auth::Step::Failed(error) => panic!("{error}"),
        };
    }
    let session = [vec![2], said].concat();
    fuzz::authentication(&session);
    let text = key().to_text().as_bytes().to_vec();
    let sessions = [session, text];
    smoke_with(fuzz::authentication, 5, |rng| {
        let session = rng.pick(&sessions).clone();
        mutate(rng, &session)
    });
}

#[test]
fn decoders_survive_anything() {
    let sessions = record();
    let both: Vec<_> = sessions.to_controller.into_iter().chain(sessions.to_host).collect();
    smoke(fuzz::decoder, &both, 3);
    let mut rng = Rng::new(4);
    for _ in 0..rounds() {
        let len = rng.below(400) as usize;
        let noise: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        fuzz::decoder(&noise);
        fuzz::controller(&noise);
        fuzz::host(&noise);
    }
}

#[test]
fn an_unchanged_session_is_understood() {
    let sessions = record();
    let mut input = vec![0, 255];
    input.extend_from_slice(&sessions.to_controller[0]);
    fuzz::controller(&input);
    let mut input = vec![0, 255];
    input.extend_from_slice(&sessions.to_host[0]);
    fuzz::host(&input);
}
