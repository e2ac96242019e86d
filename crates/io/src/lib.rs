//! Asynchronous I/O: rings, buffers, instances with `submit`, `poll` and `block_on`, and read-ahead.
//!
//! | Module | What it is | Who uses it |
//! |---|---|---|
//! | [`ring`] | one io_uring, or epoll and threads where that is denied, owned by one thread; operations own their memory while in flight | reactors, connections |
//! | [`buffer`] | aligned buffers, bounded pools, memory shared by threads | everyone |
//! | [`request`] | requests by position, their futures and outcomes, `poll` and `block_on` (DAPHNE D6.3, part 2) | hosts, applications |
//! | [`instance`] | local files served by threads with a ring each, for requests from any thread | hosts, applications |
//! | [`bytefile`] | files that are read and written here and there by one thread, which drives a ring meanwhile | kernels |
//! | [`ownring`] | accesses as futures, for one thread that waits for them on a ring of its own | engines, copies, scans |
//! | [`readahead`] | the chunks of a file, in order, while the next are being read | engines |
//! | [`stream`] | pipes, sockets and other descriptors without positions | engines |
//! | [`unanswered`] | how many operations a disk has not answered, and since when | servers |
//! | [`patience`] | waiting for ports and locks of a process that was killed a moment ago | servers |
//! | [`socket`] | TCP sockets set up for one request per segment | reactors, connections |
//!
//! The whole public interface is safe: what an operation reads or writes is moved into the ring and
//! comes back with its completion, so no buffer is freed or reused while the kernel may touch it.

pub mod buffer;
pub mod bytefile;
pub mod instance;
pub mod ownring;
pub mod patience;
pub mod readahead;
pub mod request;
pub mod ring;
mod slab;
pub mod socket;
pub mod stream;
pub mod unanswered;

pub use rustix::io::Errno;
