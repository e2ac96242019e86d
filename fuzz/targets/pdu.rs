//! A stream of PDUs, cut anywhere: the same units and errors.
#![no_main]

#[path = "../../crates/nvme/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::fuzz::decoder(bytes));
