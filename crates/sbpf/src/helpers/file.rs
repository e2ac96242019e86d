//! `ds_pread`, `ds_pwrite` and what else programs of kind `kernel` do with their files.
//!
//! An error in the use of memory traps; the program handles an error with a file, as a negative errno. The bytes of
//! a read that was begun reach the program's memory in a wait, and not while its code runs: compiled code may read a value
//! twice and rely on having read the same.

use super::access::cost;
use crate::files::{Ended, FileFault, Files, OFFSET_MAX};
use crate::machine::{Fault, Machine};
use crate::region::RegionId;

/// `EBADF`, `EINVAL` and `ENOENT` of Linux.
const BAD_FILE: i32 = 9;
const INVALID: i32 = 22;
const NO_ENTRY: i32 = 2;

/// The longest access that is begun and waited for later.
pub(super) const SUBMIT_LEN_MAX: u64 = 512 << 10;

/// `ds_pread(file, buf, len, offset)`.
pub(super) fn ds_pread(machine: &mut Machine, [file, buf, len, offset, _]: [u64; 5]) -> Result<u64, Fault> {
    machine.check_write(buf, len)?;
    machine.charge(1 + cost(len))?;
    with_files(machine, offset, len, |machine, files| {
        let into = machine.bytes_mut(buf, len)?;
        Ok(files.read(file as u32, offset, into))
    })
}

/// `ds_pwrite(file, buf, len, offset)`.
pub(super) fn ds_pwrite(machine: &mut Machine, [file, buf, len, offset, _]: [u64; 5]) -> Result<u64, Fault> {
    machine.check_read(buf, len)?;
    machine.charge(1 + cost(len))?;
    with_files(machine, offset, len, |machine, files| {
        let bytes = machine.bytes(buf, len)?;
        Ok(files.write(file as u32, offset, bytes))
    })
}

/// `ds_file_len(file)`.
pub(super) fn ds_file_len(machine: &mut Machine, [file, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1)?;
    with_files(machine, 0, 0, |_, files| Ok(files.len_bytes(file as u32)))
}

/// `ds_sync(file)`.
pub(super) fn ds_sync(machine: &mut Machine, [file, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1)?;
    with_files(machine, 0, 0, |_, files| Ok(files.sync(file as u32).map(|()| 0)))
}

/// `ds_submit_read(file, buf, len, offset, cookie)`.
pub(super) fn ds_submit_read(machine: &mut Machine, [file, buf, len, offset, cookie]: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1 + cost(len.min(SUBMIT_LEN_MAX)))?;
    with_files(machine, offset, len, |machine, files| {
        // The verifier follows the values on the stack, and knows nothing of bytes that come later.
        if !matches!(RegionId::of(buf), Some(RegionId::HEAP | RegionId::OUTPUT | RegionId::DATA)) {
            return Err(Fault::Refused(
                "its bytes come later: they go to the heap, to the result or to a global variable",
            ));
        }
        machine.check_write(buf, len)?;
        if len > SUBMIT_LEN_MAX {
            return Ok(Err(FileFault::Errno(INVALID)));
        }
        Ok(files.begin_read(file as u32, offset, len, buf, cookie).map(|()| 0))
    })
}

/// `ds_submit_write(file, buf, len, offset, cookie)`.
pub(super) fn ds_submit_write(machine: &mut Machine, [file, buf, len, offset, cookie]: [u64; 5]) -> Result<u64, Fault> {
    machine.check_read(buf, len)?;
    machine.charge(1 + cost(len.min(SUBMIT_LEN_MAX)))?;
    with_files(machine, offset, len, |machine, files| {
        if len > SUBMIT_LEN_MAX {
            return Ok(Err(FileFault::Errno(INVALID)));
        }
        let bytes = machine.bytes(buf, len)?;
        Ok(files.begin_write(file as u32, offset, bytes, cookie).map(|()| 0))
    })
}

/// `ds_wait(cookie)`.
pub(super) fn ds_wait(machine: &mut Machine, [cookie, ..]: [u64; 5]) -> Result<u64, Fault> {
    machine.charge(1)?;
    with_files(machine, 0, 0, |machine, files| {
        let mut result = Ok(Err(FileFault::Errno(NO_ENTRY)));
        let waited = files.wait(Some(cookie), &mut |ended| result = deliver(machine, &ended).map(Ok));
        match waited {
            Ok(_) => result,
            Err(fault) => Ok(Err(fault)),
        }
    })
}

/// `ds_wait_any(cookies, results, n)`.
pub(super) fn ds_wait_any(machine: &mut Machine, [cookies, results, n, ..]: [u64; 5]) -> Result<u64, Fault> {
    let len = n.saturating_mul(8);
    machine.check_write(cookies, len)?;
    machine.check_write(results, len)?;
    machine.charge(1 + cost(len))?;
    with_files(machine, 0, 0, |machine, files| {
        let (mut count, mut failed) = (0_u64, None);
        let mut take = |machine: &mut Machine, ended: Ended<'_>| {
            let told = deliver(machine, &ended).and_then(|result| {
                machine.bytes_mut(cookies + 8 * count, 8)?.copy_from_slice(&ended.cookie.to_le_bytes());
                machine.bytes_mut(results + 8 * count, 8)?.copy_from_slice(&result.to_le_bytes());
                Ok(())
            });
            failed = failed.take().or(told.err());
            count += 1;
        };
        if n == 0 {
            return Ok(Ok(0));
        }
        match files.wait(None, &mut |ended| take(machine, ended)) {
            Err(fault) => return Ok(Err(fault)),
            Ok(false) => return Ok(Ok(0)),
            Ok(true) => {}
        }
        for _ in 1..n {
            if !files.take_ended(&mut |ended| take(machine, ended)) {
                break;
            }
        }
        failed.map_or(Ok(Ok(count)), Err)
    })
}

/// Puts the bytes that were read where they belong; returns the result as programs see it.
fn deliver(machine: &mut Machine, ended: &Ended<'_>) -> Result<u64, Fault> {
    if !ended.bytes.is_empty() {
        machine.bytes_mut(ended.address, ended.bytes.len() as u64)?.copy_from_slice(ended.bytes);
    }
    Ok(match ended.result {
        Ok(moved) => moved,
        Err(errno) => negative(errno),
    })
}

/// Works on the files of the call, if it has some, and turns a fault of theirs into what the program sees.
fn with_files(
    machine: &mut Machine,
    offset: u64,
    len: u64,
    work: impl FnOnce(&mut Machine, &mut dyn Files) -> Result<Result<u64, FileFault>, Fault>,
) -> Result<u64, Fault> {
    let Some(mut files) = machine.files else { return Ok(negative(BAD_FILE)) };
    if offset.checked_add(len).is_none_or(|end| end > OFFSET_MAX) {
        return Ok(negative(INVALID));
    }
    // SAFETY: the code that put it there borrowed it for the call alone (`Activation::call_with_files`), it is not part of
    // the machine, and no helper is called while another runs: this is the only reference.
    let files = unsafe { files.as_mut() };
    match work(machine, files)? {
        Ok(value) => Ok(value),
        Err(FileFault::Errno(errno)) => Ok(negative(errno)),
        Err(FileFault::Interrupted) => {
            machine.look()?;
            Err(Fault::Refused("the access was interrupted"))
        }
    }
}

fn negative(errno: i32) -> u64 {
    (-i64::from(errno)).cast_unsigned()
}
