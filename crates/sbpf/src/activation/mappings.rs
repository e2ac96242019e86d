//! The memory that a call lends a program.

use crate::machine::RegionEntry;
use crate::region::{REGION_COUNT, REGION_LEN_MAX, RegionId};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// A future [`RegionEntry`]. It has other fields and no padding, so that no two are copied by one larger
/// load: a processor forwards a recent store at once only to loads of its size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Borrowed {
    base: *mut u8,
    /// The writable part of the length: all bits or none.
    write_mask: u64,
    len: u64,
}

/// Memory that a call may touch, borrowed for the call.
#[derive(Debug)]
pub struct Mappings<'a> {
    pub(super) regions: [RegionId; MAPPINGS_MAX],
    /// Those from `len` on are not written: a call would spend a nanosecond on entries that it never reads.
    borrowed: [MaybeUninit<Borrowed>; MAPPINGS_MAX],
    len: usize,
    pub(super) ranges: &'a [(RegionId, RegionEntry)],
    borrow: PhantomData<&'a mut [u8]>,
}

/// Memory ranges: [`RegionId::RANGE_FIRST`] and those after it. Those of a standard execution are all writable, the buffers of
/// columns are not.
#[derive(Debug, Default)]
pub struct Ranges<'a> {
    entries: Vec<(RegionId, RegionEntry)>,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> Ranges<'a> {
    /// Most ranges of a call: one for each region that is left.
    pub const MAX: usize = REGION_COUNT - RegionId::RANGE_FIRST.0 as usize;

    /// No ranges.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next range, and says in which region the program finds it.
    ///
    /// # Panics
    /// As [`Mappings::writable`], and if there are [`Self::MAX`] ranges already.
    pub fn push(&mut self, bytes: &'a mut [u8]) -> RegionId {
        self.add(writable_entry(bytes))
    }

    /// As [`Self::push`], of bytes that the program may only read.
    ///
    /// # Panics
    /// As [`Mappings::read_only`], and if there are [`Self::MAX`] ranges already.
    pub fn push_read_only(&mut self, bytes: &'a [u8]) -> RegionId {
        let len = bytes.len() as u64;
        check_len(len);
        self.add(RegionEntry { base: bytes.as_ptr().cast_mut(), len, write_len: 0 })
    }

    fn add(&mut self, entry: RegionEntry) -> RegionId {
        assert!(self.entries.len() < Self::MAX, "a call has at most {} memory ranges", Self::MAX);
        let region = RegionId(RegionId::RANGE_FIRST.0 + self.entries.len() as u8);
        self.entries.push((region, entry));
        region
    }
}

impl Default for Mappings<'_> {
    #[inline]
    fn default() -> Self {
        Self {
            regions: [RegionId::NULL; MAPPINGS_MAX],
            borrowed: [MaybeUninit::uninit(); MAPPINGS_MAX],
            len: 0,
            ranges: &[],
            borrow: PhantomData,
        }
    }
}

impl<'a> Mappings<'a> {
    /// Most regions a call can map.
    pub const MAX: usize = MAPPINGS_MAX;
    /// The alignment that writable memory must have, so that atomics work.
    pub const WRITABLE_ALIGN: usize = 8;

    /// No memory.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps bytes that the program may read.
    ///
    /// # Panics
    /// If there are more than [`Self::MAX`] mappings, the slice is longer than a region, or the region is
    /// an activation's own (stack, constants, globals, heap) or NULL's: the caller decides all three.
    #[must_use]
    #[inline]
    pub fn read_only(self, region: RegionId, bytes: &'a [u8]) -> Self {
        self.push(region, Borrowed { base: bytes.as_ptr().cast_mut(), write_mask: 0, len: bytes.len() as u64 })
    }

    /// Maps bytes that the program may read and write.
    ///
    /// # Panics
    /// As [`Self::read_only`], and if the bytes are not aligned to [`Self::WRITABLE_ALIGN`].
    #[must_use]
    #[inline]
    pub fn writable(self, region: RegionId, bytes: &'a mut [u8]) -> Self {
        let entry = writable_entry(bytes);
        self.push(region, Borrowed { base: entry.base, write_mask: u64::MAX, len: entry.len })
    }

    /// Maps memory ranges besides.
    #[must_use]
    pub fn ranges(mut self, ranges: &'a mut Ranges<'_>) -> Self {
        self.ranges = &ranges.entries;
        self
    }

    // Inlined, or each link of the chain would copy the whole.
    #[inline]
    fn push(mut self, region: RegionId, borrowed: Borrowed) -> Self {
        check_len(borrowed.len);
        assert!(self.len < Self::MAX, "a call maps at most {} regions", Self::MAX);
        assert!(!OWN_REGIONS.contains(&region), "a call does not map {region}: that is up to the activation");
        self.regions[self.len] = region;
        self.borrowed[self.len] = MaybeUninit::new(borrowed);
        self.len += 1;
        self
    }

    /// Visits all regions. Two loops and no chained iterator, which would stay a function of its own.
    #[inline(always)]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(RegionId, RegionEntry)) {
        for (&region, borrowed) in self.regions[..self.len].iter().zip(&self.borrowed) {
            // SAFETY: `len` counts the calls of `push`, each of which has written the next.
            let &Borrowed { base, write_mask, len } = unsafe { borrowed.assume_init_ref() };
            visit(region, RegionEntry { base, len, write_len: len & write_mask });
        }
        for &(region, entry) in self.ranges {
            visit(region, entry);
        }
    }
}

#[inline]
fn writable_entry(bytes: &mut [u8]) -> RegionEntry {
    assert!(
        bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(Mappings::WRITABLE_ALIGN),
        "writable memory of a program must be aligned to {} bytes",
        Mappings::WRITABLE_ALIGN
    );
    let len = bytes.len() as u64;
    let entry = RegionEntry { base: bytes.as_mut_ptr(), len, write_len: len };
    check_len(entry.len);
    entry
}

#[inline]
fn check_len(len: u64) {
    assert!(len <= REGION_LEN_MAX, "a region is at most {REGION_LEN_MAX} bytes long");
}

pub(super) const MAPPINGS_MAX: usize = 8;

/// The regions that a call does not map: an activation maps these once, and nobody maps the first.
pub(super) const OWN_REGIONS: [RegionId; 5] =
    [RegionId::NULL, RegionId::STACK, RegionId::RODATA, RegionId::DATA, RegionId::HEAP];
