//! Messages of authentication and keys' texts: nobody gets in without the key.
#![no_main]

#[path = "../../crates/nvme/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::fuzz::authentication(bytes));
