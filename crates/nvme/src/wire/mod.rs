//! The structures of the wire, little endian, with named fields.

mod command;

pub use command::{CSI_NVM, Cqe, Sqe};
