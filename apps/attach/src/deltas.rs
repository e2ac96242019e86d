//! Reads and writes of a volume of which pages travel as deltas where that is possible.

use std::fmt::Write as _;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diskside_host::{CommandOutcome, Volume};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo as _, Cause, Outcome, Request, RequestFuture, Status};
use diskside_volume::Size;
use diskside_wire::delta::{DELTA_PAGE_LEN_MAX, Delta};

use crate::bases::{BLOCK_LEN, Bases, Piece, Ticket};

/// How often a Flush is sent while connections are lost.
const FLUSHES_MAX: u32 = 8;

/// How writes become deltas: `base_cache=64MiB,page=16KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaOptions {
    /// Bytes of the pages whose content is kept; an eighth more is needed to find them.
    pub base_cache: Size,
    /// Bytes of a page: the program's own, so that its pages stay whole.
    pub page: Size,
}

impl Default for DeltaOptions {
    fn default() -> Self {
        Self { base_cache: Size::from_mib(64), page: Size::from_bytes(16 << 10) }
    }
}

impl FromStr for DeltaOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("base_cache", size)) => options.base_cache = size.parse()?,
                Some(("page", size)) => options.page = size.parse()?,
                _ => return Err(format!("unknown option `{option}`; known are base_cache=64MiB, page=16KiB")),
            }
        }
        let page = options.page.bytes();
        if !page.is_power_of_two() || !(BLOCK_LEN..=DELTA_PAGE_LEN_MAX as u64).contains(&page) {
            return Err(format!("page={} is not 4, 8, 16, 32 or 64 KiB", options.page));
        }
        if options.base_cache.bytes() < page {
            return Err(format!("base_cache={} is shorter than a page", options.base_cache));
        }
        Ok(options)
    }
}

/// A volume, and what is known of its content.
pub(crate) struct Deltas {
    volume: Volume,
    bases: Mutex<Bases>,
    options: DeltaOptions,
    full: Counter,
    delta: Counter,
    copied: Counter,
    /// Deltas that the target refused: their pages were written in full.
    refused: AtomicU64,
}

/// Pages, or parts of them, of a kind: their bytes, and those that travelled.
#[derive(Default)]
struct Counter {
    pieces: AtomicU64,
    bytes: AtomicU64,
    sent: AtomicU64,
}

impl Deltas {
    pub(crate) fn new(volume: Volume, options: DeltaOptions) -> Arc<Self> {
        let bases = Mutex::new(Bases::new(options.base_cache.bytes(), options.page.bytes() as usize));
        let [full, delta, copied] = std::array::from_fn(|_| Counter::default());
        Arc::new(Self { volume, bases, options, full, delta, copied, refused: AtomicU64::new(0) })
    }

    pub(crate) async fn read(self: Arc<Self>, offset: u64, buffer: Buffer) -> Outcome {
        let ticket = self.bases().begin_read(offset..offset + buffer.len() as u64);
        let outcome = self.volume.submit(Request::Read { offset, buffer }).await;
        let came = match (&outcome.status, &outcome.buffer) {
            (Status::Success, Some(buffer)) => &buffer[..buffer.len().min(outcome.transferred_bytes as usize)],
            _ => &[],
        };
        self.bases().end_read(&ticket, came);
        outcome
    }

    pub(crate) async fn write(self: Arc<Self>, offset: u64, data: Buffer) -> Outcome {
        let (ticket, pieces) = self.bases().begin_write(offset, &data);
        // All are sent before the first of them is waited for.
        let sent: Vec<_> = pieces.iter().map(|piece| self.send(offset, &data, piece)).collect();
        let mut status = Status::Success;
        for (piece, sent) in pieces.iter().zip(sent) {
            let range = piece.range();
            let ended = match sent {
                Sent::Full(future) => future.await,
                Sent::Record(future) => match future.await.result {
                    Ok(_) => continue,
                    // Another base, or a target that takes no deltas any more: the page itself is always right.
                    Err(_) => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        self.write_full(offset, &data, range).await
                    }
                },
            };
            if ended.status != Status::Success && status == Status::Success {
                status = ended.status;
            }
        }
        self.end_write(&ticket, &data, status)
    }

    /// A Flush. One that is lost with its connection may hide lost writes elsewhere; here each acknowledged write is durable by
    /// itself, and a file system must not take a target that was started again for a broken disk.
    pub(crate) async fn flush(self: Arc<Self>) -> Outcome {
        let mut tries = 0;
        loop {
            let outcome = self.volume.submit(Request::Flush).await;
            tries += 1;
            if !matches!(outcome.status, Status::IoError(Cause::Lost(_))) || tries == FLUSHES_MAX {
                return outcome;
            }
        }
    }

    /// A deallocation, or zeroes.
    pub(crate) async fn change(self: Arc<Self>, request: Request, range: Range<u64>) -> Outcome {
        self.bases().forget(&range);
        let outcome = self.volume.submit(request).await;
        self.bases().forget(&range);
        outcome
    }

    /// The counters, a line each.
    pub(crate) fn statistics(&self) -> String {
        let (cached, most) = (self.bases().len_bytes(), self.options.base_cache.bytes());
        let mut text = String::new();
        let kinds = [("full", &self.full), ("delta", &self.delta), ("copied", &self.copied)];
        for (kind, counter) in kinds {
            let [pieces, bytes, sent] = [&counter.pieces, &counter.bytes, &counter.sent].map(get);
            let _ = writeln!(text, "{kind}_writes {pieces}\n{kind}_bytes {bytes}\n{kind}_sent_bytes {sent}");
        }
        // A refused delta is a delta and a full write.
        let sum = |of: fn(&Counter) -> &AtomicU64| kinds.iter().map(|(_, counter)| get(of(counter))).sum::<u64>();
        let saved = sum(|counter| &counter.bytes).saturating_sub(sum(|counter| &counter.sent));
        let refused = get(&self.refused);
        let _ = writeln!(text, "refused {refused}\nsaved_bytes {saved}\ncached_bytes {cached}\ncache_bytes {most}");
        text
    }

    fn send(&self, offset: u64, data: &Buffer, piece: &Piece) -> Sent {
        let len = piece.range().len() as u64;
        match piece {
            Piece::Full(range) => {
                self.full.add(len, len);
                Sent::Full(self.submit_full(offset, data, range.clone()))
            }
            Piece::Delta { record, .. } => {
                self.delta.add(len, record.len() as u64);
                self.send_record(record)
            }
            Piece::Copy { record, .. } => {
                self.copied.add(len, record.len() as u64);
                self.send_record(record)
            }
        }
    }

    fn send_record(&self, record: &[u8]) -> Sent {
        let delta = Delta::parse(record).expect("a record is one as it was encoded");
        Sent::Record(self.volume.write_delta(&delta))
    }

    async fn write_full(&self, offset: u64, data: &Buffer, range: Range<usize>) -> Outcome {
        let len = range.len() as u64;
        self.full.add(0, len);
        self.submit_full(offset, data, range).await
    }

    fn submit_full(&self, offset: u64, data: &Buffer, range: Range<usize>) -> RequestFuture {
        let buffer = Buffer::copy_of(&data[range.clone()]);
        self.volume.submit(Request::Write { offset: offset + range.start as u64, buffer, durable: false })
    }

    fn end_write(&self, ticket: &Ticket, data: &Buffer, status: Status) -> Outcome {
        let is_written = status == Status::Success;
        self.bases().end_write(ticket, is_written.then_some(&data[..]));
        let transferred_bytes = if is_written { data.len() as u64 } else { 0 };
        Outcome { status, transferred_bytes, buffer: None }
    }

    fn bases(&self) -> MutexGuard<'_, Bases> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Sent {
    Full(RequestFuture),
    Record(RequestFuture<CommandOutcome>),
}

impl Piece {
    pub(crate) fn range(&self) -> Range<usize> {
        match self {
            Self::Full(range) | Self::Delta { range, .. } | Self::Copy { range, .. } => range.clone(),
        }
    }
}

impl Counter {
    fn add(&self, bytes: u64, sent: u64) {
        self.pieces.fetch_add(u64::from(bytes > 0), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_mistakes_told() {
        let options: DeltaOptions = "base_cache=8MiB,page=8KiB".parse().expect("fine");
        assert_eq!((options.base_cache, options.page), (Size::from_mib(8), Size::from_bytes(8192)));
        assert_eq!("".parse(), Ok(DeltaOptions::default()));
        for (text, told) in [
            ("page=12KiB", "is not 4, 8, 16, 32 or 64 KiB"),
            ("page=128KiB", "is not 4, 8, 16, 32 or 64 KiB"),
            ("cache=1MiB", "known are base_cache=64MiB, page=16KiB"),
            ("base_cache=8KiB", "shorter than a page"),
            ("base_cache=much", "is not a size"),
        ] {
            let error = text.parse::<DeltaOptions>().expect_err("wrong");
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
