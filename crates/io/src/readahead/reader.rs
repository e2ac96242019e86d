//! The thread that reads ahead.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::io::Errno;

use super::chunk::Chunk;
use super::control::Control;
use super::error::ReadError;
use super::plan::{Piece, Plan};
use crate::buffer::{ALIGNMENT_BYTES, Buffer, Pool};
use crate::instance::file_len_bytes;
use crate::ring::{Completion, Op, Payload, Ring};

/// What is read, and how.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) buffered: Arc<OwnedFd>,
    /// The same file past the page cache; taken away when it turns out not to work.
    pub(super) direct: Option<Arc<OwnedFd>>,
    /// Whether a file system that refuses direct reads is read buffered instead.
    pub(super) may_fall_back: bool,
}

pub(super) struct Reader {
    ring: Ring,
    source: Source,
    plan: Plan,
    pool: Pool,
    depth: usize,
    control: Arc<Control>,
    deliver: Sender<Result<Chunk, ReadError>>,
    /// Index of the next piece to start.
    next: u64,
    /// Pieces started and not delivered, in order.
    window: VecDeque<Progress>,
    /// Index of the first of them.
    first: u64,
}

/// A piece on its way.
struct Progress {
    piece: Piece,
    /// The file's bytes before this are in the buffer.
    filled_to: u64,
    /// Whether the operation in flight is a direct read.
    direct: bool,
    /// There once the piece is complete.
    ready: Option<Buffer>,
}

impl Reader {
    pub(super) fn new(
        ring: Ring,
        source: Source,
        plan: Plan,
        pool: Pool,
        depth: usize,
        control: Arc<Control>,
        deliver: Sender<Result<Chunk, ReadError>>,
    ) -> Self {
        let window = VecDeque::with_capacity(depth);
        Self { ring, source, plan, pool, depth, control, deliver, next: 0, window, first: 0 }
    }

    pub(super) fn run(mut self) {
        if let Err(error) = self.read_all() {
            // Without a consumer nobody wants to know.
            let _ = self.deliver.send(Err(error));
        }
    }

    fn read_all(&mut self) -> Result<(), ReadError> {
        loop {
            self.start_pieces()?;
            // Looked at before each sleep: `start_pieces` may have taken the wake-up that came with it.
            if self.first == self.plan.pieces() || self.control.stop.load(Ordering::Acquire) {
                return Ok(());
            }
            self.ring.wait(None)?;
            self.take_completions()?;
        }
    }

    /// Starts the next pieces as far as depth and pool allow.
    fn start_pieces(&mut self) -> Result<(), ReadError> {
        while self.next < self.plan.pieces() && self.window.len() < self.depth {
            let Some(buffer) = self.pool.take() else {
                break;
            };
            let piece = self.plan.piece(self.next);
            let filled_to = piece.window.start;
            self.window.push_back(Progress { piece, filled_to, direct: false, ready: None });
            self.push_read(self.next, buffer);
            self.next += 1;
            // Cached bytes are read right here: deliver them before the next piece is begun.
            self.ring.submit()?;
            self.ring.wait(Some(Duration::ZERO))?;
            self.take_completions()?;
        }
        Ok(())
    }

    fn push_read(&mut self, index: u64, buffer: Buffer) {
        let progress = &mut self.window[(index - self.first) as usize];
        let piece = &progress.piece;
        let (file, from, to) = match &self.source.direct {
            Some(direct) => {
                // The part of a block that a short read left is read again.
                let from = progress.filled_to / ALIGNMENT_BYTES as u64 * ALIGNMENT_BYTES as u64;
                (Arc::clone(direct), from, piece.window.end)
            }
            None => (Arc::clone(&self.source.buffered), progress.filled_to.max(piece.wanted.start), piece.wanted.end),
        };
        progress.direct = self.source.direct.is_some();
        progress.filled_to = from;
        let range = Plan::position(piece, from)..Plan::position(piece, to);
        self.ring.push(index, Op::Read { file, offset: from, buffer, range });
    }

    fn take_completions(&mut self) -> Result<(), ReadError> {
        while let Some(done) = self.ring.next_completion() {
            self.take(done)?;
        }
        while self.window.front().is_some_and(|progress| progress.ready.is_some()) {
            let Some(Progress { piece, ready: Some(buffer), .. }) = self.window.pop_front() else {
                break;
            };
            self.first += 1;
            let data = Plan::position(&piece, piece.wanted.start)..Plan::position(&piece, piece.wanted.end);
            let chunk = Chunk {
                buffer: Some(buffer),
                data,
                offset: piece.wanted.start,
                last: piece.last,
                control: Arc::clone(&self.control),
            };
            // A consumer that is gone has set `stop`.
            let _ = self.deliver.send(Ok(chunk));
        }
        Ok(())
    }

    fn take(&mut self, done: Completion) -> Result<(), ReadError> {
        let Payload::Buffer(buffer) = done.payload else {
            return Ok(());
        };
        let index = done.token;
        let progress = &mut self.window[(index - self.first) as usize];
        let at = progress.filled_to;
        match done.result {
            Ok(moved) => progress.filled_to += u64::from(moved),
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) if progress.direct && self.source.may_fall_back => {
                self.source.direct = None;
                progress.filled_to = progress.piece.window.start;
            }
            Err(errno) => {
                let path = self.source.path.clone();
                return Err(ReadError::Read { path, offset: at, source: io::Error::from(errno) });
            }
        }
        if progress.filled_to >= progress.piece.wanted.end {
            progress.ready = Some(buffer);
            return Ok(());
        }
        let ended = match done.result {
            Ok(0) => true,
            // A direct read stops inside a block only at the end of the file.
            Ok(moved) => progress.direct && !(moved as usize).is_multiple_of(512),
            Err(_) => false,
        };
        if ended {
            let len = file_len_bytes(&self.source.buffered)?;
            let found = len.min(progress.filled_to.max(progress.piece.wanted.start));
            return Err(ReadError::Shrunk { path: self.source.path.clone(), found, expected: self.plan.end() });
        }
        self.push_read(index, buffer);
        Ok(())
    }
}
