//! A controller's possible messages to a host: it ends in good order.
#![no_main]

#[path = "../../crates/nvme/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::fuzz::host(bytes));
