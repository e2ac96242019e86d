//! What the columns of a file are, and how they are asked for.

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use std::sync::Arc;

/// The most digits behind the point of a decimal of 128 bits.
const SCALE_MAX: u8 = 38;

/// What a value is, as far as expressions care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `digits / 10^scale`, exactly.
    Exact(Kind, u8),
    Float,
    Text,
    Boolean,
    /// Nothing that is compared.
    Other,
}

/// What an exact value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Decimal,
    /// Days since 1970-01-01.
    Day,
    /// Seconds since 1970-01-01T00:00:00.
    Time,
}

impl Class {
    pub(crate) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Self::Exact(Kind::Integer, 0),
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Self::Exact(Kind::Integer, 0),
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
                // Files of anybody may say that there are more digits than there can be.
                let scale = u8::try_from(*scale).ok().filter(|scale| *scale <= SCALE_MAX);
                scale.map_or(Self::Other, |scale| Self::Exact(Kind::Decimal, scale))
            }
            DataType::Date32 => Self::Exact(Kind::Day, 0),
            DataType::Timestamp(unit, _) => Self::Exact(
                Kind::Time,
                match unit {
                    TimeUnit::Second => 0,
                    TimeUnit::Millisecond => 3,
                    TimeUnit::Microsecond => 6,
                    TimeUnit::Nanosecond => 9,
                },
            ),
            DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Boolean => Self::Boolean,
            _ => Self::Other,
        }
    }

    /// As messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact(Kind::Integer | Kind::Decimal, _) | Self::Float => "a number",
            Self::Exact(Kind::Day, _) => "a date",
            Self::Exact(Kind::Time, _) => "a timestamp",
            Self::Text => "a text",
            Self::Boolean => "true or false",
            Self::Other => "of a type that a scan does not compare",
        }
    }
}

/// The schema by which a file is decoded the fastest: decimals as 64-bit numbers where they fit, texts as views, and no
/// dictionaries.
pub(crate) fn physical(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| {
        let data_type = fastest(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    Schema::new_with_metadata(schema.fields().iter().map(field).collect::<Vec<_>>(), schema.metadata().clone())
}

fn fastest(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal128(precision, scale) if *precision <= 18 => DataType::Decimal64(*precision, *scale),
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, values) => fastest(values),
        other => other.clone(),
    }
}

/// The types of a result: no views, which few read.
pub(crate) fn outgoing(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}
