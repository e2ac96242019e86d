/* cs.h: SNIA's Computational Storage API, over Diskside's servers.
 *
 * A CSx is a server. The environment variable DISKSIDE_CSX lists those that there are, diskside://HOST[:PORT] each.
 * docs/csapi.md says what each call does, and what is refused. dsCsError() says in words why a call failed.
 *
 * Handles are numbers in the form of pointers: one that was closed is refused. All calls may be made by several threads at
 * once. A request that is queued with a callback or an event uses the caller's memory until it has completed.
 *
 * This file is made of the library's source. */

#ifndef DISKSIDE_CS_H
#define DISKSIDE_CS_H

#include <stddef.h>
#include <stdint.h>

/* The specification's short names of numbers; define CS_NO_SHORT_TYPES where they are taken. */
#ifndef CS_NO_SHORT_TYPES
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
#endif

typedef void *CS_DEV_HANDLE;    /* A CSx that was opened: a server. */
typedef void *CS_CSE_HANDLE;    /* A CSE that was opened; may be given where a CSx is wanted. */
typedef void *CS_MEM_HANDLE;    /* Allocated device memory (AFDM). */
typedef void *CS_MEM_PTR;       /* An address of device memory in this process; there is none here. */
typedef void *CS_EVT_HANDLE;    /* An event. */
typedef void *CS_BATCH_HANDLE;  /* A batch of requests. */
typedef void *CS_REQ_HANDLE;    /* A request that was queued. */
typedef void *CS_STREAM_HANDLE; /* A stream; there are none here. */
typedef uint32_t CS_CSF_ID;     /* A function (CSF) that was found or downloaded. */
typedef CS_CSF_ID CS_FUNCTION_ID;
typedef int32_t CS_COMPUTE_ARG_TYPE; /* What an argument of a function is. */

/* Numbers of what is refused: downloads, resources, configurations, capabilities, streams, plugins. */
enum {
    CS_CSF_UNDEFINED = 0, CS_CSF_FPGA_BITSTREAM = 1, CS_CSF_CONTAINER_IMAGE = 3, CS_CSF_OPERATING_SYSTEM_IMAGE = 4,
    CS_CSF_VENDOR_SPECIFIC = 65535, CS_FPGA_BITSTREAM = 1, CS_CONTAINER_IMAGE = 3, CS_OPERATING_SYSTEM_IMAGE = 4,
    CS_LARGE_DATA_SET = 5, CS_CSEE_TYPE = 3, CS_CSF_TYPE = 5, CS_VENDOR_SPECIFIC_TYPE = 6, CS_CSEE_ACTIVATE = 1,
    CS_CSF_ACTIVATE = 2, CS_FDM_ACTIVATE = 3, CS_VENDOR_SPECIFIC = 4, CS_CAPABILITY_CSx_TEMP = 1,
    CS_CAPABILITY_CSx_MAX_IOS = 2, CS_STREAM_COMPUTE_TYPE = 1, CS_PLUGIN_COMPUTE = 1, CS_PLUGIN_NVME = 2,
    CS_PLUGIN_FILE_SYSTEM = 4, CS_PLUGIN_CUSTOM = 8
};

/* A place in device memory. */
typedef struct CsDevAFDM {
    CS_MEM_HANDLE MemHandle;
    unsigned long ByteOffset;
} CsDevAFDM;

/* An argument of a function. */
typedef struct CsComputeArg {
    CS_COMPUTE_ARG_TYPE Type;
    union {
        CsDevAFDM DevMem;
        uint64_t Value64;
        uint32_t Value32;
        CS_STREAM_HANDLE StreamHandle;
    } u;
} CsComputeArg;

/* A run of a function. There is memory for NumArgs arguments. */
typedef struct CsComputeRequest {
    CS_CSE_HANDLE CSEHandle; /* Ignored: CSFId tells where the function is. */
    union {
        CS_CSF_ID CSFId;
        CS_CSF_ID FunctionId; /* Its older name. */
    };
    int NumArgs;
    CsComputeArg Args[1];
} CsComputeRequest;

/* What a device memory can. */
typedef struct FDMFlags {
    uint64_t DeviceManaged : 1;
    uint64_t HostVisible : 1;
    uint64_t ClearContentsSupported : 1;
    uint64_t InvalidateContentSupported : 1;
    uint64_t Reserved : 60;
} FDMFlags;

/* What a device can. */
typedef struct CSxFlags {
    uint64_t FDMIsDeviceManaged : 1;
    uint64_t FDMIsHostVisible : 1;
    uint64_t BatchRequestsSupported : 1;
    uint64_t StreamsSupported : 1;
    uint64_t Reserved : 60;
} CSxFlags;

/* What functions do. */
typedef struct CsFunctionBitSelect {
    uint64_t Compression : 1;
    uint64_t Decompression : 1;
    uint64_t Encryption : 1;
    uint64_t Decryption : 1;
    uint64_t RAID : 1;
    uint64_t EC : 1;
    uint64_t Dedup : 1;
    uint64_t Hash : 1;
    uint64_t Checksum : 1;
    uint64_t RegEx : 1;
    uint64_t DbFilter : 1;
    uint64_t ImageEncode : 1;
    uint64_t VideoEncode : 1;
    uint64_t CustomType : 48;
} CsFunctionBitSelect;

// What a call returns.
typedef int32_t CS_STATUS;

// A function in a list.
typedef struct CSFUniqueId {
    // Its name, cut to 31 bytes.
    char UniqueName[32];
    // Told by its content: the same on every CSx.
    uint64_t GlobalId;
} CSFUniqueId;

// How memory is treated when it is allocated, initialised or freed.
typedef int32_t CS_FDM_FLAG_TYPE;

// Which memory, and what is done to it.
typedef struct CsMemFlags {
    // Must be 0: a CSx has one memory.
    uint32_t FDMId;
    // A CS_FDM_FLAG_TYPE; 0: nothing.
    CS_FDM_FLAG_TYPE Flags;
    // With CS_FDM_FILL.
    uint32_t FillValue;
} CsMemFlags;

// What storage is named by.
typedef int32_t CS_STORAGE_REQ_MODE;

// Which way a storage request goes.
typedef int32_t CS_STORAGE_IO_TYPE;

// Blocks of a volume.
typedef struct CsBlockRange {
    // Which volume.
    uint32_t NamespaceId;
    // First block.
    uint64_t StartLba;
    // How many.
    uint32_t NumBlocks;
} CsBlockRange;

// A storage request over blocks. There is memory for NumRanges ranges.
typedef struct CsBlockIo {
    // Which way.
    CS_STORAGE_IO_TYPE Type;
    // Must be 0.
    uint32_t StorageIndex;
    // A multiple of 4 bytes.
    CsDevAFDM DevMem;
    // How many ranges.
    int NumRanges;
    // The ranges, one after another in memory.
    struct CsBlockRange Range[1];
} CsBlockIo;

// A storage request over a file.
typedef struct CsFileIo {
    // Which way.
    CS_STORAGE_IO_TYPE Type;
    // A descriptor as a pointer, or what dsCsOpenFile gave.
    void *FileHandle;
    // Byte in the file.
    uint64_t Offset;
    // How many bytes.
    uint32_t Bytes;
    // Where in memory.
    CsDevAFDM DevMem;
} CsFileIo;

// What a storage request is over.
typedef union CsStorageIo {
    // CS_STORAGE_BLOCK_IO.
    struct CsBlockIo BlockIo;
    // CS_STORAGE_FILE_IO.
    struct CsFileIo FileIo;
} CsStorageIo;

// A storage request.
typedef struct CsStorageRequest {
    // What storage is named by.
    CS_STORAGE_REQ_MODE Mode;
    // Whose storage.
    CS_DEV_HANDLE DevHandle;
    // It.
    union CsStorageIo u;
} CsStorageRequest;

// Told when a request has completed, by a thread of the library.
typedef void (*csQueueCallbackFn)(void *QueueContext, CS_STATUS Status, uint64_t CompValue);

// Which way a copy goes.
typedef int32_t CS_MEM_COPY_TYPE;

// A copy between this process and device memory.
typedef struct CsCopyMemRequest {
    // Which way.
    CS_MEM_COPY_TYPE Type;
    // Where in this process; valid until the request has completed.
    void *HostVAddress;
    // Where in device memory.
    CsDevAFDM DevMem;
    // How many bytes.
    unsigned int Bytes;
} CsCopyMemRequest;

// Device memory that a function reaches.
typedef struct FDMAccess {
    // For CsMemFlags: 0.
    uint32_t FDMId;
    // 1 to 10.
    uint8_t RelativePerformance;
    // 1 to 10; 0: unknown.
    uint8_t RelativePower;
    // What it can.
    FDMFlags Flags;
} FDMAccess;

// A function that was found.
typedef struct CSFIdInfo {
    // For CsComputeRequest.
    CS_CSF_ID CSFId;
    // 1 to 10.
    uint8_t RelativePerformance;
    // How many run at once, at most 10.
    uint8_t Count;
    // Elements of FDMList.
    uint8_t NumFDMs;
    // Behind the structures in the same buffer.
    struct FDMAccess *FDMList;
} CSFIdInfo;

// A function in an older list.
typedef struct CsFunctionInfo {
    // As csGetCSFId gives it.
    CS_CSF_ID FunctionId;
    // How many run at once, at most 255.
    uint8_t NumUnits;
    // Its name, cut to 31 bytes.
    char Name[32];
} CsFunctionInfo;

// What a function is downloaded as.
typedef int32_t CS_CSF_RESOURCE_TYPE;

// A vendor's variant of a resource.
typedef int32_t CS_RESOURCE_SUBTYPE;

// What downloads have in common.
typedef struct CsCommonDownloadInfo {
    // Which function of an object with several; empty: the only one. With Unload: which function is unloaded.
    char UniqueName[32];
    // Not 0: the function is unloaded.
    int Unload;
    // Bytes of data.
    int Length;
    // The object.
    void *DataBuffer;
} CsCommonDownloadInfo;

// A function to be downloaded.
typedef struct CsCSFDownloadInfo {
    // CS_CSF_BPF_PROGRAM.
    CS_CSF_RESOURCE_TYPE Type;
    // CS_SUBTYPE_UNDEFINED.
    CS_RESOURCE_SUBTYPE SubType;
    // With Unload: which function, unless UniqueName says.
    uint64_t GlobalId;
    // Must be 0.
    uint32_t CSEEId;
    // Ignored: the server chooses a place.
    uint32_t Index;
    // The rest.
    struct CsCommonDownloadInfo common;
} CsCSFDownloadInfo;

// The same, by its older names.
typedef int32_t CS_DOWNLOAD_TYPE;

// A program to be downloaded, as older versions have it.
typedef struct CsDownloadInfo {
    // CS_BPF_PROGRAM.
    CS_DOWNLOAD_TYPE Type;
    // Must be 0.
    int SubType;
    // Ignored: the server chooses a place.
    int Index;
    // Not 0: the program in DataBuffer is unloaded.
    int Unload;
    // Bytes of data.
    int Length;
    // The object.
    void *DataBuffer;
} CsDownloadInfo;

// How the entries of a batch follow each other.
typedef int32_t CS_BATCH_MODE;

// What an entry of a batch is.
typedef int32_t CS_BATCH_REQ_TYPE;

// What an entry of a batch is.
typedef union CsBatchEntry {
    // CS_COPY_AFDM.
    struct CsCopyMemRequest CopyMem;
    // CS_STORAGE_IO.
    struct CsStorageRequest StorageIo;
    // CS_QUEUE_COMPUTE.
    CsComputeRequest Compute;
} CsBatchEntry;

// An entry of a batch.
typedef struct CsBatchRequest {
    // What it is.
    CS_BATCH_REQ_TYPE ReqType;
    // Bytes of the request in u, with all its arguments or ranges; 0: what they take.
    uint32_t reqLength;
    // It.
    union CsBatchEntry u;
} CsBatchRequest;

// An entry of a batch; 0: none.
typedef unsigned int CS_BATCH_INDEX;

// What is asked about, configured or reset.
typedef int32_t CS_RESOURCE_TYPE;

// What a device can compute.
typedef struct CsCapabilities {
    // What its functions do.
    CsFunctionBitSelect Functions;
} CsCapabilities;

// Which statistics.
typedef int32_t CS_STAT_TYPE;

// What an engine did.
typedef struct CSEUsage {
    // Minutes since the server started.
    uint32_t PowerOnMins;
    // Not told: 0.
    uint32_t IdleTimeMins;
    // Runs of functions for anybody.
    uint64_t TotalFunctionExecutions;
} CSEUsage;

// What became of device memory.
typedef struct CSxMemory {
    // Bytes that this machine's programs have allocated.
    uint64_t TotalAllocatedFDM;
    // Bytes of the longest memory that may be allocated.
    uint64_t LargestBlockAvailableFDM;
    // Bytes of one allocation.
    uint64_t AverageAllocatedSizeFDM;
    // Not told: 0.
    uint64_t TotalFreeCSFM;
    // Allocations of this program.
    uint64_t TotalAllocationsFDM;
    // Allocations that this program has freed.
    uint64_t TotalDeAllocationsFDM;
    // Millions of bytes that this program copied from device memory.
    uint64_t TotalFDMtoHostinMB;
    // Millions of bytes that this program copied to device memory.
    uint64_t TotalHosttoFDMinMB;
    // Millions of bytes that this program stored.
    uint64_t TotalFDMtoStorageinMB;
    // Millions of bytes that this program loaded.
    uint64_t TotalStoragetoFDMinMB;
} CSxMemory;

// What a function did.
typedef struct CSFUsage {
    // Seconds that it ran.
    uint64_t TotalUptimeSeconds;
    // How often it ran, for anybody.
    uint64_t TotalExecutions;
    // Not told: 0.
    uint64_t ShortestTimeUsecs;
    // Not told: 0.
    uint64_t LongestTimeUsecs;
    // Microseconds of a run.
    uint64_t AverageTimeUsecs;
} CSFUsage;

// Statistics.
typedef union CsStatsInfo {
    // CS_STAT_CSE_USAGE.
    struct CSEUsage CSEDetails;
    // CS_STAT_CSx_MEM_USAGE.
    struct CSxMemory MemoryDetails;
    // CS_STAT_FUNCTION.
    struct CSFUsage FunctionDetails;
} CsStatsInfo;

// Told what a device notifies of.
typedef void (*csDevNotificationFn)(uint32_t Notification, void *Context, CS_STATUS Status, int Length, void *Buffer);

// Which kind of stream.
typedef int32_t CS_ALLOC_STREAM_TYPE;

// What of a device is set.
typedef int32_t CS_CAP_TYPE;

// A temperature.
typedef struct CsTemperature {
    // Degrees.
    int32_t TemperatureLevel;
} CsTemperature;

// A bound of requests.
typedef struct CsMaxIOs {
    // How many.
    uint32_t TotalOutstandingIOs;
} CsMaxIOs;

// What of a device is set.
typedef union CsCapabilityInfo {
    // CS_CAPABILITY_CSx_TEMP.
    struct CsTemperature CSxTemperature;
    // CS_CAPABILITY_CSx_MAX_IOS.
    struct CsMaxIOs MaxIOs;
} CsCapabilityInfo;

// Which configuration.
typedef int32_t CS_CONFIG_TYPE;

// A configuration.
typedef struct CsConfigInfo {
    // Which.
    CS_CONFIG_TYPE Type;
    // A variant of it.
    int SubType;
    // A slot of it.
    int Index;
    // Bytes of data.
    int Length;
    // Data.
    void *DataBuffer;
} CsConfigInfo;

// What of the library is asked about.
typedef int32_t CS_LIBRARY_SUPPORT;

// Which kind of plugin.
typedef int32_t CS_PLUGIN_TYPE;

// A question about plugins.
typedef struct CsQueryPluginRequest {
    // Which kind.
    CS_PLUGIN_TYPE Type;
    // Bytes of its interface.
    uint32_t InterfaceLength;
    // Its number.
    uint16_t Id;
} CsQueryPluginRequest;

// Told of a plugin.
typedef void (*csQueryPluginCallbackFn)(CS_PLUGIN_TYPE Type, char *Buffer);

// A plugin.
typedef struct CsPluginRequest {
    // Which kind.
    CS_PLUGIN_TYPE Type;
    // Bytes of its interface.
    uint32_t InterfaceLength;
    // Its number.
    uint16_t Id;
} CsPluginRequest;

// What is known of an engine.
typedef struct CSEProperties {
    // 0.
    uint16_t HwVersion;
    // Version of the functions' interface.
    uint16_t SwVersion;
    // Its name, cut to 31 bytes.
    char UniqueName[32];
    // Functions that came with the server.
    uint16_t NumBuiltinFunctions;
    // Entries of a batch.
    uint32_t MaxRequestsPerBatch;
    // Arguments of a function.
    uint32_t MaxFunctionParametersAllowed;
    // Functions that run at once.
    uint32_t MaxConcurrentFunctionInstances;
} CSEProperties;

// What is known of a device.
typedef struct CSxProperties {
    // 0.
    uint16_t HwVersion;
    // Version of the functions' interface.
    uint16_t SwVersion;
    // 0: servers have no number of a vendor.
    uint16_t VendorId;
    // 0.
    uint16_t DeviceId;
    // Its name, cut to 31 bytes.
    char FriendlyName[32];
    // MiB for programs: not told, 0.
    uint32_t CFMinMB;
    // MiB of device memory that this program may allocate.
    uint32_t FDMinMB;
    // What it can.
    CSxFlags Flags;
    // 1.
    uint16_t NumCSEs;
    // It.
    struct CSEProperties CSE[1];
} CSxProperties;

// An engine that reaches a memory.
typedef struct CSEAccess {
    // 0: a CSx has one.
    uint32_t CSEId;
    // 1 to 10.
    uint8_t RelativePerformance;
    // 1 to 10; 0: unknown.
    uint8_t RelativePower;
} CSEAccess;

// What is known of a memory.
typedef struct FDMInfo {
    // For CsMemFlags: 0.
    uint32_t FDMId;
    // Bytes that this program may allocate.
    uint64_t FDMSize;
    // What it can.
    FDMFlags Flags;
    // Elements of CSEList.
    uint16_t NumCSEs;
    // Behind the structure in the same buffer.
    struct CSEAccess *CSEList;
} FDMInfo;

// The memories of a device.
typedef struct FDMProperties {
    // 1.
    uint16_t NumFDMs;
    // It.
    struct FDMInfo FDM[1];
} FDMProperties;

// It is done.
#define CS_SUCCESS 0

// Memory cannot be mapped.
#define CS_COULD_NOT_MAP_MEMORY 1

// The storage, or the server, failed.
#define CS_DEVICE_ERROR 2

// The server cannot be reached, or went away: close the CSx and open it again.
#define CS_DEVICE_NOT_AVAILABLE 3

// The server has too much to do: try again.
#define CS_DEVICE_NOT_READY 4

// No CSx is configured.
#define CS_DEVICE_NOT_PRESENT 5

// No CSx or CSE has this name.
#define CS_ENODEV 6

// There is no such file.
#define CS_ENOENT 7

// The file is on no CSx, or not on this one.
#define CS_ENTITY_NOT_ON_DEVICE 8

// The server runs no functions, or has no device memory for this host.
#define CS_ENXIO 9

// The function failed, or was aborted.
#define CS_ERROR_IN_EXECUTION 10

// A defect of the library: see standard error.
#define CS_FATAL_ERROR 11

// Requests use the object of the handle.
#define CS_HANDLE_IN_USE 12

// The handle is invalid, or not valid any more.
#define CS_INVALID_HANDLE 13

// An argument is wrong.
#define CS_INVALID_ARG 14

// The event does not exist, or not any more.
#define CS_INVALID_EVENT 15

// No function has this identifier.
#define CS_INVALID_ID 16

// A buffer is too short; its length now says how long it must be.
#define CS_INVALID_LENGTH 17

// An option is wrong, or DISKSIDE_CSX is.
#define CS_INVALID_OPTION 18

// The function cannot be run like this.
#define CS_INVALID_FUNCTION 19

// No function has this name.
#define CS_INVALID_FUNCTION_NAME 20

// The server took too long.
#define CS_IO_TIMEOUT 21

// The program cannot be loaded.
#define CS_LOAD_ERROR 22

// Requests use the memory.
#define CS_MEMORY_IN_USE 23

// This host or user may not do that.
#define CS_NO_PERMISSIONS 24

// Nothing has completed.
#define CS_NOT_DONE 25

// There is too little device memory.
#define CS_NOT_ENOUGH_MEMORY 26

// There is no such thing.
#define CS_NO_SUCH_ENTITY_EXISTS 27

// Too much is queued or loaded.
#define CS_OUT_OF_RESOURCES 28

// The request is queued; its callback or event tells when it has completed.
#define CS_QUEUED 29

// The memory handle of a request is invalid, or not valid any more.
#define CS_UNKNOWN_MEMORY 30

// The function of a request is not known, or not any more.
#define CS_UNKNOWN_COMPUTE_FUNCTION 31

// This library does not do that.
#define CS_UNSUPPORTED 32

// An eBPF object.
#define CS_CSF_BPF_PROGRAM 2

// An eBPF object.
#define CS_BPF_PROGRAM 2

// None.
#define CS_SUBTYPE_UNDEFINED 0

// A device.
#define CS_CSx_TYPE 1

// An engine.
#define CS_CSE_TYPE 2

// Device memory.
#define CS_FDM_TYPE 4

// From this process to device memory.
#define CS_COPY_TO_DEVICE 1

// From device memory to this process.
#define CS_COPY_FROM_DEVICE 2

// Blocks of volumes.
#define CS_STORAGE_BLOCK_IO 1

// A file.
#define CS_STORAGE_FILE_IO 2

// From storage to device memory.
#define CS_STORAGE_LOAD_TYPE 1

// From device memory to storage.
#define CS_STORAGE_STORE_TYPE 2

// Device memory.
#define CS_AFDM_TYPE 1

// A number of 32 bits.
#define CS_32BIT_VALUE_TYPE 2

// A number of 64 bits.
#define CS_64BIT_VALUE_TYPE 3

// A stream: refused here.
#define CS_STREAM_TYPE 4

// A descriptor: refused here.
#define CS_DESCRIPTOR_TYPE 5

// One after another.
#define CS_BATCH_SERIAL 1

// All at once.
#define CS_BATCH_PARALLEL 2

// Each when those before it are done.
#define CS_BATCH_HYBRID 3

// A copy between this process and device memory.
#define CS_COPY_AFDM 1

// A storage request.
#define CS_STORAGE_IO 2

// A function.
#define CS_QUEUE_COMPUTE 3

// The usage of an engine.
#define CS_STAT_CSE_USAGE 1

// Of device memory.
#define CS_STAT_CSx_MEM_USAGE 2

// The statistics of a function.
#define CS_STAT_FUNCTION 3

// File systems.
#define CS_FILE_SYSTEMS_SUPPORTED 1

// It is zeroed.
#define CS_FDM_CLEAR 1

// It is filled with FillValue, again and again.
#define CS_FDM_FILL 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The last failure in this thread in words, with the reason; "" if nothing failed. For a request that completed by an
// event, it is set where the event was polled. Valid until the thread's next call. Not of the specification.
const char *dsCsError(void);

// The names of the CSxes that are configured, with commas between them.
CS_STATUS csQueryCSxList(int *Length, char *Buffer);

// The names of the CSEs of all configured CSxes that have a function of this name; of all that can be reached, if it is NULL.
CS_STATUS csQueryCSEList(const char *FunctionName,
                         int *Length,
                         char *Buffer);

// The functions of a CSx, named by its name, a URL, or the path of a file that is on it.
CS_STATUS csQueryCSFList(const char *Path, int *Length, int *Count, struct CSFUniqueId *Buffer);

// The names of the functions of a CSx, with commas between them.
CS_STATUS csQueryFunctionList(const char *Path, int *Length, char *Buffer);

// The name of the CSx that a file or directory is on: one that this machine sees, or a URL of an export, a file or a volume. The
// server is not asked.
CS_STATUS csGetCSxFromPath(const char *Path,
                           unsigned int *Length,
                           char *DevName);

// The name of the CSE of a CSx.
CS_STATUS csGetCSEFromCSx(CS_DEV_HANDLE DevHandle, unsigned int *Length, char *CSEName);

// Opens a CSx by its name, or by the URL of a server. DevContext is ignored: there are no notifications.
CS_STATUS csOpenCSx(const char *DevName, void *DevContext, CS_DEV_HANDLE *DevHandle);

// Closes a CSx. Its device memory is freed, and its functions become invalid.
CS_STATUS csCloseCSx(CS_DEV_HANDLE DevHandle);

// Opens the CSE of a CSx by its name.
CS_STATUS csOpenCSE(const char *CSEName, void *CSEContext, CS_CSE_HANDLE *CSEHandle);

// Closes a CSE. Functions that were found with it become invalid.
CS_STATUS csCloseCSE(CS_CSE_HANDLE CSEHandle);

// Allocates device memory. MemFlags may be NULL; VAddressPtr must be, since memory of a server cannot be mapped.
CS_STATUS csAllocMem(CS_DEV_HANDLE DevHandle,
                     int Bytes,
                     const struct CsMemFlags *MemFlags,
                     CS_MEM_HANDLE *MemHandle,
                     CS_MEM_PTR *VAddressPtr);

// Frees device memory. MemFlags may be NULL; otherwise the memory is cleared or filled first.
CS_STATUS csFreeMem(CS_MEM_HANDLE MemHandle, const struct CsMemFlags *MemFlags);

// Clears or fills a part of device memory.
CS_STATUS csInitMem(CS_MEM_HANDLE MemHandle, unsigned long ByteOffset, int Bytes, const struct CsMemFlags *MemFlags);

// Opens a file of an export for storage requests, where this machine does not see it: its path begins with the export's name, or is
// a URL. Not of the specification.
CS_STATUS dsCsOpenFile(CS_DEV_HANDLE DevHandle,
                       const char *Path,
                       int ForWriting,
                       void **FileHandle);

// Closes a file that dsCsOpenFile opened. Not of the specification.
CS_STATUS dsCsCloseFile(void *FileHandle);

// Loads from storage to device memory, or stores from there. The value is the number of bytes; fewer than were asked for if
// a file that is loaded ends before.
CS_STATUS csQueueStorageRequest(const struct CsStorageRequest *Req,
                                void *Context,
                                csQueueCallbackFn CallbackFn,
                                CS_EVT_HANDLE EventHandle,
                                CS_REQ_HANDLE *ReqHandle,
                                uint64_t *CompValue);

// Copies between this process and device memory. The value is the number of bytes.
CS_STATUS csQueueCopyMemRequest(const struct CsCopyMemRequest *CopyReq,
                                void *Context,
                                csQueueCallbackFn CallbackFn,
                                CS_EVT_HANDLE EventHandle,
                                CS_REQ_HANDLE *ReqHandle,
                                uint64_t *CompValue);

// Runs a function over device memory. The value is what a function of kind exec returned, else the length of the output.
CS_STATUS csQueueComputeRequest(const CsComputeRequest *Req,
                                void *Context,
                                csQueueCallbackFn CallbackFn,
                                CS_EVT_HANDLE EventHandle,
                                CS_REQ_HANDLE *ReqHandle,
                                uint64_t *CompValue);

// Gives a request up that was queued: it completes with CS_ERROR_IN_EXECUTION, or, if it was too late, as it would have.
CS_STATUS csAbortRequest(CS_REQ_HANDLE ReqHandle);

// The function behind csHelperSetComputeArg, with its values as numbers.
void csHelperSetComputeArgValues(CsComputeArg *ArgPtr, CS_COMPUTE_ARG_TYPE Type, uint64_t First, uint64_t Second);

// Finds a function by its name, or if that is NULL by its GlobalId. A name may end with arguments: "grep?pattern=ERROR&row_len=0".
// The buffer holds a CSFIdInfo and behind it the memories that the function reaches.
CS_STATUS csGetCSFId(CS_DEV_HANDLE DevHandle,
                     const char *CSFName,
                     uint64_t GlobalId,
                     int *Length,
                     int *Count,
                     struct CSFIdInfo *Buffer);

// Finds a function by its name, as csGetCSFId does. Context is ignored.
CS_STATUS csGetFunction(CS_CSE_HANDLE CSEHandle, const char *FunctionName, void *Context, CS_CSF_ID *FunctionId);

// The functions of a CSx that can be run over device memory, with their numbers. Size is as Length elsewhere.
CS_STATUS csQueryDeviceForComputeList(CS_DEV_HANDLE DevHandle, int *Size, struct CsFunctionInfo *FunctionInfo);

// Loads a program, an eBPF object, and gives the number of its function; or unloads one that this machine loaded.
CS_STATUS csCSFDownload(CS_DEV_HANDLE DevHandle, const struct CsCSFDownloadInfo *Info, CS_CSF_ID *CSFId);

// Loads or unloads a program, an eBPF object. csGetFunction finds its functions.
CS_STATUS csDownload(CS_DEV_HANDLE DevHandle, const struct CsDownloadInfo *ProgramInfo);

// Gives up the requests of this process that run a function.
CS_STATUS csStopFunction(CS_CSF_ID FunctionId);

// Gives up the requests of this process that a CSE, or a CSx, has.
CS_STATUS csAbortCSE(CS_CSE_HANDLE CSEHandle);

// Makes a batch for up to MaxReqs requests.
CS_STATUS csAllocBatchRequest(CS_BATCH_MODE Mode, int MaxReqs, CS_BATCH_HANDLE *BatchHandle);

// Frees a batch that is not queued.
CS_STATUS csFreeBatchRequest(CS_BATCH_HANDLE BatchHandle);

// Adds a request to a batch. In a serial batch it stands right behind entry After, or right before entry Before, or first if both
// are 0; in a hybrid batch it waits for After, and Before waits for it.
CS_STATUS csAddBatchEntry(CS_BATCH_HANDLE BatchHandle,
                          const struct CsBatchRequest *Req,
                          CS_BATCH_INDEX Before,
                          CS_BATCH_INDEX After,
                          CS_BATCH_INDEX *Curr);

// Gives an entry of a batch another request.
CS_STATUS csHelperReconfigureBatchEntry(CS_BATCH_HANDLE BatchHandle,
                                        CS_BATCH_INDEX Entry,
                                        const struct CsBatchRequest *Req);

// Changes how many requests a batch has room for.
CS_STATUS csHelperResizeBatchRequest(CS_BATCH_HANDLE BatchHandle, int MaxReqs);

// Carries a batch out. After a failure nothing more of it begins, and its status is that of the first entry that failed. The value
// is that of the last entry.
CS_STATUS csQueueBatchRequest(CS_BATCH_HANDLE BatchHandle,
                              void *Context,
                              csQueueCallbackFn CallbackFn,
                              CS_EVT_HANDLE EventHandle,
                              CS_REQ_HANDLE *ReqHandle,
                              uint64_t *CompValue);

// Makes an event.
CS_STATUS csCreateEvent(CS_EVT_HANDLE *EventHandle);

// Deletes an event that no outstanding request tells.
CS_STATUS csDeleteEvent(CS_EVT_HANDLE EventHandle);

// Takes a request that has completed: returns its status, and stores its context where Context points to, a void *, unless
// that is NULL. CS_NOT_DONE: none has.
CS_STATUS csPollEvent(CS_EVT_HANDLE EventHandle,
                      void *Context);

// The properties of a CSx (CS_CSx_TYPE: a CSxProperties), its CSE (CS_CSE_TYPE: a CSEProperties) or its memory
// (CS_FDM_TYPE: an FDMProperties, followed by its CSEAccess). In C, Type may be left out.
CS_STATUS csQueryDeviceProperties(CS_DEV_HANDLE DevHandle, CS_RESOURCE_TYPE Type, int *Length, void *Buffer);

// What the functions of a CSx do.
CS_STATUS csQueryDeviceCapabilities(CS_DEV_HANDLE DevHandle, struct CsCapabilities *Caps);

// The statistics of a CSx. Identifier is a CS_CSF_ID * with CS_STAT_FUNCTION, else ignored. They cover everybody's
// requests, as far as the server lets this host see them.
CS_STATUS csQueryDeviceStatistics(CS_DEV_HANDLE DevHandle,
                                  CS_STAT_TYPE Type,
                                  const void *Identifier,
                                  union CsStatsInfo *Stats);

// Refused: servers send no notifications. The next request fails if a server went away.
CS_STATUS csRegisterNotify(const char *DevName, uint32_t NotifyOptions, csDevNotificationFn NotifyFn);

// Refused, as csRegisterNotify is.
CS_STATUS csDeregisterNotify(const char *DevName, csDevNotificationFn NotifyFn);

// Refused: requests that are not for one stream are not slower.
CS_STATUS csAllocStream(CS_DEV_HANDLE DevHandle, CS_ALLOC_STREAM_TYPE Type, CS_STREAM_HANDLE *StreamHandle);

// Refused, as csAllocStream is.
CS_STATUS csFreeStream(CS_STREAM_HANDLE StreamHandle);

// Refused: a server's limits are its operator's.
CS_STATUS csSetDeviceCapability(CS_DEV_HANDLE DevHandle, CS_CAP_TYPE Type, const union CsCapabilityInfo *Details);

// Refused: a server's configuration is its operator's.
CS_STATUS csConfig(CS_CSE_HANDLE CSEHandle, const struct CsConfigInfo *Info);

// Refused: a server has other users.
CS_STATUS csReset(CS_DEV_HANDLE DevHandle, CS_RESOURCE_TYPE Type);

// Refused, as csReset is.
CS_STATUS csResetCSE(CS_CSE_HANDLE CSEHandle);

// The file systems, by CS_FILE_SYSTEMS_SUPPORTED: "diskside".
CS_STATUS csQueryLibrarySupport(CS_LIBRARY_SUPPORT Type, int *Length, char *Buffer);

// Refused: the library has no plugins.
CS_STATUS csQueryPlugin(const struct CsQueryPluginRequest *Req, csQueryPluginCallbackFn CallbackFn);

// Refused, as csQueryPlugin is.
CS_STATUS csRegisterPlugin(const struct CsPluginRequest *Req);

// Refused, as csQueryPlugin is.
CS_STATUS csDeregisterPlugin(const struct CsPluginRequest *Req);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DISKSIDE_CS_H */

#ifndef DISKSIDE_CS_CALLS_H
#define DISKSIDE_CS_CALLS_H

/* Sets an argument: csHelperSetComputeArg(arg, CS_AFDM_TYPE, memory, offset), (arg, CS_32BIT_VALUE_TYPE, number), (arg,
 * CS_64BIT_VALUE_TYPE, number). A macro, so that numbers of any width may be written. */
#define csHelperSetComputeArg(ArgPtr, Type, ...) CS_SET_ARG_((ArgPtr), (Type), __VA_ARGS__, 0, 0)
#define CS_SET_ARG_(ArgPtr, Type, First, Second, ...) \
    csHelperSetComputeArgValues(ArgPtr, Type, (uint64_t)(First), (uint64_t)(Second))

/* Versions of the specification differ in whether requests have a ReqHandle: it may be left out. */
#define CS_SEVENTH_(A, B, C, D, E, F, Seventh, ...) Seventh
#define CS_REQUEST_(Call, ...) CS_SEVENTH_(__VA_ARGS__, CS_REQUEST_6_, CS_REQUEST_5_, 0, 0, 0, 0, 0)(Call, __VA_ARGS__)
#define CS_REQUEST_5_(Call, A, B, C, D, E) (Call)(A, B, C, D, NULL, E)
#define CS_REQUEST_6_(Call, A, B, C, D, E, F) (Call)(A, B, C, D, E, F)
#define csQueueStorageRequest(...) CS_REQUEST_(csQueueStorageRequest, __VA_ARGS__)
#define csQueueCopyMemRequest(...) CS_REQUEST_(csQueueCopyMemRequest, __VA_ARGS__)
#define csQueueComputeRequest(...) CS_REQUEST_(csQueueComputeRequest, __VA_ARGS__)
#define csQueueBatchRequest(...) CS_REQUEST_(csQueueBatchRequest, __VA_ARGS__)

/* Without a Type, of the CSx. */
#define CS_FIFTH_(A, B, C, D, Fifth, ...) Fifth
#define csQueryDeviceProperties(...) \
    CS_FIFTH_(__VA_ARGS__, CS_PROPERTIES_4_, CS_PROPERTIES_3_, 0, 0, 0)(csQueryDeviceProperties, __VA_ARGS__)
#define CS_PROPERTIES_3_(Call, A, B, C) (Call)(A, CS_CSx_TYPE, B, C)
#define CS_PROPERTIES_4_(Call, A, B, C, D) (Call)(A, B, C, D)

#endif /* DISKSIDE_CS_CALLS_H */
