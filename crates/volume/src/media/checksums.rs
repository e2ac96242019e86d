//! CRC32Cs of memory, page by page, kept until the page is written: hosts that want data digests read most pages more than once.

use std::array;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};

use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest, checksum, checksum_combine};
use diskside_io::buffer::SharedMemory;

/// What is known of one memory. A caller that asks for a checksum holds the range, so that nobody writes it meanwhile.
#[derive(Debug)]
pub(super) struct PageChecksums {
    groups: Box<[OnceLock<Box<Group>>]>,
}

/// The checksums of neighbouring pages; 0 where there is none yet.
type Group = [AtomicU32; GROUP_PAGES];

const PAGE_BYTES: usize = 4096;
const GROUP_PAGES: usize = 512;

impl PageChecksums {
    /// Knows nothing of so many bytes.
    pub(super) fn new(len_bytes: usize) -> Self {
        let groups = len_bytes.div_ceil(GROUP_PAGES * PAGE_BYTES);
        Self { groups: (0..groups).map(|_| OnceLock::new()).collect() }
    }

    /// The CRC32C of a range.
    pub(super) fn of(&self, memory: &SharedMemory, range: Range<usize>) -> u32 {
        if !range.start.is_multiple_of(PAGE_BYTES) || !range.len().is_multiple_of(PAGE_BYTES) {
            return compute(memory, range);
        }
        range.step_by(PAGE_BYTES).fold(0, |before, start| after_page(before) ^ self.of_page(memory, start))
    }

    /// The range is about to be written, by somebody who holds it alone.
    pub(super) fn forget(&self, range: Range<usize>) {
        for page in range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES) {
            if let Some(group) = self.groups[page / GROUP_PAGES].get() {
                group[page % GROUP_PAGES].store(0, Ordering::Relaxed);
            }
        }
    }

    fn of_page(&self, memory: &SharedMemory, start: usize) -> u32 {
        let page = start / PAGE_BYTES;
        let group = self.groups[page / GROUP_PAGES].get_or_init(|| Box::new(array::from_fn(|_| AtomicU32::new(0))));
        let kept = &group[page % GROUP_PAGES];
        match kept.load(Ordering::Relaxed) {
            0 => {
                let computed = compute(memory, start..start + PAGE_BYTES);
                kept.store(computed, Ordering::Relaxed);
                computed
            }
            known => known,
        }
    }
}

/// The bytes are copied, a little at a time: no reference to shared memory is given out.
fn compute(memory: &SharedMemory, range: Range<usize>) -> u32 {
    let mut copy = [0; PAGE_BYTES];
    if range.len() <= PAGE_BYTES {
        memory.read(range.start, &mut copy[..range.len()]);
        return checksum(Crc32Iscsi, &copy[..range.len()]) as u32;
    }
    let mut digest = Digest::new(Crc32Iscsi);
    for start in range.clone().step_by(PAGE_BYTES) {
        let part = &mut copy[..PAGE_BYTES.min(range.end - start)];
        memory.read(start, part);
        digest.update(part);
    }
    digest.finalize() as u32
}

/// The part of a checksum that bytes before the last page have in it: it depends on their own checksum alone, bit by bit.
fn after_page(before: u32) -> u32 {
    static TABLES: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let of_bit: [u32; 32] =
            array::from_fn(|bit| checksum_combine(Crc32Iscsi, 1 << bit, 0, PAGE_BYTES as u64) as u32);
        array::from_fn(|byte| {
            array::from_fn(|value| {
                let bits = (0..8).filter(|bit| value >> bit & 1 == 1);
                bits.fold(0, |sum, bit| sum ^ of_bit[8 * byte + bit])
            })
        })
    });
    let tables = &*TABLES;
    before.to_le_bytes().iter().zip(tables).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_io::buffer::Hugepages;
    use proptest::prelude::*;

    const LEN: usize = 9 * PAGE_BYTES + 512;

    proptest! {
        /// A digest that is kept too long is a read that fails for every host, again and again.
        #[test]
        fn checksums_are_those_of_the_bytes_as_they_are(
            steps in prop::collection::vec((any::<bool>(), 0..LEN / 512, 1..LEN / 512, any::<u8>()), 1..60)
        ) {
            let memory = SharedMemory::zeroed(LEN, Hugepages::No);
            let checksums = PageChecksums::new(LEN);
            let mut model = vec![0; LEN];
            for (writes, first, blocks, value) in steps {
                let range = first * 512..((first + blocks) * 512).min(LEN);
                if writes {
                    checksums.forget(range.clone());
                    model[range.clone()].iter_mut().enumerate().for_each(|(at, byte)| *byte = value ^ at as u8);
                    memory.write(range.start, &model[range.clone()]);
                }
                let want = |range: Range<usize>| checksum(Crc32Iscsi, &model[range]) as u32;
                prop_assert_eq!(checksums.of(&memory, range.clone()), want(range.clone()));
                let pages = range.start / PAGE_BYTES * PAGE_BYTES..range.end / PAGE_BYTES * PAGE_BYTES;
                if !pages.is_empty() {
                    prop_assert_eq!(checksums.of(&memory, pages.clone()), want(pages));
                }
            }
        }
    }
}
