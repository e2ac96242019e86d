//! Opening and closing CSxes and their CSEs.

use crate::allocation::ALLOCATIONS;
use crate::config;
use crate::device::{Counted, Device, OPENED, Opened, no_handle};
use crate::functions::Csf;
use crate::raw::{put, text};
use crate::status::{CS_ENODEV, CS_HANDLE_IN_USE, CS_INVALID_HANDLE, CS_STATUS, CS_SUCCESS, Done, Failure, guard};
use crate::types::{CS_CSE_HANDLE, CS_DEV_HANDLE};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a CSE's name ends with.
pub(crate) const CSE_SUFFIX: &str = "#cse0";

/// Opens a CSx by its name, or by the URL of a server. DevContext is ignored: there are no notifications.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csOpenCSx(
    DevName: *const c_char,
    DevContext: *mut c_void,
    DevHandle: *mut CS_DEV_HANDLE,
) -> CS_STATUS {
    let _ = DevContext;
    // SAFETY: the caller keeps the crate's contract.
    guard(|| unsafe { open(DevName, DevHandle, false) })
}

/// Closes a CSx. Its device memory is freed, and its functions become invalid.
#[unsafe(no_mangle)]
pub extern "C" fn csCloseCSx(DevHandle: CS_DEV_HANDLE) -> CS_STATUS {
    guard(|| close(DevHandle, false))
}

/// Opens the CSE of a CSx by its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csOpenCSE(
    CSEName: *const c_char,
    CSEContext: *mut c_void,
    CSEHandle: *mut CS_CSE_HANDLE,
) -> CS_STATUS {
    let _ = CSEContext;
    // SAFETY: the caller keeps the crate's contract.
    guard(|| unsafe { open(CSEName, CSEHandle, true) })
}

/// Closes a CSE. Functions that were found with it become invalid.
#[unsafe(no_mangle)]
pub extern "C" fn csCloseCSE(CSEHandle: CS_CSE_HANDLE) -> CS_STATUS {
    guard(|| close(CSEHandle, true))
}

/// # Safety
/// The crate's contract.
unsafe fn open(name: *const c_char, handle: *mut CS_DEV_HANDLE, is_cse: bool) -> Done<CS_STATUS> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name, "the name")? };
    if handle.is_null() {
        return Err(Failure::null("the place for the handle"));
    }
    let of_csx = if is_cse { name.strip_suffix(CSE_SUFFIX) } else { Some(name) };
    let found = of_csx.map(config::find).transpose()?.flatten();
    let what = if is_cse { "CSE" } else { "CSx" };
    let unknown = || {
        let why =
            format!("no {what} is called `{name}`: {} lists CSxes, and a URL of a server is one", config::VARIABLE);
        Failure::new(CS_ENODEV, why)
    };
    let (csx, _) = found.ok_or_else(unknown)?;
    let opened = Opened { device: Device::get(&csx)?, is_cse, uses: AtomicUsize::new(0) };
    // SAFETY: as above.
    unsafe { put(handle, OPENED.insert(Arc::new(opened))) };
    Ok(CS_SUCCESS)
}

fn close(handle: CS_DEV_HANDLE, is_cse: bool) -> Done<CS_STATUS> {
    let of_handle = || ALLOCATIONS.list().into_iter().filter(|(_, memory)| memory.owner.0 == handle.addr());
    let idle = |opened: &Arc<Opened>| {
        if opened.is_cse != is_cse {
            let why = if is_cse { "it is a CSx: csCloseCSx closes it" } else { "it is a CSE: csCloseCSE closes it" };
            return Err(Failure::new(CS_INVALID_HANDLE, why));
        }
        let in_use = |count: usize| count > 0;
        match in_use(opened.uses().load(Ordering::SeqCst))
            || of_handle().any(|(_, memory)| in_use(memory.uses().load(Ordering::SeqCst)))
        {
            true => Err(Failure::new(CS_HANDLE_IN_USE, "requests use it: wait until they have completed")),
            false => Ok(()),
        }
    };
    OPENED.remove_if(handle, idle).ok_or_else(|| no_handle(handle))??;
    for (memory, allocation) in of_handle() {
        if ALLOCATIONS.remove(memory).is_some() {
            // What a server that went away kept is gone, too.
            drop(allocation.free());
        }
    }
    Csf::forget_owner(handle);
    Ok(CS_SUCCESS)
}
