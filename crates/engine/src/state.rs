//! Named state: memory that different programs share across calls.
//!
//! Calls that use one state run one at a time, so a program finds it as the last call left it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::IntoBytes;

/// A state region. Clones share it.
#[derive(Clone, Debug)]
pub struct State(Arc<Mutex<Vec<u64>>>);

impl State {
    /// Zeroed state of at least this many bytes, rounded up to 8.
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![0; len_bytes.div_ceil(8)])))
    }

    /// Sets a range of bytes to zero; the part beyond the end is ignored.
    pub fn clear(&self, offset: usize, len_bytes: usize) {
        let mut words = self.lock();
        let bytes = words.as_mut_bytes();
        let start = offset.min(bytes.len());
        let end = offset.saturating_add(len_bytes).min(bytes.len());
        bytes[start..end].fill(0);
    }

    /// A copy of its bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.lock().as_bytes().to_vec()
    }

    /// Exclusive use for one invocation. A trap leaves the bytes as they are.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
