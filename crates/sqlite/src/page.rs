//! Pages of SQLite's files, as far as they name other pages (<https://sqlite.org/fileformat2.html>).
//!
//! Files are not trusted: a page that contradicts itself names nothing.

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes before the b-tree of page 1.
pub(crate) const HEADER_LEN: usize = 100;
const INTERIOR_INDEX: u8 = 2;
const INTERIOR_TABLE: u8 = 5;
const LEAF_INDEX: u8 = 10;
const LEAF_TABLE: u8 = 13;

/// How a file is divided into pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) page_len: u32,
    /// Bytes of a page that SQLite uses; extensions may reserve some at the end.
    pub(crate) usable_len: u32,
    /// Number of the last page.
    pub(crate) pages: u32,
}

impl Geometry {
    /// As the first bytes of a file of `len_bytes` say; `None`: they do not begin a database.
    pub(crate) fn of(header: &[u8], len_bytes: u64) -> Option<Self> {
        if header.len() < HEADER_LEN || &header[..16] != MAGIC {
            return None;
        }
        let page_len = match u32::from(be16(header, 16)?) {
            1 => 65536,
            len if len.is_power_of_two() && len >= 512 => len,
            _ => return None,
        };
        let usable_len = page_len - u32::from(header[20]);
        (usable_len >= 480).then(|| Self { page_len, usable_len, pages: pages_of(len_bytes, page_len) })
    }

    /// That of a file which does not begin like a database: pieces of it are cached, and nothing else.
    pub(crate) fn unknown(len_bytes: u64) -> Self {
        Self { page_len: 4096, usable_len: 0, pages: pages_of(len_bytes, 4096) }
    }
}

fn pages_of(len_bytes: u64, page_len: u32) -> u32 {
    u32::try_from(len_bytes.div_ceil(page_len.into())).unwrap_or(u32::MAX)
}

/// The pages below an interior page, in their order; `None`: it is another kind of page.
pub(crate) fn children(number: u32, page: &[u8]) -> Option<Vec<u32>> {
    let tree = Tree::of(number, page).filter(|tree| tree.is_interior())?;
    let cells = tree.cells().map(|cell| be32(page, cell));
    cells.chain([be32(page, tree.start + 8)]).collect()
}

/// The child of an interior page of a table below which the row with this key is.
pub(crate) fn child_with(number: u32, page: &[u8], key: i64) -> Option<u32> {
    let tree = Tree::of(number, page).filter(|tree| tree.kind == INTERIOR_TABLE)?;
    let (mut low, mut high) = (0, tree.cells);
    while low < high {
        let middle = (low + high) / 2;
        let mut at = tree.cell(middle) + 4;
        // Keys are signed numbers, in nine bytes where they are negative.
        if key <= varint(page, &mut at)? as i64 {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    be32(page, if low < tree.cells { tree.cell(low) } else { tree.start + 8 })
}

/// The keys of the rows that the cells of a leaf of an index name, as far as they are on the page.
pub(crate) fn keys_of_rows(number: u32, page: &[u8], usable_len: u32) -> Vec<i64> {
    let Some(tree) = Tree::of(number, page).filter(|tree| tree.kind == LEAF_INDEX && usable_len >= 480) else {
        return Vec::new();
    };
    let most = (u64::from(usable_len) - 12) * 64 / 255 - 23;
    tree.cells().filter_map(|cell| key_of_row(page, cell, most)).collect()
}

/// The last column of a record of an index: the key of a row.
fn key_of_row(page: &[u8], cell: usize, most: u64) -> Option<i64> {
    let mut at = cell;
    let len = varint(page, &mut at).filter(|len| *len <= most)? as usize;
    let record = page.get(at..at + len)?;
    let mut at = 0;
    let head_len = usize::try_from(varint(record, &mut at)?).ok()?;
    let mut kind = 0;
    while at < head_len {
        kind = varint(record, &mut at)?;
    }
    let bytes = match kind {
        8 => return Some(0),
        9 => return Some(1),
        1..=4 => kind as usize,
        5 => 6,
        6 => 8,
        _ => return None,
    };
    let value = record.get(record.len().checked_sub(bytes)?..)?;
    let sign = if value[0] & 0x80 == 0 { 0_i64 } else { -1 };
    Some(value.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
}

/// A value that continues on pages of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) first: u32,
    /// How many pages it has.
    pub(crate) pages: u32,
}

/// Whether a page may have cells whose values continue elsewhere.
pub(crate) fn has_values(number: u32, page: &[u8]) -> bool {
    Tree::of(number, page).is_some_and(|tree| tree.kind != INTERIOR_TABLE)
}

/// The values of a page that continue on other pages, in the order of the cells.
pub(crate) fn chains(number: u32, page: &[u8], usable_len: u32) -> Vec<Chain> {
    let Some(tree) = Tree::of(number, page).filter(|tree| tree.kind != INTERIOR_TABLE && usable_len >= 480) else {
        return Vec::new();
    };
    tree.cells().filter_map(|cell| chain(tree.kind, page, cell, usable_len.into())).collect()
}

fn chain(kind: u8, page: &[u8], cell: usize, usable: u64) -> Option<Chain> {
    let mut at = if kind == INTERIOR_INDEX { cell + 4 } else { cell };
    let value_len = varint(page, &mut at)?;
    if kind == LEAF_TABLE {
        varint(page, &mut at)?;
    }
    let most = if kind == LEAF_TABLE { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
    if value_len <= most {
        return None;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let ends = least + (value_len - least) % (usable - 4);
    let here = if ends <= most { ends } else { least };
    let first = be32(page, at + here as usize)?;
    let pages = (value_len - here).div_ceil(usable - 4);
    Some(Chain { first, pages: u32::try_from(pages).unwrap_or(u32::MAX) })
}

/// The page that continues a value behind this one; 0: none.
pub(crate) fn next_of_chain(page: &[u8]) -> u32 {
    be32(page, 0).unwrap_or(0)
}

/// A page of a b-tree.
struct Tree<'a> {
    page: &'a [u8],
    kind: u8,
    /// Where its header begins.
    start: usize,
    cells: usize,
}

impl<'a> Tree<'a> {
    fn of(number: u32, page: &'a [u8]) -> Option<Self> {
        let start = if number == 1 { HEADER_LEN } else { 0 };
        let kind = *page.get(start)?;
        if !matches!(kind, INTERIOR_INDEX | INTERIOR_TABLE | LEAF_INDEX | LEAF_TABLE) {
            return None;
        }
        let tree = Self { page, kind, start, cells: be16(page, start + 3)?.into() };
        (tree.pointers() + 2 * tree.cells <= page.len()).then_some(tree)
    }

    fn is_interior(&self) -> bool {
        matches!(self.kind, INTERIOR_INDEX | INTERIOR_TABLE)
    }

    fn pointers(&self) -> usize {
        self.start + if self.is_interior() { 12 } else { 8 }
    }

    /// Where its cells begin.
    fn cells(&self) -> impl Iterator<Item = usize> {
        (0..self.cells).map(|index| self.cell(index))
    }

    fn cell(&self, index: usize) -> usize {
        // There is room for all pointers, as was looked before.
        be16(self.page, self.pointers() + 2 * index).map_or(usize::MAX / 2, usize::from)
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A number of one to nine bytes, seven bits in each but the ninth.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for index in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if index == 8 {
            return Some(value << 8 | u64::from(byte));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An interior page of a table with these children.
    pub(crate) fn interior(page_len: usize, children: &[u32]) -> Vec<u8> {
        let (last, others) = children.split_last().expect("a child");
        let mut page = vec![0; page_len];
        page[0] = INTERIOR_TABLE;
        page[3..5].copy_from_slice(&(others.len() as u16).to_be_bytes());
        page[8..12].copy_from_slice(&last.to_be_bytes());
        for (index, child) in others.iter().enumerate() {
            let cell = page_len - 5 * (index + 1);
            page[12 + 2 * index..14 + 2 * index].copy_from_slice(&(cell as u16).to_be_bytes());
            page[cell..cell + 4].copy_from_slice(&child.to_be_bytes());
        }
        page
    }

    /// A leaf of a table whose values, of so many bytes, continue at these pages.
    pub(crate) fn leaf(page_len: usize, values: &[(u16, u32)]) -> Vec<u8> {
        let mut page = vec![0; page_len];
        page[0] = LEAF_TABLE;
        page[3..5].copy_from_slice(&(values.len() as u16).to_be_bytes());
        let least = (page_len - 12) * 32 / 255 - 23;
        let mut cell = page_len;
        for (index, (len, first)) in values.iter().enumerate() {
            let ends = least + (usize::from(*len) - least) % (page_len - 4);
            let here = if ends <= page_len - 35 { ends } else { least };
            cell -= 4 + here + 4;
            page[8 + 2 * index..10 + 2 * index].copy_from_slice(&(cell as u16).to_be_bytes());
            let head = [(len >> 14) as u8 | 0x80, (len >> 7) as u8 | 0x80, *len as u8 & 0x7f, 1];
            page[cell..cell + 4].copy_from_slice(&head);
            page[cell + 4 + here..cell + 8 + here].copy_from_slice(&first.to_be_bytes());
        }
        page
    }

    /// An interior page of a table with these greatest keys and children; the last key is of no cell.
    pub(crate) fn keyed_interior(page_len: usize, children: &[(i64, u32)]) -> Vec<u8> {
        let mut page = interior(page_len, &children.iter().map(|(_, child)| *child).collect::<Vec<_>>());
        let (_, others) = children.split_last().expect("a child");
        for (index, (key, child)) in others.iter().enumerate() {
            let cell = page_len - 6 * (index + 1);
            page[12 + 2 * index..14 + 2 * index].copy_from_slice(&(cell as u16).to_be_bytes());
            page[cell..cell + 4].copy_from_slice(&child.to_be_bytes());
            page[cell + 4..cell + 6].copy_from_slice(&[(key >> 7) as u8 | 0x80, *key as u8 & 0x7f]);
        }
        page
    }

    /// A leaf of an index whose cells name rows with these keys.
    pub(crate) fn index_leaf(page_len: usize, keys: &[i64]) -> Vec<u8> {
        let mut page = vec![0; page_len];
        page[0] = LEAF_INDEX;
        page[3..5].copy_from_slice(&(keys.len() as u16).to_be_bytes());
        for (index, key) in keys.iter().enumerate() {
            let cell = page_len - 16 * (index + 1);
            page[8 + 2 * index..10 + 2 * index].copy_from_slice(&(cell as u16).to_be_bytes());
            // A record of a text of two letters and a number of eight bytes.
            page[cell..cell + 6].copy_from_slice(&[13, 3, 17, 6, b'a', b'b']);
            page[cell + 6..cell + 14].copy_from_slice(&key.to_be_bytes());
        }
        page
    }

    #[test]
    fn a_key_leads_to_the_child_that_has_it() {
        let page = keyed_interior(512, &[(10, 5), (200, 6), (0, 7)]);
        let found: Vec<_> = [-3, 10, 11, 200, 201, 1 << 40].map(|key| child_with(2, &page, key)).to_vec();
        assert_eq!(found, [5, 5, 6, 6, 7, 7].map(Some));
        assert_eq!(child_with(2, &index_leaf(512, &[1]), 3), None);
    }

    #[test]
    fn a_leaf_of_an_index_names_rows() {
        let keys = [5, -7, i64::MIN, i64::MAX, 0];
        assert_eq!(keys_of_rows(2, &index_leaf(512, &keys), 512), keys);
        let mut page = vec![0; 512];
        // Numbers of each length: 0, 1, and those of one to eight bytes.
        let numbers: [(u8, &[u8], i64); 6] = [
            (8, &[], 0),
            (9, &[], 1),
            (1, &[0xff], -1),
            (3, &[1, 0, 0], 65536),
            (5, &[0x80, 0, 0, 0, 0, 0], -1 << 47),
            (7, &[0; 8], 0),
        ];
        for (kind, bytes, key) in numbers {
            let record = [&[bytes.len() as u8 + 2, 2, kind][..], bytes].concat();
            page[200..200 + record.len()].copy_from_slice(&record);
            page[0] = LEAF_INDEX;
            page[4] = 1;
            page[8..10].copy_from_slice(&200_u16.to_be_bytes());
            let expected = if kind == 7 { vec![] } else { vec![key] };
            assert_eq!(keys_of_rows(2, &page, 512), expected, "{kind}");
        }
    }

    #[test]
    fn children_are_named_in_their_order() {
        let page = interior(512, &[7, 3, 9]);
        assert_eq!(children(2, &page), Some(vec![7, 3, 9]));
        assert_eq!(children(1, &page), None, "page 1 begins with the file's header");
        assert_eq!(children(2, &leaf(512, &[])), None);
    }

    #[test]
    fn values_that_continue_elsewhere_are_found_with_their_lengths() {
        // 1,000 bytes: 39 least, (1000 - 39) % 508 = 453, 39 + 453 = 492 > 477, so 39 here and 961 on two pages.
        assert_eq!(chains(2, &leaf(512, &[(1000, 77)]), 512), [Chain { first: 77, pages: 2 }]);
        let two = chains(2, &leaf(4096, &[(5000, 5), (9000, 9)]), 4096);
        assert_eq!(two, [Chain { first: 5, pages: 1 }, Chain { first: 9, pages: 2 }]);
        assert!(chains(2, &interior(512, &[1, 2]), 512).is_empty());
    }

    #[test]
    fn pages_that_contradict_themselves_name_nothing() {
        let mut page = interior(512, &[7, 3, 9]);
        page[12..14].copy_from_slice(&511_u16.to_be_bytes());
        assert_eq!(children(2, &page), None);
        page[3..5].copy_from_slice(&u16::MAX.to_be_bytes());
        assert_eq!(children(2, &page), None);
        assert_eq!(children(2, &page[..6]), None);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..5_000 {
            let mut page: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(512).collect();
            page[0] = *random.choice(&[INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE]).expect("one");
            page[3] = 0;
            let named = children(2, &page).map_or(0, |all| all.len()) + chains(2, &page, 512).len();
            let named = named + keys_of_rows(2, &page, 512).len() + usize::from(child_with(2, &page, 5).is_some());
            assert!(named <= 3 * 256, "{named} of {page:?}");
        }
    }

    #[test]
    fn the_header_says_how_long_pages_are_and_may_lie() {
        let mut header = [0; HEADER_LEN];
        header[..16].copy_from_slice(MAGIC);
        let of = |header: &[u8; HEADER_LEN], len| Geometry::of(header, len).map(|it| (it.page_len, it.pages));
        for (bytes, expected) in [
            ([0x10, 0], Some((4096, 3))),
            ([0, 1], Some((65536, 1))),
            ([2, 0], Some((512, 20))),
            ([1, 0], None),
            ([0, 0], None),
            ([0x10, 1], None),
        ] {
            header[16..18].copy_from_slice(&bytes);
            assert_eq!(of(&header, 10_000), expected, "{bytes:?}");
        }
        header[16..18].copy_from_slice(&[2, 0]);
        header[20] = 33;
        assert_eq!(of(&header, 10_000), None, "fewer than 480 usable bytes");
        assert_eq!(Geometry::of(&header[..99], 10_000), None);
        assert_eq!(Geometry::unknown(u64::MAX).pages, u32::MAX);
    }
}
