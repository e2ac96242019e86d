//! The state behind function commands: calls, files, layouts and prepared requests of two controllers, in any order.
#![no_main]

#[path = "../../crates/server/tests/common/mod.rs"]
mod common;
#[path = "../../crates/server/tests/support/functions.rs"]
mod functions;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static LAB: LazyLock<functions::Lab> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("diskside-fuzz-calls-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    functions::Lab::new(&directory)
});

fuzz_target!(|bytes: &[u8]| LAB.run(bytes));
