//! Files of exports that were short when a function ran over them last: one that runs over them again need not open them, nor
//! look at them, to know that a round trip takes longer than anything else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a file is at most that is short.
pub(super) const SHORT_LEN_MAX: u64 = 256 << 10;
/// Files that are known. When there are more, all are found out again.
const FILES_MAX: usize = 4096;

/// Lengths of short files, by the files' numbers.
#[derive(Debug, Default)]
pub(super) struct ShortFiles {
    lens_bytes: Mutex<HashMap<u64, u64>>,
}

impl ShortFiles {
    /// Takes note of how long a file is now.
    pub(super) fn note(&self, file: u64, len_bytes: u64) {
        if len_bytes > SHORT_LEN_MAX {
            return self.forget(file);
        }
        let mut lens_bytes = self.lock();
        if lens_bytes.len() >= FILES_MAX && !lens_bytes.contains_key(&file) {
            lens_bytes.clear();
        }
        lens_bytes.insert(file, len_bytes);
    }

    pub(super) fn forget(&self, file: u64) {
        self.lock().remove(&file);
    }

    /// How long a file was, if it was short.
    pub(super) fn len_bytes(&self, file: u64) -> Option<u64> {
        self.lock().get(&file).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.lens_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_short_as_long_as_it_is() {
        let short = ShortFiles::default();
        assert_eq!(short.len_bytes(1), None);
        short.note(1, SHORT_LEN_MAX);
        assert_eq!(short.len_bytes(1), Some(SHORT_LEN_MAX));
        short.note(1, SHORT_LEN_MAX + 1);
        assert_eq!(short.len_bytes(1), None);
        (0..2 * FILES_MAX as u64).for_each(|file| short.note(file, file));
        assert!(short.lock().len() <= FILES_MAX);
    }
}
