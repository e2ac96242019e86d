//! `diskside scan`.

mod files;

use super::near::explain_session;
use super::run::{encode_args, state_directory};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::interrupt::cancel_on_signal;
use crate::output::{self, answered_document, bytes, duration, say};
use clap::{Args, ValueEnum};
use diskside::columns::{Outputs, outputs_of};
use diskside::outfile::{Destination, OutFile};
use diskside::scan::{
    Aggregate, ColumnFunction, ColumnType, Compression, Expression, FormatError, FormatJob, Gives, Order, Part, Plan,
    Program, parse_aggregates, parse_columns, parse_filter, parse_format, parse_order, parse_types,
};
use diskside::session::{
    BothCounts, OpenMode, ScanOptions, ScanPlace, Scanned, Session, SessionError, SessionOptions, Side,
};
use diskside::{CallError, Engine, Location, scan};
use serde_json::json;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};

/// Arguments of `scan`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside scan lineitem.parquet --columns l_orderkey,l_comment --where \"l_comment like '%fox%'\"
  diskside scan diskside://server/data/lineitem.parquet --where \"l_shipdate >= date '1994-01-01' and \\
      l_discount between 0.05 and 0.07\" --aggregate 'sum(l_extendedprice * l_discount) as revenue' --explain
  diskside scan lineitem.parquet --aggregate 'count(*), avg(l_quantity)' --by l_returnflag,l_linestatus
  diskside scan lineitem.parquet --limit 1000 --format parquet --out first.parquet
  diskside scan lineitem.parquet --columns l_orderkey,l_extendedprice --order 'l_extendedprice desc' --limit 10
  diskside scan diskside://server/data/prices.csv --where 'price > 100' --types 'price decimal(15, 2)'
  diskside scan 'diskside://server/data/sales/year=2024/**/*.parquet' --by day --aggregate 'sum(price)'
  diskside scan sales --where \"year = 2024 and month >= 6\" --by month --aggregate 'count(*)' --explain")]
pub(crate) struct Scan {
    /// Parquet, Arrow, CSV or JSON lines files: paths, files of exports (diskside://HOST[:PORT]/EXPORT/PATH) or volumes;
    /// directories, for all files below them; patterns with *, ?, [...] or **, in quotes
    #[arg(required = true, value_name = "FILE")]
    files: Vec<OsString>,
    /// Columns that go out, in this order [default: all]
    #[arg(long, value_name = "NAMES", conflicts_with_all = ["aggregates", "by"])]
    columns: Option<String>,
    /// Rows for which this is true go out
    #[arg(long = "where", value_name = "CONDITION", allow_hyphen_values = true)]
    filter: Option<String>,
    /// Aggregates to print instead of rows: sum, count, min, max and avg, with commas between them
    #[arg(long = "aggregate", value_name = "SUMS")]
    aggregates: Option<String>,
    /// Columns to group rows by, at most 8
    #[arg(long, value_name = "NAMES")]
    by: Option<String>,
    /// Columns of the result that its rows are sorted by, such as 'price desc, name'; it takes --limit
    #[arg(long, value_name = "COLUMNS", requires = "limit")]
    order: Option<String>,
    /// A function of kind columns, over the rows that --where takes: an object (mine.bpf.o) or C source (mine.bpf.c), with
    /// :NAME if it holds several. It selects rows (DS_SELECT), or its result is printed instead of rows
    #[arg(long, value_name = "FUNCTION")]
    function: Option<OsString>,
    /// An argument of the function; once for each
    #[arg(long = "arg", value_name = "NAME=VALUE", requires = "function")]
    args: Vec<String>,
    /// Format of the file [default: by its first and last bytes, or its name]
    #[arg(long, value_enum, value_name = "FORMAT")]
    input: Option<Input>,
    /// Character between the values of a CSV file [default: a comma; in .tsv a tab]
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,
    /// A CSV file begins with values: its columns are called column0, column1, ...
    #[arg(long)]
    no_header: bool,
    /// Types of columns of CSV and JSON lines files, and of directories that are called key=value, such as 'price decimal(15, 2),
    /// day date' [default: guessed of the first lines, and of all directories]
    #[arg(long, value_name = "TYPES")]
    types: Option<String>,
    /// Directories that are called key=value are not columns
    #[arg(long)]
    no_partitions: bool,
    /// The most rows that go out
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Row groups of the one file that are scanned, counted from 0 and without END
    #[arg(long, value_name = "FIRST..END", value_parser = files::parse_row_groups)]
    row_groups: Option<Part>,
    /// Versions that the FILEs have to have before and after the scan, in their order, as --list prints them
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',')]
    versions: Vec<String>,
    /// Scan nothing: print as JSON the files that would be scanned, with their sizes and versions
    #[arg(long, conflicts_with_all = ["json", "out", "explain", "versions"])]
    list: bool,
    /// Where it runs over a file of an export: at the server, with you, on both sides, or where it is faster
    #[arg(long, value_enum, default_value_t = PlaceArg::Auto)]
    place: PlaceArg,
    /// Neither use nor keep what scans measure (in $XDG_STATE_HOME/diskside, for --place auto)
    #[arg(long)]
    stateless: bool,
    /// How the result is written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write the result to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<OsString>,
    /// Say where it ran and why, and what was left out, read and moved
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    connect: Connect,
    /// Print as JSON how it went
    #[arg(long, requires = "out")]
    json: bool,
}

/// Where scans run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlaceArg {
    /// Where it is faster, or on both sides at once
    Auto,
    /// With you
    Host,
    /// With the data
    Device,
    /// Some row groups with the data and some with you, at the same time
    Both,
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// Comma-separated values
    Csv,
    /// An Arrow IPC stream
    Arrow,
    /// A Parquet file
    Parquet,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Input {
    /// Parquet
    Parquet,
    /// An Arrow IPC file or stream
    Arrow,
    /// Values with a delimiter between them, a row a line
    Csv,
    /// A JSON object a line
    Jsonl,
}

impl Scan {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let mut plan = self.plan()?;
        let program = Program::find().ok_or_else(|| {
            Failure::Environment(
                "scan takes the program diskside-scan, which is not beside diskside nor in PATH: `make scan` builds it, or \
                 DISKSIDE_SCAN says where it is"
                    .into(),
            )
        })?;
        let session = Session::new(SessionOptions {
            connect: self.connect.options()?,
            learnt_directory: if self.stateless { None } else { state_directory() },
            ..SessionOptions::default()
        });
        let locations = self.files.iter().map(|file| Location::try_from(&**file));
        let locations: Vec<_> =
            locations.collect::<Result<_, _>>().map_err(|error| Failure::Usage(error.to_string()))?;
        let explained = |error| explain_session(&session, &locations[0], error);
        if !self.versions.is_empty() && self.versions.len() != locations.len() {
            let told = format!("--versions: {} for {} files: give one for each", self.versions.len(), locations.len());
            return Err(Failure::Usage(told));
        }
        files::check_versions(&session, &locations, &self.versions)?;
        let files = session.scan_files_of(&locations).map_err(explained)?;
        if self.list {
            return files::print(&session, &files);
        }
        if self.row_groups.is_some() && files.plain().is_none() {
            return Err(Failure::Usage("--row-groups: those of one file that is named by its path".into()));
        }
        plan.format = self.format_of_file(files.first_path())?;
        let file = files.plain().map(|location| session.open_as(location, OpenMode::Read));
        let file = file.transpose().map_err(explained)?;
        let options = ScanOptions {
            place: match self.place {
                PlaceArg::Auto => ScanPlace::Auto,
                PlaceArg::Host => ScanPlace::Host,
                PlaceArg::Device => ScanPlace::Device,
                PlaceArg::Both => ScanPlace::Both,
            },
            cancel: Some(cancel_on_signal()?),
            partitions: !self.no_partitions,
            program: Some(program.clone()),
            ..ScanOptions::default()
        };
        let destination = self.destination()?;
        let out: Box<dyn Write + Send> = match &destination {
            None => Box::new(std::io::stdout()),
            Some(out) => Box::new(out.file().try_clone().map_err(Failure::Output)?),
        };
        let format = match self.format {
            Format::Table => "table",
            Format::Csv => "csv",
            Format::Arrow => "arrow",
            Format::Parquet => "parquet",
        };
        let job = program.format(format, out).map_err(|error| Failure::Environment(error.to_string()))?;
        let scan = |out: &mut dyn Write| match &file {
            Some(file) => file.scan(&plan, &options, out),
            None => session.scan_files(&files, &plan, &options, out),
        };
        let scanned = run(scan, job, destination.as_ref())?;
        files::check_versions(&session, &locations, &self.versions)?;
        if let Some(out) = destination {
            out.publish().map_err(|error| Failure::Environment(format!("cannot write {error}")))?;
        }
        if let Err(error) = session.save_learnt()
            && self.explain
        {
            say(format_args!("diskside: what was measured is not kept: {error}"));
        }
        self.report(&scanned)
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let usage = |option: &'static str| move |error| Failure::Usage(format!("{option}: {error}"));
        let columns = |option, text: &Option<String>| -> Result<Vec<String>, Failure> {
            text.as_deref().map_or(Ok(Vec::new()), parse_columns).map_err(usage(option))
        };
        let filter: Option<Expression> =
            self.filter.as_deref().map(parse_filter).transpose().map_err(usage("--where"))?;
        let aggregates: Vec<Aggregate> =
            self.aggregates.as_deref().map_or(Ok(Vec::new()), parse_aggregates).map_err(usage("--aggregate"))?;
        let order: Vec<Order> = self.order.as_deref().map_or(Ok(Vec::new()), parse_order).map_err(usage("--order"))?;
        let types: Vec<(String, ColumnType)> =
            self.types.as_deref().map_or(Ok(Vec::new()), parse_types).map_err(usage("--types"))?;
        let plan = Plan {
            format: self.format_of_file(self.files[0].as_encoded_bytes())?,
            types,
            order,
            columns: columns("--columns", &self.columns)?,
            filter,
            aggregates,
            by: columns("--by", &self.by)?,
            limit: self.limit,
            part: self.row_groups.unwrap_or_default(),
            function: self.column_function()?.map(Box::new),
            compression: Compression::Lz4,
        };
        // What a server would say of it is said before one is asked.
        match Plan::from_bytes(&plan.to_bytes()) {
            Ok(plan) => Ok(plan),
            Err(error) => Err(Failure::Usage(format!("this scan is not possible: {}", error.what))),
        }
    }

    fn column_function(&self) -> Result<Option<ColumnFunction>, Failure> {
        let Some(what) = &self.function else { return Ok(None) };
        let engine = Engine::new(diskside::helpers());
        let (object, function) = diskside::library::resolve_columns(&engine, what)?;
        let gives = match outputs_of(&function).map_err(|error| Failure::Load(error.to_string()))? {
            Outputs::Selection => Gives::Rows,
            Outputs::Folded | Outputs::Concatenated => Gives::Result,
        };
        let rows_option = [
            ("--columns", self.columns.is_some()),
            ("--aggregate", self.aggregates.is_some()),
            ("--by", self.by.is_some()),
            ("--order", self.order.is_some()),
            ("--limit", self.limit.is_some()),
        ];
        if let (Gives::Result, Some((option, _))) = (gives, rows_option.iter().find(|(_, is_given)| *is_given)) {
            let told =
                format!("{option} is about rows, and {} gives a result of its own (docs/scan.md)", function.name());
            return Err(Failure::Usage(told));
        }
        let usage = format!("diskside scan FILE --function {}", what.display());
        let no_line = || Err(Failure::Usage("a function over columns takes no line with their names".into()));
        let args = encode_args(&function, &self.args, &usage, no_line)?;
        Ok(Some(ColumnFunction { object, name: function.name().to_owned(), args, gives }))
    }

    fn format_of_file(&self, name: &[u8]) -> Result<scan::Format, Failure> {
        let input = self.input.map(|input| match input {
            Input::Parquet => "parquet",
            Input::Arrow => "arrow",
            Input::Csv => "csv",
            Input::Jsonl => "jsonl",
        });
        parse_format(input, self.delimiter.as_deref(), !self.no_header, name).map_err(|error| {
            Failure::Usage(match error {
                FormatError::Input(_) => format!("--input: {error}"),
                FormatError::Delimiter(_) => format!("--delimiter: {error}"),
                FormatError::NotCsv => "--delimiter and --no-header are of CSV files alone".into(),
            })
        })
    }

    fn destination(&self) -> Result<Option<OutFile>, Failure> {
        let Some(out) = self.out.as_ref().filter(|out| *out != "-") else { return Ok(None) };
        let location = Location::try_from(&**out).map_err(|error| Failure::Usage(error.to_string()))?;
        let Location::Local(path) = location else {
            let told = format!("--out {}: a result of a scan is a file here; `diskside cp` copies it", out.display());
            return Err(Failure::Usage(told));
        };
        let failed = |error| Failure::Environment(format!("cannot write {error}"));
        let destination = Destination::find(&path).map_err(failed)?;
        if destination.is_block_device() {
            let told = format!("--out {}: it is a block device, whose content would be lost", out.display());
            return Err(Failure::Usage(told));
        }
        destination.begin().map(Some).map_err(failed)
    }

    fn report(&self, scanned: &Scanned) -> Result<(), Failure> {
        let (report, files) = (&scanned.report, scanned.files);
        if self.json {
            return Ok(output::print_json(json!({
                "file": self.files[0].to_string_lossy(),
                "files_found": files.found, "files_pruned": files.pruned,
                "files_host": files.here, "files_device": files.at_server,
                "side": scanned.place(), "why": scanned.why,
                "row_groups": report.row_groups, "row_groups_pruned": report.pruned,
                "row_groups_pruned_by_dictionaries": report.pruned_by_dictionaries,
                "row_groups_host": scanned.both.map(|both| both.here),
                "row_groups_device": scanned.both.map(|both| both.at_server),
                "rows_read": report.rows_read, "rows_selected": report.rows_selected,
                "file_bytes": report.file_len, "needed_bytes": report.needed_len, "read_bytes": report.read_len,
                "result_bytes": scanned.result_bytes, "compression": scanned.compression.name(),
                "sent_bytes": scanned.moved_bytes.0, "received_bytes": scanned.moved_bytes.1,
                "total_ns": scanned.total.as_nanos() as u64,
                "answered": scanned.answered.iter().map(answered_document).collect::<Vec<_>>(),
            }))?);
        }
        if self.explain {
            let place = match (scanned.both, scanned.side) {
                (Some(BothCounts { here, at_server }), _) => {
                    format!("{at_server} row groups at the server, and {here} on this machine")
                }
                (None, Side::Device) => "at the server".into(),
                (None, Side::Host) => "on this machine".into(),
            };
            scanned.answered.iter().for_each(say);
            if files.found == 1 {
                say(format_args!("scanned {place}: {}", scanned.why));
            } else {
                let why = if files.here + files.at_server > 0 { ", the first one because" } else { ":" };
                say(format_args!(
                    "{} files, {} ruled out by their paths; scanned {} on this machine and {} at their servers{why} {}",
                    files.found, files.pruned, files.here, files.at_server, scanned.why
                ));
            }
            let by_dictionaries = match report.pruned_by_dictionaries {
                0 => String::new(),
                count => format!(" and {count} by dictionaries"),
            };
            say(format_args!(
                "{} row groups, {} ruled out by statistics{by_dictionaries}; {} rows decoded, {} of them wanted",
                report.row_groups,
                report.pruned - report.pruned_by_dictionaries.min(report.pruned),
                report.rows_read,
                report.rows_selected
            ));
            let is_of_server = scanned.both.is_some() || files.at_server > 0;
            let how = match scanned.compression {
                _ if !is_of_server => "",
                Compression::None => " without compression, since the link is fast",
                Compression::Lz4 => " by LZ4 where that pays",
            };
            say(format_args!(
                "{} of {} needed; {} read, {} moved{how}; {}",
                bytes(report.needed_len),
                bytes(report.file_len),
                bytes(report.read_len),
                bytes(scanned.moved_bytes.0 + scanned.moved_bytes.1),
                duration(scanned.total)
            ));
        }
        Ok(())
    }
}

fn run(
    scan: impl FnOnce(&mut dyn Write) -> Result<Scanned, SessionError>,
    mut job: FormatJob,
    out: Option<&OutFile>,
) -> Result<Scanned, Failure> {
    let scanned = scan(&mut job);
    let failed_to_write = matches!(&scanned, Err(SessionError::Call(CallError::Write(_))));
    let written = match &scanned {
        Err(_) if !failed_to_write => Ok(()),
        _ => job.finish(),
    };
    match written {
        // The reader of our output has read enough.
        Err(error) if out.is_none() && error.kind() == ErrorKind::BrokenPipe => return Err(Failure::Output(error)),
        Err(error) => {
            let told = out.map_or(error.to_string(), |out| out.failed(&error).to_string());
            return Err(Failure::Environment(told));
        }
        Ok(()) => {}
    }
    scanned.map_err(session_failure)
}
