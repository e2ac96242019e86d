//! Helpers with effects: `ds_log` and `ds_now`. What they do comes from the environment.

use super::access::cost;
use crate::machine::{Fault, Machine};

/// Longest line that `ds_log` passes on; the rest is cut off.
pub const LOG_LINE_BYTES_MAX: u64 = 1024;
/// Lines that an environment should pass on for each call of a program; it counts the others.
pub const LOG_LINES_PER_CALL_MAX: u32 = 16;

/// The rate limit of `ds_log`, for environments: the first lines of a call pass, the rest is counted.
#[derive(Clone, Debug, Default)]
pub struct LogLimit {
    passed: u32,
    dropped: u64,
}

impl LogLimit {
    /// Whether the next line passes.
    pub fn admit(&mut self) -> bool {
        if self.passed < LOG_LINES_PER_CALL_MAX {
            self.passed += 1;
            true
        } else {
            self.dropped += 1;
            false
        }
    }

    /// Ends a call: the number of lines that did not pass. The next call starts afresh.
    pub fn end_call(&mut self) -> u64 {
        std::mem::take(self).dropped
    }
}

/// `ds_log(msg, len)`.
pub(super) fn ds_log(machine: &mut Machine, [message, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.check_read(message, len)?;
    let len = len.min(LOG_LINE_BYTES_MAX);
    machine.charge(1 + cost(len))?;
    // A copy, because the line is the machine's memory and the environment its other half.
    let line = machine.bytes(message, len)?.to_vec();
    machine.environment().log(&line);
    Ok(0)
}

/// `ds_now()`.
pub(super) fn ds_now(machine: &mut Machine, _: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1)?;
    Ok(machine.environment().now_ns())
}
