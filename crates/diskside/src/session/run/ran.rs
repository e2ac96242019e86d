//! The options of a run, and its results.

use super::chunks::Chunks;
use super::part::InputPart;
use crate::session::answered::Answered;
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::tries::Tries;
use diskside_dispatch::{Decision, Observation, Reason, Side};
use diskside_engine::kernel::ResultBlocks;
use diskside_engine::split::Split;
use diskside_engine::{Asked, CallError, CallLimits, Codec, DirectPolicy, Function, LOG_LINES_MAX, Pieces, TierChoice};
use diskside_host::function::CallHandle;
use diskside_sbpf::activation::Tier;
use diskside_sbpf::machine::{CancelToken, CancelWatch};
use diskside_trace::{Side as SpanSide, Span};
use diskside_wire::function::{StateName, TraceContext};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Where a function is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Where {
    /// Where it is faster, or on both sides.
    #[default]
    Auto,
    /// With the caller.
    Host,
    /// With the data.
    Device,
}

impl Where {
    pub(super) fn told(self) -> Option<Side> {
        match self {
            Self::Auto => None,
            Self::Host => Some(Side::Host),
            Self::Device => Some(Side::Device),
        }
    }
}

/// How a function runs; see [`Call`](diskside_engine::Call).
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where.
    pub place: Where,
    /// Bytes of a piece, rounded to whole records; `None` for what suits the function.
    pub chunk_len: Option<usize>,
    /// Where in each file a [run](crate::session::Session::run) over files begins. Calls that are given a range, such as
    /// [`pread_fn`](crate::session::File::pread_fn), begin there.
    pub offset: u64,
    /// How many bytes of each file a run over files is given; `None`: all behind the offset.
    pub length: Option<u64>,
    /// Whether input that is compressed is decompressed. The function is then given what it decompresses to, of which ranges
    /// and offsets count the bytes. Input of [`pwrite_fn`](crate::session::File::pwrite_fn), and of what is
    /// [prepared](crate::session::File::prepare), stays as it is.
    pub decompress: Decompress,
    /// Whether a header that says what is behind it is left out. The function is then given what is behind it, of which
    /// ranges and offsets count the bytes, and is refused if it takes other elements.
    pub header: Header,
    /// A [run](crate::session::Session::run) over files is one over chunks of an array, each decoded.
    /// [`decompress`](Self::decompress) and [`header`](Self::header) say nothing of them. Everything else, such as
    /// [`pread_fn`](crate::session::File::pread_fn), refuses them.
    pub chunks: Option<Arc<Chunks>>,
    /// How records are divided; `None` as the function declares.
    pub split: Option<Split>,
    /// Windows of the input (pieces, of a function that is called on pieces) that are read ahead besides one for each thread, at
    /// most [`DEPTH_MAX`](diskside_engine::DEPTH_MAX); `None` for the usual. A device may have memory for fewer.
    pub depth: Option<usize>,
    /// Which accesses of a [kernel](crate::session::Session::launch) go straight to its files.
    pub direct: DirectPolicy,
    /// The blocks of its result that a [kernel](crate::session::Session::launch) gives back, unless it decides otherwise; `None`: all.
    pub result_blocks: Option<ResultBlocks>,
    /// Threads on the host, and the most at the device; [`ALL_THREADS`](Self::ALL_THREADS): as many as each has.
    pub threads: usize,
    /// Which tier runs it.
    pub tier: TierChoice,
    /// Whether results are folded, when the function has a `combine`.
    pub fold: bool,
    /// Whether the host folds the results of all pieces itself: the device gives each as it is. Then a function is offloaded in part.
    pub fold_here: bool,
    /// When it is stopped. Its `cancel` stops it on either side.
    pub limits: CallLimits,
    /// Whether the device runs it only when nothing else is to do.
    pub background: bool,
    /// Whether what is written is on stable media before the call ends.
    pub durable: bool,
    /// The named state that the function works with: `DS_STATE` in its source. At a target all calls of this
    /// host that name it share it, here those of the session.
    pub state: Option<StateName>,
    /// Counts the input bytes that are done.
    pub progress: Option<Arc<AtomicU64>>,
    /// The span of the caller's trace that the request is a part of. Servers that trace their calls make them a part of it, too.
    pub trace: Option<TraceContext>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            place: Where::Auto,
            chunk_len: None,
            offset: 0,
            length: None,
            decompress: Decompress::Never,
            header: Header::Ignore,
            chunks: None,
            split: None,
            depth: None,
            direct: DirectPolicy::Possible,
            result_blocks: None,
            threads: 1,
            tier: TierChoice::Best,
            fold: true,
            fold_here: false,
            limits: CallLimits::default(),
            background: false,
            durable: false,
            state: None,
            progress: None,
            trace: None,
        }
    }
}

/// Whether input that is compressed is decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decompress {
    /// The function is given the bytes as they are.
    #[default]
    Never,
    /// Files and streams are whose first bytes say that they are compressed. Volumes and block devices are not.
    Auto,
    /// All input is, and is an error if it is not compressed so.
    Only(Codec),
}

/// Whether the header of a file is left out of what a function is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// The function is given all bytes of the file.
    #[default]
    Ignore,
    /// That of a file that begins with a header of a known format: NumPy's `.npy`.
    Auto,
    /// The file is of NumPy's format, or that is an error.
    Npy,
}

impl RunOptions {
    /// As many threads as there are processors, here or at a device.
    pub const ALL_THREADS: usize = 0;

    /// Threads on this side.
    pub(super) fn host_threads(&self) -> usize {
        match self.threads {
            Self::ALL_THREADS => std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            threads => threads,
        }
    }

    /// Which pieces of its input a function is called on.
    pub(super) fn pieces(&self, function: &Function, args: &[u8]) -> Result<Pieces, CallError> {
        let asked = Asked { len_bytes: self.chunk_len, split: self.split, unfolded: !self.fold };
        Pieces::of(function, args, &asked)
    }

    /// What ends the records of its input, if something does.
    pub(super) fn delimiter(&self, function: &Function, args: &[u8]) -> Option<u8> {
        match self.pieces(function, args).ok()?.split {
            Split::Delimiter(delimiter) => Some(delimiter),
            Split::Whole | Split::Bytes | Split::Fixed(_) => None,
        }
    }

    /// What a run over files is given of each.
    pub(super) fn part(&self) -> InputPart {
        InputPart { start: self.offset, end: self.length.map(|length| self.offset.saturating_add(length)) }
    }

    pub(in crate::session) fn is_cancelled(&self) -> bool {
        self.limits.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// What is not begun need not be stopped.
    pub(super) fn check_cancelled(&self, file: &File) -> Result<(), SessionError> {
        if self.is_cancelled() { Err(SessionError::Cancelled(file.inner.name.clone())) } else { Ok(()) }
    }

    /// Begins the span of a request, of which its calls are parts.
    pub(in crate::session) fn begin_span(&self, name: &'static str, function: &str) -> (Span, Self) {
        let mut span = Span::begin(name, SpanSide::Internal, self.trace);
        span.text("diskside.function", function);
        let options = Self { trace: span.context_or(self.trace), ..self.clone() };
        (span, options)
    }

    /// The tries of a request with these options.
    pub(in crate::session) fn tries(&self) -> Tries {
        Tries::new(self.limits.cancel.as_ref(), self.limits.deadline)
    }

    /// Those of the next try, which has the rest of the time.
    pub(in crate::session) fn left(&self, tries: &Tries) -> Self {
        let mut options = self.clone();
        options.limits.deadline = tries.deadline();
        options
    }

    /// Stops a call at a target when this request is cancelled, as long as the watch is held.
    pub(in crate::session) fn watch(&self, call: CallHandle) -> Option<CancelWatch> {
        Some(self.limits.cancel.as_ref()?.when_cancelled(move || call.cancel()))
    }
}

/// How a function ran.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Its result; empty when it was written out.
    pub result: Vec<u8>,
    /// Bytes of output that were written to a file.
    pub written_bytes: u64,
    /// Bytes that it was given.
    pub input_bytes: u64,
    /// Bytes that were sent to a target, without the protocol's headers.
    pub sent_bytes: u64,
    /// Bytes that came from a target.
    pub received_bytes: u64,
    /// Where it ran and why, for each file that is not here, or on a mounted volume.
    pub decisions: Vec<(String, Decision)>,
    /// The files that ran here although they could have run at a mounted volume's target, and why.
    pub refusals: Vec<(String, String)>,
    /// Which server answered, for each URL that names several.
    pub answered: Vec<Answered>,
    /// The parts that ran, in the order of the input, without probes whose result was not used.
    pub parts: Vec<RanPart>,
    /// Folding results of parts and of files here, which is in no part.
    pub fold: Duration,
    /// Lines that it logged, and how many more were dropped.
    pub log: (Vec<String>, u64),
    /// From the request to the result.
    pub total: Duration,
}

/// A part of a request, run on one side.
#[derive(Clone, Debug)]
pub struct RanPart {
    /// Which file.
    pub name: String,
    /// Which bytes.
    pub range: Range<u64>,
    /// Where.
    pub side: Side,
    /// Which tier; not known of a device.
    pub tier: Option<Tier>,
    /// Bytes that the function was given.
    pub input_bytes: u64,
    /// Bytes that it gave back, before anything is folded.
    pub output_bytes: u64,
    /// Windows of its input that were read ahead, besides one for each thread; not known of a device that does not tell.
    pub depth: Option<u32>,
    /// Pieces that the function was called on; not known of a device that does not tell.
    pub chunks: Option<u64>,
    /// The return value of a function of kind `delilah` over the last chunk: its output is its input as it left it,
    /// whatever it returned.
    pub returned: Option<u64>,
    /// Loop iterations.
    pub back_edges: u64,
    /// Waiting for an engine.
    pub queue: Duration,
    /// Waiting for input.
    pub wait: Duration,
    /// In the function.
    pub run: Duration,
    /// Folding the results of its pieces; not known of a device that does not tell.
    pub fold: Option<Duration>,
    /// Waiting for output to be written to a file or a volume.
    pub write: Duration,
    /// Waiting for the host to take the result, at a device.
    pub send: Duration,
    /// In all.
    pub total: Duration,
    /// The dispatcher's observation of it, if there was a choice.
    pub observation: Observation,
}

impl Ran {
    /// Time in which results were folded, in parts and [here](Self::fold); not known of a device that does not tell.
    #[must_use]
    pub fn folding(&self) -> Option<Duration> {
        self.parts.iter().map(|part| part.fold).sum::<Option<Duration>>().map(|fold| fold + self.fold)
    }

    /// The return value of a function of kind `delilah` over the last chunk of the last part.
    #[must_use]
    pub fn returned(&self) -> Option<u64> {
        self.parts.last().and_then(|part| part.returned)
    }

    /// Whether it ran without a choice: the file is here, or the caller said where.
    #[must_use]
    pub fn was_told(&self) -> bool {
        self.decisions.iter().all(|(_, decision)| decision.reason == Reason::Told)
    }

    /// Takes in lines of a part, up to as many as are kept of one call.
    pub(super) fn add_log(&mut self, (lines, dropped): (Vec<String>, u64)) {
        self.log.0.extend(lines);
        let beyond = self.log.0.len().saturating_sub(LOG_LINES_MAX);
        self.log.0.truncate(LOG_LINES_MAX);
        self.log.1 += dropped + beyond as u64;
    }

    /// Takes in the counters of another run; results are folded apart.
    pub(super) fn add(&mut self, other: Self) {
        self.written_bytes += other.written_bytes;
        self.input_bytes += other.input_bytes;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.decisions.extend(other.decisions);
        self.refusals.extend(other.refusals);
        self.parts.extend(other.parts);
        self.fold += other.fold;
        self.add_log(other.log);
    }
}
