//! What a controller answers to the reactor of one connection.

use std::collections::VecDeque;
use std::time::Instant;

use diskside_io::Errno;
use diskside_nvme::controller::Tag;
use diskside_nvme::wire::Sqe;

use crate::call::answer::Answer;
use crate::call::traverse::{AwaitedRead, Lanes, ReadId, Share, WaitingCall};
use crate::reactors::Name;

use super::file_read::FileRead;

/// A command as it came.
#[derive(Debug)]
pub struct Command {
    /// Where its answer goes.
    pub name: Name,
    /// Entries of its queue.
    pub entries: u16,
    /// Its entry.
    pub sqe: Box<Sqe>,
    /// Whether it came on the admin queue.
    pub admin: bool,
    /// Data from the host.
    pub data: Vec<u8>,
}

/// Answers for the connection that is being served right now; those of others go through their reactors' mailboxes.
#[derive(Debug, Default)]
pub struct Answers {
    /// That connection; `None`: there is none.
    pub(super) serial: Option<u64>,
    pub(super) list: Vec<(Tag, Answer)>,
    /// Its calls of traversals that wait, at most as many as its queue has entries, and those that have begun:
    /// [`Association::run_calls`](super::Association::run_calls) continues them.
    pub(super) waiting: VecDeque<WaitingCall>,
    pub(super) lanes: Lanes,
    /// Reads of files that its ring is to do.
    pub(super) file_reads: VecDeque<FileRead>,
    /// The version of its host's rights when its calls were last looked at.
    pub(super) rights_version: u64,
    /// How many such calls, and reads of files, have ended at once since this was last set to zero.
    pub calls: u32,
    /// The part of the reactor's turn that traversals may take; none on other threads. Those under way count as begun.
    pub share: Share,
}

impl Answers {
    /// For the connection with this serial number.
    pub fn of(serial: u64) -> Self {
        Self { serial: Some(serial), ..Self::default() }
    }

    /// Takes those that came, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = (Tag, Answer)> {
        self.list.drain(..)
    }

    /// Calls that have begun and wait for no read.
    pub fn calls_begun(&self) -> usize {
        self.lanes.ready()
    }

    /// Whether there are calls to continue.
    pub fn has_calls(&self) -> bool {
        self.lanes.ready() > 0 || !self.waiting.is_empty()
    }

    /// The next read that a call waits for. It is answered by [`arrived`](Self::arrived).
    pub fn next_read(&mut self) -> Option<AwaitedRead> {
        self.lanes.next_read()
    }

    /// The next read of a file. It is answered by [`FileRead::completed`].
    pub fn next_file_read(&mut self) -> Option<FileRead> {
        self.file_reads.pop_front()
    }

    /// A read has ended: with all bytes of its range, or with what was wrong.
    pub fn arrived(&mut self, id: ReadId, read: Result<&[u8], Errno>) {
        self.lanes.arrived(id, read);
    }

    /// When [`Association::end_late_calls`](super::Association::end_late_calls) is to be called, at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lanes.next_deadline()
    }
}
