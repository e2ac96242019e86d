//! A function's output as a file of an export: written at the target wherever that is possible.

use super::compressed::Compressed;
use super::content::Content;
use super::group::{check_chunks, takes_paths};
use super::job::Job;
use super::{Ran, RunOptions, Where, device};
use crate::location::ExportUrl;
use crate::session::Session;
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::link::Link;
use crate::session::place::{Now, Place};
use crate::session::writer::FileWriter;
use diskside_dispatch::{Decision, Plan, Reason};
use diskside_io::request::run_here;
use diskside_sbpf::image::Kind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Longest file of this machine that is held in memory to be sent to a function at the target.
const SENT_LEN_MAX_BYTES: u64 = 1 << 30;

impl Session {
    /// Runs a function over files and makes its output the file at `url`, which appears whole or not at all, and
    /// on stable media.
    ///
    /// When all files are at the target of `url`, it runs there and nothing of them moves. A file of this machine
    /// for a function of kind write is sent there (up to 1 GiB of it), and its output is not, unless the host is
    /// faster. In every other case the output passes through this machine.
    pub fn run_into(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        url: &ExportUrl,
    ) -> Result<Ran, SessionError> {
        let started = Instant::now();
        check_chunks(files, options)?;
        let mut writer = FileWriter::create(self, url)?;
        // One of several servers that vanishes later is found out by the run.
        let files = &run_here(options.tries().files(files))?[..];
        let options = &RunOptions { durable: true, ..options.clone() };
        let link = self.link(&url.target())?;
        // Of files that are named by their paths the target finds out.
        let by_paths = takes_paths(files, options);
        let content = if by_paths { Some(Content::Plain) } else { Content::of_all(files, options)? };
        let compressed = match content {
            Some(Content::Compressed(codec)) => Some(Compressed { codec, part: options.part() }),
            _ => None,
        };
        let is_whole = options.part().is_whole() && content == Some(Content::Plain);
        let in_place = (is_whole || compressed.is_some())
            && options.place != Where::Host
            && files.iter().all(|file| is_at(file, &link));
        let ran = match files {
            // The host can run what the target does not.
            _ if in_place && (options.place == Where::Device || run_here(link.program(function)).is_ok()) => {
                transform(files, compressed, writer.file(), function, args, options)?
            }
            [only]
                if is_whole
                    && function.kind() == Kind::Write
                    && local_len(only).is_some_and(|len| len <= SENT_LEN_MAX_BYTES) =>
            {
                let failed = |error| SessionError::file(&only.inner.name, error);
                let bytes = std::fs::read(local_path(only).unwrap_or(Path::new(""))).map_err(failed)?;
                writer.file().pwrite_fn(0, bytes, function, args, options).wait()?
            }
            _ => self.run(files, function, args, options, Some(&mut writer))?,
        };
        writer.publish()?;
        Ok(Ran { total: started.elapsed(), ..ran })
    }
}

/// Runs at the target that has both the files and the output.
fn transform(
    files: &[File],
    compressed: Option<Compressed>,
    output: &File,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Result<Ran, SessionError> {
    let Some(link) = output.inner.place.link() else { unreachable!("the output is a file of an export") };
    let program = Some(run_here(link.program(function))?);
    let now = Now { len_bytes: 0, version: None, keep: false };
    let decision = Decision::made(Plan::Device, Reason::InPlace);
    let reason = Some(decision.reason);
    let job = Job { program, compressed, reason, ..Job::new(output, now, function, args, options) };
    let done = device::transform(&job, files)?;
    let written_bytes = done.result_bytes;
    Ok(Ran { written_bytes, ..job.gather(vec![done], Some(decision), true)? })
}

fn is_at(file: &File, target: &Arc<Link>) -> bool {
    file.inner.place.link().is_some_and(|link| Arc::ptr_eq(link, target))
}

fn local_path(file: &File) -> Option<&Path> {
    match &file.inner.place {
        Place::Local { path, .. } => Some(path),
        Place::Export(_) | Place::Volume { .. } => None,
    }
}

/// For a plain file: a pipe has no length.
fn local_len(file: &File) -> Option<u64> {
    let found = std::fs::metadata(local_path(file)?).ok()?;
    found.is_file().then_some(found.len())
}
