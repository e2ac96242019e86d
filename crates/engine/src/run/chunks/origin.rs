//! Where a source's bytes come from, for what is read of it more than once.

use crate::call::{CallError, Source};
use diskside_io::readahead::{ChunkReader, ReadAhead, ReadAt, ReadError};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// A source that can be opened once more, to read the end of a record that crosses the end of a range.
#[derive(Clone)]
pub(super) enum Origin {
    File(PathBuf),
    Open(String, Arc<OwnedFd>),
    Reader(String, Arc<dyn ReadAt>),
    Stream,
}

impl Origin {
    pub(super) fn of(source: &Source) -> Option<(Self, Option<Range<u64>>)> {
        match source {
            Source::File { path, range } => Some((Self::File(path.clone()), range.clone())),
            Source::Open { name, file, range } => Some((Self::Open(name.clone(), Arc::clone(file)), range.clone())),
            Source::Reader { name, reader, range } => {
                Some((Self::Reader(name.clone(), Arc::clone(reader)), range.clone()))
            }
            Source::Stream { .. } | Source::Bytes { .. } | Source::Chunk { .. } | Source::Many { .. } => None,
        }
    }

    pub(super) fn open(&self, range: Range<u64>, how: &ReadAhead) -> Result<ChunkReader, ReadError> {
        match self {
            Self::File(path) => ChunkReader::open(path, range, how),
            Self::Open(name, file) => ChunkReader::new(Arc::clone(file), name, range, how),
            Self::Reader(name, reader) => ChunkReader::over(Arc::clone(reader), name, range, how),
            Self::Stream => Err(std::io::Error::from(std::io::ErrorKind::NotSeekable).into()),
        }
    }

    /// All of it, and how much that is.
    pub(super) fn open_all(&self, how: &ReadAhead) -> Result<(ChunkReader, u64), ReadError> {
        let reader = match self {
            Self::File(path) => ChunkReader::open(path, .., how)?,
            Self::Open(name, file) => ChunkReader::new(Arc::clone(file), name, .., how)?,
            other => other.open(0..other.len()?, how)?,
        };
        let len = reader.range().end;
        Ok((reader, len))
    }

    /// Bytes in all.
    pub(super) fn len(&self) -> Result<u64, ReadError> {
        match self {
            Self::File(path) => std::fs::metadata(path)
                .map(|metadata| metadata.len())
                .map_err(|source| ReadError::Open { path: path.clone(), source }),
            Self::Open(name, file) => rustix::fs::fstat(file)
                .map(|found| found.st_size.cast_unsigned())
                .map_err(|errno| ReadError::Open { path: name.into(), source: errno.into() }),
            Self::Reader(_, reader) => Ok(reader.len()),
            Self::Stream => Ok(u64::MAX),
        }
    }

    /// Reads a range until `take` has enough, which it says with true, or its call `is_over`. The first read is short, because most
    /// records end soon and what is behind them is nobody's. One that does not end for long is read as other input is: a slow disk had it a
    /// read at a time, seven times as long as all that was in front of it.
    pub(super) fn read_on(
        &self,
        range: Range<u64>,
        source_index: u32,
        is_over: &dyn Fn() -> bool,
        mut take: impl FnMut(&[u8]) -> Result<bool, CallError>,
    ) -> Result<(), CallError> {
        let failed = |error| CallError::Read { source_index, error };
        let at_most = |len: u64| range.start.saturating_add(len).min(range.end);
        let (soon, late) = (at_most(SOON_LEN), at_most(LATE_LEN));
        let one_by_one = |chunk_bytes| ReadAhead { chunk_bytes, depth: 1, ..ReadAhead::default() };
        let parts = [
            (range.start..soon, one_by_one(SOON_LEN as usize)),
            (soon..late, one_by_one(256 << 10)),
            (late..range.end, ReadAhead { chunk_bytes: LATE_CHUNK_LEN, ..ReadAhead::default() }),
        ];
        for (range, how) in parts {
            let mut reader = self.open(range, &how).map_err(failed)?;
            while let Some(chunk) = reader.next_unless(is_over) {
                if take(&chunk.map_err(failed)?)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The length of the first read behind a range for the end of its last record.
const SOON_LEN: u64 = 16 << 10;
/// How far it is read one by one.
const LATE_LEN: u64 = 1 << 20;
/// From there on three of these are under way.
const LATE_CHUNK_LEN: usize = 512 << 10;
