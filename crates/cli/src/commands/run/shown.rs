//! A result on standard output, as it comes: rows of fields where the function describes them, text as it is, else
//! hexadecimal on a terminal. Little of it is held, however long it is.

use super::json;
use crate::error::Failure;
use crate::output::{self, Table};
use diskside::Function;
use diskside::result::{Value, columns, row_len, rows};
use diskside::sandbox::image::ArgSchema;
use std::io::{IsTerminal, Write};

/// The bytes that are held before it is clear how a result is shown: all of a short one, and the rows of a table that
/// determine its columns' widths.
const HELD_LEN: usize = 64 << 10;

/// JSON has a result that is text or bytes whole.
const JSON_LEN_MAX: usize = 64 << 20;

/// What a function's output is written to.
pub(crate) struct Shown<'f> {
    /// The schema of the rows, if the result is made of rows.
    schema: Option<&'f ArgSchema>,
    json: bool,
    terminal: bool,
    /// What is not shown yet.
    held: Vec<u8>,
    /// Bytes that are shown.
    shown: u64,
    form: Form,
    failure: Option<Failure>,
}

enum Form {
    /// Nothing is shown yet.
    Open,
    /// Rows under their titles, with the widths of the columns.
    Table(Vec<usize>),
    /// Objects of a JSON list that is open.
    JsonRows,
    /// Bytes as they are.
    Plain,
    Hexadecimal,
}

impl<'f> Shown<'f> {
    pub(crate) fn new(function: &'f Function, json: bool) -> Self {
        let schema = function.main().entry().result.as_ref().filter(|schema| row_len(schema).is_some());
        let terminal = std::io::stdout().is_terminal();
        Self { schema, json, terminal, held: Vec::new(), shown: 0, form: Form::Open, failure: None }
    }

    /// Why the result could not be shown, if that is why the run failed.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Shows what is held at the end of a run that went well, and not as JSON.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let mut out = output::stdout();
        match (&self.form, self.schema.and_then(|schema| Some((schema, rows(schema, &self.held)?)))) {
            (Form::Table(_) | Form::JsonRows, _) => self.end_rows(),
            (Form::Open, Some((schema, rows))) if rows.len() == 1 => {
                let width = columns(schema).map(|f| f.name.len()).max().unwrap_or(0);
                for (field, value) in columns(schema).zip(&rows[0]) {
                    writeln!(out, "{:width$}  {value}", field.name)?;
                }
                Ok(())
            }
            (Form::Open, Some((schema, rows))) => Ok(table(schema, &rows).write(&mut out)?),
            _ => {
                drop(out);
                self.show_bytes(true)?;
                Ok(output::stdout().flush()?)
            }
        }
    }

    /// Shows what is held of a run that failed: what stood before the first piece that did. A JSON document ends there if it has
    /// begun, and does not begin.
    pub(crate) fn break_off(mut self) -> Result<(), Failure> {
        match (&self.form, self.schema) {
            (Form::JsonRows, _) => self.show_rows(),
            _ if self.json || self.held.is_empty() => Ok(()),
            (_, Some(_)) => self.show_rows(),
            (_, None) => self.show_bytes(true),
        }
    }

    /// Adds what is held, or ends what is begun, in the JSON document of a run that went well.
    pub(crate) fn finish_json(mut self, mut document: serde_json::Value) -> Result<(), Failure> {
        if let Form::JsonRows = self.form {
            self.end_rows()?;
            let mut out = output::stdout();
            write!(out, "\n  ],\n")?;
            document["schema"] = output::JSON_SCHEMA.into();
            let rest = serde_json::to_string_pretty(&document).map_err(std::io::Error::from)?;
            return Ok(writeln!(out, "{}", rest.trim_start_matches(['{', '\n']))?);
        }
        let described = self.schema.and_then(|schema| Some((schema, rows(schema, &self.held)?)));
        if let Some((schema, rows)) = described {
            document["rows"] = rows.iter().map(|row| json::row(schema, row)).collect();
        } else if let Some(text) = text_of(&self.held) {
            document["text"] = text.into();
        } else {
            document["hex"] = self.held.iter().map(|b| format!("{b:02x}")).collect::<String>().into();
        }
        Ok(output::print_json(document)?)
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        if let Some(len) = self.schema.and_then(row_len) {
            // Always so many at a time: the widths of columns do not depend on how the result comes.
            let batch = (HELD_LEN / len).max(2) * len;
            while let Some((now, later)) = bytes.split_at_checked(batch - self.held.len()) {
                self.held.extend_from_slice(now);
                self.show_rows()?;
                bytes = later;
            }
            self.held.extend_from_slice(bytes);
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        match self.json {
            true if self.held.len() > JSON_LEN_MAX => Err(Failure::Function(format!(
                "the result is longer than {} MiB, the most that --json has of text or bytes: leave --json out, or write \
                 the result to a file (--out FILE)",
                JSON_LEN_MAX >> 20
            ))),
            true => Ok(()),
            false => self.show_bytes(false),
        }
    }

    /// Shows the whole rows that are held.
    fn show_rows(&mut self) -> Result<(), Failure> {
        let Some(schema) = self.schema else { return Ok(()) };
        let len = row_len(schema).unwrap_or(1);
        let whole = self.held.len() / len * len;
        if whole == 0 {
            return Ok(());
        }
        let rows = rows(schema, &self.held[..whole]).unwrap_or_default();
        let mut out = output::stdout();
        match &self.form {
            Form::JsonRows => json::write_rows(&mut out, schema, &rows, self.shown == 0)?,
            Form::Table(widths) => table_body(schema, &rows, widths).write(&mut out)?,
            _ if self.json => {
                write!(out, "{{\n  \"rows\": [\n")?;
                json::write_rows(&mut out, schema, &rows, true)?;
                self.form = Form::JsonRows;
            }
            _ => {
                let table = table(schema, &rows);
                table.write(&mut out)?;
                self.form = Form::Table(table.widths());
            }
        }
        out.flush()?;
        self.shown += whole as u64;
        self.held.drain(..whole);
        Ok(())
    }

    /// A result that began with rows ends with one.
    fn end_rows(&mut self) -> Result<(), Failure> {
        self.show_rows()?;
        let (Some(schema), rest) = (self.schema, self.held.len()) else { return Ok(()) };
        if rest == 0 {
            return Ok(());
        }
        let (name, len) = (&schema.name, schema.len_bytes);
        Err(Failure::Function(format!("the result ends with {rest} bytes that are no row: {name} has {len} bytes")))
    }

    /// Shows bytes as they are, except on a terminal, which gets only text and hexadecimal.
    fn show_bytes(&mut self, is_end: bool) -> Result<(), Failure> {
        let mut out = output::stdout();
        if let (Form::Open | Form::Plain, true) = (&self.form, self.terminal) {
            // A character may be cut by the end of a piece.
            let whole = match std::str::from_utf8(&self.held) {
                Err(error) if error.error_len().is_none() && !is_end => error.valid_up_to(),
                _ => self.held.len(),
            };
            let is_text = text_of(&self.held[..whole]).is_some();
            self.form = if is_text { Form::Plain } else { Form::Hexadecimal };
            if is_text {
                out.write_all(&self.held[..whole])?;
                self.shown += whole as u64;
                self.held.drain(..whole);
            }
        }
        match self.form {
            Form::Hexadecimal => {
                let whole = if is_end { self.held.len() } else { self.held.len() / 16 * 16 };
                hex_dump(&mut out, self.shown, &self.held[..whole])?;
                self.shown += whole as u64;
                self.held.drain(..whole);
            }
            _ if self.terminal => {}
            _ => {
                out.write_all(&self.held)?;
                self.held.clear();
            }
        }
        Ok(out.flush()?)
    }
}

impl Write for Shown<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.add(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(failure) => {
                self.failure = Some(failure);
                Err(std::io::Error::other("the result cannot be shown"))
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn table(schema: &ArgSchema, rows: &[Vec<Value>]) -> Table {
    let titles: Vec<String> = columns(schema).map(|f| format!(">{}", f.name)).collect();
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    rows.iter().for_each(|row| table.row(row.iter().map(Value::to_string).collect()));
    table
}

/// More rows of a table whose beginning is shown.
fn table_body(schema: &ArgSchema, rows: &[Vec<Value>], widths: &[usize]) -> Table {
    let mut table = Table::below(widths, columns(schema).count());
    rows.iter().for_each(|row| table.row(row.iter().map(Value::to_string).collect()));
    table
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    let is_shown = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    std::str::from_utf8(bytes).ok().filter(|text| text.chars().all(is_shown))
}

/// Lines of sixteen bytes; the first of them is at this offset.
fn hex_dump(out: &mut impl Write, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    for (i, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
        let text: String = line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        writeln!(out, "{:08x}  {:47}  {text}", offset + i as u64 * 16, hex.join(" "))?;
    }
    Ok(())
}
