//! Tables for people, JSON for programs.

use crate::calls::Row;
use crate::workload::{SCANS, SCANS_IN_MEANS, Workload};
use diskside_bench_runner::Engine;
use diskside_bench_runner::compare::Cell;
use diskside_bench_runner::measure::{Plan, geomean};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Everything that was measured.
pub struct Report {
    engines: Vec<(&'static str, bool)>,
    plan: Plan,
    /// By size in bytes, in the order of the workloads.
    scans: BTreeMap<usize, Vec<(&'static Workload, Vec<Cell>)>>,
    /// Nanoseconds a call.
    pub calls: Vec<Row>,
    /// Nanoseconds to compile.
    pub compile: Vec<Row>,
    /// Results that differed from native code's.
    pub faults: Vec<String>,
}

/// The ratios that claims are made of: name, whose speed, to whose.
const RATIOS: [(&str, &str, &str); 4] = [
    ("cranelift_vs_scalar", "diskside cranelift", "native scalar"),
    ("cranelift_vs_wasmtime", "diskside cranelift", "wasmtime (epoch)"),
    ("llvm_vs_vector", "diskside llvm", "native vector"),
    ("llvm_vs_rbpf", "diskside llvm", "rbpf JIT"),
];

impl Report {
    /// An empty one.
    pub fn new(engines: &[Engine], plan: &Plan) -> Self {
        Self {
            engines: engines.iter().map(|e| (e.name, e.safe)).collect(),
            plan: *plan,
            scans: BTreeMap::new(),
            calls: Vec::new(),
            compile: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Adds a workload's cells, in the order of the engines.
    pub fn scan(&mut self, size: usize, workload: &'static Workload, cells: Vec<Cell>) {
        for ((engine, _), cell) in self.engines.iter().zip(&cells) {
            if let Cell::Wrong(why) = cell {
                self.faults.push(format!("{}, {} MiB, {engine}: {why}", workload.name, size >> 20));
            }
        }
        self.scans.entry(size).or_default().push((workload, cells));
    }

    /// Tables of speeds and ratios.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (size, rows) in &self.scans {
            let names = rows.iter().map(|(w, _)| w.name);
            let _ = writeln!(
                text,
                "\n{} MiB: GB/s (ratio to native scalar), median of {} rounds",
                size >> 20,
                self.plan.rounds
            );
            let header = [""].into_iter().chain(names).chain(["geomean", "safe"]);
            let mut lines = vec![header.map(str::to_owned).collect::<Vec<_>>()];
            for (index, (engine, safe)) in self.engines.iter().enumerate() {
                let mut line = vec![(*engine).to_owned()];
                line.extend(rows.iter().map(|(_, cells)| match &cells[index] {
                    Cell::Ns(ns) => match ratio(cells, 0, index) {
                        Some(ratio) => format!("{:.2} ({ratio:.2})", *size as f64 / ns),
                        None => format!("{:.2}", *size as f64 / ns),
                    },
                    other => other.to_string(),
                }));
                let mean = self.ratio_mean(*size, "native scalar", engine);
                line.push(mean.map_or("-".into(), |mean| format!("{mean:.2}")));
                line.push(if *safe { "yes" } else { "no" }.into());
                lines.push(line);
            }
            table(&mut text, &lines);
            for (name, of, to) in RATIOS {
                if let Some(mean) = self.ratio_mean(*size, to, of) {
                    let _ = writeln!(text, "geomean.{name} {mean:.3}");
                }
            }
        }
        if let Some(rows) = self.scans.values().next() {
            text.push('\n');
            for (workload, _) in rows {
                let _ = writeln!(text, "{}: {}", workload.name, workload.about);
            }
        }
        self.rows(&mut text, "nanoseconds a call", &self.calls, 1.0, 1);
        self.rows(&mut text, "milliseconds from object to running code", &self.compile, 1e6, 3);
        self.reasons(&mut text);
        text
    }

    fn rows(&self, text: &mut String, title: &str, rows: &[Row], unit: f64, digits: usize) {
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n{title}");
        let header = [""].into_iter().chain(rows.iter().map(|(name, _)| *name));
        let mut lines = vec![header.map(str::to_owned).collect::<Vec<_>>()];
        for (index, (engine, _)) in self.engines.iter().enumerate() {
            let mut line = vec![(*engine).to_owned()];
            line.extend(rows.iter().map(|(_, cells)| match &cells[index] {
                // Native code is there already.
                Cell::Ns(0.0) => "-".into(),
                Cell::Ns(ns) => format!("{:.digits$}", ns / unit),
                other => other.to_string(),
            }));
            lines.push(line);
        }
        table(text, &lines);
    }

    /// Why cells hold no number.
    fn reasons(&self, text: &mut String) {
        for (size, rows) in &self.scans {
            for (workload, cells) in rows {
                for ((engine, _), cell) in self.engines.iter().zip(cells) {
                    if let Cell::Unable(why) | Cell::Wrong(why) = cell {
                        let _ = writeln!(text, "{} ({} MiB), {engine}: {why}", workload.name, size >> 20);
                    }
                }
            }
        }
    }

    /// Geometric mean of one engine's speed relative to another's, where both have a number.
    fn ratio_mean(&self, size: usize, to: &str, of: &str) -> Option<f64> {
        let (to, of) = (self.index(to)?, self.index(of)?);
        let rows = self.scans.get(&size)?.iter();
        let counted = rows.filter(|(w, _)| SCANS[..SCANS_IN_MEANS].iter().any(|s| s.name == w.name));
        geomean(counted.filter_map(|(_, cells)| ratio(cells, to, of)))
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.engines.iter().position(|(engine, _)| *engine == name)
    }

    /// One document. Speeds are in GB/s, times in nanoseconds; `null` where there is no number.
    pub fn to_json(&self) -> Value {
        let scans: serde_json::Map<_, _> = self
            .scans
            .iter()
            .map(|(size, rows)| {
                let rows: serde_json::Map<_, _> = rows
                    .iter()
                    .map(|(workload, cells)| {
                        let cells = self.named(cells, |ns| *size as f64 / ns);
                        (workload.name.to_owned(), cells)
                    })
                    .collect();
                (size.to_string(), Value::Object(rows))
            })
            .collect();
        let means: serde_json::Map<_, _> =
            self.scans.keys().map(|size| (size.to_string(), self.means(*size))).collect();
        let least = self.scans.keys().next().map_or(Value::Null, |size| self.means(*size));
        let named_rows = |rows: &[Row]| -> Value {
            rows.iter().map(|(name, cells)| ((*name).to_owned(), self.named(cells, |ns| ns))).collect()
        };
        json!({
            "version": 1,
            "machine": machine(),
            "rounds": self.plan.rounds,
            "scans_gb_per_s": scans,
            "calls_ns": named_rows(&self.calls),
            "compile_ns": named_rows(&self.compile),
            // The smallest size fits the cache: that measures the code.
            "geomean": least,
            "geomean_by_size": means,
            "faults": self.faults,
        })
    }

    fn means(&self, size: usize) -> Value {
        RATIOS.iter().map(|(name, of, to)| ((*name).to_owned(), json!(self.ratio_mean(size, to, of)))).collect()
    }

    fn named(&self, cells: &[Cell], unit: impl Fn(f64) -> f64) -> Value {
        self.engines
            .iter()
            .zip(cells)
            .map(|((engine, _), cell)| {
                let value = match cell {
                    Cell::Ns(ns) => json!(unit(*ns)),
                    Cell::Unable(_) | Cell::Wrong(_) => Value::Null,
                };
                ((*engine).to_owned(), value)
            })
            .collect()
    }
}

/// How much faster `of` is than `to`.
fn ratio(cells: &[Cell], to: usize, of: usize) -> Option<f64> {
    match (&cells[to], &cells[of]) {
        (Cell::Ns(to), Cell::Ns(of)) => Some(to / of),
        _ => None,
    }
}

/// Appends rows as columns; all but the first are right-aligned.
fn table(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 { write!(text, "{cell:<width$}") } else { write!(text, "  {cell:>width$}") };
        }
        text.push('\n');
    }
}

/// Model name and core count, as the kernel says.
fn machine() -> Value {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map(|l| l.trim_start_matches([' ', '\t', ':']).to_owned());
    json!({
        "model": model,
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
    })
}
