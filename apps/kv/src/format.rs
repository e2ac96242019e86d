//! The file: nodes level by level, then the log of values.
//!
//! ```text
//! 0         the root           512 bytes
//! 512       its children       512 bytes each, in the order of their keys
//! …         further levels     the last level is the leaves
//! log       values             64 bytes each, 8 in a block of 512
//! ```
//!
//! A node is 64 little-endian words: a header word, the type (0 inner node, 1 leaf), 31 ascending keys
//! and 31 pointers. The header word is the offset of the next node of the level, 0 for the last; older
//! files have the number of keys there, always 31. A pointer has bit 63 set and is an offset otherwise:
//! of a child, or in a leaf of a value. The child that holds a key is the last one whose key is not
//! greater.
//!
//! Published files have full nodes: 31 to the power of levels keys. Here a node may be partly filled:
//! unused places are at its end and have the key 2^64 - 1 and the pointer 0. So no key is 2^64 - 1.

use crate::error::KvError;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Keys of a full node.
pub const FAN_OUT: usize = 31;
/// Bytes of a node.
pub const NODE_LEN: usize = 512;
/// Bytes of a value.
pub const VALUE_LEN: usize = 64;
/// Most levels of a store.
pub const LEVELS_MAX: u32 = 16;
/// No key: marks places of a node that are not used.
pub const NO_KEY: u64 = u64::MAX;

/// In every pointer that is used.
const MARK: u64 = 1 << 63;
/// [`Node::kind`] of an inner node, and of a leaf.
pub(crate) const INNER: u64 = 0;
pub(crate) const LEAF: u64 = 1;

/// A value.
pub type Value = [u8; VALUE_LEN];

/// A node as it is in the file.
#[repr(C)]
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Node {
    pub(crate) next: U64,
    pub(crate) kind: U64,
    pub(crate) keys: [U64; FAN_OUT],
    pub(crate) pointers: [U64; FAN_OUT],
}

const _: () = assert!(size_of::<Node>() == NODE_LEN);

/// Where a node's key leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// To the node at this offset.
    Node(u64),
    /// To the value at this offset.
    Value(u64),
    /// Nowhere: the key is not in the store.
    Absent,
}

impl Node {
    /// Reads a node.
    ///
    /// # Errors
    /// When the bytes are not a node.
    pub fn parse(bytes: &[u8], offset: u64) -> Result<&Self, KvError> {
        let node = Self::ref_from_bytes(bytes).map_err(|_| KvError::Format { offset, what: "half a node" })?;
        match node.kind.get() {
            INNER | LEAF => Ok(node),
            _ => Err(KvError::Format { offset, what: "bytes that are no node" }),
        }
    }

    /// Whether its pointers are of values.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.kind.get() == LEAF
    }

    /// Whether it is of an older file, whose nodes do not name the next one.
    #[must_use]
    pub fn is_older(&self) -> bool {
        self.next.get() == FAN_OUT as u64
    }

    /// How many of its keys are not greater: five steps of a binary search.
    #[must_use]
    pub fn rank(&self, key: u64) -> usize {
        let mut rank = 0;
        for step in [16, 8, 4, 2, 1] {
            if self.keys[rank + step - 1].get() <= key {
                rank += step;
            }
        }
        rank
    }

    /// Where a key leads.
    ///
    /// # Errors
    /// When the pointer there is none.
    pub fn find(&self, key: u64, offset: u64) -> Result<Place, KvError> {
        let Some(at) = self.rank(key).checked_sub(1) else { return Ok(Place::Absent) };
        if self.is_leaf() && self.keys[at].get() != key {
            return Ok(Place::Absent);
        }
        Ok(match self.pointer(at, offset)? {
            None => Place::Absent,
            Some(to) if self.is_leaf() => Place::Value(to),
            Some(to) => Place::Node(to),
        })
    }

    /// Offset that a pointer names; `None` where the place is not used.
    ///
    /// # Errors
    /// When it is not a pointer.
    pub fn pointer(&self, at: usize, offset: u64) -> Result<Option<u64>, KvError> {
        match self.pointers[at].get() {
            0 => Ok(None),
            pointer if pointer & MARK != 0 => Ok(Some(pointer & !MARK)),
            _ => Err(KvError::Format { offset, what: "a pointer without its mark" }),
        }
    }

    /// Its keys with the offsets that they lead to.
    pub fn entries(&self, offset: u64) -> impl Iterator<Item = Result<(u64, u64), KvError>> {
        (0..FAN_OUT).map_while(move |at| match self.pointer(at, offset) {
            Ok(to) => to.map(|to| Ok((self.keys[at].get(), to))),
            Err(error) => Some(Err(error)),
        })
    }

    /// A node with these entries.
    pub(crate) fn new(next: u64, is_leaf: bool, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut node = Self {
            next: next.into(),
            kind: if is_leaf { LEAF } else { INNER }.into(),
            keys: [NO_KEY.into(); FAN_OUT],
            pointers: [0.into(); FAN_OUT],
        };
        for (at, (key, to)) in entries.enumerate() {
            node.keys[at].set(key);
            node.pointers[at].set(to | MARK);
        }
        node
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = self.keys[0].get();
        f.debug_struct("Node").field("is_leaf", &self.is_leaf()).field("first_key", &first).finish_non_exhaustive()
    }
}

/// The value that a loaded store has for a key: its number, to the right, with a NUL behind it.
#[must_use]
pub fn counting_value(key: u64) -> Value {
    text_value(&format!("{key:>63}")).expect("63 characters and a NUL")
}

/// A text as a value, filled up with NULs. `None` when it is too long.
#[must_use]
pub fn text_value(text: &str) -> Option<Value> {
    let mut value = [0; VALUE_LEN];
    value.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(value)
}

/// The decimal number that a value ends with, before its NULs; 0 when it ends otherwise. It wraps.
#[must_use]
pub fn number(value: &[u8]) -> u64 {
    let end = value.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let digits = value[..end].iter().rev().take_while(|b| b.is_ascii_digit());
    let mut unit = 1u64;
    digits.fold(0u64, |sum, digit| {
        let next = sum.wrapping_add(unit.wrapping_mul(u64::from(digit - b'0')));
        unit = unit.wrapping_mul(10);
        next
    })
}
