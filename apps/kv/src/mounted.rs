//! Lookups over a store in a file of a mounted volume: the volume's target follows the pointers, under a lease of this
//! host; where the answer is not proved to be the file's, it is thrown away, asked for once more, and then found here.

use crate::error::KvError;
use crate::pushdown::{Function, LocalPushdown, Pushdown, Pushed};
use crate::remote::{INLINE_LEN, Key, load_all, tail, traverse_request};
use diskside::host::function::{Compute, Endpoint, FunctionError, Outcome, Prepared, Program};
use diskside::host::mounted::{
    Counters, MountedCalls, MountedFile, MountedOptions, Reason, Refusal, place_of, volume_urls,
};
use diskside::host::{ConnectOptions, Url, Volume};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;

/// Follows pointers at the target of the volume that a local file is on.
pub struct MountedPushdown {
    calls: MountedCalls,
    compute: Compute,
    programs: HashMap<Function, Program>,
    /// Requests that are one small command, and the generation of the file that they name.
    prepared: RefCell<Vec<(Key, u64, Prepared)>>,
    here: LocalPushdown,
    counters: Arc<Counters>,
}

/// Why a lookup did not end at the target.
enum Failure {
    /// It has to be made here.
    Refused(Refusal),
    /// The function failed on the file's own bytes.
    Failed(KvError),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl MountedPushdown {
    /// Over the file at `path`, which is on a volume that the kernel tells of.
    ///
    /// # Errors
    /// Why the volume's target cannot follow its pointers.
    pub fn new(path: &Path) -> Result<Self, Refusal> {
        let file = File::open(path).map_err(|e| Refusal::failed(&path.display().to_string(), e))?;
        let mut why = Refusal::from(Reason::UnknownDisk);
        for url in volume_urls(&place_of(&file)?)? {
            match Self::at(path, &url) {
                Ok(this) => return Ok(this),
                Err(refusal) => why = refusal,
            }
        }
        Err(why)
    }

    /// Over the file at `path`, which is on the volume at `url`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn at(path: &Path, url: &Url) -> Result<Self, Refusal> {
        let volume = Volume::connect(url, &ConnectOptions::default()).map_err(|e| failed(&url.to_string(), e))?;
        Self::over(path, &volume)
    }

    /// Over the file at `path`, which is on this volume.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(path: &Path, volume: &Volume) -> Result<Self, Refusal> {
        let compute = Compute::new(volume.connection()).map_err(|e| failed("functions", e))?;
        let options = MountedOptions::default();
        let file = Arc::new(MountedFile::open(path, volume, &options)?);
        let here = reopen(file.file()).map_err(|e| Refusal::failed(&path.display().to_string(), e))?;
        Ok(Self {
            calls: MountedCalls::new(&file, &compute)?,
            programs: load_all(&compute).map_err(|e| failed("functions", e))?,
            prepared: RefCell::default(),
            here: LocalPushdown::new(here).map_err(|e| failed("functions", e))?,
            counters: options.counters,
            compute,
        })
    }

    /// The file once more: the one that is open here, whatever its name is by now.
    ///
    /// # Errors
    /// What the system said.
    pub fn reopen(&self) -> std::io::Result<File> {
        reopen(self.calls.file().file())
    }

    /// What became of lookups.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    async fn follow(
        &self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        result_len: usize,
    ) -> Result<Vec<u8>, KvError> {
        let mut outcome = self.attempt(function, input, scratch_cap, result_len).await;
        if matches!(&outcome, Err(Failure::Refused(refusal)) if refusal.reason.passes()) {
            self.counters.note_retry();
            outcome = self.attempt(function, input, scratch_cap, result_len).await;
        }
        match outcome {
            Ok(result) => {
                self.counters.note_at_volume();
                Ok(result)
            }
            Err(Failure::Failed(error)) => Err(error),
            Err(Failure::Refused(refusal)) => {
                self.counters.note_plain(refusal.reason);
                self.here.call(function, input, scratch_cap, result_len).await
            }
        }
    }

    async fn attempt(
        &self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        result_len: usize,
    ) -> Result<Vec<u8>, Failure> {
        let (ticket, endpoint) = self.calls.begin()?;
        let called = match self.prepared(function, input, scratch_cap, endpoint) {
            Ok(Some(prepared)) => {
                let args = &input[..input.len().min(INLINE_LEN)];
                prepared.call(args, result_len as u32).await
            }
            Ok(None) => self.compute.call(&self.request(function, input, scratch_cap, endpoint)).await,
            Err(error) => Err(error),
        };
        let result = match called {
            Ok(outcome) => Ok(outcome.result),
            Err(FunctionError::Failed(trailer)) if trailer.outcome == Outcome::Stale => {
                return Err(Refusal::new(Reason::Changed, trailer.message.clone()).into());
            }
            // It counts only if the bytes were the file's.
            Err(error @ FunctionError::Failed(_)) => Err(Failure::Failed(KvError::Pushdown(error.to_string()))),
            Err(error) => return Err(failed("following pointers at the target", error).into()),
        };
        self.calls.file().guard().finish(ticket)?;
        result
    }

    /// The request that the target has, with which a Call can be made. When the file has changed its place, another
    /// one.
    fn prepared(
        &self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        endpoint: Endpoint,
    ) -> Result<Option<Prepared>, FunctionError> {
        // Only lookups of one key leave nothing behind what a Call replaces.
        if function != Function::Get {
            return Ok(None);
        }
        let key = (function, scratch_cap, tail(input).to_vec());
        let mut all = self.prepared.borrow_mut();
        all.retain(|(_, generation, _)| *generation == endpoint.generation);
        if let Some((_, _, prepared)) = all.iter().find(|(known, _, _)| *known == key) {
            return Ok(Some(prepared.clone()));
        }
        let prepared = self.compute.prepare(&self.request(function, input, scratch_cap, endpoint))?;
        all.push((key, endpoint.generation, prepared.clone()));
        Ok(Some(prepared))
    }

    fn request(
        &self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        endpoint: Endpoint,
    ) -> diskside::host::function::FunctionRequest {
        traverse_request(&self.programs[&function], function, endpoint, input, scratch_cap)
    }
}

impl Pushdown for MountedPushdown {
    fn call<'a>(
        &'a self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        result_len: usize,
    ) -> Pushed<'a, Vec<u8>> {
        let input = input.to_vec();
        Box::pin(async move { self.follow(function, &input, scratch_cap, result_len).await })
    }
}

/// With a description of its own: the lease belongs to the other.
fn reopen(file: &File) -> std::io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn failed(what: &str, error: impl std::fmt::Display) -> Refusal {
    Refusal::failed(what, std::io::Error::other(error.to_string()))
}

impl std::fmt::Debug for MountedPushdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountedPushdown").field("calls", &self.calls).finish_non_exhaustive()
    }
}
