//! A file of lines that a full disk does not leave with a part of one.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// A file that lines go to.
pub(super) struct LineFile {
    pub(super) path: PathBuf,
    file: File,
    /// It ends with a part of a line.
    is_torn: bool,
    pub(super) has_warned: bool,
}

impl LineFile {
    pub(super) fn new(path: PathBuf, file: File) -> Self {
        Self { path, file, is_torn: false, has_warned: false }
    }

    /// Adds a line whole, or nothing of it. Each is one write: readers of the file see whole lines.
    pub(super) fn add(&mut self, line: &str) -> io::Result<()> {
        let line = format!("{}{line}\n", if self.is_torn { "\n" } else { "" });
        let written = self.file.write(line.as_bytes())?;
        if written < line.len() {
            let whole = self.file.metadata().map(|now| now.len().saturating_sub(written as u64));
            let is_taken_back = whole.and_then(|len| self.file.set_len(len)).is_ok();
            self.is_torn |= !is_taken_back;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.is_torn = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that was full left half a line, to which the next one was glued: neither could be read.
    #[test]
    fn half_a_line_is_taken_back_or_ended() {
        let (reader, writer) = io::pipe().unwrap();
        let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        rustix::io::ioctl_fionbio(&file, true).unwrap();
        let mut told = LineFile::new("audit".into(), file);
        // Longer than a pipe is: what was taken of it cannot be taken back.
        let long = "x".repeat(1 << 20);
        assert_eq!(told.add(&long).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(told.is_torn);
        let mut half = vec![0; 1 << 20];
        let len = io::Read::read(&mut reader, &mut half).unwrap();
        assert!(len < long.len());
        told.add("{}").unwrap();
        let len = io::Read::read(&mut reader, &mut half).unwrap();
        assert_eq!(&half[..len], b"\n{}\n");
        told.add("{}").unwrap();
        let len = io::Read::read(&mut reader, &mut half).unwrap();
        assert_eq!(&half[..len], b"{}\n", "but once");
    }
}
