//! Run a function at the disk's side: the public crate.
//!
//! ```no_run
//! use diskside::{Call, Engine, Sink, Source, args};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new(diskside::helpers());
//! let stats = diskside::resolve(&engine, "stats64")?;
//! let call = Call::new(&stats, vec![Source::file("data.bin")], Vec::new());
//! let outcome = engine.run(&call, &mut Sink::Memory)?;
//! println!("{} bytes in, {} bytes out", outcome.stats.input_bytes, outcome.result.len());
//! # Ok(()) }
//! ```
//!
//! | Module | What it is for |
//! |---|---|
//! | [`session`] | files and functions, here and at targets |
//! | [`library`] | finding a function: shipped, an object, or C source to compile |
//! | [`compile`] | compiling C source to objects |
//! | [`result`] | reading a result by the structure that describes it |
//! | [`args`] | arguments by name |
//! | [`local_files`] | files of this machine by a pattern, or below a directory |
//! | [`copy`] | copying between files and volumes |
//! | [`outfile`] | files that are written whole |
//! | [`embedded`] | a target in this process, without a socket |
//! | [`host`] | connections, volumes and discovery over NVMe/TCP |
//! | [`target`] | serving volumes over NVMe/TCP |
//! | [`traverse`] | chains of dependent reads, step by step |
//! | [`sandbox`] | the sandbox itself: images, the verifier, the checked IR |
//! | [`llvm`] | the tier that compiles with vectors, and what it says of loops |

#![forbid(unsafe_code)]

pub mod copy;
pub mod embedded;
pub mod library;
pub mod local_files;
mod location;
mod npy;
mod raw;
pub mod result;
pub mod session;

pub use diskside_compile as compile;
pub use diskside_compile::CompileError;
pub use diskside_dispatch as dispatch;
pub use diskside_engine::columns;
pub use diskside_engine::kernel;
pub use diskside_engine::pieces::PIECE_LEN_MAX;
pub use diskside_engine::traverse;
pub use diskside_engine::{
    Call, CallError, CallLimits, CallStats, ChunkCodec, CodeCache, CodeStats, Codec, DEPTH_MAX, DirectPolicy, Engine,
    Execution, Function, LlvmOptions, LoadError, OnMiss, Outcome, Place, PutTogether, Sink, Source, State, TierChoice,
    args, split,
};
pub use diskside_host as host;
pub use diskside_io as io;
pub use diskside_outfile as outfile;
pub use diskside_sbpf as sandbox;
pub use diskside_sbpf_llvm as llvm;
pub use diskside_scan as scan;
pub use diskside_server as target;
pub use diskside_trace as trace;
pub use library::{ResolveError, resolve};
pub use location::{Copies, ExportUrl, Location, LocationError, PathText, Server};

/// The structures on the wire: NVMe's own, and our commands for functions and files.
pub mod wire {
    pub use diskside_nvme::wire::*;
    pub use diskside_wire::{file, function};
}

/// The pages for users, whose examples are compiled with these.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/asynchronous.md")]
#[doc = include_str!("../../../docs/pushdown.md")]
#[doc = include_str!("../../../docs/kernels.md")]
#[doc = include_str!("../../../docs/traversals.md")]
struct Pages;

/// The helpers that every host offers.
#[must_use]
pub fn helpers() -> sandbox::helpers::HelperSet {
    sandbox::helpers::standard()
}
