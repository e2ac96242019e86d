//! Why a traversal did not end well: the hop, and what was wrong there.

use super::TraverseRead;
use crate::call::errno_text;
use diskside_sbpf::trap::Trap;

/// Why a traversal ended without a result. Nothing of its scratch is to be used.
#[derive(Debug, thiserror::Error)]
#[error("{function}, hop {hop}: {fault}")]
pub struct TraverseError {
    /// Which program.
    pub function: String,
    /// The step that failed or that asked for what failed, from 0.
    pub hop: u32,
    /// What was wrong.
    pub fault: TraverseFault,
}

/// What can be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraverseFault {
    /// The step was stopped.
    #[error("stopped at instruction {insn}{source_line}: {trap}", insn = .trap.insn)]
    Trapped {
        /// Why.
        trap: Box<Trap>,
        /// ` (file:line: text)`, or empty.
        source_line: String,
    },
    /// The step returned a negative number: an errno.
    #[error("returned {code}: {}", errno_text(*code))]
    Errno {
        /// The negative number.
        code: i64,
    },
    /// The step returned neither 0, 1 nor a negative number.
    #[error("returned {0}, where 0 asks for reads and 1 is done")]
    BadReturn(u64),
    /// The step is not done, asks for nothing, and nothing is outstanding.
    #[error("is not done and asks for no read")]
    Stalled,
    /// `nnext` is larger than `next`.
    #[error("asks for {0} reads at once, at most {max} can be asked for", max = diskside_abi::context::NEXT_MAX)]
    TooManyNext(u32),
    /// A file that the request does not list.
    #[error("asks for file {file}, and the request lists {nfiles}")]
    NoSuchFile {
        /// Which.
        file: u32,
        /// How many there are.
        nfiles: usize,
    },
    /// A read of no bytes.
    #[error("asks for 0 bytes at offset {offset} of file {file}")]
    EmptyRead {
        /// Of which file.
        file: u32,
        /// Where.
        offset: u64,
    },
    /// A read that is longer than allowed.
    #[error("asks for {len} bytes in one read, the limit is {max}")]
    ReadTooLong {
        /// Its length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A read outside of its file.
    #[error("asks for {len} bytes at offset {offset} of file {file}, which is {file_len} bytes long", len = .read.len, offset = .read.offset, file = .read.file)]
    BeyondEnd {
        /// What it asks for.
        read: TraverseRead,
        /// Length of the file.
        file_len: u64,
    },
    /// Too many steps.
    #[error("is not done after {0} hops, the limit")]
    TooManyHops(u32),
    /// Too much was asked for.
    #[error("asks for more than {0} bytes in all, the limit")]
    TooManyBytes(u64),
    /// Too many reads at a time.
    #[error("asks for more than {0} reads that are outstanding at a time, the limit")]
    TooManyReads(usize),
    /// The result is longer than scratch.
    #[error("its result is {result_len} bytes of a scratch that is {scratch_cap} bytes long")]
    ResultTooLong {
        /// What the program said.
        result_len: u64,
        /// What there is.
        scratch_cap: usize,
    },
    /// The request's scratch is larger than allowed, or smaller than its input.
    #[error(
        "the request has {input} bytes of input and {scratch_cap} bytes of scratch; input fits scratch, and scratch has at most {max} bytes"
    )]
    Scratch {
        /// Length of the input.
        input: usize,
        /// What it asks for.
        scratch_cap: usize,
        /// The limit.
        max: usize,
    },
    /// A read failed.
    #[error("reading {len} bytes at offset {offset} of file {file}: {reason}", len = .read.len, offset = .read.offset, file = .read.file)]
    Read {
        /// What was read.
        read: TraverseRead,
        /// Why it failed.
        reason: String,
        /// The same as an errno, positive.
        errno: i32,
    },
    /// Its time is over.
    #[error("the deadline passed")]
    Deadline,
    /// Somebody stopped it.
    #[error("the traversal was cancelled")]
    Cancelled,
}
