//! The rule's second writing, by examples that can be checked by hand.

use diskside_oracle::rule::{Grid, Records};

fn cut(records: Records, piece_records: u64, chunk_len: u64, file: &[u8], range: std::ops::Range<u64>) -> Vec<String> {
    let pieces = Grid { records, piece_records, chunk_len }.pieces(file, range);
    let flags = |first, last| match (first, last) {
        (true, true) => " first last",
        (true, false) => " first",
        (false, true) => " last",
        (false, false) => "",
    };
    let show = |piece: &diskside_oracle::rule::Piece| {
        format!("{}: {}..{}{}", piece.index, piece.range.start, piece.range.end, flags(piece.first, piece.last))
    };
    pieces.iter().map(show).collect()
}

#[test]
fn records_of_a_fixed_length_are_rounded_down_to_and_counted_from_the_start_of_the_request() {
    let file = [0; 30];
    assert_eq!(
        cut(Records::Fixed(4), 1, 10, &file, 0..30),
        ["0: 0..8 first", "1: 8..16", "2: 16..24", "3: 24..30 last"]
    );
    assert_eq!(cut(Records::Fixed(4), 1, 10, &file, 1..10), ["0: 1..9 first", "1: 9..10 last"]);
    assert_eq!(cut(Records::Fixed(4), 3, 10, &file, 0..30), ["0: 0..12 first", "1: 12..24", "2: 24..30 last"]);
    assert_eq!(cut(Records::Fixed(50), 1, 10, &file, 0..30), ["0: 0..30 first last"]);
    assert_eq!(cut(Records::Bytes, 1, 16, &file, 3..30), ["0: 3..19 first", "1: 19..30 last"]);
    assert_eq!(cut(Records::Whole, 1, 8, &file, 3..30), ["0: 3..30 first last"]);
    assert_eq!(cut(Records::Fixed(4), 1, 8, &file, 7..7), ["0: 7..7 first last"]);
}

#[test]
fn lines_belong_to_the_piece_in_which_they_begin() {
    //            0123456 78 9012345678901 2345
    let file = b"one two\n\na line that is\nend";
    let lines = |chunk_len, range| cut(Records::After(b'\n'), 1, chunk_len, file, range);
    assert_eq!(lines(8, 0..27), ["0: 0..8 first", "1: 8..24", "3: 24..27 last"]);
    // The line at 9 reaches over the third piece, in which none begins.
    assert_eq!(lines(4, 0..27), ["0: 0..8 first", "2: 8..24", "6: 24..27 last"]);
    // From the first line on that begins there, to the end of the last one.
    assert_eq!(lines(8, 1..12), ["0: 8..9 first", "1: 9..24 last"]);
    assert_eq!(lines(100, 1..8), Vec::<String>::new());
    assert_eq!(lines(100, 10..20), Vec::<String>::new());
}
