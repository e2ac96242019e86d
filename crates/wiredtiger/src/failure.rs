//! Failures: an errno for WiredTiger, and the reason in words.

use diskside::host::function::FunctionError;
use std::cell::RefCell;
use std::ffi::CString;

/// Why an operation failed: an errno, or an error of WiredTiger.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Failure {
    pub(crate) errno: i32,
    why: String,
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

impl Failure {
    /// A message that begins with the file that it is about.
    pub(crate) fn new(errno: i32, name: &str, why: &dyn std::fmt::Display) -> Self {
        let told = why.to_string();
        Self { errno, why: if told.contains(name) { told } else { format!("{name}: {told}") } }
    }

    pub(crate) fn of(name: &str, error: &FunctionError) -> Self {
        Self::new(error.errno().unwrap_or(libc::EIO), name, error)
    }

    /// Keeps it as the last one of this thread, and gives its number.
    pub(crate) fn note(&self) -> i32 {
        let text: Vec<u8> = self.why.bytes().filter(|byte| *byte != 0).collect();
        LAST.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
        self.errno
    }
}

/// This thread's last failure, which another part of the library noted, with this number.
pub(crate) fn last_as(errno: i32) -> Failure {
    LAST.with_borrow(|last| Failure { errno, why: last.to_string_lossy().into_owned() })
}

/// The text of this thread's last failure, which stays in its place until the next one.
pub(crate) fn last() -> *const std::ffi::c_char {
    LAST.with_borrow(|last| last.as_ptr())
}
