//! A table, a plot and a document of ratios.

use crate::functions::Function;
use diskside_bench_runner::compare::Cell;
use diskside_bench_runner::measure::geomean;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What is measured of each function, in this order.
pub const COLUMNS: [&str; 4] = ["native_scalar", "native_vector", "cranelift", "llvm"];
/// The ratios that are claimed: name, whose speed, to whose.
const RATIOS: [(&str, usize, usize); 2] = [("cranelift_vs_scalar", 2, 0), ("llvm_vs_vector", 3, 1)];

pub struct Report {
    size: usize,
    rounds: usize,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    about: &'static str,
    cells: Vec<Cell>,
}

impl Row {
    fn ratio(&self, index: usize) -> Option<f64> {
        let (_, of, to) = RATIOS[index];
        match (&self.cells[to], &self.cells[of]) {
            (Cell::Ns(to), Cell::Ns(of)) => Some(to / of),
            _ => None,
        }
    }

    /// The worse of its ratios: what rows are sorted by.
    fn worst(&self) -> f64 {
        (0..RATIOS.len()).filter_map(|index| self.ratio(index)).fold(f64::INFINITY, f64::min)
    }

    /// What keeps its cells from being numbers.
    fn troubles(&self, wrong: bool) -> Option<String> {
        self.cells.iter().find_map(|cell| match cell {
            Cell::Wrong(why) if wrong => Some(format!("{}: {why}", self.name)),
            Cell::Unable(why) if !wrong => Some(format!("{}: {why}", self.name)),
            _ => None,
        })
    }
}

impl Report {
    pub fn new(size: usize, rounds: usize) -> Self {
        Self { size, rounds, rows: Vec::new() }
    }

    /// Adds a function's cells, in the order of [`COLUMNS`].
    pub fn add(&mut self, function: &Function, cells: Vec<Cell>) {
        self.rows.push(Row { name: function.name(), about: function.about(), cells });
        self.rows.sort_by(|a, b| a.worst().total_cmp(&b.worst()));
    }

    /// Results that differ from native code's.
    pub fn faults(&self) -> Vec<String> {
        self.rows.iter().filter_map(|row| row.troubles(true)).collect()
    }

    /// Programs that do not compile or load.
    pub fn unable(&self) -> Vec<String> {
        self.rows.iter().filter_map(|row| row.troubles(false)).collect()
    }

    /// The function with the least ratio, and the mean of all.
    fn summary(&self, index: usize) -> (Option<(&Row, f64)>, Option<f64>) {
        let ratios: Vec<(&Row, f64)> = self.rows.iter().filter_map(|row| Some((row, row.ratio(index)?))).collect();
        let least = ratios.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
        (least, geomean(ratios.into_iter().map(|(_, ratio)| ratio)))
    }

    /// The table, worst first.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{} KiB, median of {} rounds; microseconds a call; ratios of speeds, worst first\n\n{:<18}",
            self.size >> 10,
            self.rounds,
            "function"
        );
        for title in COLUMNS.iter().chain(RATIOS.iter().map(|(name, ..)| name)) {
            let _ = write!(text, " {title:>19}");
        }
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "{:<18}", row.name);
            for cell in &row.cells {
                let shown = if let Cell::Ns(ns) = cell { format!("{:.1}", ns / 1e3) } else { cell.to_string() };
                let _ = write!(text, " {shown:>19}");
            }
            for index in 0..RATIOS.len() {
                let shown = row.ratio(index).map_or("-".into(), |ratio| format!("{ratio:.3}"));
                let _ = write!(text, " {shown:>19}");
            }
            text.push('\n');
        }
        text.push('\n');
        for (index, (name, ..)) in RATIOS.iter().enumerate() {
            if let (Some((row, least)), Some(mean)) = self.summary(index) {
                let _ =
                    writeln!(text, "geomean.{name} {mean:.3}   least.{name} {least:.3} ({}: {})", row.name, row.about);
            }
        }
        text
    }

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        let mut geomeans = serde_json::Map::new();
        let mut leasts = serde_json::Map::new();
        let mut worst = serde_json::Map::new();
        for (index, (name, ..)) in RATIOS.iter().enumerate() {
            let (least, mean) = self.summary(index);
            geomeans.insert((*name).to_owned(), json!(mean));
            leasts.insert((*name).to_owned(), json!(least.map(|(_, ratio)| ratio)));
            worst.insert((*name).to_owned(), json!(least.map(|(row, _)| row.name)));
        }
        let functions: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let mut value = json!({ "name": row.name, "about": row.about, "ns": {} });
                for (column, cell) in COLUMNS.iter().zip(&row.cells) {
                    value["ns"][column] = if let Cell::Ns(ns) = cell { json!(ns) } else { Value::Null };
                }
                for (index, (name, ..)) in RATIOS.iter().enumerate() {
                    value[name] = json!(row.ratio(index));
                }
                value
            })
            .collect();
        json!({
            "version": 1,
            "size_bytes": self.size,
            "rounds": self.rounds,
            "geomean": geomeans,
            "least": leasts,
            "worst": worst,
            "functions": functions,
            "faults": self.faults(),
            "unable": self.unable(),
        })
    }

    /// The ratios as bars, worst first; a line stands at native speed.
    pub fn to_svg(&self) -> String {
        const LEFT: f64 = 150.0;
        const UNIT: f64 = 300.0;
        const RATIO_MAX: f64 = 2.0;
        const COLOURS: [&str; 2] = ["#4477aa", "#ee6677"];
        let mut parts = String::new();
        for (index, ((name, ..), colour)) in RATIOS.iter().zip(COLOURS).enumerate() {
            let x = 10 + 160 * index;
            let _ = write!(parts, r#"<rect x="{x}" y="10" width="10" height="10" fill="{colour}"/>"#);
            let _ = write!(parts, r#"<text x="{}" y="19">{name}</text>"#, x + 14);
        }
        let mut y = 36;
        for row in &self.rows {
            let _ = write!(parts, r#"<text x="10" y="{}">{}</text>"#, y + 14, row.name);
            for (index, colour) in COLOURS.iter().enumerate() {
                let Some(ratio) = row.ratio(index) else { continue };
                let width = UNIT * ratio.min(RATIO_MAX);
                let top = y + 9 * index;
                let _ = write!(parts, r#"<rect x="{LEFT}" y="{top}" width="{width:.1}" height="8" fill="{colour}"/>"#);
                let _ = write!(parts, r#"<text x="{:.1}" y="{}">{ratio:.2}</text>"#, LEFT + width + 4.0, top + 8);
            }
            y += 24;
        }
        let native = LEFT + UNIT;
        let _ = write!(parts, r##"<line x1="{native}" y1="30" x2="{native}" y2="{y}" stroke="#222222"/>"##);
        let width = LEFT + UNIT * RATIO_MAX + 50.0;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{}"><style>text{{font:9px sans-serif}}</style><rect width="100%" height="100%" fill="white"/>{parts}</svg>"#,
            y + 10
        ) + "\n"
    }
}
