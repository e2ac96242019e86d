//! One version of a file of an export, read by position also when its target is restarted meanwhile.

use diskside_host::drive;
use diskside_host::function::{FunctionError, RemoteFile};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Cause, Outcome, Request, RequestFuture, Status};
use std::io;
use std::sync::Arc;

/// How often one read is tried. The connection itself waits for a target that is away, and fails at once when that took too long.
const READS_MAX: u32 = 4;
const CHANGED: &str = "another version of the file is there now, as it was replaced or its server started anew: what was read before \
                       does not belong to it; begin again";

/// The error for a copy at another server.
pub(super) const COPY_DIFFERS: &str = "its server vanished, and the copy at another one has another length or another time of its last change: begin again";

/// Whether a read by [`version_io`](super::File::version_io) failed because another version of the file is there now.
#[must_use]
pub fn is_another_version(error: &io::Error) -> bool {
    let told = error.to_string();
    told.contains(CHANGED) || told.contains(COPY_DIFFERS)
}

/// A file of an export whose handle is obtained again when the target has forgotten it.
pub(super) trait Reopened: Send + Sync {
    /// Its handle, as far as is known.
    fn handle(self: Arc<Self>) -> RequestFuture<Result<RemoteFile, FunctionError>>;

    /// Its version now, by a handle that the target knows.
    fn version(self: Arc<Self>) -> RequestFuture<Result<Option<u64>, FunctionError>>;
}

/// The version of a file that it had when this was made.
#[derive(Clone)]
pub(super) struct OneVersion {
    file: Arc<dyn Reopened>,
    version: u64,
    len_bytes: u64,
}

impl OneVersion {
    pub(super) fn new(file: Arc<dyn Reopened>, version: u64, len_bytes: u64) -> Self {
        Self { file, version, len_bytes }
    }

    async fn read(self, offset: u64, mut buffer: Buffer) -> Outcome {
        let mut reads = 1;
        loop {
            let file = match Arc::clone(&self.file).handle().await {
                Ok(file) => file,
                Err(error) => return Outcome::failed(error.status(), Some(buffer)),
            };
            let outcome = file.submit(Request::Read { offset, buffer }).await;
            if reads == READS_MAX || !is_forgotten(outcome.status) {
                return outcome;
            }
            reads += 1;
            match Arc::clone(&self.file).version().await {
                Ok(version) if version == Some(self.version) => {}
                Ok(_) => return Outcome::failed(Status::refused(CHANGED), outcome.buffer),
                Err(error) if is_forgotten(error.status()) => {}
                Err(error) => return Outcome::failed(error.status(), outcome.buffer),
            }
            match outcome.buffer {
                Some(back) => buffer = back,
                None => return outcome,
            }
        }
    }
}

/// Whether the target may have forgotten the handle, or the read: a read can be repeated.
fn is_forgotten(status: Status) -> bool {
    match status.cause() {
        Some(Cause::Lost(_)) => true,
        Some(Cause::Errno(errno)) => errno == diskside_io::Errno::STALE,
        _ => false,
    }
}

impl AsyncIo for OneVersion {
    fn submit(&self, request: Request) -> RequestFuture {
        let this = self.clone();
        match request {
            Request::Read { offset, buffer } => drive(this.read(offset, buffer)),
            other => {
                let why = Status::refused("one version of a file is read only");
                drive(async move { Outcome::failed(why, other.into_buffer()) })
            }
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.len_bytes)
    }

    fn alignment_bytes(&self) -> u32 {
        1
    }
}
