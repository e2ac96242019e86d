//! Reads of functions from a volume or an export, counted and timed where they happen.

use std::sync::Arc;
use std::time::Instant;

use diskside_io::readahead::{ReadAt, ReadAtError};

use crate::stats::AccessCounters;

/// A source whose reads are counted.
#[derive(Debug)]
pub struct Metered<R> {
    /// What is read.
    pub inner: R,
    /// Where its reads are counted.
    pub counters: Arc<AccessCounters>,
}

impl<R: ReadAt> ReadAt for Metered<R> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let began = Instant::now();
        let read = self.inner.read_exact_at(offset, buffer);
        self.counters.took(began.elapsed());
        self.counters.read(read.is_ok().then_some(buffer.len() as u64));
        read
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let began = Instant::now();
        let is_read = self.inner.read_now(offset, buffer);
        if is_read {
            self.counters.took(began.elapsed());
            self.counters.read(Some(buffer.len() as u64));
        }
        is_read
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }
}
