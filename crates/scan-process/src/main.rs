//! The process that scans tables in files.
//!
//! ```text
//! diskside-scan < FRAMES > FRAMES             a scan of one file, or of several: see `diskside_scan::frames`
//! diskside-scan --format FORMAT < ARROW > OUT writes an Arrow stream as table, csv, arrow or parquet
//! ```
//!
//! It is started for one scan, and trusts neither the file nor the plan. Before it looks at either it gives up everything but
//! its pipes and the file: see `diskside_child`. A function of the plan is compiled before the file is looked at, and before the
//! process gives up making machine code. What goes wrong in here ends this process, and nothing else.

#![forbid(unsafe_code)]

mod aggregate;
mod arrow_file;
mod bind;
mod bloom;
mod cells;
mod columns;
mod condition;
mod contains;
mod crew;
mod csv_file;
mod dictionary;
mod evaluate;
mod format;
mod formats;
mod function;
mod groups;
mod input;
mod json_file;
mod keys;
mod lines;
mod merge;
mod mismatch;
mod outcome;
mod packed;
mod pages;
mod panics;
mod parquet_file;
mod partial;
mod prune;
mod range;
mod requests;
mod result;
mod scan;
mod several;
mod share;
mod structures;
mod sums;
mod table;
mod top;
mod union;
mod value;
mod work;

use diskside_child::Limits;
use diskside_scan::{Failure, FailureKind, Frame, Report, Several, Start, To};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::process::ExitCode;

/// Address space of what writes a result in another format: it holds some batches.
const FORMAT_MEMORY_LEN: u64 = 4 << 30;

fn main() -> ExitCode {
    diskside_child::set_process_name(c"diskside-scan");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve(),
        ["--format", format] => write_as(format),
        _ => Err("unknown arguments; it is started by diskside, not by hand".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // In a scan this is the file, which cannot be written.
            let _ = writeln!(io::stderr(), "diskside-scan: {message}");
            ExitCode::FAILURE
        }
    }
}

fn write_as(format: &str) -> Result<(), String> {
    diskside_child::confine(Limits { memory_len: FORMAT_MEMORY_LEN, cpu_seconds: None })?;
    format::write(format).map_err(|failure| failure.message)
}

/// What a process is started for.
enum Job {
    File(Start),
    Several(Several),
}

fn serve() -> Result<(), String> {
    let last = scan().map_or_else(Frame::Failed, Frame::Done);
    last.write(&mut io::stdout().lock()).map_err(|error| error.to_string())
}

fn scan() -> Result<Report, Failure> {
    let begun = |message: String| Failure { kind: FailureKind::Reading, message };
    let crew =
        crew::Crew::start().map_err(|error| begun(format!("the threads of a scan cannot be started: {error}")))?;
    receive_file().map_err(|error| begun(format!("the process that scans got no file: {error}")))?;
    let job = receive_job().map_err(begun)?;
    let (name, memory_len) = match &job {
        Job::File(start) => (start.name.clone(), start.memory_len),
        Job::Several(several) => (several.name.clone(), several.memory_len),
    };
    // How much memory a scan has does not depend on how many processors there are.
    let limits = Limits { memory_len: memory_len.saturating_add(crew.stacks_len()), cpu_seconds: None };
    let confined = diskside_child::confine_but_for_code(limits);
    let may_make_code =
        confined.map_err(|error| begun(format!("the process that scans cannot be confined: {error}")))?;
    let place = scan::Place::default();
    let report = panics::caught(|| match job {
        Job::File(start) => scan::run(start, crew, may_make_code, &place),
        Job::Several(several) => several::run(several, may_make_code, &place),
    });
    report.unwrap_or_else(|panicked| Err(work::Work::panicked(&name, &place.told(), &panicked)))
}

/// The first frame. One of another version may be longer or shorter: programs that were replaced under a server that runs.
fn receive_job() -> Result<Job, String> {
    let told = match Frame::read(&mut io::stdin().lock(), To::Child) {
        Ok(Frame::Start(start)) => return Ok(Job::File(start)),
        Ok(Frame::Several(several)) => return Ok(Job::Several(several)),
        Ok(_) => "it is of another kind".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "the process that scans cannot read what it is to do ({told}): diskside-scan and what started it are perhaps of two versions; \
         restart that, or install both again"
    ))
}

/// Waits for the first byte, and for the file if one comes with it: it becomes the standard error, so that a process may have
/// been started before anybody knew its file.
fn receive_file() -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut first = [0];
    let received = recvmsg(io::stdin(), &mut [IoSliceMut::new(&mut first)], &mut with, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            files.into_iter().try_for_each(rustix::stdio::dup2_stderr)?;
        }
    }
    Ok(())
}
