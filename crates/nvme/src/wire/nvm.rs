//! Commands of the NVM command set: how their dwords are laid out, and the lists that some carry as data (NVM 3.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{Sqe, nvm_opcode};

impl Sqe {
    /// Read of `blocks` (1 to 65,536) blocks.
    pub fn read(nsid: u32, slba: u64, blocks: u32) -> Self {
        Self::new(nvm_opcode::READ, nsid).with_slba(slba).with_blocks(blocks)
    }

    /// Write of `blocks` (1 to 65,536) blocks.
    pub fn write(nsid: u32, slba: u64, blocks: u32) -> Self {
        Self::new(nvm_opcode::WRITE, nsid).with_slba(slba).with_blocks(blocks)
    }

    /// Write Delta of a page of `blocks` (1 to 65,536) blocks, which its data makes of what is there.
    pub fn write_delta(nsid: u32, slba: u64, blocks: u32) -> Self {
        Self::new(nvm_opcode::WRITE_DELTA, nsid).with_slba(slba).with_blocks(blocks)
    }

    /// Compare of `blocks` (1 to 65,536) blocks.
    pub fn compare(nsid: u32, slba: u64, blocks: u32) -> Self {
        Self::new(nvm_opcode::COMPARE, nsid).with_slba(slba).with_blocks(blocks)
    }

    /// Verify of `blocks` (1 to 65,536) blocks.
    pub fn verify(nsid: u32, slba: u64, blocks: u32) -> Self {
        Self::new(nvm_opcode::VERIFY, nsid).with_slba(slba).with_blocks(blocks)
    }

    /// Write Zeroes to `blocks` (1 to 65,536) blocks, which may be deallocated if `deallocate`.
    pub fn write_zeroes(nsid: u32, slba: u64, blocks: u32, deallocate: bool) -> Self {
        Self::new(nvm_opcode::WRITE_ZEROES, nsid).with_slba(slba).with_blocks(blocks).with_bits(
            12,
            25,
            1,
            deallocate as u32,
        )
    }

    /// Flush.
    pub fn flush(nsid: u32) -> Self {
        Self::new(nvm_opcode::FLUSH, nsid)
    }

    /// Dataset Management with Deallocate; `ranges` (1 to 256) [`DsmRange`]s are its data.
    pub fn deallocate(nsid: u32, ranges: u32) -> Self {
        debug_assert!((1..=256).contains(&ranges), "1 to 256 ranges");
        Self::new(nvm_opcode::DATASET_MANAGEMENT, nsid)
            .with_bits(10, 0, 8, ranges.wrapping_sub(1))
            .with_bits(11, 2, 1, 1)
    }

    /// Copy to `slba`; `ranges` (1 to 256) [`CopySourceEntry`]s of descriptor format `format` are its data.
    pub fn copy(nsid: u32, slba: u64, ranges: u32, format: u8) -> Self {
        debug_assert!((1..=256).contains(&ranges), "1 to 256 ranges");
        Self::new(nvm_opcode::COPY, nsid).with_slba(slba).with_bits(12, 0, 8, ranges.wrapping_sub(1)).with_bits(
            12,
            8,
            4,
            format.into(),
        )
    }

    /// Sets Force Unit Access (dword 12 bit 30).
    #[must_use]
    pub fn with_fua(self) -> Self {
        self.with_bits(12, 30, 1, 1)
    }

    /// Force Unit Access.
    pub const fn fua(&self) -> bool {
        self.bits(12, 30, 1) != 0
    }

    /// Starting LBA (dwords 10 and 11).
    pub const fn slba(&self) -> u64 {
        self.qword(10)
    }

    /// Number of blocks, 1 to 65,536 (dword 12 bits 15:0, 0's based).
    pub const fn blocks(&self) -> u32 {
        self.bits(12, 0, 16) + 1
    }

    /// Deallocate, in a Write Zeroes command (DEAC, dword 12 bit 25).
    pub const fn write_zeroes_deallocate(&self) -> bool {
        self.bits(12, 25, 1) != 0
    }

    /// Number of ranges of a Dataset Management command, 1 to 256 (dword 10 bits 7:0, 0's based).
    pub const fn dsm_ranges(&self) -> u32 {
        self.bits(10, 0, 8) + 1
    }

    /// Deallocate, in a Dataset Management command (AD, dword 11 bit 2).
    pub const fn dsm_deallocate(&self) -> bool {
        self.bits(11, 2, 1) != 0
    }

    /// Number of source ranges of a Copy command, 1 to 256 (dword 12 bits 7:0, 0's based).
    pub const fn copy_ranges(&self) -> u32 {
        self.bits(12, 0, 8) + 1
    }

    /// Format of the source ranges of a Copy command (dword 12 bits 11:8).
    pub const fn copy_format(&self) -> u8 {
        self.bits(12, 8, 4) as u8
    }

    fn with_slba(self, slba: u64) -> Self {
        self.with_qword(10, slba)
    }

    fn with_blocks(self, blocks: u32) -> Self {
        debug_assert!((1..=65_536).contains(&blocks), "1 to 65,536 blocks");
        self.with_bits(12, 0, 16, blocks.wrapping_sub(1))
    }
}

/// A range of a Dataset Management command (NVM 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes: hints.
    pub attributes: U32,
    /// Length in blocks.
    pub blocks: U32,
    /// First block.
    pub slba: U64,
}
const _: () = assert!(size_of::<DsmRange>() == 16);

impl DsmRange {
    /// A range without hints.
    pub const fn new(slba: u64, blocks: u32) -> Self {
        Self { attributes: U32::ZERO, blocks: U32::new(blocks), slba: U64::new(slba) }
    }
}

/// A source of a Copy command, descriptor formats 0h and 2h (NVM 3.2.2). Protection information is not used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CopySourceEntry {
    /// Source namespace; format 2h only.
    pub snsid: U32,
    reserved4: [u8; 4],
    /// First block.
    pub slba: U64,
    nlb: U16,
    reserved18: [u8; 4],
    /// Source options; format 2h only.
    pub options: U16,
    /// Expected initial reference tag.
    pub reference_tag: U32,
    /// Expected application tag.
    pub application_tag: U16,
    /// Expected application tag mask.
    pub application_tag_mask: U16,
}
const _: () = assert!(size_of::<CopySourceEntry>() == 32);

impl CopySourceEntry {
    /// A source of `blocks` (1 to 65,536) blocks; `snsid` is 0 for format 0h.
    pub fn new(snsid: u32, slba: u64, blocks: u32) -> Self {
        debug_assert!((1..=65_536).contains(&blocks), "1 to 65,536 blocks");
        let mut entry = Self::read_from_bytes(&[0; 32]).expect("32 bytes make an entry");
        entry.snsid.set(snsid);
        entry.slba.set(slba);
        entry.nlb.set(blocks.wrapping_sub(1) as u16);
        entry
    }

    /// Number of blocks, 1 to 65,536.
    pub const fn blocks(&self) -> u32 {
        self.nlb.get() as u32 + 1
    }
}
