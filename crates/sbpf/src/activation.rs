//! Activation: a verified program with memory of its own, ready to be called.
//!
//! Load once ([`Program::new`]), activate per thread ([`Activation::new`]), call many times. A call
//! maps the caller's memory without copying and costs nanoseconds.

mod forms;
mod mappings;

use crate::files::Files;
use crate::helpers::{Helper, HelperSet};
use crate::image::Image;
use crate::interp::{Interpreter, Tracer};
use crate::ir::{Module, lower::lower};
use crate::machine::{CancelToken, Environment, Machine, NoEnvironment, RegionEntry, SLICE_EDGES, Status};
use crate::region::RegionId;
use crate::trap::Trap;
use crate::verify::{Contract, Diagnostic, Entry, Verified, verify};
use crate::work::Work;
pub use forms::Forms;
use mappings::MAPPINGS_MAX;
pub use mappings::{Mappings, Ranges};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

/// A way to run a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    /// The reference.
    Interpreter,
    /// Compiled at once by Cranelift.
    Cranelift,
    /// Compiled in the background by LLVM.
    Llvm,
}

impl Tier {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interpreter => "interp",
            Self::Cranelift => "cranelift",
            Self::Llvm => "llvm",
        }
    }
}

/// Runnable code of a program.
///
/// # Safety
/// `enter` must do exactly what the checked IR says, and touch no memory but the machine and the
/// regions mapped in it.
pub unsafe trait Code: Send + Sync {
    /// Which tier made it.
    fn tier(&self) -> Tier;

    /// Bytes of machine code; 0 for none.
    fn code_len_bytes(&self) -> usize;

    /// Why it is slower than code of its tier usually is.
    fn plainer(&self) -> Option<&'static str> {
        None
    }

    /// Runs the entry function. `fp` is the first frame's end.
    ///
    /// # Safety
    /// Every region mapped in `machine` must be valid for the accesses that its entry allows, the
    /// region of the stack must have a base with `Module::stack_len` bytes, and the context region
    /// the length of the kind's context.
    unsafe fn enter(&self, machine: &mut Machine, args: &[u64; 5], fp: u64) -> (Status, u64);
}

/// A verified program, lowered. Shared by all its activations.
#[derive(Debug)]
pub struct Program {
    verified: Verified,
    helpers: Arc<HelperSet>,
    imports: Arc<[Option<Helper>]>,
    forms: Forms,
}

impl Program {
    /// Verifies and lowers one program of an image.
    ///
    /// # Errors
    /// The problems that the verifier found.
    pub fn new(image: &Arc<Image>, program: usize, helpers: &Arc<HelperSet>) -> Result<Self, Vec<Diagnostic>> {
        let verified = verify(image, program, helpers)?;
        let forms = Forms::new(lower(&verified, helpers));
        let imports = image.imports.iter().map(|i| i.helper.map(|id| *helpers.get(id))).collect();
        Ok(Self { verified, helpers: Arc::clone(helpers), imports, forms })
    }

    /// As [`Self::new`], optimised at once with no more than this work. Without any left, loops stay as they are.
    ///
    /// # Errors
    /// The problems that the verifier found.
    pub fn with_work(
        image: &Arc<Image>,
        program: usize,
        helpers: &Arc<HelperSet>,
        work: &Work,
    ) -> Result<Self, Vec<Diagnostic>> {
        let made = Self::new(image, program, helpers)?;
        made.forms.optimise(work);
        Ok(made)
    }

    /// The image that it came from.
    #[must_use]
    pub fn image(&self) -> &Arc<Image> {
        &self.verified.image
    }

    /// Its entry in the image.
    #[must_use]
    pub fn entry(&self) -> &crate::image::Program {
        &self.verified.image.programs[self.verified.program]
    }

    /// The facts that the verifier learnt.
    #[must_use]
    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    /// The promises that it was verified with.
    #[must_use]
    pub fn contract(&self) -> &Contract {
        &self.verified.contract
    }

    /// Its checked IR.
    #[must_use]
    pub fn forms(&self) -> &Forms {
        &self.forms
    }

    /// The checked IR with a check at every access.
    #[must_use]
    pub fn plain(&self) -> &Arc<Module> {
        self.forms.plain()
    }

    /// The checked IR for compilers; see [`Forms::optimised`].
    #[must_use]
    pub fn optimised(&self) -> &Arc<Module> {
        self.forms.optimised()
    }

    /// The interpreter for this program.
    #[must_use]
    pub fn interpreter(&self) -> Interpreter {
        Interpreter::new(Arc::clone(self.plain()))
    }

    /// `r1` to `r5` on entry; `scalars` fill the parameters that are numbers, in order.
    #[must_use]
    pub fn entry_registers(&self, scalars: &[u64]) -> [u64; 5] {
        let mut scalars = scalars.iter().copied();
        self.contract().params.map(|p| match p {
            Entry::Uninit => 0,
            Entry::Scalar => scalars.next().unwrap_or(0),
            Entry::Region(r) => r.base(),
            Entry::Context(at) => RegionId::CONTEXT.base() + u64::from(at),
        })
    }
}

/// How long a call may run.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Retreating edges.
    pub budget: u64,
    /// When to stop.
    pub deadline: Option<Instant>,
    /// The token by which the call can be stopped.
    pub cancel: Option<CancelToken>,
}

impl Limits {
    /// Smallest default budget.
    pub const BUDGET_MIN: u64 = 16 << 20;

    /// The default for a call over this much input and output: max(16 Mi, 4 per byte).
    #[must_use]
    pub const fn for_bytes(input_len: u64, output_cap: u64) -> Self {
        let scaled = input_len.saturating_add(output_cap).saturating_mul(4);
        let budget = if scaled > Self::BUDGET_MIN { scaled } else { Self::BUDGET_MIN };
        Self { budget, deadline: None, cancel: None }
    }
}

/// How a call ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Returned {
    /// The value that the function returned.
    pub value: u64,
    /// Retreating edges that were left.
    pub edges_left: u64,
}

/// How a call was stopped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{trap}")]
pub struct Stopped {
    /// Why and where.
    pub trap: Trap,
    /// Retreating edges that were left.
    pub edges_left: u64,
}

/// A program with its own globals, stack and heap. One call at a time.
pub struct Activation {
    program: Arc<Program>,
    code: Arc<dyn Code>,
    machine: Box<Machine>,
    stack: AlignedBytes,
    data: AlignedBytes,
    /// The end of the first frame.
    fp: u64,
    /// Bytes that the context region must have.
    context_len: u64,
    uses_state: bool,
    /// The regions that the last call left mapped; see [`Self::prepare`].
    mapped: [RegionId; MAPPINGS_MAX],
}

impl Activation {
    /// Activates a program with this code.
    #[must_use]
    pub fn new(program: &Arc<Program>, code: Arc<dyn Code>, options: ActivationOptions) -> Self {
        let machine = Machine::new(
            Arc::clone(&program.helpers),
            Arc::clone(&program.imports),
            options.heap_quota_bytes,
            options.environment,
        );
        let stack = AlignedBytes::zeroed(program.plain().stack_len as usize);
        let data = AlignedBytes::from(&program.image().data[..]);
        let mut this = Self {
            program: Arc::clone(program),
            code,
            machine: Box::new(machine),
            stack,
            data,
            fp: RegionId::STACK.base() + program.plain().functions[0].frame_len,
            context_len: u64::from(program.contract().context_len),
            uses_state: program.verified.effects.uses_state,
            mapped: [RegionId::NULL; MAPPINGS_MAX],
        };
        this.map_own();
        this
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Swaps in other code of the same program, such as that of a faster tier.
    pub fn set_code(&mut self, code: Arc<dyn Code>) {
        self.code = code;
    }

    /// Which tier runs.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.code.tier()
    }

    /// Calls the program. Regions of the image, the stack and the heap are mapped besides
    /// `mappings`.
    ///
    /// # Errors
    /// The trap, with the budget that was left.
    ///
    /// # Panics
    /// If the kind has a context and `mappings` has none of its length: that is the caller's part.
    pub fn call(&mut self, mappings: &Mappings<'_>, args: [u64; 5], limits: &Limits) -> Result<Returned, Stopped> {
        let fp = self.prepare(mappings, limits);
        // SAFETY: `prepare` has mapped what `enter` asks for.
        let (status, value) = unsafe { self.code.enter(&mut self.machine, &args, fp) };
        self.finish(mappings, status, value)
    }

    /// As [`Self::call`], for a program of kind `kernel`, with its files.
    ///
    /// # Errors
    /// As [`Self::call`].
    ///
    /// # Panics
    /// As [`Self::call`].
    pub fn call_with_files(
        &mut self,
        mappings: &Mappings<'_>,
        args: [u64; 5],
        limits: &Limits,
        files: &mut (dyn Files + '_),
    ) -> Result<Returned, Stopped> {
        // SAFETY: only the lifetime changes. The guard takes the pointer out of the machine before this function ends,
        // however it ends, and until then `files` stays borrowed by it alone.
        let files = unsafe { std::mem::transmute::<NonNull<dyn Files + '_>, NonNull<dyn Files>>(NonNull::from(files)) };
        self.machine.files = Some(files);
        let lent = LentFiles(self);
        lent.0.call(mappings, args, limits)
    }

    /// Calls the program in the interpreter, showing every step.
    ///
    /// # Errors
    /// As [`Self::call`]; a tracer that breaks gives a `Cancelled` trap.
    pub fn trace(
        &mut self,
        mappings: &Mappings<'_>,
        args: [u64; 5],
        limits: &Limits,
        tracer: &mut Tracer<'_>,
    ) -> Result<Returned, Stopped> {
        let interpreter = self.program.interpreter();
        let fp = self.prepare(mappings, limits);
        let (status, value) = interpreter.trace(&mut self.machine, args, fp, tracer);
        self.finish(mappings, status, value)
    }

    /// Empties the heap, zeroes the stack and sets globals back: nothing of the last call is left for the next.
    #[inline]
    pub fn forget(&mut self) {
        if self.program.verified.effects.writes_globals {
            self.restore_globals();
        }
        if !self.machine.heap.is_untouched() {
            self.machine.heap.clear();
            self.map_own();
        }
        if self.program.plain().stack_addressable {
            self.stack.as_mut_slice().fill(0);
        }
    }

    /// Sets globals back to the image's initial values and empties the heap.
    pub fn reset(&mut self) {
        self.restore_globals();
        self.machine.heap.clear();
        self.map_own();
    }

    fn restore_globals(&mut self) {
        let initial = &self.program.verified.image.data;
        self.data.as_mut_slice()[..initial.len()].copy_from_slice(initial);
    }

    /// Maps borrowed memory and sets the limits; returns the end of the first frame.
    ///
    /// Memory that a call borrowed stays mapped after it, though it may be gone: nobody looks until the next
    /// call, which mostly maps the same regions again. Only if it maps others, the old ones are unmapped first.
    #[inline]
    fn prepare(&mut self, mappings: &Mappings<'_>, limits: &Limits) -> u64 {
        if self.mapped != mappings.regions {
            self.unmap();
            self.mapped = mappings.regions;
        }
        let context_len = self.context_len;
        let machine = &mut *self.machine;
        mappings.for_each(|region, entry| {
            // This enforces what the verifier found: without the effect there is no state.
            if region != RegionId::STATE || self.uses_state {
                machine.regions[usize::from(region.0)] = entry;
            }
        });
        assert!(
            machine.regions[usize::from(RegionId::CONTEXT.0)].len >= context_len,
            "this kind of program has a context of {context_len} bytes, which must be mapped"
        );
        machine.trap = None;
        machine.slice = limits.budget.min(SLICE_EDGES as u64) as i64;
        machine.budget = limits.budget - machine.slice as u64;
        machine.deadline = limits.deadline;
        if machine.cancel.is_some() || limits.cancel.is_some() {
            machine.cancel.clone_from(&limits.cancel);
        }
        self.fp
    }

    /// Unmaps what the last call borrowed.
    #[cold]
    fn unmap(&mut self) {
        for region in std::mem::replace(&mut self.mapped, [RegionId::NULL; MAPPINGS_MAX]) {
            self.machine.regions[usize::from(region.0)] = RegionEntry::UNMAPPED;
        }
    }

    /// Tells how the call ended.
    #[inline]
    fn finish(&mut self, mappings: &Mappings<'_>, status: Status, value: u64) -> Result<Returned, Stopped> {
        let machine = &mut *self.machine;
        for &(region, _) in mappings.ranges {
            machine.regions[usize::from(region.0)] = RegionEntry::UNMAPPED;
        }
        let edges_left = machine.edges_left();
        match status {
            Status::Returned => Ok(Returned { value, edges_left }),
            Status::Trapped => {
                let trap = machine.trap.take().expect("a trapped call has recorded its trap");
                Err(Stopped { trap, edges_left })
            }
        }
    }

    /// Maps what belongs to the activation. The buffers do not move while it lives.
    fn map_own(&mut self) {
        let image = &self.program.verified.image;
        let regions = &mut self.machine.regions;
        regions[usize::from(RegionId::RODATA.0)] =
            RegionEntry { base: image.rodata.as_ptr().cast_mut(), len: image.rodata.len() as u64, write_len: 0 };
        let data_len = image.data.len() as u64;
        // As with state: globals are writable only to programs that are known to write them.
        let data_write_len = if self.program.verified.effects.writes_globals { data_len } else { 0 };
        regions[usize::from(RegionId::DATA.0)] =
            RegionEntry { base: self.data.as_mut_slice().as_mut_ptr(), len: data_len, write_len: data_write_len };
        let stack_len = if self.program.plain().stack_addressable { self.program.plain().stack_len } else { 0 };
        regions[usize::from(RegionId::STACK.0)] =
            RegionEntry { base: self.stack.as_mut_slice().as_mut_ptr(), len: stack_len, write_len: stack_len };
        self.machine.map_heap();
    }
}

impl std::fmt::Debug for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Activation")
            .field("program", &self.program.entry().name)
            .field("tier", &self.tier())
            .finish_non_exhaustive()
    }
}

/// An activation that has files for one call.
struct LentFiles<'a>(&'a mut Activation);

impl Drop for LentFiles<'_> {
    fn drop(&mut self) {
        self.0.machine.files = None;
    }
}

/// The options of an activation, besides its code.
pub struct ActivationOptions {
    /// Most bytes that `ds_alloc` gives out at one time.
    pub heap_quota_bytes: u64,
    /// Effects of helpers.
    pub environment: Box<dyn Environment + Send>,
}

impl Default for ActivationOptions {
    fn default() -> Self {
        Self { heap_quota_bytes: 64 << 20, environment: Box::new(NoEnvironment) }
    }
}

/// Zeroed bytes aligned to 64, for regions that programs write.
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes {
    lines: Vec<Line>,
}

/// Only its size and alignment matter.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([u8; 64]);

impl AlignedBytes {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self { lines: vec![Line([0; 64]); len.div_ceil(64)] }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `Line` is 64 plain bytes without padding, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.lines.len() * 64) }
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut this = Self::zeroed(bytes.len());
        this.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        this
    }
}
