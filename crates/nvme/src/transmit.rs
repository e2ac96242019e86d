//! Bytes on their way out: one batch of PDUs, ready for one vectored send.

use std::ops::Range;

use crate::buffer::{BufferId, BufferSlice};

/// One batch of outgoing bytes.
///
/// A machine gathers what it has to say in a batch of its own; [`poll_transmit`](crate::controller::Connection::poll_transmit)
/// moves the batch into a [`Transmit`] of the embedder, which then stays untouched until it was sent. Header bytes live in
/// the `Transmit`'s own arena, whose address does not change while the kernel reads it; data stays where it is, in the
/// embedder's buffers.
///
/// ```text
/// if connection.poll_transmit(&mut transmit) {
///     loop {
///         iovecs = transmit.segments().take(1024)     // Bytes(&[u8]) or Buffer(BufferSlice)
///         n = sendmsg(iovecs)
///         transmit.advance(n, |buffer| pool.release(buffer));
///         if transmit.is_empty() { break }
///     }
///     connection.handle_transmitted(&mut transmit);
/// }
/// ```
#[derive(Debug, Default)]
pub struct Transmit {
    arena: Vec<u8>,
    parts: Vec<Part>,
    /// Index of the first part that was not sent completely.
    next: usize,
    /// Bytes of that part that were sent.
    sent_of_next: usize,
    /// Bytes in all parts that were not sent yet.
    remaining: usize,
    /// Start of arena bytes that no part covers yet.
    open_from: usize,
}

/// Bytes of the arena that are kept from batch to batch: headers of many deep batches.
const ARENA_KEPT: usize = 64 << 10;

/// What peers are sent that ask for more than there is.
pub(crate) static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
/// Padding up to this long is not worth a segment.
const ZEROES_COPIED_MAX: usize = 256;

/// One piece of an outgoing batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Header or other bytes that the batch holds itself. Their address is stable until the batch is cleared.
    Bytes(&'a [u8]),
    /// Bytes of a buffer of the embedder.
    Buffer(BufferSlice),
}

impl Segment<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Buffer(slice) => slice.len as usize,
        }
    }

    /// Whether there is nothing to send in it. Batches contain no empty segment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Clone, Debug)]
enum Part {
    Arena(Range<usize>),
    /// So many zeroes, which are the same for all.
    Zeroes(usize),
    Buffer {
        slice: BufferSlice,
        after: After,
    },
}

/// The fate of a buffer when its part was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The machine owned it and has no more use for it.
    Release,
    /// More of it is sent later, or it was only borrowed, by the command in this slot of the host.
    Keep { slot: u32 },
}

impl Transmit {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that are left to send.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Whether everything was sent (or there was nothing to send).
    pub fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// The segments left to send, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let skip = self.sent_of_next;
        self.parts[self.next..].iter().enumerate().map(move |(index, part)| {
            let skip = if index == 0 { skip } else { 0 };
            match part {
                Part::Arena(range) => Segment::Bytes(&self.arena[range.start + skip..range.end]),
                Part::Zeroes(len) => Segment::Bytes(&ZEROES[skip..*len]),
                Part::Buffer { slice, .. } => Segment::Buffer(slice.part(skip as u32, slice.len - skip as u32)),
            }
        })
    }

    /// Notes that the next `len` bytes were sent, and calls `release` for each buffer that the machine owned and that
    /// was sent completely.
    ///
    /// # Panics
    /// If `len` exceeds [`remaining`](Self::remaining): that is a bug of the caller.
    pub fn advance(&mut self, len: usize, mut release: impl FnMut(BufferId)) {
        assert!(len <= self.remaining, "{len} bytes reported as sent, {} were left", self.remaining);
        self.remaining -= len;
        let mut left = len;
        while self.next < self.parts.len() {
            let part = &self.parts[self.next];
            let unsent = part.len() - self.sent_of_next;
            if left < unsent {
                self.sent_of_next += left;
                return;
            }
            left -= unsent;
            if let Part::Buffer { slice, after: After::Release } = part {
                release(slice.buffer);
            }
            self.next += 1;
            self.sent_of_next = 0;
        }
    }

    /// Gives up what was not sent: calls `release` for each buffer that the machine owned and leaves the batch empty.
    /// For connections that are closed in the middle of a send, once the kernel has released the memory.
    pub fn abandon(&mut self, mut release: impl FnMut(BufferId)) {
        for part in &self.parts[self.next..] {
            if let Part::Buffer { slice, after: After::Release } = part {
                release(slice.buffer);
            }
        }
        self.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        // A long log page once must not cost memory for as long as the connection lives.
        self.arena.shrink_to(ARENA_KEPT);
        self.parts.clear();
        (self.next, self.sent_of_next, self.remaining, self.open_from) = (0, 0, 0, 0);
    }

    /// Whether there is nothing in it at all, sent or not.
    pub(crate) fn is_clear(&self) -> bool {
        self.parts.is_empty() && self.arena.is_empty()
    }

    /// Adds bytes; neighbours share one segment.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.arena.extend_from_slice(bytes);
        self.remaining += bytes.len();
        self.cover_arena();
    }

    /// Adds `len` zero bytes (padding). Many of them take no memory.
    pub(crate) fn push_zeros(&mut self, len: usize) {
        self.remaining += len;
        if len <= ZEROES_COPIED_MAX {
            self.arena.resize(self.arena.len() + len, 0);
            return self.cover_arena();
        }
        let whole = std::iter::repeat_n(ZEROES.len(), len / ZEROES.len());
        let parts = whole.chain([len % ZEROES.len()]).filter(|len| *len > 0);
        self.parts.extend(parts.map(Part::Zeroes));
    }

    pub(crate) fn push_buffer(&mut self, slice: BufferSlice, after: After) {
        self.remaining += slice.len as usize;
        self.parts.push(Part::Buffer { slice, after });
    }

    /// The host's slots whose buffers this batch borrowed, one entry per segment.
    pub(crate) fn borrowed_slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts.iter().filter_map(|part| match part {
            Part::Buffer { after: After::Keep { slot }, .. } => Some(*slot),
            _ => None,
        })
    }

    fn cover_arena(&mut self) {
        let end = self.arena.len();
        if end == self.open_from {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Arena(range)) => range.end = end,
            _ => self.parts.push(Part::Arena(self.open_from..end)),
        }
        self.open_from = end;
    }
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Arena(range) => range.len(),
            Part::Zeroes(len) => *len,
            Part::Buffer { slice, .. } => slice.len as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A megabyte of padding was a megabyte of memory, on each connection of peers that nobody had let in.
    #[test]
    fn much_padding_takes_no_memory() {
        let mut transmit = Transmit::new();
        transmit.push_bytes(b"page");
        transmit.push_zeros(1 << 20);
        transmit.push_bytes(b"next");
        assert!(transmit.arena.capacity() < 4096, "{}", transmit.arena.capacity());
        let mut sent = Vec::new();
        while !transmit.is_empty() {
            let Some(Segment::Bytes(bytes)) = transmit.segments().next() else { panic!("no buffer is in it") };
            let len = bytes.len().min(50_000);
            sent.extend_from_slice(&bytes[..len]);
            transmit.advance(len, |_| panic!("no buffer is in it"));
        }
        assert_eq!(sent, [b"page", &vec![0; 1 << 20][..], b"next"].concat());
    }

    fn two_pdus() -> Transmit {
        let mut transmit = Transmit::new();
        transmit.push_bytes(b"head");
        transmit.push_buffer(BufferSlice::new(BufferId(7), 10), After::Release);
        transmit.push_bytes(b"more");
        transmit.push_bytes(b"head");
        transmit.push_buffer(BufferSlice { buffer: BufferId(8), offset: 4, len: 6 }, After::Keep { slot: 3 });
        transmit
    }

    #[test]
    fn neighbouring_bytes_share_a_segment() {
        let transmit = two_pdus();
        let segments: Vec<_> = transmit.segments().collect();
        assert_eq!(segments.len(), 4);
        assert_eq!(segments[2], Segment::Bytes(b"morehead"));
        assert_eq!(transmit.remaining(), 28);
        assert_eq!(transmit.borrowed_slots().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn partial_sends_release_each_owned_buffer_once_and_only_when_sent() {
        for step in 1..=28 {
            let mut transmit = two_pdus();
            let mut released = Vec::new();
            let mut sent = 0;
            while !transmit.is_empty() {
                let len = step.min(transmit.remaining());
                transmit.advance(len, |buffer| released.push(buffer));
                sent += len;
                assert_eq!(released.contains(&BufferId(7)), sent >= 14, "after {sent} bytes");
                assert_eq!(transmit.segments().map(|s| s.len()).sum::<usize>(), 28 - sent);
            }
            assert_eq!(released, [BufferId(7)]);
        }
    }

    #[test]
    fn an_abandoned_batch_releases_what_it_still_owned() {
        let mut transmit = two_pdus();
        let mut released = Vec::new();
        transmit.advance(5, |buffer| released.push(buffer));
        assert!(released.is_empty());
        transmit.abandon(|buffer| released.push(buffer));
        assert_eq!(released, [BufferId(7)]);
        assert!(transmit.is_empty() && transmit.is_clear());
    }
}
