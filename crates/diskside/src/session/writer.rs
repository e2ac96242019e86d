//! Writing a file from its start, one piece after another.

use super::Session;
use super::error::SessionError;
use super::file::File;
use super::pending::Pending;
use super::place::Place;
use crate::location::ExportUrl;
use diskside_io::buffer::Buffer;
use std::io::{self, Write};

/// Bytes of a piece; one is on its way while the next is filled.
const PIECE_LEN: usize = 1 << 20;

/// A new file of an export. It has no name until [`publish`](Self::publish) gives it its own, so it appears whole or not at
/// all; dropped before, or when this process or the connection ends, nothing of it is left at the target.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    piece: Vec<u8>,
    offset: u64,
    sent: Option<Pending<u64>>,
}

impl FileWriter {
    /// Begins a file that will replace what is at `url`.
    pub fn create(session: &Session, url: &ExportUrl) -> Result<Self, SessionError> {
        let file = File::create_unnamed(session, url)?;
        Ok(Self { file, piece: Vec::with_capacity(PIECE_LEN), offset: 0, sent: None })
    }

    /// The file, before it has its name.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The error of a write, in the words of the target if it has said why.
    #[must_use]
    pub fn in_words_of_target(&self, error: io::Error) -> io::Error {
        self.file.inner.place.in_words_of_target(error)
    }

    /// Makes it durable and gives it its name.
    pub fn publish(mut self) -> Result<(), SessionError> {
        let name = self.file.inner.name.clone();
        self.flush().map_err(|error| SessionError::file(&name, error))?;
        self.file.sync().wait()?;
        let Place::Export(remote) = &self.file.inner.place else { unreachable!("it is a file of an export") };
        remote.file().and_then(|file| file.publish()).map_err(|error| SessionError::device(&name, error))
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
