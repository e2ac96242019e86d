//! `libdiskside_wiredtiger`: a file system for WiredTiger, unmodified, over a directory that a server exports.
//!
//! WiredTiger reads one block at a time, and waits. A caller that says which key it looks for gets all blocks on the way in one
//! round trip, or only the value. `docs/wiredtiger.md` is for users.
//!
//! - [`blocks`], [`page`], [`order`], [`writes`], [`ledger`], [`stash`] and [`tuner`] do no I/O: the form of requests and blocks, which
//!   leaf comes behind which, what has been written since something was read, what is not durable, and whether paths are worth it.
//! - [`space`], [`owner`] and [`file`] are a directory, who has it, and a file at the server; [`follow`] runs the functions over it.
//! - [`search`] decides what becomes of a read: it knows the thread's hint, and by its [`slot`] what is decided about the table.
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
mod ledger;
mod order;
mod owner;
mod page;
mod search;
mod slot;
mod space;
mod stash;
mod stats;
mod tuner;
mod writes;
