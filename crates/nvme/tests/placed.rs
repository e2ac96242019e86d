//! Data that a shell receives right into its place.

mod support;

use diskside_nvme::controller::{BlockSize, CommandSet, Completion, MediumId, Namespace, Operation, SubsystemConfig};
use diskside_nvme::host::{Data, Submission};
use diskside_nvme::wire::Sqe;
use diskside_nvme::{BufferSlice, Buffers, Nqn, Transmit};
use support::pair::{Pair, SUBSYSTEM, Target, admin_config, bytes_of, namespace};

const LARGE_READ: u8 = 0x82;
const WRITTEN: usize = 64 << 10;

/// A target whose namespace 4 answers a command with as much as the host asks for.
fn target() -> Target {
    let set = CommandSet { csi: 4, io_commands: vec![(LARGE_READ, 0)], ..CommandSet::default() };
    let config =
        SubsystemConfig { command_sets: vec![set], ..SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1") };
    let mut target = Target::with_config(config);
    target.add(1, 1 << 10, BlockSize::B512);
    let other = Namespace { csi: 4, blocks: 0, ..namespace(4, MediumId(99), 0, BlockSize::B512) };
    target.subsystem.add_namespace(other).unwrap();
    target
}

/// While a receive into its place is under way, answers to other commands may pile up until no more input is welcome.
/// The bytes that then come are in their place all the same: left to be offered again they would be lost, and the rest
/// of the stream with them.
#[test]
fn what_is_in_its_place_is_taken_although_input_is_unwelcome() {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let now = pair.now;
    let (io, end) = pair.io.as_mut().unwrap();
    let (controller, memory) = (&mut end.connection, &mut pair.target.memory);
    let data: Vec<u8> = (0..WRITTEN).map(|at| (at / 512 + at % 251) as u8).collect();
    let source = pair.memory.insert(data.clone());

    let read =
        Submission { sqe: Sqe::new(LARGE_READ, 4), data: Data::ReceiveBytes(512 << 10), user_data: 1, timeout: None };
    let write = Submission {
        sqe: Sqe::write(1, 0, (WRITTEN / 512) as u32),
        data: Data::Send(BufferSlice::new(source, WRITTEN as u32)),
        user_data: 2,
        timeout: None,
    };
    io.submit(now, read, &mut pair.memory).unwrap();
    io.submit(now, write, &mut pair.memory).unwrap();
    let mut transmit = Transmit::new();
    assert!(io.poll_transmit(&mut transmit));
    let commands = bytes_of(&mut transmit, &mut pair.memory, false);
    io.handle_transmitted(&mut transmit);
    assert_eq!(controller.handle_bytes(now, &commands, memory), commands.len());
    assert_eq!(controller.awaited_bytes(), WRITTEN as u64, "the write was asked for its data");
    let asked = controller.poll_request().expect("the read is the embedder's");

    assert!(controller.poll_transmit(&mut transmit));
    let r2t = bytes_of(&mut transmit, memory, true);
    controller.handle_transmitted(&mut transmit);
    io.handle_bytes(now, &r2t, &mut pair.memory);
    assert!(io.poll_transmit(&mut transmit));
    let sent = bytes_of(&mut transmit, &mut pair.memory, false);
    io.handle_transmitted(&mut transmit);
    let (first, rest) = sent.split_at(24 + 1000);
    assert_eq!(controller.handle_bytes(now, first, memory), first.len());
    assert_eq!(controller.awaited_bytes(), 0, "its data has begun to come");
    let place = controller.receive_target().expect("the rest belongs into the write's buffer");
    assert_eq!((place.offset, place.len), (1000, (WRITTEN - 1000) as u32));

    controller.complete(now, asked.tag, Completion::bytes(vec![1; 512 << 10]), memory);
    assert!(!controller.wants_input() && controller.receive_target().is_none());
    memory.write(place.buffer, place.offset, rest);
    controller.handle_received(now, rest, memory);
    let request = controller.poll_request().expect("all data of the write came");
    let Operation::Write { data: came, .. } = request.operation else { panic!("{request:?} is no write") };
    assert_eq!(memory.slice(came), data);
    memory.release(came.buffer);
    controller.handle_close(memory);
    assert_eq!(memory.in_use(), 0);
}
