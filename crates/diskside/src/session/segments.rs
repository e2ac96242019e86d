//! Cutting a request into parts for the host and for the device.

use diskside_dispatch::{Plan, Side};
use diskside_engine::Pieces;
use diskside_engine::split::Split;
use std::ops::Range;

/// A part of a request, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) range: Range<u64>,
    pub(super) side: Side,
}

/// Most parts that a request is cut into: short cached runs are not worth a call of their own.
const SEGMENTS_MAX: usize = 16;

/// So much of what the host holds it leaves to the device at an end: there a delimited record may continue behind, and all of a
/// block would be fetched for the rest of it.
const RECORD_ROOM: u64 = 64 << 10;
/// And at a start, where it looks at what is before.
const LOOK_BACK_ROOM: u64 = 4 << 10;

/// How to cut `range` between pieces. The host holds the `cached` ranges (ascending, apart, of the whole file).
///
/// The parts are in order, apart, and cover the range. In a part no record may begin, but it is never empty of bytes.
pub(super) fn cut(range: &Range<u64>, cached: &[Range<u64>], pieces: &Pieces, plan: Plan) -> Vec<Segment> {
    match plan {
        Plan::Split if pieces.is_divisible() => alternate(range, &aligned(range, cached, pieces)),
        Plan::Host | Plan::Both => vec![Segment { range: range.clone(), side: Side::Host }],
        Plan::Device | Plan::Split => vec![Segment { range: range.clone(), side: Side::Device }],
    }
}

/// The part of a range that measures a side: the last bytes that the host does not hold, if there are any. It is a request
/// of its own, and no piece of the one that it measures.
pub(super) fn probe_range(range: &Range<u64>, cached: &[Range<u64>], split: Split, len: u64) -> Range<u64> {
    let mut end = range.end;
    for held in cached.iter().rev() {
        if held.end < end {
            break;
        }
        end = held.start.clamp(range.start, end);
    }
    if end == range.start {
        end = range.end;
    }
    let end = if end == range.end { end } else { down(range, end, split) };
    let start = down(range, end.saturating_sub(len).max(range.start), split);
    // Records longer than the probe: then all of it is.
    if start < end { start..end } else { range.clone() }
}

/// Cached ranges that begin and end between pieces, the longest ones if there are many.
fn aligned(range: &Range<u64>, cached: &[Range<u64>], pieces: &Pieces) -> Vec<Range<u64>> {
    let (before, behind) = match pieces.split {
        Split::Delimiter(_) => (LOOK_BACK_ROOM, RECORD_ROOM),
        Split::Whole | Split::Bytes | Split::Fixed(_) => (0, 0),
    };
    let mut held: Vec<Range<u64>> = cached
        .iter()
        .map(|held| {
            let is_first = held.start <= range.start;
            let start = if is_first { range.start } else { pieces.up(range.start, held.start + before).min(range.end) };
            let end = held.end.min(range.end).saturating_sub(behind).max(range.start);
            let is_last = held.end >= range.end && behind == 0 || end == range.end;
            start..if is_last { range.end } else { pieces.down(range.start, end) }
        })
        .filter(|held| held.start < held.end)
        .collect();
    if held.len() > SEGMENTS_MAX / 2 {
        held.sort_by_key(|held| std::cmp::Reverse(held.end - held.start));
        held.truncate(SEGMENTS_MAX / 2);
        held.sort_by_key(|held| held.start);
    }
    held
}

fn alternate(range: &Range<u64>, held: &[Range<u64>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut at = range.start;
    for part in held {
        if at < part.start {
            segments.push(Segment { range: at..part.start, side: Side::Device });
        }
        segments.push(Segment { range: part.clone(), side: Side::Host });
        at = part.end;
    }
    if at < range.end {
        segments.push(Segment { range: at..range.end, side: Side::Device });
    }
    segments
}

/// The last place between records at or before `at`. Of delimited records every place will do.
fn down(range: &Range<u64>, at: u64, split: Split) -> u64 {
    match split {
        Split::Fixed(len) if len > 0 => range.start + (at - range.start) / u64::from(len) * u64::from(len),
        _ => at,
    }
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
