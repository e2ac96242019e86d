//! The commands of one connection that were sent and have not ended.

use std::time::{Duration, Instant};

use crate::buffer::BufferSlice;

use super::submission::{Answer, CommandError, Data};

/// Commands by slot. A command identifier is a slot's index, and above it a generation that tells a late answer to an old
/// command from the answer to a new one.
#[derive(Debug)]
pub(super) struct Commands {
    slots: Vec<Command>,
    free: Vec<u16>,
    index_bits: u32,
    max: u32,
    used: u32,
}

/// One command.
#[derive(Debug)]
pub(super) struct Command {
    generation: u16,
    pub(super) in_use: bool,
    pub(super) user_data: u64,
    pub(super) kind: Kind,
    pub(super) data: Moved,
    /// Bytes of data, in whichever direction.
    pub(super) len: u32,
    /// Bytes that came, or that the controller asked for.
    pub(super) done: u32,
    /// Some of its data came with a wrong digest.
    pub(super) damaged: bool,
    /// All of `len` must come for success.
    pub(super) whole: bool,
    /// Segments of batches that refer to its buffer.
    pub(super) references: u32,
    pub(super) timeout: Option<Duration>,
    pub(super) deadline: Option<Instant>,
    pub(super) late: bool,
    /// How it ended, kept until no batch refers to its buffer any more.
    pub(super) outcome: Option<Result<Answer, CommandError>>,
}

// The cost of a connection per command in flight, as the README says.
const _: () = assert!(size_of::<Command>() <= 208);

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The caller's.
    User,
    /// Connect.
    Connect,
    /// A message of authentication, sent or received.
    Authentication,
}

/// Data of a command in flight.
#[derive(Debug)]
pub(super) enum Moved {
    None,
    /// It went with the command.
    InCapsule,
    /// To be sent when the controller asks for it.
    Send(BufferSlice),
    SendBytes(Vec<u8>),
    Receive(BufferSlice),
    ReceiveBytes(Vec<u8>),
}

impl Moved {
    /// The transfer to make for data that does not travel with its command.
    pub(super) fn new(data: Data) -> Self {
        match data {
            Data::None => Self::None,
            Data::Send(slice) => Self::Send(slice),
            Data::SendBytes(bytes) => Self::SendBytes(bytes),
            Data::Receive(slice) => Self::Receive(slice),
            Data::ReceiveBytes(len) => Self::ReceiveBytes(vec![0; len as usize]),
        }
    }
}

impl Commands {
    pub(super) fn new(entries: u16) -> Self {
        let index_bits = 16 - (entries - 1).leading_zeros();
        Self { slots: Vec::new(), free: Vec::new(), index_bits, max: entries.into(), used: 0 }
    }

    /// Limits the commands in flight.
    pub(super) fn limit(&mut self, max: u32) {
        self.max = self.max.min(max);
    }

    pub(super) fn len(&self) -> u32 {
        self.used
    }

    pub(super) fn is_full(&self) -> bool {
        self.used >= self.max
    }

    pub(super) fn get(&self, index: u16) -> &Command {
        &self.slots[usize::from(index)]
    }

    pub(super) fn get_mut(&mut self, index: u16) -> &mut Command {
        &mut self.slots[usize::from(index)]
    }

    /// Takes a slot, which is blank.
    pub(super) fn insert(&mut self) -> u16 {
        debug_assert!(!self.is_full(), "there is a slot for each entry");
        self.used += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Command::blank());
            (self.slots.len() - 1) as u16
        });
        let command = self.get_mut(index);
        let generation = command.generation.wrapping_add(1);
        *command = Command { generation, in_use: true, ..Command::blank() };
        index
    }

    /// Frees a slot and gives back what was in it.
    pub(super) fn remove(&mut self, index: u16) -> Command {
        let command = self.get_mut(index);
        debug_assert!(command.in_use, "a command ends once");
        let generation = command.generation;
        let ended = std::mem::replace(command, Command { generation, ..Command::blank() });
        self.free.push(index);
        self.used -= 1;
        ended
    }

    /// The command identifier of the command in a slot.
    pub(super) fn cid(&self, index: u16) -> u16 {
        // With 65,536 entries all bits are index.
        let generation = u32::from(self.get(index).generation) << self.index_bits;
        index | generation as u16
    }

    /// The slot of the command with this identifier.
    pub(super) fn find(&self, cid: u16) -> Option<u16> {
        let mask = ((1_u32 << self.index_bits) - 1) as u16;
        let index = cid & mask;
        let command = self.slots.get(usize::from(index))?;
        (command.in_use && command.outcome.is_none() && self.cid(index) == cid).then_some(index)
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = u16> + use<> {
        let used: Vec<u16> = (0..self.slots.len() as u16).filter(|&index| self.get(index).in_use).collect();
        used.into_iter()
    }
}

impl Command {
    fn blank() -> Self {
        Self {
            generation: 0,
            in_use: false,
            user_data: 0,
            kind: Kind::User,
            data: Moved::None,
            len: 0,
            done: 0,
            damaged: false,
            whole: false,
            references: 0,
            timeout: None,
            deadline: None,
            late: false,
            outcome: None,
        }
    }

    /// Where the rest of the data that comes from `at` on belongs.
    pub(super) fn target(&self, at: u32) -> Option<BufferSlice> {
        match self.data {
            Moved::Receive(slice) if at < self.len => Some(slice.part(at, self.len - at)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_to_an_old_command_finds_no_new_one() {
        for entries in [2, 3, 32, 33, 128, 4096, u16::MAX] {
            let mut commands = Commands::new(entries);
            let first = commands.insert();
            let old = commands.cid(first);
            assert_eq!(commands.find(old), Some(first));
            commands.remove(first);
            assert_eq!(commands.find(old), None);
            let second = commands.insert();
            assert_eq!(second, first, "slots are used again");
            let distinguishable = commands.index_bits < 16;
            assert_eq!(commands.find(old).is_none(), distinguishable, "{entries} entries");
        }
    }

    #[test]
    fn every_entry_has_its_own_identifier() {
        let mut commands = Commands::new(128);
        let cids: std::collections::BTreeSet<u16> = (0..128)
            .map(|_| {
                let index = commands.insert();
                commands.cid(index)
            })
            .collect();
        assert_eq!(cids.len(), 128);
        assert!(commands.is_full());
    }
}
