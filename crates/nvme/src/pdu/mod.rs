//! The PDU codec: bytes of a stream to checked headers and data, and back (TCP 3.3, 3.6).
//!
//! [`Decoder`] takes a stream in pieces of any size and keeps at most one header. It checks everything about a PDU that
//! can be known without knowing the commands: type, direction and order, lengths, offsets, flags and digests; what is
//! wrong has its [`FatalError`](crate::wire::FatalError). Data is never kept: it comes out as slices of the input.
//!
//! [`Encoder`] writes PDUs into a [`Transmit`](crate::Transmit), with digests and alignment as they were negotiated.

mod decode;
mod encode;

pub use decode::{Decoder, Header, Role, Step};
pub use encode::{BufferAfter, Encoder, Payload};

/// The settings that the two sides agreed on by ICReq and ICResp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// A CRC32C follows each header.
    pub header: bool,
    /// A CRC32C follows data.
    pub data: bool,
}

/// Bytes of a digest.
const DIGEST_LEN: usize = 4;
