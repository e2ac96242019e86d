//! Output on its way to a file: the export's threads write it while the function makes more.
//!
//! # Guarantees
//!
//! * Bytes are written in their order, one piece at a time. So the written bytes are a prefix of the output, also after
//!   a failure or when the target is killed, and the error of a full disk names its byte.
//! * After a failure nothing more is written.
//! * At most [`MEMORY_BYTES`] of the output are in memory. A function that makes more waits for the disk.
//! * A thread of the export has the lane for one piece, then serves others.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use diskside_io::buffer::{ALIGNMENT_BYTES, Buffer};
use diskside_sys::cache::begin_flush;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::still_ours;
use crate::open_file::OpenFile;
use crate::operations::write_all;
use crate::reply::FileError;

/// Bytes that are collected before they are written.
const PIECE_LEN: usize = 4 << 20;
/// Pieces that wait, or are being written.
const PIECES_MAX: usize = 3;
/// The memory of a lane at most: those, and the one being filled.
pub(super) const MEMORY_BYTES: u64 = ((PIECES_MAX + 1) * PIECE_LEN) as u64;
/// Less is written through the page cache: it costs no copy worth mentioning.
const DIRECT_LEN_MIN: usize = 1 << 20;

/// Where the output goes in the file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    /// From this byte on.
    At(u64),
    /// To the end, which was here at first.
    End(u64),
}

/// The pieces of one output. Dropping it leaves what was handed over to be written.
#[derive(Debug)]
pub(super) struct Lane {
    shared: Arc<Shared>,
    filling: Option<Buffer>,
    filled: usize,
    /// Bytes that were put in.
    put: u64,
    position: Position,
}

#[derive(Debug)]
struct Shared {
    file: Arc<OpenFile>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// With the bytes that are used of each.
    queue: VecDeque<(Buffer, usize)>,
    /// With a thread of the export while it writes, or is about to.
    writer: Option<Writer>,
    /// Pieces that were written, for the next ones.
    spare: Vec<Buffer>,
    failure: Option<FileError>,
}

impl Lane {
    pub(super) fn new(file: Arc<OpenFile>, position: Position) -> Self {
        let writer = Writer { file: Arc::clone(&file), position, written: 0, direct: Direct::Untried };
        let state = State { queue: VecDeque::new(), writer: Some(writer), spare: Vec::new(), failure: None };
        let shared = Arc::new(Shared { file, state: Mutex::new(state), changed: Condvar::new() });
        Self { shared, filling: None, filled: 0, put: 0, position }
    }

    /// Bytes that were put in so far.
    pub(super) fn put_bytes(&self) -> u64 {
        self.put
    }

    /// Takes bytes, which are written by and by. A failure may be that of earlier ones.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let room = self.piece_len() - self.filled;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            let piece = match &mut self.filling {
                Some(piece) => piece,
                none => none.insert(self.shared.lock().spare.pop().unwrap_or_else(|| Buffer::zeroed(PIECE_LEN))),
            };
            piece[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            self.put += now.len() as u64;
            if now.len() == room {
                self.send()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Waits until all that was put in is written. Gives how many bytes are, and why not all of them.
    pub(super) fn drain(&mut self) -> (u64, Result<(), FileError>) {
        let sent = if self.filled > 0 { self.send() } else { Ok(()) };
        let (written, failure) = self.shared.wait_idle();
        (written, failure.map_or(sent, Err))
    }

    /// Gives up the memory of pieces that are written.
    pub(super) fn shrink(&mut self) {
        self.shared.lock().spare.clear();
    }

    /// Forgets what is not written. Gives how many bytes are; none is being written any more.
    pub(super) fn discard(&mut self) -> u64 {
        (self.filling, self.filled) = (None, 0);
        self.shared.lock().queue.clear();
        self.shared.wait_idle().0
    }

    /// The first piece ends where the next ones begin at a boundary in the file.
    fn piece_len(&self) -> usize {
        let start = match self.position {
            Position::At(start) => start,
            Position::End(_) => 0,
        };
        let begun = start.saturating_add(self.put - self.filled as u64) % ALIGNMENT_BYTES as u64;
        PIECE_LEN - begun as usize
    }

    /// Hands over the piece that is being filled; waits while there are too many.
    fn send(&mut self) -> Result<(), FileError> {
        let Some(piece) = self.filling.take() else { return Ok(()) };
        let filled = mem::take(&mut self.filled);
        let too_many = |state: &mut State| state.queue.len() >= PIECES_MAX && state.failure.is_none();
        let state = self.shared.lock();
        let mut state = self.shared.changed.wait_while(state, too_many).unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.queue.push_back((piece, filled));
        if let Some(writer) = state.writer.take() {
            drop(state);
            Turn { shared: Arc::clone(&self.shared), writer: Some(writer) }.queue();
        }
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is left to be written. Gives the bytes that are, and the failure.
    fn wait_idle(&self) -> (u64, Option<FileError>) {
        let busy = |state: &mut State| state.writer.is_none();
        let state = self.changed.wait_while(self.lock(), busy).unwrap_or_else(PoisonError::into_inner);
        (state.writer.as_ref().map_or(0, |writer| writer.written), state.failure.clone())
    }
}

/// The writer, lent to a thread of the export. Dropping it gives it back.
struct Turn {
    shared: Arc<Shared>,
    writer: Option<Writer>,
}

impl Turn {
    fn queue(self) {
        let export = Arc::clone(&self.shared.file.export);
        export.workers.submit(move || self.run());
    }

    /// Writes one piece.
    fn run(mut self) {
        let next = self.shared.lock().queue.pop_front();
        let (Some((piece, len)), Some(writer)) = (next, &mut self.writer) else { return };
        let (began, before) = (Instant::now(), writer.written);
        let result = writer.write(&piece[..len]);
        let counters = &self.shared.file.export.functions;
        counters.took(began.elapsed());
        counters.wrote(writer.written - before, result.is_err());
        if let Err(failure) = &result {
            let file = &self.shared.file;
            file.export.failed("write", &file.name, writer.offset(), failure.errno);
        }
        let mut state = self.shared.lock();
        state.spare.push(piece);
        if let Err(failure) = result {
            state.fail(failure);
        }
    }
}

impl Drop for Turn {
    /// Queues up again if there are more pieces.
    fn drop(&mut self) {
        let (shared, writer) = (Arc::clone(&self.shared), self.writer.take());
        let mut state = self.shared.lock();
        if std::thread::panicking() {
            let told = format!("writing {}: the target failed; see its log", self.shared.file.name);
            state.fail(FileError::because(Errno::IO, told));
        }
        if state.queue.is_empty() {
            state.writer = writer;
        } else {
            drop(state);
            Self { shared, writer }.queue();
        }
        self.shared.changed.notify_all();
    }
}

impl State {
    /// Nothing more is written.
    fn fail(&mut self, failure: FileError) {
        self.failure = Some(failure);
        self.queue.clear();
    }
}

/// Writes pieces to the file.
#[derive(Debug)]
struct Writer {
    file: Arc<OpenFile>,
    position: Position,
    written: u64,
    direct: Direct,
}

/// The file once more, with `O_DIRECT`: large pieces then go to the disk without a copy, and leave the page cache to
/// what is read.
#[derive(Debug)]
enum Direct {
    Untried,
    Open(OwnedFd),
    Refused,
}

impl Writer {
    fn write(&mut self, piece: &[u8]) -> Result<(), FileError> {
        let file = Arc::clone(&self.file);
        let at = match self.position {
            Position::At(start) => Some(start.saturating_add(self.written)),
            Position::End(_) => None,
        };
        let what = || format!("writing {}, byte {} of the output", file.name, self.written);
        let growth = file.grow(what, at, piece.len() as u64)?;
        self.write_counted(piece).inspect(|()| growth.done())
    }

    /// Where it continues in the file.
    fn offset(&self) -> Option<u64> {
        match self.position {
            Position::At(start) | Position::End(start) => start.checked_add(self.written),
        }
    }

    fn write_counted(&mut self, piece: &[u8]) -> Result<(), FileError> {
        let start = match self.position {
            Position::At(start) => start,
            Position::End(start) => {
                self.count(write_all(&self.file, None, piece))?;
                return still_ours(&self.file, start + self.written);
            }
        };
        let direct = self.write_direct(start.saturating_add(self.written), piece)?;
        let (rest, offset) = (&piece[direct..], start.saturating_add(self.written));
        let written = write_all(&self.file, Some(offset), rest);
        self.count(written)?;
        // The disk works while the function does. What fails now fails again at the end.
        let _ = begin_flush(&self.file.fd, offset..offset.saturating_add(rest.len() as u64));
        Ok(())
    }

    /// Writes whole blocks past the page cache, where that is possible and worth it. Gives the bytes that were.
    fn write_direct(&mut self, offset: u64, piece: &[u8]) -> Result<usize, FileError> {
        let whole = piece.len() / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        if whole < DIRECT_LEN_MIN || !offset.is_multiple_of(ALIGNMENT_BYTES as u64) {
            return Ok(0);
        }
        if matches!(self.direct, Direct::Untried) {
            self.direct = open_direct(&self.file).map_or(Direct::Refused, Direct::Open);
        }
        let Direct::Open(fd) = &self.direct else { return Ok(0) };
        let (done, stopped) = write_blocks(fd, offset, &piece[..whole]);
        match stopped {
            // The file system takes other blocks, or none: the rest goes through the page cache.
            Some(Errno::INVAL | Errno::OPNOTSUPP) => self.direct = Direct::Refused,
            Some(errno) => return self.count(Err((done as u64, errno))).map(|()| done),
            None => {}
        }
        self.written += done as u64;
        Ok(done)
    }

    fn count(&mut self, written: Result<u64, (u64, Errno)>) -> Result<(), FileError> {
        let (count, failed) = written.map_or_else(|(count, errno)| (count, Some(errno)), |count| (count, None));
        self.written += count;
        let what = || format!("writing {}, byte {} of the output", self.file.name, self.written);
        failed.map_or(Ok(()), |errno| Err(FileError::new(errno, what())))
    }
}

/// An open file of its own on the same file, so that no other user of the handle gets `O_DIRECT`. It is opened by what
/// the handle means, not by a name, which may mean another file by now.
fn open_direct(file: &OpenFile) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.fd.as_raw_fd());
    openat(CWD, path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Writes as many of the blocks as it takes, and says what ended it.
fn write_blocks(fd: &OwnedFd, offset: u64, blocks: &[u8]) -> (usize, Option<Errno>) {
    let mut done = 0;
    while done < blocks.len() && done.is_multiple_of(ALIGNMENT_BYTES) {
        match rustix::io::pwrite(fd, &blocks[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(Errno::INTR) => {}
            Err(errno) => return (done, Some(errno)),
        }
    }
    (done, None)
}
