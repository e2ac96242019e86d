//! Records of deltas, as data from a host: none panics, changes bytes outside its runs, or makes a page that it does not promise.

#![no_main]

use diskside_wire::delta::{Delta, encode_delta, page_checksum};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(delta) = Delta::parse(bytes) else { return };
    let base: Vec<u8> = (0..delta.page_len).map(|at| (at >> 3) as u8).collect();
    let mut page = base.clone();
    for (range, data) in delta.runs() {
        page[range].copy_from_slice(data);
    }
    // Checksums are out of a fuzzer's reach: here the record gets the right ones.
    let mut right = bytes.to_vec();
    right[16..24].copy_from_slice(&page_checksum(&base).to_le_bytes());
    right[24..32].copy_from_slice(&page_checksum(&page).to_le_bytes());
    let mut made = base.clone();
    Delta::parse(&right).expect("checksums have no form").apply(&mut made).expect("they are right");
    assert!(made == page);
    if let Some(again) = encode_delta(delta.offset, &page, delta.base_offset, &base, usize::MAX) {
        let mut made = base;
        Delta::parse(&again).expect("encoded").apply(&mut made).expect("its own base");
        assert!(made == page);
    }
});
