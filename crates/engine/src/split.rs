//! Where records begin.
//!
//! A record belongs to the piece in which it begins: a piece starts after its first delimiter (unless it starts the
//! source) and reads past its end to finish its last record. So pieces that cover a range without overlap see each
//! record once.

pub use diskside_sbpf::image::Split;

/// Longest record: a piece grows by this to hold one.
pub const RECORD_LEN_MAX: usize = 64 << 20;

/// Index of the record at this offset, for records of fixed size.
#[must_use]
pub fn record_index(split: Split, offset: u64) -> u64 {
    match split {
        Split::Fixed(n) if n > 0 => offset / u64::from(n),
        _ => u64::MAX,
    }
}
