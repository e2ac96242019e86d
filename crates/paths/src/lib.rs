//! Patterns of paths as shells have them, and directories walked in one order.
//!
//! The order is that of the bytes of the names of one directory, where what a directory holds comes right behind its name.
//! So a walk can be left at any path and [go on behind it](walk()), in another call and without anything kept between.
//!
//! A [`Pattern`] has `*`, `?` and `[…]` within a name, and `**` for any number of directories. Each name is compared in
//! time that grows with its length, whatever the pattern. A [`Tree`] lists the directories: nothing here does any I/O.

#![forbid(unsafe_code)]

mod pattern;
mod walk;

pub use pattern::{Pattern, PatternError};
pub use walk::{Kind, Tree, Visit, WalkError, walk};
