//! Kernels: programs that read and write files themselves, launched with arguments.
//!
//! The files are open when a kernel begins, and it knows them by numbers: first those that it may only read. Its writes
//! stay, also if it fails later. A kernel has effects, so each request for one runs it once.

mod blocks;
mod flight;
mod operation;
mod slices;

use crate::call::{CallError, CallLimits, Place};
use crate::code::{CodeCache, OnMiss, TierChoice};
use crate::environment::{CallEnvironment, Log};
use crate::function::Function;
use crate::turns::{Turns, in_turn};
use crate::worker::{output_len, trap_before, trapped};
pub use blocks::ResultBlocks;
use diskside_abi::context::DsKernel;
pub use diskside_abi::context::RESULT_BLOCK_LEN;
use diskside_io::buffer::{Buffer, Hugepages};
use diskside_io::bytefile::ByteFile;
use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Tier};
use diskside_sbpf::files::FileFault;
use diskside_sbpf::image::Kind;
use diskside_sbpf::machine::CancelToken;
use diskside_sbpf::region::RegionId;
use diskside_sbpf::trap::TrapKind;
use flight::{Flight, FlightPlan};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros as _, IntoBytes as _};

/// Most files of one kernel.
pub const KERNEL_FILES_MAX: usize = 16;
/// Accesses that a kernel may have under way, when it is not said.
pub const KERNEL_DEPTH: usize = 16;
/// Most of them.
pub const KERNEL_DEPTH_MAX: usize = 64;
/// Bytes of a slice, when it is not said.
pub const SLICE_LEN: usize = 4 << 10;
/// The longest slice.
pub const SLICE_LEN_MAX: usize = 64 << 10;
/// Room for the result, when it is not said.
pub const KERNEL_RESULT_LEN: usize = 16 << 20;
/// Bytes of slices that are kept for a kernel.
const SLICES_BYTES: usize = 1 << 20;

/// Which accesses of a kernel pass the slices by that are kept for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectPolicy {
    /// None: all go through slices, one after another.
    Off,
    /// Those that are whole slices.
    #[default]
    Possible,
    /// All: a read of less than whole slices takes the bytes around it, too.
    All,
}

/// A launch of a kernel.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program: a function of kind `kernel`.
    pub kernel: &'a Function,
    /// Files that it may read, numbered from 0.
    pub files: Vec<Arc<dyn ByteFile>>,
    /// Files behind them, which it may write as well.
    pub writable: Vec<Arc<dyn ByteFile>>,
    /// Its arguments, as it sees them.
    pub args: Vec<u8>,
    /// Room for its result.
    pub result_len_max: usize,
    /// The blocks of its result that its host wants, unless it decides otherwise; `None`: all.
    pub blocks: Option<ResultBlocks>,
    /// Which accesses are direct.
    pub direct: DirectPolicy,
    /// Bytes of a slice: a power of two from 4 KiB to [`SLICE_LEN_MAX`].
    pub slice_len: usize,
    /// Accesses that may be under way at a time.
    pub depth: usize,
    /// Which tier runs it.
    pub tier: TierChoice,
    /// When to stop it.
    pub limits: CallLimits,
    /// Who says when it may compute.
    pub turns: Option<Arc<dyn Turns>>,
}

/// How a kernel ended well.
#[derive(Debug)]
pub struct Launched {
    /// Its result; blocks that are held back are zeroes.
    pub result: Buffer,
    /// The blocks of the result that are not held back, if some are.
    pub blocks: Option<ResultBlocks>,
    /// What it took.
    pub stats: LaunchStats,
    /// Lines that it logged, and how many more were dropped.
    pub log: (Vec<String>, u64),
}

/// What a kernel took.
#[derive(Clone, Copy, Debug)]
pub struct LaunchStats {
    /// Which tier ran it.
    pub tier: Tier,
    /// Retreating edges taken.
    pub edges: u64,
    /// Its accesses of files.
    pub io: IoCounts,
    /// Time in all.
    pub total: Duration,
}

/// Accesses of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Reads and writes that the kernel asked for.
    pub accesses: u64,
    /// Reads and writes of the files that were made for them.
    pub requests: u64,
    /// Those that were direct.
    pub direct: u64,
    /// Slices that were kept, and not read again.
    pub kept: u64,
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Time in which the kernel waited for them.
    pub waited: Duration,
}

impl<'a> Launch<'a> {
    /// A launch with the defaults.
    #[must_use]
    pub fn new(kernel: &'a Function, args: Vec<u8>) -> Self {
        Self {
            kernel,
            files: Vec::new(),
            writable: Vec::new(),
            args,
            result_len_max: KERNEL_RESULT_LEN,
            blocks: None,
            direct: DirectPolicy::default(),
            slice_len: SLICE_LEN,
            depth: KERNEL_DEPTH,
            tier: TierChoice::Best,
            limits: CallLimits::default(),
            turns: None,
        }
    }

    /// Bytes that it may hold at a time, besides its globals and its stack.
    #[must_use]
    pub fn memory_bytes(heap: u64, result_len_max: u64, depth: usize, slice_len: usize) -> u64 {
        // Of each access what was asked for, and what is read around it; and what is kept to be used again.
        let access = flight::ACCESS_LEN_MAX + 2 * slice_len as u64;
        let accesses = 3 * (depth as u64 + 2) * access;
        heap.saturating_add(result_len_max).saturating_add(SLICES_BYTES.max(slice_len) as u64 + accesses)
    }

    fn check(&self) -> Result<(), CallError> {
        let function = || self.kernel.main().entry().section.clone();
        if self.kernel.kind() != Kind::Kernel {
            return Err(CallError::WrongKind { function: function(), kind: self.kernel.kind().name() });
        }
        if let Some(schema) = self.kernel.args()
            && self.args.len() < schema.len_bytes as usize
        {
            let (given, wants, name) = (self.args.len(), schema.len_bytes, schema.name.clone());
            return Err(CallError::BadArgs { given, wants, name });
        }
        let bad = |what| Err(CallError::BadLaunch { function: function(), what });
        if self.files.len() + self.writable.len() > KERNEL_FILES_MAX {
            return bad("a kernel has at most 16 files");
        }
        if !self.slice_len.is_power_of_two() || !(SLICE_LEN..=SLICE_LEN_MAX).contains(&self.slice_len) {
            return bad("a slice has 4 KiB to 64 KiB, and that is a power of two");
        }
        if !(1..=KERNEL_DEPTH_MAX).contains(&self.depth) {
            return bad("1 to 64 accesses may be under way at a time");
        }
        let blocks_max = self.result_len_max.div_ceil(RESULT_BLOCK_LEN);
        if self.blocks.as_ref().is_some_and(|blocks| blocks.end() > blocks_max) {
            return bad("the mask has blocks behind the room for its result");
        }
        Ok(())
    }
}

pub(crate) fn launch(code: &CodeCache, launch: Launch<'_>) -> Result<Launched, CallError> {
    launch.check()?;
    let started = Instant::now();
    let Launch { kernel, files, writable, args, result_len_max, .. } = launch;
    let Launch { blocks, direct, slice_len, depth, tier, limits, turns, .. } = launch;
    let (main, readonly) = (kernel.main(), files.len());
    let files: Vec<_> = files.into_iter().chain(writable).collect();
    let names: Vec<_> = files.iter().map(|file| file.name()).collect();
    let source = if names.is_empty() { "no files".to_owned() } else { names.join(", ") };
    let lens = files.iter().map(|file| file.len_bytes().unwrap_or(0)).fold(0, u64::saturating_add);
    let place = Place { source, source_index: 0, range: 0..lens, folded: None };
    let log = Log::default();
    let environment = CallEnvironment::new(log.clone(), turns.clone());
    let why = environment.why();
    let options = ActivationOptions { heap_quota_bytes: limits.heap_quota_bytes, environment: Box::new(environment) };
    let mut activation = Activation::new(main, code.get(main, tier, OnMiss::of(turns.as_ref()))?, options);
    let no_memory = |source| crate::worker::no_memory(main, result_len_max as u64, source);
    let mut result = Buffer::try_with_hugepages(result_len_max.max(1), Hugepages::No).map_err(no_memory)?;
    result.set_len(result_len_max);
    let mut context = DsKernel::new_zeroed();
    context.size.set(DsKernel::LEN_BYTES as u32);
    context.args.set(RegionId::ARGS.base());
    context.args_len.set(args.len() as u64);
    context.result.set(RegionId::OUTPUT.base());
    context.result_cap.set(result_len_max as u64);
    let asked = blocks.unwrap_or_else(|| ResultBlocks::all(result_len_max)).within(result_len_max);
    let mask_len = asked.bits().len();
    context.mask.set(RegionId::SCRATCH.base());
    context.mask_len.set(mask_len as u64);
    context.nfiles.set(files.len() as u32);
    context.nreadonly.set(readonly as u32);
    let mut machine_limits = Limits::for_bytes(lens, result_len_max as u64);
    machine_limits.budget = limits.budget_or(machine_limits.budget);
    machine_limits.deadline = limits.until(started);
    machine_limits.cancel.clone_from(&limits.cancel);
    let mut flight = Flight::new(FlightPlan {
        files: files.clone(),
        readonly,
        policy: direct,
        slice_len: slice_len as u64,
        slices_max: SLICES_BYTES / slice_len,
        depth,
        until: machine_limits.deadline,
        cancel: limits.cancel.clone(),
        turns: turns.clone(),
    });
    // Numbers of the context have no alignment of their own, and what a program writes must have one.
    let mut mapped = [0_u64; DsKernel::LEN_BYTES.div_ceil(8)];
    let mapped = &mut mapped.as_mut_bytes()[..DsKernel::LEN_BYTES];
    mapped.copy_from_slice(context.as_bytes());
    let mut mask = vec![0_u64; mask_len.div_ceil(8)];
    let mask = &mut mask.as_mut_bytes()[..mask_len];
    mask.copy_from_slice(asked.bits());
    let mappings = Mappings::new()
        .writable(RegionId::CONTEXT, mapped)
        .writable(RegionId::SCRATCH, mask)
        .read_only(RegionId::ARGS, &args)
        .writable(RegionId::OUTPUT, &mut result);
    let registers = main.entry_registers(&[]);
    let (returned, landed) = in_turn(turns.as_deref(), || {
        let over = limits.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        let late = machine_limits.deadline.is_some_and(|until| Instant::now() >= until);
        let before = if over { Some(TrapKind::Cancelled) } else { late.then_some(TrapKind::Deadline) };
        let returned = match before {
            Some(kind) => Err(trap_before(main, kind)),
            None => activation
                .call_with_files(&mappings, registers, &machine_limits, &mut flight)
                .map_err(|stopped| stopped.trap),
        };
        let is_fine = returned.as_ref().is_ok_and(|returned| returned.value.cast_signed() >= 0);
        let landed = flight.land(is_fine);
        (returned, landed)
    });
    let returned = returned.map_err(|trap| trapped(main, place.clone(), trap, machine_limits.budget))?;
    let len = output_len(main, returned.value.cast_signed(), result_len_max as u64, &why, || place.clone())?;
    match landed {
        Ok(None) => {}
        Ok(Some(unheard)) => {
            let (function, file) = (main.entry().section.clone(), files[unheard.file].name().to_owned());
            return Err(CallError::FileWrite { function, file, source: unheard.errno.into() });
        }
        Err(FileFault::Errno(errno)) => {
            let function = main.entry().section.clone();
            return Err(CallError::FileWrite {
                function,
                file: place.source,
                source: std::io::Error::from_raw_os_error(errno),
            });
        }
        Err(FileFault::Interrupted) => {
            let cancelled = limits.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
            let kind = if cancelled { TrapKind::Cancelled } else { TrapKind::Deadline };
            return Err(trapped(main, place, trap_before(main, kind), 0));
        }
    }
    result.set_len(len);
    let chosen = ResultBlocks::of_bits(mask.to_vec());
    if chosen.end() > result_len_max.div_ceil(RESULT_BLOCK_LEN) {
        let function = main.entry().section.clone();
        return Err(CallError::BadMask { function, blocks: result_len_max.div_ceil(RESULT_BLOCK_LEN) });
    }
    let blocks = chosen.leave_some(len).then(|| chosen.within(len));
    if let Some(blocks) = &blocks {
        blocks.clear_others(&mut result);
    }
    // A later launch may find better code.
    drop(code.ran(main, activation.tier(), flight.counts.read_bytes, turns.as_ref()));
    let edges = machine_limits.budget - returned.edges_left;
    let stats = LaunchStats { tier: activation.tier(), edges, io: flight.counts, total: started.elapsed() };
    Ok(Launched { result, blocks, stats, log: log.take() })
}
