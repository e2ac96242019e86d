//! `libdiskside_sqlite`: a loadable extension of SQLite that reads databases of exported directories.
//!
//! SQLite asks for one page at a time, and waits. The extension registers a VFS, `diskside`, that knows the format of the
//! pages: a scan, a long value and the schema are asked for ahead, many pages in one round trip. `docs/sqlite.md` is for users.
//!
//! - [`page`], [`tree`], [`chain`], [`rows`], [`ahead`], [`cache`] and [`reader`] do no I/O: they decide which pages to ask for.
//! - [`remote`] reads one version of a file of an export; [`open`] finds it, and refuses one that is being changed.
//! - [`ffi`] has the declarations of SQLite's interface, and all unsafe code.

#![deny(unsafe_code)]

mod ahead;
mod cache;
mod chain;
mod failure;
#[allow(unsafe_code, reason = "SQLite's interface is that of C")]
mod ffi;
mod open;
mod options;
mod page;
mod reader;
mod remote;
mod rows;
mod tree;
