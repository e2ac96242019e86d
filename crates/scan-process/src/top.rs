//! The first rows in an order; of equal ones those that come first in the file, on each side and however it is cut.

use crate::result::{out, outgoing_schema};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type};
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_ord::sort::{SortColumn, SortOptions, lexsort_to_indices};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use diskside_scan::Plan;
use std::sync::Arc;

/// Rows that are sorted at a time, and how many times the wanted ones they are at least.
const SORTED_ROWS: usize = 64 << 10;
const SORTED_TIMES: usize = 2;
/// The same in bytes: columns of a small row group may have room for many more rows than they have.
const SORTED_LEN: usize = 8 << 20;

/// Keeps the wanted rows, and those that were not sorted yet.
pub(crate) struct Top {
    schema: SchemaRef,
    /// Columns that are sorted by, and how.
    keys: Vec<(usize, SortOptions)>,
    wanted: usize,
    kept: Vec<RecordBatch>,
    rows: usize,
    /// Bytes that all of them take, and those of the rows that were sorted last, which take no more than they need.
    len: usize,
    sorted_len: usize,
}

impl Top {
    /// Of rows with these columns, which a result has.
    pub(crate) fn new(plan: &Plan, schema: &Schema) -> Result<Self, String> {
        let schema = outgoing_schema(schema);
        let key = |order: &diskside_scan::Order| {
            let (index, field) = schema
                .column_with_name(&order.column)
                .ok_or_else(|| format!("the result has no column `{}` to be sorted by", order.column))?;
            if field.data_type().is_nested() {
                return Err(format!("column `{}` is nested, and rows are not sorted by it", order.column));
            }
            Ok((index, SortOptions { descending: order.is_descending, nulls_first: false }))
        };
        let keys = plan.order.iter().map(key).collect::<Result<_, String>>()?;
        let wanted = plan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        Ok(Self { schema, keys, wanted, kept: Vec::new(), rows: 0, len: 0, sorted_len: 0 })
    }

    pub(crate) fn add(&mut self, columns: Vec<ArrayRef>, rows: usize) -> Result<(), ArrowError> {
        if rows == 0 {
            return Ok(());
        }
        let columns = columns.iter().map(out).collect();
        let batch = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)?;
        self.len += batch.get_array_memory_size();
        self.rows += rows;
        self.kept.push(batch);
        let are_many = self.rows >= SORTED_ROWS.max(self.wanted.saturating_mul(SORTED_TIMES));
        let are_long = self.len >= SORTED_LEN.max(self.sorted_len.saturating_mul(SORTED_TIMES));
        if are_many || are_long { self.sort() } else { Ok(()) }
    }

    /// The wanted rows, in order.
    pub(crate) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        self.sort()?;
        Ok(self.kept.pop().unwrap_or_else(|| RecordBatch::new_empty(self.schema)))
    }

    fn sort(&mut self) -> Result<(), ArrowError> {
        if self.rows == 0 {
            return Ok(());
        }
        let all = concat_batches(&self.schema, &self.kept)?;
        let column = |(index, options): &(usize, SortOptions)| SortColumn {
            values: with_one_zero(all.column(*index)),
            options: Some(*options),
        };
        let place = SortColumn { values: Arc::new(UInt32Array::from_iter_values(0..self.rows as u32)), options: None };
        let columns: Vec<_> = self.keys.iter().map(column).chain([place]).collect();
        let first: UInt32Array = lexsort_to_indices(&columns, Some(self.wanted.min(self.rows)))?;
        let columns = all.columns().iter().map(|column| take(column, &first, None)).collect::<Result<_, _>>()?;
        let sorted = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)?;
        self.sorted_len = sorted.get_array_memory_size();
        (self.len, self.rows, self.kept) = (self.sorted_len, sorted.num_rows(), vec![sorted]);
        Ok(())
    }
}

/// Arrow sorts -0.0 before 0.0, which are equal, so that their rows are in the order of the file.
fn with_one_zero(column: &ArrayRef) -> ArrayRef {
    fn of<T: ArrowPrimitiveType>(column: &ArrayRef) -> ArrayRef {
        let zero = T::Native::default();
        Arc::new(column.as_primitive::<T>().unary::<_, T>(|value| if value == zero { zero } else { value }))
    }
    match column.data_type() {
        DataType::Float16 => of::<Float16Type>(column),
        DataType::Float32 => of::<Float32Type>(column),
        DataType::Float64 => of::<Float64Type>(column),
        _ => ArrayRef::clone(column),
    }
}
