//! `ds_crc32c` and `ds_hash64`.

use super::access::{cost, steps};
use crate::machine::{Fault, Machine};
use crc_fast::{CrcAlgorithm, Digest};
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// `ds_crc32c(seed, p, len)`: CRC-32C (Castagnoli) as in iSCSI and NVMe/TCP digests. The seed is the
/// CRC of what came before, 0 at the start.
pub(super) fn ds_crc32c(machine: &mut Machine, [seed, p, len, ..]: [u64; 5]) -> Result<u64, Fault> {
    let state = u64::from(!(seed as u32));
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
    over(machine, p, len, |bytes| digest.update(bytes))?;
    Ok(digest.finalize())
}

/// `ds_hash64(p, len, seed)`: XXH3, 64 bits.
pub(super) fn ds_hash64(machine: &mut Machine, [p, len, seed, ..]: [u64; 5]) -> Result<u64, Fault> {
    const SHORT_BYTES: u64 = super::access::STEP_BYTES;
    if len <= SHORT_BYTES {
        let mut hash = 0;
        over(machine, p, len, |bytes| hash = XxHash3_64::oneshot_with_seed(seed, bytes))?;
        return Ok(if len == 0 { XxHash3_64::oneshot_with_seed(seed, &[]) } else { hash });
    }
    let mut hasher = XxHash3_64::with_seed(seed);
    over(machine, p, len, |bytes| hasher.write(bytes))?;
    Ok(hasher.finish())
}

fn over(machine: &mut Machine, p: u64, len: u64, mut f: impl FnMut(&[u8])) -> Result<(), Fault> {
    machine.check_read(p, len)?;
    machine.charge(1)?;
    for (offset, n) in steps(len) {
        machine.charge(cost(n))?;
        f(machine.bytes(p + offset, n)?);
    }
    Ok(())
}
