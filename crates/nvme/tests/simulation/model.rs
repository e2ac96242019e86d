//! What each block of the volume may contain.

use std::collections::BTreeSet;

/// Blocks by number. A block holds one stamp, repeated; a failed or lost write leaves it open which.
#[derive(Debug)]
pub struct Model {
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    /// Stamps that it may hold.
    may: BTreeSet<u64>,
    readers: u32,
    writing: bool,
}

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub slba: u64,
    pub blocks: u64,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is there.
    Surely,
    /// It may be there, whole or in part.
    Perhaps,
}

impl Model {
    pub fn new(blocks: u64) -> Self {
        Self { blocks: vec![Block { may: BTreeSet::from([0]), readers: 0, writing: false }; blocks as usize] }
    }

    fn range(&mut self, range: Range) -> &mut [Block] {
        &mut self.blocks[range.slba as usize..][..range.blocks as usize]
    }

    /// Begins a read, unless a write is under way in the range: what such a read returns is not defined.
    pub fn begin_read(&mut self, range: Range) -> bool {
        let blocks = self.range(range);
        if blocks.iter().any(|block| block.writing) {
            return false;
        }
        blocks.iter_mut().for_each(|block| block.readers += 1);
        true
    }

    pub fn end_read(&mut self, range: Range) {
        self.range(range).iter_mut().for_each(|block| block.readers -= 1);
    }

    /// Begins a write of `stamp`, unless something else is under way in the range.
    pub fn begin_write(&mut self, range: Range, stamp: u64) -> bool {
        let blocks = self.range(range);
        if blocks.iter().any(|block| block.writing || block.readers > 0) {
            return false;
        }
        for block in blocks {
            block.writing = true;
            block.may.insert(stamp);
        }
        true
    }

    pub fn end_write(&mut self, range: Range, stamp: u64, written: Written) {
        for block in self.range(range) {
            block.writing = false;
            if written == Written::Surely {
                block.may = BTreeSet::from([stamp]);
            }
        }
    }

    /// Checks what was read.
    pub fn check(&mut self, range: Range, block_len: u32, bytes: &[u8]) {
        for (number, (block, bytes)) in self.range(range).iter_mut().zip(bytes.chunks(block_len as usize)).enumerate() {
            let number = range.slba + number as u64;
            let stamp = stamp_of(bytes).unwrap_or_else(|| panic!("block {number} is torn: {:x?}", &bytes[..32]));
            assert!(block.may.contains(&stamp), "block {number} holds {stamp:x}, expected one of {:x?}", block.may);
        }
    }

    /// Whether the blocks of a range are known.
    pub fn known(&mut self, range: Range) -> Option<Vec<u64>> {
        self.range(range)
            .iter()
            .map(|block| if block.may.len() == 1 { block.may.first().copied() } else { None })
            .collect()
    }
}

/// A range's bytes with one stamp per block.
pub fn stamped(stamps: impl IntoIterator<Item = u64>, block_len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for stamp in stamps {
        bytes.extend_from_slice(&stamp.to_le_bytes().repeat(block_len as usize / 8));
    }
    bytes
}

/// The stamp that a block holds, if it is the same all over.
fn stamp_of(block: &[u8]) -> Option<u64> {
    let first = &block[..8];
    // All of it is the same eight bytes if it equals itself, eight bytes on.
    (block[8..] == block[..block.len() - 8]).then(|| u64::from_le_bytes(first.try_into().expect("eight bytes")))
}
