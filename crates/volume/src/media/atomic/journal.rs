//! The journal of an atomic medium, as bytes: groups of changes, each of which is there as a whole or not at all.
//!
//! The first page is the *start*: the journal's identifier, and the sequence number of the first group, which lies behind it. A group
//! is a header of a page, and the data of its writes one after another. A reader takes groups one after another as long as they have
//! the identifier and the sequence number that is next, and both checksums are right. So bytes that are left of earlier rounds end the
//! list, and so does a group that was being written. A group is begun when the one before it is durable: one that ends the list and
//! has a later one behind it is damaged.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum};
use diskside_io::buffer::Buffer;

/// Bytes of a header, and what the length of a group is a multiple of.
pub(super) const PAGE_LEN: usize = 4096;
/// The most changes of a group.
pub(super) const CHANGES_MAX: usize = (PAGE_LEN - HEAD_LEN) / CHANGE_LEN;

/// The first bytes of the start, which all lie in one sector. A target that does not know it takes it for no journal, and refuses it.
pub(super) const START_MAGIC: [u8; 8] = *b"DSKATOM3";
const START_LEN: usize = 28;

/// The first bytes of a group. They lie in one sector, so they are whole, too. A target that knows no deltas must not take the
/// journal for an empty one, and refuses it.
pub(super) const MAGIC: [u8; 8] = *b"DSKATOM2";
/// Those of groups without deltas, by targets that know none.
pub(super) const MAGIC_1: [u8; 8] = *b"DSKATOM1";
const HEAD_LEN: usize = 40;
const CHANGE_LEN: usize = 24;
const CHECKSUM_AT: usize = 36;

/// The first page of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// Tells this journal from all others.
    pub(super) id: u64,
    /// That of the first group of this round.
    pub(super) sequence: u64,
}

impl Start {
    /// The start in `page`, if a whole one is there.
    pub(super) fn parse(page: &[u8]) -> Option<Self> {
        let (bytes, sum) = page.get(..START_LEN)?.split_at(START_LEN - 4);
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let is_whole =
            bytes[..8] == START_MAGIC && (checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes() == sum;
        is_whole.then(|| Self { id: number(8), sequence: number(16) })
    }

    /// The page.
    pub(super) fn encode(self) -> Buffer {
        let mut page = Buffer::zeroed(PAGE_LEN);
        page[..8].copy_from_slice(&START_MAGIC);
        page[8..16].copy_from_slice(&self.id.to_le_bytes());
        page[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, &page[..START_LEN - 4]) as u32;
        page[START_LEN - 4..START_LEN].copy_from_slice(&sum.to_le_bytes());
        page
    }
}

/// A change of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) kind: ChangeKind,
}

impl Change {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }

    /// Bytes of the group's data that are its own.
    pub(super) fn data_len(&self) -> u64 {
        match self.kind {
            ChangeKind::Write => self.len,
            ChangeKind::Zero => 0,
            ChangeKind::Delta { record_len } => record_len.into(),
        }
    }
}

/// What becomes of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// The bytes of the group that are next.
    Write,
    /// Zeroes.
    Zero,
    /// What a record of so many bytes, which are next, makes of it.
    Delta { record_len: u32 },
}

/// The header of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The journal's.
    pub(super) id: u64,
    /// One more than that of the group before it.
    pub(super) sequence: u64,
    /// Bytes of data behind the header, without those that fill its last page.
    pub(super) data_len: usize,
    data_checksum: u32,
    pub(super) changes: Vec<Change>,
}

impl Header {
    /// The header at the start of `page`, if a whole one is there.
    pub(super) fn parse(page: &[u8]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
        if page.len() < PAGE_LEN || !is_start(&page[..8]) || short(CHECKSUM_AT) != header_checksum(page) {
            return None;
        }
        let (id, sequence, data_len) = (number(8), number(16), short(24) as usize);
        let (data_checksum, count) = (short(28), short(32) as usize);
        if count > CHANGES_MAX {
            return None;
        }
        let change = |index: usize| {
            let at = HEAD_LEN + index * CHANGE_LEN;
            let kind = match short(at + 16) {
                0 => ChangeKind::Write,
                1 => ChangeKind::Zero,
                2 => ChangeKind::Delta { record_len: short(at + 20) },
                _ => return None,
            };
            Some(Change { offset: number(at), len: number(at + 8), kind })
        };
        let changes: Vec<_> = (0..count).map(change).collect::<Option<_>>()?;
        let written = changes.iter().fold(0_u64, |sum, change| sum.saturating_add(change.data_len()));
        (written == data_len as u64).then_some(Self { id, sequence, data_len, data_checksum, changes })
    }

    /// Bytes of the whole group in the journal.
    pub(super) fn group_len(&self) -> usize {
        group_len(self.data_len)
    }

    /// Whether these are the data that the header was written with.
    pub(super) fn matches(&self, data: &[u8]) -> bool {
        data.len() == self.data_len && checksum(CrcAlgorithm::Crc32Iscsi, data) as u32 == self.data_checksum
    }
}

/// Bytes in the journal of a group with so much data.
pub(super) fn group_len(data_len: usize) -> usize {
    PAGE_LEN + data_len.next_multiple_of(PAGE_LEN)
}

/// Whether a group begins so.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    bytes == MAGIC || bytes == MAGIC_1
}

/// A group as it is written: `data` are those of its changes, in order.
pub(super) fn encode<'a>(id: u64, sequence: u64, changes: &[Change], data: impl Iterator<Item = &'a [u8]>) -> Buffer {
    assert!(changes.len() <= CHANGES_MAX, "who makes a group bounds it");
    let data_len = changes.iter().map(Change::data_len).sum::<u64>() as usize;
    let mut group = Buffer::zeroed(group_len(data_len));
    let mut at = PAGE_LEN;
    for part in data {
        group[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    debug_assert_eq!(at, PAGE_LEN + data_len, "the data are those of the changes");
    let data_checksum = checksum(CrcAlgorithm::Crc32Iscsi, &group[PAGE_LEN..at]) as u32;
    let mut put = |at: usize, bytes: &[u8]| group[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    put(8, &id.to_le_bytes());
    put(16, &sequence.to_le_bytes());
    put(24, &(data_len as u32).to_le_bytes());
    put(28, &data_checksum.to_le_bytes());
    put(32, &(changes.len() as u32).to_le_bytes());
    for (index, change) in changes.iter().enumerate() {
        let at = HEAD_LEN + index * CHANGE_LEN;
        put(at, &change.offset.to_le_bytes());
        put(at + 8, &change.len.to_le_bytes());
        let (kind, record_len) = match change.kind {
            ChangeKind::Write => (0_u32, 0),
            ChangeKind::Zero => (1, 0),
            ChangeKind::Delta { record_len } => (2, record_len),
        };
        put(at + 16, &kind.to_le_bytes());
        put(at + 20, &record_len.to_le_bytes());
    }
    let checksum = header_checksum(&group[..PAGE_LEN]);
    group[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    group
}

/// The checksum of all of the header except the checksum itself.
fn header_checksum(page: &[u8]) -> u32 {
    let mut copy = [0; PAGE_LEN];
    copy.copy_from_slice(&page[..PAGE_LEN]);
    copy[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    checksum(CrcAlgorithm::Crc32Iscsi, &copy) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Buffer {
        let changes = [
            Change { offset: 8192, len: 512, kind: ChangeKind::Write },
            Change { offset: 0, len: 1 << 40, kind: ChangeKind::Zero },
            Change { offset: 1 << 20, len: 16384, kind: ChangeKind::Delta { record_len: 60 } },
        ];
        encode(7, 3, &changes, [&[9_u8; 512][..], &[3; 60]].into_iter())
    }

    #[test]
    fn a_group_is_read_as_it_was_written() {
        let group = group();
        let header = Header::parse(&group).unwrap();
        assert_eq!((header.id, header.sequence, header.group_len()), (7, 3, group.len()));
        assert_eq!(header.changes[1], Change { offset: 0, len: 1 << 40, kind: ChangeKind::Zero });
        assert_eq!(header.changes[2].kind, ChangeKind::Delta { record_len: 60 });
        assert_eq!(header.data_len, 512 + 60);
        assert!(header.matches(&group[PAGE_LEN..PAGE_LEN + header.data_len]));
    }

    #[test]
    fn a_start_is_read_as_it_was_written_and_no_byte_of_it_can_be_another_one() {
        let start = Start { id: 1 << 63 | 5, sequence: 77 };
        let page = start.encode();
        assert_eq!(Start::parse(&page), Some(start));
        for at in 0..START_LEN {
            let mut damaged = Buffer::copy_of(&page);
            damaged[at] ^= 1;
            assert_eq!(Start::parse(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn no_byte_of_a_group_can_be_another_one() {
        let whole = group();
        for at in (0..PAGE_LEN + 572).step_by(3) {
            let mut damaged = Buffer::copy_of(&whole);
            damaged[at] ^= 0x40;
            let header = Header::parse(&damaged);
            let is_whole = header.is_some_and(|header| header.matches(&damaged[PAGE_LEN..PAGE_LEN + 572]));
            assert!(!is_whole, "byte {at}");
        }
    }
}
