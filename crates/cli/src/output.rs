//! Tables, numbers and JSON on standard output.

use crate::journal;
use crate::progress::above_bar;
use diskside::sandbox::activation::Tier;
use diskside::session::{Answered, ServerFailure};
use serde_json::{Value, json};
use std::fmt::{Display, Write as _};
use std::io::{IsTerminal, StdoutLock, Write};
use std::time::Duration;

/// Version of every JSON document that this command prints. It grows when a field changes its
/// meaning or goes away; new fields do not change it.
pub(crate) const JSON_SCHEMA: u32 = 1;

/// Standard output. That it cannot be written is an error like any other, and never a panic.
pub(crate) fn stdout() -> StdoutLock<'static> {
    std::io::stdout().lock()
}

/// Which server of several answered, in a document.
pub(crate) fn answered_document(answered: &Answered) -> Value {
    let failed = |failure: &ServerFailure| json!({ "server": failure.server, "why": failure.why });
    let failed: Vec<_> = answered.failed.iter().map(failed).collect();
    json!({ "url": answered.url, "server": answered.server, "failed": failed })
}

/// A line to standard error. When that is full or closed, nobody is left to hear of it.
pub(crate) fn say(text: impl Display) {
    say_at(journal::NOTICE, text);
}

/// `say`, with a level for the journal.
pub(crate) fn say_at(level: u8, text: impl Display) {
    let mut lines = format!("{}\n", Harmless(text));
    if journal::is_stderr() {
        lines = journal::with_level(level, &lines);
    }
    let _ = above_bar(|| std::io::stderr().lock().write_all(lines.as_bytes()));
}

/// A message that cannot steer a terminal, whatever names and texts of others are in it: control characters are
/// escaped, except ends of lines and tabs.
pub(crate) struct Harmless<T>(pub(crate) T);

impl<T: Display> Display for Harmless<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        struct Escaping<'a, 'f>(&'a mut std::fmt::Formatter<'f>);
        impl std::fmt::Write for Escaping<'_, '_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                for part in text.split_inclusive(|c: char| c.is_control()) {
                    let (plain, control) = match part.char_indices().next_back() {
                        Some((at, c)) if c.is_control() && !matches!(c, '\n' | '\t') => (&part[..at], Some(c)),
                        _ => (part, None),
                    };
                    self.0.write_str(plain)?;
                    if let Some(c) = control {
                        write!(self.0, "\\x{:02x}", u32::from(c))?;
                    }
                }
                Ok(())
            }
        }
        write!(Escaping(f), "{}", self.0)
    }
}

/// Whether escape sequences may go to standard error: to a terminal whose user has not set `NO_COLOR` (no-color.org).
pub(crate) fn stderr_has_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints a JSON document, with its `schema`.
pub(crate) fn print_json(mut document: Value) -> std::io::Result<()> {
    document["schema"] = json!(JSON_SCHEMA);
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, &document)?;
    writeln!(out)
}

/// A table whose columns line up: numbers right, text left.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    /// Of rows that are shown already.
    widths_min: Vec<usize>,
}

impl Table {
    /// A table with these column titles; a title that starts with `>` is of a column of numbers.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let right = titles.iter().map(|t| t.starts_with('>')).collect();
        let titles = titles.iter().map(|t| t.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![titles], right, widths_min: Vec::new() }
    }

    /// Further rows of numbers below a table whose columns are so wide.
    pub(crate) fn below(widths: &[usize], columns: usize) -> Self {
        Self { rows: Vec::new(), right: vec![true; columns], widths_min: widths.to_vec() }
    }

    /// Whether it has titles alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The widths of the columns.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let min = |c: usize| self.widths_min.get(c).copied().unwrap_or(0);
        (0..self.right.len()).map(|c| width(c).unwrap_or(0).max(min(c))).collect()
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        write!(out, "{self}")
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let widths = self.widths();
        for row in &self.rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = widths[c] - cell.chars().count();
                let (before, after) = if self.right[c] { (pad, 0) } else { (0, pad) };
                if c > 0 {
                    line.push_str("  ");
                }
                line.extend(std::iter::repeat_n(' ', before));
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', after));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// `1.5 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1.25 GB/s`: bytes a second, by powers of 1000; `-` where nothing was timed.
pub(crate) fn rate(n: u64, time: Duration) -> String {
    const UNITS: [&str; 5] = ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"];
    if n == 0 || time.is_zero() {
        return "-".into();
    }
    let (value, unit) = scaled(n as f64 / time.as_secs_f64(), &UNITS);
    format!("{} {unit}", digits(value))
}

/// `1.25 ms`.
pub(crate) fn duration(time: Duration) -> String {
    const UNITS: [&str; 3] = ["us", "ms", "s"];
    let (value, unit) = scaled(time.as_secs_f64() * 1e6, &UNITS);
    if time.is_zero() { "0 s".into() } else { format!("{} {unit}", digits(value)) }
}

/// A number in the unit in which it has up to three digits before the point.
fn scaled<'u>(mut value: f64, units: &[&'u str]) -> (f64, &'u str) {
    let mut at = 0;
    // What would be shown as 1000 is 1 of the next unit.
    while value >= 999.5 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    (value, units[at])
}

/// Three digits, as far as they tell something.
fn digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// `8MiB`, `64k`, `1G`, `4096` to bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err("a number of bytes is 0 or more; positions count from the beginning".into());
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        unit => return Err(format!("`{unit}` is no unit; use KiB, MiB, GiB, KB, MB or GB")),
    };
    let number: u64 = digits.trim().parse().map_err(|_| format!("`{text}` is no size, such as 8MiB"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large"))
}

/// The tier that `--tier` names.
pub(crate) fn parse_tier(text: &str) -> Result<Tier, String> {
    match text {
        "interp" => Ok(Tier::Interpreter),
        "cranelift" => Ok(Tier::Cranelift),
        "llvm" => Ok(Tier::Llvm),
        _ => Err("tiers are interp, cranelift and llvm".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few bytes a second were `0.00 GB/s`.
    #[test]
    fn rates_and_durations_have_units_that_fit() {
        let second = Duration::from_secs(1);
        for (bytes, expected) in [
            (0, "-"),
            (7, "7.00 B/s"),
            (999, "999 B/s"),
            (1_000, "1.00 KB/s"),
            (12_345, "12.3 KB/s"),
            (999_499, "999 KB/s"),
            (999_500, "1.00 MB/s"),
            (147_000_000, "147 MB/s"),
            (6_100_000_000, "6.10 GB/s"),
            (u64::MAX, "18446744 TB/s"),
        ] {
            assert_eq!(rate(bytes, second), expected);
        }
        assert_eq!(rate(1, Duration::ZERO), "-");
        for (nanoseconds, expected) in [
            (0, "0 s"),
            (150, "0.15 us"),
            (84_100, "84.1 us"),
            (1_250_000, "1.25 ms"),
            (999_400_000, "999 ms"),
            (999_600_000, "1.00 s"),
            (72_019_100_000, "72.0 s"),
            (5_000_000_000_000, "5000 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanoseconds)), expected);
        }
    }
}
