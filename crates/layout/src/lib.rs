//! Files on mounted volumes: where their bytes are on the volume, and the proof that they stay there while they are
//! read behind the file system's back.
//!
//! | Module | What it decides |
//! |---|---|
//! | [`admission`] | which files may be read at the volume at all |
//! | [`place`] | on which disk a file system is, and where on it |
//! | [`layout`] | the parts of the volume to read for a range of a file |
//! | [`guard`] | proves that the bytes that were read are the file's: leases, generations, checks before and after |
//! | [`mod@write`] | where the volume may be written: nobody else has the file, and its readers see the written bytes |
//! | [`pool`] | written files, into which a volume writes output that is a new file |
//! | [`mod@file`] | the guards' system calls, and the thread that answers breaks of leases |
//! | [`reason`] | why a file is read the plain way instead, with words and counters |
//!
//! Nothing here reads or writes a volume. A caller that does asks [`Guard::begin`] or [`WriteGuard::begin`] where, and
//! [`Guard::finish`] or [`WriteTicket::finish`] whether the answer counts.

#![forbid(unsafe_code)]

pub mod admission;
pub mod file;
pub mod guard;
pub mod layout;
pub mod place;
pub mod pool;
pub mod reason;
pub mod write;

pub use admission::{Admitted, SUPERBLOCK_LEN, admit};
pub use file::{OpenFile, watched, watched_duplicate, watched_writer};
pub use guard::{FileOps, Guard, GuardConfig, Proof, Ticket};
pub use layout::{BlockRead, Layout, Piece, Run};
pub use place::{Disk, Namespace, Place};
pub use reason::{Counters, Reason, Refusal};
pub use write::{WriteGuard, WriteGuardConfig, WriteOps, WriteTicket};
