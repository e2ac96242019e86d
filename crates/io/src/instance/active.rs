//! A request on its way through the kernel: its next operation, and what a completion means for it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::request::{Outcome, Promise, Request, Status};
use crate::ring::{Op, Payload};
use crate::unanswered::Asked;

/// The smallest block that `O_DIRECT` transfers come in.
const DIRECT_BLOCK_BYTES: usize = 512;

/// A file as the instances know it.
#[derive(Debug)]
pub(super) struct FileState {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) direct: bool,
}

/// A request in a staging queue.
pub(super) struct Staged {
    pub(super) file: Arc<FileState>,
    pub(super) request: Request,
    pub(super) promise: Promise,
    /// Answered when the request ends.
    pub(super) asked: Option<Asked>,
}

/// The record of a request in flight. Its buffer is with the ring meanwhile.
pub(super) struct Active {
    file: Arc<FileState>,
    promise: Promise,
    asked: Option<Asked>,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    Transfer { direction: Direction, offset: u64, done: usize },
    Whole,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write { durable: bool },
}

/// What follows a completion.
pub(super) enum Step {
    /// The request continues with another operation.
    Again(Active, Op),
    /// The request has ended, and its future knows.
    Done,
}

impl Staged {
    /// The request's first operation.
    pub(super) fn activate(self) -> (Active, Op) {
        let Self { file, request, promise, asked } = self;
        promise.set_in_flight();
        let fd = Arc::clone(&file.fd);
        let (work, op) = match request {
            Request::Read { offset, buffer } => {
                let work = Work::Transfer { direction: Direction::Read, offset, done: 0 };
                (work, transfer(fd, Direction::Read, offset, 0, buffer))
            }
            Request::Write { offset, buffer, durable } => {
                let direction = Direction::Write { durable };
                (Work::Transfer { direction, offset, done: 0 }, transfer(fd, direction, offset, 0, buffer))
            }
            Request::Flush => (Work::Whole, Op::Sync { file: fd, data_only: true }),
            Request::Deallocate { offset, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                (Work::Whole, Op::Allocate { file: fd, flags, offset, len })
            }
            Request::WriteZeroes { offset, len } => {
                (Work::Whole, Op::Allocate { file: fd, flags: FallocateFlags::ZERO_RANGE, offset, len })
            }
        };
        (Active { file, promise, asked, work }, op)
    }

    /// Ends a request that never reached the ring.
    pub(super) fn refuse(self, status: Status) {
        self.promise.complete(Outcome::failed(status, self.request.into_buffer()));
    }
}

impl Active {
    /// What a completion of the request's operation means.
    pub(super) fn step(self, result: Result<u32, Errno>, payload: Payload) -> Step {
        match (self.work, payload) {
            (Work::Transfer { direction, offset, done }, Payload::Buffer(buffer)) => {
                self.step_transfer(direction, offset, done, result, buffer)
            }
            _ => self.end(result.map_or_else(Status::from_errno, |_| Status::Success), 0, None),
        }
    }

    /// Ends the request with an error that no completion reports. Its buffer stays with the ring.
    pub(super) fn fail(self, status: Status) {
        self.promise.complete(Outcome::failed(status, None));
    }

    fn step_transfer(
        mut self,
        direction: Direction,
        offset: u64,
        done_before: usize,
        result: Result<u32, Errno>,
        buffer: Buffer,
    ) -> Step {
        let (moved, interrupted) = match result {
            Ok(moved) => (moved as usize, false),
            Err(Errno::INTR) => (0, true),
            Err(errno) => return self.end(Status::from_errno(errno), done_before, Some(buffer)),
        };
        let done = done_before + moved;
        let ended = match direction {
            _ if done == buffer.len() => Some(Status::Success),
            _ if interrupted => None,
            // The end of the file: nothing more came, or (by whole blocks) less than a block.
            Direction::Read if moved == 0 => Some(Status::Success),
            Direction::Read if self.file.direct && !done.is_multiple_of(DIRECT_BLOCK_BYTES) => Some(Status::Success),
            Direction::Write { .. } if moved == 0 => Some(Status::from_errno(Errno::IO)),
            _ => None,
        };
        if let Some(status) = ended {
            return self.end(status, done, Some(buffer));
        }
        self.work = Work::Transfer { direction, offset, done };
        let op = transfer(Arc::clone(&self.file.fd), direction, offset, done, buffer);
        Step::Again(self, op)
    }

    fn end(self, status: Status, transferred: usize, buffer: Option<Buffer>) -> Step {
        // Before anybody hears of the end.
        drop(self.asked);
        self.promise.complete(Outcome { status, transferred_bytes: transferred as u64, buffer });
        Step::Done
    }
}

/// The operation that moves what is left of a transfer.
fn transfer(file: Arc<OwnedFd>, direction: Direction, offset: u64, done: usize, buffer: Buffer) -> Op {
    let offset = offset + done as u64;
    let range = done..buffer.len();
    match direction {
        Direction::Read => Op::Read { file, offset, buffer, range },
        Direction::Write { durable } => Op::Write { file, offset, buffer, range, durable },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::promise;

    fn state(direct: bool) -> Arc<FileState> {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        Arc::new(FileState { fd: Arc::new(fd), direct })
    }

    /// Plays a kernel that moves at most so many bytes at each call over a file of `file_len` bytes.
    fn play(request: Request, direct: bool, file_len: usize, steps: &[usize]) -> (Outcome, Vec<(u64, usize)>) {
        let (promise, future) = promise();
        let (mut active, mut op) = Staged { file: state(direct), request, promise, asked: None }.activate();
        let mut moves = Vec::new();
        for step in steps.iter().copied().chain(std::iter::repeat(usize::MAX)) {
            let (offset, buffer, range, is_read) = match op {
                Op::Read { offset, buffer, range, .. } => (offset, buffer, range, true),
                Op::Write { offset, buffer, range, .. } => (offset, buffer, range, false),
                other => panic!("not a transfer: {other:?}"),
            };
            let there = if is_read { file_len.saturating_sub(offset as usize) } else { usize::MAX };
            let moved = range.len().min(step).min(there);
            moves.push((offset, range.start));
            match active.step(Ok(moved as u32), Payload::Buffer(buffer)) {
                Step::Again(next, next_op) => (active, op) = (next, next_op),
                Step::Done => return (future.try_take().unwrap(), moves),
            }
        }
        unreachable!("an endless chain of steps")
    }

    proptest! {
        #[test]
        fn short_transfers_go_on_where_they_stopped(
            len in 0_usize..5000, file_len in 0_usize..8000, offset in 0_u64..4000,
            steps in prop::collection::vec(1_usize..900, 0..12),
        ) {
            let buffer = Buffer::zeroed(len);
            let (read, moves) = play(Request::Read { offset, buffer }, false, file_len, &steps);
            prop_assert_eq!(read.status, Status::Success);
            let there = file_len.saturating_sub(offset as usize).min(len);
            prop_assert_eq!(read.transferred_bytes, there as u64);
            prop_assert!(moves.iter().all(|&(at, start)| at == offset + start as u64));
            prop_assert!(moves.windows(2).all(|pair| pair[0].1 < pair[1].1));

            let buffer = Buffer::zeroed(len);
            let (write, moves) = play(Request::Write { offset, buffer, durable: false }, false, 0, &steps);
            prop_assert_eq!((write.status, write.transferred_bytes), (Status::Success, len as u64));
            prop_assert!(moves.iter().all(|&(at, start)| at == offset + start as u64));
        }
    }

    #[test]
    fn a_direct_read_that_ends_inside_a_block_is_the_end_of_the_file() {
        let request = Request::Read { offset: 0, buffer: Buffer::zeroed(8192) };
        let (outcome, moves) = play(request, true, 5000, &[4096]);
        assert_eq!((outcome.status, outcome.transferred_bytes), (Status::Success, 5000));
        assert_eq!(moves, [(0, 0), (4096, 4096)], "an unaligned third read would fail with EINVAL");
    }

    #[test]
    fn a_device_that_takes_nothing_is_an_error() {
        let request = Request::Write { offset: 0, buffer: Buffer::zeroed(8192), durable: true };
        let (outcome, _) = play(request, false, 0, &[4096, 0]);
        assert_eq!((outcome.status, outcome.transferred_bytes), (Status::from_errno(Errno::IO), 4096));
    }

    #[test]
    fn an_interrupted_operation_is_repeated_and_an_error_keeps_what_was_done() {
        let (promise, future) = promise();
        let request = Request::Read { offset: 10, buffer: Buffer::zeroed(100) };
        let (active, _) = Staged { file: state(false), request, promise, asked: None }.activate();
        let buffer = || Payload::Buffer(Buffer::zeroed(100));
        let Step::Again(active, _) = active.step(Err(Errno::INTR), buffer()) else { panic!("repeated") };
        let Step::Again(active, Op::Read { offset: 40, .. }) = active.step(Ok(30), buffer()) else { panic!("goes on") };
        assert!(matches!(active.step(Err(Errno::IO), buffer()), Step::Done));
        let outcome = future.try_take().unwrap();
        assert_eq!((outcome.status, outcome.transferred_bytes), (Status::from_errno(Errno::IO), 30));
        assert_eq!(outcome.buffer.unwrap().len(), 100);
    }
}
