//! Where a chunk ends, so that no record is cut.
//!
//! A record belongs to the range in which it starts: a range starts after its first delimiter (unless
//! it starts the source) and reads past its end to finish its last record. So ranges that cover a
//! source without overlap see each record once, wherever they are cut.

pub use diskside_sbpf::image::Split;

/// Longest record: a chunk grows up to this to hold one.
pub const RECORD_LEN_MAX: usize = 64 << 20;

/// The chunk length to use: whole records of fixed size.
///
/// # Errors
/// The record's length when it is longer than [`RECORD_LEN_MAX`].
pub fn chunk_len(split: Split, wanted: usize) -> Result<usize, usize> {
    match split {
        Split::Fixed(0) => Err(0),
        Split::Fixed(n) if n as usize > RECORD_LEN_MAX => Err(n as usize),
        Split::Fixed(n) => Ok((wanted / n as usize).max(1) * n as usize),
        Split::None | Split::Delimiter(_) => Ok(wanted.max(1)),
    }
}

/// How many of these bytes form whole records. `ends_source` makes the rest a record too.
#[must_use]
pub fn whole_records(split: Split, bytes: &[u8], ends_source: bool) -> usize {
    if ends_source {
        return bytes.len();
    }
    match split {
        Split::None => bytes.len(),
        Split::Fixed(n) => bytes.len() - bytes.len() % n as usize,
        Split::Delimiter(d) => memchr::memrchr(d, bytes).map_or(0, |i| i + 1),
    }
}

/// Where the first record that starts in a range starts, given the bytes from one before the range.
/// `None` when no delimiter is among them.
#[must_use]
pub fn first_record(split: Split, from_one_before: &[u8]) -> Option<usize> {
    match split {
        Split::Delimiter(d) => memchr::memchr(d, from_one_before).map(|i| i + 1),
        Split::None | Split::Fixed(_) => Some(1),
    }
}

/// Index of the record at this offset, for records of fixed size.
#[must_use]
pub fn record_index(split: Split, offset: u64) -> u64 {
    match split {
        Split::Fixed(n) if n > 0 => offset / u64::from(n),
        _ => u64::MAX,
    }
}
