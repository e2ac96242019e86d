//! Errors for C: an errno, a kind, a text, and of a function where it was stopped.

use crate::memory::{Growing, sized_out};
use libc::{ECANCELED, EINVAL, EIO, ENOBUFS, ssize_t};
use rust::CallError;
use rust::sandbox::trap::TrapKind;
use rust::session::{FailureKind, SessionError};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The kind of failure, the same wherever the function ran.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_failed {
    /// The call is wrong.
    DS_FAILED_USAGE = 1,
    /// A file, the network, a target, memory.
    DS_FAILED_ENVIRONMENT = 2,
    /// The function made an access that it must not make.
    DS_FAILED_TRAP = 3,
    /// It used up its loop iterations.
    DS_FAILED_BUDGET = 4,
    /// It ran until its deadline.
    DS_FAILED_DEADLINE = 5,
    /// More output than there is room for.
    DS_FAILED_OUTPUT_FULL = 6,
    /// The function itself returned an error.
    DS_FAILED_RETURNED = 7,
    /// It cannot be run there.
    DS_FAILED_REFUSED = 8,
    /// The file changed while it was read.
    DS_FAILED_CHANGED = 9,
    /// The request was cancelled.
    DS_FAILED_CANCELLED = 10,
}

/// What stopped a function.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_trap_kind {
    /// Nothing did: it returned an error.
    DS_TRAP_NONE = 0,
    /// An access outside its region.
    DS_TRAP_OUT_OF_BOUNDS = 1,
    /// An access to an address that no region covers, NULL among them.
    DS_TRAP_UNMAPPED = 2,
    /// A write to what it may only read.
    DS_TRAP_READ_ONLY = 3,
    /// An atomic operation at an address that is not a multiple of its size.
    DS_TRAP_MISALIGNED = 4,
    /// It used up its loop iterations.
    DS_TRAP_BUDGET = 5,
    /// The deadline passed.
    DS_TRAP_DEADLINE = 6,
    /// The request was cancelled.
    DS_TRAP_CANCELLED = 7,
    /// A helper refused its arguments.
    DS_TRAP_HELPER = 8,
}

/// Where a function was stopped. Set `size` before the call: later versions add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ds_trap {
    /// sizeof(ds_trap).
    pub size: usize,
    /// A ds_trap_kind.
    pub kind: i32,
    /// Which instruction of its code, counted in slots of 8 bytes.
    pub insn: u32,
    /// First byte of the input that it was given, in the file.
    pub from: u64,
    /// End of that input.
    pub to: u64,
    /// What it returned.
    pub returned: i64,
}

// SAFETY: `size` is the first field.
unsafe impl Growing for ds_trap {}

/// The last failure in this thread, with its subject, and for a function the place in the input, the instruction and
/// the source line; "" if nothing failed. Valid until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn ds_error() -> *const c_char {
    LAST.with_borrow(|last| last.text.as_ptr())
}

/// The kind of that failure: a ds_failed; 0 if nothing failed.
#[unsafe(no_mangle)]
pub extern "C" fn ds_error_kind() -> c_int {
    LAST.with_borrow(|last| last.kind)
}

/// Fills in where the function was stopped and returns 1, if that is what failed last in this thread; else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_error_trap(trap: *mut ds_trap) -> c_int {
    let Some(last) = LAST.with_borrow(|last| last.trap) else { return 0 };
    // SAFETY: the caller keeps the crate's contract.
    match unsafe { sized_out(&last, trap, "ds_trap") } {
        Ok(()) => 1,
        Err(failure) => failure.tell() as c_int,
    }
}

/// The error of a call, for C.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    kind: FailureKind,
    text: String,
    trap: Option<ds_trap>,
}

impl Failure {
    /// The caller is at fault.
    pub(crate) fn invalid(what: impl ToString) -> Self {
        Self { errno: EINVAL, kind: FailureKind::Usage, text: what.to_string(), trap: None }
    }

    /// The caller is at fault, which has an errno of its own.
    pub(crate) fn of_errno(errno: i32, what: impl ToString) -> Self {
        Self { errno, ..Self::invalid(what) }
    }

    /// The caller's buffer is too short.
    pub(crate) fn too_long(len: usize, cap: usize) -> Self {
        let text = format!("the result has {len} bytes, the buffer {cap}");
        Self { errno: ENOBUFS, kind: FailureKind::OutputFull, text, trap: None }
    }

    /// Keeps it for the thread to ask for. Gives the negative errno.
    fn tell(self) -> isize {
        let code = -(self.errno as isize);
        let text = CString::new(self.text.replace('\0', "?")).unwrap_or_default();
        LAST.set(Last { code, kind: self.kind as i32, text, trap: self.trap });
        code
    }
}

/// The errno of an error, also of one that says more than its number.
fn errno_of(error: &std::io::Error) -> Option<i32> {
    let written = || error.get_ref()?.downcast_ref::<rust::outfile::WriteError>();
    error.raw_os_error().or_else(|| written().map(|error| error.errno.raw_os_error()))
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let errno = match &error {
            _ if error.kind() == FailureKind::Cancelled => Some(ECANCELED),
            SessionError::Device { source, .. } => source.errno(),
            SessionError::File { source, .. } | SessionError::Open { source, .. } | SessionError::Output(source) => {
                errno_of(source)
            }
            SessionError::Call(CallError::Errno { code, .. }) => {
                code.checked_neg().and_then(|errno| i32::try_from(errno).ok())
            }
            SessionError::Call(CallError::Write(source)) => errno_of(source),
            SessionError::Traversal { errno, .. } => *errno,
            _ => (error.kind() == FailureKind::Usage).then_some(EINVAL),
        };
        Self { errno: errno.unwrap_or(EIO), kind: error.kind(), text: error.to_string(), trap: trap_of(&error) }
    }
}

/// Where the function was stopped, if that is what failed.
fn trap_of(error: &SessionError) -> Option<ds_trap> {
    let trap = |kind: i32, insn, range: Range<u64>, returned| {
        Some(ds_trap { size: size_of::<ds_trap>(), kind, insn, from: range.start, to: range.end, returned })
    };
    match error {
        SessionError::Call(CallError::Trapped { place, trap: stopped, .. }) => {
            trap(stopped.kind as i32, stopped.insn, place.range.clone(), 0)
        }
        SessionError::Call(CallError::OutputFull { place, .. }) => trap(0, 0, place.range.clone(), 0),
        SessionError::Call(CallError::Errno { place, code, .. }) => trap(0, 0, place.range.clone(), *code),
        // Where a source could not be read, no function was stopped.
        SessionError::Device { source, .. } if error.kind() != FailureKind::Environment => {
            let trailer = source.trailer()?;
            let place = trailer.place?;
            let range = place.offset..place.offset.saturating_add(place.len);
            let kind = TrapKind::from_u16(trailer.trap_kind).map_or(0, |kind| kind as i32);
            trap(kind, trailer.insn, range, trailer.returned)
        }
        _ => None,
    }
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// The last failure in a thread: the negative errno, the kind (0: nothing failed), the text, where the function was.
#[derive(Default)]
struct Last {
    code: isize,
    kind: i32,
    text: CString,
    trap: Option<ds_trap>,
}

/// The negative errno of what failed last.
pub(crate) fn last_code() -> ssize_t {
    LAST.with_borrow(|last| last.code)
}

/// Runs what makes an object; NULL if it fails.
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T, Failure>) -> *mut T {
    match run(work) {
        Ok(made) => Box::into_raw(Box::new(made)),
        Err(_) => std::ptr::null_mut(),
    }
}

/// Runs what gives a number; a negative errno if it fails.
pub(crate) fn guard_int(work: impl FnOnce() -> Result<isize, Failure>) -> isize {
    run(work).unwrap_or_else(|code| code)
}

fn run<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, isize> {
    // A panic may leave work half done in objects that their own locks guard.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => {
            LAST.set(Last::default());
            return Ok(done);
        }
        Ok(Err(failure)) => failure,
        Err(_) => {
            let text = "this is a bug in libdiskside: see standard error".into();
            Failure { errno: EIO, kind: FailureKind::Environment, text, trap: None }
        }
    };
    Err(failure.tell())
}

/// The header's numbers are the library's.
const _: () = {
    assert!(ds_failed::DS_FAILED_USAGE as i32 == FailureKind::Usage as i32);
    assert!(ds_failed::DS_FAILED_ENVIRONMENT as i32 == FailureKind::Environment as i32);
    assert!(ds_failed::DS_FAILED_TRAP as i32 == FailureKind::Trap as i32);
    assert!(ds_failed::DS_FAILED_BUDGET as i32 == FailureKind::Budget as i32);
    assert!(ds_failed::DS_FAILED_DEADLINE as i32 == FailureKind::Deadline as i32);
    assert!(ds_failed::DS_FAILED_OUTPUT_FULL as i32 == FailureKind::OutputFull as i32);
    assert!(ds_failed::DS_FAILED_RETURNED as i32 == FailureKind::Returned as i32);
    assert!(ds_failed::DS_FAILED_REFUSED as i32 == FailureKind::Refused as i32);
    assert!(ds_failed::DS_FAILED_CHANGED as i32 == FailureKind::Changed as i32);
    assert!(ds_failed::DS_FAILED_CANCELLED as i32 == FailureKind::Cancelled as i32);
    assert!(ds_trap_kind::DS_TRAP_OUT_OF_BOUNDS as i32 == TrapKind::OutOfBounds as i32);
    assert!(ds_trap_kind::DS_TRAP_UNMAPPED as i32 == TrapKind::Unmapped as i32);
    assert!(ds_trap_kind::DS_TRAP_READ_ONLY as i32 == TrapKind::ReadOnly as i32);
    assert!(ds_trap_kind::DS_TRAP_MISALIGNED as i32 == TrapKind::Misaligned as i32);
    assert!(ds_trap_kind::DS_TRAP_BUDGET as i32 == TrapKind::Budget as i32);
    assert!(ds_trap_kind::DS_TRAP_DEADLINE as i32 == TrapKind::Deadline as i32);
    assert!(ds_trap_kind::DS_TRAP_CANCELLED as i32 == TrapKind::Cancelled as i32);
    assert!(ds_trap_kind::DS_TRAP_HELPER as i32 == TrapKind::Helper as i32);
};
