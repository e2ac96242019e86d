//! Buffers that the kernel picks from when bytes arrive: idle connections hold none.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::buffer::Hugepages;

use crate::buffer::memory::Memory;

/// The most buffers in one group (a limit of the kernel).
pub const GROUP_BUFFERS_MAX: u16 = 1 << 15;

/// Names a group of buffers of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(pub(super) u16);

impl GroupId {
    pub(super) fn at(index: usize) -> Self {
        Self(index as u16)
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// Bytes that arrived, in a buffer that goes back to its group when this is dropped.
pub struct Received {
    group: Rc<Group>,
    index: u16,
    len: usize,
}

/// A ring of buffer descriptors that the kernel takes from and we add to, and the buffers themselves.
pub(super) struct Group {
    ring: Memory,
    data: Memory,
    entries: u16,
    len_bytes: usize,
    tail: Cell<u16>,
}

impl Group {
    /// Registers `entries` buffers (a power of two) of `len_bytes` each under `id`.
    pub(super) fn register(uring: &IoUring, id: GroupId, entries: u16, len_bytes: usize) -> io::Result<Rc<Self>> {
        if !entries.is_power_of_two() || entries > GROUP_BUFFERS_MAX || len_bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a group has a power of two of buffers up to {GROUP_BUFFERS_MAX}, none of them empty; \
                     not {entries} of {len_bytes} bytes"
                ),
            ));
        }
        let group = Rc::new(Self {
            ring: Memory::zeroed(usize::from(entries) * size_of::<BufRingEntry>(), Hugepages::No),
            data: Memory::zeroed(usize::from(entries) * len_bytes, Hugepages::Ask),
            entries,
            len_bytes,
            tail: Cell::new(0),
        });
        let address = group.ring.address().as_ptr().expose_provenance() as u64;
        // SAFETY: the memory is page-aligned, zeroed and as long as `entries` descriptors; the ring keeps
        // its `Rc` until every operation is over and the io_uring is closed.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(address, entries, id.0, 0)?;
        };
        (0..entries).for_each(|index| group.give_back(index));
        Ok(group)
    }

    /// The first `len` bytes of the buffer that the kernel picked.
    pub(super) fn received(self: &Rc<Self>, index: u16, len: usize) -> Received {
        assert!(index < self.entries && len <= self.len_bytes, "the kernel picks from what it was given");
        Received { group: Rc::clone(self), index, len }
    }

    fn give_back(&self, index: u16) {
        let tail = self.tail.get();
        let start = usize::from(index) * self.len_bytes;
        let base = self.ring.address().as_ptr().cast::<BufRingEntry>();
        // SAFETY: the slot index is below `entries`, so the descriptor lies in our memory. The kernel
        // reads only descriptors between its head and the tail, and this one is not yet published.
        let entry = unsafe { &mut *base.add(usize::from(tail & (self.entries - 1))) };
        // SAFETY: `index` is below `entries`, so the buffer lies in `data`.
        let at = unsafe { self.data.address().add(start) };
        entry.set_addr(at.as_ptr().expose_provenance() as u64);
        entry.set_len(self.len_bytes as u32);
        entry.set_bid(index);
        let tail = tail.wrapping_add(1);
        self.tail.set(tail);
        // SAFETY: `base` is the start of the registered ring; the tail is an aligned u16 that only we write.
        let published = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) };
        published.store(tail, Ordering::Release);
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = usize::from(self.index) * self.group.len_bytes;
        // SAFETY: the buffer lies in `data`, the kernel filled `len` bytes of it and will not touch it
        // again before `drop` gives it back.
        unsafe { std::slice::from_raw_parts(self.group.data.address().as_ptr().add(start), self.len) }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.group.give_back(self.index);
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("buffer", &self.index).field("len", &self.len).finish()
    }
}
