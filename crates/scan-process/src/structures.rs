//! The output of a function as rows: structures, whose members are columns.

use crate::result::exact_array;
use arrow_array::{
    Array as _, ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use diskside_sbpf::image::{ArgField, ArgSchema, ArgType};
use std::sync::Arc;

/// The columns of structures, and how rows become of them.
pub(crate) struct Structures {
    len_bytes: usize,
    fields: Vec<ArgField>,
    schema: Schema,
}

impl Structures {
    /// Those of a result.
    ///
    /// # Errors
    /// A member is not a column, with what a message says of it.
    pub(crate) fn of(result: &ArgSchema) -> Result<Self, String> {
        let fields: Vec<ArgField> = result.fields.iter().filter(|field| !field.is_hidden).cloned().collect();
        let columns = fields.iter().map(|field| {
            let data_type = data_type(field).ok_or_else(|| {
                format!(
                    "member `{}` of struct {} is not a column: each is one number, or a text (char {0}[32])",
                    field.name, result.name
                )
            })?;
            Ok(Field::new(&field.name, data_type, true))
        });
        let columns: Vec<Field> = columns.collect::<Result<_, String>>()?;
        if columns.is_empty() || result.len_bytes == 0 {
            return Err(format!("struct {} has no members that are columns", result.name));
        }
        Ok(Self { len_bytes: result.len_bytes as usize, fields, schema: Schema::new(columns) })
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The rows that an output has.
    ///
    /// # Errors
    /// It is not whole structures.
    pub(crate) fn rows(&self, output: &[u8]) -> Result<(Vec<ArrayRef>, usize), String> {
        let rows = output.chunks_exact(self.len_bytes);
        if !rows.remainder().is_empty() {
            return Err(format!("gave {} bytes, which are not structures of {} bytes", output.len(), self.len_bytes));
        }
        let columns = self.fields.iter().zip(self.schema.fields());
        let columns = columns.map(|(field, column)| {
            let values = rows.clone().map(|row| &row[field.offset as usize..][..len_of(field)]);
            array(field, column.data_type(), values)
        });
        Ok((columns.collect(), rows.len()))
    }
}

/// A part of a folded result as a column: bytes, to be folded with others.
pub(crate) fn partial(folded: &[u8]) -> (Schema, ArrayRef) {
    let array = BinaryArray::from_iter_values([folded]);
    (Schema::new(vec![Field::new("folded", array.data_type().clone(), false)]), Arc::new(array))
}

/// The parts in a batch of such a column; `None`: it has no such column.
pub(crate) fn partials(batch: &RecordBatch) -> Option<&BinaryArray> {
    batch.columns().first()?.as_any().downcast_ref()
}

fn len_of(field: &ArgField) -> usize {
    (field.ty.len_bytes() * if field.is_array { field.count } else { 1 }) as usize
}

fn data_type(field: &ArgField) -> Option<DataType> {
    if field.ty == ArgType::Char && (!field.is_array || field.count > 0) {
        return Some(DataType::Utf8);
    }
    if field.is_array {
        return None;
    }
    Some(match (field.ty, field.scale.map(u8::cast_signed)) {
        (ArgType::I64, Some(scale)) => DataType::Decimal128(19, scale),
        (ArgType::U64, Some(scale)) => DataType::Decimal128(20, scale),
        (_, Some(scale)) => DataType::Decimal64(18, scale),
        (ArgType::I8, _) => DataType::Int8,
        (ArgType::U8, _) => DataType::UInt8,
        (ArgType::I16, _) => DataType::Int16,
        (ArgType::U16, _) => DataType::UInt16,
        (ArgType::I32, _) => DataType::Int32,
        (ArgType::U32, _) => DataType::UInt32,
        (ArgType::I64, _) => DataType::Int64,
        (ArgType::U64, _) => DataType::UInt64,
        (ArgType::F32, _) => DataType::Float32,
        (ArgType::F64, _) => DataType::Float64,
        (ArgType::Bool, _) => DataType::Boolean,
        (ArgType::Char, _) => DataType::Utf8,
    })
}

fn array<'a>(field: &ArgField, data_type: &DataType, values: impl Iterator<Item = &'a [u8]>) -> ArrayRef {
    let bits = |value: &[u8]| value.iter().rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    match field.ty {
        ArgType::F64 => Arc::new(values.map(|value| Some(f64::from_bits(bits(value)))).collect::<Float64Array>()),
        ArgType::F32 => {
            Arc::new(values.map(|value| Some(f32::from_bits(bits(value) as u32))).collect::<Float32Array>())
        }
        ArgType::Bool => Arc::new(values.map(|value| Some(bits(value) != 0)).collect::<BooleanArray>()),
        ArgType::Char => {
            let text = |value: &'a [u8]| {
                let len = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
                String::from_utf8_lossy(&value[..len])
            };
            Arc::new(StringArray::from_iter_values(values.map(text)))
        }
        ArgType::I8 | ArgType::I16 | ArgType::I32 | ArgType::I64 => {
            let unused = 64 - 8 * field.ty.len_bytes();
            let signed = |value: &[u8]| i128::from((bits(value) << unused).cast_signed() >> unused);
            exact_array(data_type, values.map(|value| Some(signed(value))))
        }
        ArgType::U8 | ArgType::U16 | ArgType::U32 | ArgType::U64 => {
            exact_array(data_type, values.map(|value| Some(i128::from(bits(value)))))
        }
    }
}
