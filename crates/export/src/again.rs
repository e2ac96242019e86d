//! A directory that is removed while it is served, and made again under its path: it is another directory, which is served once
//! the configuration is read again. Until then errors say why nothing is found.
//!
//! It is not opened by itself. Otherwise everybody who may write its parent could have the server take up anything there at any time,
//! and hosts would write into a directory that is still being filled; and a server that has closed its process to other files does not
//! reach it. A reload says when, looks at it as at new exports, and ends what hosts have open in the old one.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::attributes::{status, status_now};
use crate::export::{Export, open_root};
use crate::reply::FileError;
use crate::root::{open_beneath, same_file};

/// What the path of an export names now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AtPath {
    /// The directory that is served; or nothing, and that was renamed.
    Same,
    /// Another one, or why it cannot be read.
    Another(Result<(), String>),
    /// Nothing that can be served instead, and why.
    Unusable(String),
}

/// How long a reload waits for paths to be looked at: a disk that hangs keeps no host's key from being taken away.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at the paths of all of them.
pub(crate) fn look_at_all<'a>(exports: impl Iterator<Item = &'a Arc<Export>>) -> HashMap<String, AtPath> {
    let looks: Vec<_> = exports.filter(|export| export.store.is_none()).map(|export| (export, begin(export))).collect();
    let end = Instant::now() + PATIENCE;
    let found = |(export, looking): (&Arc<Export>, Option<Receiver<AtPath>>)| {
        let left = end.saturating_duration_since(Instant::now());
        let found = match looking.map(|looking| looking.recv_timeout(left)) {
            Some(Ok(found)) => found,
            // Without a thread for it the export is as before.
            Some(Err(RecvTimeoutError::Disconnected)) => AtPath::Same,
            None | Some(Err(RecvTimeoutError::Timeout)) => {
                AtPath::Unusable(format!("{} does not answer, so it stays as it was", export.spec.path.display()))
            }
        };
        (export.name.clone(), found)
    };
    looks.into_iter().map(found).collect()
}

/// On a thread of its own; `None`: an earlier one still waits for the disk.
fn begin(export: &Arc<Export>) -> Option<Receiver<AtPath>> {
    if export.is_looked_at.swap(true, Ordering::AcqRel) {
        return None;
    }
    let (sender, receiver) = channel();
    let looked_at = Arc::clone(export);
    let look = move || {
        let found = looked_at.look();
        looked_at.is_looked_at.store(false, Ordering::Release);
        // A reload that has lost its patience looks again at its next time.
        let _ = sender.send(found);
    };
    if let Err(error) = std::thread::Builder::new().name("look".into()).spawn(look) {
        tracing::warn!(export = export.name, %error, "it is not known whether its directory is still the same");
        export.is_looked_at.store(false, Ordering::Release);
    }
    Some(receiver)
}

impl Export {
    /// Whether its directory was removed: nothing is found or made there any more. Told once in the log, too.
    pub(crate) fn is_removed(&self) -> bool {
        let is_removed = self.store.is_none() && self.has_no_name();
        if is_removed && !self.is_told_removed.swap(true, Ordering::Relaxed) {
            let path = self.spec.path.display();
            tracing::warn!(
                export = self.name,
                %path,
                "its directory was removed: make it again, and have the configuration be read again (SIGHUP)"
            );
        }
        is_removed
    }

    /// A failure of `what`. If nothing is found because the directory was removed, it says so.
    pub(crate) fn error(&self, errno: Errno, what: String) -> FileError {
        if errno != Errno::NOENT || !self.is_removed() {
            return FileError::new(errno, what);
        }
        let why = format!(
            "the directory of export `{}` was removed at the server, which takes a new one when it reads its configuration again \
             (SIGHUP) or is started again",
            self.name
        );
        FileError::because(errno, format!("{what}: {why}"))
    }

    fn has_no_name(&self) -> bool {
        let Some(held) = status_now(self.root.as_fd()).filter(|held| held.stx_nlink == 0) else { return false };
        // Some file systems in user space say 0 of everything.
        let named = statx(CWD, &self.spec.path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS);
        named.map_or(true, |named| !same_file(&named, &held))
    }

    fn look(&self) -> AtPath {
        let path = self.spec.path.display();
        let root = match open_root(&self.spec.path, &self.workers) {
            Ok(root) => root,
            Err(error) if self.is_removed() => {
                return AtPath::Unusable(format!("its directory was removed, and is not there again: {path}: {error}"));
            }
            // It was renamed, which hosts do not notice.
            Err(_) => return AtPath::Same,
        };
        let is_same = |one, other| Some(same_file(&status(one).ok()?, &status(other).ok()?));
        if is_same(root.as_fd(), self.root.as_fd()).unwrap_or(true) {
            return AtPath::Same;
        }
        // As the export's user, in a process that may have closed itself to it.
        let how = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = self.workers.run(move || open_beneath(root.as_fd(), b".", how, Mode::empty()).map(drop));
        AtPath::Another(opened.unwrap_or(Err(Errno::IO)).map_err(|errno| {
            let why = std::io::Error::from(errno);
            format!("{path} is another directory than the one that is served, and cannot be read: {why}")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExportSpec, Exports};

    /// An earlier look at it still waits for its disk: the reload does not, and begins no other.
    #[test]
    fn a_path_that_does_not_answer_leaves_its_export_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::create_dir(&path).unwrap();
        let specs = [ExportSpec::new("data", &path)];
        let exports = Exports::open(&specs).unwrap();
        std::fs::rename(&path, dir.path().join("aside")).unwrap();
        std::fs::create_dir(&path).unwrap();
        let looking = || exports.list()[0].is_looked_at.swap(true, Ordering::AcqRel);
        assert!(!looking());
        let prepared = exports.prepare(&specs).unwrap();
        let told = prepared.kept()[0].to_string();
        assert!(told.ends_with("data does not answer, so it stays as it was"), "{told}");
        assert!(prepared.opened_again().is_empty() && looking(), "the one that waits ends it");
        exports.list()[0].is_looked_at.store(false, Ordering::Release);
        assert_eq!(exports.prepare(&specs).unwrap().opened_again(), ["data"]);
        assert!(!looking());
    }
}
