//! The chunks of a file in order, while the next ones are being read.
//!
//! ```no_run
//! # use diskside_io::readahead::{ChunkReader, ReadAhead};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut sum = 0_u64;
//! for chunk in ChunkReader::open("data.bin", .., &ReadAhead::default())? {
//!     let chunk = chunk?; // up to `depth` chunks after this one are read meanwhile
//!     sum += chunk.iter().map(|&byte| u64::from(byte)).sum::<u64>();
//! }
//! # Ok(()) }
//! ```
//!
//! A thread with a ring of its own ([`ownring`](crate::ownring)) fills aligned buffers of a bounded pool; the consumer gets the
//! buffers themselves, without a copy, and gives each back by dropping its [`Chunk`]. Memory is
//! bounded by `(depth + 1) × (chunk_bytes + tailroom_bytes + 12 KiB)`. So at most `depth + 1` chunks
//! exist: who keeps that many and asks for another waits until one of them is dropped. A range of a file that is one
//! short chunk is read at once, on the caller's thread: with many small files a thread and a ring for each would be most
//! of the work.
//!
//! The range is fixed when the reader is made. A file that ends before the range does has been
//! shortened meanwhile; that is [`ReadError::Shrunk`], never a short success.

mod any;
mod chunk;
mod chunk_reader;
mod control;
mod error;
mod file;
mod local;
mod plan;
mod reader;
mod settings;

pub use any::{ReadAt, ReadAtError, ReadStream, Reading};
pub use chunk::Chunk;
pub use chunk_reader::ChunkReader;
pub use error::ReadError;
pub use file::open_direct;
pub use settings::{Access, ReadAhead};
