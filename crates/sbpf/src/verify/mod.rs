//! The verifier: what a program must be before it may run.
//!
//! It checks what can be decided before running (decoding, jump targets, no fall-through,
//! initialised registers, frame offsets, call targets and argument types, the kind's entry
//! contract), and leaves to run time what cannot (bounds of memory, number of loop trips). On the
//! way it learns where pointers come from and what the program does besides its result.

mod access;
mod calls;
mod cfg;
mod contract;
mod diagnostic;
mod explain;
mod flow;
mod report;
mod step;
mod structure;
mod unset;
mod value;

pub use cfg::{Cfg, CfgBlock};
pub use contract::contract;
pub use diagnostic::{Class, Diagnostic};
pub use explain::{Explanation, explain, explanations};

use crate::helpers::HelperSet;
use crate::image::{Image, Note};
use crate::region::RegionId;
use std::sync::Arc;

/// Deepest chain of bpf-to-bpf calls, the entry point included.
pub const CALL_DEPTH_MAX: usize = 8;
/// Most instruction slots of an image.
pub const CODE_SLOTS_MAX: usize = 1 << 20;
/// Most basic blocks of a program.
pub const BLOCKS_MAX: usize = 1 << 16;
/// The data flow may follow this many instructions, and [`STEPS_PER_SLOT`] for each slot.
const STEPS_MIN: usize = 1 << 20;
const STEPS_PER_SLOT: usize = 16;
/// Following a block counts as this many instructions more: the join at its end.
const STEPS_PER_BLOCK: usize = 8;
/// Frames are a multiple of this.
const FRAME_UNIT: u32 = 64;
/// The version of the program ABI that this is.
const ABI_VERSION: u32 = 1;

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
pub fn verify(image: &Arc<Image>, program: usize, helpers: &HelperSet) -> Result<Verified, Vec<Diagnostic>> {
    let mut findings = report::Findings::new(image);
    check_image(image, program, &mut findings);
    if !findings.is_empty() {
        return Err(findings.into_vec());
    }
    let entry = &image.programs[program];
    let codes = structure::functions(image, entry.function, &mut findings);
    if !findings.is_empty() {
        return Err(findings.into_vec());
    }
    let mut addressable = false;
    let outcome = loop {
        let setting = flow::Setting {
            image,
            kind: entry.kind,
            contract: contract(entry.kind),
            helpers,
            codes: &codes,
            frame: image.note.stack_bytes as i32,
            addressable,
        };
        match flow::Flow::new(setting).run(report::Findings::new(image)) {
            Ok(outcome) => break outcome,
            Err(flow::Stop::StackEscapes) => addressable = true,
            Err(flow::Stop::TooComplex) => {
                findings.add(
                    "V0803",
                    Class::Unsupported,
                    None,
                    "the program takes too many steps to verify".to_owned(),
                    "split it into smaller functions or programs",
                );
                return Err(findings.into_vec());
            }
        }
    };
    if !outcome.found.is_empty() {
        return Err(outcome.found);
    }
    Ok(assemble(image, program, codes, outcome, addressable))
}

/// Whether the image is consistent and its note acceptable.
fn check_image(image: &Image, program: usize, findings: &mut report::Findings<'_>) {
    let mut refuse = |code, class, reason: String, suggestion: &str| {
        findings.add(code, class, None, reason, suggestion);
    };
    let Some(entry) = image.programs.get(program) else {
        refuse(
            "V0701",
            Class::Missing,
            format!("there is no program {program}; the image has {}", image.programs.len()),
            "choose one that `diskside inspect` lists",
        );
        return;
    };
    let inside = image.functions.iter().all(|f| f.start <= f.end && f.end <= image.code.len());
    if !inside || entry.function >= image.functions.len() {
        refuse(
            "V0702",
            Class::Unsafe,
            format!("the functions of the image do not lie in its code (program `{}`)", entry.name),
            "build the object again; it is damaged",
        );
    }
    if image.code.len() > CODE_SLOTS_MAX {
        refuse(
            "V0801",
            Class::Unsupported,
            format!("the code is {} instruction slots long, more than {CODE_SLOTS_MAX}", image.code.len()),
            "split the object",
        );
    }
    let note = &image.note;
    if note.abi_version != ABI_VERSION {
        refuse(
            "V0703",
            Class::Missing,
            format!(
                "the program asks for version {} of the program ABI; this is version {ABI_VERSION}",
                note.abi_version
            ),
            "compile against the header of this version",
        );
    }
    if note.stack_bytes == 0 || !note.stack_bytes.is_multiple_of(FRAME_UNIT) || note.stack_bytes > Note::STACK_BYTES_MAX
    {
        refuse(
            "V0704",
            Class::Unsafe,
            format!(
                "a frame of {} bytes: it has to be a multiple of {FRAME_UNIT}, at least {FRAME_UNIT} and at most {}",
                note.stack_bytes,
                Note::STACK_BYTES_MAX
            ),
            "correct `DS_STACK_BYTES(n)`",
        );
    }
    if note.out_ratio.1 == 0 {
        refuse(
            "V0705",
            Class::Unsafe,
            format!("the output ratio {}/0 divides by zero", note.out_ratio.0),
            "correct `DS_OUTPUT(num, den, constant)`",
        );
    }
    if matches!(note.split, crate::image::Split::Fixed(0)) {
        refuse(
            "V0706",
            Class::Unsafe,
            "the default split is into records of 0 bytes".to_owned(),
            "correct `DS_SPLIT_RECORDS(n)`",
        );
    }
}

/// Puts together what was learnt of a program that may run.
fn assemble(
    image: &Arc<Image>,
    program: usize,
    codes: Vec<structure::Code<'_>>,
    outcome: flow::Outcome,
    stack_addressable: bool,
) -> Verified {
    let functions: Vec<VerifiedFunction> = codes
        .into_iter()
        .zip(outcome.learnt)
        .map(|(code, learnt)| VerifiedFunction {
            function: code.function,
            cfg: code.cfg,
            bases: learnt.bases,
            callees: code.callees,
            frame_len: if stack_addressable && learnt.frame_escapes {
                u64::from(image.note.stack_bytes)
            } else {
                u64::from(learnt.frame_used.next_multiple_of(FRAME_UNIT))
            },
        })
        .collect();
    Verified {
        image: Arc::clone(image),
        program,
        stack_len: deepest(&functions, 0, &mut vec![None; functions.len()]),
        functions,
        stack_addressable,
        effects: outcome.effects,
    }
}

/// Bytes of stack for the deepest chain of calls from a function on.
fn deepest(functions: &[VerifiedFunction], f: usize, known: &mut [Option<u64>]) -> u64 {
    // Chains of calls are at most CALL_DEPTH_MAX long, so this recursion is too.
    if let Some(len) = known[f] {
        return len;
    }
    let below = functions[f].callees.values().map(|&c| deepest(functions, c, known)).max().unwrap_or(0);
    let len = functions[f].frame_len + below;
    known[f] = Some(len);
    len
}
