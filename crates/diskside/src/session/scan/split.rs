//! One file on both sides at once: its first row groups are scanned at the server, the others here, and one process puts the two
//! results together.
//!
//! It is for results that are mostly short whatever the file's length: aggregates, and first rows in an order. Of others the rows of
//! the second part would wait for those of the first one. A function that folds its outputs is given them in order, by one side.

use super::super::error::SessionError;
use super::super::file::File;
use super::running::{Running, Shared, Sources, lock};
use super::share::Cut;
use super::{Among, Counted, Scan, ScanOptions, ScanPlace, Scanned, program_of, scan_error};
use diskside_dispatch::Side;
use diskside_scan::{Compression, OneFile, Part, Plan, Report, Several};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The row groups of a scan on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BothCounts {
    /// Those of the part that was scanned here.
    pub here: u64,
    /// Those of the part that was scanned at the server.
    pub at_server: u64,
}

/// What one side did of a scan on both.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartDone {
    pub(super) report: Report,
    pub(super) result_bytes: u64,
    /// From the beginning of the scan to the end of this part.
    pub(super) total: Duration,
}

/// The parts of a file that is scanned on both sides.
pub(super) struct BothSides {
    file: File,
    cut: Cut,
    began: Instant,
    done: Arc<Mutex<[Option<PartDone>; 2]>>,
}

impl Scan<'_> {
    /// Scans a part on each side.
    pub(super) fn on_both_sides(&self, cut: Cut, out: &mut Counted<'_>) -> Result<Scanned, SessionError> {
        let (program, began) = (program_of(self.options, self.name())?, Instant::now());
        let several = Several {
            files: 2,
            scanned: 2,
            are_parts: true,
            at_once: 2,
            memory_len: self.options.memory_len,
            name: self.name().to_owned(),
            columns: Vec::new(),
            of_table: None,
            plan: Plan { compression: Compression::None, ..self.plan.clone() }.to_bytes(),
        };
        let part = OneFile { name: self.name().to_owned(), values: Vec::new() };
        let scanning = program
            .start_several(&several, std::iter::repeat_n(part, 2))
            .map_err(|error| scan_error(self.name(), error))?;
        let done = Arc::new(Mutex::new([None; 2]));
        // A copy at another server is another file.
        let file = File { inner: Arc::clone(&self.file.inner), copied: None };
        let both = BothSides { file, cut, began, done: Arc::clone(&done) };
        let mut running = Running::new(Sources::BothSides(both), self.options, self.plan.compression);
        running.listen(self.name(), scanning, out)?;
        let mut all = running.end();
        (all.result_bytes, all.files.found) = (out.count, 1);
        (all.total, all.compression) = (began.elapsed(), self.plan.compression);
        if let [Some(here), Some(at_server)] = *done.lock().unwrap_or_else(PoisonError::into_inner) {
            let row_groups = at_server.report.row_groups;
            let of_server = cut.row_groups(row_groups);
            let both = BothCounts { here: row_groups - of_server, at_server: of_server };
            all.both = Some(both);
            // Both reports count all of the file.
            (all.report.row_groups, all.report.file_len) = (row_groups, at_server.report.file_len);
            all.report.needed_len_of_all = all.report.needed_len;
            self.note_both([(here, both.here), (at_server, both.at_server)]);
        }
        Ok(all)
    }
}

impl BothSides {
    /// Scans the part of a number: the first is the server's.
    pub(super) fn scan(
        &self,
        number: usize,
        plan: &Plan,
        options: &ScanOptions,
        shared: &Mutex<Shared>,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        let side = if number == 0 { Side::Device } else { Side::Host };
        let is_columns = plan.limit == Some(0);
        let of_columns = lock(shared).of_columns;
        let part = if is_columns { Part::default() } else { self.part(side, of_columns.row_groups)? };
        let place = if side == Side::Device { ScanPlace::Device } else { ScanPlace::Host };
        let (plan, options) = (Plan { part, ..plan.clone() }, ScanOptions { place, ..options.clone() });
        let scan = || self.file.scan_once(&plan, &options, Among::Others, &mut None, out);
        let scanned = self.file.scan_version(0, &plan, shared, scan)?;
        if !is_columns {
            // Not all servers know versions.
            let looks = |of: &Report| (of.row_groups, of.file_len);
            if looks(&scanned.report) != looks(&of_columns) {
                return Err(SessionError::Changed(self.file.inner.name.clone()));
            }
            let (report, result_bytes, total) = (scanned.report, scanned.result_bytes, self.began.elapsed());
            self.done.lock().unwrap_or_else(PoisonError::into_inner)[side as usize] =
                Some(PartDone { report, result_bytes, total });
        }
        Ok(scanned)
    }

    fn part(&self, side: Side, row_groups: u64) -> Result<Part, SessionError> {
        let (Ok(all), true) = (u32::try_from(row_groups), row_groups >= 2) else {
            let why = format!("it has {row_groups} row groups, and each side is to have some");
            return Err(SessionError::Input { name: self.file.inner.name.clone(), why });
        };
        let of_server = u32::try_from(self.cut.row_groups(row_groups)).unwrap_or(all);
        Ok(match side {
            Side::Device => Part { first: 0, count: of_server },
            Side::Host => Part { first: of_server, count: all - of_server },
        })
    }
}
