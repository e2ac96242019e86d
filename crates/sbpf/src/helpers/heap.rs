//! The heap region: what `ds_alloc` gives out, under a quota.
//!
//! Addresses depend on the program's own calls alone, so they are the same on every host and in
//! every tier. The bookkeeping is here, outside the program's reach. The region grows as memory is
//! given out and never shrinks during a call: a check that was made once stays true.

use super::access::{cost, steps};
use crate::machine::{Fault, Machine, RegionEntry};
use crate::region::RegionId;
use std::collections::{BTreeMap, BTreeSet};

/// Every allocation is a multiple of this long and starts at a multiple of it.
pub const GRANULE_BYTES: u64 = 64;
/// Largest alignment that can be requested.
pub const ALIGN_MAX_BYTES: u64 = 1 << 20;

/// Allocator over the heap region's offsets: best fit, lowest address first.
#[derive(Debug, Default)]
pub struct Heap {
    quota_bytes: u64,
    used_bytes: u64,
    /// Host memory, all zeros until a program writes it; taken when first needed.
    backing: Vec<u8>,
    /// The region's base: into `backing`, which is not touched by other means once this is made.
    base: Option<HostBase>,
    /// Length of the region.
    top: u64,
    /// Bytes from the start that a program may have written since they were zero.
    dirty: u64,
    live: BTreeMap<u64, u64>,
    free_by_offset: BTreeMap<u64, u64>,
    free_by_len: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct HostBase(*mut u8);

// SAFETY: the pointer is into the heap's own memory; only code that holds the heap exclusively uses it.
unsafe impl Send for HostBase {}

/// A new allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    offset: u64,
    len: u64,
    /// How many of its first bytes may hold something other than zero.
    dirty: u64,
}

impl Heap {
    /// An empty heap that gives out at most this many bytes at one time.
    #[must_use]
    pub fn new(quota_bytes: u64) -> Self {
        let quota_bytes = quota_bytes.min(crate::region::REGION_LEN_MAX) / GRANULE_BYTES * GRANULE_BYTES;
        Self { quota_bytes, ..Self::default() }
    }

    /// Bytes that are given out now.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Whether nothing was given out since it was made or cleared.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.top == 0
    }

    /// Frees everything.
    pub fn clear(&mut self) {
        self.used_bytes = 0;
        self.top = 0;
        self.live.clear();
        self.free_by_offset.clear();
        self.free_by_len.clear();
    }

    /// How the region is mapped now.
    pub fn entry(&mut self) -> RegionEntry {
        match self.base {
            Some(HostBase(base)) if self.top > 0 => RegionEntry { base, len: self.top, write_len: self.top },
            _ => RegionEntry::UNMAPPED,
        }
    }

    fn alloc(&mut self, len: u64, align: u64) -> Option<Block> {
        if len == 0 {
            return None;
        }
        let len = len.checked_next_multiple_of(GRANULE_BYTES)?;
        let align = align.max(GRANULE_BYTES);
        if len > self.quota_bytes - self.used_bytes {
            return None;
        }
        let offset = match self.take_free(len, align) {
            Some(offset) => offset,
            None => self.extend(len, align)?,
        };
        self.live.insert(offset, len);
        self.used_bytes += len;
        let dirty = self.dirty.saturating_sub(offset).min(len);
        self.dirty = self.dirty.max(offset + len);
        Some(Block { offset, len, dirty })
    }

    /// From freed memory: the shortest hole in which any placement fits.
    fn take_free(&mut self, len: u64, align: u64) -> Option<u64> {
        let enough = len + (align - GRANULE_BYTES);
        let &(hole_len, hole) = self.free_by_len.range((enough, 0)..).next()?;
        let offset = hole.next_multiple_of(align);
        self.remove_hole(hole, hole_len);
        self.add_hole(hole, offset - hole);
        self.add_hole(offset + len, hole + hole_len - (offset + len));
        Some(offset)
    }

    /// From memory that was not in the region yet.
    fn extend(&mut self, len: u64, align: u64) -> Option<u64> {
        // A hole at the end grows into the new memory.
        let tail = self.free_by_offset.last_key_value().map(|(&o, &n)| (o, n));
        let tail = tail.filter(|&(o, n)| o + n == self.top);
        let start = tail.map_or(self.top, |(o, _)| o);
        let offset = start.next_multiple_of(align);
        let end = offset.checked_add(len).filter(|&end| end <= self.quota_bytes)?;
        if self.base.is_none() {
            let lead = GRANULE_BYTES as usize;
            // Zeroed pages come from the system untouched: a large quota costs address space only.
            self.backing = vec![0; usize::try_from(self.quota_bytes).ok()? + lead];
            let start = self.backing.as_mut_ptr();
            self.base = Some(HostBase(start.wrapping_add(start.align_offset(lead))));
        }
        if let Some((hole, hole_len)) = tail {
            self.remove_hole(hole, hole_len);
        }
        self.add_hole(start, offset - start);
        self.add_hole(end, self.top.saturating_sub(end));
        self.top = self.top.max(end);
        Some(offset)
    }

    fn free(&mut self, offset: u64) -> Result<(), Fault> {
        let Some(len) = self.live.remove(&offset) else {
            let inside = self.live.range(..offset).next_back().is_some_and(|(&o, &len)| offset < o + len);
            return Err(Fault::Refused(if inside {
                "the pointer is inside an allocation, not at its start"
            } else {
                "the pointer was freed before, or never given out"
            }));
        };
        self.used_bytes -= len;
        let (mut start, mut end) = (offset, offset + len);
        if let Some((&before, &before_len)) = self.free_by_offset.range(..offset).next_back()
            && before + before_len == start
        {
            self.remove_hole(before, before_len);
            start = before;
        }
        if let Some(&after_len) = self.free_by_offset.get(&end) {
            self.remove_hole(end, after_len);
            end += after_len;
        }
        self.add_hole(start, end - start);
        Ok(())
    }

    fn add_hole(&mut self, offset: u64, len: u64) {
        if len > 0 {
            self.free_by_offset.insert(offset, len);
            self.free_by_len.insert((len, offset));
        }
    }

    fn remove_hole(&mut self, offset: u64, len: u64) {
        self.free_by_offset.remove(&offset);
        self.free_by_len.remove(&(len, offset));
    }
}

/// `ds_alloc(len)`.
pub(super) fn ds_alloc(machine: &mut Machine, [len, ..]: [u64; 5]) -> Result<u64, Fault> {
    allocate(machine, len, GRANULE_BYTES)
}

/// `ds_alloc_aligned(align, len)`.
pub(super) fn ds_alloc_aligned(machine: &mut Machine, [align, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    if !align.is_power_of_two() || align > ALIGN_MAX_BYTES {
        return Err(Fault::Refused("the alignment is not a power of two up to 1 MiB"));
    }
    allocate(machine, len, align)
}

/// `ds_free(p)`.
pub(super) fn ds_free(machine: &mut Machine, [pointer, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1)?;
    if pointer == 0 {
        return Ok(0);
    }
    if RegionId::of(pointer) != Some(RegionId::HEAP) {
        return Err(Fault::Refused("the pointer is not from ds_alloc"));
    }
    machine.heap.free(pointer - RegionId::HEAP.base())?;
    Ok(0)
}

fn allocate(machine: &mut Machine, len: u64, align: u64) -> Result<u64, Fault> {
    machine.charge(1)?;
    let Some(block) = machine.heap.alloc(len, align) else {
        return Ok(0);
    };
    machine.map_heap();
    let address = RegionId::HEAP.base() + block.offset;
    // The cost is that of zeroing all of it, whatever an earlier call has left behind.
    for (offset, n) in steps(block.len) {
        machine.charge(cost(n))?;
        let dirty = block.dirty.saturating_sub(offset).min(n);
        machine.bytes_mut(address + offset, dirty)?.fill(0);
    }
    Ok(address)
}
