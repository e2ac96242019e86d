//! The layouts of files that a target gets.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diskside_io::buffer::Buffer;
use diskside_io::request::block_on;
use diskside_layout::{Layout, Reason, Refusal};
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, LAYOUT_RUNS_MAX, LayoutAction, LayoutRequest, LayoutRun,
};

use crate::function::Compute;
use crate::job::{Command, CommandData, CommandOutcome};
use crate::volume::Volume;

/// A file, as a target knows it: by an id of ours, and generations of its layout.
#[derive(Debug)]
pub(super) struct PlaceAtTarget {
    compute: Compute,
    /// The volume's namespace ID.
    nsid: u32,
    id: u32,
    sent: Mutex<Sent>,
}

/// What the target knows.
#[derive(Debug, Default)]
struct Sent {
    generation: u64,
    /// `None`: nothing of this generation.
    known: Option<(u64, Vec<LayoutRun>)>,
}

impl PlaceAtTarget {
    /// For functions that run by `compute`, which must be of the volume's subsystem.
    ///
    /// # Errors
    /// [`Reason::OtherVolume`].
    pub(super) fn new(volume: &Volume, compute: &Compute) -> Result<Self, Refusal> {
        let subsystems = [volume.connection(), compute.connection()].map(|c| c.controller().subsystem);
        if subsystems[0] != subsystems[1] {
            return Err(Refusal::new(Reason::OtherVolume, format!("functions run at {}", subsystems[1].as_str())));
        }
        // Layouts belong to a host, which may have several processes.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed)) as u32;
        Ok(Self { compute: compute.clone(), nsid: volume.nsid(), id, sent: Mutex::default() })
    }

    pub(super) fn compute(&self) -> &Compute {
        &self.compute
    }

    /// Makes sure that the target has this layout, and names it in a call.
    pub(super) fn endpoint(&self, layout: &Layout, offset: u64, len: u64) -> Result<Endpoint, Refusal> {
        let generation = self.tell(layout)?;
        Ok(Endpoint { generation, ..Endpoint::new(EndpointKind::Layout(self.id), offset, len) })
    }

    /// The generation by which the target has this layout. Another thread may tell of a later one: then the file has
    /// changed, and calls by this one end as stale.
    fn tell(&self, layout: &Layout) -> Result<u64, Refusal> {
        let mut sent = self.lock();
        let same = |run: &LayoutRun, wanted: &diskside_layout::Run| {
            (run.logical, run.physical, run.len) == (wanted.logical, wanted.physical, wanted.len)
        };
        if let Some((len, runs)) = &sent.known
            && *len == layout.len
            && runs.len() == layout.runs.len()
            && runs.iter().zip(&layout.runs).all(|(run, wanted)| same(run, wanted))
        {
            return Ok(sent.generation);
        }
        sent.known = None;
        sent.generation += 1;
        let runs =
            layout.runs.iter().map(|run| LayoutRun { logical: run.logical, physical: run.physical, len: run.len });
        let runs: Vec<LayoutRun> = runs.collect();
        let mut parts = runs.chunks(LAYOUT_RUNS_MAX);
        let generation = sent.generation;
        self.send(LayoutAction::Set, generation, layout.len, parts.next().unwrap_or_default())?;
        for part in parts {
            self.send(LayoutAction::Append, generation, layout.len, part)?;
        }
        sent.known = Some((layout.len, runs));
        Ok(generation)
    }

    /// Makes the target forget the file. True: no call uses what it knew any more. False: some did until now.
    pub(super) fn revoke(&self, patience: Duration) -> Result<bool, Refusal> {
        let mut sent = self.lock();
        sent.known = None;
        if sent.generation == 0 {
            return Ok(true);
        }
        let timeout_ms = self.compute.wait_ms(u32::try_from(patience.as_millis()).unwrap_or(u32::MAX));
        let answer = self.command(LayoutAction::Revoke, sent.generation, 0, &[], timeout_ms);
        let answer = answer.result.map_err(|e| Refusal::failed("revoking a layout", std::io::Error::other(e)))?;
        Ok(answer.result as u32 == 0)
    }

    fn send(&self, action: LayoutAction, generation: u64, file_len: u64, runs: &[LayoutRun]) -> Result<(), Refusal> {
        let outcome = self.command(action, generation, file_len, runs, 0);
        outcome.result.map(drop).map_err(|e| Refusal::failed("sending a layout", std::io::Error::other(e)))
    }

    fn command(
        &self,
        action: LayoutAction,
        generation: u64,
        file_len: u64,
        runs: &[LayoutRun],
        timeout_ms: u32,
    ) -> CommandOutcome {
        let request = LayoutRequest { action, id: self.id, nsid: self.nsid, generation, file_len, runs: runs.to_vec() };
        let bytes = request.encode();
        let sqe = Sqe::layout_send(self.compute.nsid(), bytes.len() as u32).with_function_timeout_ms(timeout_ms);
        let data = CommandData::Send(Buffer::copy_of(&bytes));
        let command = Command { sqe, data, timeout: None, repeatable: true };
        let connection = self.compute.connection();
        block_on(connection.command_on(connection.lane(), command))
    }

    fn lock(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PlaceAtTarget {
    fn drop(&mut self) {
        // A target that does not hear it keeps a layout that nobody names.
        let _ = self.revoke(Duration::from_millis(1));
    }
}
