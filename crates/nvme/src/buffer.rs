//! Memory that the embedder owns and the machines only name.
//!
//! No machine in this crate ever holds the bytes of a read or a write. It speaks of a [`BufferSlice`]: a handle that the
//! embedder chose, and a range in it. The embedder turns it into iovecs, into a registered buffer of a ring, or into a
//! place in a memory volume.

/// A handle of a buffer, chosen by the embedder: an index, a pointer, an offset in a memory volume. The machines only
/// pass it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u64);

/// A range of bytes in a buffer of the embedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferSlice {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte of the range, counted from the start of the buffer.
    pub offset: u32,
    /// Length of the range in bytes.
    pub len: u32,
}

impl BufferSlice {
    /// The range of `len` bytes at the start of `buffer`.
    pub const fn new(buffer: BufferId, len: u32) -> Self {
        Self { buffer, offset: 0, len }
    }

    /// The part of this range that starts `offset` bytes into it and is `len` bytes long.
    pub(crate) const fn part(self, offset: u32, len: u32) -> Self {
        debug_assert!(offset as u64 + len as u64 <= self.len as u64, "a part lies inside its whole");
        Self { buffer: self.buffer, offset: self.offset + offset, len }
    }
}

/// The requests of a machine to the embedder's memory.
///
/// # Who owns a buffer
///
/// Ownership is linear, so that nothing leaks and nothing is freed twice, also when a connection dies:
///
/// * a controller [acquires](BufferPool::acquire) a buffer when write data is about to arrive, and hands it over inside
///   the [`Request`](crate::controller::Request) that carries the data: from then on it is the embedder's;
/// * the embedder hands a buffer to a controller with the completion of a read; it comes back through
///   [`Buffers::release`] when the last byte was sent, or when the connection was closed first;
/// * a host never owns a buffer: it borrows the caller's until it reports the command's completion.
pub trait Buffers {
    /// Copies bytes that arrived into `buffer`, starting `offset` bytes into it.
    fn write(&mut self, buffer: BufferId, offset: u32, bytes: &[u8]);

    /// The CRC32C of a range ([`crc32c`](crate::crc32c) of its bytes). Asked only when data digests were negotiated.
    fn digest(&mut self, slice: BufferSlice) -> u32;

    /// The machine has no more use for `buffer`, which it owned.
    fn release(&mut self, buffer: BufferId);
}

/// Memory for data that is about to arrive at a controller.
pub trait BufferPool: Buffers {
    /// A buffer of at least `len` bytes for the data of one command, or `None` if there is none to spare now: the
    /// connection then waits for [`handle_buffers`](crate::controller::Connection::handle_buffers). This is where an
    /// embedder bounds memory, per connection and in all.
    fn acquire(&mut self, len: u32) -> Option<BufferId>;

    /// The same for data that is right behind its command. Nothing that the host was asked for can come before it is taken in, so
    /// an embedder does well not to refuse it because of buffers that wait for such data: bound it with those of all.
    fn acquire_arriving(&mut self, len: u32) -> Option<BufferId> {
        self.acquire(len)
    }
}
