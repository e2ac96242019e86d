//! How a function is to run.

use crate::error::Failure;
use crate::memory::{Growing, bytes_of, sized_in, text_of};
use rust::kernel::ResultBlocks;
use rust::sandbox::activation::Tier;
use rust::session::{Decompress, Header, RunOptions, Where};
use rust::split::Split;
use rust::wire::function::StateName;
use rust::{Codec, DEPTH_MAX, DirectPolicy, TierChoice};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// The longest named state.
const STATE_LEN_MAX: u32 = 16 << 20;

/// Where a function runs.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_place {
    /// Where it is faster, or on both sides.
    DS_AUTO = 0,
    /// With the caller.
    DS_HOST = 1,
    /// With the data.
    DS_DEVICE = 2,
}

/// What runs a function.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_tier {
    /// What is there first, then what is fastest.
    DS_TIER_BEST = 0,
    /// The interpreter.
    DS_TIER_INTERPRETER = 1,
    /// The compiler that is ready at once.
    DS_TIER_CRANELIFT = 2,
    /// The compiler that makes vectors; the call waits for it.
    DS_TIER_LLVM = 3,
}

/// The unit of division: none is cut in two.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_split {
    /// What the function declares.
    DS_SPLIT_FUNCTION = 0,
    /// Every byte: the input may be cut anywhere.
    DS_SPLIT_ANYWHERE = 1,
    /// After so many bytes as `split_at` says.
    DS_SPLIT_LENGTH = 2,
    /// After the byte that `split_at` is, for instance '\n'.
    DS_SPLIT_BYTE = 3,
    /// All of the input: the function is called once.
    DS_SPLIT_WHOLE = 4,
}

/// Whether input that is compressed is decompressed: then offsets, lengths and ranges count decompressed bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_decompress {
    /// The function is given the bytes as they are.
    DS_DECOMPRESS_NONE = 0,
    /// Files and streams are whose first bytes say that they are compressed.
    DS_DECOMPRESS_AUTO = 1,
    /// All input is gzip.
    DS_DECOMPRESS_GZIP = 2,
    /// All input is zstd.
    DS_DECOMPRESS_ZSTD = 3,
}

/// Whether the header of a file is left out: then offsets, lengths and ranges count the bytes behind it.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_header {
    /// The function is given all bytes.
    DS_HEADER_NONE = 0,
    /// That of a file that begins with one of a known format: NumPy's .npy.
    DS_HEADER_AUTO = 1,
    /// All input is of NumPy's format.
    DS_HEADER_NPY = 2,
}

/// Which accesses of a kernel go straight to its files, past its buffer.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_direct {
    /// Those that are whole slices.
    DS_DIRECT_POSSIBLE = 0,
    /// None.
    DS_DIRECT_OFF = 1,
    /// All, with the slices around them.
    DS_DIRECT_ALL = 2,
}

/// Flags of ds_options.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_flags {
    /// What is written is on stable media before the call ends.
    DS_DURABLE = 1,
    /// The device runs it only when nothing else is to do.
    DS_BACKGROUND = 2,
    /// Results of chunks and of files stand one after another, although the function could combine them.
    DS_NO_COMBINE = 4,
    /// The host folds the results of all pieces itself: the device gives each as it is.
    DS_FOLD_HERE = 8,
}

/// How a function is to run. Begin with all zero except `size`; zero selects the defaults below: `ds_options options =
/// { .size = sizeof options, .place = DS_DEVICE };`. Later versions add fields at the end; `size` says which are there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ds_options {
    /// sizeof(ds_options).
    pub size: usize,
    /// A ds_place.
    pub place: i32,
    /// A ds_tier.
    pub tier: i32,
    /// Any of ds_flags.
    pub flags: u32,
    /// Threads on the host, and the most at the device; 0: 1.
    pub threads: u32,
    /// Bytes of a chunk, rounded to whole records; 0: what suits the function, 4 MiB at most.
    pub chunk_len: u64,
    /// Loop iterations that a chunk may take; 0: 4 a byte, at least 16 Mi.
    pub budget: u64,
    /// Milliseconds that the call may take; 0: as many as it wants.
    pub deadline_ms: u64,
    /// Most bytes of a result; 0: 64 MiB.
    pub result_len_max: u64,
    /// A ds_split.
    pub split: i32,
    /// Length of a record, or the byte that ends it.
    pub split_at: u32,
    /// The named state that the function works with (DS_STATE in its source); NULL: none. At a target all calls of this host
    /// that name it share it, on the host those of the session.
    pub state: *const c_char,
    /// Bytes of that state.
    pub state_len: u64,
    /// A ds_decompress.
    pub decompress: i32,
    /// A ds_header.
    pub header: i32,
    /// Where in each file a run over files begins. Calls that are given a range begin there.
    pub offset: u64,
    /// How many bytes of each file a run over files is given; 0: all behind the offset.
    pub length: u64,
    /// Bytes that the function may have allocated at one time; 0: 16 MiB.
    pub heap_len: u64,
    /// Chunks that are read ahead besides one for each thread, at most 64; 0: the usual, UINT32_MAX: none.
    pub depth: u32,
    /// A ds_direct: of a kernel.
    pub direct: i32,
    /// The blocks of its result that a kernel gives back, unless it decides otherwise: bit i % 8 of byte i / 8 is 1 for block i,
    /// of 4096 bytes. NULL: all.
    pub result_blocks: *const u8,
    /// Bytes of that mask; blocks that it has no bit for are held back.
    pub result_blocks_len: u64,
}

// SAFETY: `size` is the first field, the others are numbers and a pointer.
unsafe impl Growing for ds_options {}

impl ds_options {
    /// The caller's options; NULL is all zero.
    ///
    /// # Safety
    /// The crate's contract.
    pub(crate) unsafe fn read(given: *const Self) -> Result<RunOptions, Failure> {
        if given.is_null() {
            return Ok(RunOptions::default());
        }
        // SAFETY: the caller's promise.
        let given = unsafe { sized_in(given, "ds_options")? };
        // SAFETY: as above.
        let (state, result_blocks) = unsafe { (given.state()?, given.blocks()?) };
        Ok(RunOptions { state, result_blocks, ..given.parse()? })
    }

    /// # Safety
    /// The crate's contract.
    unsafe fn state(&self) -> Result<Option<StateName>, Failure> {
        let len_bytes = u32::try_from(self.state_len).ok().filter(|len| *len <= STATE_LEN_MAX);
        if self.state.is_null() {
            return match self.state_len {
                0 => Ok(None),
                len => Err(Failure::invalid(format!("ds_options: state_len is {len}, and state is NULL"))),
            };
        }
        // SAFETY: the caller's promise.
        let name = unsafe { text_of(self.state)? };
        match len_bytes {
            Some(len_bytes) if len_bytes > 0 && (1..=64).contains(&name.len()) => {
                Ok(Some(StateName { name: name.to_owned(), len_bytes }))
            }
            _ => {
                let told = "ds_options: a state has a name of 1 to 64 bytes, and 1 byte to 16 MiB";
                Err(Failure::invalid(format!("{told}; this is `{name}` with {}", self.state_len)))
            }
        }
    }

    /// # Safety
    /// The crate's contract.
    unsafe fn blocks(&self) -> Result<Option<ResultBlocks>, Failure> {
        let len = usize::try_from(self.result_blocks_len);
        match (self.result_blocks.is_null(), len) {
            (true, Ok(0)) => Ok(None),
            (true, _) | (false, Err(_)) => {
                let len = self.result_blocks_len;
                Err(Failure::invalid(format!("ds_options: result_blocks_len is {len}, and there is no such mask")))
            }
            (false, Ok(len)) => {
                // SAFETY: the caller's promise.
                let bits = unsafe { bytes_of(self.result_blocks.cast(), len)? };
                Ok(Some(ResultBlocks::of_bits(bits.to_vec())))
            }
        }
    }

    fn parse(&self) -> Result<RunOptions, Failure> {
        let mut options =
            RunOptions { place: self.place()?, tier: self.tier()?, split: self.split()?, ..RunOptions::default() };
        let all = ds_flags::DS_DURABLE as u32
            | ds_flags::DS_BACKGROUND as u32
            | ds_flags::DS_NO_COMBINE as u32
            | ds_flags::DS_FOLD_HERE as u32;
        if self.flags & !all != 0 {
            return Err(Failure::invalid(format!("ds_options: flags {:#x} are not known", self.flags & !all)));
        }
        let has = |flag: ds_flags| self.flags & flag as u32 != 0;
        options.durable = has(ds_flags::DS_DURABLE);
        options.background = has(ds_flags::DS_BACKGROUND);
        options.fold = !has(ds_flags::DS_NO_COMBINE);
        options.fold_here = has(ds_flags::DS_FOLD_HERE);
        let length = |name: &str, value: u64| {
            usize::try_from(value).map_err(|_| Failure::invalid(format!("ds_options: {name} {value} is too long")))
        };
        if self.threads > 0 {
            options.threads = self.threads as usize;
        }
        if self.chunk_len > 0 {
            options.chunk_len = Some(length("chunk_len", self.chunk_len)?);
        }
        if self.result_len_max > 0 {
            options.limits.result_len_max = length("result_len_max", self.result_len_max)?;
        }
        options.decompress = self.decompress()?;
        options.header = self.header()?;
        options.offset = self.offset;
        options.length = (self.length > 0).then_some(self.length);
        if self.heap_len > 0 {
            options.limits.heap_quota_bytes = self.heap_len;
        }
        options.depth = match self.depth {
            0 => None,
            u32::MAX => Some(0),
            depth if depth as usize <= DEPTH_MAX => Some(depth as usize),
            depth => {
                return Err(Failure::invalid(format!("ds_options: depth is {depth}, and {DEPTH_MAX} is the most")));
            }
        };
        options.direct = self.direct()?;
        options.limits.budget = (self.budget > 0).then_some(self.budget);
        options.limits.deadline = (self.deadline_ms > 0).then(|| Duration::from_millis(self.deadline_ms));
        Ok(options)
    }

    fn place(&self) -> Result<Where, Failure> {
        let places =
            [(ds_place::DS_AUTO, Where::Auto), (ds_place::DS_HOST, Where::Host), (ds_place::DS_DEVICE, Where::Device)];
        let found = places.into_iter().find(|(number, _)| *number as c_int == self.place);
        let unknown = || Failure::invalid(format!("{} is no place: DS_AUTO, DS_HOST or DS_DEVICE", self.place));
        found.map(|(_, place)| place).ok_or_else(unknown)
    }

    fn tier(&self) -> Result<TierChoice, Failure> {
        let tiers = [
            (ds_tier::DS_TIER_BEST, TierChoice::Best),
            (ds_tier::DS_TIER_INTERPRETER, TierChoice::Only(Tier::Interpreter)),
            (ds_tier::DS_TIER_CRANELIFT, TierChoice::Only(Tier::Cranelift)),
            (ds_tier::DS_TIER_LLVM, TierChoice::Only(Tier::Llvm)),
        ];
        let found = tiers.into_iter().find(|(number, _)| *number as c_int == self.tier);
        found.map(|(_, tier)| tier).ok_or_else(|| Failure::invalid(format!("{} is no tier: DS_TIER_...", self.tier)))
    }

    fn decompress(&self) -> Result<Decompress, Failure> {
        let all = [
            (ds_decompress::DS_DECOMPRESS_NONE, Decompress::Never),
            (ds_decompress::DS_DECOMPRESS_AUTO, Decompress::Auto),
            (ds_decompress::DS_DECOMPRESS_GZIP, Decompress::Only(Codec::Gzip)),
            (ds_decompress::DS_DECOMPRESS_ZSTD, Decompress::Only(Codec::Zstd)),
        ];
        let found = all.into_iter().find(|(number, _)| *number as c_int == self.decompress);
        let unknown = || Failure::invalid(format!("{} is nothing to decompress: DS_DECOMPRESS_...", self.decompress));
        found.map(|(_, decompress)| decompress).ok_or_else(unknown)
    }

    fn direct(&self) -> Result<DirectPolicy, Failure> {
        let all = [
            (ds_direct::DS_DIRECT_POSSIBLE, DirectPolicy::Possible),
            (ds_direct::DS_DIRECT_OFF, DirectPolicy::Off),
            (ds_direct::DS_DIRECT_ALL, DirectPolicy::All),
        ];
        let found = all.into_iter().find(|(number, _)| *number as c_int == self.direct);
        let unknown = || Failure::invalid(format!("{} does not say what is direct: DS_DIRECT_...", self.direct));
        found.map(|(_, direct)| direct).ok_or_else(unknown)
    }

    fn header(&self) -> Result<Header, Failure> {
        let all = [
            (ds_header::DS_HEADER_NONE, Header::Ignore),
            (ds_header::DS_HEADER_AUTO, Header::Auto),
            (ds_header::DS_HEADER_NPY, Header::Npy),
        ];
        let found = all.into_iter().find(|(number, _)| *number as c_int == self.header);
        found
            .map(|(_, header)| header)
            .ok_or_else(|| Failure::invalid(format!("{} is no header: DS_HEADER_...", self.header)))
    }

    fn split(&self) -> Result<Option<Split>, Failure> {
        const FUNCTION: i32 = ds_split::DS_SPLIT_FUNCTION as i32;
        const ANYWHERE: i32 = ds_split::DS_SPLIT_ANYWHERE as i32;
        const LENGTH: i32 = ds_split::DS_SPLIT_LENGTH as i32;
        const BYTE: i32 = ds_split::DS_SPLIT_BYTE as i32;
        const WHOLE: i32 = ds_split::DS_SPLIT_WHOLE as i32;
        match (self.split, self.split_at) {
            (FUNCTION, 0) => Ok(None),
            (ANYWHERE, 0) => Ok(Some(Split::Bytes)),
            (WHOLE, 0) => Ok(Some(Split::Whole)),
            (LENGTH, len) if len > 0 => Ok(Some(Split::Fixed(len))),
            (BYTE, byte) if byte <= u8::MAX.into() => Ok(Some(Split::Delimiter(byte as u8))),
            (split @ FUNCTION..=WHOLE, at) => {
                Err(Failure::invalid(format!("split_at {at} does not go with split {split}")))
            }
            (split, _) => Err(Failure::invalid(format!("{split} is no split: DS_SPLIT_..."))),
        }
    }
}
