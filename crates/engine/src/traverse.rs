//! Traversals: chains of reads where each read depends on what the one before brought.
//!
//! A [`Traversal`] does no I/O. It runs a program of kind `traverse` (or `xrp`) step by step: a step gets what was read
//! and names the next reads. Its driver reads, from a file, a ring or memory, and feeds the bytes back:
//!
//! ```text
//! start ──> take_read* ──> (the driver reads) ──> feed ──> take_read* ──> … ──> Done(result)
//! ```
//!
//! **Order.** There is one call of the program for each completed read, in the order in which the
//! reads were asked for, whatever the order in which the driver completes them. A step may ask while
//! reads of an earlier step are outstanding; what it asks for comes after them.
//!
//! **Limits.** A program may touch only the files of the request, inside of their lengths; a request
//! bounds hops, bytes of one read and of all, reads outstanding at a time, and the budget of a step
//! and of all. Nothing else about a program needs to be trusted.
//!
//! **What else a step sees.** Scratch is zero except the request's input, globals and heap are those of the image:
//! nothing is left of another traversal, of whichever host.
//!
//! [`Traversal::run`] is the driver for sources that can be read at once.

mod driver;
mod error;
mod machine;

pub use driver::{FileList, MemoryList, TraverseSource};
pub use error::{TraverseError, TraverseFault};
pub use machine::Traversal;

use crate::function::{LoadError, mains, prepare};
use diskside_sbpf::activation::Program;
use diskside_sbpf::helpers::HelperSet;
use diskside_sbpf::image::{Image, Kind, LoadOptions};
use std::sync::Arc;
use std::time::Instant;

/// A read that a traversal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraverseRead {
    /// Index in the request's list of files.
    pub file: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Echoed to the step that is given this read.
    pub cookie: u32,
}

/// What a traversal starts with.
#[derive(Clone, Copy, Debug)]
pub struct TraverseRequest<'a> {
    /// The reads before the first step. Without any, the first step has no data.
    pub first: &'a [TraverseRead],
    /// The lengths in bytes of the files that it may touch.
    pub files: &'a [u64],
    /// The first bytes of scratch; the rest is zero.
    pub input: &'a [u8],
    /// Length of scratch in bytes.
    pub scratch_cap: usize,
    /// When it is stopped.
    pub deadline: Option<Instant>,
}

/// What a traversal wants after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The reads that [`Traversal::take_read`] gives, or those that are outstanding.
    Read,
    /// Nothing: [`Traversal::result`] has the result. Outstanding reads are of no interest.
    Done,
}

/// What one traversal may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraverseLimits {
    /// Most steps.
    pub hops_max: u32,
    /// Most bytes of one read.
    pub read_len_max: u64,
    /// Most bytes of all reads together.
    pub read_bytes_max: u64,
    /// Most reads that are outstanding at a time.
    pub reads_outstanding_max: usize,
    /// Most bytes of scratch.
    pub scratch_cap_max: usize,
    /// Most retreating edges of one step.
    pub step_edges_max: u64,
    /// Most retreating edges of all steps together.
    pub edges_max: u64,
    /// Most bytes that `ds_alloc` gives out at one time.
    pub heap_quota_bytes: u64,
}

impl Default for TraverseLimits {
    fn default() -> Self {
        Self {
            hops_max: 4096,
            read_len_max: 1 << 20,
            read_bytes_max: 64 << 20,
            reads_outstanding_max: 128,
            scratch_cap_max: 1 << 20,
            step_edges_max: 64 << 10,
            edges_max: 4 << 20,
            heap_quota_bytes: 1 << 20,
        }
    }
}

/// A verified program that can traverse.
#[derive(Clone, Debug)]
pub struct TraverseFunction {
    program: Arc<Program>,
}

impl TraverseFunction {
    /// Loads from the bytes of an object, by name; without a name, the only one there. `kind` is that
    /// of programs whose sections name none, such as those of XRP.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn load(
        object: &[u8],
        name: Option<&str>,
        kind: Option<Kind>,
        helpers: &Arc<HelperSet>,
    ) -> Result<Self, LoadError> {
        let image = Arc::new(Image::from_elf_with(object, helpers, LoadOptions { kind })?);
        Self::from_image(&image, name, helpers)
    }

    /// Takes a traversal of an image.
    ///
    /// # Errors
    /// Why it cannot be taken.
    pub fn from_image(image: &Arc<Image>, name: Option<&str>, helpers: &Arc<HelperSet>) -> Result<Self, LoadError> {
        let main = mains(image, name)?;
        let entry = &image.programs[main];
        if !Self::is_kind(entry.kind) {
            return Err(LoadError::NoTraversal { program: entry.section.clone(), kind: entry.kind.name() });
        }
        Ok(Self { program: prepare(image, main, helpers)? })
    }

    /// Whether programs of this kind traverse.
    #[must_use]
    pub fn is_kind(kind: Kind) -> bool {
        matches!(kind, Kind::Traverse | Kind::Xrp)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.program.entry().name
    }

    /// The program itself.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }
}
