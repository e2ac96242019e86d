//! The vendor's log pages of the compute namespace: what the target can do, what it did, what went wrong, and its
//! programs. All begin with their version and the length of their fixed part; texts are UTF-8.

mod programs;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use diskside_nvme::Status;

use super::field::FieldError;
pub use programs::{ProgramDirectory, ProgramEntry, ProgramImageHeader, program_state};

/// Log page identifiers.
pub mod function_log {
    /// The capabilities of the target: [`CapabilityPage`](super::CapabilityPage).
    pub const CAPABILITIES: u8 = 0xc0;
    /// The statistics of its work: [`StatisticsPage`](super::StatisticsPage).
    pub const STATISTICS: u8 = 0xc1;
    /// The last errors on this controller: [`ErrorRecordsPage`](super::ErrorRecordsPage).
    pub const ERRORS: u8 = 0xc2;
    /// The programs: [`ProgramDirectory`](super::ProgramDirectory).
    pub const PROGRAMS: u8 = 0xc3;
    /// The object of the program whose index is the Log Specific Identifier:
    /// [`ProgramImageHeader`](super::ProgramImageHeader), then its bytes.
    pub const PROGRAM_IMAGE: u8 = 0xc4;
    /// All of them.
    pub const ALL: [u8; 5] = [CAPABILITIES, STATISTICS, ERRORS, PROGRAMS, PROGRAM_IMAGE];
}

/// Sets of kinds and of opcodes are bit masks: bit n is number n, or opcode 80h + n.
pub const fn opcode_bit(opcode: u8) -> u64 {
    1 << (opcode & 0x3f)
}

const PAGE_VERSION: u16 = 1;

/// LID C0h. The names of the helpers, one a line, follow the fixed part; then, if the target says so, what each of them is, in
/// the same order: version, cost, prototype and a line of help, with tabs between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CapabilityPage {
    version: U16,
    header_len: U16,
    /// Version of the functions' ABI.
    pub abi_version: U16,
    /// Engine threads.
    pub engines: U16,
    /// Supported opcodes: see [`opcode_bit`].
    pub opcodes: U64,
    /// Supported [`FunctionKind`](super::FunctionKind)s: bit n is kind n.
    pub kinds: U32,
    /// Supported types of sources: bit n is type n.
    pub source_kinds: U32,
    /// Supported types of sinks: bit n is type n.
    pub sink_kinds: U32,
    /// Tiers: bit n is [`TierHint`](super::TierHint) n.
    pub tiers: U32,
    /// The most bytes of a request.
    pub request_len_max: U32,
    /// The most bytes of a chunk.
    pub chunk_len_max: U32,
    /// Bytes of a chunk when a request does not say.
    pub chunk_len_default: U32,
    /// The most bytes of a program.
    pub program_len_max: U32,
    /// The most bytes of a result that is folded.
    pub folded_len_max: U64,
    /// The longest timeout in milliseconds.
    pub wait_max_ms: U32,
    /// Tags that a controller may have open.
    pub tags_max: U32,
    /// Prepared requests that a controller may have.
    pub prepared_max: U32,
    /// Program indexes: 0 up to this, without it.
    pub programs: U32,
    /// Programs that a host may have loaded.
    pub host_programs_max: U32,
    /// Calls that a host may have running.
    pub host_running_max: U32,
    /// Memory in bytes that a host's calls may use.
    pub host_memory_max: U64,
    /// The longest time of a call in milliseconds: longer deadlines are cut to it. 0: of a target that has no bound.
    pub call_max_ms: U32,
    /// How the target reads and writes: one of [`target_io`].
    pub io: u8,
    reserved93: [u8; 27],
    pub(super) described_len: U32,
    helpers_len: U32,
}
const _: () = assert!(size_of::<CapabilityPage>() == 128);

impl CapabilityPage {
    /// A page of zeroes, except its version.
    pub fn new() -> Self {
        let mut page = Self::new_zeroed();
        page.version.set(PAGE_VERSION);
        page.header_len.set(size_of::<Self>() as u16);
        page
    }

    /// The page, with no more of the helpers than their names.
    pub fn encode<'a>(mut self, helpers: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        self.described_len.set(0);
        self.encode_parts(helpers)
    }

    /// The fixed part and the names.
    pub(super) fn encode_parts<'a>(mut self, helpers: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        let names = helpers.into_iter().collect::<Vec<_>>().join("\n");
        self.version.set(PAGE_VERSION);
        self.header_len.set(size_of::<Self>() as u16);
        self.helpers_len.set(names.len() as u32);
        let mut bytes = self.as_bytes().to_vec();
        bytes.extend_from_slice(names.as_bytes());
        bytes
    }

    /// Bytes of the page, which begins with these, up to the end of the names.
    pub fn len(&self) -> usize {
        usize::from(self.header_len.get()) + self.helpers_len.get() as usize
    }

    /// Whether nothing follows the fixed part.
    pub fn is_empty(&self) -> bool {
        self.helpers_len.get() == 0
    }

    /// Parses a page: its fixed part, and the helpers' names.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Vec<String>), FieldError> {
        let (page, rest) = header::<Self>(bytes, |page| (page.version, page.header_len))?;
        let names = rest.get(..page.helpers_len.get() as usize);
        let names = names.ok_or(FieldError::new(124, "the names go beyond the end"))?;
        let names = String::from_utf8_lossy(names);
        Ok((*page, names.split('\n').filter(|name| !name.is_empty()).map(str::to_owned).collect()))
    }
}

impl Default for CapabilityPage {
    fn default() -> Self {
        Self::new()
    }
}

/// How a target reads and writes. 0: it does not say.
pub mod target_io {
    /// Through io_uring.
    pub const IO_URING: u8 = 1;
    /// Through epoll and threads.
    pub const POSIX: u8 = 2;

    /// Its short name, if it has one.
    pub fn name(number: u8) -> Option<&'static str> {
        match number {
            IO_URING => Some("io_uring"),
            POSIX => Some("posix"),
            _ => None,
        }
    }
}

/// LID C1h. Counters since the target started, of all hosts, or of one that sees no more since it connected; entries of
/// programs, volumes and exports follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatisticsPage {
    version: U16,
    header_len: U16,
    entries: U32,
    /// Milliseconds since the start.
    pub uptime_ms: U64,
    /// Engine threads.
    pub engines: U32,
    /// Those that run a call now.
    pub engines_busy: U32,
    /// Calls that wait for an engine now.
    pub queued: U32,
    /// Tags that are open now.
    pub tags_open: U32,
    /// Calls that began.
    pub started: U64,
    /// Calls that ended well.
    pub succeeded: U64,
    /// Calls that ended otherwise.
    pub failed: U64,
    /// Prepared requests that ran.
    pub prepared_calls: U64,
    /// Bytes read from media and files for functions.
    pub media_read: U64,
    /// Bytes written to media and files by functions.
    pub media_written: U64,
    /// Bytes that hosts sent as input.
    pub received: U64,
    /// Bytes of results and trailers that were sent to hosts.
    pub sent: U64,
    /// Microseconds that functions ran.
    pub run_us: U64,
    /// Back edges they took.
    pub back_edges: U64,
    /// Bytes kept for later calls now.
    pub cache_len: U64,
    /// Bytes that were read from there instead of a medium.
    pub cache_read: U64,
    /// Blocks that calls asked for and that were kept.
    pub cache_hits: U64,
    /// Blocks that they asked for and that were not.
    pub cache_misses: U64,
    /// The most bytes that are kept.
    pub cache_len_max: U64,
    /// Bytes of hosts' memory that calls which run may use now.
    pub calls_memory: U64,
    /// Bytes of it that wait for calls or are kept now: requests, input, results, layouts, named states.
    pub kept_memory: U64,
    /// The most of both.
    pub memory_max: U64,
    entry_len: U32,
    reserved180: [u8; 12],
}
const _: () = assert!(size_of::<StatisticsPage>() == 192);

/// The subject of an entry of the statistics.
pub mod statistics_kind {
    /// A function, by the content hash of its program and its name; that with neither is all those together which ran so
    /// long ago that they have no entry any more.
    pub const FUNCTION: u8 = 1;
    /// The hosts' own accesses to the volume with this NSID.
    pub const VOLUME: u8 = 2;
    /// The hosts' own accesses to the export with this number.
    pub const EXPORT: u8 = 3;
    /// The accesses of functions, and of copies from and to memory, to the volume with this NSID.
    pub const VOLUME_BY_FUNCTIONS: u8 = 4;
    /// The accesses of functions to the export with this number.
    pub const EXPORT_BY_FUNCTIONS: u8 = 5;
    /// The effects of the quota of a host that has one, by its name at the target.
    pub const QUOTA: u8 = 6;
    /// The space that a host holds in the export with this number, by its name at the target.
    pub const SPACE: u8 = 7;
    /// The limit with this number ([`quota_limit`](super::quota_limit)) of the quota of a host, by its name at the target.
    pub const QUOTA_LIMIT: u8 = 8;
}

/// The limits of a quota.
pub mod quota_limit {
    /// Commands a second.
    pub const IOPS: u32 = 1;
    /// Bytes a second.
    pub const BYTES_PER_S: u32 = 2;
    /// Its weight where functions of several hosts want to compute.
    pub const CPU_SHARE: u32 = 3;
    /// Bytes that its calls use, and that wait or are kept for it.
    pub const MEMORY: u32 = 4;
    /// Programs that it has loaded.
    pub const PROGRAMS: u32 = 5;
    /// Connections.
    pub const CONNECTIONS: u32 = 6;
    /// Bytes of its named states.
    pub const STATE: u32 = 7;
    /// Bytes of its files in an export: the most that it holds in one.
    pub const SPACE: u32 = 8;
    /// Its files and directories in an export: the most that it has in one.
    pub const FILES: u32 = 9;

    /// How a configuration calls the limit with this number.
    pub fn name(number: u32) -> Option<&'static str> {
        Some(match number {
            IOPS => "iops",
            BYTES_PER_S => "bytes_per_s",
            CPU_SHARE => "cpu_share",
            MEMORY => "memory",
            PROGRAMS => "programs",
            CONNECTIONS => "connections",
            STATE => "state",
            SPACE => "space",
            FILES => "files",
            _ => return None,
        })
    }

    /// Whether a host has some of it; else it is a rate or a weight.
    pub fn is_level(number: u32) -> bool {
        (MEMORY..=FILES).contains(&number)
    }
}

/// An entry of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatisticsEntry {
    /// One of [`statistics_kind`].
    pub kind: u8,
    reserved1: [u8; 3],
    /// NSID, number of the export or of the limit, or a number that the target has given to this function and to no other.
    pub id: U32,
    /// Calls, commands, or reads and writes; of a quota and of a limit of it, how often a connection waited because its host had
    /// had its rate; of space, files that a host has.
    pub operations: U64,
    /// Bytes that functions were given, or that were read; of space, the most that a host may hold, 0 without a quota; of a limit of
    /// a quota, how much it allows.
    pub read: U64,
    /// Bytes that functions gave back, or that were written; of space, those that a host holds; of a limit of a quota, how much of
    /// it is used, if it is a [level](quota_limit::is_level).
    pub written: U64,
    /// Microseconds: of running; of a volume in which commands were under way; of an export, and of what functions do, which
    /// its reads and writes took, added up; of a quota and of a limit of it, that connections waited; of the limit
    /// [`CPU_SHARE`](quota_limit::CPU_SHARE), in which functions of the host ran.
    pub busy_us: U64,
    /// How many failed; of a quota and of a limit of it, how often its host was refused something.
    pub failed: U64,
    /// Content hash of the function's program; of space, the most files that a host may have, 0 without a quota; of a limit of a
    /// quota, the id of the quota.
    pub program_id: U64,
    /// Operations that the disk below a volume or an export has not answered, for hosts and functions: of the kinds
    /// [`VOLUME`](statistics_kind::VOLUME) and [`EXPORT`](statistics_kind::EXPORT).
    pub waiting: U32,
    /// Milliseconds that the oldest of them has waited.
    pub oldest_ms: U32,
    name: [u8; 64],
}
const _: () = assert!(size_of::<StatisticsEntry>() == 128);

impl StatisticsEntry {
    /// An entry of zeroes; the first 64 bytes of `name` are in it.
    pub fn new(kind: u8, id: u32, name: &str) -> Self {
        let mut entry = Self::new_zeroed();
        entry.kind = kind;
        entry.id.set(id);
        fill(&mut entry.name, name);
        entry
    }

    /// The name's start.
    pub fn name(&self) -> String {
        text(&self.name)
    }
}

impl StatisticsPage {
    /// A page of zeroes, except its version.
    pub fn new() -> Self {
        let mut page = Self::new_zeroed();
        page.version.set(PAGE_VERSION);
        page.header_len.set(size_of::<Self>() as u16);
        page
    }

    /// The whole page.
    pub fn encode(mut self, entries: &[StatisticsEntry]) -> Vec<u8> {
        self.version.set(PAGE_VERSION);
        self.header_len.set(size_of::<Self>() as u16);
        self.entries.set(entries.len() as u32);
        self.entry_len.set(size_of::<StatisticsEntry>() as u32);
        let mut bytes = self.as_bytes().to_vec();
        bytes.extend_from_slice(entries.as_bytes());
        bytes
    }

    /// Bytes of the whole page, which begins with these.
    pub fn len(&self) -> usize {
        let entries = (self.entries.get() as usize).saturating_mul(self.entry_len.get() as usize);
        entries.saturating_add(self.header_len.get().into())
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.get() == 0
    }

    /// Parses a page.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Vec<StatisticsEntry>), FieldError> {
        let (page, rest) = header::<Self>(bytes, |page| (page.version, page.header_len))?;
        let (entries, entry_len) = (page.entries.get() as usize, page.entry_len.get() as usize);
        if entries > 0 && entry_len < size_of::<StatisticsEntry>() {
            return Err(FieldError::new(176, "an entry is shorter than 128 bytes"));
        }
        let rest = entries.checked_mul(entry_len).and_then(|len| rest.get(..len));
        let rest = rest.ok_or(FieldError::new(4, "the entries go beyond the end"))?;
        let parsed =
            rest.chunks_exact(entry_len.max(1)).filter_map(|entry| StatisticsEntry::read_from_prefix(entry).ok());
        Ok((*page, parsed.map(|(entry, _)| entry).collect()))
    }
}

impl Default for StatisticsPage {
    fn default() -> Self {
        Self::new()
    }
}

/// LID C2h: the header. Records follow, the newest first, each [`ErrorRecord::LEN`] bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ErrorRecordsPage {
    version: U16,
    header_len: U16,
    records: U32,
    record_len: U32,
    reserved12: [u8; 52],
}
const _: () = assert!(size_of::<ErrorRecordsPage>() == 64);

/// A record of what went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Counts errors of this controller from 1 on.
    pub count: u64,
    /// The tag of the request, the handle of the Call, or the program index of the load.
    pub id: u64,
    /// Queue of the command.
    pub queue_id: u16,
    /// Its identifier.
    pub cid: u16,
    /// Its status.
    pub status: Status,
    /// Its opcode.
    pub opcode: u8,
    /// Byte of its data that is wrong, if it is one.
    pub location: Option<u32>,
    /// The story, for a person: what the verifier says, for instance.
    pub message: String,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ErrorRecordHeader {
    pub(super) count: U64,
    pub(super) id: U64,
    pub(super) queue_id: U16,
    pub(super) cid: U16,
    pub(super) status: U16,
    pub(super) opcode: u8,
    reserved23: u8,
    pub(super) location: U32,
    pub(super) message_len: U32,
    reserved32: [u8; 32],
}
const _: () = assert!(size_of::<ErrorRecordHeader>() == 64);

/// A location that is none.
const NO_LOCATION: u32 = u32::MAX;

impl ErrorRecord {
    /// Bytes of a record.
    pub const LEN: usize = 4096;
    /// The most bytes of its message.
    pub const MESSAGE_LEN_MAX: usize = Self::LEN - size_of::<ErrorRecordHeader>();
}

impl ErrorRecordsPage {
    /// The whole page.
    pub fn encode<'a>(records: impl IntoIterator<Item = &'a ErrorRecord>) -> Vec<u8> {
        let mut page = Self::new_zeroed();
        let mut bytes = vec![0; size_of::<Self>()];
        let mut count = 0;
        for record in records {
            let mut header = ErrorRecordHeader::new_zeroed();
            header.count.set(record.count);
            header.id.set(record.id);
            header.queue_id.set(record.queue_id);
            header.cid.set(record.cid);
            header.status.set(record.status.bits());
            header.opcode = record.opcode;
            header.location.set(record.location.unwrap_or(NO_LOCATION));
            let mut message = vec![0; ErrorRecord::MESSAGE_LEN_MAX];
            header.message_len.set(fill(&mut message, &record.message) as u32);
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(&message);
            count += 1;
        }
        page.version.set(PAGE_VERSION);
        page.header_len.set(size_of::<Self>() as u16);
        page.records.set(count);
        page.record_len.set(ErrorRecord::LEN as u32);
        bytes[..size_of::<Self>()].copy_from_slice(page.as_bytes());
        bytes
    }

    /// Parses a page, or as many records of it as `bytes` holds.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<Vec<ErrorRecord>, FieldError> {
        let (page, rest) = header::<Self>(bytes, |page| (page.version, page.header_len))?;
        if page.record_len.get() as usize != ErrorRecord::LEN {
            return Err(FieldError::new(8, "a record of version 1 has 4,096 bytes"));
        }
        let records = rest.chunks_exact(ErrorRecord::LEN).take(page.records.get() as usize);
        records
            .map(|record| {
                let (header, message) = ErrorRecordHeader::ref_from_prefix(record)
                    .map_err(|_| FieldError::new(0, "a record has 4,096 bytes"))?;
                let message = message.get(..header.message_len.get() as usize);
                let message = message.ok_or(FieldError::new(28, "the message goes beyond the record's end"))?;
                Ok(ErrorRecord {
                    count: header.count.get(),
                    id: header.id.get(),
                    queue_id: header.queue_id.get(),
                    cid: header.cid.get(),
                    status: Status::from_bits(header.status.get()),
                    opcode: header.opcode,
                    location: Some(header.location.get()).filter(|location| *location != NO_LOCATION),
                    message: String::from_utf8_lossy(message).into_owned(),
                })
            })
            .collect()
    }
}

/// The fixed part at the start of a page, and what follows: a later version may have a longer one.
fn header<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
    version_and_len: impl Fn(&T) -> (U16, U16),
) -> Result<(&T, &[u8]), FieldError> {
    let (page, _) =
        T::ref_from_prefix(bytes).map_err(|_| FieldError::new(bytes.len(), "the page ends in its header"))?;
    let (version, len) = version_and_len(page);
    if version.get() == 0 {
        return Err(FieldError::new(0, "the version is 0"));
    }
    let rest = Some(usize::from(len.get())).filter(|len| *len >= size_of::<T>()).and_then(|len| bytes.get(len..));
    Ok((page, rest.ok_or(FieldError::new(2, "the header is not as long as it says"))?))
}

/// Puts as much of a text into a field as fits, between characters. Returns its length.
fn fill(field: &mut [u8], text: &str) -> usize {
    let mut len = text.len().min(field.len());
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    len
}

/// The text in a field that is padded with zeroes.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
