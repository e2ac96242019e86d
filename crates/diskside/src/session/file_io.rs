//! Bytes of files, wherever they are: reads, writes and flushes, which continue where a server was lost and is back.

use super::error::SessionError;
use super::file::FileInner;
use super::place::{ESTALE, Place, Remote, is_stale_handle};
use super::tries::LOSSES_MAX;
use diskside_host::function::FunctionError;
use diskside_io::buffer::Buffer;
use diskside_io::readahead::ReadAtError;
use diskside_io::request::{AsyncIo, Outcome, Request};
use diskside_nvme::Status;
use std::sync::Arc;

impl FileInner {
    pub(super) fn io(&self) -> Result<Arc<dyn AsyncIo>, SessionError> {
        self.place.io(&self.session).map_err(|source| SessionError::Open { name: self.name.clone(), source })
    }

    /// Whether its server cannot be reached, as far as is known.
    pub(super) fn has_lost_link(&self) -> bool {
        self.place.link().is_some_and(|link| link.is_lost())
    }

    pub(super) async fn write(&self, offset: u64, buffer: Buffer, durable: bool) -> Result<Outcome, SessionError> {
        let write = |buffer| Request::Write { offset, buffer, durable };
        self.submit(write(buffer), |buffer| buffer.map(write)).await
    }

    pub(super) async fn flush(&self) -> Result<Outcome, SessionError> {
        self.submit(Request::Flush, |_| Some(Request::Flush)).await
    }

    /// Hands over a request; where the target has forgotten the handle, which did nothing then, the one that `again` makes of the
    /// buffer that is back.
    async fn submit(
        &self,
        request: Request,
        again: impl FnOnce(Option<Buffer>) -> Option<Request>,
    ) -> Result<Outcome, SessionError> {
        let Place::Export(remote) = &self.place else { return Ok(self.io()?.submit(request).await) };
        let failed = |error| SessionError::device(&self.name, error);
        let file = remote.file_soon().await.map_err(failed)?;
        let owed = file.owes_flush();
        let outcome = file.submit(request).await;
        if outcome.status.to_result().map_err(|error| error.raw_os_error()) != Err(Some(ESTALE)) {
            return Ok(outcome);
        }
        let Some(request) = again(outcome.buffer) else { return Ok(Outcome::failed(outcome.status, None)) };
        let reopened = remote.reopen().await.map_err(failed)?;
        reopened.succeeds_owing(owed);
        Ok(reopened.submit(request).await)
    }

    pub(super) async fn read(&self, offset: u64, len: usize) -> Result<Buffer, SessionError> {
        match &self.place {
            Place::Export(remote) => self.read_export(remote, offset, len, &mut None).await,
            _ => self.read_blocks(offset, len).await,
        }
    }

    /// Reads, and reads again when the server of an export was lost meanwhile and came back with the same version of the file.
    pub(super) async fn read_on(&self, offset: u64, len: usize) -> Result<Buffer, SessionError> {
        let Place::Export(remote) = &self.place else { return self.read_blocks(offset, len).await };
        let (mut version, mut losses) = (None, 0);
        loop {
            match self.read_export(remote, offset, len, &mut version).await {
                Err(error) if losses < LOSSES_MAX && is_loss_of_server(&error) && !remote.link.is_ended() => {
                    losses += 1;
                }
                ended => return ended,
            }
        }
    }

    async fn read_export(
        &self,
        remote: &Remote,
        offset: u64,
        len: usize,
        version: &mut Option<u64>,
    ) -> Result<Buffer, SessionError> {
        let now = remote.refresh().await.map_err(|error| SessionError::device(&self.name, error))?;
        if version.is_some() && *version != now.version {
            return Err(SessionError::Changed(self.name.clone()));
        }
        *version = now.version;
        let len = now.len_bytes.saturating_sub(offset).min(len as u64) as usize;
        let mut buffer = Buffer::zeroed(len);
        let failed = |error| SessionError::device(&self.name, error);
        let file = remote.cached(&self.session, self.id, &now).await.map_err(failed)?;
        file.fill(offset, &mut buffer).await.map_err(|error| {
            let error = match error {
                ReadAtError::Io(error) => error,
                ReadAtError::Changed(_) => return SessionError::Changed(self.name.clone()),
                other => std::io::Error::other(other),
            };
            SessionError::file(&self.name, error)
        })?;
        Ok(buffer)
    }

    /// Whole blocks are read; what was not asked for is cut off.
    async fn read_blocks(&self, offset: u64, len: usize) -> Result<Buffer, SessionError> {
        let io = self.io()?;
        let align = u64::from(io.alignment_bytes().max(1));
        let start = offset / align * align;
        let end = (offset + len as u64).next_multiple_of(align);
        let buffer = Buffer::zeroed((end - start) as usize);
        let read = io.submit(Request::Read { offset: start, buffer }).await.into_read();
        let mut read = read.map_err(|error| SessionError::file(&self.name, error))?;
        let skip = ((offset - start) as usize).min(read.len());
        let have = (read.len() - skip).min(len);
        if skip > 0 {
            read.copy_within(skip..skip + have, 0);
        }
        read.set_len(have);
        Ok(read)
    }
}

/// Whether a read failed because its server was lost, or has forgotten what it was asked for since.
fn is_loss_of_server(error: &SessionError) -> bool {
    let told = match error {
        SessionError::File { source, .. } => source.get_ref().and_then(|source| source.downcast_ref()),
        error => error.function(),
    };
    let has_forgotten =
        |told: &FunctionError| is_stale_handle(told) || told.is_loss() || told.is_status(Status::UNKNOWN_TAG);
    error.is_loss() || told.is_some_and(has_forgotten)
}
