//! Values by slot: what the 64 bits that travel through a kernel or a wire refer to.

/// Names one value of a [`Slab`]. Once the value is removed, the name refers to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

/// A slab: free slots form a list, and each use of a slot has a generation of its own.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Option<u32>,
    len: usize,
}

struct Slot<T> {
    generation: u32,
    state: State<T>,
}

enum State<T> {
    Free { next: Option<u32> },
    Used(T),
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T> Slab<T> {
    /// A slab that grows only when it holds more than `capacity` values.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), free: None, len: 0 }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        let index = match self.free {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                let State::Free { next } = slot.state else { unreachable!("the free list holds free slots") };
                self.free = next;
                slot.state = State::Used(value);
                index
            }
            None => {
                self.slots.push(Slot { generation: 0, state: State::Used(value) });
                (self.slots.len() - 1) as u32
            }
        };
        Key(u64::from(self.slots[index as usize].generation) << 32 | u64::from(index))
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.slots.get(key.index()) {
            Some(Slot { generation, state: State::Used(value) }) if *generation == key.generation() => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.index()) {
            Some(Slot { generation, state: State::Used(value) }) if *generation == key.generation() => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let slot = &mut self.slots[key.index()];
        let State::Used(value) = std::mem::replace(&mut slot.state, State::Free { next: self.free }) else {
            unreachable!("found above")
        };
        slot.generation = slot.generation.wrapping_add(1);
        self.free = Some(key.index() as u32);
        self.len -= 1;
        Some(value)
    }

    /// Removes all values.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free = None;
        self.len = 0;
        self.slots.drain(..).filter_map(|slot| match slot.state {
            State::Used(value) => Some(value),
            State::Free { .. } => None,
        })
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| match &slot.state {
            State::Used(value) => Some(value),
            State::Free { .. } => None,
        })
    }

    /// Values held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Key {
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn index(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_refers_to_nothing() {
        let mut slab = Slab::with_capacity(2);
        let first = slab.insert('a');
        let second = slab.insert('b');
        assert_eq!(slab.remove(first), Some('a'));
        let third = slab.insert('c');
        assert_eq!(third.index(), first.index(), "the slot is used again");
        assert_eq!(slab.remove(first), None);
        assert_eq!((slab.get(second), slab.get(third)), (Some(&'b'), Some(&'c')));
        assert_eq!(slab.get(Key::from_bits(99)), None);
        assert_eq!(slab.len(), 2);
        assert_eq!(slab.drain().collect::<String>(), "cb");
    }
}
