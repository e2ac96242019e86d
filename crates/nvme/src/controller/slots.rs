//! The commands of one connection that arrived and are not answered yet.

use crate::buffer::{BufferId, BufferSlice};
use crate::wire::Sqe;

use super::command::Command;
use super::request::Tag;

const NONE: u32 = u32::MAX;

/// Commands by slot, and found by command identifier. Slots are made when they are first needed, and used again.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// First slot of each chain of commands whose identifiers agree in their low bits.
    chains: Vec<u32>,
    used: u32,
}

/// One command.
#[derive(Debug)]
pub(super) struct Slot {
    generation: u32,
    /// Next slot of the same chain.
    next: u32,
    pub(super) stage: Stage,
    pub(super) sqe: Sqe,
    pub(super) command: Command,
    /// Where its data goes.
    pub(super) sink: Sink,
    /// Bytes of data, in whichever direction.
    pub(super) len: u32,
    /// Bytes of data that came or were sent.
    pub(super) done: u32,
    /// End of the data that the outstanding R2T asks for.
    pub(super) r2t_end: u32,
    /// Some of its data came with a wrong digest.
    pub(super) damaged: bool,
    /// The embedder was asked to stop it.
    pub(super) is_cancelled: bool,
}

// The cost of a connection per command in flight, as the README says.
const _: () = assert!(size_of::<Slot>() <= 208);

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No command.
    Free,
    /// Its data is on its way in its capsule.
    InCapsule,
    /// No buffer for its data yet.
    AwaitsBuffer,
    /// Its data was asked for.
    AwaitsData,
    /// A request for the media.
    WithEmbedder,
    /// A request for events, which waits for one.
    AwaitsEvent,
    /// An Abort, which waits for the answer of another queue.
    AwaitsAbort,
    /// A reservation, which waits for the commands of hosts that it excludes.
    AwaitsOthers,
}

/// Where data from the host is gathered.
#[derive(Debug, Default)]
pub(super) enum Sink {
    /// Nowhere.
    #[default]
    None,
    /// In a buffer of the pool.
    Buffer(BufferId),
    /// In memory of our own: parameters of commands, or data for which the pool had no buffer.
    Memory(Vec<u8>),
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), chains: vec![NONE; 1], used: 0 }
    }

    /// Prepares for `entries` commands at a time. No command may be in a slot but those of `self`.
    pub(super) fn expect(&mut self, entries: u16) {
        let used: Vec<u32> = (0..self.slots.len() as u32).filter(|&i| self.get(i).stage != Stage::Free).collect();
        self.chains = vec![NONE; usize::from(entries).next_power_of_two()];
        for index in used {
            self.link(index);
        }
    }

    /// Commands that are in slots.
    pub(super) fn len(&self) -> u32 {
        self.used
    }

    pub(super) fn get(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// The slot at `index`, if there is one and a command is in it.
    pub(super) fn checked(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize).filter(|slot| slot.stage != Stage::Free)
    }

    /// The slot of the command that `tag` names, if it has not ended.
    pub(super) fn tagged(&self, tag: Tag) -> Option<u32> {
        let slot = self.checked(tag.slot)?;
        (slot.generation == tag.generation).then_some(tag.slot)
    }

    pub(super) fn tag(&self, index: u32) -> Tag {
        Tag { slot: index, generation: self.get(index).generation }
    }

    /// The slot of the command with this identifier.
    pub(super) fn find(&self, cid: u16) -> Option<u32> {
        let mut index = self.chains[self.chain(cid)];
        while index != NONE {
            let slot = self.get(index);
            if slot.sqe.cid() == cid {
                return Some(index);
            }
            index = slot.next;
        }
        None
    }

    /// Puts a command in a slot. Its identifier must not be in use.
    pub(super) fn insert(&mut self, sqe: Sqe, command: Command, stage: Stage, len: u32) -> u32 {
        debug_assert!(self.find(sqe.cid()).is_none(), "an identifier names one command");
        self.used += 1;
        let index = match self.free.pop() {
            Some(index) => {
                let slot = self.get_mut(index);
                slot.generation = slot.generation.wrapping_add(1);
                (slot.stage, slot.sqe, slot.command) = (stage, sqe, command);
                (slot.len, slot.done, slot.r2t_end) = (len, 0, 0);
                (slot.damaged, slot.is_cancelled) = (false, false);
                index
            }
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    next: NONE,
                    stage,
                    sqe,
                    command,
                    sink: Sink::None,
                    len,
                    done: 0,
                    r2t_end: 0,
                    damaged: false,
                    is_cancelled: false,
                });
                self.slots.len() as u32 - 1
            }
        };
        self.link(index);
        index
    }

    /// Frees a slot and gives back what was in its sink.
    pub(super) fn remove(&mut self, index: u32) -> Sink {
        debug_assert!(self.get(index).stage != Stage::Free, "a command ends once");
        self.unlink(index);
        self.used -= 1;
        self.free.push(index);
        let slot = self.get_mut(index);
        slot.stage = Stage::Free;
        std::mem::take(&mut slot.sink)
    }

    /// Slots with commands.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots.len() as u32).filter(|&index| self.get(index).stage != Stage::Free)
    }

    fn chain(&self, cid: u16) -> usize {
        usize::from(cid) & (self.chains.len() - 1)
    }

    fn link(&mut self, index: u32) {
        let chain = self.chain(self.get(index).sqe.cid());
        self.get_mut(index).next = self.chains[chain];
        self.chains[chain] = index;
    }

    fn unlink(&mut self, index: u32) {
        let next = self.get(index).next;
        let chain = self.chain(self.get(index).sqe.cid());
        if self.chains[chain] == index {
            self.chains[chain] = next;
            return;
        }
        let mut at = self.chains[chain];
        while self.get(at).next != index {
            at = self.get(at).next;
        }
        self.get_mut(at).next = next;
    }
}

impl Slot {
    /// The part of its buffer that is still to be filled from `at` on.
    pub(super) fn target(&self, at: u32) -> Option<BufferSlice> {
        match self.sink {
            Sink::Buffer(buffer) if at < self.len => Some(BufferSlice { buffer, offset: at, len: self.len - at }),
            _ => None,
        }
    }
}
