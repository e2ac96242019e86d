//! Functions over text, and run-length expansion.

mod common;

use common::{EINVAL, ENOSPC, cuts, shipped, words};
use diskside_sbpf::image::{Kind, Split};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Text with many short lines and much white space.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![3 => Just(b'a'), 2 => Just(b'b'), 2 => Just(b'\n'), 1 => Just(b' '), 1 => Just(b'\t'), 1 => any::<u8>()],
        0..400,
    )
}

/// Lines with their ends, as `split_inclusive` gives them.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|b| *b == b'\n').collect()
}

/// What a row has to have.
type Holds = fn(&[u8]) -> bool;

fn contains(row: &[u8], pattern: &[u8]) -> bool {
    row.windows(pattern.len()).any(|w| w == pattern)
}

/// Cuts at line ends.
fn line_cuts(picks: &[Index], text: &[u8]) -> Vec<usize> {
    let ends: Vec<usize> = (1..=text.len()).filter(|&i| text[i - 1] == b'\n').collect();
    let mut cuts: Vec<usize> = picks.iter().filter(|_| !ends.is_empty()).map(|p| ends[p.index(ends.len())]).collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn wc(text in text(), picks in vec(any::<Index>(), 0..4)) {
        let is_space = |b: &u8| matches!(b, 9..=13 | 32);
        let count = text.split(is_space).filter(|w| !w.is_empty()).count() as u64;
        let newlines = text.iter().filter(|b| **b == b'\n').count() as u64;
        let expected = vec![newlines, count, text.len() as u64];
        let function = shipped("wc");
        prop_assert_eq!(words(&function.run(&text, &[]).unwrap()), expected.clone());
        prop_assert_eq!(words(&function.run_in_chunks(&text, &line_cuts(&picks, &text), &[]).unwrap()), expected);
    }

    #[test]
    fn grep_over_lines(text in text(), pattern in "[ab]{1,3}", picks in vec(any::<Index>(), 0..4)) {
        let found: Vec<&[u8]> = lines(&text).into_iter().filter(|l| contains(l, pattern.as_bytes())).collect();
        let mut rows = found.concat();
        if rows.last().is_some_and(|last| *last != b'\n') {
            rows.push(b'\n');
        }
        check_grep(&text, &[("pattern", &pattern)], &found, &rows, &line_cuts(&picks, &text));
    }

    #[test]
    fn grep_over_fixed_rows(text in text(), pattern in "[ab\n]{1,3}", row_len in 1usize..20, picks in vec(any::<Index>(), 0..4)) {
        let found: Vec<&[u8]> = text.chunks(row_len).filter(|r| contains(r, pattern.as_bytes())).collect();
        let cuts = cuts(&picks, text.len(), row_len);
        check_grep(&text, &[("pattern", &pattern), ("row_len", &row_len.to_string())], &found, &found.concat(), &cuts);
    }

    #[test]
    fn regex(text in text(), picks in vec(any::<Index>(), 0..4)) {
        let holds: [(&str, Holds); 6] = [
            ("a.*b", |line| line.iter().position(|c| *c == b'a').is_some_and(|at| line[at..].contains(&b'b'))),
            ("^a", |line| line.first() == Some(&b'a')),
            ("(a|b)$", |line| matches!(line.last(), Some(b'a' | b'b'))),
            ("^$", |line| line.is_empty()),
            ("b{2}", |line| line.windows(2).any(|pair| pair == b"bb")),
            ("[^a]", |line| line.iter().any(|c| *c != b'a')),
        ];
        let cuts = line_cuts(&picks, &text);
        let lines_len = lines(&text).len();
        for (pattern, holds) in holds {
            let args = [("pattern", pattern)];
            let lines = lines(&text).into_iter().map(|line| line.strip_suffix(b"\n").unwrap_or(line));
            let rows: Vec<&[u8]> = lines.filter(|line| holds(line)).collect();
            let found: Vec<u8> = rows.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
            let function = shipped("regex");
            prop_assert_eq!(&function.run(&text, &args).unwrap(), &found, "{}", pattern);
            prop_assert_eq!(&function.run_in_chunks(&text, &cuts, &args).unwrap(), &found, "{} in chunks", pattern);
            let count = shipped("regex_count");
            prop_assert_eq!(words(&count.run(&text, &args).unwrap()), vec![rows.len() as u64], "{}", pattern);
            let others = vec![(lines_len - rows.len()) as u64];
            prop_assert_eq!(words(&count.run(&text, &[args[0], ("invert", "1")]).unwrap()), others, "not {}", pattern);
            prop_assert_eq!(words(&count.run_in_chunks(&text, &cuts, &args).unwrap()), vec![rows.len() as u64]);
        }
    }

    #[test]
    fn bitmap(pairs in vec((prop_oneof![4 => 0u8..70, 1 => any::<u8>()], any::<u8>()), 0..60), picks in vec(any::<Index>(), 0..4)) {
        let input: Vec<u8> = pairs.iter().flat_map(|&(n, byte)| [n, byte]).collect();
        let expected: Vec<u8> = pairs.iter().flat_map(|&(n, byte)| vec![byte; usize::from(n)]).collect();
        let function = shipped("bitmap");
        let cap = expected.len();
        prop_assert_eq!(function.chunk(&input, 0, true, &[], cap), Ok(expected.clone()));
        if cap > 0 {
            prop_assert_eq!(function.chunk(&input, 0, true, &[], cap - 1), Err(ENOSPC));
        }
        let mut joined = Vec::new();
        let mut start = 0;
        for end in cuts(&picks, input.len(), 2).into_iter().chain([input.len()]) {
            joined.extend(function.chunk(&input[start..end], start as u64, false, &[], cap).unwrap());
            start = end;
        }
        prop_assert_eq!(joined, expected);
    }

    #[test]
    fn lambda_io_forms(values: Vec<i32>) {
        let input: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let sum = values.iter().fold(0i32, |s, v| s.wrapping_add(*v));
        for name in ["lambda_sum", "lambda_io_sum"] {
            let result = shipped(name).chunk(&input, 0, true, &[], 4);
            prop_assert_eq!(result, Ok(sum.to_le_bytes().to_vec()), "{}", name);
        }
    }
}

/// All three programs, whole and in chunks.
fn check_grep(text: &[u8], args: &[(&str, &str)], found: &[&[u8]], rows: &[u8], cuts: &[usize]) {
    let grep = shipped("grep");
    assert_eq!(grep.run(text, args).unwrap(), rows);
    assert_eq!(grep.run_in_chunks(text, cuts, args).unwrap(), rows);
    for name in ["grep_count", "grep_scalar"] {
        let function = shipped(name);
        let count = vec![found.len() as u64];
        assert_eq!(words(&function.run(text, args).unwrap()), count, "{name}");
        assert_eq!(words(&function.run_in_chunks(text, cuts, args).unwrap()), count, "{name} in chunks");
    }
}

/// Over two files, the last line of the first had no newline, and the first match of the second stood on the same line of
/// the output. Now such a line gets its newline, as from grep(1).
#[test]
fn a_last_line_without_a_newline_gets_one() {
    let grep = shipped("grep");
    assert_eq!(grep.run(b"a1\na2", &[("pattern", "a")]).unwrap(), b"a1\na2\n");
    assert_eq!(grep.run(b"a1\nb2", &[("pattern", "a")]).unwrap(), b"a1\n", "a line that does not match adds nothing");
    assert_eq!(grep.run(b"", &[("pattern", "")]).unwrap(), b"");
    let args = [b"\0\0\0\0".as_slice(), b"a"].concat();
    assert_eq!(grep.chunk(b"a1", 0, true, &args, 2), Err(ENOSPC));
}

#[test]
fn a_pattern_with_a_newline_is_in_no_line() {
    for name in ["grep", "grep_count", "grep_scalar"] {
        assert_eq!(shipped(name).run(b"a\nb\n", &[("pattern", "a\nb")]), Err(EINVAL), "{name}");
    }
}

#[test]
fn half_a_pair_is_refused() {
    assert_eq!(shipped("bitmap").chunk(&[1, 2, 3], 0, true, &[], 64), Err(EINVAL));
}

#[test]
fn defaults_for_splitting_and_kinds() {
    for (name, split) in [
        ("grep", Split::Delimiter(b'\n')),
        ("regex", Split::Delimiter(b'\n')),
        ("regex_count", Split::Delimiter(b'\n')),
        ("wc", Split::Delimiter(b'\n')),
        ("stats64", Split::Fixed(8)),
        ("stats32", Split::Fixed(4)),
        ("bitmap", Split::Fixed(2)),
        ("topk", Split::Fixed(8)),
    ] {
        assert_eq!(shipped(name).split(), Some(split), "{name}");
    }
    assert_eq!(shipped("bitmap").kind(), Kind::Write);
    assert_eq!(shipped("lambda_sum").kind(), Kind::Lambda);
    assert_eq!(shipped("lambda_io_sum").kind(), Kind::LambdaIo);
}
