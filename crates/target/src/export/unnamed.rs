//! A new file that gets its name, and takes the place of what has that name, when it is whole and durable.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::root::open_beneath;

/// What a new file is going to be called. Until then it has no name, so that nothing of it stays when the target is killed;
/// where the file system knows no such files, a name of its own.
#[derive(Debug)]
pub(super) struct Unnamed {
    parent: OwnedFd,
    name: Vec<u8>,
    temporary: String,
    /// Whether the temporary name is there.
    named: AtomicBool,
}

impl Unnamed {
    /// A new file in `parent`, readable and writable, to be called `name`.
    pub(super) fn make(parent: OwnedFd, name: Vec<u8>, mode: Mode) -> Result<(OwnedFd, Self), Errno> {
        Self::make_with(parent, name, mode, make_nameless)
    }

    pub(super) fn make_with(
        parent: OwnedFd,
        name: Vec<u8>,
        mode: Mode,
        make_nameless: impl FnOnce(BorrowedFd<'_>, Mode) -> Option<OwnedFd>,
    ) -> Result<(OwnedFd, Self), Errno> {
        let temporary = format!(".diskside-{:016x}", RandomState::new().hash_one(&name));
        let (fd, named) = match make_nameless(parent.as_fd(), mode) {
            Some(fd) => (fd, false),
            None => {
                let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (open_beneath(parent.as_fd(), temporary.as_bytes(), how, mode)?, true)
            }
        };
        Ok((fd, Self { parent, name, temporary, named: AtomicBool::new(named) }))
    }

    /// Gives the file, all of which is on stable media, its name.
    pub(super) fn publish(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        if !self.named.load(Ordering::Relaxed) {
            // Linking cannot replace a name, renaming can.
            fs::linkat(CWD, &*path_of(file), &self.parent, &*self.temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.named.store(true, Ordering::Relaxed);
        }
        fs::renameat(&self.parent, &*self.temporary, &self.parent, &*self.name)?;
        self.named.store(false, Ordering::Relaxed);
        fs::fsync(open_beneath(self.parent.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)
    }

    /// Whether something of it is to be removed when it is given up.
    pub(super) fn has_temporary_name(&self) -> bool {
        self.named.load(Ordering::Relaxed)
    }

    /// Removes what others see of it. `called` is what messages call the file.
    pub(super) fn discard(&self, called: &str) {
        if self.named.swap(false, Ordering::Relaxed)
            && let Err(errno) = fs::unlinkat(&self.parent, &*self.temporary, AtFlags::empty())
            && errno != Errno::NOENT
        {
            tracing::warn!(file = self.temporary, %errno, "a half-written file stays beside {called}");
        }
    }
}

/// A file without a name, if it can be made and can get one later.
fn make_nameless(parent: BorrowedFd<'_>, mode: Mode) -> Option<OwnedFd> {
    let fd = open_beneath(parent, b".", OFlags::RDWR | OFlags::TMPFILE, mode).ok()?;
    // Without /proc it could not.
    fs::statat(CWD, &*path_of(fd.as_fd()), AtFlags::empty()).is_ok().then_some(fd)
}

fn path_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExportSpec;
    use crate::export::Exports;
    use crate::export::root::open_parent;
    use diskside_nvme::wire::file::FileOp;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// NFS and some others have no files without a name.
    #[test]
    fn where_every_file_has_a_name_what_is_given_up_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        let session = Exports::open(&[ExportSpec::new("data", dir.path())]).unwrap().session();
        let begin = || {
            let start = session.start(FileOp::Create, None, b"data/x").unwrap();
            let (parent, name) = open_parent(start.dir(), start.path).unwrap();
            let (fd, unnamed) = Unnamed::make_with(parent, name.to_vec(), Mode::RWXU, |_, _| None).unwrap();
            let mut file = start.open(fd, true, true);
            file.unnamed = Some(Arc::new(unnamed));
            file
        };
        let handle = session.insert(FileOp::Create, begin()).unwrap();
        assert_eq!(names(), 1, "it has a name of its own");
        drop(session.remove(FileOp::Close, handle).unwrap());
        let began = Instant::now();
        while names() > 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "it stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = begin();
        file.unnamed.as_ref().unwrap().publish(file.fd.as_fd()).unwrap();
        drop(file);
        assert_eq!((names(), dir.path().join("x").exists()), (1, true), "what was published stays");
    }
}
