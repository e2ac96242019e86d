//! Slices of files that a kernel read only parts of, kept for its next access: a buffer of its own, apart from what the
//! server keeps for others.
//!
//! A slice counts as long as its file has the version that it was read from. So a kernel sees what others write there.

use diskside_io::buffer::Buffer;
use std::collections::{BTreeMap, HashMap};

/// A slice: which file, and where it begins.
type Key = (usize, u64);

#[derive(Debug)]
pub(super) struct Slices {
    slots: HashMap<Key, Slot>,
    /// By when they were used last.
    order: BTreeMap<u64, Key>,
    uses: u64,
    slots_max: usize,
}

#[derive(Debug)]
struct Slot {
    /// Shorter than a slice at the end of the file.
    bytes: Buffer,
    version: u64,
    used: u64,
}

impl Slices {
    pub(super) fn new(slots_max: usize) -> Self {
        Self { slots: HashMap::new(), order: BTreeMap::new(), uses: 0, slots_max: slots_max.max(1) }
    }

    /// The bytes of a slice, if they are those of this version.
    pub(super) fn get(&mut self, key: Key, version: u64) -> Option<&[u8]> {
        if self.slots.get(&key)?.version != version {
            self.remove(key);
            return None;
        }
        self.uses += 1;
        let slot = self.slots.get_mut(&key)?;
        self.order.remove(&slot.used);
        slot.used = self.uses;
        self.order.insert(slot.used, key);
        Some(&slot.bytes)
    }

    /// Keeps a slice; the one that was not used for longest makes room, and gives its memory back.
    pub(super) fn keep(&mut self, key: Key, version: u64, bytes: Buffer) -> Option<Buffer> {
        let mut spare = self.remove(key);
        if self.slots.len() >= self.slots_max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            spare = self.slots.remove(&oldest).map(|slot| slot.bytes);
        }
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.slots.insert(key, Slot { bytes, version, used: self.uses });
        spare
    }

    /// Drops a slice.
    pub(super) fn remove(&mut self, key: Key) -> Option<Buffer> {
        let slot = self.slots.remove(&key)?;
        self.order.remove(&slot.used);
        Some(slot.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(byte: u8) -> Buffer {
        Buffer::copy_of(&[byte; 16])
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_makes_room() {
        let mut slices = Slices::new(2);
        assert!(slices.keep((0, 0), 7, of(1)).is_none() && slices.keep((0, 4096), 7, of(2)).is_none());
        assert_eq!(slices.get((0, 0), 7).unwrap()[0], 1);
        let spare = slices.keep((1, 0), 9, of(3)).unwrap();
        assert_eq!(spare[0], 2);
        assert!(slices.get((0, 4096), 7).is_none());
        assert_eq!((slices.get((0, 0), 7).unwrap()[0], slices.get((1, 0), 9).unwrap()[0]), (1, 3));
        assert_eq!(slices.order.len(), 2);
    }

    #[test]
    fn bytes_of_another_version_are_not_given() {
        let mut slices = Slices::new(4);
        slices.keep((0, 0), 7, of(1));
        assert!(slices.get((0, 0), 8).is_none());
        assert!(slices.get((0, 0), 7).is_none(), "the version does not come back");
        slices.keep((0, 0), 8, of(2));
        slices.keep((0, 0), 9, of(3));
        assert_eq!(slices.get((0, 0), 9).unwrap()[0], 3);
        assert_eq!(slices.order.len(), 1);
    }
}
