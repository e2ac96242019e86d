//! The verifier: what a program must be before it may run.
//!
//! It checks what can be decided before running (decoding, jump targets, no fall-through,
//! initialised registers, frame offsets, call targets and argument types, the kind's entry
//! contract), and leaves to run time what cannot (bounds of memory, number of loop trips). On the
//! way it learns where pointers come from and what the program does besides its result.

mod cfg;
mod diagnostic;

pub use cfg::{Cfg, CfgBlock};
pub use diagnostic::{Class, Diagnostic, Explanation, explain};

use crate::image::{Image, Kind};
use crate::region::RegionId;
use std::sync::Arc;

/// Deepest chain of bpf-to-bpf calls, the entry point included.
pub const CALL_DEPTH_MAX: usize = 8;

/// A program that may run.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The image.
    pub image: Arc<Image>,
    /// Which of its programs.
    pub program: usize,
    /// Its functions, the entry point first; only those that it can reach.
    pub functions: Vec<VerifiedFunction>,
    /// Bytes of stack for the deepest chain of calls.
    pub stack_len: u64,
    /// True when the address of a stack slot is used otherwise than as the base of a load or store
    /// at a constant offset. If false, the stack's window is not mapped: no other pointer reaches it.
    pub stack_addressable: bool,
    /// What it does besides its result.
    pub effects: Effects,
}

/// A function of a verified program.
#[derive(Clone, Debug)]
pub struct VerifiedFunction {
    /// Index into the image's functions.
    pub function: usize,
    /// Its blocks and edges.
    pub cfg: Cfg,
    /// For each access (by instruction slot, relative to the function's start) what its base is.
    pub bases: Vec<Base>,
    /// For each local call (by slot relative to the start): index into [`Verified::functions`].
    pub callees: std::collections::BTreeMap<usize, usize>,
    /// Bytes of its frame, a multiple of 64; 0 when it uses no stack.
    pub frame_len: u64,
}

/// What the base register of an access is known to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Base {
    /// No access here, or nothing known.
    #[default]
    Unknown,
    /// A pointer made from this region's address: a hint.
    Region(RegionId),
    /// The frame pointer plus a constant; the access is proved to lie in the frame. The offset is
    /// that of the access itself (the instruction's offset included), negative.
    Frame(i32),
    /// The context plus a constant; the access is proved to lie in the context structure.
    Context(u32),
}

/// What a program does besides its result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Effects {
    /// Writes `.data` or `.bss`.
    pub writes_globals: bool,
    /// Reads a clock.
    pub uses_clock: bool,
    /// Reads or writes files, or logs.
    pub does_io: bool,
    /// Touches the named state region.
    pub uses_state: bool,
}

impl Effects {
    /// True when a call may be probed, retried, split or moved.
    #[must_use]
    pub const fn is_pure(self) -> bool {
        !(self.writes_globals || self.uses_clock || self.does_io || self.uses_state)
    }
}

/// What a kind promises to its programs: the entry contract.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// What `r1` to `r5` hold on entry.
    pub params: [Entry; 5],
    /// Bytes of the context structure; 0 when the kind has none.
    pub context_len: u32,
    /// Context fields that hold pointers: offset and region.
    pub context_pointers: &'static [(u32, RegionId)],
    /// Byte ranges of the context that the program may write.
    pub context_writable: &'static [(u32, u32)],
    /// Regions that the program may write.
    pub writable: &'static [RegionId],
}

/// A register on entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    /// Nothing: reading it is an error.
    Uninit,
    /// A number.
    Scalar,
    /// The address of a region's first byte.
    Region(RegionId),
}

/// Verifies one program of an image.
///
/// # Errors
/// Every problem found, at most 32, in order of the instructions.
pub fn verify(
    image: &Arc<Image>,
    program: usize,
    helpers: &crate::helpers::HelperSet,
) -> Result<Verified, Vec<Diagnostic>> {
    let _ = (image, program, helpers);
    Err(Vec::new())
}

/// The contract of a kind.
#[must_use]
pub fn contract(kind: Kind) -> &'static Contract {
    let _ = kind;
    &Contract {
        params: [Entry::Uninit; 5],
        context_len: 0,
        context_pointers: &[],
        context_writable: &[],
        writable: &[],
    }
}
