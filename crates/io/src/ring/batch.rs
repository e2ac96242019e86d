//! Everything that one send carries: many headers and many pieces of data, in order.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::stable::Stable;
use crate::buffer::{Buffer, SharedSlice};

/// The most pieces that one send can carry (`UIO_MAXIOV`).
pub const SEGMENTS_MAX: usize = 1024;

/// An ordered list of bytes to send with one system call.
///
/// Short pieces are copied into one arena ([`put`](Self::put)); data is referred to where it is.
/// After its send a batch comes back in the completion; [`clear`](Self::clear) keeps its
/// allocations for the next one.
#[derive(Default)]
pub struct SendBatch {
    segments: Vec<Segment>,
    arena: Vec<u8>,
    len_bytes: usize,
    wire: Option<Stable<Wire>>,
}

/// One piece of a [`SendBatch`].
enum Segment {
    Arena(Range<usize>),
    Buffer(Buffer, Range<usize>),
    ArcBuffer(Arc<Buffer>, Range<usize>),
    Vec(Vec<u8>, usize),
    Shared(SharedSlice),
}

/// The kernel's form of the list.
struct Wire {
    header: libc::msghdr,
    pieces: Vec<libc::iovec>,
}

// SAFETY: the pointers in `Wire` refer to memory that the batch itself owns; they are rebuilt before each send.
unsafe impl Send for Wire {}

impl SendBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a copy of `bytes`; pieces appended one after the other are sent as one.
    pub fn put(&mut self, bytes: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        self.len_bytes += bytes.len();
        match self.segments.last_mut() {
            Some(Segment::Arena(range)) => range.end = self.arena.len(),
            _ if bytes.is_empty() => {}
            _ => self.segments.push(Segment::Arena(start..self.arena.len())),
        }
    }

    /// Appends `range` of a buffer, which comes back with [`drain_buffers`](Self::drain_buffers) or is dropped.
    ///
    /// # Panics
    /// If the range reaches past the buffer's length.
    pub fn put_buffer(&mut self, buffer: Buffer, range: Range<usize>) {
        self.len_bytes += buffer[range.clone()].len();
        self.segments.push(Segment::Buffer(buffer, range));
    }

    /// Appends `range` of a buffer that other pieces also refer to.
    ///
    /// # Panics
    /// If the range reaches past the buffer's length.
    pub fn put_arc(&mut self, buffer: Arc<Buffer>, range: Range<usize>) {
        self.len_bytes += buffer[range.clone()].len();
        self.segments.push(Segment::ArcBuffer(buffer, range));
    }

    /// Appends a vector's bytes from `start` on. The vector comes back with [`take_vec`](Self::take_vec) or is dropped.
    ///
    /// # Panics
    /// If it has fewer bytes.
    pub fn put_vec(&mut self, bytes: Vec<u8>, start: usize) {
        self.len_bytes += bytes[start..].len();
        self.segments.push(Segment::Vec(bytes, start));
    }

    /// Takes back the vector that was appended last, if it is the end of the batch.
    pub fn take_vec(&mut self) -> Option<Vec<u8>> {
        match self.segments.pop_if(|segment| matches!(segment, Segment::Vec(..))) {
            Some(Segment::Vec(bytes, start)) => {
                self.len_bytes -= bytes.len() - start;
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Appends shared memory: what is sent is what it holds when the network stack copies it.
    pub fn put_shared(&mut self, slice: SharedSlice) {
        self.len_bytes += slice.len();
        self.segments.push(Segment::Shared(slice));
    }

    /// Bytes in the batch.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether the batch has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Pieces that still fit, of [`SEGMENTS_MAX`]. Pieces past the limit make the send fail with `EMSGSIZE`.
    pub fn segments_left(&self) -> usize {
        SEGMENTS_MAX.saturating_sub(self.segments.len())
    }

    /// Empties the batch, drops what it referred to and keeps its allocations.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.arena.clear();
        self.len_bytes = 0;
    }

    /// Empties the batch and yields the buffers given to [`put_buffer`](Self::put_buffer), in order.
    pub fn drain_buffers(&mut self) -> impl Iterator<Item = Buffer> {
        self.arena.clear();
        self.len_bytes = 0;
        self.segments.drain(..).filter_map(|segment| match segment {
            Segment::Buffer(buffer, _) => Some(buffer),
            _ => None,
        })
    }

    /// The batch's bytes as one vector: what a transport in memory delivers.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len_bytes);
        for segment in &self.segments {
            match segment {
                Segment::Arena(range) => bytes.extend_from_slice(&self.arena[range.clone()]),
                Segment::Buffer(buffer, range) => bytes.extend_from_slice(&buffer[range.clone()]),
                Segment::ArcBuffer(buffer, range) => {
                    bytes.extend_from_slice(&buffer[range.clone()]);
                }
                Segment::Vec(vec, start) => bytes.extend_from_slice(&vec[*start..]),
                Segment::Shared(slice) => {
                    let start = bytes.len();
                    bytes.resize(start + slice.len(), 0);
                    slice.copy_to(&mut bytes[start..]);
                }
            }
        }
        bytes
    }

    /// Sends what comes after the first `sent` bytes, as much as the socket takes without waiting. How much that was.
    pub(super) fn send(&mut self, socket: &OwnedFd, sent: usize) -> Result<usize, Errno> {
        let mut message = self.message();
        if let Some(wire) = self.wire.as_mut().filter(|_| sent > 0) {
            // SAFETY: ours alone, as in `message`.
            message = unsafe { &mut *wire.as_ptr() }.skip(sent);
        }
        // SAFETY: the message and what it points to belong to `self`, and nothing changes them during the call.
        let count = unsafe { libc::sendmsg(socket.as_raw_fd(), message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        usize::try_from(count).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }

    /// The kernel's form of the batch, valid until the batch is changed or dropped.
    pub(super) fn message(&mut self) -> *const libc::msghdr {
        let Self { segments, arena, wire, .. } = self;
        let wire = wire.get_or_insert_with(|| Stable::new(Wire::new())).as_ptr();
        // SAFETY: `wire` is ours alone: the kernel's use of it ended when the batch came back.
        let wire = unsafe { &mut *wire };
        wire.pieces.clear();
        wire.pieces.extend(segments.iter().map(|segment| {
            let (start, len) = match segment {
                Segment::Arena(range) => (arena[range.clone()].as_ptr(), range.len()),
                Segment::Buffer(buffer, range) => (buffer[range.clone()].as_ptr(), range.len()),
                Segment::ArcBuffer(buffer, range) => (buffer[range.clone()].as_ptr(), range.len()),
                Segment::Vec(vec, start) => (vec[*start..].as_ptr(), vec.len() - start),
                Segment::Shared(slice) => (slice.address().as_ptr().cast_const(), slice.len()),
            };
            libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len }
        }));
        wire.header.msg_iov = wire.pieces.as_mut_ptr();
        wire.header.msg_iovlen = wire.pieces.len() as _;
        &raw const wire.header
    }
}

impl Wire {
    fn new() -> Self {
        // SAFETY: `msghdr` is plain data for which all-zero bytes mean "no address, no control data, no pieces".
        let header = unsafe { std::mem::zeroed() };
        Self { header, pieces: Vec::new() }
    }

    /// Leaves out bytes at the beginning.
    fn skip(&mut self, mut len: usize) -> *const libc::msghdr {
        let mut sent = 0;
        while let Some(piece) = self.pieces.get(sent)
            && piece.iov_len <= len
        {
            len -= piece.iov_len;
            sent += 1;
        }
        self.pieces.drain(..sent);
        if let Some(first) = self.pieces.first_mut() {
            first.iov_base = first.iov_base.wrapping_byte_add(len);
            first.iov_len -= len;
        }
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len() as _;
        &raw const self.header
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").field("segments", &self.segments.len()).field("len_bytes", &self.len_bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Hugepages, SharedMemory};

    #[test]
    fn pieces_keep_their_order_and_short_ones_coalesce() {
        let shared = SharedMemory::zeroed(8, Hugepages::No);
        shared.write(0, b"sharedXX");
        let mut batch = SendBatch::new();
        batch.put(b"");
        batch.put(b"head");
        batch.put(b"er|");
        batch.put_buffer(Buffer::copy_of(b"__buffer|__"), 2..9);
        batch.put_arc(Arc::new(Buffer::copy_of(b"arc|arc")), 0..4);
        batch.put_vec(b"__vec|".to_vec(), 2);
        batch.put_shared(shared.slice(0..6));
        batch.put(b"|end");
        assert_eq!(batch.to_vec(), b"header|buffer|arc|vec|shared|end");
        assert_eq!(batch.len_bytes(), batch.to_vec().len());
        assert_eq!(batch.segments_left(), SEGMENTS_MAX - 6);
        assert_eq!(batch.take_vec(), None);
        assert_eq!(batch.drain_buffers().count(), 1);
        assert!(batch.is_empty());
        batch.put(b"head");
        batch.put_vec(b"__vec".to_vec(), 2);
        assert_eq!(batch.take_vec().as_deref(), Some(&b"__vec"[..]));
        assert_eq!(batch.to_vec(), b"head");
    }
}
