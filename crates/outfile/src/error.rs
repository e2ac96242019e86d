//! Why a file cannot be written.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// An error of the system, and what it means for the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// What the system said.
    pub errno: Errno,
    /// The meaning of the error here, and what to do; empty when the error says it all.
    pub meaning: String,
    /// The file, where the error has to name it.
    pub file: Option<String>,
}

impl WriteError {
    pub(crate) fn new(errno: Errno, meaning: impl Into<String>) -> Self {
        Self { errno, meaning: meaning.into(), file: None }
    }

    /// As an error about the file of this name.
    pub(crate) fn about(self, file: &str) -> io::Error {
        Self { file: Some(file.to_owned()), ..self }.into()
    }
}

impl From<Errno> for WriteError {
    fn from(errno: Errno) -> Self {
        Self::new(errno, "")
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        // With its number, as errors of files have it everywhere.
        io::Error::from(self.errno).fmt(f)?;
        if self.meaning.is_empty() { Ok(()) } else { write!(f, ": {}", self.meaning) }
    }
}

impl std::error::Error for WriteError {}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        Self::new(io::Error::from(error.errno).kind(), error)
    }
}

pub(crate) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
