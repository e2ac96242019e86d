//! Reads that a step asked for: not tried yet, on their way, or here.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use diskside_engine::traverse::TraverseRead;
use diskside_io::Errno;
use diskside_volume::Volume;
use diskside_volume::cache::Lookups;

use crate::endpoint::non_blocking::Blocks;
use crate::schedule::quota::{Account, Holding, PART_BYTES};

/// Reads of one traversal that are under way at a time.
const READS_AT_ONCE_MAX: usize = 32;

/// Blocks of a volume that a traversal waits for. The reactor reads them as it reads what commands ask for.
#[derive(Debug)]
pub struct AwaitedRead {
    /// What the answer is known by.
    pub id: ReadId,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Bytes of it: whole blocks.
    pub range: Range<u64>,
    /// Where they are kept, before their range is released.
    pub cache: Option<Lookups>,
}

/// Which read of which call of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadId {
    pub(super) call: CallId,
    /// Among all reads of the call.
    pub(super) read: u32,
}

/// A call, among all that a connection ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    pub(super) place: usize,
    pub(super) serial: u64,
}

/// A read that was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) read: TraverseRead,
    pub(super) bytes: Bytes,
}

/// How far its bytes are.
#[derive(Debug)]
pub(super) enum Bytes {
    /// Nobody reads them yet.
    Wanted,
    /// The ring reads them, and so many others in front of them.
    OnTheWay { skip: usize, room: Room },
    /// All of them.
    Here(Room),
    /// They cannot be read.
    Failed(Errno),
}

/// Memory for a read, and its charge. A call keeps that of one read for its next: to ask for it takes longer than the copy.
#[derive(Debug)]
pub(super) struct Room {
    bytes: Vec<u8>,
    len_max: usize,
    _holding: Holding,
}

/// Reads for the reactor.
#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<AwaitedRead>);

impl Outbox {
    /// Asks for what a call wants and that is not at hand, in order, as far as there is room for its bytes. Says how many
    /// reads that were.
    pub(super) fn ask(
        &mut self,
        reads: &mut VecDeque<Asked>,
        blocks_of: impl Fn(&TraverseRead, bool) -> Option<Blocks>,
        (call, first): (CallId, u32),
        (account, spare): (&Account, &mut Option<Room>),
    ) -> u32 {
        let on_the_way = reads.iter().filter(|asked| matches!(asked.bytes, Bytes::OnTheWay { .. })).count();
        let mut sent = 0;
        for (read, asked) in (first..).zip(reads) {
            if !matches!(asked.bytes, Bytes::Wanted) {
                continue;
            }
            if on_the_way + sent as usize >= READS_AT_ONCE_MAX {
                break;
            }
            let Some(Blocks { volume, range, skip, cache }) = blocks_of(&asked.read, read == first) else { continue };
            let Some(room) = Room::take(spare, asked.read.len as usize, account) else { break };
            asked.bytes = Bytes::OnTheWay { skip, room };
            self.0.push_back(AwaitedRead { id: ReadId { call, read }, volume, range, cache });
            sent += 1;
        }
        sent
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Option<AwaitedRead> {
        self.0.pop_front()
    }
}

impl Room {
    /// Room for so many bytes: what is spare, if it is enough. `None`: the host has no more.
    fn take(spare: &mut Option<Self>, len: usize, account: &Account) -> Option<Self> {
        if let Some(room) = spare.take_if(|room| room.len_max >= len) {
            return Some(room);
        }
        let holding = account.hold(len + PART_BYTES).ok()?;
        Some(Self { bytes: Vec::with_capacity(len), len_max: len, _holding: holding })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes are not needed any more: it is spare, if there is none that is larger.
    pub(super) fn spare(mut self, spare: &mut Option<Self>) {
        if spare.as_ref().is_none_or(|kept| kept.len_max <= self.len_max) {
            self.bytes.clear();
            *spare = Some(self);
        }
    }
}

impl Asked {
    /// Its blocks have come.
    pub(super) fn arrived(&mut self, blocks: Result<&[u8], Errno>) {
        let Bytes::OnTheWay { skip, mut room } = std::mem::replace(&mut self.bytes, Bytes::Wanted) else {
            unreachable!("what arrives was asked for, and once")
        };
        self.bytes = match blocks {
            Ok(blocks) => {
                room.bytes.extend_from_slice(&blocks[skip..skip + self.read.len as usize]);
                Bytes::Here(room)
            }
            Err(errno) => Bytes::Failed(errno),
        };
    }
}
