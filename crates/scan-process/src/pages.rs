//! Pages of row groups that may have rows that are wanted, by the index that a file may have of them.
//!
//! An index says where each page of a column is, with which row it begins, and which values are in it. Indexes are read only for
//! row groups that the footer does not rule out. One that makes no sense is left aside, and its row group read whole.

use crate::condition::Condition;
use crate::input::Fetched;
use crate::prune::{Known, RowGroup};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::metadata::page_index::PageIndexProvider;
use parquet::file::page_index::column_index::{ByteArrayColumnIndex, ColumnIndexMetaData, PrimitiveColumnIndex};
use parquet::file::page_index::index_reader::{decode_column_index, decode_offset_index};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::file::reader::ChunkReader as _;
use parquet::file::statistics::Statistics;
use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

/// A longer index is not read: that of a page takes some tens of bytes.
const INDEX_LEN_MAX: u64 = 256 << 10;
/// Row groups with less of the needed columns are read whole.
const GROUP_LEN_MIN: u64 = 32 << 10;
/// So much of a row group has to be left out, or it is read whole: one of so many rows.
const LEFT_OUT_PART: u64 = 8;

/// The pages that are read of each row group that is not read whole.
#[derive(Debug, Default)]
pub(crate) struct Pages(OnceLock<HashMap<usize, Chosen>>);

/// Those of a row group.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Rows that may be wanted, in order.
    rows: Vec<Range<u64>>,
    /// Where the pages of each needed leaf are.
    locations: HashMap<usize, OffsetIndexMetaData>,
}

/// What an index says of a row group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No row of it is wanted.
    Nothing,
    Everything,
    Something,
}

impl Pages {
    /// Says once which pages are read.
    pub(crate) fn set(&self, chosen: HashMap<usize, Chosen>) {
        // There is one scan of a file.
        let _ = self.0.set(chosen);
    }

    pub(crate) fn of(&self, group: usize) -> Option<&Chosen> {
        self.0.get()?.get(&group)
    }
}

impl PageIndexProvider for Pages {
    fn has_offset_indexes(&self) -> bool {
        self.0.get().is_some_and(|chosen| !chosen.is_empty())
    }

    fn has_column_indexes(&self) -> bool {
        false
    }

    fn column_index(&self, _: usize, _: usize) -> Option<&ColumnIndexMetaData> {
        None
    }

    fn offset_index(&self, group: usize, leaf: usize) -> Option<&OffsetIndexMetaData> {
        self.of(group)?.locations.get(&leaf)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Where the indexes are that tell which pages of a row group may have rows that are wanted; none: there are none, or it is not
/// worth it. `leaves` are all that are read of it.
pub(crate) fn ranges(row_group: &RowGroup<'_>, leaves: &[usize], condition: &Condition) -> Vec<Range<u64>> {
    let len: u64 = leaves.iter().map(|leaf| row_group.metadata.column(*leaf).byte_range().1).sum();
    let mut ranges: Vec<Range<u64>> = tested(row_group, condition)
        .into_iter()
        .filter_map(|leaf| row_group.metadata.column(leaf).column_index_range())
        .collect();
    if ranges.is_empty() || len < GROUP_LEN_MIN {
        return Vec::new();
    }
    for leaf in leaves {
        match row_group.metadata.column(*leaf).offset_index_range() {
            Some(range) => ranges.push(range),
            None => return Vec::new(),
        }
    }
    let len_max = INDEX_LEN_MAX.min(len / 2);
    let is_short = |range: &Range<u64>| range.end.checked_sub(range.start).is_some_and(|len| len <= len_max);
    if ranges.iter().all(is_short) { ranges } else { Vec::new() }
}

/// The pages of a row group that its indexes leave.
pub(crate) fn choose(
    row_group: &RowGroup<'_>,
    leaves: &[usize],
    condition: &Condition,
    indexes: &Fetched,
) -> (Found, Option<Chosen>) {
    let whole = (Found::Everything, None);
    let Ok(all) = u64::try_from(row_group.metadata.num_rows()) else { return whole };
    let locations = leaves.iter().map(|leaf| Some((*leaf, locations(row_group, *leaf, all, indexes)?)));
    let Some(locations) = locations.collect::<Option<HashMap<_, _>>>() else { return whole };
    let indexed = Indexed { row_group, locations: &locations, all, indexes };
    let rows = indexed.rows(condition);
    let count: u64 = rows.iter().map(|rows| rows.end - rows.start).sum();
    if count == 0 {
        (Found::Nothing, None)
    } else if count > all - all / LEFT_OUT_PART {
        whole
    } else {
        (Found::Something, Some(Chosen { rows, locations }))
    }
}

impl Chosen {
    /// Rows that may be wanted, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Range<usize>> {
        self.rows.iter().map(|rows| rows.start as usize..rows.end as usize)
    }

    /// Where the bytes of a leaf are that have these rows, of all of its bytes.
    pub(crate) fn ranges(&self, leaf: usize, chunk: Range<u64>) -> Vec<Range<u64>> {
        let Some(locations) = self.locations.get(&leaf).map(OffsetIndexMetaData::page_locations) else {
            return vec![chunk];
        };
        // A dictionary comes before the pages.
        let first = locations.first().map_or(chunk.start, |page| page.offset.cast_unsigned());
        let dictionary = chunk.start..first;
        let mut ranges = Vec::from([dictionary]);
        let mut wanted = self.rows.iter().peekable();
        for (index, page) in locations.iter().enumerate() {
            let start = page.first_row_index.cast_unsigned();
            let end = locations.get(index + 1).map_or(u64::MAX, |next| next.first_row_index.cast_unsigned());
            while wanted.next_if(|rows| rows.end <= start).is_some() {}
            if wanted.peek().is_some_and(|rows| rows.start < end) {
                let offset = page.offset.cast_unsigned();
                ranges.push(offset..offset + u64::from(page.compressed_page_size.cast_unsigned()));
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }
}

/// The leaves that a condition tests, each once.
fn tested(row_group: &RowGroup<'_>, condition: &Condition) -> Vec<usize> {
    let mut leaves = match condition {
        Condition::And(all) | Condition::Or(all) => all.iter().flat_map(|one| tested(row_group, one)).collect(),
        Condition::Exact(slot, _) | Condition::Float(slot, _) | Condition::Text(slot, _) | Condition::IsNull(slot) => {
            row_group.leaf(*slot).into_iter().collect()
        }
        _ => Vec::new(),
    };
    leaves.sort_unstable();
    leaves.dedup();
    leaves
}

/// Where the pages of a leaf are. `None`: that cannot be.
fn locations(row_group: &RowGroup<'_>, leaf: usize, rows: u64, indexes: &Fetched) -> Option<OffsetIndexMetaData> {
    let chunk = row_group.metadata.column(leaf);
    let (start, len) = chunk.byte_range();
    let end = start.checked_add(len)?;
    let index = decode_offset_index(&bytes(chunk.offset_index_range()?, indexes)?).ok()?;
    let pages = index.page_locations();
    let page_end = |page: &PageLocation| {
        let offset = u64::try_from(page.offset).ok()?;
        offset.checked_add(u64::try_from(page.compressed_page_size).ok()?)
    };
    let is_in_order = pages.windows(2).all(|two| {
        two[0].first_row_index < two[1].first_row_index
            && page_end(&two[0]).is_some_and(|end| end <= two[1].offset.cast_unsigned())
    });
    let first = pages.first().filter(|page| page.first_row_index == 0 && page.offset.cast_unsigned() >= start)?;
    let last = pages.last().filter(|page| u64::try_from(page.first_row_index).is_ok_and(|row| row < rows))?;
    let fits = is_in_order && first.offset >= 0 && page_end(last).is_some_and(|last| last <= end);
    fits.then_some(index)
}

fn bytes(range: Range<u64>, indexes: &Fetched) -> Option<bytes::Bytes> {
    indexes.get_bytes(range.start, usize::try_from(range.end - range.start).ok()?).ok()
}

/// A row group whose indexes are here.
struct Indexed<'a> {
    row_group: &'a RowGroup<'a>,
    locations: &'a HashMap<usize, OffsetIndexMetaData>,
    all: u64,
    indexes: &'a Fetched,
}

impl Indexed<'_> {
    /// Rows that may fulfil a condition, in order.
    fn rows(&self, condition: &Condition) -> Vec<Range<u64>> {
        match condition {
            Condition::Constant(Some(true)) => self.everything(),
            Condition::Constant(_) => Vec::new(),
            Condition::And(all) => all
                .iter()
                .fold(self.everything(), |rows, one| if rows.is_empty() { rows } else { both(&rows, &self.rows(one)) }),
            Condition::Or(any) => either(any.iter().flat_map(|one| self.rows(one)).collect()),
            Condition::Exact(slot, test) => self.pages(*slot, |known| known.may_be_exact(test)),
            Condition::Float(slot, test) => self.pages(*slot, |known| known.may_be_float(test)),
            Condition::Text(slot, test) => self.pages(*slot, |known| known.may_be_text(test)),
            Condition::IsNull(slot) => self.pages(*slot, |known| known.may_be_null()),
            _ => self.everything(),
        }
    }

    fn everything(&self) -> Vec<Range<u64>> {
        std::iter::once(0..self.all).collect()
    }

    /// The rows of pages of which this may be true.
    fn pages(&self, slot: usize, may_be: impl Fn(&Known<'_>) -> bool) -> Vec<Range<u64>> {
        self.known_pages(slot, may_be).unwrap_or_else(|| self.everything())
    }

    /// `None`: there is no index of the column.
    fn known_pages(&self, slot: usize, may_be: impl Fn(&Known<'_>) -> bool) -> Option<Vec<Range<u64>>> {
        let leaf = self.row_group.leaf(slot)?;
        let chunk = self.row_group.metadata.column(leaf);
        let index = bytes(chunk.column_index_range()?, self.indexes)?;
        let index = decode_column_index(&index, chunk.column_type()).ok()?;
        let pages = self.locations.get(&leaf)?.page_locations();
        if index.num_pages() != pages.len() as u64 {
            return None;
        }
        let mut rows = Vec::new();
        for (at, page) in pages.iter().enumerate() {
            let start = page.first_row_index.cast_unsigned();
            let end = pages.get(at + 1).map_or(self.all, |next| next.first_row_index.cast_unsigned());
            let is_wanted = match statistics(&index, at, end - start) {
                None => true,
                Some(statistics) => may_be(&self.row_group.known_by(slot, &statistics, end - start)?),
            };
            if is_wanted {
                rows.push(start..end);
            }
        }
        Some(either(rows))
    }
}

/// What an index says of a page, as a footer would. `None`: nothing.
fn statistics(index: &ColumnIndexMetaData, page: usize, rows: u64) -> Option<Statistics> {
    let nulls = if index.is_null_page(page) {
        Some(rows)
    } else {
        index.null_count(page).and_then(|nulls| u64::try_from(nulls).ok())
    };
    fn of<T: Clone>(index: &PrimitiveColumnIndex<T>, page: usize) -> (Option<T>, Option<T>) {
        (index.min_value(page).cloned(), index.max_value(page).cloned())
    }
    let texts = |index: &ByteArrayColumnIndex| {
        (index.min_value(page).map(<[u8]>::to_vec), index.max_value(page).map(<[u8]>::to_vec))
    };
    Some(match index {
        ColumnIndexMetaData::INT32(index) => {
            let (min, max) = of(index, page);
            Statistics::int32(min, max, None, nulls, false)
        }
        ColumnIndexMetaData::INT64(index) => {
            let (min, max) = of(index, page);
            Statistics::int64(min, max, None, nulls, false)
        }
        ColumnIndexMetaData::FLOAT(index) => {
            let (min, max) = of(index, page);
            Statistics::float(min, max, None, nulls, false)
        }
        ColumnIndexMetaData::DOUBLE(index) => {
            let (min, max) = of(index, page);
            Statistics::double(min, max, None, nulls, false)
        }
        ColumnIndexMetaData::BYTE_ARRAY(index) => {
            let (min, max) = texts(index);
            Statistics::byte_array(min.map(ByteArray::from), max.map(ByteArray::from), None, nulls, false)
        }
        ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            let (min, max) = texts(index);
            let fixed = |bytes: Vec<u8>| FixedLenByteArray::from(bytes);
            Statistics::fixed_len_byte_array(min.map(fixed), max.map(fixed), None, nulls, false)
        }
        ColumnIndexMetaData::BOOLEAN(_) | ColumnIndexMetaData::INT96(_) => return None,
    })
}

/// Rows that are in both.
fn both(left: &[Range<u64>], right: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut rows = Vec::new();
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let common = a.start.max(b.start)..a.end.min(b.end);
        if !common.is_empty() {
            rows.push(common);
        }
        if a.end <= b.end {
            left.next()
        } else {
            right.next()
        };
    }
    rows
}

/// Rows that are in one of these, which may overlap.
fn either(mut all: Vec<Range<u64>>) -> Vec<Range<u64>> {
    all.sort_unstable_by_key(|rows| rows.start);
    let mut rows: Vec<Range<u64>> = Vec::new();
    for next in all {
        match rows.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => rows.push(next),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_two_conditions_are_those_of_both_or_of_either() {
        let (left, right) = (vec![0..10, 20..30, 40..50], vec![5..25, 28..29, 50..60]);
        assert_eq!(both(&left, &right), [5..10, 20..25, 28..29]);
        assert_eq!(both(&left, &[]), []);
        assert_eq!(either([left, right].concat()), [0..30, 40..60]);
    }

    #[test]
    fn a_dictionary_and_the_pages_with_wanted_rows_are_read() {
        let page = |offset, first_row_index| PageLocation { offset, compressed_page_size: 10, first_row_index };
        let locations = OffsetIndexMetaData {
            page_locations: vec![page(104, 0), page(114, 100), page(124, 200), page(134, 300)],
            unencoded_byte_array_data_bytes: None,
        };
        let read = |rows: &[[u64; 2]], leaf, [start, end]: [u64; 2]| -> Vec<[u64; 2]> {
            let rows = rows.iter().map(|[start, end]| *start..*end).collect();
            let chosen = Chosen { rows, locations: [(7, locations.clone())].into() };
            chosen.ranges(leaf, start..end).into_iter().map(|range| [range.start, range.end]).collect()
        };
        assert_eq!(read(&[[150, 160], [390, 400]], 7, [100, 144]), [[100, 104], [114, 124], [134, 144]]);
        assert_eq!(read(&[[99, 101]], 7, [100, 144]), [[100, 104], [104, 114], [114, 124]]);
        assert_eq!(read(&[[0, 1]], 7, [104, 144]), [[104, 114]]);
        assert_eq!(read(&[[0, 1]], 8, [200, 300]), [[200, 300]], "it has no index");
    }
}
