//! The format of a file, as options name it.

use crate::plan::Format;

/// The format of a file, from the options that name it: `input` by its name, and the options that only CSV files have.
/// `name` is the file's: the values of a `.tsv` have tabs between them.
///
/// # Errors
/// They do not name a format.
pub fn parse_format(
    input: Option<&str>,
    delimiter: Option<&str>,
    has_header: bool,
    name: &[u8],
) -> Result<Format, FormatError> {
    let is_of_csv = delimiter.is_some() || !has_header;
    let input = input.or(is_of_csv.then_some("csv"));
    if is_of_csv && input != Some("csv") {
        return Err(FormatError::NotCsv);
    }
    let is_tsv = name.to_ascii_lowercase().ends_with(b".tsv");
    Ok(match input {
        None | Some("auto") => Format::Auto,
        Some("parquet") => Format::Parquet,
        Some("arrow") => Format::Arrow,
        Some("jsonl") => Format::JsonLines,
        Some("csv") => match delimiter.unwrap_or(if is_tsv { "\t" } else { "," }).as_bytes() {
            &[delimiter] if delimiter.is_ascii() => Format::Csv { delimiter, has_header },
            other => return Err(FormatError::Delimiter(String::from_utf8_lossy(other).into_owned())),
        },
        Some(other) => return Err(FormatError::Input(other.to_owned())),
    })
}

/// Options that say nothing that a file can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// No such input is known.
    #[error("`{0}` is none of auto, parquet, arrow, csv, jsonl")]
    Input(String),
    /// What is between values is one character.
    #[error("`{0}` is not one ASCII character")]
    Delimiter(String),
    /// A delimiter, or the want of a header, was given for another file.
    #[error("a delimiter and a header are of CSV files alone")]
    NotCsv,
}
