//! Which CSxes there are, and what they have.

use crate::access::CSE_SUFFIX;
use crate::config::{self, Csx};
use crate::device::{Device, opened};
use crate::functions;
use crate::raw::{bytes_of, give, give_names, name_of, put, text};
use crate::status::{
    CS_DEVICE_NOT_PRESENT, CS_ENODEV, CS_ENOENT, CS_ENTITY_NOT_ON_DEVICE, CS_STATUS, CS_SUCCESS, Done, Failure, guard,
};
use crate::types::{CS_DEV_HANDLE, CSFUniqueId};
use std::ffi::{c_char, c_int, c_uint};
use std::path::Path;
use std::sync::Arc;

/// The names of the CSxes that are configured, with commas between them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryCSxList(Length: *mut c_int, Buffer: *mut c_char) -> CS_STATUS {
    guard(|| {
        let names: Vec<String> = config::configured()?.iter().map(|csx| csx.name.clone()).collect();
        // SAFETY: the caller keeps the crate's contract.
        unsafe {
            give_names(&names, Length, Buffer)?;
            if names.is_empty() {
                put(Length, 0);
                let why = format!("{} lists none: diskside://HOST[:PORT] ...", config::VARIABLE);
                return Err(Failure::new(CS_DEVICE_NOT_PRESENT, why));
            }
        }
        Ok(CS_SUCCESS)
    })
}

/// The names of the CSEs of all configured CSxes that have a function of this name; of all that can be reached, if it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryCSEList(
    FunctionName: *const c_char,
    Length: *mut c_int,
    Buffer: *mut c_char,
) -> CS_STATUS {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let wanted = unsafe { (!FunctionName.is_null()).then(|| text(FunctionName, "FunctionName")).transpose()? };
        let mut names = Vec::new();
        for csx in config::configured()? {
            let Ok(device) = Device::get(csx) else { continue };
            let has = |name| functions::by_name(&device, name).is_ok_and(|found| found.is_some());
            if wanted.is_none_or(has) {
                names.push(format!("{}{CSE_SUFFIX}", csx.name));
            }
        }
        // SAFETY: as above.
        unsafe {
            give_names(&names, Length, Buffer)?;
            if names.is_empty() {
                put(Length, 0);
                return Err(Failure::new(CS_ENTITY_NOT_ON_DEVICE, "no CSx that can be reached has the function"));
            }
        }
        Ok(CS_SUCCESS)
    })
}

/// The functions of a CSx, named by its name, a URL, or the path of a file that is on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryCSFList(
    Path: *const c_char,
    Length: *mut c_int,
    Count: *mut c_int,
    Buffer: *mut CSFUniqueId,
) -> CS_STATUS {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let path = unsafe { text(Path, "Path")? };
        let listed = functions::list(&*device_of(path)?)?;
        let mut bytes = Vec::with_capacity(listed.len() * size_of::<CSFUniqueId>());
        for function in &listed {
            let id = CSFUniqueId { UniqueName: name_of(&function.name), GlobalId: function.global_id };
            // SAFETY: 32 bytes and 8 more: it has no padding.
            bytes.extend_from_slice(unsafe { bytes_of(&id) });
        }
        // SAFETY: as above.
        unsafe {
            put(Count, listed.len() as c_int);
            give(&bytes, Length, Buffer.cast())?;
        }
        Ok(CS_SUCCESS)
    })
}

/// The names of the functions of a CSx, with commas between them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryFunctionList(
    Path: *const c_char,
    Length: *mut c_int,
    Buffer: *mut c_char,
) -> CS_STATUS {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let path = unsafe { text(Path, "Path")? };
        let names: Vec<String> = functions::list(&*device_of(path)?)?.into_iter().map(|listed| listed.name).collect();
        // SAFETY: as above.
        unsafe { give_names(&names, Length, Buffer)? };
        Ok(CS_SUCCESS)
    })
}

/// The name of the CSx that a file or directory is on: one that this machine sees, or a URL of an export, a file or a volume. The
/// server is not asked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csGetCSxFromPath(Path: *const c_char, Length: *mut c_uint, DevName: *mut c_char) -> CS_STATUS {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let path = unsafe { text(Path, "Path")? };
        let csx = csx_of(path)?;
        // SAFETY: as above; both are numbers of 32 bits.
        unsafe { give_names(&[csx.name], Length.cast(), DevName)? };
        Ok(CS_SUCCESS)
    })
}

/// The name of the CSE of a CSx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csGetCSEFromCSx(
    DevHandle: CS_DEV_HANDLE,
    Length: *mut c_uint,
    CSEName: *mut c_char,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        let name = format!("{}{CSE_SUFFIX}", opened.device.csx.name);
        // SAFETY: the caller keeps the crate's contract; both are numbers of 32 bits.
        unsafe { give_names(&[name], Length.cast(), CSEName)? };
        Ok(CS_SUCCESS)
    })
}

/// The CSx that a name, a URL or a path means.
fn csx_of(path: &str) -> Done<Csx> {
    let name = path.strip_suffix(CSE_SUFFIX).unwrap_or(path);
    if let Some((csx, _)) = config::find(name)? {
        return Ok(csx);
    }
    let whole = Path::new(path).canonicalize().map_err(|error| {
        let status = if path.contains('/') { CS_ENOENT } else { CS_ENODEV };
        Failure::new(status, format!("{path}: {error}"))
    })?;
    let on = config::configured()?.iter().find(|csx| csx.export_path(&whole).is_some());
    on.cloned().ok_or_else(|| {
        let why = format!("{path} is in no directory that {} says is of a CSx (mount=)", config::VARIABLE);
        Failure::new(CS_ENTITY_NOT_ON_DEVICE, why)
    })
}

fn device_of(path: &str) -> Done<Arc<Device>> {
    Device::get(&csx_of(path)?)
}
