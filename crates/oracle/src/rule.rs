//! The rule by which a request is cut into pieces, written down a second time.
//!
//! It looks at every record of the input and is as slow as that sounds: what it says must be plain to see, for the engine is
//! compared with it.

use std::ops::Range;

/// What may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Nothing: the function runs once.
    Whole,
    /// Anything: a record is a byte.
    Bytes,
    /// Of so many bytes each; the last one may be short.
    Fixed(u64),
    /// Up to and with this byte; the last one may have none.
    After(u8),
}

/// How a request is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// What may be cut.
    pub records: Records,
    /// Pieces hold a multiple of so many records.
    pub piece_records: u64,
    /// Bytes of a piece, before they are rounded to whole records.
    pub chunk_len: u64,
}

/// One call of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place on the grid.
    pub index: u32,
    /// What the function is given, in the file.
    pub range: Range<u64>,
    /// Whether it is the first of the request.
    pub first: bool,
    /// Whether the request's last record is in it.
    pub last: bool,
    /// Index of its first record, of records of a fixed length.
    pub record_index: Option<u64>,
}

impl Grid {
    /// The calls for a range of a file, in their order.
    #[must_use]
    pub fn pieces(&self, file: &[u8], range: Range<u64>) -> Vec<Piece> {
        let whole = self.records == Records::Whole;
        if whole || range.is_empty() {
            let record_index = self.record_index(range.start);
            return vec![Piece { index: 0, range, first: true, last: true, record_index }];
        }
        let step = self.step();
        let mut pieces: Vec<Piece> = Vec::new();
        for record in self.records_in(file, &range) {
            let index = ((record.start - range.start) / step) as u32;
            match pieces.last_mut() {
                Some(piece) if piece.index == index => piece.range.end = record.end,
                _ => pieces.push(Piece {
                    index,
                    record_index: self.record_index(record.start),
                    range: record,
                    first: index == 0,
                    last: false,
                }),
            }
        }
        if let Some(piece) = pieces.last_mut() {
            piece.last = piece.range.end >= range.end;
        }
        pieces
    }

    /// Bytes from one multiple to the next.
    fn step(&self) -> u64 {
        let record = match self.records {
            Records::Fixed(len) => len * self.piece_records,
            Records::Bytes | Records::After(_) | Records::Whole => 1,
        };
        (self.chunk_len / record).max(1) * record
    }

    /// Records that begin in the range.
    fn records_in(&self, file: &[u8], range: &Range<u64>) -> Vec<Range<u64>> {
        match self.records {
            Records::Whole => vec![range.clone()],
            Records::Bytes => range.clone().map(|at| at..at + 1).collect(),
            Records::Fixed(len) => {
                let starts = (range.start..range.end).step_by(len as usize);
                starts.map(|start| start..(start + len).min(range.end)).collect()
            }
            Records::After(delimiter) => {
                let len = file.len() as u64;
                let mut starts: Vec<u64> =
                    (0..len).filter(|&at| at == 0 || file[at as usize - 1] == delimiter).collect();
                starts.push(len);
                let records = starts.windows(2).map(|pair| pair[0]..pair[1]);
                records.filter(|record| range.contains(&record.start)).collect()
            }
        }
    }

    fn record_index(&self, offset: u64) -> Option<u64> {
        match self.records {
            Records::Fixed(len) => Some(offset / len),
            Records::Bytes | Records::After(_) | Records::Whole => None,
        }
    }
}
