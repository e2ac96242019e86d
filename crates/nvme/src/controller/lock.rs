//! How what several connections share is locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread that panicked while it held the lock left no half-made change behind: each is one assignment.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
