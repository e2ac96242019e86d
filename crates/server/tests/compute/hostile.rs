//! Commands that make no sense: each is answered with its status, and the target works on.

use crate::client::{COMPUTE, Client, VOLUME, locally, target};
use crate::common::pattern;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, REQUEST_LEN_MAX, function_opcode,
};

/// A command, its data or the length of its buffer, its status, and what the error records say; of a command that no controller
/// passes on, nothing.
type Case<'a> = (&'a str, Sqe, Data<'a>, Status, &'a str);

#[derive(Clone, Copy)]
enum Data<'a> {
    Out(&'a [u8]),
    In(usize),
}

#[test]
fn each_bad_command_says_what_is_wrong() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let request = client.over("stats64", &[], 4096).encode();
    let (len, data) = (request.len() as u32, Data::Out(&request));
    let send = |kind, tag| Sqe::function_send(COMPUTE, kind, tag, 0, len).with_first().with_last();
    let read = FunctionKind::Read;
    let receive = |len| Sqe::function_receive(COMPUTE, 50, 0, len, 10);
    let call = |len| Sqe::function_call(COMPUTE, 5, &[], len, 0);
    let clear = Sqe::new(function_opcode::CLEAR, COMPUTE);
    let (invalid, unfit) = (Status::INVALID_FIELD.dnr(), Status::FUNCTION_KIND_NOT_SUPPORTED.dnr());
    let no_len = "byte 40 of the command: LEN is not the length of the data";
    let no_buffer = "byte 40 of the command: LEN is not the length of the buffer";
    let shortest = "byte 40 of the command: LEN is at least 128, and the length of the buffer";
    let version = "byte 44 of the command: the version is not 1";
    let cases: [Case<'_>; 26] = [
        ("version", send(read, 1).with_bits(11, 0, 8, 2), data, invalid, version),
        ("kind", send(read, 2).with_bits(11, 8, 8, 99), data, unfit, ""),
        ("LEN", send(read, 6).with_dword(10, len - 1), data, invalid, no_len),
        ("LEN, longer", send(read, 6).with_dword(10, len + 1), data, invalid, no_len),
        (
            "OFFSET of the first",
            send(read, 7).with_qword(12, 8),
            data,
            invalid,
            "byte 48 of the command: the first part begins at offset 0",
        ),
        (
            "OFFSET behind everything",
            Sqe::function_send(COMPUTE, read, 7, u64::MAX, len),
            data,
            invalid,
            "byte 48 of the command: the part ends behind 2^64",
        ),
        (
            "a part of nothing",
            Sqe::function_send(COMPUTE, read, 7, 8, 0),
            Data::Out(&[]),
            invalid,
            "byte 40 of the command: a part without data ends the stream, or is none",
        ),
        (
            "a request that ends in its header",
            Sqe::function_send(COMPUTE, read, 7, 0, 63).with_first().with_last(),
            Data::Out(&request[..63]),
            invalid,
            "byte 63 of the data: the request ends before its end",
        ),
        (
            "a request that ends before its end",
            Sqe::function_send(COMPUTE, read, 7, 0, len - 1).with_first().with_last(),
            Data::Out(&request[..len as usize - 1]),
            invalid,
            "byte 95 of the data: the request ends before its end",
        ),
        (
            "a part of a tag that nobody opens",
            Sqe::function_send(COMPUTE, read, 50, 8, len).with_function_timeout_ms(10),
            data,
            Status::UNKNOWN_TAG,
            "",
        ),
        ("NSID", Sqe::function_send(VOLUME, read, 8, 0, len).with_first(), data, Status::INVALID_OPCODE.dnr(), ""),
        (
            "no such NSID",
            Sqe::function_send(77, read, 8, 0, len).with_first(),
            data,
            Status::INVALID_NAMESPACE_OR_FORMAT.dnr(),
            "",
        ),
        (
            "a request as a layout",
            Sqe::layout_send(COMPUTE, len),
            data,
            invalid,
            "byte 2 of the data: the header of version 1 has 40 bytes",
        ),
        ("VER of a layout", Sqe::layout_send(COMPUTE, len).with_bits(11, 0, 8, 2), data, invalid, version),
        ("LEN of a layout", Sqe::layout_send(COMPUTE, len - 1), data, invalid, no_len),
        ("a Receive of 127 bytes", receive(127), Data::In(127), invalid, shortest),
        ("a Receive of nothing", receive(0), Data::In(0), invalid, shortest),
        ("a Receive into less", receive(4096), Data::In(4095), invalid, shortest),
        ("a Receive of a tag that nobody opens", receive(4096), Data::In(4096), Status::UNKNOWN_TAG, ""),
        (
            "a Cancel of a tag that was never open",
            Sqe::function_cancel(COMPUTE, 50, true, 10),
            Data::In(0),
            Status::UNKNOWN_TAG.dnr(),
            "",
        ),
        ("no such HANDLE", call(64), Data::In(64), Status::UNKNOWN_HANDLE.dnr(), ""),
        (
            "ARGLEN",
            call(64).with_bits(3, 0, 5, 17),
            Data::In(64),
            invalid,
            "byte 12 of the command: at most 16 bytes of argument",
        ),
        ("LEN of a Call", call(65), Data::In(64), invalid, no_buffer),
        ("SEL", clear.with_bits(10, 0, 4, 9), Data::In(0), invalid, "byte 40 of the command: this SEL is not known"),
        (
            "no such state",
            clear.with_bits(10, 0, 4, 1),
            Data::In(0),
            invalid,
            "byte 8 of the command: there is no state with this hash",
        ),
        (
            "no such volume",
            clear.with_qword(2, 77),
            Data::In(0),
            Status::NAMESPACE_NOT_REACHABLE.dnr(),
            "there is no volume with namespace ID 77",
        ),
    ];
    for (name, sqe, data, status, told) in cases {
        let (out, in_len) = match data {
            Data::Out(bytes) => (Some(bytes), 0),
            Data::In(len) => (None, len),
        };
        let answer = client.queue.command(sqe, out, in_len);
        assert_eq!(answer.status, status, "{name}");
        let (location, said) = client.said();
        if !told.is_empty() {
            assert_eq!(said, told, "{name}");
            assert_eq!(location.is_some(), said.contains(" of the data: "), "{name}");
        }
    }
    // The Receives of a refused request do not wait.
    let cid = client.post_receive(2, 0, 4096, 10_000);
    client.queue.wait(cid).unwrap().fails_with(Status::REQUEST_REFUSED.dnr());
    client.queue.command(clear, None, 0).ok();
}

#[test]
fn a_tag_is_open_once_and_parts_do_not_overlap() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let stream =
        FunctionRequest { sources: vec![Endpoint::whole(EndpointKind::HostStream)], ..client.over("stats64", &[], 0) };
    let bytes = stream.encode();
    let len = bytes.len() as u32;
    let first = Sqe::function_send(COMPUTE, FunctionKind::Read, 1, 0, len).with_first();
    client.queue.command(first, Some(&bytes), 0).ok();
    client.queue.command(first, Some(&bytes), 0).fails_with(Status::TAG_IN_USE.dnr());
    let part = |offset: u64| Sqe::function_send(COMPUTE, FunctionKind::Read, 1, offset, 8);
    client.queue.command(part(0), Some(&[1; 8]), 0).fails_with(Status::INVALID_FIELD.dnr());
    client.queue.command(part(u64::from(len)), Some(&[1; 8]), 0).ok();
    client.queue.command(part(u64::from(len)), Some(&[1; 8]), 0).fails_with(Status::INVALID_FIELD.dnr());
    client.queue.command(part(u64::MAX - 3), Some(&[1; 8]), 0).fails_with(Status::INVALID_FIELD.dnr());
    // One that is too early waits, and fails in the end.
    let early = part(u64::from(len) + 100).with_function_timeout_ms(20);
    client.queue.command(early, Some(&[1; 8]), 0).fails_with(Status::FUNCTION_BUSY);
    let end = part(u64::from(len) + 8).with_last();
    client.queue.command(end, Some(&[1; 8]), 0).ok();
    let (result, _) = client.finish(1);
    assert_eq!(result, locally("stats64", &[], &[1; 16]));
    // A Receive behind the end, and one before it, of a tag that is closed.
    assert!(client.receive(1, 1 << 40, 4096, 0).answer.end);
}

#[test]
fn a_result_is_handed_out_once() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let input = crate::client::runs(4096);
    client.fill(&input);
    let request = client.over("bitmap", &[], 4096);
    let tag = client.tag();
    client.send(tag, &request).ok();
    let first = client.receive(tag, 0, 1000, 0);
    assert_eq!(first.bytes.len(), 1000);
    let cid = client.post_receive(tag, 500, 1000, 0);
    client.queue.wait(cid).unwrap().fails_with(Status::RESULT_OFFSET_PASSED.dnr());
}

#[test]
fn each_byte_of_a_request_can_be_wrong() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let bytes = pattern(4096, 1);
    client.fill(&bytes);
    let request = FunctionRequest { function: Some("stats64".into()), ..client.over("stats64", &[], 4096) };
    let good = request.encode();
    let mut refused = 0;
    for at in 0..good.len() {
        for byte in [0x00, 0x01, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad[at] = byte;
            let tag = client.tag();
            let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, bad.len() as u32);
            let answer = client.queue.command(sqe.with_first().with_last(), Some(&bad), 0);
            if answer.status.is_success() {
                client.finish(tag);
            } else {
                refused += 1;
            }
        }
    }
    assert!(refused > good.len(), "{refused} of {} were refused", 4 * good.len());
    for len in [0, 1, 63, 64, good.len() - 1] {
        let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, client.tag(), 0, len as u32);
        let answer = client.queue.command(sqe.with_first().with_last(), Some(&good[..len]), 0);
        assert!(!answer.status.is_success(), "a request of {len} bytes");
    }
    let long = FunctionRequest { args: vec![0; REQUEST_LEN_MAX - 200], ..request.clone() };
    client.result(&long);
    assert_eq!(client.result(&request), locally("stats64", &[], &bytes));
}

#[test]
fn random_commands_leave_the_target_working() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let bytes = pattern(4096, 1);
    client.fill(&bytes);
    let request = client.over("stats64", &[], 4096);
    let good = request.encode();
    let noise = pattern(64 * 3000, 77);
    let mut open = Vec::new();
    for (round, dice) in noise.chunks_exact(64).enumerate() {
        let word = |at: usize| u32::from_le_bytes(dice[at..at + 4].try_into().unwrap());
        let mut sqe = Sqe::new(function_opcode::ALL[dice[0] as usize % 6], COMPUTE)
            .with_qword(2, u64::from(dice[1] % 8))
            .with_dword(10, word(4) % 5000)
            .with_dword(11, word(8) % 64)
            .with_qword(12, u64::from(dice[12] % 4) * 256)
            .with_dword(14, 1 + word(16) % 20)
            .with_dword(15, word(20));
        let mut data = None;
        match sqe.opcode() {
            function_opcode::SEND | function_opcode::LAYOUT_SEND => {
                let mut bytes = good.clone();
                if dice[24] % 2 == 0 {
                    let at = word(28) as usize % bytes.len();
                    bytes[at] ^= dice[32] % 4;
                }
                sqe = sqe.with_dword(10, bytes.len() as u32).with_dword(11, 1 | u32::from(1 + dice[33] % 6) << 8);
                if dice[34] % 4 > 0 {
                    sqe = sqe.with_first().with_qword(12, 0);
                }
                data = Some(bytes);
            }
            function_opcode::CALL => sqe = sqe.with_dword(2, u32::from(dice[35] % 4)).with_dword(3, word(36) % 20),
            _ => {}
        }
        let to_host = matches!(sqe.opcode(), function_opcode::RECEIVE | function_opcode::CALL);
        let in_len = if to_host { sqe.function_len() as usize } else { 0 };
        open.push(client.queue.post(sqe, data.as_deref(), in_len).unwrap());
        if open.len() > 20 || round % 7 == 0 {
            for cid in open.drain(..) {
                client.queue.wait(cid).unwrap();
            }
        }
    }
    for cid in open {
        client.queue.wait(cid).unwrap();
    }
    drop(client);
    let mut client = Client::connect(&running);
    assert_eq!(client.result(&request), locally("stats64", &[], &bytes));
}
