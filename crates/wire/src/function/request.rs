//! A request: what a Send with FIRST begins with. A header of 64 bytes, source entries and sink entries of 32 bytes each,
//! the arguments, and elements for all that came later.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::chunks::ChunkInput;
use super::command::{FUNCTION_VERSION, FunctionKind};
use super::decompression::{Decompression, DecompressionValue};
use super::endpoint::{Endpoint, EndpointEntry};
use super::field::FieldError;
use super::tlv;
use super::trace::TraceContext;

/// The most bytes of a request.
pub const REQUEST_LEN_MAX: usize = 1 << 20;

/// The most sources, and the most sinks, of a request.
const ENDPOINTS_MAX: usize = 1024;

/// The header. Zero in a limit means the target's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    version: U16,
    header_len: U16,
    kind: u8,
    class: u8,
    flags: U16,
    pind: U16,
    sources: U16,
    sinks: U16,
    threads_max: U16,
    program_id: U64,
    args_len: U32,
    chunk_len: U32,
    result_len_max: U64,
    budget: U64,
    deadline_ms: U32,
    split: U32,
    split_arg: U32,
    tlv_len: U32,
}
const _: () = assert!(size_of::<RequestHeader>() == 64);

impl RequestHeader {
    /// Length in bytes.
    pub const LEN: usize = 64;

    /// Length of the whole request that begins with these bytes; `None`: the header is not complete.
    ///
    /// # Errors
    /// The header field that is not valid.
    pub fn request_len(bytes: &[u8]) -> Result<Option<usize>, FieldError> {
        let Ok((header, _)) = Self::ref_from_prefix(bytes) else { return Ok(None) };
        header.check()?;
        Ok(Some(header.len()))
    }

    fn check(&self) -> Result<(), FieldError> {
        let problem = if self.version.get() != u16::from(FUNCTION_VERSION) {
            FieldError::new(0, "the version is not 1")
        } else if usize::from(self.header_len.get()) != Self::LEN {
            FieldError::new(2, "the header of version 1 has 64 bytes")
        } else if usize::from(self.sources.get()) > ENDPOINTS_MAX {
            FieldError::new(10, "at most 1,024 sources")
        } else if usize::from(self.sinks.get()) > ENDPOINTS_MAX {
            FieldError::new(12, "at most 1,024 sinks")
        } else if self.args_len.get() as usize > REQUEST_LEN_MAX {
            FieldError::new(24, "the arguments are longer than a request may be")
        } else if self.tlv_len.get() as usize > REQUEST_LEN_MAX || self.len() > REQUEST_LEN_MAX {
            FieldError::new(60, "the request is longer than 1 MiB")
        } else {
            return Ok(());
        };
        Err(problem)
    }

    fn len(&self) -> usize {
        let endpoints = usize::from(self.sources.get()) + usize::from(self.sinks.get());
        Self::LEN + endpoints * size_of::<EndpointEntry>() + self.args_len.get() as usize + self.tlv_len.get() as usize
    }
}

/// Flags of the header.
const FLAG_NO_FOLD: u16 = 1 << 0;
const FLAG_FRAMES: u16 = 1 << 1;
const FLAG_GUARDED: u16 = 1 << 2;

/// How urgent a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Someone waits for it.
    #[default]
    Normal = 0,
    /// It runs when nothing else does.
    Background = 1,
}

/// The form of the records of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordSplit {
    /// The form that the program declares.
    #[default]
    Program,
    /// Records of so many bytes.
    Fixed(u32),
    /// Records end with this byte.
    Delimiter(u8),
    /// Every byte: cut anywhere.
    Bytes,
    /// All of it: the program runs once.
    Whole,
}

/// Which part of a larger request a request is. Its one source is that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPart {
    /// Where the larger request begins in the source, and with it the grid of its pieces.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Where in the source the data begins: offsets that the program sees count from there.
    pub zero: u64,
    /// Which of the larger request's sources it is.
    pub source_index: u32,
}

/// Which tier should run a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TierHint {
    /// The best that is ready.
    #[default]
    Best = 0,
    /// The interpreter.
    Interpreter = 1,
    /// Cranelift.
    Cranelift = 2,
    /// LLVM.
    Llvm = 3,
}

/// A named state, shared by the calls of one host that name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateName {
    /// Its name: 1 to 64 bytes.
    pub name: String,
    /// Its size; it is made when it is first named.
    pub len_bytes: u32,
}

impl StateName {
    /// The value by which Function Clear knows a state: FNV-1a of its name, 64 bits. Short names from one host, who harms only
    /// itself with a collision.
    #[must_use]
    pub fn id_of(name: &str) -> u64 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

/// A request, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRequest {
    /// The kind of the request. In a request to prepare: the kind of the calls.
    pub kind: FunctionKind,
    /// How urgent it is.
    pub class: Class,
    /// Whether the outputs of pieces are folded, if the function has a `combine`.
    pub fold: bool,
    /// Whether they travel as frames instead, to be folded by the host: a header of 24 bytes before each.
    pub frames: bool,
    /// For a traversal: files of exports may change while it reads them, because the host keeps what it reads from changing, or
    /// finds changes in the bytes. Without this, such a traversal fails with [`Outcome::Stale`](super::Outcome::Stale).
    pub guarded: bool,
    /// Program index.
    pub pind: u16,
    /// The most engine threads that it runs on; 0: as many as the target likes.
    pub threads_max: u16,
    /// Content hash that the program must have; 0: any.
    pub program_id: u64,
    /// Bytes of a piece, rounded to whole records; 0: what suits the program.
    pub chunk_len: u32,
    /// The most bytes of result; 0: the target's default.
    pub result_len_max: u64,
    /// Back edges of one run; 0: the target's default.
    pub budget: u64,
    /// Time for the whole call; 0: the target's default.
    pub deadline_ms: u32,
    /// The form of the records.
    pub split: RecordSplit,
    /// Which part of a larger request this is; `None`: all of it.
    pub part: Option<RequestPart>,
    /// Bytes that its one source has for the request, however many it has by now; `None`: as many as it has.
    pub source_len: Option<u64>,
    /// The most bytes that the program may have allocated at one time; 0: the default.
    pub heap_len: Option<u64>,
    /// Windows of the input that are read ahead, besides one for each thread; `None`: the target's default.
    pub depth: Option<u32>,
    /// Where the input comes from, in order.
    pub sources: Vec<Endpoint>,
    /// Where the output goes, in order: the next begins when one is full.
    pub sinks: Vec<Endpoint>,
    /// Arguments, as the program sees them.
    pub args: Vec<u8>,
    /// The function's name, when the program has several.
    pub function: Option<String>,
    /// State that it shares.
    pub state: Option<StateName>,
    /// Which tier should run it.
    pub tier: TierHint,
    /// The decompression of its sources, if it runs over decompressed data.
    pub decompression: Option<Decompression>,
    /// The chunks that its sources are, if they are.
    pub chunks: Option<ChunkInput>,
    /// For a launch: which accesses pass the buffer of the kernel by.
    pub direct: DirectAccess,
    /// For a launch: which blocks of its result travel.
    pub result_mask: ResultMask,
    /// The host's span that the call is a part of.
    pub trace: Option<TraceContext>,
    /// Why the host has it run at the target, where it chose: a word, such as `faster`.
    pub reason: Option<String>,
}

/// Which accesses of a kernel go straight to its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DirectAccess {
    /// Those that are whole slices.
    #[default]
    Possible = 0,
    /// None.
    Off = 1,
    /// All: others are read with what is around them.
    All = 2,
}

/// Bytes of a block of a kernel's result, for each of which a mask has a bit.
pub const RESULT_BLOCK_LEN: u64 = 4096;

/// Which blocks of the result of a launch travel: bit `i % 8` of byte `i / 8` is block `i`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResultMask {
    /// All, also those that the kernel holds back, as zeroes: the host knows no masks.
    #[default]
    Unknown,
    /// Those that the kernel does not hold back.
    Kernel,
    /// These, unless the kernel decides otherwise.
    Host(Vec<u8>),
}

/// Types of a request's elements.
const TLV_FUNCTION: u16 = 1;
const TLV_STATE: u16 = 2;
const TLV_TIER: u16 = 3 | tlv::IGNORABLE;
const TLV_DECOMPRESSION: u16 = 8;
const TLV_CHUNKS: u16 = 9;
const TLV_PART: u16 = 4;
const TLV_HEAP: u16 = 5;
const TLV_SOURCE_LEN: u16 = 10;
const TLV_DEPTH: u16 = 6 | tlv::IGNORABLE;
const TLV_DIRECT: u16 = 11;
const TLV_MASK: u16 = 14;
const TLV_MASK_OF_KERNEL: u16 = 14 | tlv::IGNORABLE;
const TLV_TRACE: u16 = 12 | tlv::IGNORABLE;
const TLV_REASON: u16 = 13 | tlv::IGNORABLE;

/// The longest name of a function or a state.
const NAME_LEN_MAX: usize = 64;
/// The longest word for a reason.
const REASON_LEN_MAX: usize = 24;

impl FunctionRequest {
    /// A request with the defaults, without sources and sinks.
    pub const fn new(kind: FunctionKind, pind: u16) -> Self {
        Self {
            kind,
            class: Class::Normal,
            fold: true,
            frames: false,
            guarded: false,
            pind,
            threads_max: 0,
            program_id: 0,
            chunk_len: 0,
            result_len_max: 0,
            budget: 0,
            deadline_ms: 0,
            split: RecordSplit::Program,
            part: None,
            source_len: None,
            heap_len: None,
            depth: None,
            sources: Vec::new(),
            sinks: Vec::new(),
            args: Vec::new(),
            function: None,
            state: None,
            tier: TierHint::Best,
            decompression: None,
            chunks: None,
            direct: DirectAccess::Possible,
            result_mask: ResultMask::Unknown,
            trace: None,
            reason: None,
        }
    }

    /// The most bytes that its result has for so many bytes of result: a mask comes before the blocks of a launch.
    pub fn sent_len_max(&self, result_len_max: u64) -> u64 {
        let is_masked = self.kind == FunctionKind::Launch && self.result_mask != ResultMask::Unknown;
        let mask_len = if is_masked { result_len_max.div_ceil(RESULT_BLOCK_LEN).div_ceil(8) } else { 0 };
        result_len_max.saturating_add(mask_len)
    }

    /// Bytes of it as it is sent.
    pub fn len_bytes(&self) -> usize {
        let endpoints = (self.sources.len() + self.sinks.len()) * size_of::<EndpointEntry>();
        RequestHeader::LEN + endpoints + self.args.len() + self.encode_tlvs().len()
    }

    /// As it is sent.
    ///
    /// # Panics
    /// In debug builds, if it is longer than [`REQUEST_LEN_MAX`], has more than 1,024 sources or sinks, or a name longer than
    /// 64 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let tlvs = self.encode_tlvs();
        let (split, split_arg) = match self.split {
            RecordSplit::Program => (0, 0),
            RecordSplit::Fixed(len) => (1, len),
            RecordSplit::Delimiter(byte) => (2, byte.into()),
            RecordSplit::Bytes => (3, 0),
            RecordSplit::Whole => (4, 0),
        };
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = flag(!self.fold, FLAG_NO_FOLD) | flag(self.frames, FLAG_FRAMES) | flag(self.guarded, FLAG_GUARDED);
        let header = RequestHeader {
            version: U16::new(FUNCTION_VERSION.into()),
            header_len: U16::new(RequestHeader::LEN as u16),
            kind: self.kind as u8,
            class: self.class as u8,
            flags: U16::new(flags),
            pind: U16::new(self.pind),
            sources: U16::new(self.sources.len() as u16),
            sinks: U16::new(self.sinks.len() as u16),
            threads_max: U16::new(self.threads_max),
            program_id: U64::new(self.program_id),
            args_len: U32::new(self.args.len() as u32),
            chunk_len: U32::new(self.chunk_len),
            result_len_max: U64::new(self.result_len_max),
            budget: U64::new(self.budget),
            deadline_ms: U32::new(self.deadline_ms),
            split: U32::new(split),
            split_arg: U32::new(split_arg),
            tlv_len: U32::new(tlvs.len() as u32),
        };
        debug_assert!(header.check().is_ok(), "{:?}", header.check());
        let mut bytes = header.as_bytes().to_vec();
        for endpoint in self.sources.iter().chain(&self.sinks) {
            bytes.extend_from_slice(EndpointEntry::new(endpoint).as_bytes());
        }
        bytes.extend_from_slice(&self.args);
        bytes.extend_from_slice(&tlvs);
        bytes
    }

    fn encode_tlvs(&self) -> Vec<u8> {
        let mut tlvs = Vec::new();
        if let Some(name) = &self.function {
            debug_assert!(name.len() <= NAME_LEN_MAX, "a function's name has at most 64 bytes");
            tlv::push(&mut tlvs, TLV_FUNCTION, name.as_bytes());
        }
        if let Some(state) = &self.state {
            debug_assert!(state.name.len() <= NAME_LEN_MAX, "a state's name has at most 64 bytes");
            let mut value = state.len_bytes.to_le_bytes().to_vec();
            value.extend_from_slice(state.name.as_bytes());
            tlv::push(&mut tlvs, TLV_STATE, &value);
        }
        if let Some(part) = &self.part {
            let mut value = part.start.to_le_bytes().to_vec();
            value.extend_from_slice(&part.end.to_le_bytes());
            value.extend_from_slice(&part.zero.to_le_bytes());
            value.extend_from_slice(&part.source_index.to_le_bytes());
            tlv::push(&mut tlvs, TLV_PART, &value);
        }
        if let Some(len) = self.source_len {
            tlv::push(&mut tlvs, TLV_SOURCE_LEN, &len.to_le_bytes());
        }
        if let Some(len) = self.heap_len {
            tlv::push(&mut tlvs, TLV_HEAP, &len.to_le_bytes());
        }
        if let Some(depth) = self.depth {
            tlv::push(&mut tlvs, TLV_DEPTH, &depth.to_le_bytes());
        }
        if self.tier != TierHint::Best {
            tlv::push(&mut tlvs, TLV_TIER, &[self.tier as u8]);
        }
        if let Some(decompression) = &self.decompression {
            tlv::push(&mut tlvs, TLV_DECOMPRESSION, DecompressionValue::new(decompression).as_bytes());
        }
        if let Some(chunks) = &self.chunks {
            tlv::push(&mut tlvs, TLV_CHUNKS, &chunks.encode());
        }
        if self.direct != DirectAccess::Possible {
            tlv::push(&mut tlvs, TLV_DIRECT, &[self.direct as u8]);
        }
        match &self.result_mask {
            ResultMask::Unknown => {}
            ResultMask::Kernel => tlv::push(&mut tlvs, TLV_MASK_OF_KERNEL, &[]),
            ResultMask::Host(bits) => tlv::push(&mut tlvs, TLV_MASK, bits),
        }
        if let Some(trace) = &self.trace {
            tlv::push(&mut tlvs, TLV_TRACE, &trace.to_bytes());
        }
        if let Some(reason) = &self.reason {
            tlv::push(&mut tlvs, TLV_REASON, reason.as_bytes());
        }
        tlvs
    }

    /// Parses a whole request.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        let (header, rest) = RequestHeader::ref_from_prefix(bytes)
            .map_err(|_| FieldError::new(bytes.len(), "the request ends in its header"))?;
        header.check()?;
        if bytes.len() != header.len() {
            return Err(FieldError::new(bytes.len(), "the request is not as long as its header says"));
        }
        let class = match header.class {
            0 => Class::Normal,
            1 => Class::Background,
            _ => return Err(FieldError::new(5, "the class is 0 (normal) or 1 (background)")),
        };
        let kind = FunctionKind::from_byte(header.kind).filter(|kind| *kind != FunctionKind::Prepare);
        let kind = kind.ok_or(FieldError::new(4, "this kind is not known"))?;
        if header.flags.get() & !(FLAG_NO_FOLD | FLAG_FRAMES | FLAG_GUARDED) != 0 {
            return Err(FieldError::new(6, "this flag is not known"));
        }
        if header.flags.get() & FLAG_GUARDED != 0 && kind != FunctionKind::Traverse {
            return Err(FieldError::new(6, "only a traversal may read files while they change"));
        }
        let split_arg = header.split_arg.get();
        let split = match header.split.get() {
            0 => RecordSplit::Program,
            1 if split_arg == 0 => return Err(FieldError::new(56, "a record has at least one byte")),
            1 => RecordSplit::Fixed(split_arg),
            2 => RecordSplit::Delimiter(
                u8::try_from(split_arg).map_err(|_| FieldError::new(56, "a delimiter is one byte"))?,
            ),
            3 => RecordSplit::Bytes,
            4 => RecordSplit::Whole,
            _ => return Err(FieldError::new(52, "this split is not known")),
        };
        // `len` was compared with the length above: what follows is there.
        let count = usize::from(header.sources.get()) + usize::from(header.sinks.get());
        let (entries, rest) = <[EndpointEntry]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| FieldError::new(10, "the request ends in its sources"))?;
        let mut endpoints = Vec::with_capacity(count);
        for (index, entry) in entries.iter().enumerate() {
            let base = RequestHeader::LEN + index * size_of::<EndpointEntry>();
            endpoints.push(entry.parse(base, index >= header.sources.get().into())?);
        }
        let sinks = endpoints.split_off(header.sources.get().into());
        let (args, tlvs) = rest.split_at(header.args_len.get() as usize);
        let mut request = Self {
            class,
            fold: header.flags.get() & FLAG_NO_FOLD == 0,
            frames: header.flags.get() & FLAG_FRAMES != 0,
            guarded: header.flags.get() & FLAG_GUARDED != 0,
            threads_max: header.threads_max.get(),
            program_id: header.program_id.get(),
            chunk_len: header.chunk_len.get(),
            result_len_max: header.result_len_max.get(),
            budget: header.budget.get(),
            deadline_ms: header.deadline_ms.get(),
            split,
            sources: endpoints,
            sinks,
            args: args.to_vec(),
            ..Self::new(kind, header.pind.get())
        };
        request.decode_tlvs(tlvs, bytes.len() - tlvs.len())?;
        Ok(request)
    }

    fn decode_tlvs(&mut self, tlvs: &[u8], base: usize) -> Result<(), FieldError> {
        for element in tlv::elements(tlvs, base) {
            let tlv::Element { kind, value, offset } = element?;
            match kind {
                TLV_FUNCTION => self.function = Some(name(value, offset)?),
                TLV_STATE => {
                    let (len, text) = value.split_first_chunk().ok_or(FieldError::new(offset, "a state has a size"))?;
                    let len_bytes = u32::from_le_bytes(*len);
                    self.state = Some(StateName { name: name(text, offset + 4)?, len_bytes });
                }
                TLV_PART => {
                    let part = part(value).ok_or(FieldError::new(offset, "a part of a request has 28 bytes"))?;
                    self.check_part(&part, offset)?;
                    self.part = Some(part);
                }
                TLV_SOURCE_LEN => {
                    let len = value.try_into().map_err(|_| FieldError::new(offset, "a source's length has 8 bytes"))?;
                    if self.sources.len() != 1 {
                        return Err(FieldError::new(offset, "a length is that of one source"));
                    }
                    self.source_len = Some(u64::from_le_bytes(len));
                }
                TLV_HEAP => {
                    let len = value.try_into().map_err(|_| FieldError::new(offset, "a heap's length has 8 bytes"))?;
                    self.heap_len = Some(u64::from_le_bytes(len));
                }
                TLV_DEPTH => {
                    let depth = value.try_into().map_err(|_| FieldError::new(offset, "a depth has 4 bytes"))?;
                    self.depth = Some(u32::from_le_bytes(depth));
                }
                TLV_TIER => {
                    // A tier that this target never heard of is the best one.
                    self.tier = match value {
                        [1] => TierHint::Interpreter,
                        [2] => TierHint::Cranelift,
                        [3] => TierHint::Llvm,
                        _ => TierHint::Best,
                    };
                }
                TLV_DECOMPRESSION => {
                    let value = DecompressionValue::ref_from_bytes(value)
                        .map_err(|_| FieldError::new(offset, "what is decompressed has 24 bytes"))?;
                    self.decompression = Some(value.parse(offset)?);
                }
                TLV_DIRECT => {
                    self.direct = match value {
                        [0] => DirectAccess::Possible,
                        [1] => DirectAccess::Off,
                        [2] => DirectAccess::All,
                        _ => {
                            return Err(FieldError::new(
                                offset,
                                "direct accesses are 0 (possible), 1 (off) or 2 (all)",
                            ));
                        }
                    };
                }
                TLV_MASK => self.result_mask = ResultMask::Host(value.to_vec()),
                TLV_MASK_OF_KERNEL => self.result_mask = ResultMask::Kernel,
                TLV_TRACE => self.trace = TraceContext::from_bytes(value),
                TLV_REASON => self.reason = reason(value),
                TLV_CHUNKS => self.chunks = Some(ChunkInput::parse(value, offset)?),
                _ if kind & tlv::IGNORABLE != 0 => {}
                _ => return Err(FieldError::new(offset - 4, "this element is not known")),
            }
        }
        Ok(())
    }
}

impl FunctionRequest {
    fn check_part(&self, part: &RequestPart, offset: usize) -> Result<(), FieldError> {
        let [source] = &self.sources[..] else {
            return Err(FieldError::new(offset, "a part of a request has one source"));
        };
        if part.zero > part.start || part.start > part.end {
            return Err(FieldError::new(offset, "a request begins behind its data's start and ends behind its own"));
        }
        let end = source.offset.checked_add(source.len).filter(|_| source.len != Endpoint::TO_END);
        if source.offset < part.start || end.is_none_or(|end| end > part.end) {
            return Err(FieldError::new(offset, "the source reaches beyond the request that it is a part of"));
        }
        Ok(())
    }
}

fn part(value: &[u8]) -> Option<RequestPart> {
    let (start, rest) = value.split_first_chunk()?;
    let (end, rest) = rest.split_first_chunk()?;
    let (zero, rest) = rest.split_first_chunk()?;
    let [start, end, zero] = [start, end, zero].map(|bytes| u64::from_le_bytes(*bytes));
    Some(RequestPart { start, end, zero, source_index: u32::from_le_bytes(rest.try_into().ok()?) })
}

/// A reason that a host gives for people; `None` for anything but a word.
fn reason(value: &[u8]) -> Option<String> {
    let is_word = value.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_');
    let is_short = (1..=REASON_LEN_MAX).contains(&value.len());
    (is_word && is_short).then(|| String::from_utf8_lossy(value).into_owned())
}

fn name(bytes: &[u8], offset: usize) -> Result<String, FieldError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| (1..=NAME_LEN_MAX).contains(&text.len()));
    text.map(str::to_owned).ok_or(FieldError::new(offset, "a name is 1 to 64 bytes of UTF-8"))
}
