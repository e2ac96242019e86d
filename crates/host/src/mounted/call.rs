//! Functions over files of a mounted volume, run by the volume's target.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diskside_io::buffer::Buffer;
use diskside_io::request::block_on;
use diskside_layout::{Layout, Reason, Refusal};
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::function::{
    Endpoint, EndpointKind, FunctionRequest, LAYOUT_RUNS_MAX, LayoutAction, LayoutRequest, LayoutRun, Outcome,
};

use super::MountedFile;
use crate::function::{CallOutcome, Compute, FunctionError};
use crate::job::{Command, CommandData};

/// Runs functions over a mounted file at its target. The target is told where the file is when that changes.
#[derive(Debug)]
pub struct MountedCalls {
    file: Arc<MountedFile>,
    compute: Compute,
    /// The target's name for the file.
    id: u32,
    /// What the target knows. Held during a call whose layout may be replaced by another's.
    sent: Mutex<Sent>,
}

#[derive(Debug, Default)]
struct Sent {
    layout: Option<Arc<Layout>>,
    generation: u64,
}

/// Why a function did not end well at the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountedError {
    /// It has to run here, over the file as it is.
    #[error(transparent)]
    Plain(#[from] Refusal),
    /// It failed on the file's own bytes: anywhere else it would fail as well.
    #[error(transparent)]
    Function(FunctionError),
}

impl MountedCalls {
    /// Calls by `compute`, which must be of the volume's subsystem.
    ///
    /// # Errors
    /// [`Reason::OtherVolume`].
    pub fn new(file: &Arc<MountedFile>, compute: &Compute) -> Result<Self, Refusal> {
        let subsystems = [file.volume().connection(), compute.connection()].map(|c| c.controller().subsystem);
        if subsystems[0] != subsystems[1] {
            return Err(Refusal::new(Reason::OtherVolume, format!("functions run at {}", subsystems[1].as_str())));
        }
        // Layouts belong to a host, which may have several processes.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed)) as u32;
        Ok(Self { file: Arc::clone(file), compute: compute.clone(), id, sent: Mutex::default() })
    }

    /// Runs a request over a range of the file. The request's sources are filled in.
    ///
    /// # Errors
    /// Why the function has to run here, or how it failed.
    pub fn pread_fn(&self, request: &FunctionRequest, range: Range<u64>) -> Result<CallOutcome, MountedError> {
        let patience = diskside_sys::lease::break_time() / 2;
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let mut request = request.clone();
        // A result that comes when the kernel has lost its patience is thrown away.
        request.deadline_ms = if request.deadline_ms == 0 { patience_ms } else { request.deadline_ms.min(patience_ms) };
        // All of the file: a function reads past its range to finish its last record.
        let outcome = self.file.prove(0..u64::MAX, |ticket| {
            let sent = self.tell(ticket.layout())?;
            let endpoint = Endpoint::new(EndpointKind::Layout(self.id), range.start, range.end - range.start);
            request.sources = vec![Endpoint { generation: sent.generation, ..endpoint }];
            match block_on(self.compute.call(&request)) {
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

    /// Makes sure that the target has this layout.
    fn tell(&self, layout: &Arc<Layout>) -> Result<MutexGuard<'_, Sent>, Refusal> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.layout.as_ref().is_some_and(|known| Arc::ptr_eq(known, layout)) {
            return Ok(sent);
        }
        sent.layout = None;
        sent.generation += 1;
        let runs =
            layout.runs.iter().map(|run| LayoutRun { logical: run.logical, physical: run.physical, len: run.len });
        let runs: Vec<LayoutRun> = runs.collect();
        let mut parts = runs.chunks(LAYOUT_RUNS_MAX);
        self.send(LayoutAction::Set, sent.generation, layout.len, parts.next().unwrap_or_default())?;
        for part in parts {
            self.send(LayoutAction::Append, sent.generation, layout.len, part)?;
        }
        sent.layout = Some(Arc::clone(layout));
        Ok(sent)
    }

    fn send(&self, action: LayoutAction, generation: u64, file_len: u64, runs: &[LayoutRun]) -> Result<(), Refusal> {
        let nsid = self.file.volume().nsid();
        let bytes = LayoutRequest { action, id: self.id, nsid, generation, file_len, runs: runs.to_vec() }.encode();
        let sqe = Sqe::layout_send(self.compute.nsid(), bytes.len() as u32);
        let data = CommandData::Send(Buffer::copy_of(&bytes));
        let command = Command { sqe, data, timeout: None, repeatable: true };
        let connection = self.compute.connection();
        let outcome = block_on(connection.command_on(connection.lane(), command));
        outcome.result.map(drop).map_err(|e| Refusal::failed("sending a layout", std::io::Error::other(e)))
    }
}

impl Drop for MountedCalls {
    fn drop(&mut self) {
        let generation = self.sent.get_mut().unwrap_or_else(PoisonError::into_inner).generation;
        if generation > 0 {
            // A target that does not hear it keeps a layout that nobody names.
            let _ = self.send(LayoutAction::Revoke, generation, 0, &[]);
        }
    }
}
