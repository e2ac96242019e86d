//! Several files at once, on several targets.

mod turns;

use super::group::{Decided, First, NOT_OPEN};
use super::host::run_over_sources;
use super::job::{Input, Job};
use super::resumed::Resumed;
use super::retry::Again;
use super::{Ran, RunOptions, Where, device, group, is_change, local, mounted, read};
use crate::location::Location;
use crate::session::Session;
use crate::session::error::{FailureKind, SessionError};
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::patience::Patience;
use crate::session::pending::{Cancellable, Pending};
use crate::session::place::Place;
use diskside_dispatch::Side;
use diskside_engine::{Call, CallError, PutTogether};
use diskside_host::own_thread;
use diskside_io::request::run_here;
use diskside_sbpf::machine::CancelToken;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use turns::Turns;

/// Files that one run works on at the same time.
pub(super) const AT_ONCE: usize = 8;

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
        let own = Cancellable::new(options);
        // Neither other servers nor spans are for what is sent at once.
        let is_plain = files.iter().all(|file| file.copied.is_none()) && !diskside_trace::is_recording();
        let decided = (out.is_none() && is_plain).then(|| decide_short(files, function, args, own.options())).flatten();
        let (session, files, function, args) = (self.clone(), files.to_vec(), function.clone(), args.to_vec());
        if let Some(decided) = decided {
            return run_short(session, files, function, args, own, decided);
        }
        own.run(move |options| async move {
            let Some(out) = out else { return session.run_soon(&files, &function, &args, &options, None).await };
            own_thread().await;
            match out {
                Location::Local(path) => session.run_into_path(&files, &function, &args, &options, &path),
                Location::Export(url) => session.run_into(&files, &function, &args, &options, &url),
                Location::Volume(url) => {
                    Err(SessionError::Unsupported { name: url.to_string(), why: "a result is a file, not a volume" })
                }
            }
        })
    }

    /// Runs a function over files, wherever each is, and puts their results together in this order: with its
    /// `combine`, or one after another. With `out` the result is written there.
    ///
    /// Files of this machine are one call, if all are, and so are more than a few of exports of one target: the function sees
    /// them as its sources 0, 1, …. Else each file is a call of its own, and several run at once. One of an export that is to be
    /// [opened late](Self::open_late) is not opened at all where the caller says that the function runs at its target
    /// ([`Where::Device`]), or where the file was short when this session ran a function over it last: that takes one round trip.
    pub fn run(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        out: Option<&mut (dyn Write + Send)>,
    ) -> Result<Ran, SessionError> {
        run_here(self.run_soon(files, function, args, options, out))
    }

    async fn run_soon(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        out: Option<&mut (dyn Write + Send)>,
    ) -> Result<Ran, SessionError> {
        let (mut span, options) = options.begin_span("run", function.name());
        let ran = match out {
            None => self.run_over_copies(files, function, args, &options, None).await,
            Some(out) => {
                let mut counted = Counted::new(out);
                let ran = self.run_over_copies(files, function, args, &options, Some(&mut counted)).await;
                ran.map(|ran| Ran { written_bytes: counted.len_bytes, ..ran })
            }
        };
        ran.inspect_err(|error| span.fail(error))
    }

    /// If a server of several vanishes, the run begins again over all its files at another one. Output that was written is not
    /// written again: it has to be the beginning of the new one.
    async fn run_over_copies(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        out: Option<&mut (dyn Write + Send)>,
    ) -> Result<Ran, SessionError> {
        if files.iter().all(|file| file.copied.is_none()) {
            return self.run_to(files, function, args, options, out, None).await;
        }
        let (started, mut tries, mut out) = (Instant::now(), options.tries(), out.map(Resumed::new));
        loop {
            let current = tries.files(files).await?;
            let options = options.left(&tries);
            let ran = self.run_to(&current, function, args, &options, out.as_mut().map(|out| out as _), None).await;
            if out.as_ref().is_some_and(|out| out.is_of_another(ran.is_ok())) {
                return Err(SessionError::OtherResult(current[0].inner.name.clone()));
            }
            match ran {
                Ok(ran) => return Ok(Ran { answered: tries.answered(), total: started.elapsed(), ..ran }),
                Err(error) if !function.is_pure() => return Err(error),
                Err(error) => tries.go_on(&current, error)?,
            }
            out.iter_mut().for_each(Resumed::rewind);
        }
    }

    /// `first`: a request by path, of which this much is done.
    pub(super) async fn run_to(
        &self,
        files: &[File],
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
        out: Option<&mut (dyn Write + Send)>,
        first: Option<First>,
    ) -> Result<Ran, SessionError> {
        let started = Instant::now();
        let folds = options.fold && function.combine().is_some();
        group::check_chunks(files, options)?;
        if files.iter().any(|file| matches!(file.inner.place, Place::Local { .. })) {
            own_thread().await;
        }
        let is_here = |file: &File| {
            matches!(file.inner.place, Place::Local { .. })
                && mounted(file, function, options).is_ok_and(|(mounted, _)| mounted.is_none())
        };
        // Where its data begins is known of a file that is alone.
        if files.iter().all(is_here) && !local::any_header(files, options)? {
            let mut ran = run_local(files, function, args, options, out, folds)?;
            for file in files {
                ran.refusals.extend(mounted(file, function, options)?.1.map(|why| (file.inner.name.clone(), why)));
            }
            return Ok(Ran { total: started.elapsed(), ..ran });
        }
        if options.state.is_some() && options.place != Where::Host && !is_one_place(files) {
            return Err(SessionError::Unsupported { name: files[0].inner.name.clone(), why: STATES });
        }
        // Output that is on its way is not written twice if this continues in another way.
        let mut out = out.map(Resumed::new);
        let is_by_path = out.is_none() && group::is_asked_for_by_path(files, options);
        if first.is_some() || group::takes_paths(files, options) || is_by_path {
            let streams = out.is_some() && !folds;
            match group::run(files, function, args, options, out.as_mut().map(|out| out as _), first).await {
                // This side finds out, file by file, what the function gets of each file with a header.
                Err(error) if group::is_header(&error) && (!streams || function.is_pure()) => {
                    files.iter().for_each(|file| self.short_files().forget(file.inner.id));
                    out.iter_mut().for_each(Resumed::rewind);
                }
                Err(error) if group::is_header(&error) => {
                    let (name, why) = (error.to_string(), HEADER_AMONG_MANY.to_owned());
                    return Err(SessionError::Input { name, why });
                }
                ran => return Ok(Ran { total: started.elapsed(), ..ran? }),
            }
        }
        let mut total = Ran::default();
        if let Some(out) = out.as_mut().filter(|_| !folds) {
            own_thread().await;
            let (parts, failed) = at_once(files, function, args, options, false, Some(out));
            if out.is_of_another(failed.is_none()) {
                return Err(SessionError::Changed(files[0].inner.name.clone()));
            }
            if let Some(failed) = failed {
                return Err(failed);
            }
            parts.into_iter().for_each(|part| total.add(part));
        } else {
            // Each file's own fold would be another order.
            let frames = folds && (options.fold_here || files.len() > 1 && function.folds_in_order());
            let (mut parts, failed) = match files {
                [only] => {
                    let ran = read(&input_of(only, 0, options, frames), function, args, options, None).await;
                    only.close_late();
                    ran.map_or_else(|error| (Vec::new(), Some(error)), |ran| (vec![ran], None))
                }
                // Each of a few threads has the next file, to wait for it or to compute.
                _ => {
                    own_thread().await;
                    at_once(files, function, args, options, frames, None)
                }
            };
            match &failed {
                Some(error) if frames && error.is_of_function() => {
                    let input = input_of(&files[parts.len()], parts.len(), options, frames);
                    parts.extend(before_failure(input, error, function, args, options).await);
                }
                // The fold of what stands before it has its turn first.
                Some(error) if parts.is_empty() || error.kind() == FailureKind::Cancelled => {
                    return Err(failed.expect("it failed"));
                }
                _ => {}
            }
            if frames || files.len() > 1 || out.is_some() {
                own_thread().await;
            }
            let names = files.iter().map(|file| &file.inner.name[..]);
            let results: Vec<(&str, &[u8])> = names.zip(parts.iter().map(|part| &part.result[..])).collect();
            let mut call = Call::new(function, Vec::new(), args.to_vec());
            call.fold = options.fold;
            call.limits = options.limits.clone();
            let PutTogether { result, fold } = match &results[..] {
                results if frames => self.engine().fold_frames(&call, results)?,
                [(_, only)] => PutTogether { result: only.to_vec(), fold: Duration::ZERO },
                results => self.engine().fold(&call, results)?,
            };
            total.fold = fold;
            if let Some(failed) = failed {
                return Err(failed);
            }
            match out {
                Some(mut out) => out.write_all(&result).map_err(CallError::Write)?,
                None => total.result = result,
            }
            parts.into_iter().for_each(|part| total.add(part));
        }
        Ok(Ran { total: started.elapsed(), ..total })
    }
}

/// A state is kept where the function runs: files of two places would have two, and another result than files of one.
const STATES: &str = "it is not where the other files are, and a named state is kept in one place: run over them apart, or with \
    --where host, which keeps it here";

fn is_one_place(files: &[File]) -> bool {
    let link = |file: &File| file.inner.place.link().map(Arc::as_ptr);
    files.windows(2).all(|pair| link(&pair[0]) == link(&pair[1]))
}

/// All of this machine: one call. Of files that can be read again, a change of one while it was read is another try.
fn run_local(
    files: &[File],
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
    folds: bool,
) -> Result<Ran, SessionError> {
    let Some(first) = files.first() else { return Ok(Ran::default()) };
    let once = |options: &RunOptions, out: Option<&mut (dyn Write + Send)>| {
        let job = Job::new(first, NOT_OPEN, function, args, options);
        let written = out.is_some();
        let mut sources = Vec::with_capacity(files.len());
        let refused = files.iter().find_map(|file| {
            let found = local::source(file, options.part(), function, args, options);
            found.map(|(source, _)| sources.push(source)).err()
        });
        let ran = match refused {
            None => run_over_sources(&job, sources, 0, out),
            // Its turn comes after those before it, as where each file is a call of its own.
            Some(refused) if !sources.is_empty() => {
                run_over_sources(&job, sources, 0, out.filter(|_| !folds)).and(Err(refused))
            }
            Some(refused) => Err(refused),
        };
        let done = ran.map_err(|error| match &error {
            SessionError::Call(CallError::Read { source_index, .. }) if is_change(&error) => {
                SessionError::Changed(files[*source_index as usize].inner.name.clone())
            }
            _ => error,
        })?;
        job.gather(vec![done], None, written)
    };
    if !files.iter().all(|file| matches!(&file.inner.place, Place::Local { path, .. } if path.is_file())) {
        return once(options, out);
    }
    let mut again = Again::new(first, function, options, out)?;
    loop {
        let (options, out, _) = again.parts();
        let ran = once(options, out);
        if let Some(ran) = run_here(again.or_another(ran))? {
            return Ok(ran);
        }
    }
}

/// Where a run over one short file is to be, of which one request does all, and before which nothing is waited for; `None`: it is
/// not such a run, or finding out may take long.
fn decide_short(files: &[File], function: &SessionFunction, args: &[u8], options: &RunOptions) -> Option<Decided> {
    let [file] = files else { return None };
    let is_one = options.chunks.is_none() && group::is_asked_for_by_path(files, options);
    let link = file.inner.place.link().filter(|_| is_one)?;
    let is_ready = !link.is_lost() && link.has_program(function) && !link.asks_for_turns();
    if !is_ready || options.check_cancelled(file).is_err() || options.pieces(function, args).is_err() {
        return None;
    }
    run_here(group::decide(&mut Job::new(file, NOT_OPEN, function, args, options), files)).ok()
}

/// Sends it from the thread that asks for it, if it runs at the device: beginning a thread may take longer than the run. What
/// runs on this side, and what goes wrong, continues in a thread.
fn run_short(
    session: Session,
    files: Vec<File>,
    function: SessionFunction,
    args: Vec<u8>,
    own: Cancellable,
    decided: Decided,
) -> Pending<Ran> {
    let started = Instant::now();
    if decided.side() == Side::Host {
        let first = Some(First::Decided(decided));
        return own
            .run(move |options| async move { session.run_to(&files, &function, &args, &options, None, first).await });
    }
    let job = |options| decided.job(Job::new(&files[0], NOT_OPEN, &function, &args, options));
    let Some(turns) = files[0].inner.place.link().map(|link| Arc::clone(link.short_runs())) else {
        unreachable!("what runs at a device has a link")
    };
    // Others have their turn first if there are many.
    let sent = turns.clone().try_acquire_owned().map(|turn| (turn, device::send_paths(&job(own.options()), &files)));
    own.run(move |options| async move {
        let cancel = options.limits.cancel.as_ref();
        let cancelled = || SessionError::Cancelled(files[0].inner.name.clone());
        let (turn, sent) = match sent {
            Ok(sent) => sent,
            Err(_) => {
                let turn = Patience::none(cancel).answer(turns.acquire_owned()).await.ok_or_else(cancelled)?;
                let job = decided.job(Job::new(&files[0], NOT_OPEN, &function, &args, &options));
                (turn.expect("nobody closes it"), device::send_paths(&job, &files))
            }
        };
        let outcome = match sent {
            Ok(mut sent) => {
                let outcome = Patience::new(cancel).answer(&mut sent.call).await.ok_or_else(cancelled)?;
                let job = decided.job(Job::new(&files[0], NOT_OPEN, &function, &args, &options));
                device::take_paths(&job, &files, outcome)
                    .and_then(|done| group::gather(&job, &files, done, decided.decision, false))
            }
            Err(error) => Err(error),
        };
        drop(turn);
        let error = match outcome {
            Ok(ran) => return Ok(Ran { total: started.elapsed(), ..ran }),
            Err(error) => error,
        };
        let mut options = options;
        if let Some(deadline) = &mut options.limits.deadline {
            *deadline = deadline.saturating_sub(started.elapsed());
        }
        let first = Some(First::Failed(error));
        session.run_to(&files, &function, &args, &options, None, first).await
    })
}

/// For a function whose output is sent before all files are looked at.
const HEADER_AMONG_MANY: &str =
    "it has a NumPy header: name such files apart from the others, or use --header none, which gives all bytes of each";

/// Counts what is written.
pub(super) struct Counted<'w> {
    out: &'w mut (dyn Write + Send),
    pub(super) len_bytes: u64,
}

impl<'w> Counted<'w> {
    pub(super) fn new(out: &'w mut (dyn Write + Send)) -> Self {
        Self { out, len_bytes: 0 }
    }
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

/// Runs over each file on one of a few threads; with `out` the results are written there in the order of the files. A
/// failure ends the files behind it: they are not begun, or stopped. Files before it continue, for the first of several
/// failures is the one that is reported, as by one call over all of them. Gives the results of the files before it, and
/// it.
fn at_once(
    files: &[File],
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    frames: bool,
    out: Option<&mut (dyn Write + Send)>,
) -> (Vec<Ran>, Option<SessionError>) {
    let stops: Vec<CancelToken> = files.iter().map(|_| CancelToken::new()).collect();
    let own = stops.clone();
    let _watch = options
        .limits
        .cancel
        .as_ref()
        .map(|outer| outer.when_cancelled(move || own.iter().for_each(CancelToken::cancel)));
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<Ran, SessionError>>>> = Mutex::new(files.iter().map(|_| None).collect());
    let turns = out.map(Turns::new);
    let work = || {
        while let Some((at, file)) = take(&next, files) {
            let input = input_of(file, at, options, frames);
            let mut options = options.clone();
            options.limits.cancel = Some(stops[at].clone());
            let mut out = turns.as_ref().map(|turns| turns.writer(at, &stops[at]));
            let mut ran = run_here(read(&input, function, args, &options, out.as_mut().map(|out| out as _)));
            file.close_late();
            if ran.is_err() {
                next.store(files.len(), Ordering::Relaxed);
                stops[at + 1..].iter().for_each(CancelToken::cancel);
            }
            // The result before its failure is written in its turn, which then nobody else has.
            let ended = out.map(|out| if ran.is_ok() { out.finish() } else { out.end() });
            if let (Ok(_), Some(Err(error))) = (&ran, ended) {
                next.store(files.len(), Ordering::Relaxed);
                stops[at..].iter().for_each(CancelToken::cancel);
                ran = Err(CallError::Write(error).into());
            }
            results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(ran);
        }
    };
    // The state of a function goes from each file to the next.
    let threads = if options.state.is_some() { 1 } else { files.len().min(AT_ONCE) };
    match threads {
        // The caller's thread does as well, and need not be woken.
        1 => work(),
        threads => std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work)))),
    }
    // Without a failure all were begun, and with one collecting ends at it.
    let mut parts = Vec::with_capacity(files.len());
    for ran in results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten() {
        match ran {
            Ok(ran) => parts.push(ran),
            Err(error) => return (parts, Some(error)),
        }
    }
    (parts, None)
}

/// The results of a file before the piece on which the function failed. One call over all files had folded those
/// already: had the fold failed, then that would be the error.
async fn before_failure(
    mut input: Input,
    failed: &SessionError,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Option<Ran> {
    let end = failed.offset()?;
    input.part.end = (function.is_pure() && end > input.part.start).then_some(end);
    input.part.end?;
    read(&input, function, args, options, None).await.ok()
}

/// A file, as one of several that a function runs over.
fn input_of(file: &File, index: usize, options: &RunOptions, frames: bool) -> Input {
    Input { file: file.clone(), part: options.part(), source_index: index as u32, frames }
}

fn take<'f>(next: &AtomicUsize, files: &'f [File]) -> Option<(usize, &'f File)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, files.get(at)?))
}
