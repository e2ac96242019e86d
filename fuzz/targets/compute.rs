//! The state behind the standard computing commands: programs, range sets, memory, copies and executions of two hosts.
#![no_main]

#[path = "../../crates/server/tests/support/standard.rs"]
mod standard;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static LAB: LazyLock<standard::Lab> = LazyLock::new(standard::Lab::new);

fuzz_target!(|bytes: &[u8]| LAB.run(bytes));
