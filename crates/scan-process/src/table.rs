//! A file as a scan sees it, of whatever format: columns, and groups of rows that are read and decoded one after another.

use crate::bloom::Lookup;
use crate::condition::Condition;
use crate::dictionary::Dictionary;
use crate::input::Fetched;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema, SchemaRef, TimeUnit};
use diskside_scan::ColumnType;
use std::ops::Range;

/// Rows that are decoded at a time.
pub(crate) const BATCH_ROWS: usize = 32 << 10;

/// Values of a text that are parsed at a time at most: parsers make room for all of a batch before the first.
const BATCH_VALUES: usize = 1 << 20;

/// Rows of a text that are parsed at a time.
pub(crate) fn text_rows(schema: &Schema) -> usize {
    (BATCH_VALUES / schema.flattened_fields().len().max(1)).clamp(1, BATCH_ROWS)
}

/// Batches of a group, or what is wrong with it.
pub(crate) type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, String>> + 'a>;

pub(crate) trait Table: Send + Sync {
    /// The columns, with the types that batches have.
    fn schema(&self) -> &SchemaRef;
    /// Has columns of texts decoded as the codes of dictionaries from now on, where the file has them so. Their texts are only told
    /// apart.
    fn keep_dictionaries(&mut self, _columns: &[usize]) {}
    /// What messages call a group.
    fn group_name(&self) -> &'static str;
    /// How many groups there are.
    fn groups(&self) -> usize;
    /// Rows of a group, where they are known without reading it.
    fn rows(&self, group: usize) -> Option<u64>;
    /// Whether groups are begun to be decoded only one after another, from the first on.
    fn is_sequential(&self) -> bool;
    /// About how many bytes a batch of some columns of a group takes once it is decoded.
    fn batch_len(&self, group: usize, columns: &[usize]) -> u64 {
        self.ranges(group, columns).iter().map(|range| range.end - range.start).sum()
    }
    /// Whether a row of a group may fulfil a condition, whose slots are these columns.
    fn may_fulfil(&self, _group: usize, _needed: &[usize], _condition: &Condition) -> bool {
        true
    }
    /// Filters that may rule a group out once they are read.
    fn lookups(&self, _group: usize, _needed: &[usize], _condition: &Condition) -> Vec<Lookup> {
        Vec::new()
    }
    /// Dictionaries that may rule a group out once they are read.
    fn dictionaries(&self, _group: usize, _needed: &[usize], _condition: &Condition) -> Vec<Dictionary> {
        Vec::new()
    }
    /// Whether a row of a group may fulfil a condition, by a dictionary of it that was read.
    fn dictionary_may_fulfil(
        &self,
        _group: usize,
        _needed: &[usize],
        _condition: &Condition,
        _read: (&Dictionary, Fetched),
    ) -> bool {
        true
    }
    /// Where the indexes of the pages of a group are that may tell which of them have rows that fulfil a condition.
    fn indexes(&self, _group: usize, _needed: &[usize], _condition: &Condition) -> Vec<Range<u64>> {
        Vec::new()
    }
    /// Leaves out pages by indexes of groups, and says which groups have no row that is wanted.
    fn leave_out(&self, _indexes: Vec<(usize, Fetched)>, _needed: &[usize], _condition: &Condition) -> Vec<usize> {
        Vec::new()
    }
    /// Where the bytes of some columns of a group are.
    fn ranges(&self, group: usize, columns: &[usize]) -> Vec<Range<u64>>;
    /// Decodes some columns of a group, in the order of the file.
    fn decode<'a>(&'a self, fetched: Fetched, group: usize, columns: &[usize]) -> Result<Batches<'a>, String>;
}

/// The type of a column of a text file, as it is decoded.
pub(crate) fn data_type(of: ColumnType) -> DataType {
    match of {
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Integer => DataType::Int64,
        ColumnType::Float => DataType::Float64,
        ColumnType::Decimal { precision, scale } if precision <= 18 => {
            DataType::Decimal64(precision, scale.cast_signed())
        }
        ColumnType::Decimal { precision, scale } => DataType::Decimal128(precision, scale.cast_signed()),
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        ColumnType::Text => DataType::Utf8,
    }
}
