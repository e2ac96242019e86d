//! A target's possible answers to commands of functions and files: trailers, log pages, listings.
#![no_main]

#[path = "../../crates/nvme/tests/support/mod.rs"]
mod nvme;
#[path = "../../crates/wire/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::commands::answers(bytes));
