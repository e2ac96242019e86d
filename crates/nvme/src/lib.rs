#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod auth;
mod buffer;
pub mod controller;
mod digest;
pub mod host;
mod nqn;
pub mod pdu;
pub mod status;
mod transmit;
pub mod wire;

pub use buffer::{BufferId, BufferPool, BufferSlice, Buffers};
pub use digest::{Crc32c, crc32c};
pub use nqn::{DISCOVERY_NQN, NQN_LEN_MAX, Nqn, NqnError};
pub use status::Status;
pub use transmit::{Segment, Transmit};
