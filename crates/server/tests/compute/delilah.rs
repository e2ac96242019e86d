//! Programs of Delilah: executed over a data slot with a shared state, as its hosts did, and called over sources.

use crate::client::{COMPUTE, Client, target};
use crate::standard::range;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::Execution;
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, StateName, TierHint,
};
use zerocopy::IntoBytes as _;

const FREE: u16 = 100;
const SLOT_LEN: u32 = 4096;
/// A column of 1,000 rows, of which those above the bound are wanted.
const ROWS: u64 = 1000;
const BOUND: u64 = 900;

/// A data slot as the host writes it.
fn slot() -> Vec<u8> {
    let mut slot: Vec<u8> = [ROWS, BOUND, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    slot.extend(column().flat_map(u32::to_le_bytes));
    slot.resize(SLOT_LEN as usize, 0);
    slot
}

fn column() -> impl Iterator<Item = u32> {
    (0..ROWS as u32).map(|row| row * 7919 % 1000)
}

/// The output of the program: the slot with the number of matches, and the matches where the column began.
fn selected() -> (u64, Vec<u8>) {
    let matches: Vec<u32> =
        (0..).zip(column()).filter(|(_, value)| u64::from(*value) > BOUND).map(|(row, _)| row).collect();
    let mut slot = slot();
    slot[16..24].copy_from_slice(&(matches.len() as u64).to_le_bytes());
    for (at, row) in slot[32..].chunks_mut(4).zip(&matches) {
        at.copy_from_slice(&row.to_le_bytes());
    }
    (matches.len() as u64, slot)
}

/// Its source names no kind: the header that it includes does.
#[test]
fn a_program_selects_in_its_data_slot_and_finds_the_shared_state_again() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_exec(FREE, "select");
    let (matches, expected) = selected();
    assert!(matches > 90, "{matches}");
    let first = client.create_set(&[range(0, SLOT_LEN)]).result as u16;
    let second = client.create_set(&[range(1 << 20, SLOT_LEN)]).result as u16;
    let run = Execution { pind: FREE, rsid: first, ..Execution::default() };

    // Without a state it returns what it found.
    client.memory_write(0, &slot()).ok();
    let answer = client.execute(run, &[]);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, matches), "RVAL is what it returned");
    assert_eq!(client.memory_read(0, SLOT_LEN), expected);

    // With one, what all executions found, over whichever slot.
    let with_state = Execution { cparam1: 7, cparam2: 64, ..run };
    for (turn, rsid, start) in [(1, first, 0), (2, second, 1 << 20), (3, first, 0)] {
        client.memory_write(start, &slot()).ok();
        let answer = client.execute(Execution { rsid, ..with_state }, &[]);
        assert_eq!((answer.status, answer.result), (Status::SUCCESS, turn * matches), "turn {turn}");
        assert_eq!(client.memory_read(start, SLOT_LEN), expected);
    }
    // Another number is another state, another host has states of its own, and a state is cleared by its number.
    let found_by = |client: &mut Client, pind, cparam1| {
        client.memory_write(0, &slot()).ok();
        let set = client.create_set(&[range(0, SLOT_LEN)]).result as u16;
        client.execute(Execution { pind, rsid: set, cparam1, ..with_state }, &[]).result
    };
    let found = |client: &mut Client, cparam1| found_by(client, with_state.pind, cparam1);
    assert_eq!(found(&mut client, 8), matches);
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    other.load_exec(FREE + 9, "select");
    assert_eq!(found_by(&mut other, FREE + 9, 7), matches);
    client.clear_state(7).ok();
    assert_eq!(found(&mut client, 7), matches);
    // Its second word alone: the first counts on.
    client.queue.command(Sqe::function_clear(COMPUTE, ClearSelect::State, 7, 8..16), None, 0).ok();
    assert_eq!(found(&mut client, 7), matches);
    assert_eq!(found(&mut client, 7), 2 * matches);
}

#[test]
fn a_state_is_shared_with_calls_that_name_it_and_has_one_length() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_exec(FREE, "select");
    client.load_counter(FREE + 1);
    let set = client.create_set(&[range(0, SLOT_LEN)]).result as u16;
    client.memory_write(0, &slot()).ok();
    let name = StateName { name: "count".into(), len_bytes: 64 };
    let id = StateName::id_of(&name.name);
    let run = Execution { pind: FREE, rsid: set, cparam1: id, cparam2: 64, ..Execution::default() };
    let (matches, _) = selected();
    assert_eq!(client.execute(run, &[]).result, matches);
    // The function counts in the first word, as the program does.
    let counts = client.counts(false);
    assert_eq!(client.result(&counts), 2_u64.to_le_bytes());
    let mut refused = |execution: Execution, told: &str| {
        client.execute(execution, &[]).fails_with(Status::INVALID_FIELD.dnr());
        assert_eq!(client.errors()[0].message, told);
    };
    refused(Execution { cparam2: 128, ..run }, "the state `count` has 64 bytes");
    refused(Execution { cparam2: 17 << 20, ..run }, "a named state has at most 16 MiB");
    refused(
        Execution { cparam2: 0, ..run },
        "byte 48 of the command: CPARAM2 is the length of the state that CPARAM1 names, at least 1 byte",
    );
}

/// The slot is a copy of what is read: a file or a volume is written only by a call that has a sink.
#[test]
fn a_call_gives_back_the_slot_as_the_program_left_it_in_every_tier() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_exec(FREE, "select");
    client.memory_write(0, &slot()).ok();
    let (matches, expected) = selected();
    let source = |start| Endpoint::new(EndpointKind::Memory(crate::standard::MEMORY), start, SLOT_LEN.into());
    let request = FunctionRequest { sources: vec![source(0)], ..FunctionRequest::new(FunctionKind::Read, FREE) };
    for tier in [TierHint::Best, TierHint::Interpreter, TierHint::Cranelift] {
        let (result, trailer) = client.run(&FunctionRequest { tier, ..request.clone() });
        assert_eq!((trailer.outcome, trailer.returned), (Outcome::Ok, matches as i64), "{}", trailer.message);
        assert!(result == expected);
    }
    assert_eq!(client.memory_read(0, SLOT_LEN), slot(), "what was read stays as it was");
    // With a state, over two sources: one run after another.
    let state = Some(StateName { name: "found".into(), len_bytes: 16 });
    let (sources, sinks) = (vec![source(0), source(0)], vec![source(1 << 20), source(2 << 20)]);
    let into = FunctionRequest { sources, sinks, state, ..FunctionRequest::new(FunctionKind::Write, FREE) };
    let (_, trailer) = client.run(&into);
    assert_eq!((trailer.outcome, trailer.returned), (Outcome::Ok, 2 * matches as i64), "{}", trailer.message);
    for start in [1 << 20, 2 << 20] {
        assert_eq!(client.memory_read(start, SLOT_LEN), expected);
    }
    // Prepared, it runs on an engine.
    let handle = client.prepare(&request);
    let call = Sqe::function_call(COMPUTE, handle, &[], SLOT_LEN, 0);
    assert_eq!(client.queue.command(call, None, SLOT_LEN as usize).ok(), expected);
}

/// Whatever a program tries, nothing but its slot and its state changes, and the host hears where it was stopped.
#[test]
fn a_hostile_program_is_stopped_at_the_bounds_of_its_slot_and_its_state() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_exec(FREE, "beyond");
    let run = Execution { pind: FREE, ranges: 1, data_len: 32, cparam1: 1, cparam2: 16, ..Execution::default() };
    let slot = range(4096, 64);
    let cases = [
        (1, "out-of-bounds write of 1 bytes of range 0 at offset 64, which is 64 bytes long"),
        (2, "out-of-bounds write of 1 bytes of range 0 at offset -1, which is 64 bytes long"),
        (3, "out-of-bounds write of 1 bytes of state at offset 16, which is 16 bytes long"),
        (4, "write of 1 bytes of range 1 at offset 0, where nothing is mapped"),
        (5, "budget"),
        (6, "out-of-bounds write of 9 bytes of range 0 at offset 56, which is 64 bytes long"),
    ];
    for (how, told) in cases {
        client.memory_write(4096, &[&u64::to_le_bytes(how)[..], &[0; 56]].concat()).ok();
        client.execute(run, slot.as_bytes()).fails_with(Status::FUNCTION_FAILED.dnr());
        let message = client.errors().swap_remove(0).message;
        assert!(message.contains(told) && message.contains("beyond.bpf.c:"), "{how}: {message}");
        let (before, behind) = (client.memory_read(0, 4096), client.memory_read(4160, 4096));
        assert!(before.iter().chain(&behind).all(|byte| *byte == 0), "{how}: it wrote beside its slot");
    }
    // Its return value is a number like any other, also where an errno would be negative.
    client.memory_write(4096, &[0; 64]).ok();
    let answer = client.execute(run, slot.as_bytes());
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, u64::MAX));
    let two = [range(4096, 64), range(8192, 64)];
    let both = Execution { ranges: 2, data_len: 64, ..run };
    client.execute(both, two.as_bytes()).fails_with(Status::INVALID_FIELD.dnr());
    let told = &client.errors()[0].message;
    assert_eq!(told, "delilah/beyond was given 2 memory ranges: it takes one, and no data");
}
