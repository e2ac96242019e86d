//! Statuses: the return values of calls, and which failure gives which.

use diskside::LoadError;
use diskside::host::HostError;
use diskside::host::function::{FunctionError, Outcome};
use diskside::session::SessionError;
use diskside_nvme::Status;
use diskside_nvme::host::ConnectionError;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a call returns.
pub type CS_STATUS = i32;
/// It is done.
pub const CS_SUCCESS: CS_STATUS = 0;
/// Memory cannot be mapped.
pub const CS_COULD_NOT_MAP_MEMORY: CS_STATUS = 1;
/// The storage, or the server, failed.
pub const CS_DEVICE_ERROR: CS_STATUS = 2;
/// The server cannot be reached, or went away: close the CSx and open it again.
pub const CS_DEVICE_NOT_AVAILABLE: CS_STATUS = 3;
/// The server has too much to do: try again.
pub const CS_DEVICE_NOT_READY: CS_STATUS = 4;
/// No CSx is configured.
pub const CS_DEVICE_NOT_PRESENT: CS_STATUS = 5;
/// No CSx or CSE has this name.
pub const CS_ENODEV: CS_STATUS = 6;
/// There is no such file.
pub const CS_ENOENT: CS_STATUS = 7;
/// The file is on no CSx, or not on this one.
pub const CS_ENTITY_NOT_ON_DEVICE: CS_STATUS = 8;
/// The server runs no functions, or has no device memory for this host.
pub const CS_ENXIO: CS_STATUS = 9;
/// The function failed, or was aborted.
pub const CS_ERROR_IN_EXECUTION: CS_STATUS = 10;
/// A defect of the library: see standard error.
pub const CS_FATAL_ERROR: CS_STATUS = 11;
/// Requests use the object of the handle.
pub const CS_HANDLE_IN_USE: CS_STATUS = 12;
/// The handle is invalid, or not valid any more.
pub const CS_INVALID_HANDLE: CS_STATUS = 13;
/// An argument is wrong.
pub const CS_INVALID_ARG: CS_STATUS = 14;
/// The event does not exist, or not any more.
pub const CS_INVALID_EVENT: CS_STATUS = 15;
/// No function has this identifier.
pub const CS_INVALID_ID: CS_STATUS = 16;
/// A buffer is too short; its length now says how long it must be.
pub const CS_INVALID_LENGTH: CS_STATUS = 17;
/// An option is wrong, or DISKSIDE_CSX is.
pub const CS_INVALID_OPTION: CS_STATUS = 18;
/// The function cannot be run like this.
pub const CS_INVALID_FUNCTION: CS_STATUS = 19;
/// No function has this name.
pub const CS_INVALID_FUNCTION_NAME: CS_STATUS = 20;
/// The server took too long.
pub const CS_IO_TIMEOUT: CS_STATUS = 21;
/// The program cannot be loaded.
pub const CS_LOAD_ERROR: CS_STATUS = 22;
/// Requests use the memory.
pub const CS_MEMORY_IN_USE: CS_STATUS = 23;
/// This host or user may not do that.
pub const CS_NO_PERMISSIONS: CS_STATUS = 24;
/// Nothing has completed.
pub const CS_NOT_DONE: CS_STATUS = 25;
/// There is too little device memory.
pub const CS_NOT_ENOUGH_MEMORY: CS_STATUS = 26;
/// There is no such thing.
pub const CS_NO_SUCH_ENTITY_EXISTS: CS_STATUS = 27;
/// Too much is queued or loaded.
pub const CS_OUT_OF_RESOURCES: CS_STATUS = 28;
/// The request is queued; its callback or event tells when it has completed.
pub const CS_QUEUED: CS_STATUS = 29;
/// The memory handle of a request is invalid, or not valid any more.
pub const CS_UNKNOWN_MEMORY: CS_STATUS = 30;
/// The function of a request is not known, or not any more.
pub const CS_UNKNOWN_COMPUTE_FUNCTION: CS_STATUS = 31;
/// This library does not do that.
pub const CS_UNSUPPORTED: CS_STATUS = 32;

/// The error of a call, for C.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: CS_STATUS,
    pub(crate) text: String,
}

pub(crate) type Done<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: CS_STATUS, text: impl ToString) -> Self {
        Self { status, text: text.to_string() }
    }

    pub(crate) fn argument(text: impl ToString) -> Self {
        Self::new(CS_INVALID_ARG, text)
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::argument(format!("{what} is NULL"))
    }

    pub(crate) fn unsupported(text: impl ToString) -> Self {
        Self::new(CS_UNSUPPORTED, text)
    }

    /// The status of a file operation: the errno of the server's system says more.
    pub(crate) fn of_file(error: &FunctionError) -> Self {
        let status = match error.errno() {
            Some(ENOENT | ENOTDIR) => CS_ENOENT,
            Some(EPERM | EACCES | EROFS) => CS_NO_PERMISSIONS,
            Some(EMFILE | ENFILE) => CS_OUT_OF_RESOURCES,
            Some(EISDIR | EINVAL | ENAMETOOLONG) => CS_INVALID_ARG,
            Some(_) => CS_DEVICE_ERROR,
            None => return Self::from_function(error),
        };
        Self::new(status, error)
    }

    fn from_function(error: &FunctionError) -> Self {
        let status = match error {
            _ if error.is_loss() => CS_DEVICE_NOT_AVAILABLE,
            FunctionError::Failed(trailer) => match trailer.outcome {
                Outcome::Media | Outcome::Stale => CS_DEVICE_ERROR,
                Outcome::OutputFull => CS_NOT_ENOUGH_MEMORY,
                Outcome::Refused => CS_INVALID_ARG,
                _ => CS_ERROR_IN_EXECUTION,
            },
            FunctionError::NoCompute { .. } => CS_ENXIO,
            FunctionError::NoIndex { .. } => CS_OUT_OF_RESOURCES,
            FunctionError::RequestTooLong { .. } => CS_INVALID_ARG,
            FunctionError::Host(error) => of_host(error),
            _ => STATUSES
                .iter()
                .find(|(theirs, _)| theirs.iter().any(|status| error.is_status(*status)))
                .map_or(CS_DEVICE_ERROR, |(_, ours)| *ours),
        };
        Self::new(status, error)
    }
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EROFS: i32 = 30;
const ENAMETOOLONG: i32 = 36;

/// Statuses of NVMe, and ours for each; all others are CS_DEVICE_ERROR.
const STATUSES: &[(&[Status], CS_STATUS)] = &[
    (
        &[
            Status::COMMAND_INTERRUPTED,
            Status::FUNCTION_BUSY,
            Status::TAG_LIMIT_EXCEEDED,
            Status::NAMESPACE_NOT_READY,
            Status::PROGRAM_IN_USE,
        ],
        CS_DEVICE_NOT_READY,
    ),
    (&[Status::FUNCTION_FAILED, Status::COMMAND_ABORT_REQUESTED], CS_ERROR_IN_EXECUTION),
    (&[Status::OPERATION_DENIED, Status::ACCESS_DENIED, Status::NAMESPACE_WRITE_PROTECTED], CS_NO_PERMISSIONS),
    (
        &[
            Status::NO_PROGRAM,
            Status::PROGRAM_NOT_ACTIVATED,
            Status::INVALID_PROGRAM_INDEX,
            Status::PROGRAM_ID_MISMATCH,
        ],
        CS_UNKNOWN_COMPUTE_FUNCTION,
    ),
    (&[Status::FUNCTION_KIND_NOT_SUPPORTED, Status::FUNCTION_NOT_FOUND], CS_INVALID_FUNCTION),
    (&[Status::INVALID_PROGRAM_DATA, Status::INVALID_PROGRAM_TYPE, Status::PROGRAM_TOO_BIG], CS_LOAD_ERROR),
    (
        &[
            Status::INSUFFICIENT_PROGRAM_RESOURCES,
            Status::MAXIMUM_PROGRAMS_ACTIVATED,
            Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED,
        ],
        CS_OUT_OF_RESOURCES,
    ),
    (&[Status::MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED], CS_NOT_ENOUGH_MEMORY),
    (
        &[
            Status::INVALID_FIELD,
            Status::INVALID_NAMESPACE_OR_FORMAT,
            Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT,
            Status::LBA_OUT_OF_RANGE,
            Status::OVERLAPPING_MEMORY_RANGES,
            Status::OVERLAPPING_IO_RANGE,
            Status::MAXIMUM_MEMORY_RANGES_EXCEEDED,
            Status::NAMESPACE_NOT_REACHABLE,
            Status::REQUEST_REFUSED,
        ],
        CS_INVALID_ARG,
    ),
];

fn of_host(error: &HostError) -> CS_STATUS {
    match error {
        HostError::Key(_) | HostError::OtherKey { .. } | HostError::NoTlsKey | HostError::NotListed { .. } => {
            CS_NO_PERMISSIONS
        }
        HostError::Ended {
            source:
                ConnectionError::AuthenticationRequired
                | ConnectionError::AuthenticationNotAsked
                | ConnectionError::Authentication(_),
            ..
        } => CS_NO_PERMISSIONS,
        HostError::Ended { source: ConnectionError::Refused { status, .. }, .. }
            if status.is(Status::CONNECT_INVALID_HOST) =>
        {
            CS_NO_PERMISSIONS
        }
        HostError::NoNamespace { .. } | HostError::NotBlocks { .. } => CS_INVALID_ARG,
        HostError::TooSlow { .. } => CS_IO_TIMEOUT,
        _ => CS_DEVICE_NOT_AVAILABLE,
    }
}

impl From<FunctionError> for Failure {
    fn from(error: FunctionError) -> Self {
        Self::from_function(&error)
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::new(of_host(&error), error)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let status = match &error {
            SessionError::Target { source, .. } => of_host(source),
            SessionError::Device { source, .. } => Self::from_function(source).status,
            SessionError::Location(_) => CS_INVALID_ARG,
            _ => CS_DEVICE_NOT_AVAILABLE,
        };
        Self::new(status, error)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::new(CS_LOAD_ERROR, error)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The last failure in this thread in words, with the reason; "" if nothing failed. For a request that completed by an
/// event, it is set where the event was polled. Valid until the thread's next call. Not of the specification.
#[unsafe(no_mangle)]
pub extern "C" fn dsCsError() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Keeps the words for the thread to ask for.
pub(crate) fn tell(failure: &Failure) -> CS_STATUS {
    LAST.set(CString::new(failure.text.replace('\0', "?")).unwrap_or_default());
    failure.status
}

/// Runs a call.
pub(crate) fn guard(work: impl FnOnce() -> Done<CS_STATUS>) -> CS_STATUS {
    match caught(work) {
        Ok(status) => {
            LAST.set(CString::default());
            status
        }
        Err(failure) => tell(&failure),
    }
}

/// Runs work; a panic is a failure. Work that is left half done is in objects that their own locks guard.
pub(crate) fn caught<T>(work: impl FnOnce() -> Done<T>) -> Done<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::new(CS_FATAL_ERROR, "this is a bug in libdiskside_csapi: see standard error")))
}
