//! Helpers with effects: `ds_log` and `ds_now`. What they do comes from the environment.

use super::access::cost;
use crate::machine::{Fault, Machine};

/// Longest line that `ds_log` passes on; the rest is cut off.
pub const LOG_LINE_BYTES_MAX: u64 = 256;

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
