use diskside_wire::delta::Delta;

use super::*;

const PAGE: usize = 16 << 10;

fn page(seed: u8) -> Vec<u8> {
    (0..PAGE).map(|at| (at as u8).wrapping_mul(seed | 1) ^ (at >> 8) as u8).collect()
}

fn written(bases: &mut Bases, offset: u64, data: &[u8]) -> Vec<Piece> {
    let (ticket, pieces) = bases.begin_write(offset, data);
    bases.end_write(&ticket, Some(data));
    pieces
}

#[test]
fn a_page_that_was_written_or_read_is_a_base() {
    let mut bases = Bases::new(1 << 20, PAGE);
    let mut data = page(3);
    assert_eq!(written(&mut bases, 4096, &data), [Piece::Full(0..PAGE)]);
    data[5000] ^= 1;
    let [Piece::Delta { range, record }] = &written(&mut bases, 4096, &data)[..] else { panic!("its base is known") };
    let delta = Delta::parse(record).expect("a record");
    assert_eq!((range.clone(), delta.range(), record.len()), (0..PAGE, 4096..4096 + PAGE as u64, 45));
    // Half of it, after a read by another part of the program.
    let mut bases = Bases::new(1 << 20, PAGE);
    let ticket = bases.begin_read(0..32768);
    bases.end_read(&ticket, &[page(5), page(7)].concat());
    let mut half = page(7)[..8192].to_vec();
    half[0] ^= 1;
    assert!(matches!(&written(&mut bases, 16384, &half)[..], [Piece::Delta { .. }]));
    assert_eq!(bases.len_bytes(), 32768);
}

#[test]
fn long_writes_are_cut_at_pages_and_unknown_pages_stay_together() {
    let mut bases = Bases::new(1 << 20, PAGE);
    let two = [page(1), page(2)].concat();
    let _ = written(&mut bases, 2 * PAGE as u64, &two);
    let mut five = [page(9), page(11), page(1), page(2), page(13)].concat();
    five[2 * PAGE + 17] ^= 0xff;
    five[3 * PAGE] ^= 0xff;
    let pieces = written(&mut bases, 0, &five);
    assert!(
        matches!(&pieces[..], [Piece::Full(first), Piece::Delta { .. }, Piece::Delta { .. }, Piece::Full(last)]
            if *first == (0..2 * PAGE) && *last == (4 * PAGE..5 * PAGE)),
        "{pieces:?}"
    );
}

/// Writes were cut at multiples of a page from where they began. A page in the middle of one that began elsewhere was in two commands,
/// so that it was torn when the target was killed between them.
#[test]
fn a_write_that_begins_inside_a_page_is_cut_where_the_next_page_begins() {
    let mut bases = Bases::new(1 << 20, PAGE);
    let _ = written(&mut bases, 0, &[page(1), page(2), page(3)].concat());
    let mut data = [&page(1)[12288..], &page(2), &page(3)[..4096]].concat();
    for at in [5, 4096 + 17, 4096 + 12288, 4096 + 16384] {
        data[at] ^= 0xff;
    }
    let pieces = written(&mut bases, 12288, &data);
    let ranges: Vec<_> = pieces.iter().map(Piece::range).collect();
    assert_eq!(ranges, [0..4096, 4096..20480, 20480..24576]);
    assert!(pieces.iter().all(|piece| matches!(piece, Piece::Delta { .. })), "{pieces:?}");
    // A copy is a page of the volume, too.
    let _ = written(&mut bases, 65536, &page(9));
    let pieces = written(&mut bases, (1 << 20) - 512, &[&[0; 512][..], &page(9)].concat());
    let [_, Piece::Copy { record, .. }] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!(Delta::parse(record).expect("a record").offset, 1 << 20);
}

#[test]
fn a_page_written_elsewhere_before_is_a_copy() {
    let mut bases = Bases::new(4 << 20, PAGE);
    let batch = [page(1), page(5), page(9)].concat();
    let _ = written(&mut bases, 1 << 20, &batch);
    let [Piece::Copy { record, .. }] = &written(&mut bases, 0, &page(5))[..] else { panic!("it was just written") };
    let delta = Delta::parse(record).expect("a record");
    assert_eq!((delta.base_offset, delta.offset, record.len()), ((1 << 20) + PAGE as u64, 0, 40));
    // Its first place was overwritten meanwhile; the copy is a place, too.
    let _ = written(&mut bases, (1 << 20) + PAGE as u64, &page(7));
    let [Piece::Copy { record, .. }] = &written(&mut bases, 1 << 22, &page(5))[..] else { panic!("it is at 0") };
    assert_eq!(Delta::parse(record).expect("a record").base_offset, 0);
}

#[test]
fn nothing_is_known_of_a_block_that_two_change_at_once() {
    let mut bases = Bases::new(1 << 20, PAGE);
    let _ = written(&mut bases, 0, &page(1));
    let (first, _) = bases.begin_write(0, &page(2));
    let (second, pieces) = bases.begin_write(0, &page(3));
    assert_eq!(pieces, [Piece::Full(0..PAGE)], "the base is changing");
    bases.end_write(&second, Some(&page(3)));
    bases.end_write(&first, Some(&page(2)));
    assert_eq!(written(&mut bases, 0, &page(4)), [Piece::Full(0..PAGE)]);
    // A read during which a write began.
    let read = bases.begin_read(0..PAGE as u64);
    let (write, _) = bases.begin_write(4096, &page(5)[..4096]);
    bases.end_write(&write, Some(&page(5)[..4096]));
    bases.end_read(&read, &page(4));
    let mut data = page(4);
    data[0] ^= 1;
    assert_eq!(written(&mut bases, 4096, &data[4096..8192]).len(), 1);
    assert!(bases.busy.is_empty(), "all has ended");
}

#[test]
fn a_failed_write_and_zeroes_leave_nothing_known() {
    let mut bases = Bases::new(1 << 20, PAGE);
    let _ = written(&mut bases, 0, &page(1));
    let (ticket, _) = bases.begin_write(0, &page(2));
    bases.end_write(&ticket, None);
    assert_eq!(written(&mut bases, 0, &page(3)), [Piece::Full(0..PAGE)]);
    let read = bases.begin_read(65536..65536 + PAGE as u64);
    bases.forget(&(0..1 << 40));
    bases.end_read(&read, &page(8));
    assert_eq!(bases.len_bytes(), 0);
    assert_eq!(written(&mut bases, 0, &page(4)), [Piece::Full(0..PAGE)]);
}

#[test]
fn memory_is_bounded_and_crooked_writes_travel_as_they_are() {
    let mut bases = Bases::new(256 << 10, PAGE);
    for at in 0..100_u64 {
        let _ = written(&mut bases, at * PAGE as u64, &page(at as u8));
    }
    assert!(bases.len_bytes() <= 256 << 10, "{}", bases.len_bytes());
    let _ = written(&mut bases, 0, &page(1));
    assert_eq!(written(&mut bases, 512, &page(1)[..1024]), [Piece::Full(0..1024)]);
    let mut other = page(1);
    other[9999] ^= 1;
    assert_eq!(written(&mut bases, 0, &other), [Piece::Full(0..PAGE)], "a part of its base is not known any more");
}

/// A block that was written lost its place in the cache, and came back as a new one, which is dropped first. Once the cache had been full,
/// pages that a database wrote again and again hardly travelled as deltas.
#[test]
fn pages_that_are_written_again_and_again_stay_known_in_a_full_cache() {
    let mut bases = Bases::new(4 << 20, PAGE);
    for at in 0..400_u64 {
        let _ = written(&mut bases, at * PAGE as u64, &page(at as u8));
    }
    let mut deltas = 0;
    for pass in 0..5_u8 {
        deltas = 0;
        for at in 1000..1060_u64 {
            let mut data = page(at as u8);
            data[..8].copy_from_slice(&at.to_le_bytes());
            data[77] = pass;
            deltas += usize::from(matches!(&written(&mut bases, at * PAGE as u64, &data)[..], [Piece::Delta { .. }]));
        }
    }
    assert_eq!(deltas, 60, "of 60 pages in the last pass, in a cache for 256");
}
