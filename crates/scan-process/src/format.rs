//! An Arrow stream as something else: a table for people, CSV, Arrow with types that everybody reads, Parquet.

use crate::result::exact_array;
use crate::value::exact_digits;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use diskside_scan::{Failure, FailureKind};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::fmt::Display;
use std::io::{self, BufReader, BufWriter, Write};
use std::sync::Arc;

/// Rows by which the widths of a table are chosen.
const TABLE_ROWS: usize = 1000;
const DAY_SECONDS: i128 = 86_400;

/// Writes standard input to standard output.
pub(crate) fn write(format: &str) -> Result<(), Failure> {
    let failed = |error: &dyn Display| Failure { kind: FailureKind::File, message: format!("the result: {error}") };
    let reader = StreamReader::try_new(BufReader::new(io::stdin()), None).map_err(|error| failed(&error))?;
    let schema = widened_schema(&reader.schema());
    let out = BufWriter::new(io::stdout());
    let batches = reader.map(|batch| batch.map(|batch| widened(&schema, &batch)));
    let written: Result<(), Box<dyn std::error::Error>> = match format {
        "arrow" => write_arrow(&schema, batches, out),
        "parquet" => write_parquet(&schema, batches, out),
        "csv" => write_csv(&schema, batches, out),
        "table" => write_table(&schema, batches, out),
        _ => return Err(failed(&"its format is table, csv, arrow or parquet")),
    };
    written.map_err(|error| failed(&error))
}

type Done = Result<(), Box<dyn std::error::Error>>;
type Batch = Result<RecordBatch, arrow_schema::ArrowError>;

fn write_arrow(schema: &SchemaRef, batches: impl Iterator<Item = Batch>, out: impl Write) -> Done {
    let mut writer = StreamWriter::try_new(out, schema)?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    Ok(writer.into_inner()?.flush()?)
}

fn write_parquet(schema: &SchemaRef, batches: impl Iterator<Item = Batch>, out: impl Write + Send) -> Done {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(out, Arc::clone(schema), Some(properties))?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    Ok(writer.into_inner()?.flush()?)
}

fn write_csv(schema: &SchemaRef, batches: impl Iterator<Item = Batch>, mut out: impl Write) -> Done {
    let line = |out: &mut dyn Write, cells: &mut dyn Iterator<Item = Option<String>>| -> io::Result<()> {
        for (index, cell) in cells.enumerate() {
            if index > 0 {
                out.write_all(b",")?;
            }
            match cell {
                // An empty text is not NULL, which is nothing at all.
                Some(cell) if cell.is_empty() || cell.contains([',', '"', '\n', '\r']) => {
                    write!(out, "\"{}\"", cell.replace('"', "\"\""))?;
                }
                Some(cell) => out.write_all(cell.as_bytes())?,
                None => {}
            }
        }
        out.write_all(b"\n")
    };
    line(&mut out, &mut schema.fields().iter().map(|field| Some(field.name().clone())))?;
    for batch in batches {
        let batch = batch?;
        for row in 0..batch.num_rows() {
            line(&mut out, &mut batch.columns().iter().map(|column| text(column, row)))?;
        }
    }
    Ok(out.flush()?)
}

/// Widths are those of the first rows: a table of any length is written as it comes.
fn write_table(schema: &SchemaRef, mut batches: impl Iterator<Item = Batch>, mut out: impl Write) -> Done {
    let mut first: Vec<RecordBatch> = Vec::new();
    while first.iter().map(RecordBatch::num_rows).sum::<usize>() < TABLE_ROWS
        && let Some(batch) = batches.next()
    {
        first.push(batch?);
    }
    let mut widths: Vec<usize> = schema.fields().iter().map(|field| shown(field.name()).chars().count()).collect();
    for batch in &first {
        for (width, column) in widths.iter_mut().zip(batch.columns()) {
            let cells = (0..batch.num_rows().min(TABLE_ROWS)).map(|row| cell(column, row).chars().count());
            *width = cells.fold(*width, usize::max);
        }
    }
    let is_left: Vec<bool> = schema.fields().iter().map(|field| !(field.data_type().is_numeric())).collect();
    let line = |out: &mut dyn Write, cells: &mut dyn Iterator<Item = String>| -> io::Result<()> {
        let cells = cells.zip(widths.iter().zip(&is_left)).map(|(cell, (width, is_left))| match is_left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())
    };
    line(&mut out, &mut schema.fields().iter().map(|field| shown(field.name())))?;
    line(&mut out, &mut widths.iter().map(|width| "-".repeat(*width)))?;
    for batch in first.into_iter().map(Ok).chain(batches) {
        let batch = batch?;
        for row in 0..batch.num_rows() {
            line(&mut out, &mut batch.columns().iter().map(|column| cell(column, row)))?;
        }
    }
    Ok(out.flush()?)
}

/// What a terminal may be shown.
fn shown(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

fn cell(column: &ArrayRef, row: usize) -> String {
    text(column, row).map_or("NULL".into(), |text| shown(&text))
}

/// A value as people write it; `None` is NULL.
fn text(column: &ArrayRef, row: usize) -> Option<String> {
    if column.is_null(row) {
        return None;
    }
    let exact = || exact_digits(&column.slice(row, 1))[0];
    Some(match column.data_type() {
        DataType::Null => return None,
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).into(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Binary => hex(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => hex(column.as_binary::<i64>().value(row)),
        DataType::FixedSizeBinary(_) => hex(column.as_fixed_size_binary().value(row)),
        data_type
        @ (DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale)) => {
            u8::try_from(*scale).map_or_else(|_| format!("{} of {data_type}", exact()), |scale| decimal(exact(), scale))
        }
        DataType::Date32 => date(exact()),
        DataType::Timestamp(..) => match crate::columns::Class::of(column.data_type()) {
            crate::columns::Class::Exact(_, scale) => timestamp(exact(), scale),
            _ => unreachable!("a timestamp is exact"),
        },
        data_type if data_type.is_integer() => exact().to_string(),
        _ => format!("{:?}", column.slice(row, 1)).split_whitespace().collect::<Vec<_>>().join(" "),
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

/// Decimals of 64 bits are young: what goes out has 128.
fn widened_schema(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Decimal128(*precision, *scale)))
        }
        _ => Arc::clone(field),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn widened(schema: &SchemaRef, batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Arc::clone(column);
        }
        let known =
            exact_digits(column).into_iter().enumerate().map(|(row, value)| column.is_valid(row).then_some(value));
        exact_array(field.data_type(), known)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect()).expect("only types of columns changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_people_write_them() {
        assert_eq!(decimal(-5, 2), "-0.05");
        assert_eq!(decimal(12_345, 2), "123.45");
        assert_eq!([0, -1, 11_016, 2_932_896].map(date), ["1970-01-01", "1969-12-31", "2000-02-29", "9999-12-31"]);
        assert_eq!(timestamp(-1, 3), "1969-12-31 23:59:59.999");
        assert_eq!(timestamp(90_061, 0), "1970-01-02 01:01:01");
    }
}
