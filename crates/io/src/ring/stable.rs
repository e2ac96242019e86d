//! A heap value whose address the kernel holds.

use std::ptr::NonNull;

/// A boxed value that may be moved while the kernel points to it.
///
/// A `Box` may not: moving one asserts that nothing else accesses its content.
pub(super) struct Stable<T>(NonNull<T>);

// SAFETY: `Stable` owns its value, like a `Box`.
unsafe impl<T: Send> Send for Stable<T> {}

impl<T> Stable<T> {
    pub(super) fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    /// The address, valid until `self` is dropped.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Stable<T> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak` in `new`, freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
