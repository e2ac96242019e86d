//! Records of deltas: what was encoded is applied again, and bytes of a stranger change nothing.

use diskside_wire::delta::{DELTA_HEAD_LEN, Delta, DeltaError, DeltaMismatch, encode_delta, page_checksum};
use proptest::collection::vec;
use proptest::prelude::*;

const PAGE: usize = 4096;

fn base(seed: u64) -> Vec<u8> {
    (0..PAGE as u64).map(|at| (at.wrapping_mul(seed | 1) >> 5) as u8).collect()
}

proptest! {
    #[test]
    fn a_record_makes_the_page_that_it_was_made_from(
        seed: u64,
        offset: u64,
        changes in vec((0..PAGE, 1..40_usize, any::<u8>()), 0..24),
    ) {
        let base = base(seed);
        let mut page = base.clone();
        for (at, len, byte) in changes {
            let end = PAGE.min(at + len);
            page[at..end].fill(byte);
        }
        let record = encode_delta(offset, &page, offset, &base, PAGE).expect("few bytes changed");
        let delta = Delta::parse(&record).expect("well formed");
        prop_assert_eq!((delta.offset, delta.page_len as usize, delta.is_copy()), (offset, PAGE, false));
        let mut made = base.clone();
        prop_assert_eq!(delta.apply(&mut made), Ok(()));
        prop_assert_eq!(&made, &page);
        let changed = base.iter().zip(&page).filter(|(old, new)| old != new).count();
        let sent: usize = delta.runs().map(|(range, _)| range.len()).sum();
        // A gap of at most four bytes joins two runs.
        prop_assert!(sent >= changed && sent <= changed * 5, "{sent} bytes for {changed}");
        if changed > 0 {
            prop_assert_eq!(delta.apply(&mut made), Err(DeltaMismatch::Base));
        }
    }

    #[test]
    fn a_damaged_record_makes_no_other_page(seed: u64, at in 0..DELTA_HEAD_LEN + 30, bit in 0..8_u32) {
        let base = base(seed);
        let mut page = base.clone();
        page[100..110].fill(base[100].wrapping_add(1));
        page[2000..2008].fill(base[2000] ^ 0xff);
        let mut record = encode_delta(4096, &page, 8192, &base, PAGE).expect("short");
        let at = at.min(record.len() - 1);
        record[at] ^= 1 << bit;
        let mut made = base.clone();
        if let Ok(delta) = Delta::parse(&record) && delta.page_len as usize == PAGE && delta.apply(&mut made).is_ok() {
            // Only the two positions are not covered by a checksum: the command and the medium compare them.
            prop_assert!(at < 16 && made == page);
        }
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(mut bytes in vec(any::<u8>(), 0..600), page_len in 0..700_u32, runs in 0..40_u16) {
        if bytes.len() >= DELTA_HEAD_LEN {
            bytes[32..36].copy_from_slice(&page_len.to_le_bytes());
            bytes[36..38].copy_from_slice(&runs.to_le_bytes());
            bytes[38..40].copy_from_slice(&[1, 0]);
        }
        if let Ok(delta) = Delta::parse(&bytes) {
            let mut end = 0;
            for (range, data) in delta.runs() {
                prop_assert!(range.start >= end && range.end <= page_len as usize && range.len() == data.len());
                end = range.end;
            }
            prop_assert_eq!(delta.runs().count(), usize::from(runs));
        }
    }
}

/// A record of these runs, each a position and bytes, over a page of zeroes.
fn record(page_len: u32, runs: &[(u16, &[u8])]) -> Vec<u8> {
    let mut record = vec![0; DELTA_HEAD_LEN];
    let mut page = vec![0; page_len as usize];
    record[16..24].copy_from_slice(&page_checksum(&page).to_le_bytes());
    record[32..36].copy_from_slice(&page_len.to_le_bytes());
    record[36..38].copy_from_slice(&(runs.len() as u16).to_le_bytes());
    record[38] = 1;
    for (at, bytes) in runs {
        record.extend_from_slice(&at.to_le_bytes());
        record.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        record.extend_from_slice(bytes);
        if let Some(place) = page.get_mut(usize::from(*at)..usize::from(*at) + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    record[24..32].copy_from_slice(&page_checksum(&page).to_le_bytes());
    record
}

#[test]
fn hostile_records_are_refused_by_name() {
    let fine = record(512, &[(0, b"ab"), (2, b"c"), (510, b"yz")]);
    let mut page = vec![0; 512];
    assert_eq!(Delta::parse(&fine).expect("adjacent runs are fine").apply(&mut page), Ok(()));
    assert_eq!((&page[..3], &page[510..]), (&b"abc"[..], &b"yz"[..]));
    assert_eq!(Delta::parse(&record(512, &[(511, b"zz")])), Err(DeltaError::Run { index: 0 }), "beyond the page");
    assert_eq!(Delta::parse(&record(512, &[(9, b"ab"), (10, b"c")])), Err(DeltaError::Run { index: 1 }), "overlap");
    assert_eq!(Delta::parse(&record(512, &[(9, b"a"), (3, b"c")])), Err(DeltaError::Run { index: 1 }), "descend");
    assert_eq!(Delta::parse(&record(512, &[(9, b"")])), Err(DeltaError::Run { index: 0 }), "empty");
    for page_len in [0, (64 << 10) + 1, u32::MAX] {
        let mut record = fine.clone();
        record[32..36].copy_from_slice(&page_len.to_le_bytes());
        assert_eq!(Delta::parse(&record), Err(DeltaError::PageLength(page_len)));
    }
    let mut short_page = fine.clone();
    short_page[32..36].copy_from_slice(&40_u32.to_le_bytes());
    assert_eq!(Delta::parse(&short_page), Err(DeltaError::TooLong { got: fine.len() }));
    let mut many = fine.clone();
    many[36..38].copy_from_slice(&u16::MAX.to_le_bytes());
    assert_eq!(Delta::parse(&many), Err(DeltaError::Length { got: fine.len() }), "a count that is not there");
    let mut behind = fine.clone();
    behind.push(0);
    assert_eq!(Delta::parse(&behind), Err(DeltaError::Length { got: fine.len() + 1 }));
    assert_eq!(Delta::parse(&fine[..39]), Err(DeltaError::Length { got: 39 }));
    let mut newer = fine.clone();
    newer[38] = 2;
    assert_eq!(Delta::parse(&newer), Err(DeltaError::Version(2)));
    let mut lie = fine;
    lie[24] ^= 1;
    let told = Delta::parse(&lie).expect("its form is fine").apply(&mut vec![0; 512]);
    assert_eq!(told, Err(DeltaMismatch::Result));
}

#[test]
fn a_page_that_changed_too_much_has_no_record() {
    let page: Vec<u8> = (0..PAGE).map(|at| at as u8 | 1).collect();
    assert_eq!(encode_delta(0, &page, 0, &[0; PAGE], PAGE), None);
    assert_eq!(encode_delta(0, &page[..32], 0, &[0; 32], 32), None, "a record is longer than such a page");
    let same = encode_delta(0, &page, 4096, &page, PAGE).expect("no runs");
    assert_eq!(same.len(), DELTA_HEAD_LEN);
    let whole = vec![1; 64 << 10];
    assert_eq!(encode_delta(0, &whole, 0, &vec![0; 64 << 10], usize::MAX), None);
}
