//! JSON lines: an object a line, whose members are columns.

use crate::input::{Fetched, Input};
use crate::lines::{Pieces, carry, columns, first_wrong, is_no_date, last_line_end, sample, wrong_value};
use crate::table::{Batches, Table, data_type, text_rows};
use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_json::ReaderBuilder;
use arrow_json::reader::infer_json_schema;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use diskside_scan::{ColumnType, Failure, FailureKind};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// An open file.
pub(crate) struct JsonFile {
    schema: SchemaRef,
    pieces: Pieces,
    state: Mutex<State>,
}

/// Between two pieces.
struct State {
    carried: Vec<u8>,
    /// The number of the next line, from 1 on.
    line: u64,
}

impl JsonFile {
    pub(crate) fn open(input: &mut Input, types: &[(String, ColumnType)]) -> Result<Self, Failure> {
        let text = sample(input, last_line_end)?;
        let guessed = infer_json_schema(&text[..], None);
        let told = |error| {
            let line = first_no_object(&text).map_or(String::new(), |line| format!("line {line}: "));
            input.failure(FailureKind::File, format!("its first lines are not JSON objects: {line}{error}"))
        };
        let guessed = guessed.map_err(told)?.0;
        let long = names_of_long_integers(&text);
        let as_text = |field: &Field| field.data_type() == &DataType::Float64 && long.contains(field.name().as_bytes());
        let guess = |field: &FieldRef| match field.as_ref().clone() {
            field if as_text(&field) => field.with_data_type(DataType::Utf8),
            field => field,
        };
        let mut fields: Vec<Field> = guessed.fields().iter().map(guess).collect();
        // As they come in the text: the order of what was guessed is another each time.
        let places = first_places(&text);
        let place = |field: &Field| places.get(field.name().as_bytes()).copied().unwrap_or(usize::MAX);
        fields.sort_by_cached_key(|field| (place(field), field.name().clone()));
        // A member that the first lines lack is a column if it is given a type.
        let known: HashSet<String> = fields.iter().map(|field| field.name().clone()).collect();
        let late = types.iter().filter(|(name, _)| !known.contains(name));
        fields.extend(late.map(|(name, of)| Field::new(name, data_type(*of), true)));
        let schema = columns(input, fields, types)?;
        let pieces = Pieces::new(0, input.len());
        Ok(Self { schema, pieces, state: Mutex::new(State { carried: Vec::new(), line: 1 }) })
    }
}

/// The first line of which no columns can be guessed.
fn first_no_object(text: &[u8]) -> Option<usize> {
    let mut lines = text.split(|byte| *byte == b'\n').zip(1..);
    let wrong = lines.find(|(line, _)| !line.trim_ascii().is_empty() && infer_json_schema(*line, None).is_err());
    wrong.map(|(_, number)| number)
}

/// Members with a whole number that has more than 64 bits with a sign. They are guessed to be floating-point numbers, of which two that are
/// not equal may be.
fn names_of_long_integers(text: &[u8]) -> HashSet<&[u8]> {
    const DIGITS_MIN: usize = 19;
    let (mut names, mut at) = (HashSet::new(), 0);
    while at < text.len() {
        let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, end) = (at, at + digits);
        at = end + 1;
        let is_whole = digits >= DIGITS_MIN && !matches!(text.get(end), Some(b'.' | b'e' | b'E'));
        if !is_whole {
            continue;
        }
        let (before, sign) = text[..number].strip_suffix(b"-").map_or((&text[..number], ""), |before| (before, "-"));
        let value = format!("{sign}{}", String::from_utf8_lossy(&text[number..end]));
        let name =
            before.trim_ascii_end().strip_suffix(b":").and_then(|name| name.trim_ascii_end().strip_suffix(b"\""));
        let Some(name) = name.filter(|_| value.parse::<i64>().is_err()) else { continue };
        names.insert(&name[memchr::memrchr(b'"', name).map_or(0, |open| open + 1)..]);
    }
    names
}

/// Where each name stands first. One pass finds all: a line may have many thousands.
fn first_places(text: &[u8]) -> HashMap<&[u8], usize> {
    let (mut places, mut quotes) = (HashMap::new(), memchr::memchr_iter(b'"', text).peekable());
    while let Some(open) = quotes.next() {
        let Some(close) = quotes.peek() else { break };
        if text[close + 1..].trim_ascii_start().first() == Some(&b':') {
            places.entry(&text[open + 1..*close]).or_insert(open);
        }
    }
    places
}

impl Table for JsonFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn group_name(&self) -> &'static str {
        "piece"
    }

    fn groups(&self) -> usize {
        self.pieces.count()
    }

    fn rows(&self, _group: usize) -> Option<u64> {
        None
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn ranges(&self, group: usize, _columns: &[usize]) -> Vec<Range<u64>> {
        vec![self.pieces.range(group)]
    }

    fn decode<'a>(&'a self, fetched: Fetched, group: usize, columns: &[usize]) -> Result<Batches<'a>, String> {
        let State { carried, line } = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let text = self.pieces.joined(&fetched, group, carried)?;
        let end = last_line_end(&text);
        *carried = carry(&text[end..])?;
        let first_line = *line;
        *line += memchr::memchr_iter(b'\n', &text[..end]).count() as u64;
        // Of no column at all rows are not counted: then the first one is decoded, and left out.
        let decoded = if columns.is_empty() { &[0][..self.schema.fields().len().min(1)] } else { columns };
        let schema = Arc::new(self.schema.project(decoded).map_err(|error| error.to_string())?);
        let without = |batch: RecordBatch| -> Result<RecordBatch, String> {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options);
            batch.map_err(|error| error.to_string())
        };
        let is_count = columns.is_empty();
        let parsed = move || {
            let (batches, failed) = batches(&schema, &text[..end]);
            let failed = failed.map(|error| {
                let first_row: usize = batches.iter().map(RecordBatch::num_rows).sum();
                Err(first_wrong_line(&schema, &text[..end], first_row, first_line).unwrap_or(error))
            });
            // No row goes out of a piece that has something wrong.
            let batches = if failed.is_some() { Vec::new() } else { batches };
            batches.into_iter().map(move |batch| if is_count { without(batch) } else { Ok(batch) }).chain(failed)
        };
        Ok(Box::new(std::iter::once_with(parsed).flatten()))
    }
}

fn reader(schema: &Arc<Schema>) -> ReaderBuilder {
    ReaderBuilder::new(Arc::clone(schema)).with_batch_size(text_rows(schema)).with_coerce_primitive(true)
}

/// The rows of a text, up to what is wrong.
fn batches(schema: &Arc<Schema>, text: &[u8]) -> (Vec<RecordBatch>, Option<String>) {
    let (mut batches, mut rest) = (Vec::new(), text);
    let mut all = || -> Result<(), ArrowError> {
        let mut decoder = reader(&Arc::new(without_numbers(schema))).build_decoder()?;
        loop {
            let count = decoder.decode(rest)?;
            rest = &rest[count..];
            match decoder.flush()? {
                Some(batch) => batches.push(with_numbers(&batch, schema)?),
                None if rest.is_empty() => return Ok(()),
                None => {}
            }
        }
    };
    let failed = all().err().map(|error| match error {
        ArrowError::JsonError(told) => told,
        other => other.to_string(),
    });
    (batches, failed)
}

/// The columns with texts for whole numbers and dates: arrow-json cuts the fraction of a number off that is to be a whole one, and the time
/// of day off what is to be a date.
fn without_numbers(schema: &Schema) -> Schema {
    fn of(data_type: &DataType) -> DataType {
        let inner = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(of(field.data_type())));
        match data_type {
            exact if exact.is_integer() || *exact == DataType::Date32 => DataType::Utf8,
            DataType::List(field) => DataType::List(inner(field)),
            DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
            other => other.clone(),
        }
    }
    Schema::new(
        schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_data_type(of(field.data_type())))
            .collect::<Vec<_>>(),
    )
}

/// The batch with its whole numbers and dates.
fn with_numbers(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let number = |(field, column): (&FieldRef, &ArrayRef)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        let long_date = column.as_string_opt::<i32>().filter(|_| field.data_type() == &DataType::Date32);
        if let Some(value) = long_date.and_then(|texts| texts.iter().flatten().find(|text| is_no_date(text.as_bytes())))
        {
            return Err(ArrowError::JsonError(wrong_value(field, value)));
        }
        cast_with_options(column, field.data_type(), &options).map_err(|error| {
            let error = error.to_string();
            let value = error.split_once("string '").and_then(|(_, rest)| rest.rsplit_once("' to value"));
            let told = value.map(|(value, _)| wrong_value(field, value));
            ArrowError::JsonError(told.unwrap_or_else(|| format!("column `{}`: {error}", field.name())))
        })
    };
    let columns = schema.fields().iter().zip(batch.columns()).map(number).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// The first line that is not right, behind so many rows. Halves are parsed again, not each line by itself: there may be thousands, of
/// thousands of members.
fn first_wrong_line(schema: &Arc<Schema>, text: &[u8], first_row: usize, first_line: u64) -> Option<String> {
    let is_row = |(_, line): &(usize, &[u8])| !line.trim_ascii().is_empty();
    let lines = text.split_inclusive(|byte| *byte == b'\n').enumerate().filter(is_row);
    let lines: Vec<(usize, &[u8])> = lines.skip(first_row).take(text_rows(schema)).collect();
    let failed = |range: &Range<usize>| {
        let text: Vec<&[u8]> = lines[range.clone()].iter().map(|(_, line)| *line).collect();
        batches(schema, &text.concat()).1
    };
    let wrong = first_wrong(0..lines.len(), |range| failed(range).is_some())?;
    failed(&(wrong..wrong + 1)).map(|error| format!("line {}: {error}", first_line + lines[wrong].0 as u64))
}
