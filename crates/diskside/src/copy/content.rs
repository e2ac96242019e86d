//! What a copy would overwrite.

use super::{CopyError, End, Piece, finish_read, start_reads};
use std::collections::VecDeque;
use std::fmt;

/// What is known by what is at one place.
const SIGNATURES: [(usize, &[u8], &str); 9] = [
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4086, b"SWAPSPACE2", "a swap area"),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (510, &[0x55, 0xaa], "a partition table or a FAT file system"),
];
const ZEROES: [u8; 4096] = [0; 4096];

/// Something that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// What it is, if that is known.
    pub kind: Option<&'static str>,
    /// The first byte that is not zero.
    pub offset: u64,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => f.write_str(kind),
            None => write!(f, "data, from byte {} on", self.offset),
        }
    }
}

/// The kind of content in the first `len` bytes, if they are not all zero. Reads no further than it has to.
///
/// # Errors
/// They cannot be read.
pub fn find_content(end: &End<'_>, len: u64) -> Result<Option<Content>, CopyError> {
    let range = End { io: end.io, len: len.min(end.len), fixed: end.fixed };
    let (mut reads, mut next) = (VecDeque::new(), 0);
    loop {
        start_reads(&range, &mut next, &mut reads);
        let Some(Piece { offset, len, future }) = reads.pop_front() else { return Ok(None) };
        let bytes = finish_read(offset, len, future)?;
        if let Some(at) = first_nonzero(&bytes) {
            let kind = if offset == 0 { kind_of(&bytes) } else { None };
            return Ok(Some(Content { kind, offset: offset + at as u64 }));
        }
    }
}

fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    // Compared by the block, which is as fast as memory.
    let start = bytes.chunks(ZEROES.len()).position(|block| block != &ZEROES[..block.len()])? * ZEROES.len();
    bytes[start..].iter().position(|&byte| byte != 0).map(|at| start + at)
}

fn kind_of(first: &[u8]) -> Option<&'static str> {
    let is_there = |at: usize, bytes: &[u8]| first.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    SIGNATURES.iter().find(|(at, bytes, _)| is_there(*at, bytes)).map(|(_, _, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_named_and_the_first_byte_is_found() {
        let mut volume = vec![0; 100_000];
        assert_eq!((first_nonzero(&volume), kind_of(&volume)), (None, None));
        volume[99_999] = 1;
        assert_eq!((first_nonzero(&volume), kind_of(&volume)), (Some(99_999), None));
        volume[0x10040..0x10048].copy_from_slice(b"_BHRfS_M");
        assert_eq!((first_nonzero(&volume), kind_of(&volume)), (Some(0x10040), Some("a Btrfs file system")));
        volume[0x10040] = 0;
        volume[510..520].copy_from_slice(b"\x55\xaaEFI PART");
        assert_eq!((first_nonzero(&volume), kind_of(&volume)), (Some(510), Some("a partition table")));
        assert_eq!(kind_of(b"XFSB"), Some("an XFS file system"));
        let shown = |kind, offset| Content { kind, offset }.to_string();
        assert_eq!(shown(None, 77), "data, from byte 77 on");
        assert_eq!(shown(Some("a swap area"), 4086), "a swap area");
    }
}
