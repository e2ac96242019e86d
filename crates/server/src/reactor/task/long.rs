//! Commands over ranges of any length: Verify, Write Zeroes, Deallocate and Copy. Each does a piece, and others have their turn.

use std::rc::Rc;

use diskside_nvme::controller::ByteRange;

use super::{Bench, Flow, Next, Task, Work, broken};
use diskside_volume::guard::Mode;
use diskside_volume::medium::{Access, Action};

impl Task {
    pub(super) fn verify(&mut self, bench: &mut Bench<'_>) -> Flow {
        let Work::Verify { range, at } = self.work else { unreachable!("called for a Verify") };
        let piece = piece(&range, at, STEP_BYTES);
        if piece.len == 0 {
            return Flow::Done;
        }
        let volume = Rc::clone(&self.volume);
        if !self.has_buffer(bench, piece.len as usize) {
            return Flow::Needs(Next::Memory);
        }
        if !self.hold(&volume, piece.offset..piece.offset + piece.len, Mode::Shared) {
            return Flow::Needs(Next::Block);
        }
        match self.transfer_in(&volume, piece.offset, piece.len as usize) {
            Flow::Done => {
                self.next_piece();
                if let Work::Verify { at, .. } = &mut self.work {
                    *at += piece.len;
                }
                Flow::Needs(Next::Yield)
            }
            flow => flow,
        }
    }

    pub(super) fn zero(&mut self, bench: &mut Bench<'_>) -> Flow {
        loop {
            let Work::Zero { ranges, index, at, deallocate, by_writing, durable } = &mut self.work else {
                unreachable!("called for a Write Zeroes or a Deallocate")
            };
            let Some(range) = ranges.get(*index) else {
                if *durable {
                    self.work = Work::Flush { submitted: false };
                    return self.flush();
                }
                return Flow::Done;
            };
            let step = if *by_writing { STEP_BYTES } else { ZERO_STEP_BYTES };
            let piece = piece(range, *at, step);
            if piece.len == 0 {
                *index += 1;
                *at = 0;
                continue;
            }
            let (by_writing, access) =
                (*by_writing, Access::Zero { offset: piece.offset, len: piece.len, deallocate: *deallocate });
            let volume = Rc::clone(&self.volume);
            if by_writing && !self.has_buffer(bench, piece.len as usize) {
                return Flow::Needs(Next::Memory);
            }
            if !self.hold(&volume, piece.offset..piece.offset + piece.len, Mode::Exclusive) {
                return Flow::Needs(Next::Block);
            }
            let zeroed = if by_writing {
                if self.done == 0
                    && let Some(buffer) = &mut self.buffer
                {
                    buffer.fill(0);
                }
                match self.transfer_out(&volume, piece.offset, 0, piece.len as usize, false) {
                    Flow::Done => piece.len,
                    flow => return flow,
                }
            } else {
                match self.next_action(&volume, &access) {
                    Err(next) => return Flow::Needs(next),
                    Ok(Action::Done(zeroed)) => zeroed.min(piece.len),
                    Ok(Action::Ring(op)) => return Flow::Needs(Next::Submit(op)),
                    Ok(Action::Elsewhere(future)) => {
                        self.elsewhere = Some(future);
                        return Flow::Needs(Next::Elsewhere);
                    }
                    Ok(Action::WriteZeroes) => 0,
                    Ok(Action::Failed(errno)) => return Flow::Failed(errno),
                    Ok(other) => return Flow::Failed(broken(&other)),
                }
            };
            self.next_piece();
            if let Work::Zero { at, by_writing, .. } = &mut self.work {
                *at += zeroed;
                *by_writing |= zeroed == 0;
            }
            return Flow::Needs(Next::Yield);
        }
    }

    pub(super) fn copy(&mut self, bench: &mut Bench<'_>) -> Flow {
        loop {
            let Work::Copy { sources, index, at, to, writing, durable } = &mut self.work else {
                unreachable!("called for a Copy")
            };
            let Some(source) = sources.get(*index) else {
                if *durable {
                    self.work = Work::Flush { submitted: false };
                    return self.flush();
                }
                return Flow::Done;
            };
            let piece = piece(&source.range, *at, STEP_BYTES);
            if piece.len == 0 {
                *index += 1;
                *at = 0;
                continue;
            }
            let (from, to, is_writing) = (Rc::clone(&source.volume), *to, *writing);
            let (offset, len) = (piece.offset, piece.len as usize);
            if !self.has_buffer(bench, len) {
                return Flow::Needs(Next::Memory);
            }
            let flow = if is_writing {
                self.write(to, 0, len, false)
            } else if self.hold(&from, offset..offset + piece.len, Mode::Shared) {
                self.transfer_in(&from, offset, len)
            } else {
                Flow::Needs(Next::Block)
            };
            let Flow::Done = flow else { return flow };
            self.next_piece();
            let Work::Copy { at, to, writing, .. } = &mut self.work else { unreachable!("set by this function only") };
            *writing = !is_writing;
            if is_writing {
                *at += piece.len;
                *to += piece.len;
                return Flow::Needs(Next::Yield);
            }
        }
    }
}

/// The part of `range` that starts `at` bytes into it, at most `step` bytes.
pub(super) fn piece(range: &ByteRange, at: u64, step: u64) -> ByteRange {
    ByteRange { offset: range.offset + at, len: (range.len - at).min(step) }
}

/// How much a long command does before others have their turn.
pub(super) const STEP_BYTES: u64 = 128 << 10;

/// How much of a range is zeroed by one operation of a ring.
pub(super) const ZERO_STEP_BYTES: u64 = 64 << 20;
