//! Several files at once, on several targets.

use super::host::run_over_files;
use super::{Input, Job, Ran, RunOptions, mounted, read};
use crate::location::Location;
use crate::session::Session;
use crate::session::error::{FailureKind, SessionError};
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::pending::Pending;
use crate::session::place::{Now, Place};
use diskside_engine::{Call, CallError};
use diskside_sbpf::machine::CancelToken;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Files that one run works on at the same time.
const AT_ONCE: usize = 8;

impl Session {
    /// [`run`](Self::run), going on elsewhere; with `out` its result becomes that file, as by
    /// [`run_into_path`](Self::run_into_path) and [`run_into`](Self::run_into).
    pub fn submit_run(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        out: Option<Location>,
    ) -> Pending<Ran> {
        let (session, files, function, args) = (self.clone(), files.to_vec(), function.clone(), args.to_vec());
        Pending::run(options, move |options| match out {
            None => session.run(&files, &function, &args, options, None),
            Some(Location::Local(path)) => session.run_into_path(&files, &function, &args, options, &path),
            Some(Location::Export(url)) => session.run_into(&files, &function, &args, options, &url),
            Some(Location::Volume(url)) => {
                Err(SessionError::Unsupported { name: url.to_string(), why: "a result is a file, not a volume" })
            }
        })
    }

    /// Runs a function over files, wherever each is, and puts their results together in this order: with its
    /// `combine`, or one after another. With `out` the result is written there.
    ///
    /// Files of this machine are one call, if all are: the function sees them as its sources 0, 1, …. Else each
    /// file is a call of its own, and several run at once.
    pub fn run(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        out: Option<&mut (dyn Write + Send)>,
    ) -> Result<Ran, SessionError> {
        let Some(out) = out else { return self.run_to(files, function, args, options, None) };
        let mut counted = Counted { out, len_bytes: 0 };
        let ran = self.run_to(files, function, args, options, Some(&mut counted))?;
        Ok(Ran { written_bytes: counted.len_bytes, ..ran })
    }

    fn run_to(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        mut out: Option<&mut (dyn Write + Send)>,
    ) -> Result<Ran, SessionError> {
        let started = Instant::now();
        let folds = options.fold && function.combine().is_some();
        let is_here = |file: &File| {
            matches!(file.inner.place, Place::Local { .. })
                && mounted(file, function, options).is_ok_and(|(mounted, _)| mounted.is_none())
        };
        if files.iter().all(is_here) {
            let Some(first) = files.first() else { return Ok(Ran::default()) };
            let now = Now { len_bytes: 0, version: None, keep: false };
            let job = Job { file: first, now, function, args, options, mounted: None, program: None, held: false };
            let written = out.is_some();
            let done = run_over_files(&job, files, out)?;
            let mut ran = job.gather(vec![done], None, written)?;
            for file in files {
                ran.refusals.extend(mounted(file, function, options)?.1.map(|why| (file.inner.name.clone(), why)));
            }
            return Ok(Ran { total: started.elapsed(), ..ran });
        }
        let mut total = Ran::default();
        if let Some(out) = out.as_mut().filter(|_| !folds) {
            for file in files {
                let input = Input { file: file.clone(), start: 0, end: None };
                total.add(read(&input, function, args, options, Some(&mut **out))?);
            }
        } else {
            let parts = at_once(files, function, args, options)?;
            let names = files.iter().map(|file| &file.inner.name[..]);
            let results: Vec<(&str, &[u8])> = names.zip(parts.iter().map(|part| &part.result[..])).collect();
            let result = match &results[..] {
                [(_, only)] => only.to_vec(),
                results => {
                    let mut call = Call::new(function, Vec::new(), args.to_vec());
                    call.fold = options.fold;
                    call.limits = options.limits.clone();
                    self.engine().fold(&call, results)?
                }
            };
            match out {
                Some(out) => out.write_all(&result).map_err(CallError::Write)?,
                None => total.result = result,
            }
            parts.into_iter().for_each(|part| total.add(part));
        }
        Ok(Ran { total: started.elapsed(), ..total })
    }
}

/// Counts what is written.
struct Counted<'w> {
    out: &'w mut (dyn Write + Send),
    len_bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.len_bytes += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Runs over each file on one of a few threads. The first failure ends all: what runs for the others is stopped.
fn at_once(
    files: &[File],
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Result<Vec<Ran>, SessionError> {
    let (stop, mut options) = (CancelToken::new(), options.clone());
    let outer = options.limits.cancel.replace(stop.clone());
    let own = stop.clone();
    let _watch = outer.map(|outer| outer.when_cancelled(move || own.cancel()));
    let (options, next) = (&options, AtomicUsize::new(0));
    let results: Mutex<Vec<Option<Result<Ran, SessionError>>>> = Mutex::new(files.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..files.len().min(AT_ONCE) {
            scope.spawn(|| {
                while let Some((at, file)) = take(&next, files) {
                    let input = Input { file: file.clone(), start: 0, end: None };
                    let ran = read(&input, function, args, options, None);
                    if ran.is_err() {
                        next.store(files.len(), Ordering::Relaxed);
                        stop.cancel();
                    }
                    results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(ran);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    // What was stopped does not say why.
    let is_cause = |ran: &Option<Result<Ran, SessionError>>| matches!(ran, Some(Err(error)) if error.kind() != FailureKind::Cancelled);
    if let Some(at) = results.iter().position(is_cause) {
        results.swap(0, at);
    }
    // Without a failure all were begun, and with one collecting ends at it.
    results.into_iter().flatten().collect()
}

fn take<'f>(next: &AtomicUsize, files: &'f [File]) -> Option<(usize, &'f File)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, files.get(at)?))
}
