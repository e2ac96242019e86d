//! A block of initialised bytes that knows how to free itself.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::arena::Part;

/// The alignment of every buffer that this crate allocates.
pub const ALIGNMENT_BYTES: usize = 4096;

/// From this size on, memory comes straight from `mmap`: zeroed lazily, and given back when freed.
pub(super) const MAP_THRESHOLD_BYTES: usize = 1 << 20;
const HUGEPAGE_BYTES: usize = 2 << 20;

/// Whether to ask for transparent huge pages (`madvise(MADV_HUGEPAGE)`; needs no privilege).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hugepages {
    /// Leave it to the system's setting.
    #[default]
    No,
    /// Align large blocks to 2 MiB and ask. A kernel that refuses is not an error.
    Ask,
}

/// Initialised bytes with one owner.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
}

enum Origin {
    Heap(Layout),
    Arena(Part),
    Vec { capacity: usize },
    Mapping { base: NonNull<u8>, mapped_bytes: usize },
}

// SAFETY: `Memory` is the only owner of its block, which no thread-bound state refers to.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` gives out only `&[u8]`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Ends the process where there is no memory, as allocating does everywhere else.
    pub(crate) fn zeroed(len: usize, hugepages: Hugepages) -> Self {
        Self::try_zeroed(len, hugepages).unwrap_or_else(|_| {
            let layout = Layout::from_size_align(len, ALIGNMENT_BYTES);
            handle_alloc_error(layout.unwrap_or(Layout::new::<u8>()))
        })
    }

    pub(crate) fn try_zeroed(len: usize, hugepages: Hugepages) -> io::Result<Self> {
        if len >= MAP_THRESHOLD_BYTES { Self::map(len, hugepages) } else { Self::allocate(len) }
    }

    /// A part of an arena, which nobody else has until it goes back.
    pub(super) fn from_part(start: NonNull<u8>, len: usize, part: Part) -> Self {
        Self { start, len, origin: Origin::Arena(part) }
    }

    /// Its place in an arena, if it has one.
    pub(super) fn part(&self) -> Option<&Part> {
        match &self.origin {
            Origin::Arena(part) => Some(part),
            _ => None,
        }
    }

    pub(crate) fn from_vec(vec: Vec<u8>) -> Self {
        let mut vec = ManuallyDrop::new(vec);
        let start = NonNull::new(vec.as_mut_ptr()).expect("a vector's pointer is never null");
        Self { start, len: vec.len(), origin: Origin::Vec { capacity: vec.capacity() } }
    }

    /// The vector it was made from, or itself where it was not made from one.
    pub(crate) fn into_vec(self) -> Result<Vec<u8>, Self> {
        let Origin::Vec { capacity } = self.origin else {
            return Err(self);
        };
        let this = ManuallyDrop::new(self);
        // SAFETY: pointer, length and capacity are those `from_vec` took apart, and `this` is not dropped.
        Ok(unsafe { Vec::from_raw_parts(this.start.as_ptr(), this.len, capacity) })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn address(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    fn allocate(len: usize) -> io::Result<Self> {
        let rounded = len.max(1).next_multiple_of(ALIGNMENT_BYTES);
        let layout = Layout::from_size_align(rounded, ALIGNMENT_BYTES).expect("below the mapping threshold");
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len: rounded, origin: Origin::Heap(layout) })
    }

    fn map(len: usize, hugepages: Hugepages) -> io::Result<Self> {
        let slack = if hugepages == Hugepages::Ask { HUGEPAGE_BYTES } else { 0 };
        let rounded = len.checked_next_multiple_of(ALIGNMENT_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapped_bytes = rounded.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches nothing else.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let base = NonNull::new(mapped?.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = if slack > 0 { base.as_ptr().align_offset(HUGEPAGE_BYTES) } else { 0 };
        // SAFETY: `skip` is below HUGEPAGE_BYTES = `slack`, so `rounded` bytes remain behind it.
        let start = unsafe { base.add(skip) };
        if hugepages == Hugepages::Ask {
            // SAFETY: the range lies inside the mapping just made; the advice changes no content.
            // An error (a kernel without huge pages) leaves ordinary pages: slower, not wrong.
            let _ = unsafe { madvise(start.as_ptr().cast(), rounded, Advice::LinuxHugepage) };
        }
        Ok(Self { start, len: rounded, origin: Origin::Mapping { base, mapped_bytes } })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &self.origin {
            Origin::Heap(layout) => {
                // SAFETY: allocated in `allocate` with this layout, freed once.
                unsafe { dealloc(self.start.as_ptr(), *layout) }
            }
            Origin::Arena(part) => part.give_back(self.len),
            Origin::Vec { capacity } => {
                // SAFETY: the parts are those `from_vec` took, and nobody else owns them.
                drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, *capacity) });
            }
            Origin::Mapping { base, mapped_bytes } => {
                // SAFETY: the whole mapping made in `map`, to which no reference is left.
                let unmapped = unsafe { munmap(base.as_ptr().cast(), *mapped_bytes) };
                debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
            }
        }
    }
}
