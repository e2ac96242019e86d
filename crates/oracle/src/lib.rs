//! The oracle: one answer, wherever a function runs.
//!
//! A [`Case`](case::Case) is a function, arguments and inputs. The [`Oracle`] runs it in all [ways](place::Way) there are and
//! compares how each [ended](ending::Ending): the bytes, what was counted, the errors to the word.
//! Of [generated](generate) functions
//! those that [trace] their calls are also compared with the [rule], which is written down a second time for that.

#![forbid(unsafe_code)]

pub mod case;
mod chunk;
pub mod compile;
pub mod draw;
pub mod ending;
pub mod generate;
pub mod input;
mod oracle;
pub mod place;
pub mod rule;
pub mod trace;
mod web;
pub mod world;

pub use oracle::{Difference, Loaded, Oracle};
