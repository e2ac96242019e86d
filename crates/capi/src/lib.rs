//! `libdiskside`: sessions, functions and files for C.
//!
//! `include/libdiskside.h` and `include/lambda_io.h` are made of this crate: of its declarations and the comments over
//! them (`tests/header.rs`, `cbindgen.toml`). So documentation here speaks to C programmers.
//!
//! The conditions that every call's caller must meet, as C callers do: a pointer to an object is NULL or came from here
//! and was not freed, a string is NULL or ends with a NUL, a buffer has as many bytes and an array as many elements as
//! is said, and a structure has as many bytes as its `size` says. Nobody changes any of them meanwhile. Nothing unwinds
//! into C: a panic becomes `-EIO` with its message.

#![allow(clippy::missing_safety_doc, reason = "the contract is the same for all calls; it stands above")]
#![allow(non_camel_case_types, reason = "names are C's")]

pub mod error;
pub mod file;
pub mod function;
pub mod kernel;
pub mod lambda;
mod memory;
pub mod options;
pub mod prepared;
pub mod request;
pub mod result;
pub mod session;
pub mod traversal;
