//! The numbers of the calls: handles and constants.

use std::ffi::{c_uint, c_void};

/// A CSx that was opened: a server.
pub type CS_DEV_HANDLE = *mut c_void;
/// A CSE that was opened. Where a call wants a CSx, it may be given instead, and the other way round.
pub type CS_CSE_HANDLE = *mut c_void;
/// Allocated device memory (AFDM).
pub type CS_MEM_HANDLE = *mut c_void;
/// An address of device memory in this process; there is none here.
pub type CS_MEM_PTR = *mut c_void;
/// An event.
pub type CS_EVT_HANDLE = *mut c_void;
/// A batch of requests.
pub type CS_BATCH_HANDLE = *mut c_void;
/// A request that was queued.
pub type CS_REQ_HANDLE = *mut c_void;
/// A stream; there are none here.
pub type CS_STREAM_HANDLE = *mut c_void;
/// A function (CSF) that was found or downloaded.
pub type CS_CSF_ID = u32;
/// The same, by its older name.
pub type CS_FUNCTION_ID = CS_CSF_ID;
/// An entry of a batch; 0: none.
pub type CS_BATCH_INDEX = c_uint;

/// What a function is downloaded as.
pub type CS_CSF_RESOURCE_TYPE = i32;
/// An eBPF object.
pub const CS_CSF_BPF_PROGRAM: CS_CSF_RESOURCE_TYPE = 2;

/// The same, by its older names.
pub type CS_DOWNLOAD_TYPE = i32;
/// An eBPF object.
pub const CS_BPF_PROGRAM: CS_DOWNLOAD_TYPE = 2;

/// A vendor's variant of a resource.
pub type CS_RESOURCE_SUBTYPE = i32;
/// None.
pub const CS_SUBTYPE_UNDEFINED: CS_RESOURCE_SUBTYPE = 0;

/// What is asked about, configured or reset.
pub type CS_RESOURCE_TYPE = i32;
/// A device.
pub const CS_CSx_TYPE: CS_RESOURCE_TYPE = 1;
/// An engine.
pub const CS_CSE_TYPE: CS_RESOURCE_TYPE = 2;
/// Device memory.
pub const CS_FDM_TYPE: CS_RESOURCE_TYPE = 4;

/// Which way a copy goes.
pub type CS_MEM_COPY_TYPE = i32;
/// From this process to device memory.
pub const CS_COPY_TO_DEVICE: CS_MEM_COPY_TYPE = 1;
/// From device memory to this process.
pub const CS_COPY_FROM_DEVICE: CS_MEM_COPY_TYPE = 2;

/// What storage is named by.
pub type CS_STORAGE_REQ_MODE = i32;
/// Blocks of volumes.
pub const CS_STORAGE_BLOCK_IO: CS_STORAGE_REQ_MODE = 1;
/// A file.
pub const CS_STORAGE_FILE_IO: CS_STORAGE_REQ_MODE = 2;

/// Which way a storage request goes.
pub type CS_STORAGE_IO_TYPE = i32;
/// From storage to device memory.
pub const CS_STORAGE_LOAD_TYPE: CS_STORAGE_IO_TYPE = 1;
/// From device memory to storage.
pub const CS_STORAGE_STORE_TYPE: CS_STORAGE_IO_TYPE = 2;

/// What an argument of a function is.
pub type CS_COMPUTE_ARG_TYPE = i32;
/// Device memory.
pub const CS_AFDM_TYPE: CS_COMPUTE_ARG_TYPE = 1;
/// A number of 32 bits.
pub const CS_32BIT_VALUE_TYPE: CS_COMPUTE_ARG_TYPE = 2;
/// A number of 64 bits.
pub const CS_64BIT_VALUE_TYPE: CS_COMPUTE_ARG_TYPE = 3;
/// A stream: refused here.
pub const CS_STREAM_TYPE: CS_COMPUTE_ARG_TYPE = 4;
/// A descriptor: refused here.
pub const CS_DESCRIPTOR_TYPE: CS_COMPUTE_ARG_TYPE = 5;

/// How the entries of a batch follow each other.
pub type CS_BATCH_MODE = i32;
/// One after another.
pub const CS_BATCH_SERIAL: CS_BATCH_MODE = 1;
/// All at once.
pub const CS_BATCH_PARALLEL: CS_BATCH_MODE = 2;
/// Each when those before it are done.
pub const CS_BATCH_HYBRID: CS_BATCH_MODE = 3;

/// What an entry of a batch is.
pub type CS_BATCH_REQ_TYPE = i32;
/// A copy between this process and device memory.
pub const CS_COPY_AFDM: CS_BATCH_REQ_TYPE = 1;
/// A storage request.
pub const CS_STORAGE_IO: CS_BATCH_REQ_TYPE = 2;
/// A function.
pub const CS_QUEUE_COMPUTE: CS_BATCH_REQ_TYPE = 3;

/// Which statistics.
pub type CS_STAT_TYPE = i32;
/// The usage of an engine.
pub const CS_STAT_CSE_USAGE: CS_STAT_TYPE = 1;
/// Of device memory.
pub const CS_STAT_CSx_MEM_USAGE: CS_STAT_TYPE = 2;
/// The statistics of a function.
pub const CS_STAT_FUNCTION: CS_STAT_TYPE = 3;

/// What of a device is set.
pub type CS_CAP_TYPE = i32;

/// Which configuration.
pub type CS_CONFIG_TYPE = i32;

/// Which kind of stream.
pub type CS_ALLOC_STREAM_TYPE = i32;

/// What of the library is asked about.
pub type CS_LIBRARY_SUPPORT = i32;
/// File systems.
pub const CS_FILE_SYSTEMS_SUPPORTED: CS_LIBRARY_SUPPORT = 1;

/// Which kind of plugin.
pub type CS_PLUGIN_TYPE = i32;

/// How memory is treated when it is allocated, initialised or freed.
pub type CS_FDM_FLAG_TYPE = i32;
/// It is zeroed.
pub const CS_FDM_CLEAR: CS_FDM_FLAG_TYPE = 1;
/// It is filled with FillValue, again and again.
pub const CS_FDM_FILL: CS_FDM_FLAG_TYPE = 2;
