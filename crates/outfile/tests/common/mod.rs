//! Directories and users for tests.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use diskside_outfile::OutFile;
use rustix::process::{Gid, Uid, geteuid};

/// A user that owns nothing.
pub const NOBODY: u32 = 65534;

pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a file, with exactly this mode.
    pub fn file(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("written");
        set_mode(&path, mode);
        path
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("a directory");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    /// Lets everybody into it.
    pub fn open_to_all(self, mode: u32) -> Self {
        set_mode(self.0.path(), mode);
        self
    }
}

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

pub fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it is there")
}

/// Writes a whole file.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OutFile::create(path)?;
    file.write_all(bytes)?;
    file.publish()
}

/// What is said, with the directory left out.
pub fn refusal(dir: &Dir, name: &str) -> String {
    let error = write(&dir.path(name), b"new").expect_err("it is refused").to_string();
    error.replace(&dir.path("").display().to_string(), "")
}

/// Runs as another user, whom only this thread becomes. `None`: this process may not.
pub fn as_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
    if !geteuid().is_root() {
        eprintln!("not tested as another user: only root can become one");
        return None;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            rustix::thread::set_thread_groups(&[]).expect("we are root");
            rustix::thread::set_thread_res_gid(gid, gid, gid).expect("we are root");
            rustix::thread::set_thread_res_uid(uid, uid, uid).expect("we are root");
            what()
        });
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
