//! Reads a range ahead: some pieces at a time, by the ring of the thread that does it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};

use super::any::{ReadAt, read_error};
use super::chunk::Chunk;
use super::control::Control;
use super::error::ReadError;
use super::plan::Plan;
use super::settings::{DEPTH_MAX, ReadAhead};
use crate::buffer::{Buffer, Part, Pool};
use crate::ownring;

/// A range, its pieces and their buffers.
pub(super) struct RangeReader {
    reader: Arc<dyn ReadAt>,
    name: PathBuf,
    pub(super) plan: Plan,
    pub(super) pool: Pool,
    /// Pieces that are read at a time.
    depth: usize,
}

/// A piece that was begun and not delivered.
enum Piece<'a> {
    Reading(Pin<Box<dyn Future<Output = Result<Chunk, ReadError>> + 'a>>),
    Read(Result<Chunk, ReadError>),
}

impl RangeReader {
    pub(super) fn new(
        reader: Arc<dyn ReadAt>,
        name: PathBuf,
        range: &Range<u64>,
        how: &ReadAhead,
        depth: usize,
    ) -> Self {
        let plan = Plan::new(range.clone(), how);
        let pool = Pool::new(how.depth.min(DEPTH_MAX) + 1, plan.buffer_bytes(), how.hugepages);
        Self { reader, name, plan, pool, depth }
    }

    /// Reads all pieces, and delivers them in order, up to an error.
    pub(super) fn run(self, control: &Arc<Control>, deliver: &Sender<Result<Chunk, ReadError>>) {
        let this = &self;
        let (mut next, mut window) = (0, VecDeque::new());
        ownring::run(poll_fn(|context| this.advance(context, control, deliver, &mut next, &mut window)));
    }

    /// Reads one piece.
    pub(super) async fn piece(&self, index: u64, buffer: Buffer, control: &Arc<Control>) -> Result<Chunk, ReadError> {
        let piece = self.plan.piece(index);
        // The whole window, as far as it goes: so a reader that needs alignment can read into this very buffer.
        let end = piece.window.end.min(self.reader.len()).max(piece.wanted.end);
        let range = 0..Plan::position(&piece, end);
        let read = self.reader.read(piece.window.start, Part { buffer, range }).await;
        let buffer = read.map_err(|error| read_error(&self.name, piece.wanted.start, error))?;
        let data = Plan::position(&piece, piece.wanted.start)..Plan::position(&piece, piece.wanted.end);
        Ok(Chunk::new(buffer, data, piece.wanted.start, piece.last, control))
    }

    /// Begins pieces as far as depth and pool allow, and delivers those that are read and have none before them.
    fn advance<'a>(
        &'a self,
        context: &mut Context<'_>,
        control: &'a Arc<Control>,
        deliver: &Sender<Result<Chunk, ReadError>>,
        next: &mut u64,
        window: &mut VecDeque<Piece<'a>>,
    ) -> Poll<()> {
        loop {
            let stops = control.is_stopped();
            if stops && ownring::may_leave() {
                return Poll::Ready(());
            }
            for piece in window.iter_mut() {
                piece.poll(context);
            }
            while let Some(Piece::Read(chunk)) = window.pop_front_if(|piece| matches!(piece, Piece::Read(_))) {
                let failed = chunk.is_err();
                if deliver.send(chunk).is_err() || failed {
                    return Poll::Ready(());
                }
            }
            let reading = window.iter().filter(|piece| matches!(piece, Piece::Reading(_))).count();
            if window.is_empty() && (stops || *next == self.plan.pieces()) {
                return Poll::Ready(());
            }
            if stops || *next == self.plan.pieces() || reading >= self.depth {
                return Poll::Pending;
            }
            let Some(buffer) = self.pool.take() else { return Poll::Pending };
            let mut piece = Piece::Reading(Box::pin(self.piece(*next, buffer, control)));
            piece.poll(context);
            window.push_back(piece);
            *next += 1;
            // Bytes that the kernel has at hand are here then, and delivered before the next piece is begun.
            ownring::look();
        }
    }
}

impl Piece<'_> {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Self::Reading(read) = self
            && let Poll::Ready(chunk) = read.as_mut().poll(context)
        {
            *self = Self::Read(chunk);
        }
    }
}
