//! Values as people write them, and as CSV has them.

use crate::columns::Class;
use crate::value::exact_digits;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, DurationFormat, FormatOptions};
use arrow_json::EncoderOptions;
use arrow_json::writer::{NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema};
use std::sync::Arc;

const DAY_SECONDS: i128 = 86_400;
/// Times of day, durations and what else is rare.
const SHOWN: FormatOptions<'static> = FormatOptions::new().with_duration_format(DurationFormat::ISO8601);

/// The values of a column, one row after the other.
pub(crate) struct Cells<'a> {
    column: &'a ArrayRef,
    written: Written<'a>,
}

enum Written<'a> {
    /// By [`text`].
    Here,
    Shown(Box<ArrayFormatter<'a>>),
    /// Lists, structures and maps: every reader of JSON has them back.
    Json(Box<NullableEncoder<'a>>),
}

/// Rows whose nested columns are of types that JSON can be written of: zones of time by their offsets, since times are in UTC anyway, and
/// texts as keys of maps.
pub(crate) fn writable(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    if schema.fields().iter().all(|field| !field.data_type().is_nested()) {
        return Ok(batch);
    }
    let fields: Vec<FieldRef> = schema.fields().iter().map(in_json).collect();
    let columns = batch.columns().iter().zip(&fields);
    let columns = columns.map(|(column, field)| cast(column, field.data_type())).collect::<Result<_, _>>()?;
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn in_json(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::List(of) => DataType::List(in_json(of)),
        DataType::LargeList(of) => DataType::LargeList(in_json(of)),
        DataType::FixedSizeList(of, len) => DataType::FixedSizeList(in_json(of), *len),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(in_json).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(entries_in_json(entries), *is_sorted),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

fn entries_in_json(entries: &FieldRef) -> FieldRef {
    let DataType::Struct(fields) = entries.data_type() else { return Arc::clone(entries) };
    let key = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8));
    let fields = fields.iter().enumerate().map(|(at, field)| if at == 0 { key(field) } else { in_json(field) });
    Arc::new(entries.as_ref().clone().with_data_type(DataType::Struct(fields.collect())))
}

impl<'a> Cells<'a> {
    /// Those of each column of these rows.
    pub(crate) fn of_columns(batch: &'a RecordBatch, options: &'a EncoderOptions) -> Result<Vec<Self>, ArrowError> {
        let schema = batch.schema_ref();
        schema.fields().iter().zip(batch.columns()).map(|(field, column)| Self::new(field, column, options)).collect()
    }

    fn new(field: &'a FieldRef, column: &'a ArrayRef, options: &'a EncoderOptions) -> Result<Self, ArrowError> {
        if is_common(column.data_type()) {
            return Ok(Self { column, written: Written::Here });
        }
        // JSON has no unions.
        let encoder = column.data_type().is_nested().then(|| make_encoder(field, column, options).ok()).flatten();
        let written = match encoder {
            Some(encoder) => Written::Json(Box::new(encoder)),
            None => Written::Shown(Box::new(ArrayFormatter::try_new(column, &SHOWN)?)),
        };
        Ok(Self { column, written })
    }

    /// The value of a row; `None` is NULL.
    pub(crate) fn text(&mut self, row: usize) -> Option<String> {
        if self.column.is_null(row) {
            return None;
        }
        match &mut self.written {
            Written::Here => text(self.column, row),
            Written::Shown(formatter) => Some(formatter.value(row).to_string()),
            Written::Json(encoder) => {
                let mut bytes = Vec::new();
                encoder.encode(row, &mut bytes);
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }
}

fn is_common(data_type: &DataType) -> bool {
    let is_exact = matches!(Class::of(data_type), Class::Exact(..));
    is_exact
        || matches!(
            data_type,
            DataType::Null
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Boolean
                | DataType::Float32
                | DataType::Float64
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::FixedSizeBinary(_)
        )
}

/// A value of a common type.
fn text(column: &ArrayRef, row: usize) -> Option<String> {
    let exact = || exact_digits(&column.slice(row, 1))[0];
    Some(match (column.data_type(), Class::of(column.data_type())) {
        (DataType::Utf8, _) => column.as_string::<i32>().value(row).into(),
        (DataType::LargeUtf8, _) => column.as_string::<i64>().value(row).into(),
        (DataType::Boolean, _) => column.as_boolean().value(row).to_string(),
        (DataType::Float32, _) => column.as_primitive::<Float32Type>().value(row).to_string(),
        (DataType::Float64, _) => column.as_primitive::<Float64Type>().value(row).to_string(),
        (DataType::Binary, _) => hex(column.as_binary::<i32>().value(row)),
        (DataType::LargeBinary, _) => hex(column.as_binary::<i64>().value(row)),
        (DataType::FixedSizeBinary(_), _) => hex(column.as_fixed_size_binary().value(row)),
        (DataType::Date32, _) => date(exact()),
        // Arrow keeps times of all zones in UTC.
        (DataType::Timestamp(_, Some(_)), Class::Exact(_, scale)) => timestamp(exact(), scale) + "Z",
        (DataType::Timestamp(..), Class::Exact(_, scale)) => timestamp(exact(), scale),
        (_, Class::Exact(_, scale)) => decimal(exact(), scale),
        _ => return None,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decimal(digits: i128, scale: u8) -> String {
    if scale == 0 {
        return digits.to_string();
    }
    let sign = if digits < 0 { "-" } else { "" };
    let all = format!("{:0>width$}", digits.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, behind) = all.split_at(all.len() - usize::from(scale));
    format!("{sign}{whole}.{behind}")
}

fn date(days: i128) -> String {
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": civil_from_days.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn timestamp(value: i128, scale: u8) -> String {
    let unit = 10_i128.pow(scale.into());
    let (seconds, fraction) = (value.div_euclid(unit), value.rem_euclid(unit));
    let (day, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let time = format!("{} {:02}:{:02}:{:02}", date(day), second / 3600, second / 60 % 60, second % 60);
    match fraction {
        0 => time,
        _ => format!("{time}.{fraction:0>width$}", width = usize::from(scale)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{Int32Builder, MapBuilder};
    use arrow_array::{
        Decimal256Array, DurationMillisecondArray, Float16Array, Int32Array, ListArray, StructArray,
        Time64MicrosecondArray, TimestampSecondArray,
    };
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;

    #[test]
    fn values_are_written_as_people_write_them() {
        assert_eq!(decimal(-5, 2), "-0.05");
        assert_eq!(decimal(12_345, 2), "123.45");
        assert_eq!([0, -1, 11_016, 2_932_896].map(date), ["1970-01-01", "1969-12-31", "2000-02-29", "9999-12-31"]);
        assert_eq!(timestamp(-1, 3), "1969-12-31 23:59:59.999");
        assert_eq!(timestamp(90_061, 0), "1970-01-02 01:01:01");
    }

    /// They were written as a program is debugged, `PrimitiveArray<Time64(us)> [ 00:00:01, ]`.
    #[test]
    fn rare_values_are_written_so_that_programs_read_them() {
        let list = ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([Some([Some(1), None])]);
        let name = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
        let (number, word): (ArrayRef, ArrayRef) =
            (Arc::new(Int32Array::from(vec![7])), Arc::new(arrow_array::StringArray::from(vec!["a \"b\""])));
        let both = StructArray::from(vec![(name("n", &number), number), (name("w", &word), word)]);
        let wide = Decimal256Array::from_iter_values([arrow_buffer::i256::from_i128(-12_345)]);
        let moments = TimestampSecondArray::from(vec![1]).with_timezone("UTC");
        let item = Arc::new(Field::new("item", moments.data_type().clone(), true));
        let moments = ListArray::new(item, OffsetBuffer::from_lengths([1]), Arc::new(moments), None);
        let mut map = MapBuilder::new(None, Int32Builder::new(), Int32Builder::new());
        map.keys().append_value(5);
        map.values().append_value(6);
        map.append(true).unwrap();
        let map = map.finish();
        let columns: [(ArrayRef, &str); 9] = [
            (Arc::new(list), "[1,null]"),
            (Arc::new(moments), r#"["1970-01-01T00:00:01Z"]"#),
            (Arc::new(map), r#"{"5":6}"#),
            (Arc::new(both), r#"{"n":7,"w":"a \"b\""}"#),
            (Arc::new(Time64MicrosecondArray::from(vec![3_723_000_001])), "01:02:03.000001"),
            (Arc::new(DurationMillisecondArray::from(vec![1500])), "PT1.5S"),
            (Arc::new(Float16Array::from_iter_values([Default::default()])), "0"),
            (Arc::new(wide.with_precision_and_scale(40, 2).unwrap()), "-123.45"),
            (Arc::new(TimestampSecondArray::from(vec![0]).with_timezone("Europe/Paris")), "1970-01-01 00:00:00Z"),
        ];
        for (column, wanted) in columns {
            let (schema, options) = (Schema::new(vec![name("column", &column)]), EncoderOptions::default());
            let batch = writable(RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()).unwrap();
            let cells = &mut Cells::of_columns(&batch, &options).unwrap();
            assert_eq!(cells[0].text(0).as_deref(), Some(wanted));
        }
    }
}
