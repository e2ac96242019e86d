use super::*;

fn pieces(split: Split, len_bytes: usize) -> Pieces {
    Pieces { split, len_bytes, undivided: None }
}

fn covers(segments: &[Segment], range: &Range<u64>) {
    assert_eq!((segments[0].range.start, segments[segments.len() - 1].range.end), (range.start, range.end));
    assert!(segments.windows(2).all(|pair| pair[0].range.end == pair[1].range.start), "{segments:?}");
    assert!(segments.iter().all(|part| !part.range.is_empty()), "{segments:?}");
}

#[test]
fn what_the_host_holds_is_cut_out_at_pieces() {
    let range = 100..1300;
    let cached = [0..250, 503..905, 1200..2000];
    let segments = cut(&range, &cached, &pieces(Split::Fixed(8), 80), Plan::Split);
    covers(&segments, &range);
    let here: Vec<_> = segments.iter().filter(|part| part.side == Side::Host).map(|part| part.range.clone()).collect();
    assert_eq!(here, [100..180, 580..900, 1220..1300], "whole pieces of the request's own grid");
}

#[test]
fn around_delimited_records_the_host_keeps_away_from_what_it_does_not_hold() {
    let range = 0..1_000_000;
    let cached = [300_000..600_000, 900_000..1_000_000];
    let segments = cut(&range, &cached, &pieces(Split::Delimiter(b'\n'), 100), Plan::Split);
    covers(&segments, &range);
    assert_eq!(segments[1].range, 304_100..534_400, "the last record may go on behind the piece");
    assert_eq!(segments[3].range, 904_100..934_400);
}

#[test]
fn many_short_runs_become_few_parts() {
    let cached: Vec<_> = (0..100).map(|at| at * 5000..at * 5000 + 1000 + at).collect();
    let segments = cut(&(0..500_000), &cached, &pieces(Split::Bytes, 10), Plan::Split);
    covers(&segments, &(0..500_000));
    assert!(segments.len() <= SEGMENTS_MAX + 1, "{}", segments.len());
}

#[test]
fn what_is_not_divided_is_one_part() {
    let whole = Pieces { undivided: Some(diskside_engine::Undivided::Records), ..pieces(Split::Whole, 1 << 20) };
    for (plan, side) in [(Plan::Split, Side::Device), (Plan::Host, Side::Host), (Plan::Device, Side::Device)] {
        assert_eq!(cut(&(5..900), std::slice::from_ref(&(0..400)), &whole, plan), [Segment { range: 5..900, side }]);
    }
}

#[test]
fn a_probe_is_of_the_last_bytes_that_the_host_does_not_hold() {
    let of = |cached: &[Range<u64>], split, len| probe_range(&(1000..9000), cached, split, len);
    assert_eq!(of(&[], Split::Bytes, 500), 8500..9000);
    assert_eq!(of(&[], Split::Fixed(16), 500), 8488..9000);
    assert_eq!(of(std::slice::from_ref(&(6000..9000)), Split::Bytes, 500), 5500..6000);
    assert_eq!(
        of(std::slice::from_ref(&(0..9000)), Split::Bytes, 500),
        8500..9000,
        "all is held: then any part will do"
    );
    assert_eq!(of(&[], Split::Fixed(10_000), 500), 1000..9000, "a record longer than the probe");
}

#[test]
fn parts_cover_any_range_and_lie_on_its_grid() {
    let mut random = 0x1234_5678_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below.max(1)
    };
    for _ in 0..2000 {
        let start = next(1 << 20);
        let range = start..start + 1 + next(1 << 22);
        let mut at = 0;
        let cached: Vec<_> = (0..next(30))
            .map(|_| {
                let begin = at + 1 + next(200_000);
                at = begin + 1 + next(300_000);
                begin..at
            })
            .collect();
        let split = [Split::Bytes, Split::Fixed(24), Split::Delimiter(0)][next(3) as usize];
        let pieces = pieces(split, 24 * (1 + next(5000) as usize));
        let segments = cut(&range, &cached, &pieces, Plan::Split);
        covers(&segments, &range);
        for part in &segments[1..] {
            assert_eq!((part.range.start - range.start) % pieces.len_bytes as u64, 0, "{part:?} of {range:?}");
        }
    }
}
