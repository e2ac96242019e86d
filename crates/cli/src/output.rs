//! Tables, numbers and JSON on standard output.

use diskside::sandbox::activation::Tier;
use serde_json::{Value, json};
use std::io::Write;

/// Version of every JSON document that this command prints. It grows when a field changes its
/// meaning or goes away; new fields do not change it.
pub(crate) const JSON_SCHEMA: u32 = 1;

/// Prints a JSON document, `schema` first.
pub(crate) fn print_json(mut document: Value) -> std::io::Result<()> {
    document["schema"] = json!(JSON_SCHEMA);
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &document)?;
    writeln!(out)
}

/// A table whose columns line up: numbers right, text left.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with these column titles; a title that starts with `>` is of a column of numbers.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let right = titles.iter().map(|t| t.starts_with('>')).collect();
        let titles = titles.iter().map(|t| t.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![titles], right }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let widths: Vec<usize> = (0..self.right.len()).map(|c| width(c).unwrap_or(0)).collect();
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

/// Gigabytes (10^9) a second.
pub(crate) fn rate(n: u64, time: std::time::Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { format!("{:.2} GB/s", n as f64 / seconds / 1e9) } else { "-".into() }
}

/// `8MiB`, `64k`, `1G`, `4096` to bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
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
