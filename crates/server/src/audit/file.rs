//! The file of the audit, which nobody but its owner reads.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::geteuid;

/// A file that lines are to go to; none: they go nowhere.
#[derive(Debug)]
pub(crate) struct AuditFile(pub(super) Option<(PathBuf, File)>);

impl AuditFile {
    /// Opens the file, which is made if there is none. Nobody but its owner can read it then. Where root starts the server, a file
    /// of root's becomes that of `user`, which the server becomes: the server opens it again at SIGHUP.
    pub(crate) fn open(path: Option<&Path>, user: Option<u32>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = open_here(path)?;
        let found = file.metadata()?;
        // With another name it may be a file that is not meant.
        if let Some(user) = user.filter(|_| found.is_file() && found.uid() == 0 && found.nlink() == 1) {
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

/// Opens the file, and not one to which somebody else may have made a link in its place: root would give it away.
fn open_here(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    // Opening a pipe that nobody reads would wait for a reader.
    let (no_link, no_wait) = (OFlags::NOFOLLOW.bits() as i32, OFlags::NONBLOCK.bits() as i32);
    let opened = match options.clone().custom_flags(no_link | no_wait).open(path) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            check_link(path)?;
            options.custom_flags(no_wait).open(path)
        }
        opened => opened,
    };
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::new(error.kind(), "it is a pipe that nobody reads, or a socket"),
        _ => error,
    })?;
    // Lines wait for room in a pipe.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Whether a link in the place of the file is followed.
///
/// # Errors
/// Somebody else may have made it.
pub(crate) fn check_link(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = directory.metadata()?;
    let is_ours = directory.uid() == 0 || directory.uid() == geteuid().as_raw();
    if is_ours && directory.mode() & 0o022 == 0 {
        return Ok(());
    }
    let what = "it is a link, which somebody else may have made, as they may write its directory: name the file itself";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
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

    /// A server whose audit file is a pipe that nobody reads stood still before it served, or for ever in a reload.
    #[test]
    fn a_pipe_is_not_waited_for_and_takes_lines_if_somebody_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let opened = path.clone();
        std::thread::spawn(move || tell.send(AuditFile::open(Some(&opened), None).map(|_| ())));
        let error = told.recv_timeout(std::time::Duration::from_secs(20)).expect("it does not wait").unwrap_err();
        assert!(error.to_string().contains("a pipe that nobody reads"), "{error}");
        let no_wait = OFlags::NONBLOCK.bits() as i32;
        let _reader = OpenOptions::new().read(true).custom_flags(no_wait).open(&path).unwrap();
        let AuditFile(Some((_, file))) = AuditFile::open(Some(&path), None).unwrap() else { panic!("it is open") };
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
    }

    /// A link from the audit file's name to a file of root's, which the server's user could make in a directory of its own, gave that
    /// user the file: root opened it at the next start, and changed its owner. So did another name of it.
    #[test]
    fn a_link_that_somebody_else_may_have_made_gives_no_file_away() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("precious"), "").unwrap();
        std::fs::set_permissions(at("precious"), std::fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("precious", at("link")).unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = AuditFile::open(Some(&at("link")), Some(65534)).unwrap_err();
        assert!(error.to_string().contains("it is a link"), "{error}");
        let is_as_it_was = || {
            let found = std::fs::metadata(at("precious")).unwrap();
            (found.uid(), found.mode() & 0o777) == (geteuid().as_raw(), 0o644)
        };
        assert!(is_as_it_was());
        // A directory that is ours alone has the links that we want, such as /dev/stderr.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        AuditFile::open(Some(&at("link")), None).unwrap();
        std::fs::hard_link(at("precious"), at("name")).unwrap();
        AuditFile::open(Some(&at("name")), Some(65534)).unwrap();
        assert_eq!(std::fs::metadata(at("precious")).unwrap().uid(), geteuid().as_raw());
    }
}
