//! A synthetic trace with the published statistics of cluster 19 of Twitter's caches, the one of which BPF-oF's authors replay the
//! real trace: Yang, Yue and Rashmi, "A large scale analysis of hundreds of in-memory cache clusters at Twitter", OSDI '20, with
//! the table at <https://github.com/twitter/cache-trace/blob/master/stat/2020Mar.md>.
//!
//! Only the numbers of that table are in it. All keys have the mean size, and so have all values, since only means are published.
//! The order of requests is random: no key is asked for more at one time than at another. A read finds a value, as in a
//! store behind a cache, although of the cache's own reads 45 % found none.

use crate::Failure;
use crate::contents::scrambled;
use std::io::Write;

/// Of 100 requests; the others are `set`.
const GETS_OF_100: u64 = 75;
const KEY_LEN: u64 = 42;
const VALUE_LEN: u64 = 101;
/// How often rank k is asked for: by k to the power of minus this.
const ZIPF_ALPHA: f64 = 0.735;
const REQUESTS_PER_KEY: f64 = 4.7;
/// Keys that are asked for once, of all keys.
const ONCE: f64 = 0.0746;
const REQUESTS_PER_SECOND: u64 = 3310;
/// The most common times to live, in tenths of an hour, and of how many of 100 writes they are. The others' are not published.
const TTLS: [(u64, u64); 10] =
    [(75, 8), (74, 7), (66, 7), (72, 7), (67, 7), (70, 7), (71, 7), (68, 7), (69, 7), (73, 6)];
const SECONDS_OF_TENTH: u64 = 360;

/// Writes a trace of so many keys. The same seed gives the same bytes.
pub(crate) fn make(keys: u64, seed: u64, to: &mut impl Write) -> Result<(), Failure> {
    if !(100..=100_000_000).contains(&keys) {
        return Err(format!("a trace of {keys} keys: from 100 to 100000000 are possible").into());
    }
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut order: Vec<u32> = Vec::new();
    for (rank, count) in counts(keys).into_iter().enumerate() {
        order.extend(std::iter::repeat_n(rank as u32, count as usize));
    }
    dice.shuffle(&mut order);
    for (place, rank) in order.into_iter().enumerate() {
        let (second, key) = (place as u64 / REQUESTS_PER_SECOND, key(rank));
        let (operation, ttl) = if dice.u64(..100) < GETS_OF_100 { ("get", 0) } else { ("set", ttl(&mut dice)) };
        writeln!(to, "{second},{key},{KEY_LEN},{VALUE_LEN},1,{operation},{ttl}")?;
    }
    Ok(())
}

/// How many requests are for each key, by rank.
fn counts(keys: u64) -> Vec<u64> {
    let once = (keys as f64 * ONCE).round() as u64;
    let (often, total) = (keys - once, (keys as f64 * REQUESTS_PER_KEY).round() as u64 - once);
    // All but those that are asked for once are asked for twice at least.
    let wanted = |scale: f64, rank: u64| (scale * (rank as f64).powf(-ZIPF_ALPHA)).max(2.0);
    let (mut low, mut high) = (0.0, total as f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        let sum: f64 = (1..=often).map(|rank| wanted(middle, rank)).sum();
        if sum < total as f64 { low = middle } else { high = middle }
    }
    // The part that one rank loses by rounding is given to the next, so that the sum is right.
    let (mut left, mut given) = (0.0, 0);
    let mut counts: Vec<u64> = (1..=often)
        .map(|rank| {
            left += wanted(low, rank);
            let count = left as u64;
            left -= count as f64;
            given += count;
            count
        })
        .collect();
    counts[0] += total.saturating_sub(given);
    counts.extend(std::iter::repeat_n(1, once as usize));
    counts
}

/// Ranks are scattered over the order of keys.
fn key(rank: u32) -> String {
    format!("c19:{:016x}{rank:022x}", scrambled(&rank.to_le_bytes()))
}

fn ttl(dice: &mut fastrand::Rng) -> u64 {
    let mut at = dice.u64(..TTLS.iter().map(|(_, of_100)| of_100).sum::<u64>());
    for (tenths, of_100) in TTLS {
        if at < of_100 {
            return tenths * SECONDS_OF_TENTH;
        }
        at -= of_100;
    }
    unreachable!("it is less than the sum")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Kind, Trace};

    fn made(keys: u64, seed: u64) -> Vec<u8> {
        let mut text = Vec::new();
        make(keys, seed, &mut text).expect("it is made");
        text
    }

    #[test]
    fn a_seed_decides_everything() {
        let text = made(1000, 19);
        assert_eq!(text, made(1000, 19));
        assert_ne!(text, made(1000, 20));
        // The same also in the next version: figures of two versions are of the same requests.
        assert_eq!((text.len(), scrambled(&text)), (286_728, 6_917_066_202_187_708_485));
    }

    #[test]
    fn a_trace_has_the_published_statistics() {
        for (keys, seed) in [(20_000, 19), (50_000, 1)] {
            let trace = Trace::read(&made(keys, seed)[..], u64::MAX, false).expect("it is read");
            let summary = trace.summary();
            let number = |name: &str| summary[name].as_f64().expect("a number");
            assert_eq!((number("keys"), number("key_len_mean"), number("value_len_mean")), (keys as f64, 42.0, 101.0));
            assert!((number("requests_per_key") - 4.7).abs() < 1e-9, "{summary}");
            assert!((number("keys_requested_once") - 0.0746).abs() < 1e-9, "{summary}");
            assert!((number("reads") / number("requests") - 0.75).abs() < 0.01, "{summary}");
            assert!((number("writes") / number("requests") - 0.25).abs() < 0.01, "{summary}");
            let alpha = alpha(&trace);
            assert!((alpha - 0.735).abs() < 0.01, "{alpha}");
        }
    }

    /// The slope of frequencies over ranks, both as logarithms, by least squares. The ranks that are asked for most are few,
    /// and those that are asked for two or three times have whole numbers: both are left out.
    fn alpha(trace: &Trace) -> f64 {
        let mut counts: Vec<u32> = trace.keys.iter().map(|key| key.requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let points: Vec<(f64, f64)> = (10..trace.keys.len() / 10)
            .map(|place| (((place + 1) as f64).ln(), f64::from(counts[place]).ln()))
            .collect();
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let (mut above, mut below) = (0.0, 0.0);
        for point in &points {
            above += (point.0 - x) * (point.1 - y);
            below += (point.0 - x).powi(2);
        }
        -above / below
    }

    #[test]
    fn writes_have_the_published_times_to_live_and_reads_have_none() {
        let text = String::from_utf8(made(20_000, 19)).expect("it is text");
        let (mut writes, mut longest) = (0_u32, 0_u32);
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let (operation, ttl) = (fields[5], fields[6].parse::<u64>().expect("a number"));
            match operation {
                "get" => assert_eq!(ttl, 0),
                _ => {
                    assert!(TTLS.iter().any(|(tenths, _)| ttl == tenths * 360), "{line}");
                    writes += 1;
                    longest += u32::from(ttl == 27_000);
                }
            }
        }
        let share = f64::from(longest) / f64::from(writes);
        assert!((share - 8.0 / 70.0).abs() < 0.01, "{share}");
        // 94,000 requests, 3,310 a second.
        assert!(text.lines().last().expect("a line").starts_with("28,"), "{:?}", text.lines().last());
    }

    #[test]
    fn requests_for_a_key_are_all_over_the_trace() {
        let trace = Trace::read(&made(20_000, 19)[..], u64::MAX, false).expect("it is read");
        let often = (0..trace.keys.len()).max_by_key(|place| trace.keys[*place].requests).expect("a key");
        let middle = trace.requests.len() / 2;
        let in_half =
            |half: &[crate::trace::Request]| half.iter().filter(|request| request.key as usize == often).count() as f64;
        let (first, second) = trace.requests.split_at(middle);
        assert!((0.8..1.25).contains(&(in_half(first) / in_half(second))));
        assert!(trace.requests.iter().all(|request| matches!(request.kind, Kind::Read | Kind::Write)));
    }

    #[test]
    fn too_few_keys_are_refused() {
        let error = make(99, 1, &mut Vec::new()).expect_err("too few").to_string();
        assert_eq!(error, "a trace of 99 keys: from 100 to 100000000 are possible");
    }
}
