//! Functions that run often over one short range: prepared once, then one command for each call.

use super::device::{output_len_max, over_file, read_request};
use super::group::check_no_chunks;
use super::job::{Input, Job};
use super::part::InputPart;
use super::retry::has_anew;
use super::{RunOptions, Where, mounted, read_copy};
use crate::session::error::SessionError;
use crate::session::file::{File, range_of};
use crate::session::function::SessionFunction;
use crate::session::link::LoadedProgram;
use crate::session::pending::Pending;
use crate::session::place::{Place, is_lost_program, is_stale_handle};
use diskside_dispatch::Side;
use diskside_host::drive;
use diskside_host::function::{FunctionError, Prepared as PreparedCall};
use diskside_io::request::run_here;
use diskside_nvme::Status;
use diskside_wire::function::{CALL_ARGS_LEN_MAX, Outcome};
use std::ops::{Range, RangeBounds};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A function over a range of a file, ready to be called often: [`File::prepare`]. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Prepared {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    input: Input,
    range: Range<u64>,
    function: SessionFunction,
    args: Vec<u8>,
    options: RunOptions,
    /// The longest result.
    len_max: u32,
    /// At a target. Obtained again when that has forgotten it.
    at_target: Option<Mutex<AtTarget>>,
    /// Length of the last result: a call that asks for exactly so many bytes costs the least.
    len_last: AtomicU32,
}

/// A request that was prepared at a target, where its program stays as long as this is there.
#[derive(Clone, Debug)]
struct AtTarget {
    call: PreparedCall,
    _program: Arc<LoadedProgram>,
}

/// The longest result of a prepared call: room for it travels with each.
const RESULT_LEN_MAX: u64 = 256 << 10;
/// No result was seen yet.
const UNKNOWN: u32 = u32::MAX;

impl File {
    /// Prepares a function to run often over one short range: the target keeps the request, the file open and the program
    /// found, so each [`call`](Prepared::call) is one command.
    ///
    /// It runs at the device, unless the caller says host or the file is here: there is nothing to choose by measuring for
    /// calls that take less than that. Its result may have 256 KiB; over a volume in memory, a short range runs without a
    /// thread. The file may change between calls: each sees it as it is then.
    pub fn prepare(
        &self,
        range: impl RangeBounds<u64>,
        function: &SessionFunction,
        args: &[u8],
        options: &RunOptions,
    ) -> Result<Prepared, SessionError> {
        check_no_chunks(self, options)?;
        let (start, end) = range_of(range);
        let file = &run_here(options.tries().file(self))?;
        let inner = &file.inner;
        let now = run_here(inner.place.now(&inner.session, &inner.name))?;
        let range = start..end.unwrap_or(now.len_bytes).max(start);
        if range.end > now.len_bytes {
            let (name, len) = (inner.name.clone(), now.len_bytes);
            return Err(SessionError::OutOfRange { name, start: range.start, end: range.end, len });
        }
        let unsupported = |why| SessionError::Unsupported { name: inner.name.clone(), why };
        // A caller that insists on a device gets an error where there is none.
        if options.place == Where::Device && mounted(file, function, options)?.0.is_some() {
            return Err(unsupported(
                "calls over files of mounted volumes are proved one by one: they cannot be prepared",
            ));
        }
        let len_max = output_len_max(function, options, range.end - range.start).max(1);
        let len_max = len_max.min(options.limits.result_len_max as u64);
        let is_here = options.place == Where::Host || matches!(inner.place, Place::Local { .. });
        if !is_here && len_max > RESULT_LEN_MAX {
            return Err(unsupported(
                "a prepared call gives back 256 KiB at most: prepare it over a shorter range, or limit its result \
                 (RunOptions::limits)",
            ));
        }
        let part = InputPart { start: range.start, end: Some(range.end) };
        let input = Input { file: file.clone(), part, source_index: 0, frames: false };
        let mut prepared = Inner {
            input,
            range,
            function: function.clone(),
            args: args.to_vec(),
            options: options.clone(),
            len_max: u32::try_from(len_max).unwrap_or(u32::MAX),
            at_target: None,
            len_last: AtomicU32::new(UNKNOWN),
        };
        if is_here {
            prepared.options.place = Where::Host;
        } else {
            prepared.at_target = Some(Mutex::new(run_here(prepared.at_target(file))?));
        }
        Ok(Prepared { inner: Arc::new(prepared) })
    }
}

impl Prepared {
    /// Where it runs.
    #[must_use]
    pub fn side(&self) -> Side {
        if self.inner.at_target.is_some() { Side::Device } else { Side::Host }
    }

    /// Runs it and gives its result. `args`, up to 16 bytes, take the place of the first of those that it was prepared with.
    ///
    /// At a target it ends within ten seconds by itself; cancelling it there does nothing.
    pub fn call(&self, args: &[u8]) -> Pending<Vec<u8>> {
        let this = Arc::clone(&self.inner);
        let mut all = this.args.clone();
        let len = args.len().min(all.len());
        if args.len() > CALL_ARGS_LEN_MAX || args.len() > all.len() {
            let why = "a call's own arguments are 16 bytes at most, and no more than were prepared";
            let error = SessionError::Unsupported { name: this.input.file.inner.name.clone(), why };
            return Pending::of(drive(async move { Err(error) }));
        }
        all[..len].copy_from_slice(args);
        if this.at_target.is_some() {
            let args = args.to_vec();
            return Pending::of(drive(async move { this.call_target(&args).await }));
        }
        let options = this.options.clone();
        Pending::run(&options, move |options| async move {
            let Input { file, part, .. } = &this.input;
            Ok(read_copy(file, *part, &this.function, &all, &options).await?.result)
        })
    }
}

impl Inner {
    async fn at_target(&self, file: &File) -> Result<AtTarget, SessionError> {
        let Some(link) = file.inner.place.link() else { unreachable!("a file that is here runs here") };
        let now = file.inner.place.now(&file.inner.session, &file.inner.name).await?;
        let (function, args, options) = (&self.function, &self.args[..], &self.options);
        let program = link.program(function).await?;
        let job = Job { program: Some(Arc::clone(&program)), ..Job::new(file, now, function, args, options) };
        let request = read_request(&job, &self.range).await?;
        let call = link.compute()?.prepare_soon(&request).await.map_err(|error| self.failed(error))?;
        Ok(AtTarget { call, _program: program })
    }

    async fn call_target(&self, args: &[u8]) -> Result<Vec<u8>, SessionError> {
        let at_target = self.known();
        let len = match self.len_last.load(Ordering::Relaxed) {
            // A function with effects must not run once more because its result was longer than the last one.
            last if last <= self.len_max && self.function.is_pure() => last,
            _ => self.len_max,
        };
        match at_target.call.call(args, len).await {
            Err(error) if is_full(&error) && len < self.len_max => {
                self.take(at_target.call.call(args, self.len_max).await)
            }
            Err(error) if self.is_forgotten(&error) => self.begin_again(args).await,
            outcome => self.take(outcome),
        }
    }

    fn take(
        &self,
        outcome: Result<diskside_host::function::CallOutcome, FunctionError>,
    ) -> Result<Vec<u8>, SessionError> {
        let result = outcome.map_err(|error| self.failed(error))?.result;
        self.len_last.store(result.len() as u32, Ordering::Relaxed);
        Ok(result)
    }

    /// Prepares it again, and calls it.
    async fn begin_again(&self, args: &[u8]) -> Result<Vec<u8>, SessionError> {
        if self.input.file.copied.is_some() {
            return self.call_copy(args).await;
        }
        let place = &self.input.file.inner.place;
        if let Some(link) = place.link() {
            link.forget_programs();
        }
        if let Place::Export(remote) = place {
            remote.reopen().await.map_err(|error| self.failed(error))?;
        }
        self.prepare_and_call(&self.input.file, args).await
    }

    /// At one of several servers that answers now.
    async fn call_copy(&self, args: &[u8]) -> Result<Vec<u8>, SessionError> {
        let (mut tries, mut is_anew) = (self.options.tries(), false);
        loop {
            let file = tries.file(&self.input.file).await?;
            let error = match self.prepare_and_call(&file, args).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if !is_anew && has_anew(&file, &error).await.unwrap_or(false) {
                is_anew = true;
            } else if !self.function.is_pure() {
                return Err(error);
            } else {
                tries.go_on(&[file], error)?;
            }
        }
    }

    async fn prepare_and_call(&self, file: &File, args: &[u8]) -> Result<Vec<u8>, SessionError> {
        let at_target = self.at_target(file).await?;
        if let Some(known) = &self.at_target {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = at_target.clone();
        }
        self.take(at_target.call.call(args, self.len_max).await)
    }

    fn known(&self) -> AtTarget {
        let known = self.at_target.as_ref().expect("a call at a target is prepared there");
        known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The target has forgotten it, as it does when its host was away; nothing of the call ran, or it may run again.
    fn is_forgotten(&self, error: &FunctionError) -> bool {
        error.is_status(Status::UNKNOWN_HANDLE)
            || is_lost_program(error)
            || is_stale_handle(error)
            || (error.is_loss() && self.function.is_pure())
    }

    fn failed(&self, error: FunctionError) -> SessionError {
        over_file(&self.input.file, error)
    }
}

fn is_full(error: &FunctionError) -> bool {
    error.trailer().is_some_and(|trailer| trailer.outcome == Outcome::OutputFull)
        || error.is_status(Status::FUNCTION_FAILED)
}
