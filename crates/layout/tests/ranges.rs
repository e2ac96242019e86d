//! Any extents, any range: every byte comes from where it is, and from nowhere else.

use diskside_layout::{Disk, Layout, Place, Reason};
use diskside_sys::extent::{Extent, ExtentFlags};
use proptest::prelude::*;

const BLOCK: u64 = 512;
const DEVICE_BLOCKS: u64 = 1 << 12;

fn place(offset: u64) -> Place {
    let len = DEVICE_BLOCKS * BLOCK;
    Place { disk: Disk::Other("test".into()), device: "test".into(), offset, len, block_len: BLOCK as u32 }
}

/// Extents with gaps of any length, some of them not written, somewhere on the device.
fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (0..3u64, 1..6u64, 0..DEVICE_BLOCKS - 6, any::<bool>());
    prop::collection::vec(extent, 0..20).prop_map(|found| {
        let mut at = 0;
        let mut extents = Vec::new();
        for (gap, blocks, physical, unwritten) in found {
            let flags = if unwritten { ExtentFlags::UNWRITTEN } else { ExtentFlags::default() };
            let logical = (at + gap) * BLOCK;
            extents.push(Extent { logical, physical: physical * BLOCK, len: blocks * BLOCK, flags });
            at += gap + blocks;
        }
        extents
    })
}

/// Where a byte of the file is, by looking at each extent.
fn home(extents: &[Extent], at: u64) -> Option<u64> {
    let extent = extents.iter().find(|e| e.logical <= at && at < e.logical + e.len)?;
    (!extent.flags.contains(ExtentFlags::UNWRITTEN)).then(|| extent.physical + at - extent.logical)
}

proptest! {
    #[test]
    fn pieces_and_reads_bring_each_byte(
        extents in extents(), len in 0..60 * BLOCK, start in 0..70 * BLOCK, count in 0..70 * BLOCK, offset in 0..4u64,
    ) {
        let offset = offset * BLOCK;
        let layout = Layout::new(1, len, 0..len, &extents, &place(offset)).expect("readable");
        let range = start..start + count;
        let end = range.end.min(len);

        let mut at = start;
        for piece in layout.pieces(range.clone()) {
            prop_assert_eq!(piece.logical, at, "no gap and no overlap");
            prop_assert!(piece.len > 0);
            for byte in [at, at + piece.len / 2, at + piece.len - 1] {
                let wanted = home(&extents, byte).map(|physical| physical + offset);
                prop_assert_eq!(piece.physical.map(|physical| physical + byte - at), wanted);
            }
            at += piece.len;
        }
        prop_assert_eq!(at, end.max(start), "up to the end of the range or the file");

        for read in layout.reads(range, BLOCK as u32) {
            prop_assert!(read.physical % BLOCK == 0 && read.len % BLOCK == 0);
            prop_assert!(read.wanted.start < read.wanted.end && read.wanted.end as u64 <= read.len);
            prop_assert!(read.wanted.end as u64 > read.len - BLOCK && (read.wanted.start as u64) < BLOCK, "no block too many");
            let first = start + read.at as u64;
            let wanted = home(&extents, first).map(|physical| physical + offset);
            prop_assert_eq!(Some(read.physical + read.wanted.start as u64), wanted);
        }
    }
}

#[test]
fn extents_that_cannot_be_read_in_place_are_refused() {
    let extent = Extent { logical: 0, physical: 4096, len: 4096, flags: ExtentFlags::default() };
    let refused = |extents: &[Extent]| Layout::new(1, 8192, 0..8192, extents, &place(0)).expect_err("refused").reason;
    let flags = [
        ExtentFlags::UNKNOWN,
        ExtentFlags::DELALLOC,
        ExtentFlags::ENCODED,
        ExtentFlags::DATA_ENCRYPTED,
        ExtentFlags::NOT_ALIGNED,
        ExtentFlags::DATA_INLINE,
        ExtentFlags::DATA_TAIL,
    ];
    for flags in flags {
        assert_eq!(refused(&[Extent { flags, ..extent }]), Reason::Extent, "{flags}");
    }
    assert_eq!(refused(&[extent, extent]), Reason::Extent, "twice the same bytes");
    assert_eq!(refused(&[Extent { physical: 100, ..extent }]), Reason::Extent, "not on a block");
    assert_eq!(refused(&[Extent { len: !511, physical: 1 << 40, ..extent }]), Reason::Extent, "no end");
    let beyond = Extent { physical: DEVICE_BLOCKS * BLOCK - 512, ..extent };
    assert_eq!(refused(&[beyond]), Reason::OutOfDevice);
    for flags in [ExtentFlags::SHARED, ExtentFlags::MERGED, ExtentFlags::LAST] {
        Layout::new(1, 8192, 0..8192, &[Extent { flags, ..extent }], &place(0)).expect("readable");
    }
}
