//! Plans of scans and frames of the process that scans, from anybody: read in one form, or refused.
#![no_main]

use diskside_scan::{Frame, Plan, To, function_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(plan) = Plan::from_bytes(bytes) {
        // NaN differs from itself, and its bytes do not.
        assert_eq!(plan.to_bytes(), bytes, "a plan has one form");
    }
    // A server reads this part of what a host sends.
    let _ = function_of(bytes);
    for to in [To::Child, To::Parent] {
        if let Ok(frame) = Frame::read(&mut &bytes[..], to) {
            let mut written = Vec::new();
            frame.write(&mut written).expect("a vector takes all");
            assert!(Frame::read(&mut &written[..], to).is_ok(), "what was read is written so that it is read again");
        }
    }
});
