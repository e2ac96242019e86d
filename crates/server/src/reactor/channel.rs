//! A connection's secure channel: made at its start, if the host wants one, and between the socket and the machine from
//! then on.
//!
//! The first byte that comes says whether it is TLS. The handshake is carried on beside the reactors
//! ([`authenticate`](crate::authenticate)): here its bytes are collected, and what it has to say is sent. Records are opened
//! out of the buffer in which they arrive into one that all connections of the reactor share; a connection keeps no more
//! than the start of a record. What is sent is sealed into a buffer of the send's.

use diskside_io::ring::SendBatch;
use diskside_nvme::{BufferSlice, Segment, Transmit};
use diskside_tls::{Lookout, Records};

use super::memory::{Memory, Piece};
use crate::channel::Shaking;

/// Between a connection's socket and its machine.
#[derive(Debug)]
pub(super) enum Channel {
    /// Nothing came yet.
    Undecided,
    /// There is none: bytes are the machine's as they come.
    None,
    /// It is being made.
    Handshake(Box<Pending>),
    /// It is made.
    Made(Box<Made>),
    /// It could not be made or kept. What is left to say is said.
    Failed {
        /// What is to be sent.
        unsent: Vec<u8>,
    },
}

/// A handshake.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// What came, and is not being worked on.
    pub(super) received: Vec<u8>,
    /// What is to be sent.
    pub(super) unsent: Vec<u8>,
    /// What the host says first, as far as it came.
    pub(super) lookout: Lookout,
    /// Where it stands; away while it is worked on, and none before all of the host's first message came.
    pub(super) shaking: Option<Shaking>,
    pub(super) at_work: bool,
}

/// A channel that was made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) records: Records,
    /// The start of a record; or several, while the machine takes nothing.
    pub(super) incoming: Vec<u8>,
    /// What the channel itself has to say, sealed.
    pub(super) unsent: Vec<u8>,
    /// The end was announced.
    pub(super) said_goodbye: bool,
}

/// The bytes of a channel in a send, as they go to the socket.
#[derive(Debug)]
pub(super) struct Sealed {
    /// All of them; away while they are sent.
    pub(super) bytes: Vec<u8>,
    /// How many are with the kernel, or have left.
    pub(super) sent: usize,
    /// Their length.
    pub(super) len: usize,
    /// Bytes of the machine's that are in them.
    pub(super) plain_len: usize,
}

/// The most bytes that are sealed for one send: the socket takes the first while the next are sealed.
const SEAL_LEN_MAX: usize = 256 << 10;

impl Channel {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether what the machine says can be sent.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Undecided | Self::None | Self::Made(_))
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// The bytes to send before anything of the machine's, in this order.
    fn unsent(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Undecided | Self::None => None,
            Self::Handshake(pending) => Some(&mut pending.unsent),
            Self::Made(made) => Some(&mut made.unsent),
            Self::Failed { unsent } => Some(unsent),
        }
    }

    pub(super) fn has_unsent(&mut self) -> bool {
        self.unsent().is_some_and(|unsent| !unsent.is_empty())
    }

    /// Bytes for the socket, in one of the `spare` buffers: what the channel has to say, and what the machine says, sealed.
    pub(super) fn seal(
        &mut self,
        transmit: &Transmit,
        memory: &Memory,
        len_max: usize,
        spare: &mut Vec<Vec<u8>>,
    ) -> Option<Sealed> {
        let mut bytes = std::mem::take(self.unsent()?);
        if bytes.is_empty() {
            bytes = spare.pop().unwrap_or_default();
        }
        let mut plain_len = 0;
        if let Self::Made(made) = self {
            let mut writer = made.records.seal(&mut bytes);
            let len_max = len_max.min(SEAL_LEN_MAX);
            for segment in transmit.segments() {
                let left = len_max - plain_len;
                if left == 0 {
                    break;
                }
                plain_len += match segment {
                    Segment::Bytes(bytes) => {
                        let bytes = &bytes[..bytes.len().min(left)];
                        writer.put(bytes);
                        bytes.len()
                    }
                    Segment::Buffer(slice) => {
                        let len = slice.len.min(u32::try_from(left).unwrap_or(u32::MAX));
                        match memory.piece(BufferSlice { len, ..slice }) {
                            Piece::Shared(shared) => {
                                writer.put_with(shared.len(), |part, out| shared.append_part(part, out));
                            }
                            Piece::Buffer(buffer) => {
                                let start = slice.offset as usize;
                                writer.put(&buffer[start..start + len as usize]);
                            }
                        }
                        len as usize
                    }
                };
            }
            writer.finish();
        }
        Some(Sealed { len: bytes.len(), bytes, sent: 0, plain_len })
    }
}

impl Sealed {
    /// Puts what has not been sent into a batch.
    pub(super) fn put(&mut self, batch: &mut SendBatch) {
        batch.put_vec(std::mem::take(&mut self.bytes), self.sent);
    }

    /// The batch is back.
    pub(super) fn come_back(&mut self, batch: &mut SendBatch) {
        self.bytes = batch.take_vec().unwrap_or_default();
    }

    /// So many bytes have left. True if that is all.
    pub(super) fn advance(&mut self, len: usize) -> bool {
        self.sent += len;
        self.sent >= self.len
    }
}
