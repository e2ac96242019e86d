//! Directories served by name: what hosts may open beneath them, and as whom.
//!
//! An [`Exports`] is made from the configuration. Each association of a host has a [`FileSession`], which keeps its
//! handles and carries out its file operations ([`diskside_wire::file`]); functions read and write the same
//! handles through a [`FileSource`] and a [`FileSink`].
//!
//! # What holds
//!
//! * **Beneath.** Every path is resolved by `openat2` beneath the export's root, without magic links and without
//!   entering another mount. `..` and symbolic links work inside; what leads out fails with `EXDEV`, also while
//!   directories are being renamed.
//! * **As whom.** Everything that the kernel checks permissions for runs on threads of the export that have its user,
//!   group and groups for good, and no capability of root. Reading an open file needs no permission any more and may
//!   happen on any thread or ring; writing happens on the export's, so that quotas and reserved blocks are the user's.
//! * **Handles.** Bounded per session ([`HANDLES_MAX`]) and in all (half of the files that the process may open, so that
//!   connections and disks have the rest), closed with their session. A number that is used again has another
//!   generation.
//! * **Changes are noticed.** A [`FileSource`] knows the file's version from before the first read and compares it
//!   after the last. A version differs when inode, size or a time of change differ; a file that changed in the clock
//!   tick that just passes is waited for, so that a later change cannot have the same time.
//! * **Space.** Once a host has a quota of it, what each holds is counted ([`Space`]), and room is taken before bytes are written.
//! * **No reactor waits.** Requests are queued for the export's threads, which answer through a callback. Reads of open files are
//!   the reactor's own ([`PlainRead`]): at once from memory, or by a worker of its ring.

#![forbid(unsafe_code)]

mod again;
mod attributes;
mod conflict;
mod counted;
mod credentials;
mod export;
mod exports;
mod find;
mod found;
mod kernel_file;
mod objects;
mod open_file;
mod operations;
mod plain_read;
mod reading;
mod reply;
mod root;
mod search;
mod session;
mod sink;
mod source;
mod space;
mod spec;
mod turns;
mod unnamed;
mod used;
mod workers;

pub use conflict::{changed, conflict};
pub use export::ExportError;
pub use exports::{Exports, OpenedExports, files_max};
pub use found::{Found, SHORT_FILE_LEN_MAX};
pub use kernel_file::KernelFile;
pub use plain_read::PlainRead;
pub use reply::{FileError, FileReply};
pub use rustix::fs::Statx;
pub use session::{FileSession, HANDLES_MAX};
pub use sink::{FileSink, SinkMode};
pub use source::CachedFile;
pub use source::FileSource;
pub use space::Space;
pub use spec::{ExportSpec, FileAccess};
pub use turns::Turns;
pub use used::UsedExport;
