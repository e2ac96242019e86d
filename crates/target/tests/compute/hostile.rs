//! Commands that make no sense: each is answered with its status, and the target goes on.

use crate::client::{COMPUTE, Client, VOLUME, locally, target};
use crate::common::pattern;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::function::{
    Endpoint, EndpointKind, FunctionKind, FunctionRequest, REQUEST_LEN_MAX, function_opcode,
};

#[test]
fn each_bad_command_has_its_status() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let request = client.over("stats64", &[], 4096).encode();
    let len = request.len() as u32;
    let send = |kind, tag| Sqe::function_send(COMPUTE, kind, tag, 0, len).with_first().with_last();
    let read = FunctionKind::Read;
    let sends = [
        ("version", send(read, 1).with_bits(11, 0, 8, 2), Status::INVALID_FIELD),
        ("kind", send(read, 2).with_bits(11, 8, 8, 99), Status::FUNCTION_KIND_NOT_SUPPORTED),
        ("traverse", send(FunctionKind::Traverse, 3), Status::INVALID_FIELD),
        ("file operation", send(FunctionKind::File, 4), Status::INVALID_FIELD),
        ("another kind than the request's", send(FunctionKind::Write, 5), Status::INVALID_FIELD),
        ("LEN", send(read, 6).with_dword(10, len - 1), Status::INVALID_FIELD),
        ("OFFSET of the first", send(read, 7).with_qword(12, 8), Status::INVALID_FIELD),
        ("NSID", Sqe::function_send(VOLUME, read, 8, 0, len).with_first(), Status::INVALID_OPCODE),
        ("no such NSID", Sqe::function_send(77, read, 8, 0, len).with_first(), Status::INVALID_NAMESPACE_OR_FORMAT),
        ("a request as a layout", Sqe::layout_send(COMPUTE, len), Status::INVALID_FIELD),
    ];
    for (name, sqe, status) in sends {
        let answer = client.queue.command(sqe, Some(&request), 0);
        assert!(answer.status.is(status), "{name}: {} instead of {status}", answer.status);
    }
    let launch = FunctionRequest { kind: FunctionKind::Launch, ..client.over("stats64", &[], 4096) };
    client.send(9, &launch).fails_with(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr());
    // The Receives of a refused request do not wait.
    let cid = client.post_receive(2, 0, 4096, 10_000);
    client.queue.wait(cid).unwrap().fails_with(Status::REQUEST_REFUSED.dnr());

    let mut command = |sqe, len| client.queue.command(sqe, None, len);
    let receive = |len| Sqe::function_receive(COMPUTE, 50, 0, len, 10);
    command(receive(127), 127).fails_with(Status::INVALID_FIELD.dnr());
    command(receive(4096), 4095).fails_with(Status::INVALID_FIELD.dnr());
    command(receive(0), 0).fails_with(Status::INVALID_FIELD.dnr());
    command(Sqe::function_call(COMPUTE, 5, &[], 64, 0), 64).fails_with(Status::UNKNOWN_HANDLE.dnr());
    command(Sqe::function_call(COMPUTE, 5, &[], 64, 0).with_bits(3, 0, 5, 17), 64)
        .fails_with(Status::INVALID_FIELD.dnr());
    command(Sqe::function_call(COMPUTE, 5, &[], 65, 0), 64).fails_with(Status::INVALID_FIELD.dnr());
    let clear = Sqe::new(function_opcode::CLEAR, COMPUTE);
    command(clear.with_bits(10, 0, 4, 9), 0).fails_with(Status::INVALID_FIELD.dnr());
    command(clear.with_bits(10, 0, 4, 1), 0).fails_with(Status::INVALID_FIELD.dnr());
    command(clear, 0).ok();
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
    // One that is too early waits, and is told so in the end.
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
