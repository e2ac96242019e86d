//! Where each field stands, as `docs/wire.md` has it, and what hostile bytes lead to.

use std::mem::offset_of;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::endpoint::EndpointEntry;
use super::log::ErrorRecordHeader;
use super::*;
use diskside_nvme::Status;
use diskside_nvme::wire::{Direction, ProgramIdType, Sqe, direction};

/// The bytes that a command sets, beside opcode and flags.
fn set_bytes(sqe: Sqe) -> Vec<(usize, u8)> {
    let blank = Sqe::new(sqe.opcode(), 0);
    let pairs = blank.as_bytes().iter().zip(sqe.as_bytes()).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(|(at, (_, byte))| (at, *byte)).collect()
}

const TAG: u64 = 0x0807_0605_0403_0201;
const OFFSET: u64 = 0x1817_1615_1413_1211;
const TAG_BYTES: [(usize, u8); 8] = [(8, 1), (9, 2), (10, 3), (11, 4), (12, 5), (13, 6), (14, 7), (15, 8)];
const OFFSET_BYTES: [(usize, u8); 8] =
    [(48, 0x11), (49, 0x12), (50, 0x13), (51, 0x14), (52, 0x15), (53, 0x16), (54, 0x17), (55, 0x18)];
const LEN_BYTES: [(usize, u8); 3] = [(40, 0x23), (41, 0x22), (42, 0x21)];

fn joined(parts: &[&[(usize, u8)]]) -> Vec<(usize, u8)> {
    let mut all = parts.concat();
    all.sort_unstable();
    all
}

#[test]
fn each_field_of_a_command_stands_in_its_dword() {
    let send = Sqe::function_send(0, FunctionKind::Write, TAG, OFFSET, 0x21_2223)
        .with_first()
        .with_last()
        .with_function_timeout_ms(0x3132);
    let want = [&TAG_BYTES[..], &LEN_BYTES, &OFFSET_BYTES, &[(44, 1), (45, 2), (46, 3), (56, 0x32), (57, 0x31)]];
    assert_eq!(set_bytes(send), joined(&want));
    assert_eq!((send.function_version(), send.function_kind()), (1, 2));
    assert_eq!((send.function_tag(), send.function_offset(), send.function_len()), (TAG, OFFSET, 0x21_2223));
    assert!(send.is_first() && send.is_last());
    assert_eq!(send.function_timeout_ms(), 0x3132);

    let receive = Sqe::function_receive(0, TAG, OFFSET, 0x21_2223, 0x3132).with_fill().with_pad();
    let want = [&TAG_BYTES[..], &LEN_BYTES, &OFFSET_BYTES, &[(44, 3), (56, 0x32), (57, 0x31)]];
    assert_eq!(set_bytes(receive), joined(&want));
    assert!(receive.fills() && receive.pads());
    assert!(!Sqe::function_receive(0, 1, 2, 3, 4).fills() && !Sqe::function_receive(0, 1, 2, 3, 4).pads());

    let args: Vec<u8> = (0x51..=0x60).collect();
    let call = Sqe::function_call(0, 0x0403_0201, &args, 0x21_2223, 0x3132);
    let inline: Vec<_> = (48..64).zip(0x51..=0x60).collect();
    let want = [&TAG_BYTES[..4], &[(12, 16)], &LEN_BYTES, &[(44, 0x32), (45, 0x31)], &inline];
    assert_eq!(set_bytes(call), joined(&want));
    assert_eq!((call.call_handle(), call.call_timeout_ms()), (0x0403_0201, 0x3132));
    assert_eq!(call.call_args(), (args.try_into().unwrap(), 16));
    assert_eq!(Sqe::function_call(0, 1, &[7; 5], 0, 0).call_args().1, 5);

    let cancel = Sqe::function_cancel(0, TAG, true, 0x3132);
    assert_eq!(set_bytes(cancel), joined(&[&TAG_BYTES[..], &[(44, 1), (56, 0x32), (57, 0x31)]]));
    assert!(cancel.cancel_waits() && !Sqe::function_cancel(0, TAG, false, 0).cancel_waits());

    assert_eq!(set_bytes(Sqe::layout_send(0, 0x21_2223)), joined(&[&LEN_BYTES[..], &[(44, 1)]]));

    let clear = Sqe::function_clear(0, ClearSelect::Prepared, TAG, OFFSET..OFFSET + 0x4142);
    assert_eq!(set_bytes(clear), joined(&[&TAG_BYTES[..], &[(40, 2), (56, 0x42), (57, 0x41)], &OFFSET_BYTES]));
    assert_eq!(ClearSelect::from_bits(clear.clear_select()), Some(ClearSelect::Prepared));
    assert_eq!(clear.clear_range(), (OFFSET, 0x4142));
}

#[test]
fn opcodes_say_which_way_their_data_goes() {
    use function_opcode::{CALL, CANCEL, CLEAR, LAYOUT_SEND, RECEIVE, SEND};
    assert_eq!([SEND, RECEIVE, CANCEL, LAYOUT_SEND, CALL, CLEAR], [0x81, 0x82, 0x84, 0x85, 0x86, 0x88]);
    assert_eq!([SEND, LAYOUT_SEND].map(direction), [Direction::ToController; 2]);
    assert_eq!([RECEIVE, CALL].map(direction), [Direction::ToHost; 2]);
    assert_eq!([CANCEL, CLEAR].map(direction), [Direction::None; 2]);
    for kind in 0..=u8::MAX {
        assert_eq!(FunctionKind::from_byte(kind).map(|kind| kind as u8), Some(kind).filter(|k| (1..=6).contains(k)));
    }
}

#[test]
fn load_program_and_activation_stand_in_their_dwords() {
    let load = Sqe::load_program(0, 0x0201, 0x0807_0605, 0x1817_1615, 0x1413_1211).with_puid(OFFSET);
    let want = [
        &[(40, 1), (41, 2), (42, 0xc0), (43, 1 << 1), (44, 5), (45, 6), (46, 7), (47, 8)],
        &OFFSET_BYTES[..],
        &[(56, 0x11), (57, 0x12), (58, 0x13), (59, 0x14), (60, 0x15), (61, 0x16), (62, 0x17), (63, 0x18)],
    ];
    assert_eq!(set_bytes(load), joined(&want));
    assert_eq!((load.program_index(), load.program_type(), load.program_len()), (0x0201, 0xc0, 0x0807_0605));
    assert_eq!((load.load_offset(), load.load_len()), (0x1817_1615, 0x1413_1211));
    assert_eq!((load.program_id_type(), load.program_puid()), (Some(ProgramIdType::Puid), OFFSET));
    assert_eq!(load.with_bits(10, 25, 3, 2).program_id_type(), None);
    assert!(!load.unloads_program() && Sqe::unload_program(0, 3).unloads_program());
    assert_eq!(set_bytes(Sqe::unload_program(0, 3)), [(40, 3), (43, 1)]);
    assert_eq!(set_bytes(Sqe::activate_program(0, 3, true)), [(40, 3), (42, 1)]);
    assert_eq!(Sqe::activate_program(0, 3, false).activation_select(), 0);
}

#[test]
fn answers_tell_result_and_trailer_apart() {
    let answer = ReceiveAnswer { result_len: 0x10, trailer_len: 0x80, end: true, pending: false };
    assert_eq!(answer.to_result(), 0x0080_0001_0000_0090);
    assert_eq!(ReceiveAnswer::from_result(answer.to_result()), Some(answer));
    let pending = ReceiveAnswer { result_len: 5, pending: true, ..ReceiveAnswer::default() };
    assert_eq!(pending.to_result(), 0x0000_0002_0000_0005);
    assert_eq!(ReceiveAnswer::from_result(pending.to_result()), Some(pending));
    assert_eq!(ReceiveAnswer::from_result(0x0080_0001_0000_007f), None, "a trailer longer than what came");
    let full = ReceiveAnswer { result_len: 24, trailer_len: 0, end: true, pending: false };
    assert_eq!(ReceiveAnswer::from_call_result(0, 24), Some(full));
    assert_eq!(ReceiveAnswer::from_call_result(answer.to_result(), 24), Some(answer));
}

macro_rules! offsets {
    ($($type:ident { $($field:ident: $offset:expr),* $(,)? })*) => {
        $($(assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));)*)*
    };
}

#[test]
fn structures() {
    offsets! {
        TrailerHeader {
            version: 0, len: 2, outcome: 4, returned: 8, result_len: 16, media_read: 24, media_written: 32, durable: 40,
            times_us: 48, back_edges: 72, insn: 80, trap_kind: 84, region: 86, trap_offset: 88, bound: 96, hop: 104,
            helper: 108, generation: 112, message_len: 120, tlv_len: 124,
        }
        EndpointEntry { kind: 0, flags: 1, id: 4, offset: 8, len: 16, generation: 24 }
        CapabilityPage {
            abi_version: 4, engines: 6, opcodes: 8, kinds: 16, source_kinds: 20, sink_kinds: 24, tiers: 28,
            request_len_max: 32, chunk_len_max: 36, chunk_len_default: 40, program_len_max: 44, folded_len_max: 48,
            wait_max_ms: 56, tags_max: 60, prepared_max: 64, programs: 68, host_programs_max: 72, host_running_max: 76,
            host_memory_max: 80, call_max_ms: 88, io: 92, described_len: 120,
        }
        StatisticsPage {
            uptime_ms: 8, engines: 16, engines_busy: 20, queued: 24, tags_open: 28, started: 32, succeeded: 40,
            failed: 48, prepared_calls: 56, media_read: 64, media_written: 72, received: 80, sent: 88, run_us: 96,
            back_edges: 104, cache_len: 112, cache_read: 120, cache_hits: 128, cache_misses: 136, cache_len_max: 144,
            calls_memory: 152, kept_memory: 160, memory_max: 168,
        }
        StatisticsEntry { kind: 0, id: 4, operations: 8, read: 16, written: 24, busy_us: 32, failed: 40, program_id: 48 }
        ErrorRecordHeader { count: 0, id: 8, queue_id: 16, cid: 18, status: 20, opcode: 22, location: 24, message_len: 28 }
        ProgramDirectory { generation: 8 }
        ProgramEntry { pind: 0, state: 2, program_type: 3, len: 4, program_id: 8, puid: 16, functions: 24, sha256: 96 }
        ProgramImageHeader { object_len: 4, program_id: 8, sha256: 16 }
    }
    assert_eq!(opcode_bit(function_opcode::SEND) | opcode_bit(function_opcode::CLEAR), 0x102);
}

fn sample() -> FunctionRequest {
    FunctionRequest {
        class: Class::Background,
        fold: false,
        threads_max: 0x0807,
        program_id: 0x1716_1514_1312_1110,
        chunk_len: 0x1f1e_1d1c,
        result_len_max: 0x2726_2524_2322_2120,
        budget: 0x2f2e_2d2c_2b2a_2928,
        deadline_ms: 0x3332_3130,
        split: RecordSplit::Delimiter(b'\n'),
        sources: vec![
            Endpoint::new(EndpointKind::Volume(0x0403_0201), 0x10, 0x20),
            Endpoint { generation: 9, ..Endpoint::whole(EndpointKind::HostStream) },
        ],
        sinks: vec![Endpoint {
            durable: true,
            placement: Placement::Replace,
            ..Endpoint::new(EndpointKind::File(7), 1, 2)
        }],
        args: vec![0xa1, 0xa2, 0xa3],
        function: Some("grep".into()),
        state: Some(StateName { name: "s".into(), len_bytes: 4096 }),
        tier: TierHint::Interpreter,
        ..FunctionRequest::new(FunctionKind::Write, 0x0605)
    }
}

#[test]
fn a_launch_says_which_accesses_are_direct() {
    let launch = FunctionRequest {
        direct: DirectAccess::All,
        sources: vec![Endpoint::whole(EndpointKind::File(1))],
        sinks: vec![Endpoint::whole(EndpointKind::Volume(2))],
        ..FunctionRequest::new(FunctionKind::Launch, 1)
    };
    let bytes = launch.encode();
    assert_eq!((bytes[4], &bytes[128..]), (4, &[11, 0, 1, 0, 2, 0, 0, 0][..]));
    assert_eq!(FunctionRequest::decode(&bytes), Ok(launch));
    let wrong = [&bytes[..132], &[3, 0, 0, 0]].concat();
    let error = FunctionRequest::decode(&wrong).unwrap_err();
    assert_eq!(error, FieldError::new(132, "direct accesses are 0 (possible), 1 (off) or 2 (all)"));
}

#[test]
fn a_launch_says_which_blocks_of_its_result_travel() {
    let launch = |result_mask| FunctionRequest { result_mask, ..FunctionRequest::new(FunctionKind::Launch, 1) };
    let bytes = launch(ResultMask::Host(vec![0x81, 1])).encode();
    assert_eq!(bytes[64..], [14, 0, 2, 0, 0x81, 1, 0, 0]);
    // A target that knows no masks gives the whole result to a host that asks for no blocks.
    let any = launch(ResultMask::Kernel).encode();
    assert_eq!(any[64..], [14, 0x80, 0, 0]);
    for mask in [ResultMask::Host(vec![0x81, 1]), ResultMask::Host(Vec::new()), ResultMask::Kernel, ResultMask::Unknown]
    {
        assert_eq!(FunctionRequest::decode(&launch(mask.clone()).encode()), Ok(launch(mask)));
    }
    // A bit for each block of 4 KiB.
    let sent = |mask, len| launch(mask).sent_len_max(len);
    assert_eq!([0, 1, 32768, 32769].map(|len| sent(ResultMask::Kernel, len)), [0, 2, 32769, 32771]);
    assert_eq!([sent(ResultMask::Unknown, 5), sent(ResultMask::Kernel, u64::MAX)], [5, u64::MAX]);
    let read = FunctionRequest { kind: FunctionKind::Read, ..launch(ResultMask::Kernel) };
    assert_eq!(read.sent_len_max(5), 5);
}

#[test]
fn only_a_traversal_says_that_its_host_guards_files() {
    let traverse = FunctionRequest { guarded: true, ..FunctionRequest::new(FunctionKind::Traverse, 1) };
    let bytes = traverse.encode();
    assert_eq!(bytes[6..8], [4, 0]);
    assert_eq!(FunctionRequest::decode(&bytes), Ok(traverse));
    let read = FunctionRequest { guarded: true, ..FunctionRequest::new(FunctionKind::Read, 1) };
    let error = FunctionRequest::decode(&read.encode()).unwrap_err();
    assert_eq!(error, FieldError::new(6, "only a traversal may read files while they change"));
}

#[test]
fn a_part_of_a_request_is_laid_out_as_documented() {
    let part = RequestPart { start: 0x10, end: 0x500, zero: 8, source_index: 3 };
    let source = Endpoint::new(EndpointKind::File(1), 0x100, 0x200);
    let request = FunctionRequest {
        part: Some(part),
        frames: true,
        source_len: Some(0x600),
        heap_len: Some(0x0807_0605_0403_0201),
        sources: vec![source],
        ..FunctionRequest::new(FunctionKind::Read, 1)
    };
    let bytes = request.encode();
    assert_eq!(bytes[6..8], [2, 0], "results travel as frames");
    #[rustfmt::skip]
    let elements = [
        4, 0, 28, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
        10, 0, 8, 0, 0, 6, 0, 0, 0, 0, 0, 0,
        5, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8,
    ];
    assert_eq!(bytes[96..], elements);
    assert_eq!(FunctionRequest::decode(&bytes), Ok(request.clone()));
    for (part, source, what) in [
        (RequestPart { zero: 17, ..part }, source, "a request begins behind its data's start and ends behind its own"),
        (RequestPart { end: 15, ..part }, source, "a request begins behind its data's start and ends behind its own"),
        (RequestPart { start: 0x101, ..part }, source, "the source reaches beyond the request that it is a part of"),
        (RequestPart { end: 0x2ff, ..part }, source, "the source reaches beyond the request that it is a part of"),
        (
            part,
            Endpoint { len: Endpoint::TO_END, ..source },
            "the source reaches beyond the request that it is a part of",
        ),
    ] {
        let bad = FunctionRequest { part: Some(part), sources: vec![source], ..request.clone() };
        assert_eq!(FunctionRequest::decode(&bad.encode()), Err(FieldError::new(100, what)));
    }
    let two = FunctionRequest { sources: vec![source; 2], ..request };
    let error = FunctionRequest::decode(&two.encode());
    assert_eq!(error, Err(FieldError::new(132, "a part of a request has one source")));
    let two = FunctionRequest { part: None, ..two };
    let error = FunctionRequest::decode(&two.encode());
    assert_eq!(error, Err(FieldError::new(132, "a length is that of one source")));
}

#[test]
fn a_reason_is_a_word_and_anything_else_is_none() {
    let request = |reason: &str| FunctionRequest {
        reason: Some(reason.to_owned()),
        ..FunctionRequest::new(FunctionKind::Read, 1)
    };
    let bytes = request("many_files").encode();
    assert_eq!(bytes[64..], *b"\x0d\x80\x0a\x00many_files\0\0");
    assert_eq!(FunctionRequest::decode(&bytes), Ok(request("many_files")));
    for other in ["", "Faster", "two words", "\u{e9}", "a_word_that_is_much_too_long"] {
        let decoded = FunctionRequest::decode(&request(other).encode()).unwrap();
        assert_eq!(decoded.reason, None, "{other}");
    }
}

#[test]
fn a_trace_is_laid_out_as_documented() {
    let trace = TraceContext { trace_id: *b"a trace's own id", span_id: *b"its span", flags: 1 };
    let request = FunctionRequest { trace: Some(trace), ..FunctionRequest::new(FunctionKind::Read, 1) };
    let mut bytes = request.encode();
    assert_eq!(bytes[64..], *b"\x0c\x80\x19\x00a trace's own idits span\x01\0\0\0");
    assert_eq!(FunctionRequest::decode(&bytes), Ok(request.clone()));
    // A span that is none is not an error: the call runs without it.
    bytes[84..92].fill(0);
    assert_eq!(FunctionRequest::decode(&bytes), Ok(FunctionRequest { trace: None, ..request.clone() }));
    bytes[66] = 26;
    assert_eq!(FunctionRequest::decode(&bytes), Ok(FunctionRequest { trace: None, ..request }));
}

#[test]
fn a_depth_is_laid_out_as_documented() {
    let request = FunctionRequest { depth: Some(0x0403_0201), ..FunctionRequest::new(FunctionKind::Read, 1) };
    let mut bytes = request.encode();
    assert_eq!(bytes[64..], [6, 0x80, 4, 0, 1, 2, 3, 4]);
    assert_eq!(FunctionRequest::decode(&bytes), Ok(request));
    bytes[66] = 3;
    assert_eq!(FunctionRequest::decode(&bytes), Err(FieldError::new(68, "a depth has 4 bytes")));
}

#[test]
fn what_is_decompressed_is_laid_out_as_documented() {
    let decompression = Decompression { by: CompressedBy::Zstd, offset: 0x0807_0605_0403_0201, len: Endpoint::TO_END };
    let request = FunctionRequest { decompression: Some(decompression), ..FunctionRequest::new(FunctionKind::Read, 1) };
    let bytes = request.encode();
    #[rustfmt::skip]
    let element = [
        8, 0, 24, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ];
    assert_eq!(bytes[64..], element);
    assert_eq!(FunctionRequest::decode(&bytes), Ok(request));
    for (at, byte, what) in [
        (68, 5, "sources are compressed by 1 (gzip), 2 (zstd) or 3 or 4 (either, or not)"),
        (69, 1, "reserved bytes are zero"),
        (84, 0xf0, "the range ends behind 2^64"),
    ] {
        let mut bad = bytes.clone();
        bad[at] = byte;
        let told = FunctionRequest::decode(&bad).unwrap_err().to_string();
        assert!(told.contains(what), "{told}");
    }
}

#[test]
fn chunks_are_laid_out_as_documented() {
    let codecs = vec![ChunkCodec::Crc32c, ChunkCodec::Blosc];
    let chunks = ChunkInput { len: 0x0807_0605_0403_0201, ranged: true, codecs };
    let request = FunctionRequest { chunks: Some(chunks), ..FunctionRequest::new(FunctionKind::Read, 1) };
    let bytes = request.encode();
    assert_eq!(bytes[64..], [9, 0, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 6, 5, 0]);
    assert_eq!(FunctionRequest::decode(&bytes), Ok(request));
    for (at, byte, offset, what) in [
        (66, 8, 68, "chunks have a length of 8 bytes"),
        (76, 2, 76, "chunks are files (0) or ranges of them (1)"),
        (78, 7, 78, "codecs of chunks are 1 (gzip)"),
    ] {
        let mut bad = bytes.clone();
        bad[at] = byte;
        bad.truncate(64 + 4 + usize::from(bad[66]).next_multiple_of(4));
        bad[60] = (bad.len() - 64) as u8;
        let error = FunctionRequest::decode(&bad).unwrap_err();
        assert!(error.offset == offset && error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_request_is_laid_out_as_documented() {
    let bytes = sample().encode();
    #[rustfmt::skip]
    let header = [
        1, 0, 64, 0, 2, 1, 1, 0, 5, 6, 2, 0, 1, 0, 7, 8, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
        3, 0, 0, 0, 0x1c, 0x1d, 0x1e, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27,
        0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f, 0x30, 0x31, 0x32, 0x33, 2, 0, 0, 0, 10, 0, 0, 0, 28, 0, 0, 0,
    ];
    assert_eq!(bytes[..64], header);
    #[rustfmt::skip]
    let endpoints = [
        1, 0, 0, 0, 1, 2, 3, 4, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 9, 0, 0, 0, 0, 0, 0, 0,
        2, 5, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes[64..160], endpoints);
    assert_eq!(bytes[160..163], [0xa1, 0xa2, 0xa3]);
    assert_eq!(bytes[163..171], *b"\x01\0\x04\0grep");
    assert_eq!(bytes[171..183], *b"\x02\0\x05\0\0\x10\0\0s\0\0\0");
    assert_eq!(bytes[183..], *b"\x03\x80\x01\0\x01\0\0\0");
    assert_eq!(RequestHeader::request_len(&bytes[..64]), Ok(Some(bytes.len())));
    assert_eq!(RequestHeader::request_len(&bytes[..63]), Ok(None));
    assert_eq!(FunctionRequest::decode(&bytes), Ok(sample()));
}

#[test]
fn each_field_that_cannot_be_is_named_by_its_byte() {
    let good = sample().encode();
    let cases: &[(usize, u8, u32)] = &[
        (0, 2, 0),        // version
        (2, 65, 2),       // header_len
        (4, 0, 4),        // kind
        (4, 5, 4),        // a request to prepare names the kind of its calls
        (5, 2, 5),        // class
        (6, 8, 6),        // flags
        (11, 0x05, 10),   // sources
        (13, 0x05, 12),   // sinks
        (27, 1, 24),      // args_len
        (52, 5, 52),      // split
        (57, 1, 56),      // a delimiter of two bytes
        (63, 1, 60),      // tlv_len
        (64, 0, 64),      // type of a source
        (64, 7, 64),      // type of a source
        (64, 6, 72),      // files by their paths are whole
        (128, 6, 128),    // and no sink
        (65, 1, 65),      // durable is for sinks
        (66, 1, 66),      // reserved
        (128, 5, 128),    // a host stream is no sink
        (129, 8, 129),    // flag of a sink
        (129, 6, 129),    // append and replace
        (163, 99, 163),   // element
        (163, 11, 167),   // which accesses are direct
        (165, 200, 165),  // length of an element
        (167, 0xff, 167), // a name that is no UTF-8
        (173, 2, 175),    // a state without its size
    ];
    for (at, byte, want) in cases {
        let mut bytes = good.clone();
        bytes[*at] = *byte;
        let error = FunctionRequest::decode(&bytes).expect_err(&format!("byte {at} = {byte}"));
        assert_eq!(error.offset, *want, "byte {at} = {byte}: {error}");
    }
    assert_eq!(FunctionRequest::decode(&good[..good.len() - 1]).unwrap_err().offset as usize, good.len() - 1);
    let mut longer = good.clone();
    longer.push(0);
    assert!(FunctionRequest::decode(&longer).is_err());
    let mut fixed = FunctionRequest { split: RecordSplit::Fixed(8), ..sample() }.encode();
    fixed[56] = 0;
    assert_eq!(FunctionRequest::decode(&fixed).unwrap_err().offset, 56);
    let mut wraps = good.clone();
    wraps[64 + 8..64 + 16].fill(0xff);
    assert_eq!(FunctionRequest::decode(&wraps).unwrap_err().offset, 80);
    let mut ignorable = good;
    ignorable[164] = 0x80;
    assert_eq!(FunctionRequest::decode(&ignorable).unwrap().function, None, "what may be ignored is");
}

fn sample_trailer() -> Trailer {
    Trailer {
        outcome: Outcome::Trap,
        returned: -2,
        result_len: 3,
        media_read: 4,
        media_written: 5,
        durable: 6,
        times: Times { queue_us: 7, read_us: 8, run_us: 9, write_us: 10, send_us: 11, total_us: 12 },
        back_edges: 13,
        insn: 14,
        trap_kind: 15,
        region: 16,
        trap_offset: 17,
        bound: 18,
        hop: 19,
        helper: 20,
        generation: 21,
        message: "größe".into(),
        place: Some(PlaceInSource { source_index: 1, offset: 2, len: 3 }),
        log: vec!["hello".into()],
        log_dropped: 29,
        called: Some(Called { pieces: 22, input_bytes: 23 }),
        output_bytes: Some(24),
        depth: Some(25),
        missing: Some(MissingRange { start: 26, end: 27, len: 28 }),
        fold_us: Some(30),
        by_dictionaries: Some(31),
    }
}

#[test]
fn a_trailer_is_laid_out_as_documented() {
    let bytes = sample_trailer().encode(1024);
    #[rustfmt::skip]
    let want = [
        1, 0, 128, 0, 2, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 0, 0, 0,
        4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
        7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0,
        13, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 15, 0, 16, 0, 17, 0, 0, 0, 0, 0, 0, 0, 18, 0, 0, 0, 0, 0, 0, 0,
        19, 0, 0, 0, 20, 0, 0, 0, 21, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 140, 0, 0, 0,
    ];
    assert_eq!(bytes[..128], want);
    assert_eq!(bytes[128..136], *"größe\0".as_bytes());
    assert_eq!(bytes[136..160], *b"\x01\x80\x14\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
    assert_eq!(bytes[160..180], *b"\x03\x80\x10\0\x16\0\0\0\0\0\0\0\x17\0\0\0\0\0\0\0");
    assert_eq!(bytes[180..200], *b"\x04\x80\x08\0\x18\0\0\0\0\0\0\0\x05\x80\x04\0\x19\0\0\0");
    assert_eq!(bytes[200..216], *b"\x06\x80\x18\0\x1a\0\0\0\0\0\0\0\x1b\0\0\0");
    assert_eq!(bytes[216..228], *b"\0\0\0\0\x1c\0\0\0\0\0\0\0");
    assert_eq!(bytes[228..240], *b"\x08\x80\x08\0\x1e\0\0\0\0\0\0\0");
    assert_eq!(bytes[240..252], *b"\x09\x80\x08\0\x1f\0\0\0\0\0\0\0");
    assert_eq!(bytes[252..264], *b"\x02\x80\x05\0hello\0\0\0");
    assert_eq!(bytes[264..], *b"\x07\x80\x08\0\x1d\0\0\0\0\0\0\0");
    assert_eq!(Trailer::decode(&bytes), Ok(sample_trailer()));
}

#[test]
fn a_trailer_is_cut_to_the_room_there_is() {
    let whole = sample_trailer();
    for room in 128..220 {
        let bytes = whole.encode(room);
        assert!(bytes.len() <= room, "{} bytes for {room}", bytes.len());
        let got = Trailer::decode(&bytes).unwrap();
        assert!(whole.message.starts_with(&got.message));
        assert_eq!((got.outcome, got.returned, got.bound), (whole.outcome, whole.returned, whole.bound));
    }
    assert_eq!(Trailer::decode(&whole.encode(131)).unwrap().message, "gr", "a character is not cut in the middle");
    let long = Trailer { message: "x".repeat(1 << 20), log: vec!["y".repeat(4096); 64], ..Trailer::default() };
    assert!(long.encode(usize::MAX).len() < 16 << 10);
}

#[test]
fn pages_come_back_as_they_were() {
    let mut page = CapabilityPage::new();
    page.engines.set(2);
    let bytes = page.encode(["ds_find", "ds_sum"]);
    let (got, helpers) = CapabilityPage::decode(&bytes).unwrap();
    assert_eq!((got.engines.get(), got.len(), helpers), (2, bytes.len(), vec!["ds_find".into(), "ds_sum".into()]));
    assert_eq!(bytes[..8], [1, 0, 128, 0, 0, 0, 2, 0]);
    assert_eq!(bytes[124..], *b"\x0e\0\0\0ds_find\nds_sum");

    let entry = StatisticsEntry::new(statistics_kind::FUNCTION, 3, &"a name that is too long".repeat(3));
    let bytes = StatisticsPage::new().encode(&[entry, entry]);
    let (got, entries) = StatisticsPage::decode(&bytes).unwrap();
    let name = "a name that is too longa name that is too longa name that is too";
    assert_eq!((got.len(), entries[1].name().as_str(), entries[1].id.get()), (192 + 2 * 128, name, 3));
    assert_eq!(bytes[176..180], [128, 0, 0, 0]);
    let refused = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        StatisticsPage::decode(&bytes).unwrap_err()
    };
    assert_eq!(refused(176, 127), FieldError::new(176, "an entry is shorter than 128 bytes"));
    assert_eq!(refused(4, 3), FieldError::new(4, "the entries go beyond the end"));
    assert_eq!(refused(179, 0xff), FieldError::new(4, "the entries go beyond the end"));

    let record = ErrorRecord {
        count: 1,
        id: 2,
        queue_id: 3,
        cid: 4,
        status: Status::INVALID_PROGRAM_DATA.dnr(),
        opcode: 0x85,
        location: Some(5),
        message: "refused".into(),
    };
    let bytes = ErrorRecordsPage::encode([&record, &ErrorRecord { location: None, ..record.clone() }]);
    assert_eq!(bytes.len(), 64 + 2 * 4096);
    let records = ErrorRecordsPage::decode(&bytes).unwrap();
    assert_eq!((&records[0], records[1].location), (&record, None));
    assert_eq!(ErrorRecordsPage::decode(&bytes[..4096]).unwrap(), [], "a record that is not there is not told");

    let mut program = ProgramEntry::new(7, "grep");
    program.state = program_state::ACTIVE;
    let bytes = ProgramDirectory::encode(9, &[program]);
    let (got, programs) = ProgramDirectory::decode(&bytes).unwrap();
    assert_eq!((got.generation.get(), got.len(), programs[0]), (9, bytes.len(), program));
    assert_eq!(programs[0].name(), "grep");

    let mut bytes = ProgramImageHeader::new(3, 8, [7; 32]).as_bytes().to_vec();
    bytes.extend_from_slice(b"ELF and more");
    let (got, object) = ProgramImageHeader::decode(&bytes).unwrap();
    assert_eq!((got.program_id.get(), got.sha256, got.len(), object), (8, [7; 32], 67, &b"ELF"[..]));
}

/// A page of a later version has a longer fixed part. Encoded again it said so still, and had the length of this
/// version's: its names and entries were read from the wrong place. The encoded page is one of this version.
#[test]
fn a_page_of_a_later_version_is_encoded_as_one_of_this() {
    let later = |page: &[u8], header_len: usize| {
        let (fixed, behind) = page.split_at(header_len);
        let mut bytes = [fixed, &[0xaa; 12], behind].concat();
        (bytes[0], bytes[2]) = (2, header_len as u8 + 12);
        bytes
    };
    let names = ["ds_find", "ds_sum"];
    let bytes = CapabilityPage::new().encode(names);
    let (page, helpers) = CapabilityPage::decode(&later(&bytes, 128)).unwrap();
    assert_eq!((&helpers[..], page.len()), (&names.map(str::to_owned)[..], bytes.len() + 12));
    assert_eq!(page.encode(names), bytes);

    let entries = [StatisticsEntry::new(statistics_kind::VOLUME, 1, "")];
    let bytes = StatisticsPage::new().encode(&entries);
    let (page, told) = StatisticsPage::decode(&later(&bytes, 192)).unwrap();
    assert_eq!(told, entries);
    assert_eq!(page.encode(&told), bytes);
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), start in 0..3) {
        // Most random bytes end at the version: give some a good start.
        let good = if start == 0 { sample().encode() } else { sample_trailer().encode(1024) };
        if start < 2 {
            let len = bytes.len().min(good.len()).min(64);
            for (at, byte) in bytes.iter_mut().enumerate().take(len) {
                if *byte > 3 { *byte = good[at]; }
            }
        }
        let _ = FunctionRequest::decode(&bytes);
        let _ = RequestHeader::request_len(&bytes);
        let _ = Trailer::decode(&bytes);
        let _ = CapabilityPage::decode(&bytes);
        let _ = CapabilityPage::decode_described(&bytes);
        let _ = StatisticsPage::decode(&bytes);
        let _ = ErrorRecordsPage::decode(&bytes);
        let _ = ProgramDirectory::decode(&bytes);
        let _ = ProgramImageHeader::decode(&bytes);
    }

    #[test]
    fn a_request_with_one_byte_changed_is_refused_or_parses_to_the_same_bytes(at in 0usize..190, byte: u8) {
        let mut bytes = sample().encode();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(request) = FunctionRequest::decode(&bytes) {
            prop_assert_eq!(FunctionRequest::decode(&request.encode()).unwrap(), request);
        }
    }
}
