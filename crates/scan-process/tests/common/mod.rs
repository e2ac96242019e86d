//! A scan as a server makes it: by the program, of a file whose descriptor it has, in turns.

use diskside_scan::{Event, Program, ReadsBy, Report, ScanError, Source, Start};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Memory of a scan.
const MEMORY_LEN: u64 = 128 << 20;

/// How it is made.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    /// How messages call the file.
    pub(crate) name: &'a str,
    /// Threads that each turn grants.
    pub(crate) threads: u32,
    pub(crate) timeout: Duration,
}

impl Default for How<'_> {
    fn default() -> Self {
        Self { name: "the file", threads: 2, timeout: Duration::from_secs(120) }
    }
}

/// The program of this package.
pub(crate) fn program() -> Program {
    Program::at(env!("CARGO_BIN_EXE_diskside-scan"))
}

/// Scans to the end: the bytes of the result, and the report.
///
/// # Errors
/// The scan ended with a failure.
pub(crate) fn scan(program: &Program, file: &Path, plan: &[u8], how: How<'_>) -> Result<(Vec<u8>, Report), ScanError> {
    let opened = File::open(file).unwrap();
    let start = Start {
        reads_by: ReadsBy::Descriptor,
        threads: None,
        file_len: opened.metadata().unwrap().len(),
        memory_len: MEMORY_LEN,
        name: how.name.into(),
        plan: plan.to_vec(),
    };
    let mut scanning = program.start(&start, Source::Descriptor(opened.into()))?;
    let (mut result, until) = (Vec::new(), Instant::now() + how.timeout);
    loop {
        match scanning.next(&mut || Instant::now() < until)? {
            Event::Output(bytes) => result.extend_from_slice(&bytes),
            Event::Turn => scanning.grant(how.threads)?,
            Event::Waits => {}
            Event::Read { .. } | Event::Scan { .. } => panic!("it has a descriptor"),
            Event::Done(report) => return Ok((result, report)),
        }
    }
}
