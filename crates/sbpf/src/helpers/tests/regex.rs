//! `ds_regex_find` against a table, and the expressions that it refuses.

use super::{Host, INPUT};
use crate::trap::{Trap, TrapKind};

const ABSENT: i64 = -1;

/// The host has the hay, then the pattern.
fn find_by(host: &mut Host, hay: &[u8], pattern: &[u8]) -> Result<i64, Trap> {
    let bytes = [hay, pattern].concat();
    let (hay_len, pattern_len) = (hay.len() as u64, pattern.len() as u64);
    let found = host.over("ds_regex_find", &bytes, &[INPUT, hay_len, INPUT + hay_len, pattern_len]);
    found.map(u64::cast_signed)
}

fn find(hay: &[u8], pattern: &str) -> Result<i64, String> {
    find_by(&mut Host::new(), hay, pattern.as_bytes()).map_err(|trap| trap.to_string())
}

#[test]
fn the_end_of_the_first_match_is_found() {
    for (hay, pattern, end) in [
        ("", "", 0),
        ("", "a", ABSENT),
        ("abc", "", 0),
        ("abc", "c", 3),
        ("abc", "b+", 2),
        ("abbbc", "ab*", 1),
        ("abbbc", "ab*c", 5),
        ("GET /index.html 404", "(404|500)$", 19),
        ("GET /index.html 404 ", "(404|500)$", ABSENT),
        ("x1y22", "^x[0-9]y[0-9]{2}$", 5),
        ("an error, an ERROR", "(?i)ERROR", 8),
        ("Grüße", "ü", 4),
        ("cat concat", r"\bcat\b", 3),
        ("concat", r"\bcat", ABSENT),
        ("a\nb", "a.b", ABSENT),
        ("a\nb", "(?s)a.b", 3),
        ("one\ntwo", "(?m)^two", 7),
        ("one\ntwo", "^two", ABSENT),
    ] {
        assert_eq!(find(hay.as_bytes(), pattern), Ok(end), "{pattern} in {hay}");
    }
    assert_eq!(find(&[0xff, 0xfe, b'a'], r"(?-u)\xfea"), Ok(3), "any bytes are searched");
    // A match over the border between two steps, and one that begins long before.
    for at in [4090, 4095, 4096, 8191, 20_000] {
        let mut hay = vec![b'x'; 30_000];
        hay[at..at + 6].copy_from_slice(b"needle");
        assert_eq!(find(&hay, "ne{2}dle"), Ok(at as i64 + 6));
        assert_eq!(find(&hay, "^x+needle"), Ok(at as i64 + 6));
        assert_eq!(find(&hay, "needles"), Ok(ABSENT));
    }
}

#[test]
fn what_is_no_expression_is_refused_with_its_place() {
    for (pattern, told) in [
        ("ab(c", "a `(` is not closed, at byte 2"),
        ("abc)", "this `)` closes nothing, at byte 3"),
        ("[a-", "a `[` is not closed, at byte 0"),
        ("[z-a]", "a range in a class ends before it begins, at byte 1"),
        ("*a", "there is nothing to repeat, at byte 0"),
        ("a{2", "a `{` is not closed, at byte 1"),
        ("a{3,2}", "a repetition is {N}, {N,} or {N,M}, with M no less than N, at byte 1"),
        (r"a\y", "no such escape is known, at byte 1"),
        ("a\\", "the expression ends within an escape, at byte 1"),
        (r"(a)\1", "references back are not regular, and not supported, at byte 3"),
        ("a(?=b)", "looking around is not regular, and not supported, at byte 1"),
        ("[ü]", "the expression is over bytes, and this is none, at byte 1"),
        ("(a{100}){1000}", "the expression needs too much memory; repeat less in it"),
    ] {
        assert_eq!(find(b"hay", pattern), Err(format!("ds_regex_find: {told}")), "{pattern}");
    }
    let deep = "(".repeat(100) + &")".repeat(100);
    assert_eq!(find(b"", &deep), Err("ds_regex_find: the expression is nested too deep, at byte 64".to_owned()));
    let trap = find_by(&mut Host::new(), b"", b"a\xffb").unwrap_err();
    assert_eq!(
        (trap.kind, trap.to_string().as_str()),
        (TrapKind::Helper, "ds_regex_find: the expression is not UTF-8, at byte 1")
    );
    let long = "a".repeat(4097);
    assert_eq!(find(b"", &long), Err("ds_regex_find: the expression is longer than 4096 bytes".to_owned()));
}

/// An expression that is slow elsewhere takes its share of the budget, the same whatever was searched before.
#[test]
fn it_costs_by_length_and_not_by_what_was_searched_before() {
    let mut host = Host::new();
    let mut spent = |pattern: &str| {
        host.budget(1 << 30);
        let hay = vec![b'a'; 64 << 10];
        assert_eq!(find_by(&mut host, &hay, pattern.as_bytes()), Ok(ABSENT), "{pattern}");
        (1_i64 << 30) - (host.machine.budget.cast_signed() + host.machine.slice)
    };
    let first = spent("b");
    assert!(first > 1024 && first < 1100, "{first}: an edge for each 64 bytes");
    let large = spent("(a?){300}b{300}");
    assert!(large > 3 * first, "{large}: by the number of states, too");
    assert_eq!((spent("b"), spent("b")), (first, first));
    host.budget(100);
    assert_eq!(find_by(&mut host, &[b'a'; 64 << 10], b"b").unwrap_err().kind, TrapKind::Budget);
}
