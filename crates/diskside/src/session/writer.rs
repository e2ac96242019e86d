//! Writing a file from its start, one piece after another.

use super::Session;
use super::error::SessionError;
use super::file::{File, OpenMode};
use super::pending::Pending;
use crate::location::{ExportUrl, Location};
use diskside_io::buffer::Buffer;
use std::io::{self, Write};

/// Bytes of a piece; one is on its way while the next is filled.
const PIECE_LEN: usize = 1 << 20;

/// A new file of an export. It has another name until [`publish`](Self::publish) gives it its own, so it appears
/// whole or not at all; dropped before, it is removed.
#[derive(Debug)]
pub struct FileWriter {
    session: Session,
    url: ExportUrl,
    partial: ExportUrl,
    file: File,
    piece: Vec<u8>,
    offset: u64,
    sent: Option<Pending<u64>>,
    published: bool,
}

impl FileWriter {
    /// Begins a file that will replace what is at `url`.
    pub fn create(session: &Session, url: &ExportUrl) -> Result<Self, SessionError> {
        let partial = ExportUrl { path: format!("{}.partial", url.path), ..url.clone() };
        let file = session.open_as(&Location::Export(partial.clone()), OpenMode::Create)?;
        let this = Self {
            session: session.clone(),
            url: url.clone(),
            partial,
            file,
            piece: Vec::with_capacity(PIECE_LEN),
            offset: 0,
            sent: None,
            published: false,
        };
        this.file.truncate(0)?;
        Ok(this)
    }

    /// The file under its temporary name.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes it durable and gives it its name.
    pub fn publish(mut self) -> Result<(), SessionError> {
        let name = self.partial.to_string();
        self.flush().map_err(|error| SessionError::file(&name, error))?;
        self.file.sync().wait()?;
        let files = self.session.files(&self.url)?;
        let renamed = files.rename(self.partial.path.as_bytes(), self.url.path.as_bytes(), true);
        renamed.map_err(|error| SessionError::device(&self.url.to_string(), error))?;
        self.published = true;
        Ok(())
    }

    fn finish_sent(&mut self) -> io::Result<()> {
        match self.sent.take() {
            Some(sent) => Ok(sent.wait().map(drop)?),
            None => Ok(()),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        self.finish_sent()?;
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_LEN));
        let len = piece.len() as u64;
        self.sent = Some(self.file.pwrite(self.offset, Buffer::from(piece), false));
        self.offset += len;
        Ok(())
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(PIECE_LEN - self.piece.len());
        self.piece.extend_from_slice(&bytes[..len]);
        if self.piece.len() == PIECE_LEN {
            self.send()?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.piece.is_empty() {
            self.send()?;
        }
        self.finish_sent()
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.published
            && let Ok(files) = self.session.files(&self.url)
        {
            // The error that matters was reported.
            let _ = self.finish_sent();
            let _ = files.unlink(self.partial.path.as_bytes());
        }
    }
}
