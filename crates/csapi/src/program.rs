//! Finding, loading and stopping functions.

use crate::device::{Device, Opened, opened};
use crate::functions::{self, Csf, Listed};
use crate::queue::abort_where;
use crate::raw::{bytes_of, give, name_in, name_of, put, structure, text};
use crate::status::{
    CS_INVALID_FUNCTION, CS_INVALID_FUNCTION_NAME, CS_INVALID_ID, CS_INVALID_OPTION, CS_LOAD_ERROR, CS_STATUS,
    CS_SUCCESS, CS_UNSUPPORTED, Done, Failure, guard,
};
use crate::types::{
    CS_BPF_PROGRAM, CS_CSE_HANDLE, CS_CSF_BPF_PROGRAM, CS_CSF_ID, CS_DEV_HANDLE, CSFIdInfo, CsCSFDownloadInfo,
    CsDownloadInfo, CsFunctionInfo, FDMAccess, FDMFlags,
};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

/// The longest object that is taken.
const OBJECT_LEN_MAX: usize = 64 << 20;
/// The abilities of its memory: it is cleared on demand, not managed by the device and not mapped.
pub(crate) const FDM_FLAGS: FDMFlags = FDMFlags(1 << 2 | 1 << 3);

/// Finds a function by its name, or if that is NULL by its GlobalId. A name may end with arguments: "grep?pattern=ERROR&row_len=0".
/// The buffer holds a CSFIdInfo and behind it the memories that the function reaches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csGetCSFId(
    DevHandle: CS_DEV_HANDLE,
    CSFName: *const c_char,
    GlobalId: u64,
    Length: *mut c_int,
    Count: *mut c_int,
    Buffer: *mut CSFIdInfo,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        opened.device.check()?;
        // SAFETY: the caller keeps the crate's contract.
        let name = unsafe { (!CSFName.is_null()).then(|| text(CSFName, "CSFName")).transpose()? };
        let id = find(DevHandle, &opened, name, GlobalId)?;
        let engines = opened.device.compute.capabilities().engines.get();
        let mut info = MaybeUninit::<CSFIdInfo>::zeroed();
        let mut access = MaybeUninit::<FDMAccess>::zeroed();
        // SAFETY: zeroes are a value of each; the bytes between the fields stay zero.
        let bytes = unsafe {
            let info = info.assume_init_mut();
            (info.CSFId, info.RelativePerformance, info.NumFDMs) = (id, 5, 1);
            info.Count = engines.clamp(1, 10) as u8;
            info.FDMList = if Buffer.is_null() { std::ptr::null_mut() } else { Buffer.wrapping_add(1).cast() };
            let access = access.assume_init_mut();
            (access.RelativePerformance, access.Flags) = (5, FDM_FLAGS);
            [bytes_of(info), bytes_of(access)].concat()
        };
        // SAFETY: the caller keeps the crate's contract.
        unsafe {
            put(Count, 1);
            give(&bytes, Length, Buffer.cast())?;
        }
        Ok(CS_SUCCESS)
    })
}

/// Finds a function by its name, as csGetCSFId does. Context is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csGetFunction(
    CSEHandle: CS_CSE_HANDLE,
    FunctionName: *const c_char,
    Context: *mut c_void,
    FunctionId: *mut CS_CSF_ID,
) -> CS_STATUS {
    let _ = Context;
    guard(|| {
        let opened = opened(CSEHandle)?;
        opened.device.check()?;
        // SAFETY: the caller keeps the crate's contract.
        let name = unsafe { text(FunctionName, "FunctionName")? };
        if FunctionId.is_null() {
            return Err(Failure::null("FunctionId"));
        }
        let id = find(CSEHandle, &opened, Some(name), 0)?;
        // SAFETY: as above.
        unsafe { put(FunctionId, id) };
        Ok(CS_SUCCESS)
    })
}

fn find(handle: CS_DEV_HANDLE, opened: &Opened, name: Option<&str>, global_id: u64) -> Done<CS_CSF_ID> {
    let device = &opened.device;
    let (listed, given) = match name {
        Some(name) => {
            let (name, given) = name.split_once('?').unwrap_or((name, ""));
            let unknown = || {
                let why = format!("{} has no function `{name}`; csQueryCSFList lists them", device.csx.name);
                Failure::new(CS_INVALID_FUNCTION_NAME, why)
            };
            (functions::by_name(device, name)?.ok_or_else(unknown)?, given)
        }
        None if global_id == 0 => return Err(Failure::argument("a function is named by CSFName or by GlobalId")),
        None => {
            let found = functions::list(device)?.into_iter().find(|listed| listed.global_id == global_id);
            let unknown = || {
                let why = format!("{} has no function {global_id:#018x}", device.csx.name);
                Failure::new(CS_INVALID_ID, why)
            };
            (found.ok_or_else(unknown)?, "")
        }
    };
    Csf::find(handle, opened, listed, given)
}

/// The functions of a CSx that can be run over device memory, with their numbers. Size is as Length elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryDeviceForComputeList(
    DevHandle: CS_DEV_HANDLE,
    Size: *mut c_int,
    FunctionInfo: *mut CsFunctionInfo,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        opened.device.check()?;
        let units = opened.device.compute.capabilities().engines.get().clamp(1, 255) as u8;
        let mut bytes = Vec::new();
        for listed in functions::list(&opened.device)? {
            let name = name_of(&listed.name);
            match Csf::find(DevHandle, &opened, listed, "") {
                Ok(id) => {
                    let mut info = MaybeUninit::<CsFunctionInfo>::zeroed();
                    // SAFETY: zeroes are a value of it; the bytes between the fields stay zero.
                    bytes.extend_from_slice(unsafe {
                        let info = info.assume_init_mut();
                        (info.FunctionId, info.NumUnits, info.Name) = (id, units, name);
                        bytes_of(info)
                    });
                }
                Err(failure) if failure.status == CS_INVALID_FUNCTION => {}
                Err(failure) => return Err(failure),
            }
        }
        // SAFETY: the caller keeps the crate's contract.
        unsafe { give(&bytes, Size, FunctionInfo.cast())? };
        Ok(CS_SUCCESS)
    })
}

/// Loads a program, an eBPF object, and gives the number of its function; or unloads one that this machine loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csCSFDownload(
    DevHandle: CS_DEV_HANDLE,
    Info: *const CsCSFDownloadInfo,
    CSFId: *mut CS_CSF_ID,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        // SAFETY: the caller keeps the crate's contract.
        let info = unsafe { structure(Info, "Info")? };
        check_type(info.Type == CS_CSF_BPF_PROGRAM, info.SubType)?;
        if info.CSEEId != 0 {
            return Err(Failure::new(CS_INVALID_OPTION, format!("CSEEId is {}, and a CSx has 0 only", info.CSEEId)));
        }
        opened.device.check()?;
        let name = Some(name_in(&info.common.UniqueName)?).filter(|name| !name.is_empty());
        if info.common.Unload != 0 {
            return unload_where(&opened.device, |listed| match &name {
                Some(name) => listed.name == *name,
                None => listed.global_id == info.GlobalId,
            });
        }
        // SAFETY: as above.
        let object = unsafe { object(info.common.DataBuffer, info.common.Length)? };
        let id = load(DevHandle, &opened, object, name.as_deref())?;
        // SAFETY: as above.
        unsafe { put(CSFId, id) };
        Ok(CS_SUCCESS)
    })
}

/// Loads or unloads a program, an eBPF object. csGetFunction finds its functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csDownload(DevHandle: CS_DEV_HANDLE, ProgramInfo: *const CsDownloadInfo) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        // SAFETY: the caller keeps the crate's contract.
        let info = unsafe { structure(ProgramInfo, "ProgramInfo")? };
        check_type(info.Type == CS_BPF_PROGRAM, info.SubType)?;
        opened.device.check()?;
        // SAFETY: as above.
        let object = unsafe { object(info.DataBuffer, info.Length)? };
        if info.Unload != 0 {
            let program = opened.device.compute.load(object)?;
            return unload_where(&opened.device, |listed| listed.program.sha256 == program.sha256);
        }
        check_object(&opened.device, object, None)?;
        opened.device.compute.load(object)?;
        Ok(CS_SUCCESS)
    })
}

fn check_type(is_bpf: bool, sub_type: i32) -> Done<()> {
    match (is_bpf, sub_type) {
        (true, 0) => Ok(()),
        (true, _) => Err(Failure::new(CS_INVALID_OPTION, format!("SubType is {sub_type}, and must be 0"))),
        (false, _) => Err(Failure::new(CS_UNSUPPORTED, "programs are eBPF objects")),
    }
}

/// # Safety
/// The crate's contract.
unsafe fn object<'a>(bytes: *const c_void, len: c_int) -> Done<&'a [u8]> {
    let len = usize::try_from(len).ok().filter(|len| (1..=OBJECT_LEN_MAX).contains(len));
    let len = len.ok_or_else(|| Failure::argument(format!("Length is not from 1 to {OBJECT_LEN_MAX}")))?;
    if bytes.is_null() {
        return Err(Failure::null("DataBuffer"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
}

/// Looks at an object here: what the server says of one that is wrong is the same, and costs more.
fn check_object(device: &Device, object: &[u8], name: Option<&str>) -> Done<Option<String>> {
    match functions::resolve(device, object, name) {
        Ok(function) => Ok(Some(function.name().to_owned())),
        // One with several functions, none of which is named, is loaded, too.
        Err(_) if name.is_none() && functions::are_several(device, object) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn load(handle: CS_DEV_HANDLE, opened: &Opened, object: &[u8], name: Option<&str>) -> Done<CS_CSF_ID> {
    let device = &opened.device;
    let several = || Failure::new(CS_LOAD_ERROR, "the object has several functions: UniqueName says which is meant");
    let name = check_object(device, object, name)?.ok_or_else(several)?;
    let program = device.compute.load(object)?;
    Csf::find(handle, opened, Listed::new(name, program), "")
}

fn unload_where(device: &Device, which: impl Fn(&Listed) -> bool) -> Done<CS_STATUS> {
    let found = functions::list(device)?.into_iter().find(|listed| listed.program.own && which(listed));
    let unknown = || Failure::new(CS_INVALID_ID, "this machine has loaded no such function there");
    let program = found.ok_or_else(unknown)?.program;
    device.compute.unload(program.index)?;
    Csf::forget_program(device, &program);
    Ok(CS_SUCCESS)
}

/// Gives up the requests of this process that run a function.
#[unsafe(no_mangle)]
pub extern "C" fn csStopFunction(FunctionId: CS_CSF_ID) -> CS_STATUS {
    guard(|| {
        let unknown = |_| Failure::new(CS_INVALID_ID, format!("{FunctionId} is no function"));
        let csf = Csf::of(FunctionId).map_err(unknown)?;
        abort_where(|task| task.runs(&csf));
        Ok(CS_SUCCESS)
    })
}

/// Gives up the requests of this process that a CSE, or a CSx, has.
#[unsafe(no_mangle)]
pub extern "C" fn csAbortCSE(CSEHandle: CS_CSE_HANDLE) -> CS_STATUS {
    guard(|| {
        let opened = opened(CSEHandle)?;
        abort_where(|task| task.is_of(&opened.device.csx.name));
        Ok(CS_SUCCESS)
    })
}
