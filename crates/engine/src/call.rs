//! What a call is, and how it ends.

mod error;

use crate::code::TierChoice;
use crate::function::Function;
use crate::pieces::{Asked, Part, Pieces};
use crate::split::Split;
use crate::state::State;
use crate::turns::{Turns, in_turn};
use diskside_decompress::ChunkCodecs;
use diskside_io::readahead::{ReadAt, ReadError, ReadStream};
use diskside_sbpf::activation::Tier;
use diskside_sbpf::machine::CancelToken;
pub(crate) use error::errno_text;
pub use error::{CallError, Folded, Place};
use std::io::Write;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// A function, what it runs over, and how.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// What runs.
    pub function: &'a Function,
    /// What it runs over, in this order.
    pub sources: Vec<Source>,
    /// The arguments as the program sees them; see [`crate::args::encode`].
    pub args: Vec<u8>,
    /// Bytes of a piece, rounded to whole records; `None` for what suits the function.
    pub chunk_len: Option<usize>,
    /// How records are split; `None` as the function declares.
    pub split: Option<Split>,
    /// Which part of a request it is; `None`: each source is all of a request's.
    pub part: Option<Part>,
    /// Which source of the request its first source is.
    pub source_index: u32,
    /// Bytes that its one source has for the request, however many it has by now; `None`: as many as it has.
    pub source_len: Option<u64>,
    /// Windows of the input that are read ahead, besides one for each thread; `None`: [`DEPTH`](crate::DEPTH).
    pub depth: Option<usize>,
    /// Threads that run the function. Programs with effects run on one.
    pub threads: usize,
    /// Which tier runs it.
    pub tier: TierChoice,
    /// Whether results are folded, when the function has a `combine`.
    pub fold: bool,
    /// State to share with other calls.
    pub state: Option<State>,
    /// When to stop it.
    pub limits: CallLimits,
    /// Counts the input bytes that are done.
    pub progress: Option<Arc<AtomicU64>>,
    /// When the function may compute; the time in which the call reads and writes does not count.
    pub turns: Option<Arc<dyn Turns>>,
    /// Gives memory for a record that is longer than a chunk, and for input that is one chunk, if there is some.
    pub growth: Option<Arc<dyn Growth>>,
}

/// Gives calls memory for chunks that become longer than was asked for, because a record does not end, and for input that is one
/// chunk.
pub trait Growth: std::fmt::Debug + Send + Sync {
    /// Whether a chunk may become so long. It is asked again as a chunk grows, with lengths of powers of two.
    ///
    /// # Errors
    /// Why not, for a person.
    fn grow(&self, chunk_len: usize) -> Result<(), String>;
}

impl<'a> Call<'a> {
    /// A call with the defaults: one thread, the best tier, results folded.
    #[must_use]
    pub fn new(function: &'a Function, sources: Vec<Source>, args: Vec<u8>) -> Self {
        Self {
            function,
            sources,
            args,
            chunk_len: None,
            split: None,
            part: None,
            source_index: 0,
            source_len: None,
            depth: None,
            threads: 1,
            tier: TierChoice::Best,
            fold: true,
            state: None,
            limits: CallLimits::default(),
            progress: None,
            turns: None,
            growth: None,
        }
    }
}

/// Bytes to run over.
#[derive(Clone, Debug)]
pub enum Source {
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// Which bytes; `None` for all.
        range: Option<Range<u64>>,
    },
    /// A regular file or a block device that is open already. Its position is neither used nor changed.
    Open {
        /// What errors call it.
        name: String,
        /// The open file.
        file: Arc<OwnedFd>,
        /// Which bytes; `None` for all.
        range: Option<Range<u64>>,
    },
    /// Anything that can be read at a position: a volume, or a file on another machine.
    Reader {
        /// What errors call it.
        name: String,
        /// Where the bytes come from.
        reader: Arc<dyn ReadAt>,
        /// Which bytes; `None` for all.
        range: Option<Range<u64>>,
    },
    /// Bytes that come one after another, and are not known before.
    Stream {
        /// What errors call it.
        name: String,
        /// Where they come from. It is closed when the call ends early.
        stream: Arc<dyn ReadStream>,
    },
    /// Memory.
    Bytes {
        /// What errors call it.
        name: String,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// A chunk of an array, encoded: the threads that run the function decode it, several at a time. It is one piece.
    Chunk {
        /// What errors call it.
        name: String,
        /// The bytes as they are.
        bytes: Arc<[u8]>,
        /// What they are decoded by.
        codecs: Arc<ChunkCodecs>,
    },
    /// As many sources as there turn out to be, each opened when it is its turn: what runs over very many files holds
    /// few of them.
    Many {
        /// What errors call them together.
        name: String,
        /// Where they come from.
        sources: Arc<dyn Sources>,
    },
}

/// Sources that are opened one after another. The function sees each as if the call had named it.
pub trait Sources: std::fmt::Debug + Send + Sync {
    /// The next one, which is not [`Many`](Source::Many) again; `None`: there are no more. Everything was read of those
    /// before.
    ///
    /// # Errors
    /// Why it cannot be read, or that one of those before is no longer what it was.
    fn next(&self) -> Result<Option<Source>, ReadError>;

    /// Whether they are [chunks](Source::Chunk), each a piece of its own, so that several may run at the same time.
    fn are_chunks(&self) -> bool {
        false
    }

    /// Nobody will ask any more: a wait for the next returns, with whatever answer.
    fn close(&self) {}
}

impl Source {
    /// A whole file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), range: None }
    }

    /// What errors call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Open { name, .. }
            | Self::Reader { name, .. }
            | Self::Stream { name, .. }
            | Self::Bytes { name, .. }
            | Self::Chunk { name, .. }
            | Self::Many { name, .. } => name.clone(),
        }
    }

    /// Ends a wait for bytes that nobody needs any more.
    pub(crate) fn close(&self) {
        match self {
            Self::Stream { stream, .. } => stream.close(),
            Self::Many { sources, .. } => sources.close(),
            Self::File { .. } | Self::Open { .. } | Self::Reader { .. } | Self::Bytes { .. } | Self::Chunk { .. } => {}
        }
    }

    /// Whether the pieces of a call over it are chunks.
    pub(crate) fn are_chunks(&self) -> bool {
        match self {
            Self::Chunk { .. } => true,
            Self::Many { sources, .. } => sources.are_chunks(),
            _ => false,
        }
    }
}

/// Where results go.
pub enum Sink<'a> {
    /// As [`frames`](crate::frames), unfolded, in order: to be folded with those of other parts of the request.
    Frames(&'a mut (dyn Write + Send)),
    /// Into [`Outcome::result`].
    Memory,
    /// Written out as they come, in order; a folded result at the end.
    Writer(&'a mut (dyn Write + Send)),
}

/// When a call is stopped.
#[derive(Clone, Debug)]
pub struct CallLimits {
    /// Retreating edges of each run over a chunk; `None` for max(16 Mi, 4 per byte), and 0 is 1, as on its way to a target.
    pub budget: Option<u64>,
    /// Time for the whole call.
    pub deadline: Option<Duration>,
    /// Who may stop it.
    pub cancel: Option<CancelToken>,
    /// Most bytes of result kept in memory.
    pub result_len_max: usize,
    /// Most bytes of output of one run, whatever the function's object asks for.
    pub output_len_max: u64,
    /// Most bytes that `ds_alloc` gives out at one time, per thread.
    pub heap_quota_bytes: u64,
}

impl CallLimits {
    /// Most bytes of result that are kept in memory, and of a folded one in any case.
    pub const RESULT_LEN_MAX: usize = 64 << 20;
    /// Most bytes that `ds_alloc` gives out at one time.
    pub const HEAP_LEN: u64 = 16 << 20;

    /// The budget that was asked for, or the usual one.
    #[must_use]
    pub fn budget_or(&self, usual: u64) -> u64 {
        self.budget.map_or(usual, |budget| budget.max(1))
    }
}

impl Call<'_> {
    /// Which pieces the function is called on.
    ///
    /// # Errors
    /// Records or pieces of a length that cannot be.
    pub fn pieces(&self) -> Result<Pieces, CallError> {
        let asked = Asked { len_bytes: self.chunk_len, split: self.split, unfolded: !self.fold };
        Pieces::of(self.function, &self.args, &asked)
    }

    /// Runs `work` when it is its turn.
    pub(crate) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        in_turn(self.turns.as_deref(), work)
    }
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            budget: None,
            deadline: None,
            cancel: None,
            result_len_max: Self::RESULT_LEN_MAX,
            output_len_max: 4 << 30,
            heap_quota_bytes: Self::HEAP_LEN,
        }
    }
}

impl CallLimits {
    pub(crate) fn until(&self, started: Instant) -> Option<Instant> {
        self.deadline.map(|d| started + d)
    }
}

/// How a call ended well.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The result: folded, or one after another. Empty when it was written out.
    pub result: Vec<u8>,
    /// The return value of a function that works [in place](Function::is_in_place) over its last chunk; for others the
    /// length of the output says it.
    pub returned: Option<u64>,
    /// What it took.
    pub stats: CallStats,
    /// Lines that the program logged, and how many more were dropped.
    pub log: (Vec<String>, u64),
}

/// What a call took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CallStats {
    /// Which tier ran the function last.
    pub tier: Tier,
    /// Threads that ran it.
    pub threads: usize,
    /// Windows of the input that were read ahead, besides one for each thread.
    pub depth: usize,
    /// Bytes given to the function.
    pub input_bytes: u64,
    /// Bytes that it gave back, before folding.
    pub output_bytes: u64,
    /// Runs of the function.
    pub chunks: u64,
    /// Retreating edges taken.
    pub edges: u64,
    /// Time in the function, all threads together.
    pub run: Duration,
    /// Time in its `combine`, of which one thread runs all.
    pub fold: Duration,
    /// Time waiting for input.
    pub wait: Duration,
    /// Time in all.
    pub total: Duration,
}
