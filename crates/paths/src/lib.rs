//! Patterns of paths as shells have them, and directories walked in one order.
//!
//! The order is that of the bytes of the names of one directory, where the entries of a directory come right behind its
//! name. So a walk can be left at any path and [continued behind it](walk()), in another call and without anything kept
//! between.
//!
//! A [`Pattern`] has `*`, `?` and `[…]` within a name, and `**` for any number of directories. Each name is compared in
//! time that grows with its length, whatever the pattern. A [`Tree`] lists the directories: nothing here does any I/O.

#![forbid(unsafe_code)]

mod pattern;
mod walk;

pub use pattern::{Pattern, PatternError};
pub use walk::{Kind, Tree, Visit, WalkError, walk};
