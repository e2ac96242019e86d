//! What CSxes are, can and did.

use crate::access::CSE_SUFFIX;
use crate::allocation::largest_gap;
use crate::batch::ENTRIES_MAX;
use crate::device::{Device, opened};
use crate::functions::{self, Csf};
use crate::program::FDM_FLAGS;
use crate::raw::{bytes_of, give, name_of, put, structure};
use crate::request::ARGUMENTS_MAX;
use crate::status::{CS_STATUS, CS_SUCCESS, CS_UNSUPPORTED, Done, Failure, guard};
use crate::types::{
    CS_CSE_TYPE, CS_CSF_ID, CS_CSx_TYPE, CS_DEV_HANDLE, CS_FDM_TYPE, CS_RESOURCE_TYPE, CS_STAT_CSE_USAGE,
    CS_STAT_CSx_MEM_USAGE, CS_STAT_FUNCTION, CS_STAT_TYPE, CSEAccess, CSEProperties, CSEUsage, CSFUsage, CSxFlags,
    CSxMemory, CSxProperties, CsCapabilities, CsFunctionBitSelect, CsStatsInfo, FDMProperties,
};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of CsFunctionBitSelect.
const REGULAR_EXPRESSIONS: u64 = 1 << 9;
const FILTERS_OF_TABLES: u64 = 1 << 10;
const CUSTOM: u64 = 1 << 13;

/// The properties of a CSx (CS_CSx_TYPE: a CSxProperties), its CSE (CS_CSE_TYPE: a CSEProperties) or its memory
/// (CS_FDM_TYPE: an FDMProperties, followed by its CSEAccess). In C, Type may be left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryDeviceProperties(
    DevHandle: CS_DEV_HANDLE,
    Type: CS_RESOURCE_TYPE,
    Length: *mut c_int,
    Buffer: *mut c_void,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        opened.device.check()?;
        let bytes = match Type {
            CS_CSx_TYPE => of_csx(&opened.device)?,
            CS_CSE_TYPE => of_cse(&opened.device)?,
            CS_FDM_TYPE => of_memory(&opened.device, Buffer),
            other => {
                return Err(Failure::new(CS_UNSUPPORTED, format!("nothing is told of resources of type {other}")));
            }
        };
        // SAFETY: the caller keeps the crate's contract.
        unsafe { give(&bytes, Length, Buffer)? };
        Ok(CS_SUCCESS)
    })
}

fn cse(device: &Device) -> Done<CSEProperties> {
    let capabilities = device.compute.capabilities();
    let built_in = functions::list(device)?.iter().filter(|listed| listed.program.device_defined).count();
    Ok(CSEProperties {
        HwVersion: 0,
        SwVersion: capabilities.abi_version.get(),
        UniqueName: name_of(&format!("{}{CSE_SUFFIX}", device.csx.name)),
        NumBuiltinFunctions: built_in.try_into().unwrap_or(u16::MAX),
        MaxRequestsPerBatch: ENTRIES_MAX,
        MaxFunctionParametersAllowed: ARGUMENTS_MAX as u32,
        MaxConcurrentFunctionInstances: capabilities.engines.get().into(),
    })
}

fn of_cse(device: &Device) -> Done<Vec<u8>> {
    let mut zeroed = MaybeUninit::<CSEProperties>::zeroed();
    let known = cse(device)?;
    // SAFETY: zeroes are a value of it; the bytes between the fields stay zero.
    Ok(unsafe {
        put_fields(zeroed.assume_init_mut(), &known);
        bytes_of(zeroed.assume_init_ref()).to_vec()
    })
}

fn put_fields(to: &mut CSEProperties, known: &CSEProperties) {
    (to.HwVersion, to.SwVersion, to.UniqueName) = (known.HwVersion, known.SwVersion, known.UniqueName);
    to.NumBuiltinFunctions = known.NumBuiltinFunctions;
    to.MaxRequestsPerBatch = known.MaxRequestsPerBatch;
    to.MaxFunctionParametersAllowed = known.MaxFunctionParametersAllowed;
    to.MaxConcurrentFunctionInstances = known.MaxConcurrentFunctionInstances;
}

fn of_csx(device: &Device) -> Done<Vec<u8>> {
    let window = device.window();
    let mut zeroed = MaybeUninit::<CSxProperties>::zeroed();
    let known = cse(device)?;
    // SAFETY: as above.
    Ok(unsafe {
        let csx = zeroed.assume_init_mut();
        csx.SwVersion = device.compute.capabilities().abi_version.get();
        csx.FriendlyName = name_of(&device.csx.name);
        csx.FDMinMB = (window.end.saturating_sub(window.start) >> 20).try_into().unwrap_or(u32::MAX);
        // Batches are the library's, memory is not managed by the device, nothing is mapped, and there are no streams.
        csx.Flags = CSxFlags(0);
        csx.NumCSEs = 1;
        put_fields(&mut csx.CSE[0], &known);
        bytes_of(csx).to_vec()
    })
}

fn of_memory(device: &Device, buffer: *mut c_void) -> Vec<u8> {
    let window = device.window();
    let mut zeroed = MaybeUninit::<FDMProperties>::zeroed();
    let mut access = MaybeUninit::<CSEAccess>::zeroed();
    // SAFETY: as above.
    unsafe {
        let memory = zeroed.assume_init_mut();
        memory.NumFDMs = 1;
        let info = &mut memory.FDM[0];
        (info.FDMSize, info.Flags, info.NumCSEs) = (window.end.saturating_sub(window.start), FDM_FLAGS, 1);
        if !buffer.is_null() {
            info.CSEList = buffer.cast::<FDMProperties>().wrapping_add(1).cast();
        }
        let access = access.assume_init_mut();
        access.RelativePerformance = 5;
        [bytes_of(memory), bytes_of(access)].concat()
    }
}

/// What the functions of a CSx do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryDeviceCapabilities(DevHandle: CS_DEV_HANDLE, Caps: *mut CsCapabilities) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        if Caps.is_null() {
            return Err(Failure::null("Caps"));
        }
        opened.device.check()?;
        let bits = functions::list(&opened.device)?.iter().fold(0, |bits, listed| {
            bits | match listed.name.as_str() {
                name if name.starts_with("regex") => REGULAR_EXPRESSIONS,
                name if name.starts_with("filter_") => FILTERS_OF_TABLES,
                _ => CUSTOM,
            }
        });
        // SAFETY: the caller keeps the crate's contract.
        unsafe { put(Caps, CsCapabilities { Functions: CsFunctionBitSelect(bits) }) };
        Ok(CS_SUCCESS)
    })
}

/// The statistics of a CSx. Identifier is a CS_CSF_ID * with CS_STAT_FUNCTION, else ignored. They cover everybody's
/// requests, as far as the server lets this host see them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueryDeviceStatistics(
    DevHandle: CS_DEV_HANDLE,
    Type: CS_STAT_TYPE,
    Identifier: *const c_void,
    Stats: *mut CsStatsInfo,
) -> CS_STATUS {
    guard(|| {
        let opened = opened(DevHandle)?;
        if Stats.is_null() {
            return Err(Failure::null("Stats"));
        }
        opened.device.check()?;
        let stats = match Type {
            CS_STAT_CSE_USAGE => CsStatsInfo { CSEDetails: of_engine(&opened.device)? },
            CS_STAT_CSx_MEM_USAGE => CsStatsInfo { MemoryDetails: memory_usage(&opened.device)? },
            CS_STAT_FUNCTION => {
                // SAFETY: the caller keeps the crate's contract.
                let id = unsafe { structure(Identifier.cast::<CS_CSF_ID>(), "Identifier")? };
                CsStatsInfo { FunctionDetails: of_function(&opened.device, &*Csf::of(id)?)? }
            }
            other => return Err(Failure::argument(format!("Type of statistics is {other}"))),
        };
        // SAFETY: as above.
        unsafe { put(Stats, stats) };
        Ok(CS_SUCCESS)
    })
}

fn of_engine(device: &Device) -> Done<CSEUsage> {
    let (page, _) = device.compute.statistics()?;
    Ok(CSEUsage {
        PowerOnMins: (page.uptime_ms.get() / 60_000).try_into().unwrap_or(u32::MAX),
        IdleTimeMins: 0,
        TotalFunctionExecutions: page.succeeded.get() + page.failed.get(),
    })
}

fn memory_usage(device: &Device) -> Done<CSxMemory> {
    let sets: Vec<_> = device.memory()?.sets()?.into_iter().map(|(_, range)| range).collect();
    let allocated = sets.iter().map(|range| range.end - range.start).sum::<u64>();
    let count = sets.len() as u64;
    let moved = &device.moved;
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let millions = |counter: &AtomicU64| number(counter) / 1_000_000;
    Ok(CSxMemory {
        TotalAllocatedFDM: allocated,
        LargestBlockAvailableFDM: largest_gap(&device.window(), sets),
        AverageAllocatedSizeFDM: allocated.checked_div(count).unwrap_or(0),
        TotalFreeCSFM: 0,
        TotalAllocationsFDM: number(&moved.allocations),
        TotalDeAllocationsFDM: number(&moved.frees),
        TotalFDMtoHostinMB: millions(&moved.to_host_bytes),
        TotalHosttoFDMinMB: millions(&moved.from_host_bytes),
        TotalFDMtoStorageinMB: millions(&moved.stored_bytes),
        TotalStoragetoFDMinMB: millions(&moved.loaded_bytes),
    })
}

fn of_function(device: &Device, csf: &Csf) -> Done<CSFUsage> {
    let (_, entries) = device.compute.statistics()?;
    let entry = entries
        .iter()
        .find(|entry| entry.program_id.get() == csf.listed.program.hash && entry.name() == csf.listed.name);
    let usage = entry.map(|entry| CSFUsage {
        TotalUptimeSeconds: entry.busy_us.get() / 1_000_000,
        TotalExecutions: entry.operations.get(),
        ShortestTimeUsecs: 0,
        LongestTimeUsecs: 0,
        AverageTimeUsecs: entry.busy_us.get().checked_div(entry.operations.get()).unwrap_or(0),
    });
    Ok(usage.unwrap_or_default())
}
