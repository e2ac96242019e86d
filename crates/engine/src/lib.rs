//! One call of a function: activation, tiers, state, records, read-ahead and combine.
//!
//! A [`Function`] is a verified program of an image, with the `combine` that belongs to it. A
//! [`Call`] says over which sources it runs, with which arguments and limits; [`Engine::run`] reads
//! the sources ahead, cuts them into chunks that hold whole records, runs the function on each chunk
//! in the best tier there is, and folds the results. The storage server and the host use the very
//! same engine.
//!
//! | Module | What it decides |
//! |---|---|
//! | [`function`] | which program of an image is meant, and what its arguments are |
//! | [`args`] | how `name=value` becomes the bytes that the program sees |
//! | [`code`] | which tier runs, and what is compiled already |
//! | [`pieces`] | which pieces of its input a function is called on |
//! | [`split`] | where records begin |
//! | [`frames`] | results of pieces on their way to where they are folded |
//! | [`call`] | what a call is and how it ends |
//! | [`small`] | the same over one small input, for who cannot wait |
//! | [`columns`] | functions over the columns of a table |
//! | [`kernel`] | programs that read and write files themselves |
//! | [`state`] | memory that programs share across calls |
//! | [`traverse`] | chains of dependent reads, step by step |

#![forbid(unsafe_code)]

pub mod args;
pub mod call;
pub mod code;
pub mod columns;
mod context;
mod decompressed;
mod environment;
mod execute;
mod fold;
pub mod frames;
pub mod function;
pub mod kernel;
pub mod pieces;
mod run;
pub mod small;
pub mod split;
pub mod state;
pub mod traverse;
mod turns;
mod worker;

pub use call::{Call, CallError, CallLimits, CallStats, Folded, Growth, Outcome, Place, Sink, Source, Sources};
pub use code::{CodeCache, CodeStats, LlvmOptions, OnMiss, TierChoice, TierError};
pub use decompressed::decompression_memory;
pub use diskside_decompress::{ChunkCodec, ChunkCodecs, Codec};
pub use diskside_io::readahead::{ReadAt, ReadAtError, ReadError, ReadStream};
pub use environment::{LOG_LINES_MAX, WARNING};
pub use execute::{EXECUTION_RANGES_MAX, Execution};
pub use fold::PutTogether;
pub use function::{Function, LoadError};
pub use kernel::{DirectPolicy, IoCounts, Launch, LaunchStats, Launched};
pub use pieces::{Asked, Part, Pieces, Undivided};
pub use run::{CHUNKS_OUT_MAX, DEPTH, DEPTH_MAX};
pub use small::{SmallCall, SmallInput};
pub use state::{State, TooManyClears};
pub use traverse::{Traversal, TraverseFunction, TraverseLimits};
pub use turns::{Compiler, Turns};

use diskside_sbpf::helpers::HelperSet;
use diskside_sbpf::image::Image;
use std::sync::Arc;

/// Runs functions. Cheap to share; compiled code is kept for as long as its program is loaded, and for a while longer.
#[derive(Debug)]
pub struct Engine {
    helpers: Arc<HelperSet>,
    code: CodeCache,
}

impl Engine {
    /// An engine that offers these helpers to programs.
    #[must_use]
    pub fn new(helpers: HelperSet) -> Self {
        Self { helpers: Arc::new(helpers), code: CodeCache::default() }
    }

    /// The same engine, with LLVM as well; see [`code`].
    #[must_use]
    pub fn with_llvm(mut self, options: LlvmOptions) -> Self {
        self.code = CodeCache::with_llvm(options);
        self
    }

    /// The same engine, with LLVM as well when its compiler is found here.
    #[must_use]
    pub fn with_llvm_if_found(self) -> Self {
        match LlvmOptions::find() {
            Some(options) => self.with_llvm(options),
            None => self,
        }
    }

    /// The helpers that programs can call.
    #[must_use]
    pub fn helpers(&self) -> &Arc<HelperSet> {
        &self.helpers
    }

    /// What is compiled already.
    #[must_use]
    pub fn code(&self) -> &CodeCache {
        &self.code
    }

    /// Loads a function from the bytes of an object, by name; without a name, the only one there.
    ///
    /// # Errors
    /// Why it cannot be loaded: a bad object, an unknown name, or what the verifier found.
    pub fn load(&self, object: &[u8], name: Option<&str>) -> Result<Function, LoadError> {
        Function::load(object, name, &self.helpers)
    }

    /// Loads a function over columns from the bytes of an object, by name; without a name, the only one there.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load_columns(&self, object: &[u8], name: Option<&str>) -> Result<Function, LoadError> {
        let image = Arc::new(Image::from_elf(object, &self.helpers)?);
        Function::columns_from_image(&image, name, &self.helpers)
    }

    /// Loads a traversal from the bytes of an object, by name; without a name, the only one there.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load_traversal(&self, object: &[u8], name: Option<&str>) -> Result<TraverseFunction, LoadError> {
        TraverseFunction::load(object, name, None, &self.helpers)
    }

    /// Makes a traversal ready to be started, in the wanted tier.
    ///
    /// # Errors
    /// Why that tier cannot run it.
    pub fn traversal(
        &self,
        function: &TraverseFunction,
        tier: TierChoice,
        limits: TraverseLimits,
    ) -> Result<Traversal, TierError> {
        let code = self.code.get(function.program(), tier, OnMiss::CallingThread)?;
        Ok(Traversal::new(function, code, limits))
    }

    /// Runs a call to its end, on the calling thread and `call.threads - 1` more.
    ///
    /// # Errors
    /// Why it did not end well, with the place in the source.
    pub fn run(&self, call: &Call<'_>, sink: &mut Sink<'_>) -> Result<Outcome, CallError> {
        run::run(&self.code, call, sink)
    }

    /// Runs a program once over memory ranges, on the calling thread, and gives what it returned.
    ///
    /// # Errors
    /// Why it did not end well. What it wrote into its ranges stays.
    pub fn execute(&self, execution: Execution<'_>) -> Result<u64, CallError> {
        execute::execute(&self.code, execution)
    }

    /// Loads a kernel from the bytes of an object, by name; without a name, the only one there.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load_kernel(&self, object: &[u8], name: Option<&str>) -> Result<Function, LoadError> {
        Function::load_kernel(object, name, &self.helpers)
    }

    /// Runs a kernel once over its files, on the calling thread.
    ///
    /// # Errors
    /// Why it did not end well. The bytes that it wrote stay written; nothing is under way any more.
    pub fn launch(&self, launch: Launch<'_>) -> Result<Launched, CallError> {
        kernel::launch(&self.code, launch)
    }

    /// Puts results of several calls of a function together, in this order: with its `combine` if it has one and
    /// `call` says so, else one after another. Each has a name, of what it is the result of. The sources of `call` are not
    /// read.
    ///
    /// # Errors
    /// Why `combine` did not end well, and at which result, or that all of it is too large.
    pub fn fold(&self, call: &Call<'_>, parts: &[(&str, &[u8])]) -> Result<PutTogether, CallError> {
        fold::fold(&self.code, call, parts)
    }

    /// Folds the [`frames`] of several parts of a request, in this order, as if one call had made them. Each part has the
    /// name of its source.
    ///
    /// # Errors
    /// Why `combine` did not end well, and at which piece, or that frames are broken.
    pub fn fold_frames(&self, call: &Call<'_>, parts: &[(&str, &[u8])]) -> Result<PutTogether, CallError> {
        fold::fold_frames(&self.code, call, parts)
    }
}
