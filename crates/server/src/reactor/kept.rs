//! Bytes that came and that the machines of connections do not take: of hosts that do not read their answers, mostly. The kernel hands
//! out what it has received before it hears that nothing more is wanted, up to a megabyte for each connection, and they are outside of
//! [`Memory`](super::memory::Memory): a machine that waits for memory could not be refused them.
//!
//! All of a reactor are at most as much as its memory again. Beyond, connections end of the host that keeps most.

/// So many bytes of all connections of a reactor.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: u64,
    max: u64,
    /// Most of them at the end of a turn.
    most: u64,
}

impl Kept {
    /// Those of a reactor with so much memory.
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self { bytes: 0, max: memory_bytes, most: 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        self.bytes > self.max
    }

    /// Notes how many there are at the end of a turn.
    pub(super) fn end_turn(&mut self) {
        self.most = self.most.max(self.bytes);
    }

    pub(super) fn most_bytes(&self) -> u64 {
        self.most
    }

    /// A connection that kept `before` keeps `now`.
    pub(super) fn change(&mut self, before: usize, now: usize) {
        self.bytes = self.bytes + now as u64 - before as u64;
    }
}
