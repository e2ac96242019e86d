//! Cutting a request into parts for the host and for the device.

use super::Side;
use diskside_dispatch::{Decision, Plan};
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

/// So much of what the host holds it leaves to the device at an end: there a delimited record may go on behind, and all of a
/// block would be fetched for the rest of it.
const RECORD_ROOM: u64 = 64 << 10;
/// And at a start, where it looks at what is before.
const LOOK_BACK_ROOM: u64 = 4 << 10;

/// How to cut `range` between records. The host holds the `cached` ranges (ascending, apart, of the whole file).
///
/// The parts are in order, apart, and cover the range. A part may be empty of records, never of bytes.
pub(super) fn cut(range: &Range<u64>, cached: &[Range<u64>], split: Split, decision: &Decision) -> Vec<Segment> {
    let main = match decision.plan {
        Plan::Host | Plan::Both => Side::Host,
        Plan::Device | Plan::Split => Side::Device,
    };
    let mut segments = match decision.plan {
        Plan::Split => alternate(range, &aligned(range, cached, split)),
        Plan::Host | Plan::Device | Plan::Both => vec![Segment { range: range.clone(), side: main }],
    };
    if let Some(probe) = decision.probe.filter(|probe| probe.instead && decision.plan != Plan::Split) {
        let taken = probe_range(range, cached, split, probe.len_bytes);
        segments = [range.start..taken.start, taken.clone(), taken.end..range.end]
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| Segment { side: if part == taken { probe.side } else { main }, range: part })
            .collect();
    }
    segments
}

/// The part of a range that measures a side: the last bytes that the host does not hold, if there are any.
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

/// Cached ranges that begin and end between records, the longest ones if there are many.
fn aligned(range: &Range<u64>, cached: &[Range<u64>], split: Split) -> Vec<Range<u64>> {
    let mut held: Vec<Range<u64>> = cached
        .iter()
        .map(|held| {
            let (before, behind) = match split {
                Split::Delimiter(_) => (LOOK_BACK_ROOM, RECORD_ROOM),
                Split::None | Split::Fixed(_) => (0, 0),
            };
            let start = if held.start <= range.start { range.start } else { up(range, held.start + before, split) };
            let end = held.end.min(range.end).saturating_sub(behind).max(range.start);
            start..if end == range.end { end } else { down(range, end, split) }
        })
        .filter(|held| !held.is_empty())
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

fn up(range: &Range<u64>, at: u64, split: Split) -> u64 {
    match split {
        Split::Fixed(len) if len > 0 => {
            (range.start + (at - range.start).next_multiple_of(u64::from(len))).min(range.end)
        }
        _ => at,
    }
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
