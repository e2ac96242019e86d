//! Volumes: bytes by position, with a name and with what keeps their blocks whole.
//!
//! | Module | What it is |
//! |---|---|
//! | [`medium`], [`media`], [`pending`] | the bytes behind a volume, one trait; file, memory, objects of a store, and two for tests |
//! | [`Volume`], [`guard`] | a medium with a name, and what keeps its blocks whole |
//! | [`blocking`] | reading and writing a volume on a thread that may wait |
//! | [`VolumeFile`] | the same byte by byte, for a thread that drives a ring of its own |
//! | [`cache`] | blocks that calls read, cached for later calls |
//! | [`health`] | what a disk has not answered, and what it failed |
//! | [`stats`], [`metered`] | counters per volume and host, and what counts |
//! | [`VolumeSpec`], [`Size`] | a volume as a user writes it |
//!
//! Reactors drive a medium with a ring ([`medium::Medium::start`]), threads of functions through [`blocking`]: both hold the
//! same guards.

#![forbid(unsafe_code)]

pub mod blocking;
pub mod cache;
pub mod guard;
pub mod health;
pub mod media;
pub mod medium;
pub mod metered;
pub mod pending;
mod size;
mod spec;
pub mod stats;
mod volume;
mod volume_file;

pub use size::Size;
pub use spec::{Source, VolumeSpec, check_name};
pub use volume::{Volume, VolumeTable};
pub use volume_file::{May, VolumeFile};
