//! The storage side: media, namespaces and the reactor that drives the controller machine.

#![forbid(unsafe_code)]

pub mod config;
pub mod guard;
pub mod link;
pub mod media;
pub mod medium;
mod reactor;
mod shared;
pub mod stats;
mod target;
pub mod volume;

pub use target::{Handle, Running, Target, TargetBuilder, TargetError};
