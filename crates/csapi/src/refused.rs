//! What does not map onto Diskside.

use crate::device::opened;
use crate::raw::{give_names, put};
use crate::status::{CS_INVALID_OPTION, CS_STATUS, CS_SUCCESS, Failure, guard};
use crate::types::{
    CS_ALLOC_STREAM_TYPE, CS_CAP_TYPE, CS_CSE_HANDLE, CS_DEV_HANDLE, CS_FILE_SYSTEMS_SUPPORTED, CS_LIBRARY_SUPPORT,
    CS_RESOURCE_TYPE, CS_STREAM_HANDLE, CsCapabilityInfo, CsConfigInfo, CsPluginRequest, CsQueryPluginRequest,
    csDevNotificationFn, csQueryPluginCallbackFn,
};
use std::ffi::{c_char, c_int};

/// Refused: servers send no notifications. The next request fails if a server went away.
#[unsafe(no_mangle)]
pub extern "C" fn csRegisterNotify(
    DevName: *const c_char,
    NotifyOptions: u32,
    NotifyFn: csDevNotificationFn,
) -> CS_STATUS {
    let _ = (DevName, NotifyOptions, NotifyFn);
    refuse("there are no notifications")
}

/// Refused, as csRegisterNotify is.
#[unsafe(no_mangle)]
pub extern "C" fn csDeregisterNotify(DevName: *const c_char, NotifyFn: csDevNotificationFn) -> CS_STATUS {
    let _ = (DevName, NotifyFn);
    refuse("there are no notifications")
}

/// Refused: requests that are not for one stream are not slower.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csAllocStream(
    DevHandle: CS_DEV_HANDLE,
    Type: CS_ALLOC_STREAM_TYPE,
    StreamHandle: *mut CS_STREAM_HANDLE,
) -> CS_STATUS {
    let _ = Type;
    guard(|| {
        opened(DevHandle)?;
        // SAFETY: the caller keeps the crate's contract.
        unsafe { put(StreamHandle, std::ptr::null_mut()) };
        Err(Failure::unsupported("there are no streams"))
    })
}

/// Refused, as csAllocStream is.
#[unsafe(no_mangle)]
pub extern "C" fn csFreeStream(StreamHandle: CS_STREAM_HANDLE) -> CS_STATUS {
    let _ = StreamHandle;
    refuse("there are no streams")
}

/// Refused: a server's limits are its operator's.
#[unsafe(no_mangle)]
pub extern "C" fn csSetDeviceCapability(
    DevHandle: CS_DEV_HANDLE,
    Type: CS_CAP_TYPE,
    Details: *const CsCapabilityInfo,
) -> CS_STATUS {
    let _ = (Type, Details);
    refuse_of(DevHandle, "what a server can is set by its operator")
}

/// Refused: a server's configuration is its operator's.
#[unsafe(no_mangle)]
pub extern "C" fn csConfig(CSEHandle: CS_CSE_HANDLE, Info: *const CsConfigInfo) -> CS_STATUS {
    let _ = Info;
    refuse_of(CSEHandle, "a server is configured by its operator; a function that is downloaded is active")
}

/// Refused: a server has other users.
#[unsafe(no_mangle)]
pub extern "C" fn csReset(DevHandle: CS_DEV_HANDLE, Type: CS_RESOURCE_TYPE) -> CS_STATUS {
    let _ = Type;
    refuse_of(
        DevHandle,
        "a server has other users: csAbortCSE gives up this program's requests, csCloseCSx frees its memory",
    )
}

/// Refused, as csReset is.
#[unsafe(no_mangle)]
pub extern "C" fn csResetCSE(CSEHandle: CS_CSE_HANDLE) -> CS_STATUS {
    refuse_of(CSEHandle, "a server has other users: csAbortCSE gives up this program's requests")
}

/// The file systems, by CS_FILE_SYSTEMS_SUPPORTED: "diskside".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryLibrarySupport(
    Type: CS_LIBRARY_SUPPORT,
    Length: *mut c_int,
    Buffer: *mut c_char,
) -> CS_STATUS {
    guard(|| match Type {
        CS_FILE_SYSTEMS_SUPPORTED => {
            // SAFETY: the caller keeps the crate's contract.
            unsafe { give_names(&["diskside".into()], Length, Buffer)? };
            Ok(CS_SUCCESS)
        }
        other => Err(Failure::new(CS_INVALID_OPTION, format!("Type of support is {other}"))),
    })
}

/// Refused: the library has no plugins.
#[unsafe(no_mangle)]
pub extern "C" fn csQueryPlugin(Req: *const CsQueryPluginRequest, CallbackFn: csQueryPluginCallbackFn) -> CS_STATUS {
    let _ = (Req, CallbackFn);
    refuse("there are no plugins")
}

/// Refused, as csQueryPlugin is.
#[unsafe(no_mangle)]
pub extern "C" fn csRegisterPlugin(Req: *const CsPluginRequest) -> CS_STATUS {
    let _ = Req;
    refuse("there are no plugins")
}

/// Refused, as csQueryPlugin is.
#[unsafe(no_mangle)]
pub extern "C" fn csDeregisterPlugin(Req: *const CsPluginRequest) -> CS_STATUS {
    let _ = Req;
    refuse("there are no plugins")
}

fn refuse(why: &str) -> CS_STATUS {
    guard(|| Err(Failure::unsupported(why)))
}

fn refuse_of(handle: CS_DEV_HANDLE, why: &str) -> CS_STATUS {
    guard(|| opened(handle).and_then(|_| Err(Failure::unsupported(why))))
}
