//! Bloom filters: which values are surely not in the chunk of a column.

use crate::columns::{Class, Kind};
use crate::condition::{Condition, Test, TextTest};
use crate::prune::RowGroup;
use bytes::Bytes;
use diskside_scan::Comparison;
use diskside_scan::Pattern;
use parquet::basic::Type;
use parquet::bloom_filter::Sbbf;
use std::ops::Range;

/// Longer filters are not read: they are about as dear as the chunk.
const FILTER_LEN_MAX: u64 = 1 << 20;
/// A longer list is not looked up: one of so many values is in most chunks.
const VALUES_MAX: usize = 1000;

/// A filter, and the values of which the chunk has to have one.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) range: Range<u64>,
    /// As they are hashed.
    values: Vec<Vec<u8>>,
}

impl Lookup {
    /// Those that a condition allows: where one of them fails, no row fulfils it.
    pub(crate) fn of(row_group: &RowGroup<'_>, condition: &Condition) -> Vec<Self> {
        match condition {
            Condition::And(all) => all.iter().flat_map(|one| Self::of(row_group, one)).collect(),
            Condition::Exact(slot, Test::Compare(Comparison::Equal, value)) => {
                Self::exact(row_group, *slot, std::slice::from_ref(value)).into_iter().collect()
            }
            Condition::Exact(slot, Test::In(values)) => Self::exact(row_group, *slot, values).into_iter().collect(),
            Condition::Text(slot, test) => {
                let texts = match test {
                    TextTest::Compare(Comparison::Equal, text) | TextTest::Like(Pattern::Equal(text)) => {
                        std::slice::from_ref(text)
                    }
                    TextTest::In(texts) => texts,
                    _ => return Vec::new(),
                };
                let values = || texts.iter().map(|text| text.as_bytes().to_vec()).collect();
                Self::new(row_group, *slot, texts.len(), |of| (of == Type::BYTE_ARRAY).then(values))
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn exact(row_group: &RowGroup<'_>, slot: usize, values: &[i128]) -> Option<Self> {
        let data_type = row_group.schema.field(row_group.needed[slot]).data_type();
        // Times may be written in other units than they are read in.
        if !matches!(Class::of(data_type), Class::Exact(Kind::Integer | Kind::Decimal | Kind::Day, _)) {
            return None;
        }
        let is_unsigned = data_type.is_unsigned_integer();
        // A value that the type does not hold is in no chunk.
        let narrow = |value: &i128| match is_unsigned {
            true => u32::try_from(*value).ok().map(|value| value.to_le_bytes().to_vec()),
            false => i32::try_from(*value).ok().map(|value| value.to_le_bytes().to_vec()),
        };
        let wide = |value: &i128| match is_unsigned {
            true => u64::try_from(*value).ok().map(|value| value.to_le_bytes().to_vec()),
            false => i64::try_from(*value).ok().map(|value| value.to_le_bytes().to_vec()),
        };
        Self::new(row_group, slot, values.len(), |of| match of {
            Type::INT32 => Some(values.iter().filter_map(narrow).collect()),
            Type::INT64 => Some(values.iter().filter_map(wide).collect()),
            _ => None,
        })
    }

    fn new(
        row_group: &RowGroup<'_>,
        slot: usize,
        count: usize,
        values: impl Fn(Type) -> Option<Vec<Vec<u8>>>,
    ) -> Option<Self> {
        if count > VALUES_MAX {
            return None;
        }
        let chunk = row_group.metadata.column(row_group.leaves[row_group.needed[slot]]?);
        let start = u64::try_from(chunk.bloom_filter_offset()?).ok()?;
        let len = u64::try_from(chunk.bloom_filter_length()?).ok()?;
        if len > FILTER_LEN_MAX || len > u64::try_from(chunk.compressed_size()).ok()? {
            return None;
        }
        Some(Self { range: start..start.checked_add(len)?, values: values(chunk.column_type())? })
    }

    /// Whether the chunk may have one of the values. A filter that cannot be read rules nothing out.
    pub(crate) fn may_have(&self, filter: &Bytes) -> bool {
        Sbbf::from_bytes(filter).map_or(true, |filter| self.values.iter().any(|value| filter.check(&value[..])))
    }
}
