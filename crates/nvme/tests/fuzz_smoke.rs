//! The fuzzers' entry points, run for a moment on mutations of valid sessions: what a fuzzer would find at once is found
//! here, on stable Rust and in every test run. `DISKSIDE_FUZZ_ROUNDS=n` runs longer.

mod support;

use diskside_nvme::controller::{BlockSize, State};
use diskside_nvme::host::{Admin, Data};
use diskside_nvme::wire::Sqe;
use diskside_nvme::{Transmit, crc32c};
use std::time::Instant;
use support::fuzz;
use support::memory::Memory;
use support::pair::{ControllerEnd, Pair, SUBSYSTEM, Target, admin_config, bytes_of};
use support::rng::Rng;
use support::{commands, seeds};

fn rounds() -> u64 {
    std::env::var("DISKSIDE_FUZZ_ROUNDS").map_or(2000, |text| text.parse().expect("a number"))
}

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

fn mutate(rng: &mut Rng, session: &[u8]) -> Vec<u8> {
    let mut bytes = session.to_vec();
    for _ in 0..rng.between(1, 6) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(7) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => bytes.truncate(at.max(1)),
            3 => {
                let end = (at + rng.between(1, 64) as usize).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = rng.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, piece);
            }
            4 => {
                let end = (at + rng.between(1, 64) as usize).min(bytes.len());
                bytes.drain(at..end);
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            5 => {
                let number = rng.next().to_le_bytes();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            // A capsule, so that what is behind it in the stream is still understood.
            _ => {
                let mut sqe = Sqe::new(rng.next() as u8, rng.below(4) as u32);
                for n in [2, 3, 10, 11, 12, 13, 14, 15] {
                    if rng.chance(40) {
                        sqe = sqe.with_dword(n, rng.next() as u32 >> rng.below(32));
                    }
                }
                sqe.set_cid(rng.next() as u16);
                let mut capsule = vec![4, 0, 72, 0, 72, 0, 0, 0];
                capsule.extend_from_slice(zerocopy::IntoBytes::as_bytes(&sqe));
                bytes.extend_from_slice(&capsule);
            }
        }
    }
    bytes
}

fn smoke(run: fn(&[u8]), sessions: &[Vec<u8>], salt: u64) {
    smoke_with(run, salt, |rng| {
        let session = rng.pick(sessions).clone();
        let mut input = vec![rng.next() as u8, rng.next() as u8];
        input.extend(mutate(rng, &session));
        input
    });
}

fn smoke_with(run: fn(&[u8]), salt: u64, input: impl Fn(&mut Rng) -> Vec<u8>) {
    let mut rng = Rng::new(salt);
    for round in 0..rounds() {
        let input = input(&mut rng);
        let caught = std::panic::catch_unwind(|| run(&input));
        if let Err(panic) = caught {
            eprintln!("round {round} of salt {salt}: {} bytes, crc {:08x}", input.len(), crc32c(&input));
            std::panic::resume_unwind(panic);
        }
    }
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

fn smoke_seeds(run: fn(&[u8]), seeds: &[(&str, Vec<u8>)], salt: u64) {
    for (name, input) in seeds {
        println!("{name}");
        run(input);
    }
    smoke_with(run, salt, |rng| {
        let (_, input) = rng.pick(seeds);
        mutate(rng, input)
    });
}

#[test]
fn commands_and_answers_decode_to_what_was_encoded() {
    smoke_seeds(commands::function, &seeds::function(), 5);
    smoke_seeds(commands::answers, &seeds::answers(), 6);
    smoke_seeds(commands::standard, &seeds::standard(), 7);
}

/// The fuzzers' kept inputs, and so what they start from, are commands as hosts send them.
#[test]
fn every_seed_is_taken_by_a_target() {
    for (name, input) in seeds::function() {
        assert!(commands::is_delivered(&input, false), "{name} does not come to the target");
    }
    for (name, input) in seeds::standard() {
        let admin = !["execute", "memory-write", "memory-read", "memory-fill", "memory-copy"].contains(&name);
        assert!(commands::is_delivered(&input, admin), "{name} does not come to the target");
    }
}
