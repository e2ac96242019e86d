use super::*;
use diskside_dispatch::{Conditions, Dispatcher, PairId, Policy, Probe, Request};

fn decision(plan: Plan, probe: Option<Probe>) -> Decision {
    let mut dispatcher = Dispatcher::new(Policy::Fixed(Side::Host));
    let any = dispatcher.decide(PairId { file: 0, function: 0 }, &Request::read(1), &Conditions::default());
    Decision { plan, probe, ..any }
}

#[track_caller]
fn check(segments: &[Segment], range: &Range<u64>) {
    let mut at = range.start;
    for segment in segments {
        assert_eq!(segment.range.start, at, "{segments:?} has a gap or an overlap");
        assert!(!segment.range.is_empty(), "{segments:?} has a part of no bytes");
        at = segment.range.end;
    }
    assert_eq!(at, range.end);
}

#[test]
fn a_split_gives_the_host_what_it_holds_cut_between_records() {
    let range = 100..1000;
    let cached = [0..250, 400..655];
    let segments = cut(&range, &cached, Split::Fixed(8), &decision(Plan::Split, None));
    check(&segments, &range);
    let hosts: Vec<_> = segments.iter().filter(|s| s.side == Side::Host).map(|s| s.range.clone()).collect();
    assert_eq!(hosts, [100..244, 404..652], "records begin at 100 + 8n");
}

/// A line that begins in what the host holds and ends behind it had 256 KiB fetched for its end, and for a look at the byte
/// before it as much: with half of a file cached in pieces, the host waited for its link as long as without.
#[test]
fn a_split_between_lines_leaves_the_host_nothing_to_fetch() {
    const MIB: u64 = 1 << 20;
    let (range, cached) = (MIB..9 * MIB, [MIB..2 * MIB, 3 * MIB..5 * MIB, 6 * MIB..6 * MIB + 60_000, 8 * MIB..9 * MIB]);
    let segments = cut(&range, &cached, Split::Delimiter(b'\n'), &decision(Plan::Split, None));
    check(&segments, &range);
    let hosts: Vec<_> = segments.iter().filter(|s| s.side == Side::Host).map(|s| s.range.clone()).collect();
    let (before, behind) = (LOOK_BACK_ROOM, RECORD_ROOM);
    assert_eq!(hosts, [MIB..2 * MIB - behind, 3 * MIB + before..5 * MIB - behind, 8 * MIB + before..9 * MIB - behind]);
}

#[test]
fn many_short_cached_runs_do_not_become_many_calls() {
    let cached: Vec<_> = (0..500).map(|at| at * 1000..at * 1000 + 100 + at).collect();
    let segments = cut(&(0..500_000), &cached, Split::None, &decision(Plan::Split, None));
    check(&segments, &(0..500_000));
    assert!(segments.len() <= SEGMENTS_MAX + 1, "{}", segments.len());
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "a list of ranges that has one")]
fn a_probe_takes_a_part_that_the_host_does_not_hold() {
    let probe = |side, len_bytes, instead| Some(Probe { side, len_bytes, instead });
    let range = 0..10_000;
    let cached = [9_000..10_000];
    let segments = cut(&range, &cached, Split::Fixed(16), &decision(Plan::Device, probe(Side::Host, 500, true)));
    check(&segments, &range);
    let parts: Vec<_> = segments.iter().map(|s| (s.range.start, s.side)).collect();
    assert_eq!(parts, [(0, Side::Device), (8480, Side::Host), (8992, Side::Device)]);
    let beside = cut(&range, &cached, Split::None, &decision(Plan::Device, probe(Side::Host, 500, false)));
    assert_eq!(beside.len(), 1, "its result is not used");
    let all = cut(&range, &[0..10_000], Split::None, &decision(Plan::Host, probe(Side::Device, 500, true)));
    check(&all, &range);
    assert_eq!(all[1], Segment { range: 9_500..10_000, side: Side::Device });
}

#[test]
fn parts_cover_the_range_whatever_is_cached_and_however_long_records_are() {
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..3000 {
        let start = next(1000);
        let range = start..start + 1 + next(5000);
        let mut at = 0;
        let cached: Vec<_> = (0..next(6))
            .map(|_| {
                let from = at + next(900);
                at = from + 1 + next(900);
                from..at
            })
            .collect();
        let split = [Split::None, Split::Fixed(1 + next(700) as u32), Split::Delimiter(b'\n')][next(3) as usize];
        let probe = Probe { side: Side::Host, len_bytes: 1 + next(range.end - range.start), instead: true };
        for decision in [decision(Plan::Split, None), decision(Plan::Device, Some(probe))] {
            check(&cut(&range, &cached, split, &decision), &range);
        }
    }
}
