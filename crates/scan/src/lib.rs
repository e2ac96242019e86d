//! Scans of tables in files: which columns, which rows, which sums.
//!
//! | Module | What it is |
//! |---|---|
//! | `plan` | what a scan does, as types |
//! | `given` | conditions where some values are known before a file is read |
//! | `like` | the patterns of LIKE |
//! | `partitions` | columns that directories, or the metadata of a table, say |
//! | `bytes` | the same as canonical bytes, as they travel to a server |
//! | `text` | the same as people write it: `l_quantity < 24 and l_comment like '%fox%'` |
//! | `frames` | what the process that scans and the one that started it say to each other |
//! | `several` | what starts the scan of several files |
//! | `process` | the process `diskside-scan`: found, started, answered, stopped |
//! | `to_child` | what is written to it: answers and turns |
//!
//! The process itself is the crate `scan-process`, the only one that sees Arrow and Parquet.

#![forbid(unsafe_code)]

mod bytes;
mod frames;
mod given;
mod like;
mod partitions;
mod plan;
mod process;
mod several;
mod spare;
mod text;
mod to_child;

pub use bytes::{COLUMNS_MAX, PLAN_LEN_MAX, PlanError, UNKNOWN_VERSION, function_of};
pub use frames::{
    Failure, FailureKind, Frame, FrameError, OUTPUT_LEN_MAX, READ_LEN_MAX, REPORT_LEN, ReadOf, ReadsBy, Report, Start,
    Stop, To,
};
pub use like::Pattern;
pub use partitions::{PartitionError, Partitions};
pub use plan::{
    ARGS_LEN_MAX, Aggregate, AggregateKind, Arithmetic, ColumnFunction, ColumnType, Comparison, Compression,
    Expression, Format, GROUP_KEYS_MAX, Gives, Literal, OBJECT_LEN_MAX, ORDERED_ROWS_MAX, Order, Part, Plan,
};
pub use process::{Answer, Event, FormatJob, Program, ScanError, Scanning, Source};
pub use several::{OneFile, Several};
pub use text::{
    FormatError, TextError, parse_aggregates, parse_columns, parse_filter, parse_format, parse_order, parse_types,
};

/// The program index of the service at a server: the last one, which no program can be loaded at.
pub const SCAN_PIND: u16 = u16::MAX;
/// The name by which rights, statistics and audits know the service.
pub const SCAN_NAME: &str = "scan";
