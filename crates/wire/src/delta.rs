//! Deltas: the bytes of a page that change, as the data of a Write Delta command and as a record of a target's journal.
//!
//! A record names the page, what it is built from (its *base*: the page's own content, or equally many bytes elsewhere on the
//! volume), the checksums of the base and of the result, and runs of new bytes. Both checksums are verified before anything
//! changes: a record over another base is refused, and its sender writes the whole page instead. `docs/wire.md` has the layout.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum};

/// Bytes of a record before its runs.
pub const DELTA_HEAD_LEN: usize = 40;
/// The longest page: positions of runs have 16 bits.
pub const DELTA_PAGE_LEN_MAX: usize = 64 << 10;
/// The version of records that this crate knows.
pub const DELTA_VERSION: u8 = 1;

/// Bytes of a run before its data.
const RUN_HEAD_LEN: usize = 4;
/// Equal bytes between two runs that are sent along, because another run would be longer.
const GAP_MAX: usize = RUN_HEAD_LEN;
/// Equal bytes are skipped in such steps.
const STEP: usize = 64;

/// A record whose form was checked: all runs are inside the page, ascend and do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Where the page is on the volume.
    pub offset: u64,
    /// Where its base is; equal to `offset` if it is the page itself.
    pub base_offset: u64,
    /// The checksum of the base.
    pub base: u64,
    /// The checksum of the page with the runs.
    pub result: u64,
    /// Bytes of the page.
    pub page_len: u32,
    record: &'a [u8],
    run_count: u16,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// It ends too early, or has bytes behind its last run.
    #[error("a record of {got} bytes ends inside its header or a run, or behind its last run")]
    Length {
        /// Bytes of the record.
        got: usize,
    },
    /// It is of another version, or a reserved field is set.
    #[error("a record of version {0} is unknown")]
    Version(u8),
    /// The page is empty or too long.
    #[error("a page of {0} bytes is not one of 1 to 65536")]
    PageLength(u32),
    /// A record longer than its page: the page itself is to be written.
    #[error("a record of {got} bytes is longer than its page")]
    TooLong {
        /// Bytes of the record.
        got: usize,
    },
    /// A run is empty, outside the page, or before the end of the previous one.
    #[error("run {index} is empty, outside the page, or before the end of the previous one")]
    Run {
        /// Its number, from 0.
        index: usize,
    },
}

/// Why a record cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeltaMismatch {
    /// The base is not the one that the record was made from: the whole page is to be written.
    #[error("the base has another checksum")]
    Base,
    /// The runs do not make the page that the record promises.
    #[error("the result has another checksum")]
    Result,
}

/// The checksum of a page: CRC-64/NVME.
pub fn page_checksum(page: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, page)
}

impl<'a> Delta<'a> {
    /// Checks the form of a record, without the page.
    pub fn parse(record: &'a [u8]) -> Result<Self, DeltaError> {
        let got = record.len();
        let (head, runs) = record.split_at_checked(DELTA_HEAD_LEN).ok_or(DeltaError::Length { got })?;
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        if (head[38], head[39]) != (DELTA_VERSION, 0) {
            return Err(DeltaError::Version(head[38]));
        }
        let page_len = u32::from_le_bytes(head[32..36].try_into().expect("four bytes"));
        if page_len == 0 || page_len as usize > DELTA_PAGE_LEN_MAX {
            return Err(DeltaError::PageLength(page_len));
        }
        if got > page_len as usize {
            return Err(DeltaError::TooLong { got });
        }
        let run_count = u16::from_le_bytes([head[36], head[37]]);
        let delta = Self {
            offset: long(0),
            base_offset: long(8),
            base: long(16),
            result: long(24),
            page_len,
            record,
            run_count,
        };
        let (mut rest, mut end) = (runs, 0);
        for index in 0..usize::from(run_count) {
            let (range, data, tail) = split_run(rest).ok_or(DeltaError::Length { got })?;
            if data.is_empty() || range.start < end || range.end > page_len as usize {
                return Err(DeltaError::Run { index });
            }
            (rest, end) = (tail, range.end);
        }
        if rest.is_empty() { Ok(delta) } else { Err(DeltaError::Length { got }) }
    }

    /// The record.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.record
    }

    /// The range of the volume that it changes.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.page_len.into())
    }

    /// The range of the volume that its base is in.
    pub fn base_range(&self) -> Range<u64> {
        self.base_offset..self.base_offset.saturating_add(self.page_len.into())
    }

    /// Whether the page is built from bytes elsewhere.
    pub fn is_copy(&self) -> bool {
        self.base_offset != self.offset
    }

    /// Makes the page from its base, in place. After an error the content of `page` is undefined.
    ///
    /// # Panics
    /// If `page` is not as long as the record's page.
    pub fn apply(&self, page: &mut [u8]) -> Result<(), DeltaMismatch> {
        assert_eq!(page.len(), self.page_len as usize, "a record is applied to its page");
        if page_checksum(page) != self.base {
            return Err(DeltaMismatch::Base);
        }
        for (range, data) in self.runs() {
            page[range].copy_from_slice(data);
        }
        if page_checksum(page) == self.result { Ok(()) } else { Err(DeltaMismatch::Result) }
    }

    /// Where bytes change, and to what.
    pub fn runs(&self) -> impl Iterator<Item = (Range<usize>, &'a [u8])> + use<'a> {
        let (mut rest, mut left) = (&self.record[DELTA_HEAD_LEN..], self.run_count);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (range, data, tail) = split_run(rest)?;
            rest = tail;
            Some((range, data))
        })
    }
}

/// The record that makes `page` at `offset` of `base`, which is at `base_offset`; `None` if it would be longer than `len_max`.
///
/// # Panics
/// If the two differ in length, or are longer than [`DELTA_PAGE_LEN_MAX`].
pub fn encode_delta(offset: u64, page: &[u8], base_offset: u64, base: &[u8], len_max: usize) -> Option<Vec<u8>> {
    assert!(page.len() == base.len() && page.len() <= DELTA_PAGE_LEN_MAX, "a page is as long as its base");
    let len_max = len_max.min(page.len());
    if len_max < DELTA_HEAD_LEN {
        return None;
    }
    let mut record = vec![0; DELTA_HEAD_LEN];
    let (mut count, mut at) = (0_u16, 0);
    while let Some(run) = next_run(page, base, at) {
        at = run.end;
        if record.len() + RUN_HEAD_LEN + run.len() > len_max {
            return None;
        }
        // Both fit: a run that is not too long for the record is not the whole page.
        record.extend_from_slice(&(run.start as u16).to_le_bytes());
        record.extend_from_slice(&(run.len() as u16).to_le_bytes());
        record.extend_from_slice(&page[run]);
        count += 1;
    }
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &offset.to_le_bytes());
    put(8, &base_offset.to_le_bytes());
    put(16, &page_checksum(base).to_le_bytes());
    put(24, &page_checksum(page).to_le_bytes());
    put(32, &(page.len() as u32).to_le_bytes());
    put(36, &count.to_le_bytes());
    put(38, &[DELTA_VERSION, 0]);
    Some(record)
}

/// The next bytes from `at` on that differ, with short gaps between them.
fn next_run(page: &[u8], base: &[u8], at: usize) -> Option<Range<usize>> {
    let start = first_difference(page, base, at)?;
    let mut end = start + 1;
    let mut equal = 0;
    for index in start + 1..page.len() {
        if page[index] == base[index] {
            equal += 1;
            if equal > GAP_MAX {
                break;
            }
        } else {
            end = index + 1;
            equal = 0;
        }
    }
    Some(start..end)
}

fn first_difference(page: &[u8], base: &[u8], at: usize) -> Option<usize> {
    let (page, base) = (&page[at..], &base[at..]);
    let steps = page.chunks(STEP).zip(base.chunks(STEP));
    let step = steps.enumerate().find(|(_, (page, base))| page != base)?.0 * STEP;
    let inside = page[step..].iter().zip(&base[step..]).position(|(page, base)| page != base)?;
    Some(at + step + inside)
}

/// Where a run belongs, its bytes, and the bytes behind it.
fn split_run(runs: &[u8]) -> Option<(Range<usize>, &[u8], &[u8])> {
    let (head, rest) = runs.split_first_chunk::<RUN_HEAD_LEN>()?;
    let start = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let (data, tail) = rest.split_at_checked(len)?;
    Some((start..start + len, data, tail))
}
