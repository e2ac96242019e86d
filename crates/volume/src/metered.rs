//! Reads of functions from a volume or an export, counted and timed where they happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use diskside_io::buffer::Part;
use diskside_io::readahead::{ReadAt, Reading};

use crate::stats::AccessCounters;

/// Where the bytes came from that one call was given.
#[derive(Debug, Default)]
pub struct Reads {
    /// Bytes that were read from a medium or a file.
    pub media_bytes: AtomicU64,
    /// Bytes that the cache had.
    pub kept_bytes: AtomicU64,
}

/// What counts reads.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Counts for a volume or an export.
    pub counters: Option<Arc<AccessCounters>>,
    /// Counts for a call.
    pub reads: Arc<Reads>,
}

impl Meter {
    /// A read of so many bytes; `None`: it failed.
    pub fn ended(&self, began: Instant, bytes: Option<u64>) {
        if let Some(counters) = &self.counters {
            counters.took(began.elapsed());
            counters.read(bytes);
        }
        self.reads.media_bytes.fetch_add(bytes.unwrap_or(0), Ordering::Relaxed);
    }
}

/// A source whose reads are counted.
#[derive(Debug)]
pub struct Metered<R> {
    /// What is read.
    pub inner: R,
    /// What counts that.
    pub meter: Meter,
}

impl<R: ReadAt> Metered<R> {
    /// A source of a volume or an export, of which no call wants to know how much it read.
    pub fn by(counters: Arc<AccessCounters>, inner: R) -> Self {
        Self { inner, meter: Meter { counters: Some(counters), reads: Arc::default() } }
    }
}

impl<R: ReadAt> ReadAt for Metered<R> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, into: Part) -> Reading<'_> {
        Box::pin(async move {
            let (began, len) = (Instant::now(), into.len() as u64);
            let read = self.inner.read(offset, into).await;
            self.meter.ended(began, read.is_ok().then_some(len));
            read
        })
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let began = Instant::now();
        let is_read = self.inner.read_now(offset, buffer);
        if is_read {
            self.meter.ended(began, Some(buffer.len() as u64));
        }
        is_read
    }

    fn has_memory(&self) -> bool {
        self.inner.has_memory()
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }
}
