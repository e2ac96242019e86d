//! Scans under way: what they give is read as it comes.

use crate::error::Failure;
use crate::function::Function;
use crate::here::Here;
use crate::request::SLICE;
use crate::session::location;
use diskside::sandbox::machine::CancelToken;
use diskside::scan::{
    ColumnFunction, Compression, Format, FormatError, Gives, Part, Plan, TextError, parse_aggregates, parse_columns,
    parse_filter, parse_format, parse_order, parse_types,
};
use diskside::session::{ScanFiles, ScanOptions, Scanned, Session, SessionError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pieces of a result that wait for Python.
const PIECES: usize = 4;

/// A scan under way. Its result is an Arrow IPC stream, in pieces that mean nothing.
#[pyclass(frozen)]
pub(crate) struct Scan {
    cancel: Here<CancelToken>,
    state: Here<Mutex<State>>,
}

struct State {
    /// `None`: nothing more comes.
    incoming: Option<Receiver<Piece>>,
    scanned: Option<Scanned>,
}

enum Piece {
    Bytes(Vec<u8>),
    End(Result<Box<Scanned>, Failure>),
}

/// The outputs of a table, as Python gives them: texts as people write them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Wanted {
    columns: Vec<String>,
    #[pyo3(item("where"))]
    filter: Option<String>,
    aggregate: Option<String>,
    by: Vec<String>,
    order: Option<String>,
    limit: Option<u64>,
    input: Option<String>,
    delimiter: Option<String>,
    header: bool,
    types: Option<String>,
    row_groups: Option<(u32, u32)>,
    /// A function over columns, and its arguments as it sees them.
    function: Option<(Py<Function>, Vec<u8>)>,
}

/// The files of a table and what its metadata says of them, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Table {
    name: String,
    /// Each with a text for each of `partitions`; `None` is NULL.
    files: Vec<(PathBuf, Vec<Option<String>>)>,
    /// Names and types, as the option `types` has them.
    partitions: Option<String>,
    columns: Option<String>,
}

impl Table {
    pub(crate) fn files(self) -> Result<ScanFiles, Failure> {
        let files = self.files.into_iter().map(|(file, values)| Ok((location(&file)?, values)));
        let files = files.collect::<Result<Vec<_>, Failure>>()?;
        let types = |option, text: Option<String>| parsed(option, text.as_deref(), parse_types);
        let partitions = types("partitions", self.partitions)?.unwrap_or_default();
        let columns = types("columns", self.columns)?.unwrap_or_default();
        Ok(Session::scan_files_of_table(self.name, files, partitions, columns)?)
    }
}

impl Wanted {
    fn format(&self, name: &[u8]) -> Result<Format, Failure> {
        let format = parse_format(self.input.as_deref(), self.delimiter.as_deref(), self.header, name);
        format.map_err(|error| match error {
            FormatError::Input(_) => wrong("input", &error),
            FormatError::Delimiter(_) => wrong("delimiter", &error),
            FormatError::NotCsv => wrong("delimiter, header", &"they are of CSV files alone"),
        })
    }

    fn column_function(&self) -> Result<Option<ColumnFunction>, Failure> {
        let Some((function, args)) = &self.function else { return Ok(None) };
        let function = function.get().over_columns(args.clone())?;
        let rows_options = [
            ("columns", !self.columns.is_empty()),
            ("aggregate", self.aggregate.is_some()),
            ("by", !self.by.is_empty()),
            ("order", self.order.is_some()),
            ("limit", self.limit.is_some()),
        ];
        match rows_options.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) if function.gives != Gives::Rows => {
                Err(wrong(option, &format!("it is about rows, and {} gives a result of its own", function.name)))
            }
            _ => Ok(Some(function)),
        }
    }

    /// The plan that it means. What is wrong is said of the option by its name in Python.
    fn plan(&self) -> Result<Plan, Failure> {
        let plan = Plan {
            format: self.format(b"")?,
            types: parsed("types", self.types.as_deref(), parse_types)?.unwrap_or_default(),
            part: self.row_groups.map_or_else(Part::default, |(first, count)| Part { first, count }),
            columns: self.columns.clone(),
            filter: parsed("where", self.filter.as_deref(), parse_filter)?,
            aggregates: parsed("aggregate", self.aggregate.as_deref(), parse_aggregates)?.unwrap_or_default(),
            by: self.by.clone(),
            order: parsed("order", self.order.as_deref(), parse_order)?.unwrap_or_default(),
            limit: self.limit,
            function: self.column_function()?.map(Box::new),
            compression: Compression::Lz4,
        };
        // What a server would say of it is said before one is asked.
        Plan::from_bytes(&plan.to_bytes()).map_err(|error| wrong("this scan is not possible", &error.what))
    }
}

fn parsed<T>(
    option: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, TextError>,
) -> Result<Option<T>, Failure> {
    text.map(parse).transpose().map_err(|error| wrong(option, &error))
}

fn wrong(option: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{option}: {why}"))
}

/// Names of columns that one text has, with commas between them.
#[pyfunction]
pub(crate) fn scan_columns(text: &str) -> PyResult<Vec<String>> {
    Ok(parse_columns(text).map_err(Failure::usage)?)
}

impl Scan {
    /// Begins a scan of files that are found first.
    pub(crate) fn begin(
        session: Session,
        find: impl FnOnce(&Session) -> Result<ScanFiles, SessionError> + Send + 'static,
        wanted: Wanted,
        mut options: ScanOptions,
    ) -> Result<Self, Failure> {
        let (mut plan, cancel) = (wanted.plan()?, CancelToken::new());
        options.cancel = Some(cancel.clone());
        let (sender, incoming) = sync_channel(PIECES);
        let work = move || {
            let scan = || -> Result<Scanned, Failure> {
                let files = find(&session)?;
                plan.format = wanted.format(files.first_path())?;
                if wanted.row_groups.is_some() && files.plain().is_none() {
                    return Err(Failure::usage("row_groups: those of one file that is named by its path"));
                }
                Ok(session.scan_files(&files, &plan, &options, &mut Pieces(&sender))?)
            };
            // A receiver that is gone needs to hear nothing.
            drop(sender.send(Piece::End(scan().map(Box::new))));
        };
        std::thread::Builder::new().name("diskside-scan".into()).spawn(work).map_err(Failure::environment)?;
        Ok(Self {
            cancel: Here::new(cancel),
            state: Here::new(Mutex::new(State { incoming: Some(incoming), scanned: None })),
        })
    }

    /// Of another process there is nothing to stop here.
    fn stop(&self) {
        if let Ok(cancel) = self.cancel.get() {
            cancel.cancel();
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Failure> {
        Ok(self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Hands on what a scan writes.
struct Pieces<'a>(&'a SyncSender<Piece>);

impl io::Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(Piece::Bytes(bytes.to_vec())).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[pymethods]
impl Scan {
    /// The next piece of the result; `None` at its end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        loop {
            let piece = py.detach(|| {
                let mut state = match self.lock() {
                    Ok(state) => state,
                    Err(failure) => return Some(Err(failure)),
                };
                let State { incoming: Some(incoming), .. } = &*state else { return Some(Ok(None)) };
                match incoming.recv_timeout(SLICE) {
                    Ok(Piece::Bytes(bytes)) => Some(Ok(Some(bytes))),
                    Ok(Piece::End(ended)) => {
                        state.incoming = None;
                        Some(ended.map(|scanned| {
                            state.scanned = Some(*scanned);
                            None
                        }))
                    }
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => {
                        state.incoming = None;
                        Some(Err(Failure::environment("the scan ended without an outcome")))
                    }
                }
            });
            match piece {
                Some(Ok(bytes)) => return Ok(bytes.map(|bytes| PyBytes::new(py, &bytes))),
                Some(Err(failure)) => return Err(failure.into()),
                None => py.check_signals()?,
            }
        }
    }

    /// Stops it; what it still had to give is gone.
    fn close(&self, py: Python<'_>) {
        self.stop();
        py.detach(|| self.lock().map(|mut state| state.incoming = None).unwrap_or_default());
    }

    /// How it went, by name, once it has ended.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(scanned) = py.detach(|| self.lock().map(|state| state.scanned.clone()))? else { return Ok(None) };
        let (told, report) = (PyDict::new(py), scanned.report);
        told.set_item("place", scanned.place())?;
        told.set_item("why", scanned.why)?;
        told.set_item("files_found", scanned.files.found)?;
        told.set_item("files_pruned", scanned.files.pruned)?;
        told.set_item("files_host", scanned.files.here)?;
        told.set_item("files_device", scanned.files.at_server)?;
        told.set_item("row_groups", report.row_groups)?;
        told.set_item("row_groups_pruned", report.pruned)?;
        told.set_item("row_groups_pruned_by_dictionaries", report.pruned_by_dictionaries)?;
        told.set_item("row_groups_host", scanned.both.map(|both| both.here))?;
        told.set_item("row_groups_device", scanned.both.map(|both| both.at_server))?;
        told.set_item("rows_read", report.rows_read)?;
        told.set_item("rows_selected", report.rows_selected)?;
        told.set_item("file_bytes", report.file_len)?;
        told.set_item("needed_bytes", report.needed_len)?;
        told.set_item("read_bytes", report.read_len)?;
        told.set_item("result_bytes", scanned.result_bytes)?;
        told.set_item("compression", scanned.compression.name())?;
        told.set_item("sent_bytes", scanned.moved_bytes.0)?;
        told.set_item("received_bytes", scanned.moved_bytes.1)?;
        told.set_item("total_s", scanned.total.as_secs_f64())?;
        Ok(Some(told))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.stop();
    }
}
