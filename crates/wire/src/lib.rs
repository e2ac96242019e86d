//! Diskside's own protocol over NVMe, as data: commands that run functions, operations on files, what both answer, and
//! deltas of pages.
//!
//! `docs/wire.md` and `docs/wire-files.md` are the specification; the tests hold every byte of it. Structures of the
//! standard are in [`diskside_nvme::wire`].

#![forbid(unsafe_code)]

pub mod delta;
pub mod file;
pub mod function;
