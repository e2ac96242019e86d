//! `ds_memcpy`, `ds_memmove`, `ds_memset`, `ds_memcmp`, and lambda-IO's reads and writes at an offset.

use super::access::{cost, steps};
use crate::machine::{Fault, Machine};
use std::cmp::Ordering;

/// `ds_memcpy(to, from, len)` and `ds_memmove`: the same, so that an overlap has one answer.
pub(super) fn ds_memmove(machine: &mut Machine, [to, from, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1)?;
    machine.copy(to, from, len)?;
    Ok(to)
}

/// `ds_memset(to, value, len)`.
pub(super) fn ds_memset(machine: &mut Machine, [to, value, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.check_write(to, len)?;
    machine.charge(1)?;
    for (offset, n) in steps(len) {
        machine.charge(cost(n))?;
        machine.bytes_mut(to + offset, n)?.fill(value as u8);
    }
    Ok(to)
}

/// `ds_memcmp(a, b, len)`.
pub(super) fn ds_memcmp(machine: &mut Machine, [a, b, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.check_read(a, len)?;
    machine.check_read(b, len)?;
    machine.charge(1)?;
    for (offset, n) in steps(len) {
        machine.charge(cost(n))?;
        let (x, y) = machine.bytes_pair((a + offset, n), (b + offset, n))?;
        match x.cmp(y) {
            Ordering::Less => return Ok(-1i64 as u64),
            Ordering::Equal => {}
            Ordering::Greater => return Ok(1),
        }
    }
    Ok(0)
}

/// `ds_lambda_mem_read(to, from, offset, len, boundary)`.
pub(super) fn ds_lambda_mem_read(
    machine: &mut Machine,
    [to, from, offset, len, boundary]: [u64; 5],
) -> Result<u64, Fault> {
    machine.check_write(to, len)?;
    let at = offset_within(offset, len, boundary)?;
    machine.charge(1)?;
    machine.copy(to, from.wrapping_add(at), len)?;
    Ok(len)
}

/// `ds_lambda_mem_write(to, from, offset, len, boundary)`.
pub(super) fn ds_lambda_mem_write(
    machine: &mut Machine,
    [to, from, offset, len, boundary]: [u64; 5],
) -> Result<u64, Fault> {
    machine.check_read(from, len)?;
    let at = offset_within(offset, len, boundary)?;
    machine.charge(1)?;
    machine.copy(to.wrapping_add(at), from, len)?;
    Ok(len)
}

/// Where an access of `len` bytes starts: at `offset`, or earlier if it would pass `boundary`. Offsets
/// are unsigned, as lambda-IO compares them: a negative one is far past any boundary.
fn offset_within(offset: u64, len: u64, boundary: u64) -> Result<u64, Fault> {
    let last = boundary.checked_sub(len).ok_or(Fault::Refused("len is greater than boundary"))?;
    Ok(offset.min(last))
}
