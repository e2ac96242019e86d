//! The secure channel of NVMe over TCP (TCP Transport 3.6): TLS 1.3 with pre-shared keys, both sides, without I/O.
//!
//! * [`Lookout`] looks at what a host says first, and [`Hello`] is that, to find out which key it means and whether it has it.
//! * [`Handshake`] makes a channel. OpenSSL does it, on memory; it is loaded when it is first needed
//!   ([`is_available`]), so that what has no use for TLS needs no OpenSSL.
//! * [`Records`] is the channel: it seals what is sent and opens what came, in the caller's buffers. This is our own, because
//!   it is on the path of all data: half of what OpenSSL takes for the same.
//!
//! All keys are wiped when they are dropped.

#![deny(unsafe_code)]

mod alert;
mod handshake;
mod hello;
#[expect(unsafe_code, reason = "OpenSSL is C")]
mod openssl;
mod records;
mod schedule;

pub use alert::Alert;
pub use handshake::{Done, Handshake, HandshakeError, Step};
pub use hello::{HELLO_LEN_MAX, Hello, HelloError, Look, Lookout};
pub use openssl::{Unavailable, is_available};
pub use records::{CONTROL_RECORDS_MAX, Content, Next, RECORD_LEN_MAX, RecordError, RecordWriter, Records};
pub use schedule::Secrets;

/// Whether what a peer sends first is TLS: a record of the handshake, and not the header of a PDU.
pub fn is_tls(first_byte: u8) -> bool {
    first_byte == 22
}
