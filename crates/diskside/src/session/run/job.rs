//! A request as all of its parts share it, and the outcome of a part.

use super::compressed::Compressed;
use super::part::{Grid, InputPart};
use super::ran::{RanPart, RunOptions};
use crate::session::crowd::Present;
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::link::{Link, LoadedProgram};
use crate::session::mounted::Mounted;
use crate::session::place::Now;
use diskside_dispatch::{Observation, Reason, Side};
use diskside_engine::{Call, Part, Source};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A part of a file.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) file: File,
    pub(super) part: InputPart,
    /// Of several that a function runs over: which one it is.
    pub(super) source_index: u32,
    /// Its result is to be folded with those of others, in order: it comes as [frames](diskside_engine::frames).
    pub(super) frames: bool,
}

/// What all parts of a request share.
#[derive(Clone)]
pub(super) struct Job<'a> {
    pub(super) file: &'a File,
    pub(super) now: Now,
    pub(super) function: &'a SessionFunction,
    pub(super) args: &'a [u8],
    pub(super) options: &'a RunOptions,
    /// The mounted volume that the file is on, if it may run there.
    pub(super) mounted: Option<&'a Mounted>,
    /// It at the device, if that has it.
    pub(super) program: Option<Arc<LoadedProgram>>,
    /// How the file is compressed, if the function is given what it decompresses to.
    pub(super) compressed: Option<Compressed>,
    /// The device cannot be reached, and this session holds what it needs of the file.
    pub(super) held: bool,
    /// For a read; `None`: each part is a request of its own.
    pub(super) grid: Option<Grid>,
    /// Whether the outputs of pieces come as they are, to be folded in order.
    pub(super) frames: bool,
    /// Whether they are folded with those of other files: then they are handed on.
    pub(super) hands_on: bool,
    /// Of several files that the function runs over: which one it is.
    pub(super) source_index: u32,
    /// Why it runs where it does, once that is decided.
    pub(super) reason: Option<Reason>,
}

/// What became of a part.
pub(super) struct Done {
    pub(super) result: Vec<u8>,
    /// Bytes of the result, also where it was written out.
    pub(super) result_bytes: u64,
    pub(super) part: RanPart,
    pub(super) observation: Observation,
    /// Bytes sent and received.
    pub(super) moved: (u64, u64),
    pub(super) log: (Vec<String>, u64),
    /// Why it did not run at the mounted volume.
    pub(super) refused: Option<String>,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        file: &'a File,
        now: Now,
        function: &'a SessionFunction,
        args: &'a [u8],
        options: &'a RunOptions,
    ) -> Self {
        let (mounted, program, compressed, grid) = (None, None, None, None);
        let (held, frames, hands_on, source_index) = (false, false, false, 0);
        Self {
            file,
            now,
            function,
            args,
            options,
            mounted,
            program,
            compressed,
            held,
            grid,
            frames,
            hands_on,
            source_index,
            reason: None,
        }
    }

    pub(super) fn of(
        input: &'a Input,
        now: Now,
        function: &'a SessionFunction,
        args: &'a [u8],
        options: &'a RunOptions,
    ) -> Self {
        let (frames, source_index) = (input.frames, input.source_index);
        let job = Self::new(&input.file, now, function, args, options);
        Self { frames, hands_on: frames, source_index, ..job }
    }

    pub(super) fn name(&self) -> &str {
        &self.file.inner.name
    }

    /// The whole of the request, for a call over a part of it.
    pub(super) fn part(&self, range: &Range<u64>) -> Option<Part> {
        self.grid.as_ref()?.part(range)
    }

    /// The target, if there is one.
    pub(super) fn link(&self) -> Option<&Arc<Link>> {
        self.mounted.map(|mounted| &mounted.link).or_else(|| self.file.inner.place.link())
    }

    pub(super) fn cached(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        if let Some(mounted) = self.mounted {
            return mounted.cached(range);
        }
        let inner = &self.file.inner;
        match self.now.version.filter(|_| self.now.keep) {
            Some(version) => inner.session.cache().ranges(inner.id, version, range),
            None => Vec::new(),
        }
    }

    /// Whether the host has what it needs without the device, which cannot be reached. Bytes that are held since then
    /// were not compared with the file: that is reported also if the device is back by now.
    pub(super) fn is_cut_off(&self) -> bool {
        self.held || self.mounted.is_some_and(|mounted| mounted.link.is_lost())
    }

    /// Whether the host can do without the device: the kernel has a way of its own to a mounted volume.
    pub(super) fn host_reads(&self) -> bool {
        self.held || self.mounted.is_some()
    }

    /// Makes sure that the device has the function.
    pub(super) async fn load(&mut self) -> Result<(), SessionError> {
        let link = self.link().expect("a file that is only here has no device");
        self.program = Some(link.program(self.function).await?);
        Ok(())
    }

    /// Counts a request among those of this session that run on a side, until what it gives is dropped.
    pub(super) fn enter(&self, side: Side) -> Option<Present> {
        self.link().map(|link| link.enter(side))
    }

    pub(super) fn advance(&self, done: &Done) {
        if let Some(progress) = &self.options.progress {
            progress.fetch_add(done.part.input_bytes, Ordering::Relaxed);
        }
    }

    /// As the engine of this side runs it.
    pub(super) fn call(&self, sources: Vec<Source>) -> Call<'_> {
        let options = self.options;
        Call {
            chunk_len: options.chunk_len,
            split: options.split,
            source_index: self.source_index,
            depth: options.depth,
            threads: options.host_threads(),
            tier: options.tier,
            fold: options.fold,
            limits: options.limits.clone(),
            ..Call::new(self.function, sources, self.args.to_vec())
        }
    }
}
