//! One access of a kernel: how far it is, and what its next step is.

use super::DirectPolicy;
use diskside_io::buffer::Buffer;
use diskside_io::bytefile::{Access, Direction, Hold};
use diskside_io::request::RequestFuture;
use diskside_io::ring::{Op, OpId};
use rustix::io::Errno;
use std::time::Instant;

/// An access that a kernel asked for.
#[derive(Debug)]
pub(super) struct Operation {
    /// `None`: the kernel waits for it at once.
    pub(super) cookie: Option<u64>,
    /// Where in the program's memory the bytes of a read go.
    pub(super) address: u64,
    pub(super) file: usize,
    pub(super) direction: Direction,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Bytes that are done, from the offset on.
    pub(super) moved: u64,
    /// The bytes that are written, or were read so far. `None` while a step has them.
    pub(super) bytes: Option<Buffer>,
    pub(super) state: State,
    pub(super) began: Instant,
}

/// What it waits for.
pub(super) enum State {
    /// Its next step is to be begun.
    Next,
    /// Time.
    Until(Instant, Step, Later),
    /// The caller's ring.
    Ring(OpId, Step, Hold),
    /// Somebody else.
    Elsewhere { future: RequestFuture, buffer: Option<Buffer>, hold: Hold, step: Step, is_heard: bool },
    /// The kernel.
    Ended(Result<u64, Errno>),
}

/// What is to be done then.
pub(super) enum Later {
    Push { op: Op, hold: Hold },
    Complete { result: Result<u64, Errno>, buffer: Buffer, hold: Hold },
    Again { access: Access, hold: Hold },
}

/// A part of an access that is done at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) way: Way,
    /// First byte in the file.
    pub(super) start: u64,
    pub(super) len: usize,
    /// Whether the step passes the page cache by.
    pub(super) direct: bool,
    /// The version of the file before a slice was read.
    pub(super) version: Option<u64>,
}

/// How bytes come to the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// They are exactly its rest.
    Straight,
    /// They are whole slices around its rest.
    Around,
    /// They are one slice, which is kept.
    Slice,
}

impl Operation {
    /// Where it continues, and how much is left.
    pub(super) fn rest(&self) -> (u64, u64) {
        (self.offset + self.moved, self.len - self.moved)
    }

    /// The next step.
    pub(super) fn next_step(&self, policy: DirectPolicy, slice_len: u64) -> Step {
        let (at, rest) = self.rest();
        let first = at / slice_len * slice_len;
        let last = (at + rest).next_multiple_of(slice_len);
        let is_whole = at == first && at + rest == last;
        let is_direct = is_whole && policy != DirectPolicy::Off;
        let (way, start, end) = match self.direction {
            _ if is_direct => (Way::Straight, at, at + rest),
            // Bytes beside those that are written stay as they are: the file takes care of that.
            Direction::Write if policy == DirectPolicy::All => (Way::Straight, at, at + rest),
            Direction::Write => (Way::Straight, at, (first + slice_len).min(at + rest)),
            Direction::Read if policy == DirectPolicy::All && last - first > slice_len => (Way::Around, first, last),
            Direction::Read => (Way::Slice, first, first + slice_len),
        };
        Step { way, start, len: (end - start) as usize, direct: false, version: None }
    }

    /// Takes what a step has read; says whether there may be more.
    pub(super) fn take_read(&mut self, step: &Step, buffer: &[u8], count: u64) -> bool {
        let (at, rest) = self.rest();
        let skip = at - step.start;
        let got = count.saturating_sub(skip).min(rest);
        // A read of the last slice may end before the wanted bytes begin.
        if let Some(bytes) = self.bytes.as_mut().filter(|_| got > 0) {
            let (to, from) = (self.moved as usize, skip as usize);
            bytes[to..to + got as usize].copy_from_slice(&buffer[from..from + got as usize]);
        }
        self.moved += got;
        // A device gives fewer bytes than were asked for at the end of the file, or else whole sectors of them.
        let is_short = count < step.len as u64;
        got > 0 && (!is_short || count.is_multiple_of(SECTOR_LEN))
    }
}

/// The shortest that devices transfer.
const SECTOR_LEN: u64 = 512;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Next => "Next",
            Self::Until(..) => "Until",
            Self::Ring(..) => "Ring",
            Self::Elsewhere { .. } => "Elsewhere",
            Self::Ended(_) => "Ended",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(direction: Direction, policy: DirectPolicy, offset: u64, len: u64) -> Vec<(Way, u64, usize)> {
        let mut operation = Operation {
            cookie: None,
            address: 0,
            file: 0,
            direction,
            offset,
            len,
            moved: 0,
            bytes: None,
            state: State::Next,
            began: Instant::now(),
        };
        let mut steps = Vec::new();
        while operation.moved < operation.len {
            let step = operation.next_step(policy, 4096);
            steps.push((step.way, step.start, step.len));
            match direction {
                Direction::Read => drop(operation.take_read(&step, &[], step.len as u64)),
                Direction::Write => operation.moved += step.len as u64,
            }
        }
        steps
    }

    #[test]
    fn whole_slices_are_one_step_and_others_as_the_policy_says() {
        use DirectPolicy::{All, Off, Possible};
        use Direction::{Read, Write};
        for (direction, policy, offset, len, wanted) in [
            (Read, Possible, 4096, 12288, vec![(Way::Straight, 4096, 12288)]),
            (Read, All, 0, 4096, vec![(Way::Straight, 0, 4096)]),
            (Read, Off, 4096, 8192, vec![(Way::Slice, 4096, 4096), (Way::Slice, 8192, 4096)]),
            (Read, Possible, 100, 4096, vec![(Way::Slice, 0, 4096), (Way::Slice, 4096, 4096)]),
            (Read, All, 100, 4096, vec![(Way::Around, 0, 8192)]),
            (Read, All, 100, 50, vec![(Way::Slice, 0, 4096)]),
            (Write, Possible, 4096, 8192, vec![(Way::Straight, 4096, 8192)]),
            (Write, Off, 4096, 8192, vec![(Way::Straight, 4096, 4096), (Way::Straight, 8192, 4096)]),
            (Write, Possible, 4000, 200, vec![(Way::Straight, 4000, 96), (Way::Straight, 4096, 104)]),
            (Write, All, 4000, 200, vec![(Way::Straight, 4000, 200)]),
        ] {
            assert_eq!(steps(direction, policy, offset, len), wanted, "{direction:?} {policy:?} {offset} {len}");
        }
    }
}
