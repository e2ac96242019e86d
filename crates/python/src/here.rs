//! Things with threads and rings behind them, which a forked process has not: there they are not used, and not taken down.

use crate::error::Failure;
use std::mem::ManuallyDrop;

/// A value of the process that made it.
pub(crate) struct Here<T> {
    value: ManuallyDrop<T>,
    made_in: u32,
}

impl<T> Here<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), made_in: std::process::id() }
    }

    pub(crate) fn is_here(&self) -> bool {
        self.made_in == std::process::id()
    }

    /// # Errors
    /// This process was forked from the one that made it.
    pub(crate) fn get(&self) -> Result<&T, Failure> {
        if self.is_here() {
            return Ok(&self.value);
        }
        Err(Failure::usage(
            "it was made before this process was forked, and its threads are not here; make it again in this process",
        ))
    }
}

impl<T> Drop for Here<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: it is dropped here alone, and never used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
