//! `libdiskside_wiredtiger`: a file system for WiredTiger, unmodified, over a directory that a server exports.
//!
//! WiredTiger reads one block at a time, and waits. A caller that says which key it looks for gets all blocks on the way in one
//! round trip, or only the value. `docs/wiredtiger.md` is for users.
//!
//! - [`blocks`], [`page`], [`order`], [`writes`], [`stash`] and [`tuner`] do no I/O: the form of requests and blocks, which leaf comes
//!   behind which, what has been written since something was read, and whether paths are worth their time.
//! - [`space`] and [`file`] are a directory and a file at the server, [`follow`] runs the functions over it.
//! - [`search`] decides what becomes of a read: it knows the thread's hint.
//! - [`ffi`] has the declarations of the interface, and all unsafe code; `glue.c` knows WiredTiger's structures.

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "libwiredtiger"), allow(dead_code, reason = "only the extension uses all of it"))]

mod blocks;
mod controls;
mod failure;
#[cfg(feature = "libwiredtiger")]
#[allow(unsafe_code, reason = "WiredTiger's interface is that of C")]
mod ffi;
mod file;
mod follow;
mod order;
mod page;
mod search;
mod space;
mod stash;
mod stats;
mod tuner;
mod writes;
