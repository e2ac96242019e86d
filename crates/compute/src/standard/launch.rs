//! Execute Program of a kernel: its files come with the command, and memory ranges are the window of its result and its mask.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use diskside_engine::kernel::{KERNEL_DEPTH, KERNEL_FILES_MAX, RESULT_BLOCK_LEN, ResultBlocks, SLICE_LEN};
use diskside_engine::{CallError, CallLimits, DirectPolicy, Function, Launch, Launched};
use diskside_nvme::Status;
use diskside_nvme::wire::memory::{EXECUTE_PROGRAM, MemoryRange};
use diskside_wire::function::{Class, Endpoint, Outcome, Trailer};
use zerocopy::FromBytes;

use super::StandardCommand;
use super::state::Standard;
use crate::call::answer::{Answer, Problem};
use crate::call::context::CallContext;
use crate::call::job::launch::{is_in_place, is_whole_file, open_files};
use crate::call::plan::{PlannedSink, PlannedSource, plan_sink, plan_source};
use crate::call::trailer;
use crate::call::used::Used;
use crate::program::loaded::LoadedProgram;
use diskside_rights::Access;

/// A command that executes a kernel.
pub(super) struct KernelCommand<'a> {
    pub(super) program: &'a LoadedProgram,
    pub(super) kernel: &'a Function,
    /// Where its memory ranges lie.
    pub(super) places: &'a [Range<usize>],
    /// Its data behind the memory ranges.
    pub(super) data: &'a [u8],
    /// Where in the command's data that begins.
    pub(super) data_at: usize,
}

/// What the parameters and the data of the command say.
struct Parsed<'a> {
    sources: Vec<PlannedSource>,
    sinks: Vec<PlannedSink>,
    args: &'a [u8],
    depth: usize,
    direct: DirectPolicy,
}

/// Bytes that a kernel takes while a command executes it, if that is what the command is about.
pub(super) fn memory(context: &CallContext, command: &StandardCommand) -> u64 {
    let (sqe, environment) = (&command.sqe, &context.environment);
    if (sqe.opcode(), sqe.nsid()) != (EXECUTE_PROGRAM, environment.config.nsid) {
        return 0;
    }
    let execution = sqe.execution();
    let active = environment.programs.active(&context.host.nqn, execution.pind);
    let is_kernel = active.is_ok_and(|it| it.program.function(None).is_err() && it.program.kernel(None).is_ok());
    let Some(standard) = context.memory().filter(|_| is_kernel) else { return 0 };
    let window = match execution.rsid {
        0 => <[MemoryRange]>::ref_from_prefix_with_elems(&command.data, 1).ok().map(|(ranges, _)| ranges[0].len.get()),
        rsid => standard.sets().get(&context.host.nqn, rsid).ok().map(|ranges| ranges[0].len.get()),
    };
    let needs = needed(window.unwrap_or(0) as usize, depth_of(execution.cparam2));
    // More than there is for a host is refused when its turn comes.
    needs.min(context.host.calls_memory_max(&environment.config))
}

fn needed(window_len: usize, depth: usize) -> u64 {
    Launch::memory_bytes(CallLimits::HEAP_LEN, window_len as u64, depth, SLICE_LEN)
}

/// Bits 7:0 of the second parameter.
fn depth_of(cparam2: u64) -> usize {
    if cparam2 & 0xff == 0 { KERNEL_DEPTH } else { (cparam2 & 0xff) as usize }
}

impl Standard {
    /// Runs a kernel. The blocks of its result that its mask has are written to the first range, and the mask to the second.
    pub(super) fn launch(
        &self,
        context: &Arc<CallContext>,
        standard: &StandardCommand,
        command: &KernelCommand<'_>,
    ) -> Result<Answer, Problem> {
        let compute = &context.environment;
        let (window, mask) = command.ranges()?;
        let parsed = command.parse(context, standard)?;
        let (needs, most) = (needed(window.len(), parsed.depth), context.host.calls_memory_max(&compute.config));
        if needs > most {
            let told =
                format!("the kernel may need {needs} bytes of memory, and this host has {most}: name a shorter range");
            return Err(Problem::new(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr(), told));
        }
        for used in parsed.used(context) {
            standard.uses(context, used)?;
        }
        let mut guard = self.lock(command.places, standard.until)?;
        let opened = open_files(context, &parsed.sources, &parsed.sinks);
        let (files, writable) =
            opened.map_err(|error| Problem::new(Status::FUNCTION_FAILED.dnr(), error.message.clone()))?;
        let blocks = mask.as_ref().map(|len| ResultBlocks::of_bits(guard.parts()[1][..*len].to_vec()));
        let until = Instant::now() + self.execution_max;
        let cancel = &standard.control.cancel;
        let turn = context.turn(Class::Normal, cancel.clone(), until);
        let launched = compute.engine.launch(Launch {
            files,
            writable,
            result_len_max: window.len(),
            blocks,
            direct: parsed.direct,
            depth: parsed.depth,
            limits: CallLimits {
                deadline: Some(self.execution_max),
                cancel: Some(cancel.clone()),
                ..CallLimits::default()
            },
            turns: Some(compute.turns(turn, &Arc::default())),
            ..Launch::new(command.kernel, parsed.args.to_vec())
        });
        let told = told_of(&launched);
        context.tell_ran(command.program, command.kernel.name(), &told, None);
        match launched {
            Ok(Launched { result, blocks, .. }) => {
                let blocks = blocks.unwrap_or_else(|| ResultBlocks::all(result.len()));
                let mut parts = guard.parts();
                for range in blocks.bytes(result.len()) {
                    parts[0][range.clone()].copy_from_slice(&result[range]);
                }
                if let Some(len) = mask {
                    parts[1][..len].fill(0);
                    let bits = blocks.bits();
                    parts[1][..bits.len()].copy_from_slice(bits);
                }
                Ok(Answer::success().with_result(result.len() as u64))
            }
            // As of every program: the command itself did what it should.
            Err(CallError::Errno { code, .. }) if !cancel.is_cancelled() => {
                Ok(Answer::success().with_result(code.cast_unsigned()))
            }
            Err(_) if cancel.is_cancelled() => Err(Status::COMMAND_ABORT_REQUESTED.into()),
            Err(error @ (CallError::BadLaunch { .. } | CallError::BadArgs { .. })) => {
                Err(Problem::new(Status::INVALID_FIELD.dnr(), error.to_string()))
            }
            Err(error) => Err(Problem::new(Status::FUNCTION_FAILED.dnr(), error.to_string())),
        }
    }
}

impl<'a> KernelCommand<'a> {
    /// The window, and how many bytes of the second range are its mask.
    fn ranges(&self) -> Result<(&Range<usize>, Option<usize>), Problem> {
        let name = &self.kernel.main().entry().section;
        let wrong = |what: &str| {
            let told = format!("{name} was given {} memory ranges: {what}", self.places.len());
            Err(Problem::new(Status::INVALID_FIELD.dnr(), told))
        };
        let mask_len = |window: &Range<usize>| window.len().div_ceil(RESULT_BLOCK_LEN).div_ceil(8);
        match self.places {
            [window] => Ok((window, None)),
            [window, mask] if mask.len() >= mask_len(window) => Ok((window, Some(mask_len(window)))),
            [_, _] => wrong("the second, its mask, has no bit for some of the blocks of the first"),
            _ => wrong("a kernel takes one for its result, and perhaps one for its mask"),
        }
    }

    fn parse(&self, context: &CallContext, standard: &StandardCommand) -> Result<Parsed<'a>, Problem> {
        let execution = standard.sqe.execution();
        let (cparam1, cparam2) = (execution.cparam1, execution.cparam2);
        let wrong = |at, told: &str| Err(Problem::in_command(at, told));
        let (readable, writable) = ((cparam1 & 0xffff) as usize, (cparam1 >> 16 & 0xffff) as usize);
        if cparam1 >> 32 != 0 || readable + writable > KERNEL_FILES_MAX {
            return wrong(
                40,
                "CPARAM1 has the number of files of a kernel: 15:0 to be read, 31:16 to be written, too; at most 16",
            );
        }
        let direct = match cparam2 >> 8 {
            0 => DirectPolicy::Possible,
            1 => DirectPolicy::Off,
            2 => DirectPolicy::All,
            _ => return wrong(48, "CPARAM2 says of a kernel: 7:0 accesses under way, 15:8 which are direct, 0 to 2"),
        };
        let (entries, args) =
            match <[[u8; Endpoint::ENTRY_LEN]]>::ref_from_prefix_with_elems(self.data, readable + writable) {
                Ok(split) => split,
                Err(_) => return wrong(40, "the data is shorter than the entries of the files that CPARAM1 counts"),
            };
        let (mut sources, mut sinks) = (Vec::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            let (at, is_sink) = (self.data_at + index * Endpoint::ENTRY_LEN, index >= readable);
            let endpoint = Endpoint::from_bytes(*entry, at, is_sink)
                .map_err(|error| Problem::in_data_at(error.offset as usize, error.problem))?;
            if !is_whole_file(&endpoint) || !is_in_place(&endpoint) {
                let told = "a kernel's file is a file of an export or a volume: type 2 or 1, offset 0, to the end, without flags";
                return Err(Problem::in_data_at(at, told));
            }
            if is_sink {
                sinks.push(plan_sink(context, &endpoint, at)?);
            } else {
                sources.push(plan_source(context, &endpoint)?);
            }
        }
        Ok(Parsed { sources, sinks, args, depth: depth_of(cparam2), direct })
    }
}

impl Parsed<'_> {
    /// All that needs a right.
    fn used(&self, context: &CallContext) -> Vec<Used> {
        let mut used: Vec<Used> = self.sources.iter().filter_map(|source| source.used(context)).collect();
        used.extend(self.sinks.iter().filter_map(|sink| match sink {
            PlannedSink::Volume(volume, ..) => Some(Used::volume(volume, Access::Write)),
            PlannedSink::File(handle, _) => context.files.used(*handle, Access::Write).map(Used::Export),
            PlannedSink::Memory(..) | PlannedSink::Layout(..) => None,
        }));
        used
    }
}

/// What those hear who watch what runs.
fn told_of(launched: &Result<Launched, CallError>) -> Trailer {
    match launched {
        Err(error) => trailer::of_call(error),
        Ok(Launched { stats, .. }) => {
            let mut told = Trailer::new(Outcome::Ok);
            told.media_read = stats.io.read_bytes;
            told.media_written = stats.io.written_bytes;
            told.times.run_us = trailer::micros(stats.total.saturating_sub(stats.io.waited));
            told
        }
    }
}
