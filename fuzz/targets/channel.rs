//! Bytes over TLS before and after the handshake, of hosts and servers that have the key and of those that have none.
#![no_main]

#[path = "../../crates/tls/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    match choice & 1 {
        0 => support::hello(bytes),
        _ => support::records(bytes),
    }
});
