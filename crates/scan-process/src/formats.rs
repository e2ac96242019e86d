//! What a file is, and how it is opened.

use crate::arrow_file::{ArrowFile, ArrowStream};
use crate::csv_file::CsvFile;
use crate::input::Input;
use crate::json_file::JsonFile;
use crate::parquet_file::ParquetFile;
use crate::table::Table;
use diskside_scan::{Failure, FailureKind, Format, Plan};

/// The file as the plan calls it, or as what it looks like.
pub(crate) fn open(input: &mut Input, plan: &Plan) -> Result<Box<dyn Table>, Failure> {
    let format = if plan.format == Format::Auto { recognised(input)? } else { plan.format };
    if let (Format::Parquet | Format::Arrow, Some((column, _))) = (format, plan.types.first()) {
        let told = format!("column `{column}` has the type that the file says; only those of CSV and JSON are chosen");
        return Err(input.failure(FailureKind::Plan, told));
    }
    Ok(match format {
        Format::Auto | Format::Parquet => Box::new(ParquetFile::open(input)?),
        Format::Arrow if ArrowFile::is_one(input)? => Box::new(ArrowFile::open(input)?),
        Format::Arrow => Box::new(ArrowStream::open(input)?),
        Format::Csv { delimiter, has_header } => Box::new(CsvFile::open(input, delimiter, has_header, &plan.types)?),
        Format::JsonLines => Box::new(JsonFile::open(input, &plan.types)?),
    })
}

fn recognised(input: &mut Input) -> Result<Format, Failure> {
    let name = input.name().to_ascii_lowercase();
    if let Some(text) = Format::of_text(&name) {
        return Ok(text);
    }
    let compressed = [".csv.gz", ".csv.zst", ".jsonl.gz", ".jsonl.zst", ".tsv.gz", ".ndjson.gz"];
    if compressed.iter().any(|extension| name.ends_with(extension)) {
        return Err(input.failure(FailureKind::Unsupported, "it is compressed as a whole, which a scan does not read"));
    }
    let first = input.read_metadata(0..input.len().min(8))?;
    Ok(match &first[..] {
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] | [0xff, 0xff, 0xff, 0xff, ..] => Format::Arrow,
        _ => Format::Parquet,
    })
}
