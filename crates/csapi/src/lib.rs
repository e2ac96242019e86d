//! `libdiskside_csapi`: SNIA's Computational Storage API for C, over Diskside's servers.
//!
//! `include/cs.h` is made of this crate: of its declarations and of what is written over them (`tests/header.rs`,
//! `cbindgen.toml`). So documentation there speaks to C programmers. `docs/csapi.md` says how the terms of the API and
//! Diskside's map onto each other, and what each call does.
//!
//! The conditions that every call's caller must meet, as C callers do: a pointer to an object is NULL or valid, a string
//! is NULL or ends with a NUL, a buffer has as many bytes and an array as many elements as is said. Memory of
//! a request that was queued stays valid until the request has completed. Handles are not trusted: they are numbers that
//! are looked up, so one that was closed, or never was, is refused. Nothing unwinds into C: a panic becomes
//! `CS_FATAL_ERROR`.

#![allow(clippy::missing_safety_doc, reason = "the contract is the same for all calls; it stands above")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "names are the specification's")]

pub mod access;
mod allocation;
pub mod batch;
mod config;
mod device;
pub mod discovery;
pub mod event;
mod functions;
mod handle;
pub mod manage;
pub mod memory;
pub mod numbers;
pub mod program;
pub mod queue;
mod raw;
pub mod refused;
mod request;
pub mod status;
pub mod storage;
pub mod types;
mod worker;
