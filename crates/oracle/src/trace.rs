//! The calls that a program traces, and those that it should have traced.

use crate::rule::Piece;

/// Numbers in a row.
const NUMBERS: usize = 11;

/// What one call of a program was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Bytes of input.
    pub in_len: u64,
    /// `ds_call.flags`: 1 for the first, 2 for the last.
    pub flags: u64,
    /// `ds_call.in_offset`.
    pub in_offset: u64,
    /// `ds_call.record_index`.
    pub record_index: u64,
    /// `ds_call.source_len`.
    pub source_len: u64,
    /// `ds_call.source_index`.
    pub source_index: u64,
    /// `ds_call.chunk_index`.
    pub chunk_index: u64,
}

/// `DS_UNKNOWN`.
pub const UNKNOWN: u64 = u64::MAX;

impl Row {
    /// For a piece of a file of `source_len` bytes.
    #[must_use]
    pub fn of(piece: &Piece, source_len: u64) -> Self {
        Self {
            in_len: piece.range.end - piece.range.start,
            flags: u64::from(piece.first) | u64::from(piece.last) << 1,
            in_offset: piece.range.start,
            record_index: piece.record_index.unwrap_or(UNKNOWN),
            source_len,
            source_index: 0,
            chunk_index: piece.index.into(),
        }
    }

    /// The rows of a program's output.
    #[must_use]
    pub fn read(output: &[u8]) -> Vec<Self> {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let rows = output.chunks_exact(8 * NUMBERS);
        rows.map(|row| {
            let at = |n: usize| number(&row[8 * n..8 * n + 8]);
            Self {
                in_len: at(0),
                flags: at(2),
                in_offset: at(5),
                record_index: at(6),
                source_len: at(7),
                source_index: at(8),
                chunk_index: at(9),
            }
        })
        .collect()
    }
}
