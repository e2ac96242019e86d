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

    /// Adds a line of JSON whole, or nothing of it. Each is one write: readers of the file see whole lines.
    pub(super) fn add(&mut self, line: &str) -> io::Result<()> {
        let line = format!("{}{}\n", if self.is_torn { "\n" } else { "" }, all_seen(line));
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

/// The same JSON, of characters that are seen where they are printed: the others are in strings.
fn all_seen(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        if (c.is_ascii() && c != '\x7f') || c.escape_debug().eq([c]) {
            line.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| line.push_str(&format!("\\u{unit:04x}")));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that turn the direction of writing, or are not seen, came into the file as they were: a reader saw another line
    /// than a program did.
    #[test]
    fn a_line_has_no_character_that_is_not_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut told = LineFile::new(path.clone(), File::create(&path).unwrap());
        let reason = "\u{202e}evil\u{200b} \u{feff}grüße \x1b[2J \x7f\u{85} \u{e0001} \"\\";
        told.add(&serde_json::to_string(reason).unwrap()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let seen = r#""\u202eevil\u200b \ufeffgrüße \u001b[2J \u007f\u0085 \udb40\udc01 \"\\""#;
        assert_eq!(text.trim_end(), seen);
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), reason, "it means the same");
    }

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
