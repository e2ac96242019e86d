//! The verifier: what a program must be before it may run.
//!
//! It decides everything that can be decided before running, and learns on the way where pointers
//! come from and what the program does besides its result. Bounds of memory and the number of loop
//! trips are left to run time: loops and dynamic bounds are allowed. Every rule has a code, which
//! [`explain()`] explains; a program breaks no rule or does not run.
//!
//! The rules hold for the functions that the program can reach by calls. In these, unreachable
//! instructions are allowed, but they have to keep the rules of form as well.
//!
//! # Image (V07, V08)
//! - The program exists, and the functions lie in the code.
//! - The note asks for this version of the program ABI, a frame that is a multiple of 64 bytes up to
//!   1 MiB, an output ratio with a denominator and a constant that a region can have, and records that are not empty.
//! - An image has at most [`CODE_SLOTS_MAX`] slots, a program at most [`BLOCKS_MAX`] blocks, and the
//!   data flow takes a bounded number of steps.
//!
//! # Form (V01, V02)
//! - Every slot belongs to an instruction that RFC 9669 defines, with its reserved fields zero.
//! - Left out, and said to be *unsupported*: packet access, `callx`, calls by BTF id, and the 64-bit
//!   immediates for maps, kernel variables and function addresses.
//! - Jumps go to the first slot of an instruction of the same function.
//! - The last instruction of a function is `exit` or an unconditional jump.
//!
//! # Calls (V06)
//! - A local call goes to the first instruction of a function. Functions do not call themselves, not
//!   even through others. A chain of calls has at most [`CALL_DEPTH_MAX`] functions.
//! - A helper is one that this host has. An absent weak helper may be called: the call traps if
//!   control comes there, since only the program's own test keeps it away.
//! - Every argument that a helper takes is set. Where it takes a pointer, no number is passed, and
//!   NULL only where the length is 0 or not constant; where it takes a number, no pointer.
//! - A constant length behind a stack address stays in the frame.
//! - A helper does not write to memory that is known to be read-only.
//!
//! # Registers (V03)
//! - A register is set on every path to where it is read. On entry the parameters of the kind and
//!   `r10` are; a call leaves `r1` to `r5` unset and `r6` to `r9` as they were. Other functions have
//!   the parameters that all their callers set. A function that leaves `r0` unset on some path
//!   returns nothing.
//! - `r10` is not written. The entry point sets `r0` before it exits.
//!
//! # Stack (V04)
//! - An access at a constant offset from `r10` lies in `[-stack_bytes, 0)`; an atomic one is aligned.
//! - Bytes that were never written may be read: frames are zeroed.
//!
//! # Memory and context (V05)
//! - The address is not a constant in no region, NULL above all.
//! - A store does not go to a region that is known and that the kind may not write.
//! - An access at a constant offset from the context lies in its structure (the ranges behind
//!   `ds_exec` are checked at run time); a store there lies in a field that the kind may write, and
//!   is not atomic. A store at a variable offset is allowed in kinds that may write something of
//!   their context: it is checked against the whole structure, of which the host then believes the
//!   writable fields alone.
//!
//! The layout of each kind's context is in [`contract()`].
//!
//! # What is learnt
//! Registers and up to 64 stack slots a function are followed through moves, arithmetic, spills,
//! calls (a callee with the join of what its callers pass, its callers with the join of what it
//! returns), context fields, helper results and the addresses of globals. A branch on constants
//! goes one way.
//! - [`Base::Frame`] and [`Base::Context`] are *proved*: later stages rely on them. Therefore, while
//!   the stack has addresses ([`Verified::stack_addressable`]), any store at an address that is not
//!   proved turns what the slots hold into hints. While it has none, its window is not mapped, and
//!   nothing but proved accesses can reach a slot.
//! - [`Base::Region`] is a hint: a mistake in it costs speed.
//! - [`Effects`] follow from the hints. A store through a pointer of unknown origin counts as one to
//!   `.data` if the program names any global. To make an absent effect certain, map `.data`
//!   read-only and leave the state region unmapped for programs without them: then a forged address
//!   traps.

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
pub use contract::{COLUMNS_AT, contract, contract_of};
pub use diagnostic::{Class, Diagnostic};
pub use explain::{Explanation, explain, explanations};

use crate::helpers::HelperSet;
use crate::image::{Image, Note};
use crate::region::{REGION_LEN_MAX, RegionId};
use std::borrow::Cow;
use std::sync::Arc;

/// Deepest chain of bpf-to-bpf calls, the entry point included.
pub const CALL_DEPTH_MAX: usize = 8;
/// Most instruction slots of an image.
pub const CODE_SLOTS_MAX: usize = 1 << 20;
/// Most basic blocks of a program.
pub const BLOCKS_MAX: usize = 1 << 16;
/// The data flow may follow this many instructions, and [`STEPS_PER_SLOT`] for each slot.
const STEPS_MIN: usize = 1 << 20;
const STEPS_PER_SLOT: usize = 24;
/// Following a block counts as this many instructions more: the join at its end.
const STEPS_PER_BLOCK: usize = 16;
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
    /// The promises that it was verified with.
    pub contract: Contract,
    /// Its functions, the entry point first; only those that it can reach.
    pub functions: Vec<VerifiedFunction>,
    /// Bytes of stack for the deepest chain of calls.
    pub stack_len: u64,
    /// True when the address of a stack slot is used otherwise than as the base of a load or store
    /// at a constant offset. If false, the stack's window is not mapped: no other pointer reaches it.
    pub stack_addressable: bool,
    /// Its effects besides its result.
    pub effects: Effects,
}

/// A function of a verified program.
#[derive(Clone, Debug)]
pub struct VerifiedFunction {
    /// Index into the image's functions.
    pub function: usize,
    /// Its blocks and edges.
    pub cfg: Cfg,
    /// For each access (by instruction slot, relative to the function's start): its base.
    pub bases: Vec<Base>,
    /// For each local call (by slot relative to the start): index into [`Verified::functions`].
    pub callees: std::collections::BTreeMap<usize, usize>,
    /// Bytes of its frame, a multiple of 64; 0 when it uses no stack.
    pub frame_len: u64,
}

/// The verifier's knowledge of the base register of an access.
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

/// The effects of a program besides its result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Effects {
    /// Writes `.data` or `.bss`. They are set back before each call, so nobody else sees the written bytes.
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
        !(self.uses_clock || self.does_io || self.uses_state)
    }
}

/// The promises of a kind to its programs: the entry contract.
#[derive(Clone, Debug)]
pub struct Contract {
    /// The values of `r1` to `r5` on entry.
    pub params: [Entry; 5],
    /// Bytes of the context structure; 0 when the kind has none.
    pub context_len: u32,
    /// Context fields that hold pointers: offset and region.
    pub context_pointers: Cow<'static, [(u32, RegionId)]>,
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
    /// The address of this byte of the context.
    Context(u32),
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
    let contract = contract_of(entry);
    let mut addressable = false;
    let outcome = loop {
        let setting = flow::Setting {
            image,
            kind: entry.kind,
            contract: &contract,
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
    Ok(assemble(image, program, contract, codes, outcome, addressable))
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
    if note.out_constant > REGION_LEN_MAX {
        refuse(
            "V0707",
            Class::Unsafe,
            format!("an output of {} bytes and more: a region has at most {REGION_LEN_MAX}", note.out_constant),
            "correct `DS_OUTPUT(num, den, constant)`",
        );
    }
    if note.split == Some(crate::image::Split::Fixed(0)) {
        refuse("V0706", Class::Unsafe, "records have 0 bytes".to_owned(), "correct `DS_SPLIT_RECORDS(n)`");
    }
}

/// Puts together the facts learnt about a program that may run.
fn assemble(
    image: &Arc<Image>,
    program: usize,
    contract: Contract,
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
        contract,
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
