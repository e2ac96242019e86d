//! Helpers that report to the environment, or ask it: `ds_log`, `ds_now`, `ds_fail`.

use super::access::cost;
use crate::machine::{Fault, Machine};

/// Longest line that is passed on; the rest is cut off.
pub const LOG_LINE_BYTES_MAX: u64 = 256;

/// `ds_log(msg, len)`.
pub(super) fn ds_log(machine: &mut Machine, [message, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    let line = line(machine, message, len)?;
    machine.environment().log(&line);
    Ok(0)
}

/// `ds_fail(error, why, len)`.
pub(super) fn ds_fail(machine: &mut Machine, [error, why, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    let why = line(machine, why, len)?;
    machine.environment().fail(&why);
    Ok(error.wrapping_neg())
}

/// A copy, because a line is the machine's memory and the environment its other half.
fn line(machine: &mut Machine, text: u64, len: u64) -> Result<Vec<u8>, Fault> {
    machine.check_read(text, len)?;
    let len = len.min(LOG_LINE_BYTES_MAX);
    machine.charge(1 + cost(len))?;
    Ok(machine.bytes(text, len)?.to_vec())
}

/// `ds_now()`.
pub(super) fn ds_now(machine: &mut Machine, _: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1)?;
    Ok(machine.environment().now_ns())
}
