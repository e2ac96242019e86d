//! Programs that do one thing for another program, with bytes that neither trusts: compile code, read files.
//!
//! The parent finds the [`Program`] and starts it; the child [`confine()`]s itself before it looks at what it was given.

#![forbid(unsafe_code)]

mod confine;
mod find;
mod program;

pub use confine::{Limits, MayMakeCode, confine, confine_but_for_code};
pub use program::{Program, set_process_name};
