//! Output of functions into files of a mounted volume, written by the volume's target.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diskside_io::buffer::Buffer;
use diskside_io::request::run_here;
use diskside_layout::{
    Counters, OpenFile, Reason, Refusal, WriteGuard, WriteGuardConfig, WriteTicket, admit, watched_writer,
};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, Trailer};

use super::call::MountedError;
use super::place::PlaceAtTarget;
use super::{MountedOptions, check_volume};
use crate::function::{CallHandle, CallOutcome, Compute, FunctionError, ResultStream};
use crate::volume::Volume;

/// Output of at most this length comes back and is written here: that costs less than making the page cache release the
/// file, and needs no proof.
pub const RETURNED_LEN_MAX: u64 = 1 << 20;
/// Why the volume writes nothing through a descriptor that the program has.
const OWN_DESCRIPTOR: &str =
    "by the program's own descriptor, through which it could cut the file while the volume writes it";
/// How long a Revoke waits at the target before it is sent again.
const REVOKE_PATIENCE: Duration = Duration::from_secs(1);

/// A file on a mounted volume, open for reading and writing, into which the volume's target writes.
///
/// It must be the only one who has the file open: this handle is for writing, and is closed before the file is read by
/// another. The caller writes nothing to a range while a request for it is under way.
#[derive(Debug)]
pub struct MountedWriter {
    guard: WriteGuard<OpenFile>,
    place: PlaceAtTarget,
    counters: Arc<Counters>,
    /// Whether nobody else has the descriptor.
    alone: bool,
}

/// How output was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteWay {
    /// By the volume, past the file system.
    Volume,
    /// It came back and went through the file system.
    Returned,
}

/// A function whose output is in the file.
#[derive(Clone, Debug)]
pub struct FunctionWritten {
    /// Length of the output.
    pub len_bytes: u64,
    /// How it was written.
    pub way: WriteWay,
    /// What the target says of the call.
    pub outcome: CallOutcome,
}

impl MountedWriter {
    /// Opens a file of `volume`, for functions that run by `compute`, which must be of the volume's subsystem.
    ///
    /// # Errors
    /// Why its bytes cannot be written at the volume. The caller continues with the file as it is.
    pub fn open(path: &Path, volume: &Volume, compute: &Compute, options: &MountedOptions) -> Result<Self, Refusal> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| Refusal::failed(&path.display().to_string(), e))?;
        Self::of(file, true, volume, compute, options)
    }

    /// The file behind a descriptor, of which this is a duplicate. Functions run at the target, but nothing is written
    /// there: no lease keeps the program from cutting the file by its own descriptor, and what the volume wrote then would
    /// be in another file's blocks.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn of_duplicate(
        file: File,
        volume: &Volume,
        compute: &Compute,
        options: &MountedOptions,
    ) -> Result<Self, Refusal> {
        Self::of(file, false, volume, compute, options)
    }

    fn of(
        file: File,
        alone: bool,
        volume: &Volume,
        compute: &Compute,
        options: &MountedOptions,
    ) -> Result<Self, Refusal> {
        let admitted = admit(&file)?;
        check_volume(&admitted, volume)?;
        let place = PlaceAtTarget::new(volume, compute)?;
        let config = WriteGuardConfig {
            place: admitted.place,
            extents_max: options.extents_max,
            patience: diskside_sys::lease::break_time(),
        };
        let guard =
            watched_writer(file, config).map_err(|e| Refusal::failed("the thread that answers breaks of leases", e))?;
        Ok(Self { guard, place, counters: Arc::clone(&options.counters), alone })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        self.guard.ops().file()
    }

    /// Who vouches for the file's blocks.
    pub fn guard(&self) -> &WriteGuard<OpenFile> {
        &self.guard
    }

    /// What became of requests.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Runs a request whose output, `len_max` bytes at most, is written to the file from `offset` on. `input` is its
    /// source, unless the request has others. With `durable` the output is on stable media in the end.
    ///
    /// The target may write only what is there before: a longer output, holes, and blocks that are shared or were never
    /// written are refused. Output of [`RETURNED_LEN_MAX`] at most comes back and is written here, wherever it goes.
    ///
    /// # Errors
    /// Why the function has to run here, or how it failed. Then, as with any write that fails, some may be written.
    pub fn pwrite_fn(
        &self,
        request: &FunctionRequest,
        input: Vec<Buffer>,
        offset: u64,
        len_max: u64,
        durable: bool,
    ) -> Result<FunctionWritten, MountedError> {
        self.pwrite_fn_with(request, input, offset, len_max, durable, &mut |_| ())
    }

    /// [`pwrite_fn`](Self::pwrite_fn); `begun` is given what cancels the call.
    ///
    /// # Errors
    /// As there; of a call that was cancelled so, the function's.
    pub fn pwrite_fn_with(
        &self,
        request: &FunctionRequest,
        input: Vec<Buffer>,
        offset: u64,
        len_max: u64,
        durable: bool,
        begun: &mut dyn FnMut(CallHandle),
    ) -> Result<FunctionWritten, MountedError> {
        let mut request = request.clone();
        if request.sources.is_empty() {
            request.sources = vec![Endpoint::whole(EndpointKind::HostStream)];
        }
        if len_max <= RETURNED_LEN_MAX {
            return self.returned(request, input, offset, len_max, durable, begun);
        }
        let written = self.at_volume(request, input, offset, len_max, durable, begun);
        match &written {
            Ok(_) => self.counters.note_at_volume(),
            Err(MountedError::Plain(refusal) | MountedError::Undone(refusal)) => {
                self.counters.note_plain(refusal.reason);
            }
            Err(_) => {}
        }
        written
    }

    /// The output comes back, and is written as any other bytes.
    fn returned(
        &self,
        mut request: FunctionRequest,
        input: Vec<Buffer>,
        offset: u64,
        len_max: u64,
        durable: bool,
        begun: &mut dyn FnMut(CallHandle),
    ) -> Result<FunctionWritten, MountedError> {
        request.kind = FunctionKind::Read;
        request.sinks.clear();
        request.result_len_max = len_max.max(1);
        let call = self.place.compute().call_with(&request, input);
        call.handle().into_iter().for_each(begun);
        let mut outcome = call.wait().map_err(MountedError::Function)?;
        let output = std::mem::take(&mut outcome.result);
        self.file().write_all_at(&output, offset).map_err(MountedError::File)?;
        if durable {
            self.file().sync_all().map_err(MountedError::File)?;
        }
        Ok(FunctionWritten { len_bytes: output.len() as u64, way: WriteWay::Returned, outcome })
    }

    fn at_volume(
        &self,
        mut request: FunctionRequest,
        input: Vec<Buffer>,
        offset: u64,
        len_max: u64,
        durable: bool,
        begun: &mut dyn FnMut(CallHandle),
    ) -> Result<FunctionWritten, MountedError> {
        if !self.alone {
            return Err(Refusal::new(Reason::Opened, OWN_DESCRIPTOR).into());
        }
        let ticket = self.guard.begin(offset..offset.saturating_add(len_max))?;
        // Writes under way when the kernel gives the file to someone else must have ended at the target itself.
        let time_left_ms = u32::try_from(ticket.time_left().as_millis()).unwrap_or(u32::MAX).max(1);
        let is_ours = request.deadline_ms == 0 || request.deadline_ms > time_left_ms;
        request.deadline_ms = if is_ours { time_left_ms } else { request.deadline_ms };
        request.kind = FunctionKind::Write;
        request.sinks = vec![Endpoint { durable, ..self.place.endpoint(ticket.layout(), offset, len_max)? }];
        let compute = self.place.compute();
        let stream = compute.stream(&request, input).map_err(MountedError::Function)?;
        begun(stream.handle());
        let (call, is_wanted) = (stream.handle(), Arc::new(AtomicBool::new(false)));
        let wanted = Arc::clone(&is_wanted);
        ticket.when_wanted(move || {
            wanted.store(true, Ordering::Relaxed);
            call.cancel();
        });
        let ended = end_of(stream);
        let fenced = match &ended {
            // The trailer comes when nothing is written any more.
            Ok(_) | Err(FunctionError::Failed(_)) => Ok(()),
            Err(_) => self.fence(&ticket),
        };
        // Also after a failure: what was written is to be seen.
        let finished = fenced.and_then(|()| ticket.finish());
        let outcome = match (ended, finished) {
            (Ok(outcome), Ok(())) => outcome,
            (_, Err(refusal)) => return Err(MountedError::Undone(refusal)),
            (Err(error), Ok(())) => return Err(of_error(error, is_ours, is_wanted.load(Ordering::Relaxed))),
        };
        if durable {
            // Its times; and the data once more, should the volume not have done it.
            self.file().sync_all().map_err(MountedError::File)?;
        }
        Ok(FunctionWritten { len_bytes: outcome.trailer.media_written, way: WriteWay::Volume, outcome })
    }

    /// The call's end is not known: its connection was lost, for instance. Waits until nothing is written any more: the
    /// target says so, or the kernel would give the file away.
    fn fence(&self, ticket: &WriteTicket<OpenFile>) -> Result<(), Refusal> {
        loop {
            let revoked = self.place.revoke(REVOKE_PATIENCE);
            match revoked {
                Ok(true) => return Ok(()),
                // Most of the time was for waiting; an error may come at once.
                Ok(false) => {}
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            if ticket.time_held().is_zero() {
                let found = "the target did not say that it has stopped writing";
                return Err(Refusal { found: found.into(), ..revoked.err().unwrap_or(Reason::Failed.into()) });
            }
        }
    }
}

/// The end of a call: all its output is with the target.
fn end_of(mut stream: ResultStream) -> Result<CallOutcome, FunctionError> {
    let started = std::time::Instant::now();
    while run_here(stream.next())?.is_some() {}
    let trailer = stream.trailer().cloned().unwrap_or_default();
    Ok(CallOutcome { result: Vec::new(), trailer, total: started.elapsed(), wire_bytes: stream.wire_bytes() })
}

/// A call that was stopped, or that failed.
fn of_error(error: FunctionError, deadline_is_ours: bool, is_wanted: bool) -> MountedError {
    let reason = match error.trailer() {
        Some(Trailer { outcome: Outcome::Stale, .. }) => Reason::Changed,
        // Else its caller did.
        Some(Trailer { outcome: Outcome::Cancelled, .. }) if is_wanted => Reason::LeaseBroken,
        Some(Trailer { outcome: Outcome::Deadline, .. }) if deadline_is_ours => Reason::Slow,
        None if error.is_loss() => {
            return MountedError::Undone(Refusal::failed("running a function at the target", io::Error::other(error)));
        }
        _ => return MountedError::Function(error),
    };
    MountedError::Undone(Refusal::new(reason, error.to_string()))
}
