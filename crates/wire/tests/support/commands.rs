//! Entry points for fuzzers of the commands beside those of the NVM command set: of functions and files, and of the
//! standard computing commands. What decodes is encoded again and decodes to the same.

use diskside_nvme::Nqn;
use diskside_nvme::controller::{BlockSize, CommandSet, MediumId, Namespace, SubsystemConfig};
use diskside_nvme::host::Data;
use diskside_nvme::wire::memory::{
    EXECUTE_PROGRAM, MemoryCopySource, MemoryRange, ProgramDescriptor, RANGE_SET_MANAGEMENT, memory_log, memory_opcode,
    range_sets_page,
};
use diskside_nvme::wire::{CSI_COMPUTE, CSI_SLM, ProgramIdType, program_opcode};
use diskside_nvme::wire::{Direction, Sqe, admin_opcode, direction};
use diskside_wire::file::{DirEntry, Export, FileAttributes, FileOp, FileRequest, OpenedFile};
use diskside_wire::function::{
    CALL_ARGS_LEN_MAX, CapabilityPage, ClearSelect, ErrorRecordsPage, FUNCTION_VERSION, FieldError, FunctionCommand,
    FunctionKind, FunctionRequest, LayoutRequest, ProgramDirectory, ProgramImageHeader, REQUEST_LEN_MAX, ReceiveAnswer,
    RequestHeader, StatisticsPage, TRAILER_LEN, Trailer, function_log, function_opcode,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::nvme::pair::{Pair, SUBSYSTEM, Target, admin_config, namespace};

/// Namespaces of the target that takes the commands, beside its volume 1.
pub const MEMORY_NSID: u32 = 7;
pub const COMPUTE_NSID: u32 = 9;

/// A command of functions (64 bytes) and its data, of a host: decoded, and taken through a connection.
pub fn function(bytes: &[u8]) {
    let Ok((sqe, data)) = Sqe::read_from_prefix(bytes) else { return };
    function_fields(&sqe);
    if let Some(request) = function_request(data)
        && request.kind == FunctionKind::File
    {
        file_request(&request.args);
    }
    file_request(data);
    layout_request(data);
    if function_opcode::ALL.contains(&sqe.opcode()) {
        deliver(&sqe, false, data);
    }
}

/// The answers of a target to a host: dwords 0 and 1 of a Receive's completion (8 bytes), and its data.
pub fn answers(bytes: &[u8]) {
    let Some((dwords, data)) = bytes.split_first_chunk() else { return };
    let dwords = u64::from_le_bytes(*dwords);
    for answer in [ReceiveAnswer::from_result(dwords), ReceiveAnswer::from_call_result(dwords, data.len() as u32)] {
        let Some(answer) = answer else { continue };
        assert_eq!(ReceiveAnswer::from_result(answer.to_result()), Some(answer));
        let behind = data.get(answer.result_len as usize..);
        if let Some(told) = behind.and_then(|behind| behind.get(..answer.trailer_len.into())) {
            trailer(told);
        }
    }
    trailer(data);
    pages(data);
    file_answers(data);
}

/// A command of the standard computing command sets (64 bytes) and its data, of a host.
pub fn standard(bytes: &[u8]) {
    let Ok((sqe, data)) = Sqe::read_from_prefix(bytes) else { return };
    standard_fields(&sqe);
    standard_data(data);
    match sqe.opcode() {
        // The opcodes of a copy and of an execution are the same, and the namespace says which it is.
        EXECUTE_PROGRAM | memory_opcode::FILL | memory_opcode::WRITE => drop(deliver(&sqe, false, data)),
        memory_opcode::READ if sqe.nsid() == MEMORY_NSID => drop(deliver(&sqe, false, data)),
        program_opcode::LOAD | program_opcode::ACTIVATION | RANGE_SET_MANAGEMENT | admin_opcode::GET_LOG_PAGE => {
            deliver(&sqe, true, data);
        }
        _ => {}
    }
}

/// Each command that the constructors make of the fields is read as these fields.
fn function_fields(sqe: &Sqe) {
    let (tag, len, offset) = (sqe.function_tag(), sqe.function_len(), sqe.function_offset());
    let timeout_ms = sqe.function_timeout_ms();
    if let Some(kind) = FunctionKind::from_byte(sqe.function_kind()) {
        let mut send = Sqe::function_send(sqe.nsid(), kind, tag, offset, len).with_function_timeout_ms(timeout_ms);
        if sqe.is_first() {
            send = send.with_first();
        }
        if sqe.is_last() {
            send = send.with_last();
        }
        assert_eq!((send.function_kind(), send.function_version()), (kind as u8, FUNCTION_VERSION));
        assert_eq!((send.is_first(), send.is_last()), (sqe.is_first(), sqe.is_last()));
        assert_eq!((send.function_tag(), send.function_len(), send.function_offset()), (tag, len, offset));
        assert_eq!(send.function_timeout_ms(), timeout_ms);
    }
    let mut receive = Sqe::function_receive(sqe.nsid(), tag, offset, len, timeout_ms);
    if sqe.fills() {
        receive = receive.with_fill();
    }
    if sqe.pads() {
        receive = receive.with_pad();
    }
    assert_eq!((receive.fills(), receive.pads(), receive.function_tag()), (sqe.fills(), sqe.pads(), tag));
    let cancel = Sqe::function_cancel(sqe.nsid(), tag, sqe.cancel_waits(), timeout_ms);
    assert_eq!((cancel.cancel_waits(), cancel.function_timeout_ms()), (sqe.cancel_waits(), timeout_ms));
    let (args, args_len) = sqe.call_args();
    if args_len <= CALL_ARGS_LEN_MAX {
        let handle = sqe.call_handle();
        let call = Sqe::function_call(sqe.nsid(), handle, &args[..args_len], len, sqe.call_timeout_ms() as u16);
        let (again, again_len) = call.call_args();
        assert_eq!((call.call_handle(), &again[..again_len]), (handle, &args[..args_len]));
        assert_eq!((call.call_timeout_ms(), call.function_len()), (sqe.call_timeout_ms(), len));
    }
    let (start, len) = sqe.clear_range();
    if let (Some(select), Some(end)) = (ClearSelect::from_bits(sqe.clear_select()), start.checked_add(len)) {
        let clear = Sqe::function_clear(sqe.nsid(), select, tag, start..end);
        assert_eq!((clear.clear_select(), clear.clear_range()), (select as u32, (start, len)));
    }
}

fn function_request(bytes: &[u8]) -> Option<FunctionRequest> {
    let told = RequestHeader::request_len(bytes);
    if let Ok(len) = told {
        assert_eq!(len.is_none(), bytes.len() < RequestHeader::LEN, "a whole header tells the length");
        assert!(len.is_none_or(|len| (RequestHeader::LEN..=REQUEST_LEN_MAX).contains(&len)));
    }
    let request = place_of(FunctionRequest::decode(bytes), bytes)?;
    assert_eq!(told, Ok(Some(bytes.len())));
    assert_eq!(FunctionRequest::decode(&request.encode()).as_ref(), Ok(&request));
    Some(request)
}

fn file_request(bytes: &[u8]) {
    match FileRequest::parse(bytes) {
        Ok(request) => {
            assert_eq!(request.to_bytes(), bytes, "each request has one form");
            assert_eq!(FileOp::from_number(bytes[2]), Some(request.op()));
        }
        Err(error) => assert!(error.at as usize <= bytes.len(), "{error}, of {}", bytes.len()),
    }
}

fn layout_request(bytes: &[u8]) {
    if let Some(request) = place_of(LayoutRequest::decode(bytes), bytes) {
        assert_eq!(request.encode(), bytes, "each request has one form");
    }
}

/// A trailer that has more text than one may have is cut when it is sent on, and one that has no room goes without elements.
fn trailer(bytes: &[u8]) {
    let Some(trailer) = place_of(Trailer::decode(bytes), bytes) else { return };
    for room in [TRAILER_LEN, TRAILER_LEN + 7, bytes.len(), usize::MAX] {
        let sent = trailer.encode(room);
        assert!(sent.len() <= room, "{} bytes for {room}", sent.len());
        let got = Trailer::decode(&sent).expect("what is encoded decodes");
        assert!(trailer.message.starts_with(&got.message), "it is cut at the end");
        // A peer may count as many as it likes, and the count ends at the last number.
        let lines = |it: &Trailer| it.log_dropped.saturating_add(it.log.len() as u64);
        assert!(lines(&got) == lines(&trailer) || got.output_bytes.is_none(), "each line is told, or counted");
        assert!(got.log.iter().zip(&trailer.log).all(|(got, line)| line.starts_with(got)));
        assert_eq!(Trailer::decode(&got.encode(usize::MAX)).as_ref(), Ok(&got), "what fits stays");
        let times = |it: &Trailer| (it.fold_us, it.by_dictionaries);
        let elements = |it: &Trailer| (it.place, it.called, it.output_bytes, it.depth, it.missing, times(it));
        assert!(
            elements(&got) == elements(&trailer) || elements(&got) == (None, None, None, None, None, (None, None)),
            "all of them or none"
        );
        assert_eq!(header_of(&got), header_of(&trailer));
    }
}

/// What the fixed part of a trailer tells.
fn header_of(trailer: &Trailer) -> Trailer {
    let (message, log) = (String::new(), Vec::new());
    Trailer {
        message,
        log,
        place: None,
        called: None,
        output_bytes: None,
        depth: None,
        missing: None,
        fold_us: None,
        by_dictionaries: None,
        log_dropped: 0,
        ..trailer.clone()
    }
}

/// Log pages. Bytes that a later version adds to their fixed part, and invalid text, are not sent on.
fn pages(bytes: &[u8]) {
    if let Some((page, helpers)) = place_of(CapabilityPage::decode(bytes), bytes) {
        let sent = page.encode(helpers.iter().map(String::as_str));
        let (again, names) = CapabilityPage::decode(&sent).expect("what is encoded decodes");
        assert_eq!((again.len(), &names), (sent.len(), &helpers));
        assert_eq!(again.encode(names.iter().map(String::as_str)), sent);
        if let Ok(described) = CapabilityPage::decode_described(bytes) {
            let sent = page.encode_described(&described);
            assert_eq!(CapabilityPage::decode_described(&sent).as_ref(), Ok(&described));
        }
    }
    if let Some((page, entries)) = place_of(StatisticsPage::decode(bytes), bytes) {
        let sent = page.encode(&entries);
        let (again, told) = StatisticsPage::decode(&sent).expect("what is encoded decodes");
        assert_eq!((again.len(), &told), (sent.len(), &entries));
        assert!(entries.iter().all(|entry| !entry.name().contains('\0')));
    }
    if let Some(records) = place_of(ErrorRecordsPage::decode(bytes), bytes) {
        let sent = ErrorRecordsPage::encode(&records);
        let told = ErrorRecordsPage::decode(&sent).expect("what is encoded decodes");
        assert_eq!(told.len(), records.len());
        assert!(told.iter().zip(&records).all(|(told, record)| record.message.starts_with(&told.message)));
        assert_eq!(ErrorRecordsPage::encode(&told), sent);
    }
    if let Some((page, programs)) = place_of(ProgramDirectory::decode(bytes), bytes) {
        let sent = ProgramDirectory::encode(page.generation.get(), &programs);
        let (again, told) = ProgramDirectory::decode(&sent).expect("what is encoded decodes");
        assert_eq!((again.len(), again.generation, &told), (sent.len(), page.generation, &programs));
        assert!(programs.iter().all(|program| !program.name().contains('\0')));
    }
    if let Some((header, object)) = place_of(ProgramImageHeader::decode(bytes), bytes) {
        assert!(object.len() <= header.object_len.get() as usize);
        let again = ProgramImageHeader::new(header.object_len.get(), header.program_id.get(), header.sha256);
        let sent = [again.as_bytes(), object].concat();
        assert_eq!(ProgramImageHeader::decode(&sent), Ok((again, object)));
    }
}

fn file_answers(bytes: &[u8]) {
    if let Ok((opened, _)) = OpenedFile::read_from_prefix(bytes) {
        let again = OpenedFile::new(opened.handle(), opened.created.get() != 0, opened.attributes);
        assert_eq!((again.handle(), again.attributes), (opened.handle(), opened.attributes));
    }
    if let Ok((attributes, _)) = FileAttributes::read_from_prefix(bytes) {
        attributes.kind();
    }
    let records = bytes.len() / 24 + 1;
    let mut sent = Vec::new();
    let entries: Vec<_> = DirEntry::parse_all(bytes).take(records + 1).collect();
    assert!(entries.len() <= records, "a listing ends");
    let entries: Vec<_> = entries.into_iter().filter_map(Result::ok).collect();
    entries.iter().for_each(|entry| entry.encode(&mut sent));
    assert_eq!(DirEntry::parse_all(&sent).collect::<Result<Vec<_>, _>>(), Ok(entries));
    let exports: Vec<_> = Export::parse_all(bytes).filter_map(Result::ok).collect();
    sent.clear();
    exports.iter().for_each(|export| export.encode(&mut sent));
    assert_eq!(Export::parse_all(&sent).collect::<Result<Vec<_>, _>>(), Ok(exports));
}

fn standard_fields(sqe: &Sqe) {
    let (nsid, pind) = (sqe.nsid(), sqe.program_index());
    let mut load = Sqe::load_program(nsid, pind, sqe.program_len(), sqe.load_offset(), sqe.load_len());
    assert_eq!(load.program_id_type(), Some(ProgramIdType::None));
    if sqe.program_id_type() == Some(ProgramIdType::Puid) {
        load = load.with_puid(sqe.program_puid());
        assert_eq!((load.program_id_type(), load.program_puid()), (sqe.program_id_type(), sqe.program_puid()));
    }
    assert_eq!((load.program_index(), load.program_len(), load.unloads_program()), (pind, sqe.program_len(), false));
    assert_eq!((load.load_offset(), load.load_len()), (sqe.load_offset(), sqe.load_len()));
    let activate = Sqe::activate_program(nsid, pind, sqe.activation_select() == 1);
    assert_eq!(activate.activation_select() == 1, sqe.activation_select() == 1);
    assert_eq!(Sqe::execute_program(nsid, &sqe.execution()).execution(), sqe.execution());
    let (start, len) = (sqe.memory_start(), sqe.memory_len());
    for it in
        [Sqe::memory_read(nsid, start, len), Sqe::memory_write(nsid, start, len), Sqe::memory_fill(nsid, start, len)]
    {
        assert_eq!((it.memory_start(), it.memory_len()), (start, len));
    }
    let (copied, ranges, format) = (sqe.memory_copy_len(), sqe.copy_ranges(), sqe.copy_format());
    let copy = Sqe::memory_copy(nsid, start, copied, ranges, format);
    assert_eq!((copy.memory_copy_len(), copy.copy_ranges(), copy.copy_format()), (copied, ranges, format));
    assert_eq!(Sqe::delete_range_set(nsid, sqe.range_set_id()).range_set_id(), sqe.range_set_id());
    assert_eq!(Sqe::create_range_set(nsid, sqe.range_set_len()).range_set_len(), sqe.range_set_len());
}

fn standard_data(data: &[u8]) {
    for bytes in data.chunks_exact(size_of::<MemoryRange>()) {
        let range = MemoryRange::ref_from_bytes(bytes).expect("it is as long");
        let again = MemoryRange::new(range.nsid.get(), range.start.get(), range.len.get());
        assert_eq!(again.as_bytes()[..16], bytes[..16], "what is not reserved");
        let source = MemoryCopySource::ref_from_bytes(bytes).expect("it is as long");
        let mut again = MemoryCopySource::new(source.nsid.get(), source.start.get(), source.len.get());
        if source.fast_only() {
            again = again.with_fast_only();
        }
        assert_eq!((again.fast_only(), again.nsid, again.start), (source.fast_only(), source.nsid, source.start));
        assert_eq!(again.len, source.len);
    }
    if let Ok(ranges) = <[MemoryRange]>::ref_from_bytes(data) {
        let page = range_sets_page([(1, ranges)].into_iter());
        assert_eq!(page[64..], *data);
    }
    for bytes in data.chunks_exact(size_of::<ProgramDescriptor>()) {
        let program = ProgramDescriptor::ref_from_bytes(bytes).expect("it is as long");
        let Some(occupancy) = program.occupancy() else { continue };
        let again = ProgramDescriptor::new(occupancy, program.is_active(), program.program_type, None);
        assert_eq!((again.occupancy(), again.is_active()), (Some(occupancy), program.is_active()));
    }
}

/// Whether a command and its data (on the admin queue or not) come to a target, as they were sent.
pub fn is_delivered(bytes: &[u8], admin: bool) -> bool {
    let (sqe, data) = Sqe::read_from_prefix(bytes).expect("a command has 64 bytes");
    deliver(&sqe, admin, data)
}

/// Sends a command with its data through a host and a controller: it comes as it was sent, or is refused (`false`), and
/// the association stays.
fn deliver(sqe: &Sqe, admin: bool, data: &[u8]) -> bool {
    let mut pair = Pair::connect(target(), admin_config(SUBSYSTEM, 1));
    let moved = match direction(sqe.opcode()) {
        Direction::ToController if !data.is_empty() => Data::SendBytes(data.to_vec()),
        Direction::ToHost if sqe.opcode() == admin_opcode::GET_LOG_PAGE => {
            Data::ReceiveBytes(sqe.log_len().min(64 << 10) as u32)
        }
        Direction::ToHost => Data::ReceiveBytes((data.len() as u32 + 1).next_multiple_of(4)),
        _ => Data::None,
    };
    let sent = if let Data::SendBytes(bytes) = &moved { bytes.clone() } else { Vec::new() };
    // A refused command got an answer: anything but a completion ends the test.
    let _ = if admin { pair.admin(*sqe, moved) } else { pair.io(*sqe, moved) };
    let came = std::mem::take(&mut pair.target.media.others);
    for (got, bytes) in &came {
        assert_eq!((got.opcode(), got.nsid()), (sqe.opcode(), sqe.nsid()));
        for dword in [2, 3, 10, 11, 12, 13, 14, 15] {
            assert_eq!(got.dword(dword), sqe.dword(dword), "dword {dword}");
        }
        assert_eq!(*bytes, sent, "its data");
    }
    pair.io(Sqe::flush(1), Data::None).expect("the next command works");
    !came.is_empty()
}

fn target() -> Target {
    let effects = |opcodes: &[u8]| opcodes.iter().map(|opcode| (*opcode, 0)).collect::<Vec<_>>();
    let mut config = SubsystemConfig::new(Nqn::new(SUBSYSTEM).expect("it is one"), "S1");
    let mut io_commands = effects(&function_opcode::ALL);
    io_commands.extend(effects(&[EXECUTE_PROGRAM]));
    let mut log_pages = function_log::ALL.to_vec();
    log_pages.extend([memory_log::PROGRAMS, memory_log::PROGRAM_TYPES, memory_log::RANGE_SETS]);
    let admin_commands = effects(&[program_opcode::LOAD, program_opcode::ACTIVATION, RANGE_SET_MANAGEMENT]);
    config.command_sets = vec![
        CommandSet { csi: CSI_COMPUTE, io_commands, admin_commands, log_pages, identify: true },
        CommandSet { csi: CSI_SLM, io_commands: effects(&memory_opcode::ALL), ..CommandSet::default() },
    ];
    let mut target = Target::with_config(config);
    target.add(1, 64, BlockSize::B512);
    for (nsid, csi) in [(MEMORY_NSID, CSI_SLM), (COMPUTE_NSID, CSI_COMPUTE)] {
        let of = Namespace { csi, ..namespace(nsid, MediumId(u64::MAX), 0, BlockSize::B4096) };
        target.subsystem.add_namespace(of).expect("it is new");
    }
    target
}

/// The decoded value; if it did not decode, the error names a byte of it or its end.
fn place_of<T>(result: Result<T, FieldError>, bytes: &[u8]) -> Option<T> {
    result.map_err(|error| assert!(error.offset as usize <= bytes.len(), "{error}, of {}", bytes.len())).ok()
}
