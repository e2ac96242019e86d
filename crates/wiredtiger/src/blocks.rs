//! Requests and results of the functions `wt_path`, `wt_next` and `wt_get` (`functions/wt.h`).

use zerocopy::{Immutable, IntoBytes};

/// Bytes of the longest key.
pub(crate) const KEY_LEN_MAX: usize = 1024;
/// The longest block that the functions read.
pub(crate) const BLOCK_LEN_MAX: u32 = 512 << 10;
/// The most blocks of a list.
pub(crate) const BLOCKS_MAX: usize = 256;
/// The most leaves behind the one that a path leads to.
pub(crate) const AHEAD_MAX: u32 = 15;
/// The most scratch of a traversal.
pub(crate) const SCRATCH_LEN_MAX: usize = 1 << 20;

const FIND_LEN: usize = 24;
const HEAD_LEN: usize = 16;
const BLOCK_HEAD_LEN: usize = 16;
/// What the functions keep at the end of scratch, about.
const SEARCH_LEN: usize = 2 * KEY_LEN_MAX + 256;
const LIST_LEN: usize = 32 + 16 * BLOCKS_MAX;

/// Where a block is, and its checksum; 0: that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Address {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) checksum: u32,
}

/// The key that is looked for, and where to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Find<'a> {
    pub(crate) start: Address,
    pub(crate) allocation: u32,
    pub(crate) key: &'a [u8],
    pub(crate) ahead: u32,
}

/// Why a function could not say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) u32);

/// The names of reasons, by their number.
pub(crate) const REASONS: [&str; 17] = [
    "unknown",
    "malformed",
    "checksum",
    "reused",
    "partial-checksum",
    "page-kind",
    "encrypted",
    "compression",
    "deleted-page",
    "overflow",
    "prepared",
    "cell-kind",
    "long-key",
    "long-block",
    "no-room",
    "deep",
    "lookaside",
];

impl Reason {
    pub(crate) const NO_ROOM: Self = Self(14);
}

/// The blocks in a result.
#[derive(Debug)]
pub(crate) struct Blocks {
    bytes: Vec<u8>,
    /// Offset in the file, and place in `bytes`.
    places: Vec<(u64, std::ops::Range<usize>)>,
    /// Why there are not more.
    pub(crate) reason: Option<Reason>,
}

/// The answer of `wt_get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Absent,
    Found(Vec<u8>),
    /// With the room that a value needs.
    Unsupported(Reason, u32),
}

impl Find<'_> {
    /// As `struct wt_find`, and the key.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIND_LEN + self.key.len());
        bytes.extend_from_slice(&self.start.offset.to_le_bytes());
        for word in [self.start.len, self.allocation, self.key.len() as u32, self.ahead] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(self.key);
        bytes
    }
}

/// Scratch for a path whose blocks, or for a lookup whose value, take so many bytes.
pub(crate) fn find_scratch_len(key_len: usize, room: usize) -> usize {
    (SEARCH_LEN + (FIND_LEN + key_len).max(HEAD_LEN + room)).next_multiple_of(8).min(SCRATCH_LEN_MAX)
}

/// Room of blocks that take so many bytes of the file.
pub(crate) fn room_of(blocks: usize, len: usize) -> usize {
    len + blocks * BLOCK_HEAD_LEN
}

/// As `struct wt_list`.
pub(crate) fn encode_list(addresses: &[Address]) -> Vec<u8> {
    [&(addresses.len() as u64).to_le_bytes(), addresses.as_bytes()].concat()
}

/// Scratch for these blocks.
pub(crate) fn list_scratch_len(addresses: &[Address]) -> usize {
    let len: usize = addresses.iter().map(|address| address.len as usize).sum();
    (LIST_LEN + HEAD_LEN + room_of(addresses.len(), len) + 16 * addresses.len())
        .next_multiple_of(8)
        .min(SCRATCH_LEN_MAX)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Blocks {
    /// Reads a result; `None`: it has another form.
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Self> {
        let (count, reason) = (word(&bytes, 0)?, word(&bytes, 4)?);
        let (mut at, mut places) = (HEAD_LEN, Vec::new());
        for _ in 0..count {
            let offset = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?);
            let start = at + BLOCK_HEAD_LEN;
            let end = start.checked_add(word(&bytes, at + 8)? as usize)?;
            bytes.get(start..end)?;
            places.push((offset, start..end));
            at = end;
        }
        (at == bytes.len()).then_some(Self { bytes, places, reason: (reason != 0).then_some(Reason(reason)) })
    }

    /// Each with its offset in the file.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.places.iter().map(|(offset, place)| (*offset, &self.bytes[place.clone()]))
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Answer {
    /// Reads a result; `None`: it has another form.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let value = bytes.get(HEAD_LEN..)?;
        let is_whole = value.len() == word(bytes, 8)? as usize;
        match word(bytes, 0)? {
            0 => Some(Self::Absent),
            1 if is_whole => Some(Self::Found(value.to_vec())),
            2 => Some(Self::Unsupported(Reason(word(bytes, 4)?), word(bytes, 12)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
