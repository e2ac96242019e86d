//! A result as an Arrow stream, by Arrow's C stream interface: what takes such streams needs no other package for it.
//!
//! Rows of C structures become columns, so they are copied once.

use arrow_array::builder::BooleanBuilder;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch, RecordBatchIterator, RecordBatchOptions, StringArray,
};
use arrow_schema::{ArrowError, Field, Schema};
use diskside::result::{columns, row_len};
use diskside::sandbox::image::{ArgField, ArgSchema, ArgType};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;

/// The rows of a result; `None` if it is not made of whole rows.
pub(crate) fn stream<'py>(
    py: Python<'py>,
    schema: &ArgSchema,
    result: &[u8],
) -> Option<Result<Bound<'py, PyCapsule>, ArrowError>> {
    let len = row_len(schema).filter(|len| result.len().is_multiple_of(*len))?;
    Some(batch(schema, result, len).and_then(|batch| {
        let schema = batch.schema();
        let stream = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new([Ok(batch)], schema)));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
            .map_err(|error| ArrowError::CDataInterface(error.to_string()))
    }))
}

fn batch(schema: &ArgSchema, result: &[u8], row_len: usize) -> Result<RecordBatch, ArrowError> {
    let rows = Rows { result, len: row_len };
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for field in columns(schema) {
        let array = rows.column(field)?;
        fields.push(Field::new(&field.name, array.data_type().clone(), false));
        arrays.push(array);
    }
    let count = RecordBatchOptions::new().with_row_count(Some(result.len() / row_len));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &count)
}

struct Rows<'a> {
    result: &'a [u8],
    len: usize,
}

impl Rows<'_> {
    fn column(&self, field: &ArgField) -> Result<ArrayRef, ArrowError> {
        if field.ty == ArgType::Char {
            let text = self.members(field).map(|bytes| {
                let end = bytes.iter().position(|byte| *byte == 0).filter(|_| field.is_array).unwrap_or(bytes.len());
                String::from_utf8_lossy(&bytes[..end]).into_owned()
            });
            return Ok(Arc::new(StringArray::from_iter_values(text)));
        }
        let values = self.values(field);
        if !field.is_array {
            return Ok(values);
        }
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), false));
        Ok(Arc::new(FixedSizeListArray::try_new(item, field.count.cast_signed(), values, None)?))
    }

    /// All elements of a member, row behind row.
    fn values(&self, field: &ArgField) -> ArrayRef {
        match field.ty {
            ArgType::U8 => self.primitive::<UInt8Type, 1>(field, u8::from_le_bytes),
            ArgType::I8 => self.primitive::<Int8Type, 1>(field, i8::from_le_bytes),
            ArgType::U16 => self.primitive::<UInt16Type, 2>(field, u16::from_le_bytes),
            ArgType::I16 => self.primitive::<Int16Type, 2>(field, i16::from_le_bytes),
            ArgType::U32 => self.primitive::<UInt32Type, 4>(field, u32::from_le_bytes),
            ArgType::I32 => self.primitive::<Int32Type, 4>(field, i32::from_le_bytes),
            ArgType::U64 => self.primitive::<UInt64Type, 8>(field, u64::from_le_bytes),
            ArgType::I64 => self.primitive::<Int64Type, 8>(field, i64::from_le_bytes),
            ArgType::F32 => self.primitive::<Float32Type, 4>(field, f32::from_le_bytes),
            ArgType::F64 => self.primitive::<Float64Type, 8>(field, f64::from_le_bytes),
            ArgType::Char | ArgType::Bool => {
                let mut values = BooleanBuilder::new();
                self.members(field).flatten().for_each(|byte| values.append_value(*byte != 0));
                Arc::new(values.finish())
            }
        }
    }

    fn primitive<T: ArrowPrimitiveType, const N: usize>(
        &self,
        field: &ArgField,
        read: fn([u8; N]) -> T::Native,
    ) -> ArrayRef {
        let elements = self.members(field).flat_map(|bytes| bytes.as_chunks::<N>().0);
        Arc::new(PrimitiveArray::<T>::from_iter_values(elements.map(|element| read(*element))))
    }

    /// The bytes of a member, of each row.
    fn members(&self, field: &ArgField) -> impl Iterator<Item = &[u8]> {
        let start = field.offset as usize;
        let end = start + field.ty.len_bytes() as usize * field.count.max(1) as usize;
        self.result.chunks_exact(self.len).map(move |row| &row[start..end])
    }
}
