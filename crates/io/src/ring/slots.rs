//! Operations in flight, by slot: what the 64 bits that travel through the kernel refer to.

use super::op::Held;

/// Names one operation in flight. Stale names refer to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub(super) u64);

/// A slab: free slots form a list, and each use of a slot has a generation of its own.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Option<u32>,
    busy: usize,
}

struct Slot {
    generation: u32,
    state: State,
}

enum State {
    Free { next: Option<u32> },
    Busy { token: u64, held: Held },
}

impl Slots {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            free: None,
            busy: 0,
        }
    }

    pub(super) fn insert(&mut self, token: u64, held: Held) -> OpId {
        self.busy += 1;
        let state = State::Busy { token, held };
        let index = match self.free {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                let State::Free { next } = slot.state else {
                    unreachable!("the free list holds free slots")
                };
                self.free = next;
                slot.state = state;
                index
            }
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    state,
                });
                (self.slots.len() - 1) as u32
            }
        };
        OpId(u64::from(self.slots[index as usize].generation) << 32 | u64::from(index))
    }

    /// The operation, which stays in flight.
    pub(super) fn get(&self, id: OpId) -> Option<(u64, &Held)> {
        match self.slot(id) {
            Some(Slot {
                state: State::Busy { token, held },
                ..
            }) => Some((*token, held)),
            _ => None,
        }
    }

    /// Ends the operation and frees its slot.
    pub(super) fn remove(&mut self, id: OpId) -> Option<(u64, Held)> {
        self.slot(id)?;
        let index = id.0 as u32;
        let slot = &mut self.slots[index as usize];
        if matches!(slot.state, State::Free { .. }) {
            return None;
        }
        let State::Busy { token, held } =
            std::mem::replace(&mut slot.state, State::Free { next: self.free })
        else {
            unreachable!("checked above")
        };
        slot.generation = slot.generation.wrapping_add(1);
        self.free = Some(index);
        self.busy -= 1;
        Some((token, held))
    }

    /// Operations in flight.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    fn slot(&self, id: OpId) -> Option<&Slot> {
        let slot = self.slots.get(id.0 as u32 as usize)?;
        (slot.generation == (id.0 >> 32) as u32).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_refers_to_nothing() {
        let mut slots = Slots::with_capacity(2);
        let first = slots.insert(1, Held::None);
        let second = slots.insert(2, Held::None);
        assert_eq!(slots.remove(first).unwrap().0, 1);
        let third = slots.insert(3, Held::None);
        assert_eq!(third.0 as u32, first.0 as u32, "the slot is used again");
        assert!(slots.remove(first).is_none());
        assert_eq!(slots.get(third).unwrap().0, 3);
        assert_eq!(slots.get(second).unwrap().0, 2);
        assert_eq!(slots.busy(), 2);
        assert!(slots.get(OpId(99)).is_none());
    }
}
