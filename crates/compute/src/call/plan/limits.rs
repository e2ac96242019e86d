//! How much a call may use: threads, chunks and memory, cut to what its host has.

use std::time::Duration;

use diskside_engine::kernel::{KERNEL_DEPTH, KERNEL_DEPTH_MAX, SLICE_LEN, SLICE_LEN_MAX};
use diskside_engine::pieces::WINDOW_LEN;
use diskside_engine::split::Split;
use diskside_engine::{
    Asked, CHUNKS_OUT_MAX, CallLimits, ChunkCodecs, Codec, DEPTH_MAX, Function, Launch, Pieces, decompression_memory,
};
use diskside_wire::function::{CompressedBy, Decompression, FunctionRequest};

use super::{PlannedSink, PlannedSource, UNKNOWN_LEN, chunk_len_of, codecs_of, split_of};
use crate::ComputeConfig;
use crate::call::job;
use crate::endpoint::WRITE_BYTES;
use crate::endpoint::files::FilesByPath;
use diskside_export::FileSink;

/// How much a call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanLimits {
    /// Bytes that are read at a time: a piece, unless the function runs once over all of its input.
    pub(crate) window_len: usize,
    /// Windows that are read ahead, besides one for each thread.
    pub(crate) depth: usize,
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
    /// The memory that a call needs in addition when chunks become so long, for a record that does not end.
    pub(crate) fn growth_bytes(&self, function: &Function, chunk_len: usize) -> u64 {
        let usual = 2 * self.window_len as u64;
        let output_len = |len: u64| function.output_cap(len).min(self.output_len_max);
        let outputs = output_len(chunk_len as u64).saturating_sub(output_len(usual / 2));
        let input = (chunk_len as u64).saturating_sub(usual).saturating_mul(self.long_chunks);
        input.saturating_add(outputs.saturating_mul(self.long_outputs))
    }
}

/// The properties that decide how much memory a call needs, besides its threads.
#[derive(Clone, Copy, Debug)]
struct Needs<'a> {
    function: &'a Function,
    split: Split,
    window_len: u64,
    /// Bytes of the input, if it is one piece.
    whole_len: u64,
    /// Of chunks, which are not read ahead in windows.
    chunks: Option<ChunkBytes>,
    heap_bytes: u64,
    fold_bytes: u64,
    /// Of sinks and of files that are read before their turn, and of a prepared request's arguments, which each call has for
    /// itself.
    other_bytes: u64,
}

/// The most bytes of a folded result, and what a request is given that does not say.
pub(crate) const FOLDED_LEN_MAX: usize = CallLimits::RESULT_LEN_MAX;
const FOLDED_LEN: usize = 16 << 20;
/// The pieces of a call that is refused.
const NO_PIECES: Pieces = Pieces { split: Split::Bytes, len_bytes: WINDOW_LEN, undivided: None };

impl PlanLimits {
    /// Fewer threads, and less read ahead, where the host's memory is not enough for what was asked for; the pieces stay as
    /// they are.
    pub(crate) fn of(
        request: &FunctionRequest,
        function: &Function,
        config: &ComputeConfig,
        input_len: u64,
        (other_bytes, memory_bytes_max): (u64, u64),
    ) -> Self {
        let asked = Asked { len_bytes: chunk_len_of(request), split: split_of(request.split), unfolded: !request.fold };
        // What cannot be is refused by the engine, in the trailer.
        let pieces = Pieces::of(function, &request.args, &asked).unwrap_or(NO_PIECES);
        let chunks = request.chunks.as_ref().map(|chunks| ChunkBytes::of(&codecs_of(chunks)));
        let (window_len, whole_len) = match pieces.split {
            _ if request.chunks.is_some() => (request.chunks.as_ref().map_or(0, |chunks| chunks.len as usize), 0),
            Split::Whole if input_len == UNKNOWN_LEN => (pieces.len_bytes.min(WINDOW_LEN), 0),
            Split::Whole => (pieces.len_bytes.min(WINDOW_LEN), input_len.min(pieces.len_bytes as u64)),
            Split::Delimiter(_) => (pieces.len_bytes, 0),
            // Windows are no longer than what is read.
            Split::Bytes | Split::Fixed(_) => {
                (pieces.len_bytes.min(usize::try_from(input_len).unwrap_or(usize::MAX)).max(1), 0)
            }
        };
        // A thread more is worth its start only where it gets several pieces. Of chunks there are mostly many.
        let useful = if chunks.is_some() { usize::MAX } else { useful_threads(input_len, window_len) };
        let asked = if request.threads_max == 0 { config.engines } else { request.threads_max.into() };
        let may_share = function.is_pure() && (pieces.is_divisible() || chunks.is_some());
        let mut threads = if may_share { asked.min(config.engines).min(useful) } else { 1 };
        let folded_len_max = match request.result_len_max {
            0 => FOLDED_LEN,
            asked => usize::try_from(asked).unwrap_or(usize::MAX).min(FOLDED_LEN_MAX),
        };
        let result_len_max = if request.result_len_max == 0 { u64::MAX } else { request.result_len_max };
        let deadline = config.deadline(request.deadline_ms);
        let heap_bytes = request.heap_len.unwrap_or(CallLimits::HEAP_LEN);
        let folds = function.combine().is_some() && request.fold && !request.frames;
        let needs = Needs {
            function,
            split: pieces.split,
            window_len: window_len as u64,
            whole_len,
            chunks,
            heap_bytes,
            fold_bytes: if folds { folded_len_max as u64 } else { 0 },
            other_bytes: other_bytes + request.args.len() as u64 + decompression_bytes(request),
        };
        let mut depth = request.depth.map_or(config.depth, |asked| asked as usize).min(DEPTH_MAX);
        // Memory beyond the usual gives way before a thread does.
        while needs.bytes(threads, depth) > memory_bytes_max && depth > config.depth {
            depth -= 1;
        }
        while needs.bytes(threads, depth) > memory_bytes_max && threads > 1 {
            threads -= 1;
        }
        // And then less is read ahead.
        while needs.bytes(threads, depth) > memory_bytes_max && depth > 0 {
            depth -= 1;
        }
        let memory_bytes = needs.bytes(threads, depth);
        // Records may be longer than a piece, and have more output: as far as there is memory for that.
        let spare = memory_bytes_max.saturating_sub(memory_bytes) / outputs(threads);
        let output_len_max = needs.output_len().saturating_add(spare);
        Self {
            window_len,
            depth,
            threads,
            folded_len_max,
            result_len_max,
            deadline,
            heap_bytes,
            output_len_max,
            memory_bytes,
            memory_bytes_max,
            // One at each thread, one on its way there, and one that grows and is copied while it does.
            long_chunks: if pieces.split == Split::Whole { 1 } else { threads as u64 + 3 },
            long_outputs: outputs(threads),
        }
    }
}

impl PlanLimits {
    /// The limits of a kernel. It has one thread and no chunks.
    pub(crate) fn of_launch(request: &FunctionRequest, config: &ComputeConfig, memory_bytes_max: u64) -> Self {
        let heap_bytes = request.heap_len.unwrap_or(CallLimits::HEAP_LEN);
        let result_len_max = job::launch_result_room(request);
        let deadline = config.deadline(request.deadline_ms);
        let slice_len = if request.chunk_len == 0 { SLICE_LEN } else { request.chunk_len as usize };
        let depth = request.depth.map_or(KERNEL_DEPTH, |asked| asked as usize).min(KERNEL_DEPTH_MAX);
        let memory_bytes = Launch::memory_bytes(heap_bytes, result_len_max, depth, slice_len.min(SLICE_LEN_MAX));
        Self {
            window_len: slice_len,
            depth,
            threads: 1,
            folded_len_max: 0,
            result_len_max,
            deadline,
            heap_bytes,
            output_len_max: result_len_max,
            memory_bytes: memory_bytes.saturating_add(request.args.len() as u64),
            memory_bytes_max,
            long_chunks: 0,
            long_outputs: 0,
        }
    }
}

/// One source is decompressed at a time, but each keeps what it has until the call ends.
fn decompression_bytes(request: &FunctionRequest) -> u64 {
    let codec = match request.decompression {
        None => return 0,
        Some(Decompression { by: CompressedBy::Gzip, .. }) => Some(Codec::Gzip),
        Some(Decompression { by: CompressedBy::Zstd, .. }) => Some(Codec::Zstd),
        Some(Decompression { by: CompressedBy::Any | CompressedBy::AnyWithoutHeader, .. }) => None,
    };
    decompression_memory(codec).saturating_mul(request.sources.len() as u64)
}

impl Needs<'_> {
    fn output_len(&self) -> u64 {
        self.function.output_cap(self.window_len.max(self.whole_len))
    }

    /// Bytes of a call with so many threads, and so many windows read ahead besides theirs.
    fn bytes(&self, threads: usize, depth: usize) -> u64 {
        let heap = if self.function.uses_heap() { self.heap_bytes } else { 0 };
        // A record may begin in one window and end in the next: then both are joined.
        let joined = if matches!(self.split, Split::Delimiter(_)) { threads as u64 + 1 } else { 0 };
        let input = ((threads + depth) as u64 + 1 + joined) * self.window_len;
        let input = if self.whole_len > self.window_len { input.saturating_add(self.whole_len) } else { input };
        let input = self.chunks.map_or(input, |chunks| chunks.bytes(threads));
        let output = self.output_len().saturating_mul(outputs(threads));
        let rest = (threads as u64).saturating_mul(heap).saturating_add(self.fold_bytes + self.other_bytes);
        input.saturating_add(output).saturating_add(rest)
    }
}

/// What chunks take.
#[derive(Clone, Copy, Debug)]
struct ChunkBytes {
    encoded_max: u64,
    decoding: u64,
}

impl ChunkBytes {
    fn of(codecs: &ChunkCodecs) -> Self {
        Self { encoded_max: codecs.encoded_len_max() as u64, decoding: codecs.memory_bytes() }
    }

    /// One at each thread, one on its way there, and one that is read.
    fn bytes(self, threads: usize) -> u64 {
        (self.encoded_max * (threads as u64 + 2)).saturating_add(self.decoding * threads as u64)
    }
}

/// Each gets four windows at least.
fn useful_threads(input_len: u64, window_len: usize) -> usize {
    usize::try_from(input_len / (4 * window_len as u64)).unwrap_or(usize::MAX).max(1)
}

/// Outputs of runs that may be in memory at a time.
fn outputs(threads: usize) -> u64 {
    if threads == 1 { 1 } else { (threads * CHUNKS_OUT_MAX) as u64 }
}

/// What sources hold beside the chunks of them.
pub(crate) fn source_bytes(sources: &[PlannedSource]) -> u64 {
    let opens_many = sources.iter().any(|source| matches!(source, PlannedSource::Paths));
    if opens_many { FilesByPath::MEMORY_BYTES } else { 0 }
}

/// The memory of sinks: one of them is filled at a time, and then releases its memory.
pub(crate) fn sink_bytes(sinks: &[PlannedSink]) -> u64 {
    let bytes = |sink: &PlannedSink| match sink {
        PlannedSink::File(..) => FileSink::MEMORY_BYTES,
        PlannedSink::Volume(..) | PlannedSink::Layout(..) => WRITE_BYTES as u64,
        PlannedSink::Memory(..) => 0,
    };
    sinks.iter().map(bytes).max().unwrap_or(0)
}
