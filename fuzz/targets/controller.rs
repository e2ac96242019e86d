//! A host's possible messages to a controller: every buffer comes back, nothing stands still.
#![no_main]

#[path = "../../crates/nvme/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::fuzz::controller(bytes));
