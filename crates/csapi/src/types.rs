//! The types of the calls: structures, and functions to be called.

pub use crate::numbers::*;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

/// Which memory, and what is done to it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsMemFlags {
    /// Must be 0: a CSx has one memory.
    pub FDMId: u32,
    /// A CS_FDM_FLAG_TYPE; 0: nothing.
    pub Flags: CS_FDM_FLAG_TYPE,
    /// With CS_FDM_FILL.
    pub FillValue: u32,
}

/// A function in a list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSFUniqueId {
    /// Its name, cut to 31 bytes.
    pub UniqueName: [c_char; 32],
    /// Told by its content: the same on every CSx.
    pub GlobalId: u64,
}

/// Device memory that a function reaches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FDMAccess {
    /// For CsMemFlags: 0.
    pub FDMId: u32,
    /// 1 to 10.
    pub RelativePerformance: u8,
    /// 1 to 10; 0: unknown.
    pub RelativePower: u8,
    /// What it can.
    pub Flags: FDMFlags,
}

/// A function that was found.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSFIdInfo {
    /// For CsComputeRequest.
    pub CSFId: CS_CSF_ID,
    /// 1 to 10.
    pub RelativePerformance: u8,
    /// How many run at once, at most 10.
    pub Count: u8,
    /// Elements of FDMList.
    pub NumFDMs: u8,
    /// Behind the structures in the same buffer.
    pub FDMList: *mut FDMAccess,
}

/// A place in device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsDevAFDM {
    /// Which memory.
    pub MemHandle: CS_MEM_HANDLE,
    /// Byte in it.
    pub ByteOffset: c_ulong,
}

/// The value of an argument.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CsComputeArgValue {
    /// CS_AFDM_TYPE.
    pub DevMem: CsDevAFDM,
    /// CS_64BIT_VALUE_TYPE.
    pub Value64: u64,
    /// CS_32BIT_VALUE_TYPE.
    pub Value32: u32,
    /// CS_STREAM_TYPE.
    pub StreamHandle: CS_STREAM_HANDLE,
}

/// An argument of a function.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CsComputeArg {
    /// What it is.
    pub Type: CS_COMPUTE_ARG_TYPE,
    /// It.
    pub u: CsComputeArgValue,
}

/// A run of a function. There is memory for NumArgs arguments.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CsComputeRequest {
    /// Ignored: CSFId tells where the function is.
    pub CSEHandle: CS_CSE_HANDLE,
    /// Which function. In C also FunctionId, its older name.
    pub CSFId: CS_CSF_ID,
    /// How many arguments.
    pub NumArgs: c_int,
    /// The arguments.
    pub Args: [CsComputeArg; 1],
}

/// Blocks of a volume.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsBlockRange {
    /// Which volume.
    pub NamespaceId: u32,
    /// First block.
    pub StartLba: u64,
    /// How many.
    pub NumBlocks: u32,
}

/// A storage request over blocks. There is memory for NumRanges ranges.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CsBlockIo {
    /// Which way.
    pub Type: CS_STORAGE_IO_TYPE,
    /// Must be 0.
    pub StorageIndex: u32,
    /// A multiple of 4 bytes.
    pub DevMem: CsDevAFDM,
    /// How many ranges.
    pub NumRanges: c_int,
    /// The ranges, one after another in memory.
    pub Range: [CsBlockRange; 1],
}

/// A storage request over a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CsFileIo {
    /// Which way.
    pub Type: CS_STORAGE_IO_TYPE,
    /// A descriptor as a pointer, or what dsCsOpenFile gave.
    pub FileHandle: *mut c_void,
    /// Byte in the file.
    pub Offset: u64,
    /// How many bytes.
    pub Bytes: u32,
    /// Where in memory.
    pub DevMem: CsDevAFDM,
}

/// What a storage request is over.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CsStorageIo {
    /// CS_STORAGE_BLOCK_IO.
    pub BlockIo: CsBlockIo,
    /// CS_STORAGE_FILE_IO.
    pub FileIo: CsFileIo,
}

/// A storage request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CsStorageRequest {
    /// What storage is named by.
    pub Mode: CS_STORAGE_REQ_MODE,
    /// Whose storage.
    pub DevHandle: CS_DEV_HANDLE,
    /// It.
    pub u: CsStorageIo,
}

/// A copy between this process and device memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CsCopyMemRequest {
    /// Which way.
    pub Type: CS_MEM_COPY_TYPE,
    /// Where in this process; valid until the request has completed.
    pub HostVAddress: *mut c_void,
    /// Where in device memory.
    pub DevMem: CsDevAFDM,
    /// How many bytes.
    pub Bytes: c_uint,
}

/// What an entry of a batch is.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CsBatchEntry {
    /// CS_COPY_AFDM.
    pub CopyMem: CsCopyMemRequest,
    /// CS_STORAGE_IO.
    pub StorageIo: CsStorageRequest,
    /// CS_QUEUE_COMPUTE.
    pub Compute: CsComputeRequest,
}

/// An entry of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CsBatchRequest {
    /// What it is.
    pub ReqType: CS_BATCH_REQ_TYPE,
    /// Bytes of the request in u, with all its arguments or ranges; 0: what they take.
    pub reqLength: u32,
    /// It.
    pub u: CsBatchEntry,
}

/// What a device memory can.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct FDMFlags(pub u64);

/// What is known of an engine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSEProperties {
    /// 0.
    pub HwVersion: u16,
    /// Version of the functions' interface.
    pub SwVersion: u16,
    /// Its name, cut to 31 bytes.
    pub UniqueName: [c_char; 32],
    /// Functions that came with the server.
    pub NumBuiltinFunctions: u16,
    /// Entries of a batch.
    pub MaxRequestsPerBatch: u32,
    /// Arguments of a function.
    pub MaxFunctionParametersAllowed: u32,
    /// Functions that run at once.
    pub MaxConcurrentFunctionInstances: u32,
}

/// What a device can.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct CSxFlags(pub u64);

/// What is known of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSxProperties {
    /// 0.
    pub HwVersion: u16,
    /// Version of the functions' interface.
    pub SwVersion: u16,
    /// 0: servers have no number of a vendor.
    pub VendorId: u16,
    /// 0.
    pub DeviceId: u16,
    /// Its name, cut to 31 bytes.
    pub FriendlyName: [c_char; 32],
    /// MiB for programs: not told, 0.
    pub CFMinMB: u32,
    /// MiB of device memory that this program may allocate.
    pub FDMinMB: u32,
    /// What it can.
    pub Flags: CSxFlags,
    /// 1.
    pub NumCSEs: u16,
    /// It.
    pub CSE: [CSEProperties; 1],
}

/// An engine that reaches a memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSEAccess {
    /// 0: a CSx has one.
    pub CSEId: u32,
    /// 1 to 10.
    pub RelativePerformance: u8,
    /// 1 to 10; 0: unknown.
    pub RelativePower: u8,
}

/// What is known of a memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FDMInfo {
    /// For CsMemFlags: 0.
    pub FDMId: u32,
    /// Bytes that this program may allocate.
    pub FDMSize: u64,
    /// What it can.
    pub Flags: FDMFlags,
    /// Elements of CSEList.
    pub NumCSEs: u16,
    /// Behind the structure in the same buffer.
    pub CSEList: *mut CSEAccess,
}

/// The memories of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FDMProperties {
    /// 1.
    pub NumFDMs: u16,
    /// It.
    pub FDM: [FDMInfo; 1],
}

/// A function in an older list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsFunctionInfo {
    /// As csGetCSFId gives it.
    pub FunctionId: CS_CSF_ID,
    /// How many run at once, at most 255.
    pub NumUnits: u8,
    /// Its name, cut to 31 bytes.
    pub Name: [c_char; 32],
}

/// What functions do, bit by bit.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct CsFunctionBitSelect(pub u64);

/// What a device can compute.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsCapabilities {
    /// What its functions do.
    pub Functions: CsFunctionBitSelect,
}

/// What an engine did.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CSEUsage {
    /// Minutes since the server started.
    pub PowerOnMins: u32,
    /// Not told: 0.
    pub IdleTimeMins: u32,
    /// Runs of functions for anybody.
    pub TotalFunctionExecutions: u64,
}

/// What became of device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CSxMemory {
    /// Bytes that this machine's programs have allocated.
    pub TotalAllocatedFDM: u64,
    /// Bytes of the longest memory that may be allocated.
    pub LargestBlockAvailableFDM: u64,
    /// Bytes of one allocation.
    pub AverageAllocatedSizeFDM: u64,
    /// Not told: 0.
    pub TotalFreeCSFM: u64,
    /// Allocations of this program.
    pub TotalAllocationsFDM: u64,
    /// Allocations that this program has freed.
    pub TotalDeAllocationsFDM: u64,
    /// Millions of bytes that this program copied from device memory.
    pub TotalFDMtoHostinMB: u64,
    /// Millions of bytes that this program copied to device memory.
    pub TotalHosttoFDMinMB: u64,
    /// Millions of bytes that this program stored.
    pub TotalFDMtoStorageinMB: u64,
    /// Millions of bytes that this program loaded.
    pub TotalStoragetoFDMinMB: u64,
}

/// What a function did.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CSFUsage {
    /// Seconds that it ran.
    pub TotalUptimeSeconds: u64,
    /// How often it ran, for anybody.
    pub TotalExecutions: u64,
    /// Not told: 0.
    pub ShortestTimeUsecs: u64,
    /// Not told: 0.
    pub LongestTimeUsecs: u64,
    /// Microseconds of a run.
    pub AverageTimeUsecs: u64,
}

/// Statistics.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CsStatsInfo {
    /// CS_STAT_CSE_USAGE.
    pub CSEDetails: CSEUsage,
    /// CS_STAT_CSx_MEM_USAGE.
    pub MemoryDetails: CSxMemory,
    /// CS_STAT_FUNCTION.
    pub FunctionDetails: CSFUsage,
}

/// A temperature.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsTemperature {
    /// Degrees.
    pub TemperatureLevel: i32,
}

/// A bound of requests.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsMaxIOs {
    /// How many.
    pub TotalOutstandingIOs: u32,
}

/// What of a device is set.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CsCapabilityInfo {
    /// CS_CAPABILITY_CSx_TEMP.
    pub CSxTemperature: CsTemperature,
    /// CS_CAPABILITY_CSx_MAX_IOS.
    pub MaxIOs: CsMaxIOs,
}

/// A configuration.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsConfigInfo {
    /// Which.
    pub Type: CS_CONFIG_TYPE,
    /// A variant of it.
    pub SubType: c_int,
    /// A slot of it.
    pub Index: c_int,
    /// Bytes of data.
    pub Length: c_int,
    /// Data.
    pub DataBuffer: *mut c_void,
}

/// What downloads have in common.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsCommonDownloadInfo {
    /// Which function of an object with several; empty: the only one. With Unload: which function is unloaded.
    pub UniqueName: [c_char; 32],
    /// Not 0: the function is unloaded.
    pub Unload: c_int,
    /// Bytes of data.
    pub Length: c_int,
    /// The object.
    pub DataBuffer: *mut c_void,
}

/// A function to be downloaded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsCSFDownloadInfo {
    /// CS_CSF_BPF_PROGRAM.
    pub Type: CS_CSF_RESOURCE_TYPE,
    /// CS_SUBTYPE_UNDEFINED.
    pub SubType: CS_RESOURCE_SUBTYPE,
    /// With Unload: which function, unless UniqueName says.
    pub GlobalId: u64,
    /// Must be 0.
    pub CSEEId: u32,
    /// Ignored: the server chooses a place.
    pub Index: u32,
    /// The rest.
    pub common: CsCommonDownloadInfo,
}

/// A program to be downloaded, as older versions have it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsDownloadInfo {
    /// CS_BPF_PROGRAM.
    pub Type: CS_DOWNLOAD_TYPE,
    /// Must be 0.
    pub SubType: c_int,
    /// Ignored: the server chooses a place.
    pub Index: c_int,
    /// Not 0: the program in DataBuffer is unloaded.
    pub Unload: c_int,
    /// Bytes of data.
    pub Length: c_int,
    /// The object.
    pub DataBuffer: *mut c_void,
}

/// A question about plugins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsQueryPluginRequest {
    /// Which kind.
    pub Type: CS_PLUGIN_TYPE,
    /// Bytes of its interface.
    pub InterfaceLength: u32,
    /// Its number.
    pub Id: u16,
}

/// A plugin.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CsPluginRequest {
    /// Which kind.
    pub Type: CS_PLUGIN_TYPE,
    /// Bytes of its interface.
    pub InterfaceLength: u32,
    /// Its number.
    pub Id: u16,
}

/// Told when a request has completed, by a thread of the library.
pub type csQueueCallbackFn =
    Option<unsafe extern "C" fn(QueueContext: *mut c_void, Status: crate::status::CS_STATUS, CompValue: u64)>;
/// Told what a device notifies of.
pub type csDevNotificationFn = Option<
    unsafe extern "C" fn(
        Notification: u32,
        Context: *mut c_void,
        Status: crate::status::CS_STATUS,
        Length: c_int,
        Buffer: *mut c_void,
    ),
>;
/// Told of a plugin.
pub type csQueryPluginCallbackFn = Option<unsafe extern "C" fn(Type: CS_PLUGIN_TYPE, Buffer: *mut c_char)>;

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// What C has and what Rust has of each structure are one.
    #[test]
    fn structures_are_laid_out_as_in_c() {
        let mut lines = String::new();
        macro_rules! layout {
            ($($name:ident { $($field:ident),* })*) => {$(
                lines += &format!("S({}, {})\n", stringify!($name), size_of::<super::$name>());
                $(lines += &format!(
                    "F({}, {}, {})\n", stringify!($name), stringify!($field), std::mem::offset_of!(super::$name, $field)
                );)*
            )*};
        }
        layout! {
            CsMemFlags { FDMId, Flags, FillValue }
            CSFUniqueId { UniqueName, GlobalId }
            FDMFlags {}
            FDMAccess { FDMId, RelativePerformance, RelativePower, Flags }
            CSFIdInfo { CSFId, RelativePerformance, Count, NumFDMs, FDMList }
            CsDevAFDM { MemHandle, ByteOffset }
            CsComputeArg { Type, u }
            CsComputeRequest { CSEHandle, CSFId, NumArgs, Args }
            CsBlockRange { NamespaceId, StartLba, NumBlocks }
            CsBlockIo { Type, StorageIndex, DevMem, NumRanges, Range }
            CsFileIo { Type, FileHandle, Offset, Bytes, DevMem }
            CsStorageRequest { Mode, DevHandle, u }
            CsCopyMemRequest { Type, HostVAddress, DevMem, Bytes }
            CsBatchRequest { ReqType, reqLength, u }
            CSxFlags {}
            CSxProperties { FriendlyName, FDMinMB, Flags, NumCSEs, CSE }
            CSEProperties { UniqueName, NumBuiltinFunctions, MaxConcurrentFunctionInstances }
            FDMProperties { NumFDMs, FDM }
            FDMInfo { FDMId, FDMSize, Flags, NumCSEs, CSEList }
            CsFunctionBitSelect {}
            CsStatsInfo {}
            CSxMemory { TotalAllocatedFDM, TotalStoragetoFDMinMB }
            CsCSFDownloadInfo { Type, SubType, GlobalId, CSEEId, Index, common }
            CsCommonDownloadInfo { UniqueName, Unload, Length, DataBuffer }
            CsDownloadInfo { Type, Unload, Length, DataBuffer }
        }
        // Twice: nothing is declared again.
        let head = "#include <assert.h>\n#include \"cs.h\"\n#include \"cs.h\"\n\
            #define S(type, len) static_assert(sizeof(type) == len, #type);\n\
            #define F(type, field, at) static_assert(offsetof(type, field) == at, #type \" \" #field);\n";
        let dir = tempfile::tempdir().expect("a temporary directory");
        let source = dir.path().join("layout.c");
        std::fs::write(&source, head.to_owned() + &lines).expect("written");
        for (compiler, options) in [("cc", &["-std=c11", "-pedantic"][..]), ("c++", &["-std=c++17", "-x", "c++"])] {
            let mut command = Command::new(compiler);
            command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"]);
            command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include")).args(options).arg(&source);
            let output = command.output().expect("a compiler");
            assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
