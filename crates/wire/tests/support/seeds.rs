//! Commands and answers as hosts and targets send them: what fuzzers begin with.

use diskside_nvme::Status;
use diskside_nvme::wire::CSI_COMPUTE;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::{
    COPY_FORMAT_MEMORY, Execution, MemoryCopySource, MemoryRange, ProgramDescriptor, ProgramOccupancy, memory_log,
    range_sets_page,
};
use diskside_wire::file::{DirEntry, Export, FileAttributes, FileFlags, FileHandle, FileKind, FileRequest, OpenedFile};
use diskside_wire::function::{
    CapabilityPage, Class, ClearSelect, Endpoint, EndpointKind, ErrorRecord, ErrorRecordsPage, FunctionCommand,
    FunctionKind, FunctionRequest, HelperEntry, LayoutAction, LayoutRequest, LayoutRun, Outcome, PlaceInSource,
    Placement, ProgramDirectory, ProgramEntry, ProgramImageHeader, ReceiveAnswer, RecordSplit, StateName,
    StatisticsEntry, StatisticsPage, TierHint, Trailer, program_state, statistics_kind,
};
use zerocopy::IntoBytes;

use super::commands::{COMPUTE_NSID, MEMORY_NSID};

const FILE: FileHandle = FileHandle { id: 1, generation: 2 };

/// For `commands::function`.
pub fn function() -> Vec<(&'static str, Vec<u8>)> {
    let send = |kind: FunctionKind, data: Vec<u8>| {
        let sqe = Sqe::function_send(COMPUTE_NSID, kind, 5, 0, data.len() as u32).with_first().with_last();
        [sqe.as_bytes(), &data].concat()
    };
    let file = |request: &FileRequest<'_>| {
        let args = request.to_bytes();
        send(FunctionKind::File, FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) }.encode())
    };
    let volume = Endpoint::new(EndpointKind::Volume(1), 4096, 8192);
    let read = FunctionRequest {
        sources: vec![volume],
        args: b"needle".to_vec(),
        split: RecordSplit::Delimiter(b'\n'),
        function: Some("grep".into()),
        ..FunctionRequest::new(FunctionKind::Read, 3)
    };
    let write = FunctionRequest {
        class: Class::Background,
        fold: false,
        sources: vec![Endpoint::whole(EndpointKind::HostStream), Endpoint::whole(EndpointKind::Memory(MEMORY_NSID))],
        sinks: vec![Endpoint {
            durable: true,
            placement: Placement::Replace,
            ..Endpoint::whole(EndpointKind::File(FILE.id))
        }],
        split: RecordSplit::Fixed(64),
        state: Some(StateName { name: "counts".into(), len_bytes: 4096 }),
        tier: TierHint::Cranelift,
        ..FunctionRequest::new(FunctionKind::Write, 4)
    };
    let layout = LayoutRequest {
        action: LayoutAction::Set,
        id: 1,
        nsid: 1,
        generation: 1,
        file_len: 12_288,
        runs: vec![
            LayoutRun { logical: 0, physical: 4096, len: 4096 },
            LayoutRun { logical: 8192, physical: 0, len: 4096 },
        ],
    };
    let layout = layout.encode();
    let layout_send = Sqe::layout_send(COMPUTE_NSID, layout.len() as u32);
    let receive = Sqe::function_receive(COMPUTE_NSID, 5, 0, 4096, 1000).with_fill();
    vec![
        ("send-read", send(FunctionKind::Read, read.encode())),
        ("send-write", send(FunctionKind::Write, write.encode())),
        ("send-prepare", send(FunctionKind::Prepare, read.encode())),
        ("receive", [receive.as_bytes(), &[0; 64]].concat()),
        ("call", Sqe::function_call(COMPUTE_NSID, 3, b"inline", 512, 1000).as_bytes().to_vec()),
        ("cancel", Sqe::function_cancel(COMPUTE_NSID, 5, true, 1000).as_bytes().to_vec()),
        ("clear", Sqe::function_clear(COMPUTE_NSID, ClearSelect::State, 77, 0..64).as_bytes().to_vec()),
        ("layout-send", [layout_send.as_bytes(), &layout].concat()),
        ("file-exports", file(&FileRequest::ListExports { cursor: 0, len_max: 4096 })),
        ("file-lookup", file(&FileRequest::Lookup { dir: None, path: b"data/x", flags: FileFlags::READ_WRITE })),
        ("file-write", file(&FileRequest::Write { file: FILE, offset: 9, data: b"bytes", flags: FileFlags::DURABLE })),
        ("file-read", file(&FileRequest::Read { file: FILE, offset: 0, len: 4096 })),
        (
            "file-rename",
            file(&FileRequest::Rename { dir: Some(FILE), from: b"a", to: b"b/c", flags: FileFlags::NO_REPLACE }),
        ),
        (
            "file-create",
            file(&FileRequest::Create { dir: None, path: b"data/y", mode: 0o640, flags: FileFlags::WRITE }),
        ),
    ]
}

/// For `commands::answers`.
pub fn answers() -> Vec<(&'static str, Vec<u8>)> {
    let with = |answer: ReceiveAnswer, data: &[u8]| [&answer.to_result().to_le_bytes()[..], data].concat();
    let page = |data: Vec<u8>| with(ReceiveAnswer::default(), &data);
    let trailer = Trailer {
        returned: -5,
        message: "a trap at line 7".into(),
        place: Some(PlaceInSource { source_index: 0, offset: 4096, len: 512 }),
        log: vec!["one line".into(), "another".into()],
        ..Trailer::new(Outcome::Trap)
    };
    let trailer = trailer.encode(1024);
    let end = ReceiveAnswer { result_len: 6, trailer_len: trailer.len() as u16, end: true, pending: false };
    let record = ErrorRecord {
        count: 1,
        id: 5,
        queue_id: 1,
        cid: 7,
        status: Status::INVALID_FIELD.dnr(),
        opcode: 0x81,
        location: Some(10),
        message: "the version is not 1".into(),
    };
    let mut program = ProgramEntry::new(3, "grep");
    program.state = program_state::ACTIVE | program_state::OWN;
    let attributes = FileAttributes::zeroed();
    let mut listing = Vec::new();
    let entry =
        DirEntry { cursor: 1, inode: 2, kind: FileKind::File, attributes: Some(attributes), name: b"today.log" };
    entry.encode(&mut listing);
    DirEntry { cursor: 2, attributes: None, kind: FileKind::Directory, ..entry }.encode(&mut listing);
    let mut exports = Vec::new();
    Export { cursor: 1, read_only: true, uid: 1000, gid: 1000, name: b"data" }.encode(&mut exports);
    let entries = [
        StatisticsEntry::new(statistics_kind::FUNCTION, 3, "grep"),
        StatisticsEntry::new(statistics_kind::VOLUME, 1, ""),
    ];
    let helper = HelperEntry {
        name: "ds_now".into(),
        version: 1,
        cost: "fixed".into(),
        prototype: "__u64 ds_now(void)".into(),
        doc: "A clock.".into(),
    };
    vec![
        ("result-and-trailer", with(end, &[b"result", &trailer[..]].concat())),
        ("trailer", page(trailer)),
        ("capabilities", page(CapabilityPage::new().encode(["ds_find", "ds_emit"]))),
        ("helpers", page(CapabilityPage::new().encode_described(&[helper]))),
        ("statistics", page(StatisticsPage::new().encode(&entries))),
        ("errors", page(ErrorRecordsPage::encode([&record]))),
        ("programs", page(ProgramDirectory::encode(9, &[program]))),
        ("program-image", page([ProgramImageHeader::new(4, 8, [0; 32]).as_bytes(), b"\x7fELF"].concat())),
        ("opened-file", page(OpenedFile::new(FILE, true, attributes).as_bytes().to_vec())),
        ("listing", page(listing)),
        ("exports", page(exports)),
    ]
}

/// For `commands::standard`.
pub fn standard() -> Vec<(&'static str, Vec<u8>)> {
    let ranges = [MemoryRange::new(MEMORY_NSID, 0, 4096), MemoryRange::new(MEMORY_NSID, 8192, 64)];
    let execution = Execution { pind: 3, ranges: 2, data_len: 70, cparam1: 1, cparam2: 2, ..Execution::default() };
    let sources = [MemoryCopySource::new(MEMORY_NSID, 0, 512), MemoryCopySource::new(MEMORY_NSID, 4096, 512)];
    let program = ProgramDescriptor::new(ProgramOccupancy::Downloaded, true, 0xc0, Some(7));
    let with = |sqe: Sqe, data: &[u8]| [sqe.as_bytes(), data].concat();
    let log =
        |lid: u8, page: &[u8]| with(Sqe::get_log_page(lid, 0, 256, CSI_COMPUTE, false).with_nsid(COMPUTE_NSID), page);
    vec![
        ("load", with(Sqe::load_program(COMPUTE_NSID, 3, 4, 0, 4).with_puid(7), b"\x7fELF")),
        ("unload", with(Sqe::unload_program(COMPUTE_NSID, 3), b"")),
        ("activate", with(Sqe::activate_program(COMPUTE_NSID, 3, true), b"")),
        ("create-range-set", with(Sqe::create_range_set(COMPUTE_NSID, 2), ranges.as_bytes())),
        ("delete-range-set", with(Sqe::delete_range_set(COMPUTE_NSID, 1), b"")),
        ("execute", with(Sqe::execute_program(COMPUTE_NSID, &execution), &[ranges.as_bytes(), b"params"].concat())),
        ("memory-write", with(Sqe::memory_write(MEMORY_NSID, 64, 8), b"8 bytes.")),
        ("memory-read", with(Sqe::memory_read(MEMORY_NSID, 64, 8), &[0; 8])),
        ("memory-fill", with(Sqe::memory_fill(MEMORY_NSID, 64, 4096), b"")),
        ("memory-copy", with(Sqe::memory_copy(MEMORY_NSID, 8192, 1024, 2, COPY_FORMAT_MEMORY), sources.as_bytes())),
        ("log-programs", log(memory_log::PROGRAMS, &ProgramDescriptor::page([program].into_iter()))),
        ("log-range-sets", log(memory_log::RANGE_SETS, &range_sets_page([(1, &ranges[..])].into_iter()))),
    ]
}
