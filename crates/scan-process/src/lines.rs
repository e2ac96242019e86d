//! Text files: pieces of one length, whose lines are put together again.

use crate::input::{Fetched, Input};
use crate::table::data_type;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use diskside_scan::{ColumnType, Failure, FailureKind};
use parquet::file::reader::ChunkReader as _;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are read and decoded at a time.
const PIECE_LEN: u64 = 2 << 20;
/// The first bytes, by which types of columns are guessed.
const SAMPLE_LEN: u64 = 256 << 10;
/// The longest line.
pub(crate) const LINE_LEN_MAX: usize = 8 << 20;

/// Where the pieces of a text are.
#[derive(Debug)]
pub(crate) struct Pieces(Range<u64>);

impl Pieces {
    /// The lines behind the header.
    pub(crate) fn new(start: u64, end: u64) -> Self {
        Self(start.min(end)..end)
    }

    pub(crate) fn count(&self) -> usize {
        (self.0.end - self.0.start).div_ceil(PIECE_LEN) as usize
    }

    pub(crate) fn range(&self, index: usize) -> Range<u64> {
        let start = self.0.start + index as u64 * PIECE_LEN;
        start..self.0.end.min(start + PIECE_LEN)
    }

    /// A piece behind what the one before left. Its last line has an end.
    pub(crate) fn joined(&self, fetched: &Fetched, index: usize, carried: &mut Vec<u8>) -> Result<Bytes, String> {
        let range = self.range(index);
        let piece = fetched.get_bytes(range.start, (range.end - range.start) as usize);
        let piece = piece.map_err(|error| error.to_string())?;
        let is_open = self.is_last(index) && piece.last() != Some(&b'\n');
        if carried.is_empty() && !is_open {
            return Ok(piece);
        }
        carried.extend_from_slice(&piece);
        if is_open {
            carried.push(b'\n');
        }
        Ok(Bytes::from(std::mem::take(carried)))
    }

    pub(crate) fn is_last(&self, index: usize) -> bool {
        index + 1 == self.count()
    }
}

/// The rest of a piece: the beginning of a line.
pub(crate) fn carry(rest: &[u8]) -> Result<Vec<u8>, String> {
    if rest.len() > LINE_LEN_MAX {
        return Err(format!("a line is longer than {} MiB, or a quote is not closed", LINE_LEN_MAX >> 20));
    }
    Ok(rest.to_vec())
}

/// The first whole lines of a text. `whole` finds where the last one ends.
pub(crate) fn sample(input: &mut Input, whole: impl Fn(&[u8]) -> usize) -> Result<Bytes, Failure> {
    for len in [SAMPLE_LEN, LINE_LEN_MAX as u64] {
        let mut text = input.read(0..input.len().min(len))?;
        if text.len() as u64 == input.len() {
            return Ok(text);
        }
        text.truncate(whole(&text));
        if !text.is_empty() {
            return Ok(text);
        }
    }
    let told = format!("its first line is longer than {} MiB, or a quote is not closed", LINE_LEN_MAX >> 20);
    Err(input.failure(FailureKind::File, told))
}

/// Where the last line of a text ends that has no quotes.
pub(crate) fn last_line_end(text: &[u8]) -> usize {
    memchr::memrchr(b'\n', text).map_or(0, |at| at + 1)
}

/// The first of some items that is wrong, if `is_wrong` says so of a range that it is in.
pub(crate) fn first_wrong(items: Range<usize>, is_wrong: impl Fn(&Range<usize>) -> bool) -> Option<usize> {
    let mut left = items;
    while left.len() > 1 {
        let half = left.start..left.start + left.len() / 2;
        left = if is_wrong(&half) { half } else { half.end..left.end };
    }
    (left.len() == 1 && is_wrong(&left)).then_some(left.start)
}

/// The columns that were guessed, with the types that a plan wants.
pub(crate) fn columns(
    input: &Input,
    guessed: Vec<Field>,
    wanted: &[(String, ColumnType)],
) -> Result<SchemaRef, Failure> {
    let mut fields: Vec<Field> = guessed.into_iter().map(guess).collect();
    for (name, of) in wanted {
        let mut named = fields.iter_mut().filter(|field| field.name() == name).peekable();
        if named.peek().is_none() {
            return Err(input.failure(FailureKind::Plan, format!("there is no column `{name}` to have a type")));
        }
        named.for_each(|field| field.set_data_type(data_type(*of)));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Any column may have NULLs, times have microseconds, and of what nothing is known it is a text.
fn guess(field: Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => field.data_type().clone(),
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Null => DataType::Utf8,
        other => other.clone(),
    };
    field.with_data_type(data_type).with_nullable(true)
}

/// How to read a text whose first line is the name of one column, if that may be the names of several.
pub(crate) fn other_delimiter(first_line: &str) -> Option<String> {
    [(';', "';'"), ('\t', "$'\\t'"), ('|', "'|'"), (',', "','")]
        .into_iter()
        .find(|(delimiter, _)| first_line.contains(*delimiter))
        .map(|(_, written)| format!("; that looks like a text with another delimiter: --delimiter {written}"))
}

/// Whether a value is longer than any date: Arrow takes times for dates, too, on the day that it is in UTC then.
pub(crate) fn is_no_date(value: &[u8]) -> bool {
    const DATE_LEN: usize = "YYYY-MM-DD".len();
    value.trim_ascii().len() > DATE_LEN
}

/// Why a value of a column cannot be taken.
pub(crate) fn wrong_value(field: &Field, value: &str) -> String {
    let is_number = value.parse::<f64>().is_ok_and(f64::is_finite) && field.data_type().is_numeric();
    format!(
        "column `{name}`: '{}' is not of type {}, which the first lines or the given types say; say what it is, such as --types '{name} {}'",
        value.chars().take(60).collect::<String>(),
        type_name(field.data_type()),
        match field.data_type() {
            DataType::Date32 if is_no_date(value.as_bytes()) => "timestamp",
            _ if is_number => "float",
            _ => "text",
        },
        name = field.name(),
    )
}

/// A type in the words of `--types`, and in those of the output where these have none.
pub(crate) fn type_name(of: &DataType) -> String {
    let name = match of {
        DataType::Null => "nothing but NULL",
        DataType::Boolean => "boolean",
        DataType::Float16 => "16-bit float",
        integer if integer.is_integer() => "integer",
        DataType::Float32 | DataType::Float64 => "float",
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => return format!("decimal({digits}, {scale})"),
        DataType::Date32 => "date",
        DataType::Date64 => "date in milliseconds",
        DataType::Timestamp(..) => "timestamp",
        DataType::Time32(_) | DataType::Time64(_) => "time of day",
        DataType::Duration(_) => "duration",
        DataType::Interval(_) => "interval",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "bytes",
        DataType::Struct(_) => "structure",
        DataType::Map(..) => "map",
        DataType::Union(..) => "union",
        DataType::Dictionary(_, values) => return type_name(values),
        DataType::RunEndEncoded(_, values) => return type_name(values.data_type()),
        _ => "list",
    };
    name.into()
}

/// Two types that differ, as Arrow calls them where our words are the same.
pub(crate) fn names_of_two(one: &DataType, other: &DataType) -> [String; 2] {
    let names = [one, other].map(type_name);
    if names[0] == names[1] { [one, other].map(|of| format!("{} ({of})", type_name(of))) } else { names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_words_of_the_option() {
        let texts = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View].map(|of| type_name(&of));
        assert_eq!(texts, ["text"; 3]);
        let numbers = [DataType::Int8, DataType::UInt64, DataType::Float32, DataType::Decimal32(9, 2)];
        assert_eq!(numbers.map(|of| type_name(&of)), ["integer", "integer", "float", "decimal(9, 2)"]);
        let text = Arc::new(Field::new("item", DataType::Utf8, true));
        assert_eq!(type_name(&DataType::Struct(vec![Arc::clone(&text)].into())), "structure");
        assert_eq!(type_name(&DataType::FixedSizeList(text, 2)), "list");
        assert_eq!(names_of_two(&DataType::Int32, &DataType::Utf8), ["integer", "text"]);
        assert_eq!(names_of_two(&DataType::Int32, &DataType::Int64), ["integer (Int32)", "integer (Int64)"]);
    }
}
