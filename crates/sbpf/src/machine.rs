//! The machine: what running code, in every tier, shares with its host.
//!
//! [`Machine`] has a fixed layout that compiled code addresses by offset. Everything that is rare
//! (an access that the inline check could not prove, the end of a slice, a helper) goes through the
//! methods here, so that all tiers trap alike.

pub use crate::cancel::{CancelToken, CancelWatch};
use crate::files::Files;
use crate::helpers::{Helper, HelperSet};
use crate::region::{GUARD_LEN, REGION_COUNT, REGION_SHIFT, RegionId};
use crate::trap::{Trap, TrapKind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

/// Retreating edges between two looks at the deadline and at cancellation.
pub const SLICE_EDGES: i64 = 16 << 10;

/// Most loads that compiled code asks for at once.
pub const LOADED_MAX: usize = 16;

/// A mapped region: host address, length and whether the program may write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RegionEntry {
    /// Host address of the first byte.
    pub base: *mut u8,
    /// Length; 0 when unmapped.
    pub len: u64,
    /// Length for writes: `len`, or 0 when read-only.
    pub write_len: u64,
}

impl RegionEntry {
    /// An unmapped window.
    pub const UNMAPPED: Self = Self { base: std::ptr::null_mut(), len: 0, write_len: 0 };
}

/// The answer of a helper that cannot continue. The machine completes it to a [`Trap`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The arguments are wrong, for this reason.
    Refused(&'static str),
    /// They are wrong at this byte of a text.
    RefusedAt(&'static str, u64),
    /// A memory access, budget or cancellation trap that the machine has recorded.
    Trapped,
}

/// The host's side of helpers with effects.
pub trait Environment {
    /// A line from the program. The host limits the rate.
    fn log(&mut self, message: &[u8]);
    /// Why the program is about to return an error, in words.
    fn fail(&mut self, _why: &[u8]) {}
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&mut self) -> u64;
    /// Called a while before deadline and cancellation are looked at, thousands of times a second: a good moment to let
    /// others have the thread's processor.
    fn pause(&mut self) {}
}

/// An environment that drops logs and has a stopped clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEnvironment;

impl Environment for NoEnvironment {
    fn log(&mut self, _message: &[u8]) {}
    fn now_ns(&mut self) -> u64 {
        0
    }
}

/// State of one execution. One thread uses it at a time.
#[repr(C)]
pub struct Machine {
    /// Retreating edges left before the next look; compiled code keeps it in a register and stores
    /// it here around calls.
    pub slice: i64,
    /// Arguments of the helper being called.
    pub args: [u64; 5],
    /// Result of the helper that was called.
    pub result: u64,
    /// The windows.
    pub regions: [RegionEntry; REGION_COUNT],
    /// The results of loads that compiled code has asked for at once.
    pub loaded: [u64; LOADED_MAX],
    // Below: not addressed by compiled code.
    pub(crate) budget: u64,
    pub(crate) insn: u32,
    pub(crate) trap: Option<Trap>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) helpers: Arc<HelperSet>,
    /// Import index to helper.
    pub(crate) imports: Arc<[Option<Helper>]>,
    pub(crate) heap: crate::helpers::heap::Heap,
    pub(crate) finder: crate::helpers::find::FinderCache,
    pub(crate) regex: crate::helpers::regex::RegexCache,
    pub(crate) environment: Box<dyn Environment + Send>,
    /// Borrowed for a call; `None` between calls, and of programs that have no files.
    pub(crate) files: Option<NonNull<dyn Files>>,
}

// SAFETY: the raw pointers in `regions` and `files` are only dereferenced during a call, by the thread that
// holds the machine exclusively; the code that maps them keeps the memory borrowed for the call.
unsafe impl Send for Machine {}

/// How compiled code ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Status {
    /// `exit` was reached.
    Returned = 0,
    /// A trap is recorded in the machine.
    Trapped = 1,
}

impl Machine {
    /// A machine with nothing mapped.
    pub(crate) fn new(
        helpers: Arc<HelperSet>,
        imports: Arc<[Option<Helper>]>,
        heap_quota_bytes: u64,
        environment: Box<dyn Environment + Send>,
    ) -> Self {
        Self {
            slice: 0,
            args: [0; 5],
            result: 0,
            regions: [RegionEntry::UNMAPPED; REGION_COUNT],
            loaded: [0; LOADED_MAX],
            budget: 0,
            insn: 0,
            trap: None,
            deadline: None,
            cancel: None,
            helpers,
            imports,
            heap: crate::helpers::heap::Heap::new(heap_quota_bytes),
            finder: crate::helpers::find::FinderCache::default(),
            regex: crate::helpers::regex::RegexCache::default(),
            environment,
            files: None,
        }
    }

    /// Maps the heap as it is now.
    pub(crate) fn map_heap(&mut self) {
        self.regions[usize::from(RegionId::HEAP.0)] = self.heap.entry();
    }

    /// Records that a tracer stopped the call.
    pub(crate) fn cancelled(&mut self) {
        self.stop(TrapKind::Cancelled);
    }

    /// Finds the host address of `len` bytes at `address`, or records the trap.
    ///
    /// This is the one definition of what an access may touch.
    pub fn resolve(&mut self, address: u64, len: u64, write: bool) -> Option<*mut u8> {
        let trap = match RegionId::of(address) {
            Some(id) => {
                let entry = &self.regions[usize::from(id.0)];
                let offset = address & ((1 << REGION_SHIFT) - 1);
                let bound = if write { entry.write_len } else { entry.len };
                if offset <= bound && len <= bound - offset && bound != 0 {
                    // `offset` is within the region, so the sum stays inside one allocation.
                    return Some(entry.base.wrapping_add(offset as usize));
                }
                self.refuse(id, offset, len, write)
            }
            None => Trap {
                kind: TrapKind::Unmapped,
                insn: self.insn,
                region: None,
                offset: address as i64,
                len,
                bound: 0,
                write,
                helper: None,
            },
        };
        self.trap = Some(trap);
        None
    }

    /// Like [`Machine::resolve`], and `address` must be a multiple of `len` (1, 2, 4 or 8).
    pub fn resolve_atomic(&mut self, address: u64, len: u64) -> Option<*mut u8> {
        let host = self.resolve(address, len, true)?;
        if address & (len - 1) == 0 {
            return Some(host);
        }
        let id = RegionId::of(address)?;
        let bound = self.regions[usize::from(id.0)].len;
        self.trap = Some(Trap {
            kind: TrapKind::Misaligned,
            insn: self.insn,
            region: Some(id),
            offset: (address & ((1 << REGION_SHIFT) - 1)) as i64,
            len,
            bound,
            write: true,
            helper: None,
        });
        None
    }

    fn refuse(&self, id: RegionId, offset: u64, len: u64, write: bool) -> Trap {
        let trap = |kind, region: RegionId, offset| Trap {
            kind,
            insn: self.insn,
            region: Some(region),
            offset,
            len,
            bound: self.regions[usize::from(region.0)].len,
            write,
            helper: None,
        };
        // An underflow lands at the end of the window before: say so in terms of its region.
        let before = (1 << REGION_SHIFT) - GUARD_LEN;
        if offset >= before && usize::from(id.0) + 1 < REGION_COUNT {
            let next = RegionId(id.0 + 1);
            if !self.regions[usize::from(next.0)].base.is_null() {
                return trap(TrapKind::OutOfBounds, next, offset as i64 - (1 << REGION_SHIFT));
            }
        }
        let entry = &self.regions[usize::from(id.0)];
        let kind = if entry.base.is_null() {
            TrapKind::Unmapped
        } else if write && entry.write_len == 0 && offset <= entry.len && len <= entry.len - offset {
            TrapKind::ReadOnly
        } else {
            TrapKind::OutOfBounds
        };
        trap(kind, id, offset as i64)
    }

    /// The end of a slice. On entry `slice` is -1: one retreating edge is not yet paid. On success
    /// it is 0 or more.
    pub fn refill(&mut self) -> Status {
        debug_assert_eq!(self.slice, -1, "a slice ends when one edge is not yet paid");
        self.environment.pause();
        if let Some(mut files) = self.files {
            // SAFETY: the code that put it there borrowed it for the call alone (`Activation::call_with_files`), it is not part
            // of the machine, and no helper runs at the end of a slice: this is the only reference.
            unsafe { files.as_mut() }.pause();
        }
        if let Some(kind) = self.interruption() {
            return self.stop(kind);
        }
        if self.budget == 0 {
            self.slice = 0;
            return self.stop(TrapKind::Budget);
        }
        let grant = self.budget.min(SLICE_EDGES as u64);
        self.budget -= grant;
        self.slice += grant as i64;
        Status::Returned
    }

    /// Takes `edges` from the budget on behalf of a helper. Looks at deadline and cancellation when
    /// the work is long or the slice ends, so that short helpers stay short.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when the call has to stop.
    pub fn charge(&mut self, edges: u64) -> Result<(), Fault> {
        const LONG_EDGES: u64 = 1 << 10;
        if edges < LONG_EDGES && self.slice >= edges as i64 {
            self.slice -= edges as i64;
            return Ok(());
        }
        let left = self.edges_left();
        self.environment.pause();
        if let Some(kind) = self.interruption() {
            self.stop(kind);
            return Err(Fault::Trapped);
        }
        if left < edges {
            self.slice = 0;
            self.budget = 0;
            self.stop(TrapKind::Budget);
            return Err(Fault::Trapped);
        }
        let slice = self.slice.max(0) as u64;
        if slice >= edges {
            self.slice -= edges as i64;
        } else {
            self.budget -= edges - slice;
            self.slice = 0;
        }
        Ok(())
    }

    /// Retreating edges that the call may still take.
    #[must_use]
    pub fn edges_left(&self) -> u64 {
        self.budget + self.slice.max(0) as u64
    }

    /// Looks whether the call has to stop, and records why.
    ///
    /// # Errors
    /// [`Fault::Trapped`]: it has.
    pub(crate) fn look(&mut self) -> Result<(), Fault> {
        match self.interruption() {
            Some(kind) => {
                self.stop(kind);
                Err(Fault::Trapped)
            }
            None => Ok(()),
        }
    }

    fn interruption(&self) -> Option<TrapKind> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Some(TrapKind::Cancelled);
        }
        match self.deadline {
            Some(d) if Instant::now() >= d => Some(TrapKind::Deadline),
            _ => None,
        }
    }

    fn stop(&mut self, kind: TrapKind) -> Status {
        self.trap =
            Some(Trap { kind, insn: self.insn, region: None, offset: 0, len: 0, bound: 0, write: false, helper: None });
        Status::Trapped
    }

    /// Calls an import with the arguments in `args`; its result goes to `result`.
    pub fn call_helper(&mut self, import: u32, insn: u32) -> Status {
        self.insn = insn;
        let Some(Some(Helper { name, body, .. })) = self.imports.get(import as usize) else {
            return self.refused("helper", "it is weak and absent here; test its address before the call");
        };
        let (name, body) = (*name, *body);
        match body(self, self.args) {
            Ok(value) => {
                self.result = value;
                Status::Returned
            }
            Err(Fault::Refused(why)) => self.refused(name, why),
            Err(Fault::RefusedAt(why, byte)) => {
                let status = self.refused(name, why);
                if let Some(t) = &mut self.trap {
                    (t.offset, t.len) = (byte as i64, 1);
                }
                status
            }
            Err(Fault::Trapped) => {
                if let Some(t) = &mut self.trap {
                    t.insn = insn;
                    t.helper = Some((name, "called here"));
                }
                Status::Trapped
            }
        }
    }

    fn refused(&mut self, name: &'static str, why: &'static str) -> Status {
        self.stop(TrapKind::Helper);
        if let Some(t) = &mut self.trap {
            t.helper = Some((name, why));
        }
        Status::Trapped
    }

    /// Sets the instruction that the next trap names.
    pub fn at(&mut self, insn: u32) {
        self.insn = insn;
    }

    /// The environment, for helpers with effects.
    pub fn environment(&mut self) -> &mut (dyn Environment + Send) {
        self.environment.as_mut()
    }

    /// The helpers that this machine offers.
    #[must_use]
    pub fn helpers(&self) -> &HelperSet {
        &self.helpers
    }

    /// Bytes that a helper reads.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when the range is not readable.
    pub fn bytes(&mut self, address: u64, len: u64) -> Result<&[u8], Fault> {
        if len == 0 {
            return Ok(&[]);
        }
        let host = self.resolve(address, len, false).ok_or(Fault::Trapped)?;
        // SAFETY: `resolve` proved that `len` bytes at `host` lie in a mapped region; mapped memory
        // stays borrowed for the call, and the borrow of `self` keeps others from writing it.
        Ok(unsafe { std::slice::from_raw_parts(host, len as usize) })
    }

    /// Bytes that a helper writes.
    ///
    /// # Errors
    /// [`Fault::Trapped`] when the range is not writable.
    pub fn bytes_mut(&mut self, address: u64, len: u64) -> Result<&mut [u8], Fault> {
        if len == 0 {
            return Ok(&mut []);
        }
        let host = self.resolve(address, len, true).ok_or(Fault::Trapped)?;
        // SAFETY: as in `bytes`, and the region is writable.
        Ok(unsafe { std::slice::from_raw_parts_mut(host, len as usize) })
    }
}
