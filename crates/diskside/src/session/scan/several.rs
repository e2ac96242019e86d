//! Scans of several files: each is scanned as one alone is, wherever that is best, some at a time. The program `diskside-scan` asks
//! for these scans and puts their results together.

use super::super::Session;
use super::super::error::SessionError;
use super::find::{ScanFiles, path};
use super::running::{AT_ONCE, Running, Sources};
use super::{Counted, ScanOptions, ScanPlace, Scanned, program_of, scan_error};
use diskside_scan::{Compression, Format, OneFile, Partitions, Plan, Several};
use diskside_trace::{Side as SpanSide, Span};
use std::io::Write;
use std::time::Instant;

impl Session {
    /// Scans files and writes the result for all of their rows to `out` as an Arrow stream, in the order of the files.
    ///
    /// Columns are matched by name; those that a file lacks are NULL in its rows. Directories that are called `key=value` are
    /// columns, too, and conditions on them leave out files before they are opened. For each file [`ScanOptions::place`] says where
    /// it is scanned, as for one alone ([`File::scan`](crate::session::File::scan)).
    ///
    /// # Errors
    /// See [`File::scan`](crate::session::File::scan); a column has two types, or is in a file and in its path.
    pub fn scan_files(
        &self,
        files: &ScanFiles,
        plan: &Plan,
        options: &ScanOptions,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        if let Some(location) = files.plain() {
            return self.open_late(location)?.scan(plan, options, out);
        }
        if options.place == ScanPlace::Both {
            let why =
                "each of several files is scanned on one side: both are for one file that is named by its path".into();
            return Err(SessionError::Input { name: files.name.clone(), why });
        }
        let mut span = Span::begin("scan of several files", SpanSide::Internal, options.trace);
        let threads = options.threads.div_ceil(AT_ONCE);
        let options = ScanOptions { threads, trace: span.context_or(options.trace), ..options.clone() };
        let scanned = self.scan_all(files, plan, options, out);
        scanned.inspect_err(|error| span.fail(error))
    }

    fn scan_all(
        &self,
        files: &ScanFiles,
        plan: &Plan,
        options: ScanOptions,
        out: &mut dyn Write,
    ) -> Result<Scanned, SessionError> {
        let started = Instant::now();
        if plan.format == Format::Auto {
            files.refuse_two_formats()?;
        }
        let program = program_of(&options, &files.name)?;
        let partitions = partitions(files, plan, options.partitions)?;
        let may_fulfil = |file: &usize| plan.filter.as_ref().is_none_or(|filter| partitions.may_fulfil(*file, filter));
        let (scanned, pruned): (Vec<usize>, Vec<usize>) = (0..files.files.len()).partition(may_fulfil);
        let order: Vec<usize> = scanned.iter().chain(&pruned).copied().collect();
        let is_of_path = |name: &String| partitions.columns.iter().any(|(column, _)| column == name);
        let types = plan.types.iter().filter(|(name, _)| !is_of_path(name)).cloned().collect();
        let of_all = Plan { types, compression: Compression::None, ..plan.clone() };
        let several = Several {
            files: order.len() as u32,
            scanned: scanned.len() as u32,
            are_parts: false,
            at_once: AT_ONCE,
            memory_len: options.memory_len,
            name: files.name.clone(),
            columns: partitions.columns.clone(),
            of_table: files.table.as_ref().map(|table| table.columns.clone()),
            plan: of_all.to_bytes(),
        };
        let told = order.iter().map(|file| {
            let (name, values) = (files.files[*file].to_string(), partitions.values[*file].clone());
            OneFile { name, values }
        });
        let scanning = program.start_several(&several, told).map_err(|error| scan_error(&files.name, error))?;
        let locations = order.iter().map(|file| files.files[*file].clone()).collect();
        let mut running = Running::new(Sources::Files(self.clone(), locations), &options, plan.compression);
        let mut counted = Counted { out, count: 0 };
        running.listen(&files.name, scanning, &mut counted)?;
        let mut all = running.end();
        all.files.found = order.len() as u64;
        all.files.pruned = pruned.len() as u64;
        Ok(Scanned { result_bytes: counted.count, total: started.elapsed(), ..all })
    }
}

fn partitions(files: &ScanFiles, plan: &Plan, are_wanted: bool) -> Result<Partitions, SessionError> {
    if let Some(table) = &files.table {
        return Ok(table.partitions.clone());
    }
    if !are_wanted {
        return Ok(Partitions { columns: Vec::new(), values: vec![Vec::new(); files.files.len()] });
    }
    let named: Vec<_> = files.files.iter().map(|file| (file.to_string(), path(file))).collect();
    Partitions::of(&named, &plan.types)
        .map_err(|error| SessionError::Input { name: files.name.clone(), why: error.to_string() })
}
