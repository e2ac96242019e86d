//! The charges for a host's rates: each kind of command counts, and the bytes that it moves in either direction.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::client::{COMPUTE, Client, VOLUME, runs};
use crate::common::{Queue, pattern};
use crate::quotas::{BOB, config_of, limit, target};
use crate::standard::MEMORY;
use diskside_nvme::wire::{CopySourceEntry, DsmRange, Sqe};
use diskside_server::Running;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, function_log, quota_limit,
};
use zerocopy::IntoBytes;

/// More than a minute's worth of bytes: nobody here waits for so long.
const LEN: usize = 4 << 20;
const BYTES: (&str, u32) = ("[[quota]]\nof = ['ann']\nbytes_per_s = '64KiB'\n", quota_limit::BYTES_PER_S);
/// Blocks of a part of the volume. The first part is read, the next two are written, and the last one has [`runs`].
const PART: u64 = LEN as u64 / 4096;
/// How much longer than [`runs`] the result of `bitmap` is.
const EXPANDS: u64 = 32;
const IOPS: (&str, u32) = ("[[quota]]\nof = ['ann']\niops = 1\n", quota_limit::IOPS);
/// A command counts for a second of [`IOPS`]. Where the machine takes longer from it to the one right behind it, it is done again.
const TRIES: usize = 20;

/// A command that a host does.
struct Act {
    sqe: Sqe,
    out: Vec<u8>,
    in_len: usize,
    admin: bool,
    /// It is to end with an error.
    is_wrong: bool,
}

impl Act {
    fn new(sqe: Sqe) -> Self {
        Self { sqe, out: Vec::new(), in_len: 0, admin: false, is_wrong: false }
    }

    fn sends(sqe: Sqe, out: impl Into<Vec<u8>>) -> Self {
        Self { out: out.into(), ..Self::new(sqe) }
    }

    fn gets(sqe: Sqe, in_len: usize) -> Self {
        Self { in_len, ..Self::new(sqe) }
    }

    fn log(lid: u8, index: u16, in_len: usize) -> Self {
        let sqe = Sqe::get_log_page(lid, 0, in_len as u32, 0, false).with_log_specific_id(index);
        Self { admin: true, ..Self::gets(sqe, in_len) }
    }

    fn queue<'a>(&self, client: &'a mut Client) -> &'a mut Queue {
        if self.admin { &mut client.controller.admin } else { &mut client.queue }
    }

    fn post(&self, client: &mut Client) -> u16 {
        let out = Some(&self.out[..]).filter(|out| !out.is_empty());
        self.queue(client).post(self.sqe, out, self.in_len).unwrap()
    }

    fn finish(&self, client: &mut Client, cid: u16) {
        let answer = self.queue(client).wait(cid).unwrap();
        if self.is_wrong {
            assert!(!answer.status.is_success());
        } else {
            answer.ok();
        }
    }
}

/// Does whatever a command needs that moves so many bytes, and gives the command.
type Prepare = fn(&mut Client, usize) -> Act;

const fn blocks(len: usize) -> u32 {
    len as u32 / 4096
}

/// A request that takes what its host sends.
fn of_stream(client: &mut Client) -> FunctionRequest {
    FunctionRequest { sources: vec![Endpoint::whole(EndpointKind::HostStream)], ..client.over("wc", &[], 0) }
}

/// Commands that move all these bytes.
const MOVING: [(&str, Prepare); 11] = [
    ("read", |_, len| Act::gets(Sqe::read(VOLUME, 0, blocks(len)), len)),
    ("write", |_, len| Act::sends(Sqe::write(VOLUME, 0, blocks(len)), pattern(len, 1))),
    ("compare", |_, len| Act::sends(Sqe::compare(VOLUME, 0, blocks(len)), pattern(len, 1))),
    ("verify", |_, len| Act::new(Sqe::verify(VOLUME, 0, blocks(len)))),
    ("write zeroes", |_, len| Act::new(Sqe::write_zeroes(VOLUME, 2 * PART, blocks(len), false))),
    ("copy", |_, len| {
        let source = CopySourceEntry::new(0, 0, blocks(len));
        Act::sends(Sqe::copy(VOLUME, PART, 1, 0), source.as_bytes())
    }),
    ("input of a call", |client, len| {
        let (tag, mut bytes) = (client.tag(), of_stream(client).encode());
        bytes.resize(len, 7);
        let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, len as u32).with_first().with_last();
        Act::sends(sqe, bytes)
    }),
    ("result of a call", |client, len| {
        let (tag, request) = (client.tag(), client.over("stats64", &[], 4096));
        client.send(tag, &request).ok();
        Act::gets(Sqe::function_receive(COMPUTE, tag, 0, len as u32, 0).with_pad(), len)
    }),
    ("result of a prepared call", |client, len| {
        let sources = vec![Endpoint::new(EndpointKind::Volume(VOLUME), 3 * LEN as u64, len as u64 / EXPANDS)];
        let over = FunctionRequest { sources, ..client.over("bitmap", &[], 0) };
        let handle = client.prepare(&over);
        Act::gets(Sqe::function_call(COMPUTE, handle, &[], len as u32, 0), len)
    }),
    ("log page of functions", |_, len| Act::log(function_log::PROGRAMS, 0, len)),
    ("read of device memory", |_, len| Act::gets(Sqe::memory_read(MEMORY, 0, len as u32), len)),
];

/// Commands that move few bytes or none between host and server, and are not a copy.
const STILL: [(&str, Prepare); 5] = [
    ("flush", |_, _| Act::new(Sqe::flush(VOLUME))),
    ("deallocate", |_, len| Act::sends(Sqe::deallocate(VOLUME, 1), DsmRange::new(2 * PART, blocks(len)).as_bytes())),
    ("what a call reads at the server", |client, len| {
        let over = client.over("stats64", &[], len as u64);
        let handle = client.prepare(&over);
        Act::gets(Sqe::function_call(COMPUTE, handle, &[], 512, 0), 512)
    }),
    ("activation", |_, _| Act { admin: true, ..Act::new(Sqe::activate_program(COMPUTE, 0, true)) }),
    ("cancel", |client, _| {
        let (tag, request) = (client.tag(), client.over("stats64", &[], 4096));
        client.send(tag, &request).ok();
        Act::new(Sqe::function_cancel(COMPUTE, tag, false, 0))
    }),
];

/// A target, and one that looks at it without a limit.
struct World {
    running: Running,
    bob: Client,
    hosts: u32,
}

impl World {
    fn new() -> Self {
        let running = target("");
        let mut bob = Client::connect_as(&running, BOB);
        bob.fill(&pattern(LEN, 1));
        bob.queue.write(VOLUME, 3 * PART, &runs(LEN / EXPANDS as usize)).ok();
        Self { running, bob, hosts: 0 }
    }

    fn reload(&self, quota: &str) {
        let host =
            format!("[[host]]\nname = '{}'\nnqn = 'nqn.2026-11.org.example:{0}'\ngroups = ['ann']\n", self.host());
        self.running.handle().reload_hosts(&config_of(&format!("{host}{quota}"))).unwrap();
    }

    fn host(&self) -> String {
        format!("host-{}", self.hosts)
    }

    /// Whether a host has to wait for this limit that sends this command, and then a short read: right behind it, or when it has
    /// ended. Each time it is another host, which owes nothing yet.
    fn waits(&mut self, (quota, number): (&str, u32), prepare: Prepare, len: usize, right_behind: bool) -> bool {
        self.hosts += 1;
        // The host before this one may not connect any more, and is disconnected.
        self.reload("");
        let host = self.host();
        let mut client = Client::connect_as(&self.running, &format!("nqn.2026-11.org.example:{host}"));
        let act = prepare(&mut client, len);
        self.reload(quota);
        let acts = act.post(&mut client);
        if !right_behind {
            act.finish(&mut client, acts);
        }
        let reads = client.queue.post(Sqe::read(VOLUME, 0, 1), None, 4096).unwrap();
        let ended = AtomicBool::new(false);
        let waits = |world: &mut Self| limit(&mut world.bob, &host, number).operations.get() > 0;
        std::thread::scope(|scope| {
            let both = scope.spawn(|| {
                if right_behind {
                    act.finish(&mut client, acts);
                }
                client.queue.wait(reads).unwrap().ok();
                ended.store(true, Ordering::Release);
            });
            // One of the two happens.
            let mut is_seen = false;
            while !is_seen && !ended.load(Ordering::Acquire) {
                is_seen = waits(self);
            }
            self.reload("");
            both.join().unwrap();
            self.reload(quota);
            let has_waited = waits(self);
            self.reload("");
            assert!(has_waited || !is_seen);
            has_waited
        })
    }
}

/// Only reads of volumes were tested: results, input, log pages and copies could have been free of charge. Here a host does one such
/// command, which owes more than a minute, and its next read waits, as the counters of the limit say.
#[test]
fn bytes_of_every_command_are_paid_for_in_either_direction() {
    let mut world = World::new();
    let paid = |(_, prepare): &(&str, Prepare)| world.waits(BYTES, *prepare, LEN, false);
    let paid: Vec<_> = MOVING.into_iter().chain(STILL).filter(paid).map(|(what, _)| what).collect();
    assert_eq!(paid, MOVING.map(|(what, _)| what));
}

/// The same of commands: each counts as one, whatever it does.
#[test]
fn every_command_counts_in_the_rate_of_commands() {
    let mut world = World::new();
    let mut counts = |prepare| (0..TRIES).any(|_| world.waits(IOPS, prepare, 8192, true));
    let free: Vec<_> = MOVING.into_iter().chain(STILL).filter(|(_, prepare)| !counts(*prepare)).collect();
    assert!(free.is_empty(), "{:?}", free.into_iter().map(|(what, _)| what).collect::<Vec<_>>());
}

/// Refused commands were free of charge: a host could send as many of them as its connections carried, whatever its rate.
#[test]
fn commands_that_are_refused_count_in_the_rate_of_commands() {
    const WRONG: [(&str, Prepare); 3] = [
        ("a read behind the end", |_, len| Act {
            is_wrong: true,
            ..Act::gets(Sqe::read(VOLUME, 1 << 40, blocks(len)), len)
        }),
        ("a read of nothing that is there", |_, len| Act {
            is_wrong: true,
            ..Act::gets(Sqe::read(77, 0, blocks(len)), len)
        }),
        ("a log page that there is not", |_, len| Act { is_wrong: true, ..Act::log(0x7f, 0, len) }),
    ];
    let mut world = World::new();
    let mut counts = |prepare| (0..TRIES).any(|_| world.waits(IOPS, prepare, 8192, true));
    let free: Vec<_> = WRONG.into_iter().filter(|(_, prepare)| !counts(*prepare)).map(|(what, _)| what).collect();
    assert!(free.is_empty(), "{free:?}");
}
