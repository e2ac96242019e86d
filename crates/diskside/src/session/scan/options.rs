//! How a scan is to be made.

use diskside_sbpf::machine::CancelToken;
use diskside_scan::Program;
use diskside_wire::function::TraceContext;

/// Memory of a scan here.
const MEMORY_LEN: u64 = 2 << 30;

/// Where a scan runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanPlace {
    /// Where it is faster, or on both sides at once.
    #[default]
    Auto,
    /// With the caller.
    Host,
    /// With the data.
    Device,
    /// Some row groups with the data and some with the caller, at the same time.
    Both,
}

/// How a file is scanned.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Where. See [`File::scan`](crate::session::File::scan) for what `auto` does.
    pub place: ScanPlace,
    /// Stops it.
    pub cancel: Option<CancelToken>,
    /// Bytes of memory that a scan here may use.
    pub memory_len: u64,
    /// Threads that a scan here computes with, at most; one for each processor by default. Its result is the same however many.
    pub threads: u32,
    /// The program that scans here; `None`: it is searched for.
    pub program: Option<Program>,
    /// Whether directories that are called `key=value` are columns of the files in them, in scans of several files.
    pub partitions: bool,
    /// The span of the caller's trace that the scan is a part of.
    pub trace: Option<TraceContext>,
}

impl Default for ScanOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
        let (place, memory_len, program, partitions) = (ScanPlace::Auto, MEMORY_LEN, None, true);
        Self { place, cancel: None, memory_len, threads, program, partitions, trace: None }
    }
}
