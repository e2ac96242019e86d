//! Inner pages of row stores: the addresses that they name.

use crate::blocks::Address;

/// In front of the cells of a page.
const HEADER_LEN: usize = 40;
const KIND_AT: usize = 24;
const FLAGS_AT: usize = 25;
const INNER: u8 = 6;
/// Compressed, encrypted: their cells cannot be read.
const HIDDEN: u8 = 1 | 8;
const WITH_TRUNCATES: u8 = 0x20;

/// A block below an inner page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) address: Address,
    pub(crate) kind: ChildKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildKind {
    Inner,
    /// A leaf that may have values in blocks of their own.
    Leaf,
    /// One that has none.
    LeafAlone,
}

/// Whether a block is an inner page of a row store that can be read.
pub(crate) fn is_inner(block: &[u8]) -> bool {
    block.len() > HEADER_LEN && block[KIND_AT] == INNER && block[FLAGS_AT] & HIDDEN == 0
}

/// The blocks below an inner page, as far as they can be read. The bytes may be anything: the list is a guess.
pub(crate) fn children(block: &[u8], allocation: u32) -> Vec<Child> {
    let mut children = Vec::new();
    if !is_inner(block) {
        return children;
    }
    let len = u32::from_le_bytes(block[16..20].try_into().expect("four bytes")) as usize;
    let entries = u32::from_le_bytes(block[20..24].try_into().expect("four bytes"));
    let with_truncates = block[FLAGS_AT] & WITH_TRUNCATES != 0;
    let mut rest = &block[HEADER_LEN..len.clamp(HEADER_LEN, block.len())];
    for _ in 0..entries {
        match take_cell(&mut rest, with_truncates, allocation) {
            Some(Some(child)) => children.push(child),
            Some(None) => {}
            None => break,
        }
    }
    children
}

/// The next cell; `None`: there is none that can be read. Keys, and addresses of deleted pages, are nothing.
fn take_cell(rest: &mut &[u8], with_truncates: bool, allocation: u32) -> Option<Option<Child>> {
    let first = take(rest, 1)?[0];
    if first & 3 != 0 {
        take(rest, usize::from(first >> 2) + usize::from(first & 3 == 2))?;
        return Some(None);
    }
    if first & 8 != 0 {
        let times = take(rest, 1)?[0];
        for _ in 0..(times & 0x7e).count_ones() {
            take_number(rest)?;
        }
    }
    let kind = match first & 0xf0 {
        0x10 => Some(ChildKind::Inner),
        0x20 => Some(ChildKind::Leaf),
        0x30 => Some(ChildKind::LeafAlone),
        _ => None,
    };
    if first & 0xf0 == 0 && with_truncates {
        for _ in 0..3 {
            take_number(rest)?;
        }
    }
    let len = usize::try_from(take_number(rest)?).ok()?;
    let mut data = take(rest, if first & 0xf0 == 0x50 { len.checked_add(64)? } else { len })?;
    let Some(kind) = kind else { return Some(None) };
    let address = address(&mut data, allocation)?;
    Some(data.is_empty().then_some(Child { address, kind }))
}

/// The address at the beginning of a cookie.
pub(crate) fn address(data: &mut &[u8], allocation: u32) -> Option<Address> {
    let (offset, blocks, checksum) = (take_number(data)?, take_number(data)?, take_number(data)?);
    Some(Address {
        offset: offset.checked_add(1)?.checked_mul(allocation.into())?,
        len: u32::try_from(blocks.checked_mul(allocation.into())?).ok()?,
        checksum: u32::try_from(checksum).ok()?,
    })
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

/// A packed number, as WiredTiger's `__wt_vunpack_uint` reads it.
fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let first = take(rest, 1)?[0];
    match first {
        0x80..0xc0 => Some(u64::from(first & 0x3f)),
        0xc0..0xe0 => Some((u64::from(first & 0x1f) << 8 | u64::from(take(rest, 1)?[0])) + 64),
        0xe0..=0xe8 => {
            let bytes = take(rest, usize::from(first & 0xf))?;
            bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)).checked_add(8192 + 64)
        }
        _ => None,
    }
}
