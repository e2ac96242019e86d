//! Errors for C: an errno, and a text that the thread can ask for.

use session::CallError;
use session::session::{FailureKind, SessionError};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Linux' numbers.
pub(crate) const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOBUFS: i32 = 105;

/// What is told to C.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    kind: FailureKind,
    text: String,
}

impl Failure {
    /// The caller is at fault.
    pub(crate) fn invalid(what: impl ToString) -> Self {
        Self { errno: EINVAL, kind: FailureKind::Usage, text: what.to_string() }
    }

    /// The caller's buffer is too short.
    pub(crate) fn too_long(len: usize, cap: usize) -> Self {
        let text = format!("the result has {len} bytes, the buffer {cap}");
        Self { errno: ENOBUFS, kind: FailureKind::OutputFull, text }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let errno = match &error {
            SessionError::Device { source, .. } => source.errno(),
            SessionError::File { source, .. } | SessionError::Open { source, .. } => source.raw_os_error(),
            SessionError::Call(CallError::Errno { code, .. }) => Some(-*code),
            _ => (error.kind() == FailureKind::Usage).then_some(EINVAL),
        };
        Self { errno: errno.unwrap_or(EIO), kind: error.kind(), text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// What failed last in a thread: the negative errno, the kind (0: nothing failed), the text.
#[derive(Default)]
struct Last {
    code: isize,
    kind: i32,
    text: CString,
}

pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|last| last.text.as_ptr())
}

pub(crate) fn last_kind() -> i32 {
    LAST.with_borrow(|last| last.kind)
}

/// The negative errno of what failed last.
pub(crate) fn last_code() -> isize {
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
    // What a panic leaves half done is in objects that their own locks guard.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => {
            LAST.set(Last::default());
            return Ok(done);
        }
        Ok(Err(failure)) => failure,
        Err(_) => {
            let text = "this is a bug in libdiskside: see standard error".into();
            Failure { errno: EIO, kind: FailureKind::Environment, text }
        }
    };
    let code = -(failure.errno as isize);
    let text = CString::new(failure.text.replace('\0', "?")).unwrap_or_default();
    LAST.set(Last { code, kind: failure.kind as i32, text });
    Err(code)
}
