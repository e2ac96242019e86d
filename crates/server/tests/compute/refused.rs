//! Requests that are refused when they come: each kind, sent and prepared, with its exact status and what is said about it.

use crate::client::{COMPUTE, Client, VOLUME, target};
use crate::standard::compiled;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, StateName,
};

const PAIR: u16 = 100;
const WALKS: u16 = 101;
const EXEC: u16 = 102;
const ASLEEP: u16 = 103;
const EMPTY: u16 = 104;
const NONE: u16 = 9999;
const MEMORY: u32 = 1023;

const VOLUME_BYTES: Endpoint = Endpoint::new(EndpointKind::Volume(VOLUME), 0, 4096);
const STREAM: Endpoint = Endpoint::whole(EndpointKind::HostStream);
const INVALID: Status = Status::INVALID_FIELD.dnr();

/// A request of the kind that is fine, apart from its program.
fn request(kind: FunctionKind, pind: u16) -> FunctionRequest {
    let sinks = if kind == FunctionKind::Write { vec![VOLUME_BYTES] } else { Vec::new() };
    FunctionRequest { sources: vec![VOLUME_BYTES], sinks, ..FunctionRequest::new(kind, pind) }
}

fn named(kind: FunctionKind, pind: u16, name: &str) -> FunctionRequest {
    FunctionRequest { function: Some(name.into()), ..request(kind, pind) }
}

impl Client {
    fn load_all(&mut self) {
        for (pind, name) in [(PAIR, "pair"), (WALKS, "walk"), (EXEC, "exec"), (ASLEEP, "pair")] {
            self.load(pind, &compiled(name)).ok();
            self.activate(pind, pind != ASLEEP).ok();
        }
    }

    /// Refused as it is, and to be prepared.
    #[track_caller]
    fn both_are_refused(&mut self, request: &FunctionRequest, status: Status, told: &str) {
        self.is_refused(request.kind, request, status, told);
        self.is_refused(FunctionKind::Prepare, request, status, told);
    }
}

#[test]
fn a_program_that_cannot_be_run_is_named() {
    use FunctionKind::{Read, Traverse, Write};
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_all();
    for kind in [Read, Write, Traverse] {
        client.both_are_refused(&request(kind, NONE), Status::INVALID_PROGRAM_INDEX.dnr(), "");
        client.both_are_refused(&request(kind, EMPTY), Status::NO_PROGRAM.dnr(), "");
        client.both_are_refused(&request(kind, ASLEEP), Status::PROGRAM_NOT_ACTIVATED.dnr(), "");
        let pind = if kind == Traverse { WALKS } else { PAIR };
        let programs = client.programs();
        let hash = programs.iter().find(|program| program.pind.get() == pind).unwrap().program_id.get();
        let other = FunctionRequest { program_id: 1, ..request(kind, pind) };
        let told = format!("program {pind} has content hash {hash:#018x}");
        client.both_are_refused(&other, Status::PROGRAM_ID_MISMATCH.dnr(), &told);
    }
    let (missing, unfit) = (Status::FUNCTION_NOT_FOUND.dnr(), Status::FUNCTION_KIND_NOT_SUPPORTED.dnr());
    let shipped = client.pind("stats64");
    for kind in [Read, Write] {
        let cases = [
            (request(kind, PAIR), missing, "the program has several functions: one, two; name one"),
            (named(kind, PAIR, "three"), missing, "the program has no function `three`; it has one, two"),
            (named(kind, shipped, "three"), missing, "the program has no function `three`; it has stats64"),
            (
                named(kind, WALKS, "walk"),
                unfit,
                "`walk` is of kind `traverse`, which this target does not run over sources",
            ),
            (request(kind, EXEC), unfit, "`mark` is of kind `exec`, which this target does not run over sources"),
        ];
        for (request, status, told) in cases {
            client.both_are_refused(&request, status, told);
        }
    }
    let cases = [
        (request(Traverse, WALKS), "the program has several traversals: stroll, walk; name one"),
        (named(Traverse, WALKS, "run"), "the program has no traversal `run`; it has stroll, walk"),
        (request(Traverse, PAIR), "the program has no traversal"),
        (named(Traverse, PAIR, "one"), "the program has no traversal"),
        (request(Traverse, shipped), "the program has no traversal"),
    ];
    for (request, told) in cases {
        client.both_are_refused(&request, missing, told);
    }
    assert_eq!(client.result(&named(Read, PAIR, "two")), [2], "and with what is right it runs");
}

#[test]
fn a_kind_that_cannot_be_prepared_or_run_is_refused() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let pind = client.pind("stats64");
    let unfit = Status::FUNCTION_KIND_NOT_SUPPORTED.dnr();
    client.is_refused(FunctionKind::Prepare, &request(FunctionKind::File, pind), unfit, "");
    let told = "byte 4 of the data: a launch is not prepared: each opens its files anew";
    client.is_refused(FunctionKind::Prepare, &request(FunctionKind::Launch, pind), INVALID, told);
    let told = "byte 4 of the data: this kind is not known";
    client.is_refused(FunctionKind::Prepare, &request(FunctionKind::Prepare, pind), INVALID, told);
    let missing = Status::FUNCTION_NOT_FOUND.dnr();
    client.is_refused(FunctionKind::Launch, &request(FunctionKind::Launch, pind), missing, "the program has no kernel");
    for kind in [FunctionKind::Read, FunctionKind::Write, FunctionKind::Traverse, FunctionKind::File] {
        let other = if kind == FunctionKind::Read { FunctionKind::Write } else { FunctionKind::Read };
        let told = "byte 4 of the data: the kind is not the command's";
        client.is_refused(kind, &request(other, pind), INVALID, told);
    }
}

#[test]
fn sources_and_sinks_that_cannot_be_are_named() {
    use FunctionKind::{Prepare, Read, Traverse, Write};
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_all();
    let walk = named(Traverse, WALKS, "walk");
    let read = named(Read, PAIR, "one");
    let write = named(Write, PAIR, "one");
    let with = |request: &FunctionRequest, sources: &[Endpoint], sinks: &[Endpoint]| FunctionRequest {
        sources: sources.to_vec(),
        sinks: sinks.to_vec(),
        ..request.clone()
    };
    let durable = Endpoint { durable: true, ..Endpoint::new(EndpointKind::Memory(MEMORY), 0, 4096) };
    let cases = [
        (with(&read, &[], &[]), "byte 10 of the data: a call has at least one source"),
        (with(&write, &[], &[VOLUME_BYTES]), "byte 10 of the data: a call has at least one source"),
        (with(&read, &[STREAM, VOLUME_BYTES, STREAM], &[]), "byte 10 of the data: a call has at most one host stream"),
        (with(&read, &[VOLUME_BYTES], &[VOLUME_BYTES]), "byte 12 of the data: a call of kind read has no sinks"),
        (with(&write, &[VOLUME_BYTES], &[]), "byte 12 of the data: a call of kind write has a sink"),
        (
            with(&write, &[VOLUME_BYTES], &[VOLUME_BYTES, durable]),
            "byte 129 of the data: memory is no stable medium: leave out that its output is durable",
        ),
        (with(&write, &[VOLUME_BYTES], &[STREAM]), "byte 96 of the data: this type of source or sink is not known"),
        (with(&walk, &[], &[]), "byte 10 of the data: a traversal has 1 to 64 sources, the files that it may touch"),
        (
            with(&walk, &[VOLUME_BYTES; 65], &[]),
            "byte 10 of the data: a traversal has 1 to 64 sources, the files that it may touch",
        ),
        (with(&walk, &[VOLUME_BYTES], &[VOLUME_BYTES]), "byte 12 of the data: a traversal has no sinks"),
        (with(&walk, &[VOLUME_BYTES, STREAM], &[]), "byte 96 of the data: a traversal cannot read the host's stream"),
        (
            FunctionRequest { result_len_max: (1 << 20) + 1, ..walk.clone() },
            "byte 32 of the data: a traversal has at most 1 MiB of scratch",
        ),
    ];
    for (request, told) in cases {
        client.both_are_refused(&request, INVALID, told);
    }
    let told = "byte 64 of the data: a prepared request has no host stream";
    client.is_refused(Prepare, &with(&read, &[STREAM], &[]), INVALID, told);
    client.is_refused(Prepare, &with(&write, &[STREAM], &[VOLUME_BYTES]), INVALID, told);
}

#[test]
fn a_namespace_that_is_not_there_or_is_another_kind_is_named() {
    use FunctionKind::{Read, Traverse, Write};
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_all();
    let unreachable = Status::NAMESPACE_NOT_REACHABLE.dnr();
    for (kind, id, told) in [
        (EndpointKind::Volume(COMPUTE), COMPUTE, "volume"),
        (EndpointKind::Volume(MEMORY), MEMORY, "volume"),
        (EndpointKind::Volume(0), 0, "volume"),
        (EndpointKind::Volume(u32::MAX), u32::MAX, "volume"),
        (EndpointKind::Memory(VOLUME), VOLUME, "memory"),
        (EndpointKind::Memory(COMPUTE), COMPUTE, "memory"),
        (EndpointKind::Memory(0), 0, "memory"),
    ] {
        let (other, told) = (Endpoint::new(kind, 0, 8), format!("there is no {told} with namespace ID {id}"));
        let sources = vec![VOLUME_BYTES, other];
        for request in [
            FunctionRequest { sources: sources.clone(), ..named(Read, PAIR, "one") },
            FunctionRequest { sources: sources.clone(), ..named(Traverse, WALKS, "walk") },
            FunctionRequest { sinks: sources.clone(), ..named(Write, PAIR, "one") },
        ] {
            client.both_are_refused(&request, unreachable, &told);
        }
    }
}

#[test]
fn named_states_are_bounded_in_number_and_size() {
    const MIB: u32 = 1 << 20;
    let running = target(1);
    let mut client = Client::connect(&running);
    let plain = client.over("stats64", &[], 4096);
    let state = |name: &str, len_bytes| FunctionRequest {
        state: Some(StateName { name: name.into(), len_bytes }),
        ..plain.clone()
    };
    client.both_are_refused(&state("a", 16 * MIB + 1), INVALID, "a named state has at most 16 MiB");
    client.result(&state("a", 64));
    client.both_are_refused(&state("a", 65), INVALID, "the state `a` has 64 bytes");
    let full = Status::INSUFFICIENT_RESOURCES.dnr();
    // Too many bytes together.
    for name in ["b", "c", "d"] {
        client.result(&state(name, 16 * MIB));
    }
    let told = format!("this host has 4 named states of {} bytes, all that it may have", 48 * MIB + 64);
    client.both_are_refused(&state("e", 16 * MIB), full, &told);
    client.result(&state("e", 16 * MIB - 64));
    // Too many of them.
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    for index in 0..64 {
        other.result(&state(&index.to_string(), 8));
    }
    let told = "this host has 64 named states of 512 bytes, all that it may have";
    other.both_are_refused(&state("64", 8), full, told);
    other.result(&state("63", 8));
}

/// A handle is of one controller, and of one request.
#[test]
fn a_handle_means_nothing_anywhere_else() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let mut other = Client::connect(&running);
    let request = client.over("stats64", &[], 4096);
    let handle = client.prepare(&request);
    client.call(handle, &[], 4096).ok();
    let unknown = Status::UNKNOWN_HANDLE.dnr();
    let clear = |handle: u64| Sqe::function_clear(COMPUTE, ClearSelect::Prepared, handle, 0..0);
    other.call(handle, &[], 4096).fails_with(unknown);
    other.queue.command(clear(handle.into()), None, 0).fails_with(unknown);
    for handle in [0, handle + 1, u32::MAX] {
        client.call(handle, &[], 4096).fails_with(unknown);
        client.queue.command(clear(handle.into()), None, 0).fails_with(unknown);
    }
    client.queue.command(clear(u64::from(handle) | 1 << 32), None, 0).fails_with(unknown);
    client.call(handle, &[], 4096).ok();
    client.queue.command(clear(handle.into()), None, 0).ok();
    client.call(handle, &[], 4096).fails_with(unknown);
}
