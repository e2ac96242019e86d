//! Folding results of several calls into one.

use crate::call::{Call, CallError};
use crate::code::CodeCache;
use crate::environment::Log;
use crate::frames::frames;
use crate::worker::{ChunkInfo, Folder, too_large};
use std::time::{Duration, Instant};

/// Results of several calls, put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutTogether {
    /// The result of all.
    pub result: Vec<u8>,
    /// Time in `combine`.
    pub fold: Duration,
}

/// Folds with the function's `combine`, or puts one after another.
pub(crate) fn fold(code: &CodeCache, call: &Call<'_>, parts: &[(&str, &[u8])]) -> Result<PutTogether, CallError> {
    let log = Log::default();
    let Some(mut folder) = Folder::new(code, call, &log, call.limits.until(Instant::now()))? else {
        let len: usize = parts.iter().map(|(_, part)| part.len()).sum();
        if len > call.limits.result_len_max {
            return Err(too_large(call));
        }
        let result = parts.iter().map(|(_, part)| *part).collect::<Vec<_>>().concat();
        return Ok(PutTogether { result, fold: Duration::ZERO });
    };
    for (index, (name, part)) in parts.iter().enumerate() {
        let info = ChunkInfo {
            source: (*name).into(),
            source_index: index as u32,
            source_len: part.len() as u64,
            chunk_index: 0,
            offset: 0,
            record_index: 0,
            first: true,
            last: true,
            of_piece: false,
        };
        folder.fold(part, &info)?;
    }
    Ok(PutTogether { result: folder.result().to_vec(), fold: folder.run })
}

/// Folds the outputs of pieces, one after another.
pub(crate) fn fold_frames(
    code: &CodeCache,
    call: &Call<'_>,
    parts: &[(&str, &[u8])],
) -> Result<PutTogether, CallError> {
    let log = Log::default();
    let folder = Folder::new(code, call, &log, call.limits.until(Instant::now()))?;
    let mut folder = folder.expect("frames are of functions with a `combine`");
    for (name, part) in parts {
        for frame in frames(part) {
            let frame = frame.map_err(|error| CallError::Frames { part: (*name).to_owned(), error })?;
            folder.fold(frame.output, &ChunkInfo::of_frame(name, &frame.header))?;
        }
    }
    Ok(PutTogether { result: folder.result().to_vec(), fold: folder.run })
}
