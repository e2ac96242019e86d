//! How much a call may use: threads, chunks and memory, cut to what its host has.

use std::time::Duration;

use diskside_engine::split::Split;
use diskside_engine::{CHUNKS_OUT_MAX, Function};
use diskside_nvme::wire::function::FunctionRequest;

use super::{PlannedSink, split_of};
use crate::compute::sink::WRITE_BYTES;
use crate::config::ComputeConfig;
use crate::export::FileSink;

/// How much a call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanLimits {
    pub(crate) chunk_len: usize,
    pub(crate) threads: usize,
    pub(crate) folded_len_max: usize,
    pub(crate) result_len_max: u64,
    pub(crate) deadline: Duration,
    pub(crate) heap_bytes: u64,
    /// Room for the output of one run.
    pub(crate) output_len_max: u64,
    /// Bytes that the call may hold at a time, and those that its host's calls may.
    pub(crate) memory_bytes: u64,
    pub(crate) memory_bytes_max: u64,
    /// Long chunks that there may be at a time, and their outputs.
    long_chunks: u64,
    long_outputs: u64,
}

impl PlanLimits {
    /// What a call needs more when chunks become so long, for a record that does not end.
    pub(crate) fn growth_bytes(&self, function: &Function, chunk_len: usize) -> u64 {
        let usual = 2 * self.chunk_len as u64;
        let output_len = |len: u64| function.output_cap(len).min(self.output_len_max);
        let outputs = output_len(chunk_len as u64).saturating_sub(output_len(usual / 2));
        let input = (chunk_len as u64).saturating_sub(usual).saturating_mul(self.long_chunks);
        input.saturating_add(outputs.saturating_mul(self.long_outputs))
    }
}

/// What decides how much memory a call needs, besides its chunks and threads.
#[derive(Clone, Copy, Debug)]
struct Needs<'a> {
    function: &'a Function,
    split: Split,
    fold_bytes: u64,
    /// Of sinks, and of a prepared request's arguments, which each call has for itself.
    beside_bytes: u64,
}

/// The longest chunk, and the usual one.
pub(crate) const CHUNK_LEN_MAX: usize = 64 << 20;
pub(crate) const CHUNK_LEN: usize = 2 << 20;
/// No call needs longer ones.
const CHUNK_LEN_MIN: usize = 64 << 10;
/// The most bytes of a folded result, and the usual bound.
pub(crate) const FOLDED_LEN_MAX: usize = 64 << 20;
const FOLDED_LEN: usize = 16 << 20;
const DEADLINE: Duration = Duration::from_secs(3600);
const HEAP_BYTES: u64 = 16 << 20;

impl PlanLimits {
    /// Fewer threads, and shorter chunks, where the host's memory is not enough for what was asked for.
    pub(super) fn of(
        request: &FunctionRequest,
        function: &Function,
        config: &ComputeConfig,
        input_len: u64,
        sink_bytes: u64,
    ) -> Self {
        let mut chunk_len = match request.chunk_len as usize {
            0 => CHUNK_LEN,
            asked => asked.min(CHUNK_LEN_MAX),
        };
        // A thread more is worth its start only where it gets several chunks.
        let useful = usize::try_from(input_len / (4 * chunk_len as u64)).unwrap_or(usize::MAX).max(1);
        let asked = if request.threads_max == 0 { config.engines } else { request.threads_max.into() };
        let mut threads = if function.is_pure() { asked.min(config.engines).min(useful) } else { 1 };
        let folded_len_max = match request.result_len_max {
            0 => FOLDED_LEN,
            asked => usize::try_from(asked).unwrap_or(usize::MAX).min(FOLDED_LEN_MAX),
        };
        let result_len_max = if request.result_len_max == 0 { u64::MAX } else { request.result_len_max };
        let deadline = match request.deadline_ms {
            0 => DEADLINE,
            asked => Duration::from_millis(asked.into()),
        };
        let needs = Needs {
            function,
            split: split_of(request.split).unwrap_or(function.note().split),
            fold_bytes: if function.combine().is_some() && request.fold { folded_len_max as u64 } else { 0 },
            beside_bytes: sink_bytes + request.args.len() as u64,
        };
        let memory_bytes_max = config.calls_memory().host_max;
        while needs.bytes(threads, chunk_len) > memory_bytes_max && threads > 1 {
            threads -= 1;
        }
        while needs.bytes(threads, chunk_len) > memory_bytes_max && chunk_len > CHUNK_LEN_MIN {
            chunk_len /= 2;
        }
        let memory_bytes = needs.bytes(threads, chunk_len);
        // Records may be longer than a chunk, and have more output: as far as there is memory for that.
        let spare = memory_bytes_max.saturating_sub(memory_bytes) / outputs(threads);
        let output_len_max = needs.output_len(chunk_len).saturating_add(spare);
        let heap_bytes = HEAP_BYTES;
        Self {
            chunk_len,
            threads,
            folded_len_max,
            result_len_max,
            deadline,
            heap_bytes,
            output_len_max,
            memory_bytes,
            memory_bytes_max,
            // One at each thread, one on its way there, and one that grows and is copied while it does.
            long_chunks: threads as u64 + 3,
            long_outputs: outputs(threads),
        }
    }
}

impl Needs<'_> {
    fn chunk_len(&self, wanted: usize) -> u64 {
        let record_len = match self.split {
            Split::Fixed(len) => len.into(),
            Split::Delimiter(_) | Split::None => 0,
        };
        (self.function.chunk_len(wanted) as u64).max(record_len)
    }

    fn output_len(&self, chunk_len: usize) -> u64 {
        self.function.output_cap(self.chunk_len(chunk_len))
    }

    /// Bytes of a call with so many threads and about so long chunks.
    fn bytes(&self, threads: usize, chunk_len: usize) -> u64 {
        let heap = if self.function.uses_heap() { HEAP_BYTES } else { 0 };
        // A record may begin in one chunk and end in the next: then both are joined.
        let joined = if matches!(self.split, Split::Delimiter(_)) { threads as u64 + 1 } else { 0 };
        let input = (threads as u64 + 4 + joined) * self.chunk_len(chunk_len);
        let output = self.output_len(chunk_len).saturating_mul(outputs(threads));
        let rest = threads as u64 * heap + self.fold_bytes + self.beside_bytes;
        input.saturating_add(output).saturating_add(rest)
    }
}

/// Outputs of runs that may be in memory at a time.
fn outputs(threads: usize) -> u64 {
    if threads == 1 { 1 } else { (threads * CHUNKS_OUT_MAX) as u64 }
}

/// What sinks hold: one of them is filled at a time, and gives its memory up then.
pub(super) fn sink_bytes(sinks: &[PlannedSink]) -> u64 {
    let bytes = |sink: &PlannedSink| match sink {
        PlannedSink::File(..) => FileSink::MEMORY_BYTES,
        PlannedSink::Volume(..) | PlannedSink::Layout(..) => WRITE_BYTES as u64,
        PlannedSink::Memory(_) => 0,
    };
    sinks.iter().map(bytes).max().unwrap_or(0)
}
