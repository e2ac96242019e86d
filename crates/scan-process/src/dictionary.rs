//! Dictionaries: a row group cannot have a row that is wanted where all pages of a column have codes of a dictionary, and none of its
//! values fulfils what is asked of the column. One that cannot be read rules nothing out.

use crate::columns::{Class, Kind};
use crate::condition::{Condition, Test, TextTest, holds};
use crate::evaluate::float_holds;
use crate::input::Fetched;
use crate::prune::{RowGroup, big_endian};
use arrow_schema::DataType;
use bytes::Bytes;
use diskside_scan::Comparison;
use parquet::basic::{Encoding, EncodingMask, Type};
use parquet::column::page::{Page, PageReader as _};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader as _;
use parquet::file::serialized_reader::SerializedPageReader;
use std::ops::Range;
use std::sync::Arc;

/// Longer dictionaries are not read for this.
const PAGE_LEN_MAX: u64 = 1 << 20;
/// Nor are those of which a page says that it decompresses to more.
const VALUES_LEN_MAX: u64 = 8 << 20;
/// One byte in so many of its chunk is the dictionary at most.
const OF_CHUNK: u64 = 4;
/// The same of all bytes that are needed of the row group.
const OF_GROUP: u64 = 8;
/// How a page of a dictionary begins: three numbers of a structure of Thrift, each behind a byte that says that it is the next field
/// and has 32 bits. The first one is the kind of page.
const FIELD: u8 = 0x15;
const DICTIONARY_PAGE: u64 = 2;

/// The dictionary of a column of a row group.
#[derive(Debug)]
pub(crate) struct Dictionary {
    pub(crate) range: Range<u64>,
    slot: usize,
}

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Null,
    Exact(i128),
    Float(f64),
    Text(&'a str),
}

impl Dictionary {
    /// Those that may rule a row group out, of which `needed_len` bytes are needed.
    pub(crate) fn of(row_group: &RowGroup<'_>, condition: &Condition, needed_len: u64) -> Vec<Self> {
        let slots = 0..row_group.needed.len();
        slots.filter_map(|slot| Self::of_slot(row_group, condition, slot, needed_len)).collect()
    }

    fn of_slot(row_group: &RowGroup<'_>, condition: &Condition, slot: usize, needed_len: u64) -> Option<Self> {
        let chunk = row_group.metadata.column(row_group.leaf(slot)?);
        let has_bounds = chunk.statistics().is_some_and(|known| known.min_bytes_opt().is_some());
        if bounds(condition, slot) < if has_bounds { 2 } else { 1 } || !is_coded(chunk) {
            return None;
        }
        let start = u64::try_from(chunk.dictionary_page_offset()?).ok()?;
        let len = u64::try_from(chunk.data_page_offset()).ok()?.checked_sub(start)?;
        let chunk_len = u64::try_from(chunk.compressed_size()).ok()?;
        let len_max = PAGE_LEN_MAX.min(chunk_len / OF_CHUNK).min(needed_len / OF_GROUP);
        (1..=len_max).contains(&len).then_some(Self { range: start..start + len, slot })
    }

    /// Whether one of its values, or NULL, may be in a row that fulfils the condition.
    pub(crate) fn may_fulfil(&self, row_group: &RowGroup<'_>, condition: &Condition, fetched: Fetched) -> bool {
        may_be(condition, self.slot, Value::Null)
            || self.has_one(row_group, condition, fetched).is_none_or(|has_one| has_one)
    }

    /// `None`: it cannot be read.
    fn has_one(&self, row_group: &RowGroup<'_>, condition: &Condition, fetched: Fetched) -> Option<bool> {
        let chunk = row_group.metadata.column(row_group.leaf(self.slot)?);
        let (values, count) = values(chunk, fetched)?;
        let data_type = row_group.schema.field(row_group.needed[self.slot]).data_type();
        let mut rest = &values[..];
        for _ in 0..count {
            let value = next(&mut rest, chunk.column_type(), chunk.column_descr().type_length(), data_type)?;
            if may_be(condition, self.slot, value) {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Whether all pages have codes of the chunk's dictionary, and not values: a writer gives up a dictionary that becomes too long.
pub(crate) fn is_coded(chunk: &ColumnChunkMetaData) -> bool {
    let codes =
        |mask: &EncodingMask| mask.is_only(Encoding::RLE_DICTIONARY) || mask.is_only(Encoding::PLAIN_DICTIONARY);
    chunk.dictionary_page_offset().is_some() && chunk.page_encoding_stats_mask().is_some_and(codes)
}

/// What a condition demands of a column. 0: nothing; 1: a bound, which statistics tell as well as values do; more: what values alone
/// tell.
fn bounds(condition: &Condition, slot: usize) -> usize {
    let is_bound = |how: &Comparison| *how != Comparison::Equal;
    match condition {
        Condition::Exact(of, test) if *of == slot => match test {
            Test::Compare(how, _) if is_bound(how) => 1,
            _ => 2,
        },
        Condition::Float(of, test) if *of == slot => match test {
            Test::Compare(how, _) if is_bound(how) => 1,
            _ => 2,
        },
        Condition::Text(of, test) if *of == slot => match test {
            TextTest::Compare(how, _) if is_bound(how) => 1,
            _ => 2,
        },
        Condition::And(all) => all.iter().map(|one| bounds(one, slot)).sum(),
        Condition::Or(any) if any.iter().all(|one| bounds(one, slot) > 0) => 2,
        _ => 0,
    }
}

/// Whether a condition may be true of a row with this value in a column, whatever the others have.
fn may_be(condition: &Condition, slot: usize, value: Value<'_>) -> bool {
    match (condition, value) {
        (Condition::Constant(of_all), _) => *of_all == Some(true),
        (Condition::And(all), _) => all.iter().all(|one| may_be(one, slot, value)),
        (Condition::Or(any), _) => any.iter().any(|one| may_be(one, slot, value)),
        (Condition::Exact(of, _) | Condition::Float(of, _) | Condition::Text(of, _), Value::Null) => *of != slot,
        (Condition::IsNull(of), _) if *of == slot => value == Value::Null,
        (Condition::Exact(of, test), Value::Exact(value)) if *of == slot => match test {
            Test::Compare(how, with) => holds(*how, value.cmp(with)),
            Test::In(among) => among.binary_search(&value).is_ok(),
        },
        (Condition::Float(of, test), Value::Float(value)) if *of == slot => match test {
            Test::Compare(how, with) => float_holds(*how, value, *with),
            Test::In(among) => among.contains(&value),
        },
        (Condition::Text(of, test), Value::Text(value)) if *of == slot => match test {
            TextTest::Compare(how, with) => holds(*how, value.cmp(with.as_str())),
            TextTest::In(among) => among.binary_search_by(|with| with.as_str().cmp(value)).is_ok(),
            TextTest::Like(pattern) => pattern.matches(value),
        },
        _ => true,
    }
}

/// The values of a dictionary one behind the other, and how many there are.
fn values(chunk: &ColumnChunkMetaData, fetched: Fetched) -> Option<(Bytes, u32)> {
    let first = fetched.get_read(chunk.byte_range().0).ok().map(|read| read.left())?;
    if claimed_len(&first).is_none_or(|len| len > VALUES_LEN_MAX) {
        return None;
    }
    let mut pages = SerializedPageReader::new(Arc::new(fetched), chunk, usize::MAX, None).ok()?;
    match pages.get_next_page().ok()?? {
        Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN | Encoding::PLAIN_DICTIONARY, .. } => {
            Some((buf, num_values))
        }
        _ => None,
    }
}

/// The length to which a page of a dictionary decompresses, as it says itself: room for it is made before.
fn claimed_len(page: &[u8]) -> Option<u64> {
    let mut rest = page;
    let mut field = || {
        let (first, after) = rest.split_first()?;
        rest = after;
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                // Numbers with a sign have it in their lowest bit.
                return (*first == FIELD && number & 1 == 0).then_some(number >> 1);
            }
        }
    };
    (field()? == DICTIONARY_PAGE).then(field).flatten()
}

/// The next value as pages have it, and as it is compared. `None`: it is not all there, or is none of its type.
fn next<'a>(rest: &mut &'a [u8], physical: Type, fixed_len: i32, data_type: &DataType) -> Option<Value<'a>> {
    let mut take = |len: usize| {
        let (taken, after) = rest.split_at_checked(len)?;
        *rest = after;
        Some(taken)
    };
    let class = Class::of(data_type);
    let is_unsigned = data_type.is_unsigned_integer();
    Some(match (class, physical) {
        // Times may be written in other units than they are read in.
        (Class::Exact(Kind::Integer | Kind::Decimal | Kind::Day, _), Type::INT32) => {
            let value = i32::from_le_bytes(take(4)?.try_into().ok()?);
            let value = if is_unsigned { value.cast_unsigned().into() } else { i128::from(value) };
            Value::Exact(value).fits(data_type)?
        }
        (Class::Exact(Kind::Integer | Kind::Decimal | Kind::Day, _), Type::INT64) => {
            let value = i64::from_le_bytes(take(8)?.try_into().ok()?);
            let value = if is_unsigned { value.cast_unsigned().into() } else { i128::from(value) };
            Value::Exact(value).fits(data_type)?
        }
        (Class::Exact(Kind::Decimal, _), Type::FIXED_LEN_BYTE_ARRAY) => {
            Value::Exact(big_endian(take(usize::try_from(fixed_len).ok()?)?)?)
        }
        (Class::Exact(Kind::Decimal, _), Type::BYTE_ARRAY) => {
            let len = u32::from_le_bytes(take(4)?.try_into().ok()?);
            Value::Exact(big_endian(take(len as usize)?)?)
        }
        (Class::Float, Type::FLOAT) => Value::Float(f32::from_le_bytes(take(4)?.try_into().ok()?).into()),
        (Class::Float, Type::DOUBLE) if *data_type == DataType::Float64 => {
            Value::Float(f64::from_le_bytes(take(8)?.try_into().ok()?))
        }
        (Class::Text, Type::BYTE_ARRAY) => {
            let len = u32::from_le_bytes(take(4)?.try_into().ok()?);
            Value::Text(std::str::from_utf8(take(len as usize)?).ok()?)
        }
        _ => return None,
    })
}

impl Value<'_> {
    /// A number, if its type has it: another one is decoded to something else.
    fn fits(self, data_type: &DataType) -> Option<Self> {
        let Self::Exact(value) = self else { return Some(self) };
        let fits = match data_type {
            DataType::Int8 => i8::try_from(value).is_ok(),
            DataType::Int16 => i16::try_from(value).is_ok(),
            DataType::Int32 => i32::try_from(value).is_ok(),
            DataType::UInt8 => u8::try_from(value).is_ok(),
            DataType::UInt16 => u16::try_from(value).is_ok(),
            DataType::UInt32 => u32::try_from(value).is_ok(),
            _ => true,
        };
        fits.then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_values_alone_tell_is_asked_of_a_dictionary() {
        let (less, more) = (|| exact(0, Comparison::Less, 9), || exact(0, Comparison::Greater, 3));
        assert_eq!([bounds(&less(), 0), bounds(&less(), 1), bounds(&exact(0, Comparison::Equal, 3), 0)], [1, 0, 2]);
        assert_eq!(bounds(&Condition::And(vec![less(), more()]), 0), 2, "between two values there may be none");
        assert_eq!(bounds(&Condition::Or(vec![less(), more()]), 0), 2);
        assert_eq!(bounds(&Condition::Or(vec![less(), exact(1, Comparison::Equal, 3)]), 0), 0);
        assert_eq!(bounds(&Condition::Not(Box::new(less())), 0), 0);
    }

    #[test]
    fn a_condition_is_ruled_out_by_values_only_where_it_is_true_of_none() {
        let one = |value| exact(0, Comparison::Equal, value);
        let is = |condition: &Condition, value| may_be(condition, 0, value);
        assert!(is(&one(3), Value::Exact(3)) && !is(&one(3), Value::Exact(4)) && !is(&one(3), Value::Null));
        let or_null = Condition::Or(vec![one(3), Condition::IsNull(0)]);
        assert!(is(&or_null, Value::Null) && !is(&or_null, Value::Exact(4)));
        let or_other = Condition::Or(vec![one(3), exact(1, Comparison::Equal, 3)]);
        assert!(is(&or_other, Value::Exact(4)), "the other column may be 3");
        assert!(is(&Condition::Not(Box::new(one(3))), Value::Exact(3)), "it is not looked into");
        let nan = Condition::Float(0, Test::Compare(Comparison::NotEqual, f64::NAN));
        assert!(is(&nan, Value::Float(f64::NAN)));
    }

    fn exact(slot: usize, how: Comparison, value: i128) -> Condition {
        Condition::Exact(slot, Test::Compare(how, value))
    }

    #[test]
    fn a_page_says_what_it_decompresses_to() {
        assert_eq!(claimed_len(&[0x15, 4, 0x15, 0x80, 0x80, 0x80, 0x08, 0x15, 9]), Some(8 << 20));
        assert_eq!(claimed_len(&[0x15, 0, 0x15, 8]), None, "it is a page of data");
        assert_eq!(claimed_len(&[0x15, 4, 0x15, 9]), None, "less than nothing");
        assert_eq!(claimed_len(&[0x15, 4, 0x15, 0x80]), None, "it ends");
        let endless = [&[0x15, 4, 0x15][..], &[0x80; 40]].concat();
        assert_eq!(claimed_len(&endless), None);
    }

    #[test]
    fn a_value_that_its_type_does_not_have_is_none() {
        let next = |bytes: &[u8], physical, data_type| {
            let mut rest = bytes;
            next(&mut rest, physical, 3, &data_type).map(|value| format!("{value:?} {}", rest.len()))
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(next(&[0xff; 5], Type::INT32, DataType::Int8), told("Exact(-1) 1"));
        assert_eq!(next(&[0, 1, 0, 0], Type::INT32, DataType::Int8), None);
        assert_eq!(next(&[0xff; 4], Type::INT32, DataType::UInt32), told("Exact(4294967295) 0"));
        assert_eq!(
            next(&[0xff, 0, 1, 9], Type::FIXED_LEN_BYTE_ARRAY, DataType::Decimal64(6, 2)),
            told("Exact(-65535) 1")
        );
        assert_eq!(next(&[2, 0, 0, 0, b'a', b'b'], Type::BYTE_ARRAY, DataType::Utf8View), told("Text(\"ab\") 0"));
        assert_eq!(next(&[1, 0, 0, 0, 0xff], Type::BYTE_ARRAY, DataType::Utf8View), None);
        assert_eq!(next(&[9, 0, 0, 0, b'a'], Type::BYTE_ARRAY, DataType::Utf8View), None);
        assert_eq!(next(&[0; 8], Type::INT64, DataType::Timestamp(arrow_schema::TimeUnit::Second, None)), None);
    }
}
