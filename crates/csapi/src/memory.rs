//! Device memory.

use crate::allocation::{ALLOCATIONS, Allocation};
use crate::device::{Counted, no_handle, opened};
use crate::raw::{put, structure};
use crate::status::{
    CS_COULD_NOT_MAP_MEMORY, CS_INVALID_OPTION, CS_MEMORY_IN_USE, CS_STATUS, CS_SUCCESS, Done, Failure, guard,
};
use crate::types::{CS_DEV_HANDLE, CS_FDM_CLEAR, CS_FDM_FILL, CS_MEM_HANDLE, CS_MEM_PTR, CsMemFlags};
use std::ffi::{c_int, c_ulong};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Allocates device memory. MemFlags may be NULL; VAddressPtr must be, since memory of a server cannot be mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csAllocMem(
    DevHandle: CS_DEV_HANDLE,
    Bytes: c_int,
    MemFlags: *const CsMemFlags,
    MemHandle: *mut CS_MEM_HANDLE,
    VAddressPtr: *mut CS_MEM_PTR,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        let len = u64::try_from(Bytes).ok().filter(|len| *len > 0);
        let len = len.ok_or_else(|| Failure::argument(format!("{Bytes} bytes cannot be allocated")))?;
        if MemHandle.is_null() {
            return Err(Failure::null("MemHandle"));
        }
        // SAFETY: the caller keeps the crate's contract.
        let filling = unsafe { Filling::of(MemFlags)? };
        if !VAddressPtr.is_null() {
            return Err(Failure::new(
                CS_COULD_NOT_MAP_MEMORY,
                "memory of a server cannot be mapped: pass NULL, and copy",
            ));
        }
        opened.device.check()?;
        let allocation = Allocation::new(DevHandle, &opened, len)?;
        if let Err(failure) = filling.fill(&allocation, 0, len) {
            drop(allocation.free());
            return Err(failure);
        }
        // SAFETY: the caller keeps the crate's contract.
        unsafe { put(MemHandle, ALLOCATIONS.insert(Arc::new(allocation))) };
        Ok(CS_SUCCESS)
    })
}

/// Frees device memory. MemFlags may be NULL; otherwise the memory is cleared or filled first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csFreeMem(MemHandle: CS_MEM_HANDLE, MemFlags: *const CsMemFlags) -> CS_STATUS {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let filling = unsafe { Filling::of(MemFlags)? };
        let in_use = || Failure::new(CS_MEMORY_IN_USE, "requests use the memory: wait until they have completed");
        let unused = |allocation: &Arc<Allocation>| match allocation.uses().load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(in_use()),
        };
        let allocation = ALLOCATIONS.remove_if(MemHandle, unused).ok_or_else(|| no_handle(MemHandle))??;
        let filled = if allocation.device.is_up() { filling.fill(&allocation, 0, allocation.len()) } else { Ok(()) };
        allocation.free()?;
        filled.map(|()| CS_SUCCESS)
    })
}

/// Clears or fills a part of device memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csInitMem(
    MemHandle: CS_MEM_HANDLE,
    ByteOffset: c_ulong,
    Bytes: c_int,
    MemFlags: *const CsMemFlags,
) -> CS_STATUS {
    guard(|| {
        let allocation = ALLOCATIONS.with(MemHandle, crate::device::InUse::new).ok_or_else(|| no_handle(MemHandle))?;
        let len = u64::try_from(Bytes).map_err(|_| Failure::argument(format!("{Bytes} bytes cannot be set")))?;
        if MemFlags.is_null() {
            return Err(Failure::null("MemFlags"));
        }
        // SAFETY: the caller keeps the crate's contract.
        let filling = unsafe { Filling::of(MemFlags)? };
        if filling == Filling::Nothing {
            return Err(Failure::new(CS_INVALID_OPTION, "Flags must say CS_FDM_CLEAR or CS_FDM_FILL"));
        }
        allocation.device.check()?;
        allocation.place(ByteOffset, len)?;
        filling.fill(&allocation, ByteOffset, len).map(|()| CS_SUCCESS)
    })
}

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    Nothing,
    Word(u32),
}

impl Filling {
    /// # Safety
    /// The crate's contract.
    unsafe fn of(flags: *const CsMemFlags) -> Done<Self> {
        if flags.is_null() {
            return Ok(Self::Nothing);
        }
        // SAFETY: the caller's promise.
        let flags = unsafe { structure(flags, "MemFlags")? };
        let invalid = |why: String| Failure::new(CS_INVALID_OPTION, why);
        if flags.FDMId != 0 {
            return Err(invalid(format!("FDMId is {}, and a CSx has memory 0 only", flags.FDMId)));
        }
        match flags.Flags {
            0 => Ok(Self::Nothing),
            CS_FDM_CLEAR => Ok(Self::Word(0)),
            CS_FDM_FILL => Ok(Self::Word(flags.FillValue)),
            other => Err(invalid(format!("Flags is {other}, and neither CS_FDM_CLEAR nor CS_FDM_FILL"))),
        }
    }

    fn fill(self, allocation: &Allocation, offset: u64, len: u64) -> Done<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Word(_) if len == 0 => Ok(()),
            Self::Word(word) => allocation.fill(offset, len, word),
        }
    }
}
