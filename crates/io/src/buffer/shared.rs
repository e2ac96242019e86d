//! Bytes that several threads and the kernel read and write at once.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::memory::{Hugepages, Memory};

/// Memory that any thread reads and writes by position, and that rings send from without a copy.
///
/// It is what a volume in memory is made of. Nothing is locked: as on a disk, accesses that overlap
/// in time may see each other's bytes in any mix, and that is all that can happen. No reference to
/// the bytes is ever given out, only copies and [`SharedSlice`]s for the kernel.
#[derive(Clone)]
pub struct SharedMemory {
    memory: Arc<Memory>,
    len: usize,
}

/// A range of a [`SharedMemory`], kept alive by it: what a ring can send or write to a file.
#[derive(Clone)]
pub struct SharedSlice {
    memory: SharedMemory,
    range: Range<usize>,
}

impl SharedMemory {
    /// `len` zero bytes.
    pub fn zeroed(len: usize, hugepages: Hugepages) -> Self {
        Self { memory: Arc::new(Memory::zeroed(len, hugepages)), len }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes at `offset` into `into`.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `at` checked the range; `into` is a borrow that cannot overlap memory that is never borrowed.
        unsafe { copy_racing(from.as_ptr(), into.as_mut_ptr(), into.len()) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: as in `read`, in the other direction.
        unsafe { copy_racing(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Sets `range` to zero.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn zero(&self, range: Range<usize>) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut at = range.start;
        while at < range.end {
            let step = (range.end - at).min(ZEROS.len());
            self.write(at, &ZEROS[..step]);
            at += step;
        }
    }

    /// The range, to be sent by a ring without a copy.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn slice(&self, range: Range<usize>) -> SharedSlice {
        self.at(range.start, range.len());
        SharedSlice { memory: self.clone(), range }
    }

    /// Asks the processor to fetch the range into its cache, without waiting for it. A send soon after copies from
    /// there. A hint: nothing but time depends on it.
    ///
    /// # Panics
    /// If the range reaches past the end.
    pub fn prefetch(&self, range: Range<usize>) {
        let start = self.at(range.start, range.len());
        #[cfg(target_arch = "x86_64")]
        for line in (0..range.len()).step_by(CACHE_LINE_BYTES) {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: the line starts inside the range; a prefetch of a page that is not there does nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(start.as_ptr().add(line).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = start;
    }

    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {offset} reach past the end of {} bytes of shared memory", self.len);
        // SAFETY: `offset` is at most `len`, which lies inside the allocation.
        unsafe { self.memory.address().add(offset) }
    }
}

impl SharedSlice {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// A part of the range, counted from its start.
    ///
    /// # Panics
    /// If the part reaches past the end.
    pub fn part(&self, part: Range<usize>) -> SharedSlice {
        assert!(part.start <= part.end && part.end <= self.len(), "a part lies inside its whole");
        let range = self.range.start + part.start..self.range.start + part.end;
        SharedSlice { memory: self.memory.clone(), range }
    }

    /// Copies the bytes as they are now into `into`, which has the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len(), "the target of a copy has the slice's length");
        self.memory.read(self.range.start, into);
    }

    /// Appends bytes of a part, counted from the start of the range, as they are now.
    ///
    /// # Panics
    /// If the part reaches past the end.
    pub fn append_part(&self, part: Range<usize>, to: &mut Vec<u8>) {
        assert!(part.start <= part.end && part.end <= self.len(), "a part lies inside its whole");
        let from = self.memory.at(self.range.start + part.start, part.len());
        to.reserve(part.len());
        // SAFETY: `at` checked the range, and the vector has room for as many bytes behind its own, which nobody else borrows.
        // They are written before they are counted.
        unsafe {
            copy_racing(from.as_ptr(), to.as_mut_ptr().add(to.len()), part.len());
            to.set_len(to.len() + part.len());
        }
    }

    pub(crate) fn address(&self) -> NonNull<u8> {
        self.memory.at(self.range.start, self.range.len())
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("len", &self.len).finish()
    }
}

impl fmt::Debug for SharedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSlice").field("range", &self.range).finish()
    }
}

#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

/// Copies bytes that others may write at the same time.
///
/// An ordinary copy would be a data race, which the language leaves undefined. One string
/// instruction is opaque to the compiler, which then can assume nothing about the bytes.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both ranges; the ABI keeps the direction flag clear.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// As on x86-64, by relaxed atomic accesses of single bytes.
///
/// # Safety
/// Both ranges are valid for `len` bytes and do not overlap.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    use std::sync::atomic::{AtomicU8, Ordering};
    for i in 0..len {
        // SAFETY: the caller vouches for both ranges; single bytes are always aligned.
        unsafe {
            let byte = AtomicU8::from_ptr(from.cast_mut().add(i)).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(i)).store(byte, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_zeroes() {
        let memory = SharedMemory::zeroed(3 << 20, Hugepages::Ask);
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        memory.write(1_000_001, &bytes);
        let mut back = vec![0; 10_000];
        memory.read(1_000_001, &mut back);
        assert_eq!(back, bytes);
        memory.zero(1_000_001..1_009_001);
        memory.slice(1_000_001..1_010_001).copy_to(&mut back);
        assert!(back[..9_000].iter().all(|&b| b == 0));
        assert_eq!(back[9_000..], bytes[9_000..]);
        memory.slice(1_000_001..1_010_001).part(9_500..10_000).copy_to(&mut back[..500]);
        assert_eq!(back[..500], bytes[9_500..]);
        let mut appended = vec![7];
        memory.slice(1_000_001..1_010_001).append_part(9_500..10_000, &mut appended);
        assert!(appended[0] == 7 && appended[1..] == bytes[9_500..]);
    }

    #[test]
    #[should_panic(expected = "reach past the end")]
    fn a_range_past_the_end_is_refused() {
        SharedMemory::zeroed(100, Hugepages::No).write(99, &[1, 2]);
    }

    #[test]
    fn threads_that_overlap_see_only_bytes_that_someone_wrote() {
        let memory = SharedMemory::zeroed(4096, Hugepages::No);
        std::thread::scope(|scope| {
            for writer in 1..=3_u8 {
                let memory = &memory;
                scope.spawn(move || (0..2_000).for_each(|_| memory.write(0, &[writer; 4096])));
            }
            let mut seen = [0; 4096];
            for _ in 0..2_000 {
                memory.read(0, &mut seen);
                assert!(seen.iter().all(|&b| b <= 3));
            }
        });
    }
}
