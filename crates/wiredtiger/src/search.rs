//! Reads: from the stash, along a path, by a lookup at the server, together with the leaves behind, or plain.

use crate::blocks::{self, AHEAD_MAX, Address, Answer, BLOCK_LEN_MAX, BLOCKS_MAX, Blocks, Find, KEY_LEN_MAX, Reason};
use crate::controls;
use crate::failure::Failure;
use crate::file::DataFile;
use crate::order::Leaf;
use crate::page;
use crate::slot::{Policy, Slot};
use crate::stash::{Stash, Taken};
use crate::stats::{Fallback, STATS, add, fell_back, trip};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Bytes of leaves that a scan asks for at first, and at most.
const AHEAD_LEN_MIN: usize = 32 << 10;
const AHEAD_LEN_MAX: usize = 512 << 10;
/// Leaves that a scan asks for at most: as many as the stash keeps.
const AHEAD_BLOCKS_MAX: usize = 48;
/// How long a lookup that is late waits (`controls`).
const LATE: Duration = Duration::from_millis(20);
/// Reads that a lookup saves, about: where more than three of five fall back, there are none for a while.
const LOOKUP_WORTH: usize = 3;
/// The most room of values and paths.
const ROOM_MAX: u32 = 900 << 10;

/// What a thread looks for, and what it has.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    hint: Hint,
    stash: Stash,
    scan: Scan,
    /// A number from 0 to 99, another one in each lookup: for samples.
    dice: u32,
}

#[derive(Debug, Default)]
struct Hint {
    /// `None`: there is no hint.
    slot: Option<Arc<Slot>>,
    key: Vec<u8>,
    ahead: u32,
    /// The search may be answered at the server.
    may_push: bool,
    /// It was refused, with this answer.
    answer: Option<Found>,
}

/// The answer to a search that was refused.
#[derive(Debug)]
enum Found {
    Value(Vec<u8>),
    Absent,
    /// One of the stress test's mistakes: the lookup is made behind the refusal.
    Later(Arc<DataFile>, Address, u32),
}

/// Leaves that a thread reads one after another.
#[derive(Debug, Default)]
struct Scan {
    file: u64,
    /// The leaf that comes next; `None`: it is below another inner page.
    next: Option<u64>,
    /// Leaves that followed one another.
    run: u32,
    /// Bytes that are asked for next.
    len: usize,
}

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Read,
    /// It has to fail: the thread's search is answered.
    Refused,
}

/// How a search ended.
pub(crate) enum Ended<'a> {
    /// By WiredTiger.
    NotAnswered,
    Value(&'a [u8]),
    Absent,
    /// It was refused, and has to be made again.
    Again,
}

impl Thread {
    pub(crate) fn hint(&mut self, slot: &Arc<Slot>, key: &[u8], ahead: u32, may_push: bool) {
        self.leave();
        if key.len() > KEY_LEN_MAX {
            return;
        }
        let hint = &mut self.hint;
        if !hint.slot.as_ref().is_some_and(|known| Arc::ptr_eq(known, slot)) {
            hint.slot = Some(Arc::clone(slot));
        }
        hint.key.clear();
        hint.key.extend_from_slice(key);
        hint.ahead = ahead;
        hint.may_push = may_push && slot.policy() == Policy::Push && !slot.truncated.load(Ordering::Acquire);
        if hint.may_push {
            self.dice = (self.dice + 37) % 100;
            hint.may_push = self.dice >= slot.sample_percent.load(Ordering::Relaxed);
        }
    }

    fn leave(&mut self) {
        self.hint.answer = None;
        self.hint.may_push = false;
        self.hint.key.clear();
        self.drop_stash();
    }

    fn drop_stash(&mut self) {
        if !controls::unlogged() {
            self.stash.clear();
        }
    }

    /// The end of a hint.
    pub(crate) fn end(&mut self) {
        self.leave();
        self.hint.slot = None;
        self.hint.ahead = 0;
    }

    /// The end of a search that may have been answered. The value stays until the next hint.
    pub(crate) fn answer(&mut self) -> Ended<'_> {
        self.hint.may_push = false;
        self.drop_stash();
        if let Some(Found::Later(file, start, allocation)) = &self.hint.answer {
            // Long enough for others to write meanwhile.
            std::thread::sleep(LATE);
            let found = push(file, *start, *allocation, &self.hint.key);
            match found {
                Some(found) => self.hint.answer = Some(found),
                None => return Ended::Again,
            }
        }
        self.hint.slot = None;
        match &self.hint.answer {
            None => Ended::NotAnswered,
            Some(Found::Value(value)) => Ended::Value(value),
            Some(Found::Absent) => Ended::Absent,
            Some(Found::Later(..)) => Ended::Again,
        }
    }

    /// One read of WiredTiger.
    pub(crate) fn read(&mut self, file: &Arc<DataFile>, offset: u64, to: &mut [u8]) -> Result<Outcome, Failure> {
        add(&STATS.reads, 1);
        let Some(allocation) = file.allocation().filter(|_| file.is_data && offset != 0 && is_block(to.len())) else {
            file.read(offset, to)?;
            return Ok(Outcome::Read);
        };
        match self.stash.take(file.id, offset, to, &file.writes, controls::unlogged()) {
            Taken::Served => {
                add(&STATS.served, 1);
                self.passed(file, offset, to, allocation);
                return Ok(Outcome::Read);
            }
            Taken::Stale => add(&STATS.stale, 1),
            Taken::Missing => {}
        }
        let leaf = lock(&file.order).leaf(offset);
        let start = Address { offset, len: to.len() as u32, checksum: 0 };
        if self.is_hinted(file) && std::mem::take(&mut self.hint.may_push) && file.slot.lookups.is_worth() {
            self.hint.answer = if controls::late() {
                Some(Found::Later(Arc::clone(file), start, allocation))
            } else {
                push(file, start, allocation, &self.hint.key)
            };
            if self.hint.answer.is_some() {
                return Ok(Outcome::Refused);
            }
        }
        // What was written before the trip, the trip brings.
        let mark = file.writes.mark();
        let brought = self.trip(file, start, leaf, allocation);
        match brought.as_ref().and_then(|blocks| blocks.iter().next()) {
            Some((_, block))
                if block.len() == to.len() && file.writes.untouched(&(offset..offset + to.len() as u64), mark) =>
            {
                to.copy_from_slice(block);
                self.stash.keep(file.id, mark, brought.expect("it has a block"));
            }
            _ => file.read(offset, to)?,
        }
        self.passed(file, offset, to, allocation);
        Ok(Outcome::Read)
    }

    fn is_hinted(&self, file: &DataFile) -> bool {
        self.hint.slot.as_ref().is_some_and(|slot| Arc::ptr_eq(slot, &file.slot))
    }

    /// Asks for more than one block, if that is worth it. `None`: one is enough, or it failed.
    fn trip(&mut self, file: &DataFile, start: Address, leaf: Option<Leaf>, allocation: u32) -> Option<Blocks> {
        if file.slot.policy() == Policy::Off {
            return None;
        }
        let is_hinted = self.is_hinted(file) && !self.hint.key.is_empty();
        let ahead = if is_hinted { self.hint.ahead } else { 0 };
        if let Some(leaf) = leaf {
            let count = if self.is_scanned(file, start.offset) { self.scan.count(start.len) } else { ahead as usize };
            if count > 0 && leaf.next.is_some() {
                return self.leaves(file, start, count);
            }
            return if is_hinted && leaf.may_overflow {
                path(file, start, allocation, &self.hint.key, 0)
            } else {
                None
            };
        }
        if is_hinted {
            return path(file, start, allocation, &self.hint.key, ahead.min(AHEAD_MAX));
        }
        // Behind the last leaf of an inner page WiredTiger reads the next inner page.
        let is_behind = self.scan.file == file.id && self.scan.run > 0 && self.scan.next.is_none();
        if is_behind { path(file, start, allocation, &[], AHEAD_MAX) } else { None }
    }

    fn leaves(&self, file: &DataFile, start: Address, count: usize) -> Option<Blocks> {
        let behind = lock(&file.order).behind(start.offset, count, AHEAD_LEN_MAX - start.len as usize);
        let addresses: Vec<Address> = std::iter::once(start).chain(behind).take(BLOCKS_MAX).collect();
        let blocks = counted(file.space.functions.list(file, &addresses), Some(&STATS.ahead))?;
        Some(blocks)
    }

    fn is_scanned(&self, file: &DataFile, offset: u64) -> bool {
        self.scan.file == file.id && self.scan.next == Some(offset) && self.scan.run > 0
    }

    /// A block is given to WiredTiger.
    fn passed(&mut self, file: &DataFile, offset: u64, block: &[u8], allocation: u32) {
        if page::is_inner(block) {
            lock(&file.order).learn(offset, &page::children(block, allocation));
            return;
        }
        let Some(leaf) = lock(&file.order).leaf(offset) else { return };
        let scan = &mut self.scan;
        let follows = scan.file == file.id && (scan.next == Some(offset) || scan.next.is_none() && scan.run > 0);
        let is_hinted =
            self.hint.ahead > 0 && self.hint.slot.as_ref().is_some_and(|slot| Arc::ptr_eq(slot, &file.slot));
        *scan = Scan {
            file: file.id,
            next: leaf.next.map(|next| next.offset),
            run: if follows { scan.run.saturating_add(1) } else { u32::from(is_hinted).max(1) },
            len: if follows { scan.len } else { AHEAD_LEN_MIN },
        };
    }
}

impl Scan {
    /// How many leaves of this length are asked for ahead.
    fn count(&mut self, len: u32) -> usize {
        let count = (self.len / len as usize).clamp(1, AHEAD_BLOCKS_MAX);
        self.len = (self.len * 2).min(AHEAD_LEN_MAX);
        count
    }
}

/// Whether the functions read blocks of this length.
fn is_block(len: usize) -> bool {
    (512..=BLOCK_LEN_MAX as usize).contains(&len)
}

/// The way to a key, if it is worth it.
fn path(file: &DataFile, start: Address, allocation: u32, key: &[u8], ahead: u32) -> Option<Blocks> {
    let slot = &file.slot;
    if ahead == 0 && !slot.tuner.is_worth() {
        return None;
    }
    // Leaves of WiredTiger's default length are of eight units.
    let room = slot.path_room.load(Ordering::Relaxed).max(12 * allocation) + ahead * (start.len.max(4096) + 64);
    let found = file.space.functions.path(file, &Find { start, allocation, key, ahead }, room.min(ROOM_MAX) as usize);
    let blocks = counted(found, Some(&STATS.paths))?;
    if ahead == 0 {
        slot.tuner.note(blocks.len());
    }
    if blocks.reason == Some(Reason::NO_ROOM) {
        let more = (2 * slot.path_room.load(Ordering::Relaxed)).max(blocks.len_bytes() as u32 + (64 << 10));
        slot.path_room.fetch_max(more.min(ROOM_MAX), Ordering::Relaxed);
    }
    Some(blocks)
}

/// Looks a key up at the server. `None`: WiredTiger has to.
fn push(file: &DataFile, start: Address, allocation: u32, key: &[u8]) -> Option<Found> {
    let found = look_up(file, start, allocation, key);
    // A lookup saves about so many reads, and one that falls back is a trip for nothing.
    file.slot.lookups.note(if found.is_ok() { LOOKUP_WORTH } else { 0 });
    found.inspect_err(|why| fell_back(*why)).ok()
}

fn look_up(file: &DataFile, start: Address, allocation: u32, key: &[u8]) -> Result<Found, Fallback> {
    let slot = &file.slot;
    let find = Find { start, allocation, key, ahead: 0 };
    for _ in 0..2 {
        let room = slot.value_room.load(Ordering::Relaxed);
        match file.space.functions.get(file, &find, room as usize)? {
            Answer::Found(value) => {
                trip(Some(&STATS.pushed), value.len() + 16);
                return Ok(Found::Value(value));
            }
            Answer::Absent => {
                trip(Some(&STATS.pushed), 16);
                return Ok(Found::Absent);
            }
            Answer::Unsupported(Reason::NO_ROOM, needed) if needed > room && needed <= ROOM_MAX => {
                trip(None, 16);
                slot.value_room.fetch_max((needed + 1024).min(ROOM_MAX), Ordering::Relaxed);
            }
            Answer::Unsupported(reason, _) => {
                trip(None, 16);
                return Err(Fallback::Of(reason));
            }
        }
    }
    Err(Fallback::Of(Reason::NO_ROOM))
}

fn counted(found: Result<Blocks, Fallback>, kind: Option<&std::sync::atomic::AtomicU64>) -> Option<Blocks> {
    match found {
        Ok(blocks) => {
            trip(kind, blocks.len_bytes());
            Some(blocks)
        }
        Err(why) => {
            fell_back(why);
            None
        }
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = assert!(ROOM_MAX as usize + 4096 < blocks::SCRATCH_LEN_MAX);
