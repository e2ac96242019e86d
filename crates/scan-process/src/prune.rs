//! Which row groups cannot have a row that is wanted, by what their footer says of them.
//!
//! A bound that may be wrong is not used: of types whose old statistics have another order, and of floating-point numbers where
//! a bound is NaN.

use crate::columns::Class;
use crate::condition::{Condition, Test, TextTest};
use arrow_schema::{DataType, Schema};
use diskside_scan::Comparison;
use diskside_scan::Pattern;
use parquet::basic::SortOrder;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

/// What is known of the chunk of a column, or of a page of it.
pub(crate) struct Known<'a> {
    statistics: &'a Statistics,
    data_type: &'a DataType,
    rows: u64,
    is_ordered: bool,
}

/// The columns of a row group, by slots.
pub(crate) struct RowGroup<'a> {
    pub(crate) metadata: &'a RowGroupMetaData,
    pub(crate) schema: &'a Schema,
    /// For each slot its column in the schema.
    pub(crate) needed: &'a [usize],
    /// For each column of the schema its only chunk; `None`: it is nested.
    pub(crate) leaves: &'a [Option<usize>],
}

impl RowGroup<'_> {
    /// Whether a row may fulfil the condition.
    pub(crate) fn may_fulfil(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Constant(value) => *value == Some(true),
            Condition::And(all) => all.iter().all(|one| self.may_fulfil(one)),
            Condition::Or(any) => any.iter().any(|one| self.may_fulfil(one)),
            Condition::Exact(slot, test) => self.known(*slot).is_none_or(|known| known.may_be_exact(test)),
            Condition::Float(slot, test) => self.known(*slot).is_none_or(|known| known.may_be_float(test)),
            Condition::Text(slot, test) => self.known(*slot).is_none_or(|known| known.may_be_text(test)),
            Condition::IsNull(slot) => self.known(*slot).is_none_or(|known| known.may_be_null()),
            _ => true,
        }
    }

    /// The only chunk of a column; `None`: it is nested.
    pub(crate) fn leaf(&self, slot: usize) -> Option<usize> {
        self.leaves[self.needed[slot]]
    }

    fn known(&self, slot: usize) -> Option<Known<'_>> {
        let statistics = self.metadata.column(self.leaf(slot)?).statistics()?;
        self.known_by(slot, statistics, u64::try_from(self.metadata.num_rows()).ok()?)
    }

    /// What statistics say of so many rows of a column.
    pub(crate) fn known_by<'a>(&'a self, slot: usize, statistics: &'a Statistics, rows: u64) -> Option<Known<'a>> {
        let chunk = self.metadata.column(self.leaf(slot)?);
        let data_type = self.schema.field(self.needed[slot]).data_type();
        let wanted = match Class::of(data_type) {
            Class::Text => SortOrder::UNSIGNED,
            _ if data_type.is_unsigned_integer() => SortOrder::UNSIGNED,
            _ => SortOrder::SIGNED,
        };
        let is_ordered = chunk.column_descr().sort_order() == wanted
            // The old fields compare all as signed numbers, and texts byte by byte as such.
            && (!statistics.is_min_max_deprecated()
                || (wanted == SortOrder::SIGNED && matches!(statistics, Statistics::Int32(_) | Statistics::Int64(_))))
            && is_whole(statistics, chunk.column_descr().type_length());
        Some(Known { statistics, data_type, rows, is_ordered })
    }
}

impl Known<'_> {
    fn all_null(&self) -> bool {
        self.statistics.null_count_opt().is_some_and(|nulls| nulls >= self.rows)
    }

    pub(crate) fn may_be_null(&self) -> bool {
        self.statistics.null_count_opt() != Some(0)
    }

    pub(crate) fn may_be_exact(&self, test: &Test<i128>) -> bool {
        if self.all_null() {
            return false;
        }
        let unsigned = self.data_type.is_unsigned_integer();
        let bounds = match self.statistics {
            Statistics::Int32(of) => {
                let value = |value: &i32| if unsigned { value.cast_unsigned().into() } else { i128::from(*value) };
                of.min_opt().map(value).zip(of.max_opt().map(value))
            }
            Statistics::Int64(of) => {
                let value = |value: &i64| if unsigned { value.cast_unsigned().into() } else { i128::from(*value) };
                of.min_opt().map(value).zip(of.max_opt().map(value))
            }
            Statistics::FixedLenByteArray(_) | Statistics::ByteArray(_) => {
                let bytes = |bytes: Option<&[u8]>| bytes.and_then(big_endian);
                bytes(self.statistics.min_bytes_opt()).zip(bytes(self.statistics.max_bytes_opt()))
            }
            _ => None,
        };
        let Some((min, max)) = bounds.filter(|(min, max)| self.is_ordered && min <= max) else { return true };
        match test {
            Test::Compare(how, with) => may_hold(*how, &min, &max, with),
            Test::In(among) => among.iter().any(|value| (min..=max).contains(value)),
        }
    }

    pub(crate) fn may_be_float(&self, test: &Test<f64>) -> bool {
        if self.all_null() {
            return false;
        }
        let bounds = match self.statistics {
            Statistics::Float(of) => of.min_opt().zip(of.max_opt()).map(|(min, max)| ((*min).into(), (*max).into())),
            Statistics::Double(of) => of.min_opt().zip(of.max_opt()).map(|(min, max)| (*min, *max)),
            _ => None,
        };
        // Where NaN is a bound nothing is one; elsewhere NaN is not counted, and no test but <> is true of it.
        let Some((min, max)) = bounds.filter(|(min, max): &(f64, f64)| min <= max) else { return true };
        match test {
            Test::Compare(Comparison::NotEqual, _) => true,
            Test::Compare(how, with) => with.is_nan() || may_hold(*how, &min, &max, with),
            Test::In(among) => among.iter().any(|value| (min..=max).contains(value)),
        }
    }

    pub(crate) fn may_be_text(&self, test: &TextTest) -> bool {
        if self.all_null() {
            return false;
        }
        // Bounds may be cut: the least is then lower, and the greatest higher, than any text.
        let bounds = self.statistics.min_bytes_opt().zip(self.statistics.max_bytes_opt());
        let Some((min, max)) = bounds.filter(|(min, max)| self.is_ordered && min <= max) else { return true };
        match test {
            TextTest::Compare(Comparison::NotEqual, _) => true,
            TextTest::Compare(how, with) => may_hold(*how, &min, &max, &with.as_bytes()),
            TextTest::In(among) => among.iter().any(|value| (min..=max).contains(&value.as_bytes())),
            TextTest::Like(Pattern::Equal(with)) => (min..=max).contains(&with.as_bytes()),
            TextTest::Like(Pattern::Prefix(with)) => {
                let with = with.as_bytes();
                with <= max && (min <= with || min.starts_with(with))
            }
            TextTest::Like(_) => true,
        }
    }
}

/// Whether bounds of fixed length have it: a part of a number is another number.
fn is_whole(statistics: &Statistics, len: i32) -> bool {
    let is_whole = |bound: Option<&[u8]>| bound.is_none_or(|bytes| i32::try_from(bytes.len()) == Ok(len));
    !matches!(statistics, Statistics::FixedLenByteArray(_))
        || is_whole(statistics.min_bytes_opt()) && is_whole(statistics.max_bytes_opt())
}

/// Whether a value between the bounds may compare so.
fn may_hold<T: PartialOrd>(how: Comparison, min: &T, max: &T, with: &T) -> bool {
    match how {
        Comparison::Equal => min <= with && with <= max,
        Comparison::NotEqual => !(min == with && max == with),
        Comparison::Less => min < with,
        Comparison::LessOrEqual => min <= with,
        Comparison::Greater => max > with,
        Comparison::GreaterOrEqual => max >= with,
    }
}

/// A number of two's complement, as decimals are in byte arrays.
pub(crate) fn big_endian(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let mut all = [if first >= 0x80 { 0xff } else { 0 }; 16];
    let start = all.len().checked_sub(bytes.len())?;
    all[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_in_bytes_have_a_sign() {
        let values = [&[0x01, 0x00][..], &[0xff], &[0x80, 0x00], &[]].map(big_endian);
        assert_eq!(values, [Some(256), Some(-1), Some(-32_768), None]);
        assert_eq!(big_endian(&[0; 17]), None);
    }

    #[test]
    fn bounds_decide_only_what_they_can() {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let may = |how, with| may_hold(how, &3, &5, &with);
        assert_eq!([2, 3, 4, 5, 6].map(|with| may(Equal, with)), [false, true, true, true, false]);
        assert_eq!([3, 4].map(|with| may(Less, with)), [false, true]);
        assert_eq!([2, 3].map(|with| may(LessOrEqual, with)), [false, true]);
        assert_eq!([5, 4].map(|with| may(Greater, with)), [false, true]);
        assert_eq!([6, 5].map(|with| may(GreaterOrEqual, with)), [false, true]);
        assert!(may(NotEqual, 3) && !may_hold(NotEqual, &3, &3, &3));
    }
}
