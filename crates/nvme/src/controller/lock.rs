//! How what several connections share is locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread that panicked while it held the lock left nothing behind that does not fit together.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
