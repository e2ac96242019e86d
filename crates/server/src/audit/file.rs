//! The file of the audit, which nobody but its owner reads.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file that lines are to go to; none: they go nowhere.
#[derive(Debug)]
pub(crate) struct AuditFile(pub(super) Option<(PathBuf, File)>);

impl AuditFile {
    /// Opens the file, which is made if there is none. Nobody but its owner can read it then. Where root starts the server, a file
    /// of root's becomes that of `user`, which the server becomes: the server opens it again at SIGHUP.
    pub(crate) fn open(path: Option<&Path>, user: Option<u32>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let found = file.metadata()?;
        if let Some(user) = user.filter(|_| found.is_file() && found.uid() == 0) {
            std::os::unix::fs::fchown(&file, Some(user), None)?;
        }
        if found.is_file() && found.permissions().mode() & 0o077 != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(|error| {
                let mode = found.permissions().mode() & 0o7777;
                io::Error::new(error.kind(), format!("its mode is {mode:04o}, and cannot be made 0600: {error}"))
            })?;
        }
        Ok(Self(Some((path.to_owned(), file))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file kept the mode that it had, with which others could read who does what.
    #[test]
    fn nobody_but_the_owner_reads_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        AuditFile::open(Some(&path), None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
