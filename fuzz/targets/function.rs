//! A host's possible messages beside reads and writes: commands of functions and files, with their data.
#![no_main]

#[allow(dead_code, reason = "each fuzzer uses a part of what the crate's tests share")]
#[path = "../../crates/nvme/tests/support/mod.rs"]
mod nvme;
#[allow(dead_code, reason = "each fuzzer uses a part of what the crate's tests share")]
#[path = "../../crates/wire/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::commands::function(bytes));
