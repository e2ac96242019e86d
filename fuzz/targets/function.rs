//! A host's possible messages beside reads and writes: commands of functions and files, with their data.
#![no_main]

#[path = "../../crates/nvme/tests/support/mod.rs"]
mod nvme;
#[path = "../../crates/wire/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::commands::function(bytes));
