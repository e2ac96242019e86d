//! Functions over files of a mounted volume, run by the volume's target.

use std::ops::Range;
use std::sync::Arc;

use diskside_layout::{OpenFile, Reason, Refusal, Ticket};
use diskside_wire::function::{Endpoint, FunctionRequest, Outcome};

use super::MountedFile;
use super::place::PlaceAtTarget;
use crate::function::{CallHandle, CallOutcome, Compute, FunctionError};

/// Runs functions over a mounted file at its target, which gets the file's layout when that changes.
#[derive(Debug)]
pub struct MountedCalls {
    file: Arc<MountedFile>,
    place: PlaceAtTarget,
}

/// Why a function did not end well at the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountedError {
    /// It has to run here, over the file as it is. Nothing was written.
    #[error(transparent)]
    Plain(#[from] Refusal),
    /// It ran, and what it wrote may not be all there: it has to run here, if it may run twice.
    #[error("its output has to be written once more: {0}")]
    Undone(#[source] Refusal),
    /// It failed on the file's own bytes: anywhere else it would fail as well.
    #[error(transparent)]
    Function(FunctionError),
    /// The file itself, written through its file system.
    #[error(transparent)]
    File(std::io::Error),
}

impl MountedCalls {
    /// Calls by `compute`, which must be of the volume's subsystem.
    ///
    /// # Errors
    /// [`Reason::OtherVolume`].
    pub fn new(file: &Arc<MountedFile>, compute: &Compute) -> Result<Self, Refusal> {
        Ok(Self { file: Arc::clone(file), place: PlaceAtTarget::new(file.volume(), compute)? })
    }

    /// The file.
    pub fn file(&self) -> &Arc<MountedFile> {
        &self.file
    }

    /// For a caller who sends a request himself, as a traversal: the whole file as its source. The result counts after
    /// [`Guard::finish`](diskside_layout::Guard::finish) of the ticket.
    ///
    /// # Errors
    /// Why the file has to be read the plain way.
    pub fn begin(&self) -> Result<(Ticket<OpenFile>, Endpoint), Refusal> {
        let ticket = self.file.guard().begin(0..u64::MAX)?;
        let endpoint = self.place.endpoint(ticket.layout(), 0, Endpoint::TO_END)?;
        Ok((ticket, endpoint))
    }

    /// Runs a request over a range of the file. The request's sources are filled in.
    ///
    /// # Errors
    /// Why the function has to run here, or how it failed.
    pub fn pread_fn(&self, request: &FunctionRequest, range: Range<u64>) -> Result<CallOutcome, MountedError> {
        self.pread_fn_with(request, range, &mut |_| ())
    }

    /// [`pread_fn`](Self::pread_fn); `begun` is given what cancels the call.
    ///
    /// # Errors
    /// As there.
    pub fn pread_fn_with(
        &self,
        request: &FunctionRequest,
        range: Range<u64>,
        begun: &mut dyn FnMut(CallHandle),
    ) -> Result<CallOutcome, MountedError> {
        let patience = diskside_sys::lease::break_time() / 2;
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let mut request = request.clone();
        // A result that comes when the kernel has lost its patience is thrown away.
        request.deadline_ms = if request.deadline_ms == 0 { patience_ms } else { request.deadline_ms.min(patience_ms) };
        // All of the file: a function reads past its range to finish its last record.
        let outcome = self.file.prove(0..u64::MAX, |ticket| {
            let len = range.end.saturating_sub(range.start);
            request.sources = vec![self.place.endpoint(ticket.layout(), range.start, len)?];
            let call = self.place.compute().call(&request);
            call.handle().into_iter().for_each(&mut *begun);
            match call.wait() {
                Ok(outcome) => Ok(Ok(outcome)),
                Err(FunctionError::Failed(trailer)) if trailer.outcome == Outcome::Stale => {
                    Err(Refusal::new(Reason::Changed, trailer.message.clone()))
                }
                // It counts only if the bytes were the file's.
                Err(error @ FunctionError::Failed(_)) => Ok(Err(error)),
                Err(error) => Err(Refusal::failed("running a function at the target", std::io::Error::other(error))),
            }
        })?;
        outcome.map_err(MountedError::Function)
    }
}
