//! An Arrow stream as something else: a table for people, CSV, Arrow with types that everybody reads, Parquet.

use crate::cells::{Cells, writable};
use crate::result::exact_array;
use crate::value::exact_digits;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_json::EncoderOptions;
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
    let is_alone = schema.fields().len() == 1;
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
                // Readers skip lines without a character: the row would be lost.
                None if is_alone => out.write_all(b"\"\"")?,
                None => {}
            }
        }
        out.write_all(b"\n")
    };
    line(&mut out, &mut schema.fields().iter().map(|field| Some(field.name().clone())))?;
    let options = EncoderOptions::default();
    for batch in batches {
        let batch = writable(batch?)?;
        let mut columns = Cells::of_columns(&batch, &options)?;
        for row in 0..batch.num_rows() {
            line(&mut out, &mut columns.iter_mut().map(|column| column.text(row)))?;
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
        first.push(writable(batch?)?);
    }
    let mut widths: Vec<usize> = schema.fields().iter().map(|field| shown(field.name()).chars().count()).collect();
    let options = EncoderOptions::default();
    for batch in &first {
        for (width, mut column) in widths.iter_mut().zip(Cells::of_columns(batch, &options)?) {
            let cells = (0..batch.num_rows().min(TABLE_ROWS)).map(|row| cell(&mut column, row).chars().count());
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
    let others = batches.map(|batch| batch.and_then(writable));
    for batch in first.into_iter().map(Ok).chain(others) {
        let batch = batch?;
        let mut columns = Cells::of_columns(&batch, &options)?;
        for row in 0..batch.num_rows() {
            line(&mut out, &mut columns.iter_mut().map(|column| cell(column, row)))?;
        }
    }
    Ok(out.flush()?)
}

/// What a terminal may be shown.
fn shown(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

fn cell(column: &mut Cells<'_>, row: usize) -> String {
    column.text(row).map_or("NULL".into(), |text| shown(&text))
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
