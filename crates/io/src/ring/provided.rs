//! Buffers that are picked from when bytes arrive, by the kernel or by us: idle connections hold none.

use std::cell::{Cell, RefCell};
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

/// Bytes that arrived, in a buffer that goes back to its group when this is dropped.
pub struct Received {
    group: Rc<Group>,
    index: u16,
    len: usize,
}

/// The buffers of a group, and those of them that are free.
pub(super) struct Group {
    free: Free,
    data: Memory,
    entries: u16,
    len_bytes: usize,
}

enum Free {
    /// A ring of descriptors that the kernel takes from and we add to.
    Kernel { ring: Memory, tail: Cell<u16> },
    /// We take them ourselves: the one first that came back last, and is in the processor's cache.
    Ours(RefCell<Vec<u16>>),
}

impl GroupId {
    pub(super) fn at(index: usize) -> Self {
        Self(index as u16)
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

impl Group {
    /// Registers `entries` buffers (a power of two) of `len_bytes` each under `id`.
    pub(super) fn register(uring: &IoUring, id: GroupId, entries: u16, len_bytes: usize) -> io::Result<Rc<Self>> {
        check(entries, len_bytes)?;
        let ring = Memory::zeroed(usize::from(entries) * size_of::<BufRingEntry>(), Hugepages::No);
        let address = ring.address().as_ptr().expose_provenance() as u64;
        let group = Self::new(Free::Kernel { ring, tail: Cell::new(0) }, entries, len_bytes);
        // SAFETY: the memory is page-aligned, zeroed and as long as `entries` descriptors; the ring keeps
        // its `Rc` until every operation is over and the io_uring is closed.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(address, entries, id.0, 0)?;
        };
        (0..entries).for_each(|index| group.give_back(index));
        Ok(group)
    }

    /// As [`register`](Self::register), for us alone.
    pub(super) fn ours(entries: u16, len_bytes: usize) -> io::Result<Rc<Self>> {
        check(entries, len_bytes)?;
        Ok(Self::new(Free::Ours(RefCell::new((0..entries).rev().collect())), entries, len_bytes))
    }

    fn new(free: Free, entries: u16, len_bytes: usize) -> Rc<Self> {
        let data = Memory::zeroed(usize::from(entries) * len_bytes, Hugepages::Ask);
        Rc::new(Self { free, data, entries, len_bytes })
    }

    /// Length of a buffer.
    pub(super) fn buffer_len(&self) -> usize {
        self.len_bytes
    }

    /// Takes a free buffer of a group that is ours alone, and has `fill` put bytes into it. It keeps the buffer only if
    /// there are some; `None` if no buffer is free.
    pub(super) fn fill<E>(
        self: &Rc<Self>,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<Received, E>> {
        let Free::Ours(free) = &self.free else { return None };
        let index = free.borrow_mut().pop()?;
        let mut received = self.received(index, 0);
        // SAFETY: the buffer lies in `data`; it was free, so that no `Received` but this one refers to it.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.start(index), self.len_bytes) };
        Some(fill(buffer).map(|len| {
            assert!(len <= self.len_bytes, "a buffer holds no more than its length");
            received.len = len;
            received
        }))
    }

    /// The first `len` bytes of the buffer that the kernel picked.
    pub(super) fn received(self: &Rc<Self>, index: u16, len: usize) -> Received {
        assert!(index < self.entries && len <= self.len_bytes, "the kernel picks from what it was given");
        Received { group: Rc::clone(self), index, len }
    }

    fn give_back(&self, index: u16) {
        let (ring, tail_cell) = match &self.free {
            Free::Kernel { ring, tail } => (ring, tail),
            Free::Ours(free) => return free.borrow_mut().push(index),
        };
        let tail = tail_cell.get();
        let base = ring.address().as_ptr().cast::<BufRingEntry>();
        // SAFETY: the slot index is below `entries`, so the descriptor lies in our memory. The kernel
        // reads only descriptors between its head and the tail, and this one is not yet published.
        let entry = unsafe { &mut *base.add(usize::from(tail & (self.entries - 1))) };
        entry.set_addr(self.start(index).expose_provenance() as u64);
        entry.set_len(self.len_bytes as u32);
        entry.set_bid(index);
        let tail = tail.wrapping_add(1);
        tail_cell.set(tail);
        // SAFETY: `base` is the start of the registered ring; the tail is an aligned u16 that only we write.
        let published = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) };
        published.store(tail, Ordering::Release);
    }

    /// Where a buffer begins.
    fn start(&self, index: u16) -> *mut u8 {
        // SAFETY: `index` is below `entries`, so the buffer lies in `data`.
        unsafe { self.data.address().add(usize::from(index) * self.len_bytes) }.as_ptr()
    }
}

fn check(entries: u16, len_bytes: usize) -> io::Result<()> {
    if entries.is_power_of_two() && entries <= GROUP_BUFFERS_MAX && len_bytes > 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "a group has a power of two of buffers up to {GROUP_BUFFERS_MAX}, none of them empty; \
             not {entries} of {len_bytes} bytes"
        ),
    ))
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer lies in `data`, `len` bytes of it were filled, and nobody touches it again before `drop`
        // gives it back.
        unsafe { std::slice::from_raw_parts(self.group.start(self.index), self.len) }
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
