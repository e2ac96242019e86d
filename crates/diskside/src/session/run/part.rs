//! The bytes of a file that a request is over, and where its pieces lie in them.

use diskside_engine::{Part, Pieces};
use std::ops::Range;

/// Which bytes of a file, or of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::session) struct InputPart {
    pub(in crate::session) start: u64,
    /// `None`: to the end.
    pub(in crate::session) end: Option<u64>,
}

/// Where the pieces of a request lie.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) pieces: Pieces,
    pub(super) request: Range<u64>,
    /// Where in the file its data begins.
    pub(super) zero: u64,
}

impl Grid {
    /// The whole of the request, for a call over a part of it.
    pub(super) fn part(&self, range: &Range<u64>) -> Option<Part> {
        let is_part = self.request != *range || self.zero > 0;
        is_part.then(|| Part { request: self.request.clone(), zero: self.zero })
    }
}

impl InputPart {
    pub(super) fn is_whole(self) -> bool {
        self == Self::default()
    }

    /// The range of so many bytes.
    ///
    /// # Errors
    /// The range that is not in them.
    pub(super) fn range_within(self, len: u64) -> Result<Range<u64>, Range<u64>> {
        let range = self.start..self.end.unwrap_or(len).max(self.start);
        if range.end > len { Err(range) } else { Ok(range) }
    }
}
