//! The program of a child, as it was when it was found.

use crate::find::find;
use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The first descriptor behind the standard ones.
const FIRST_DESCRIPTOR: i32 = 3;

/// A program that is started now and then: always the file that was found, also when another one takes its name. So both ends of a
/// pipe are of one version, and a server that Landlock lets start this file alone can start it until its end.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    /// `None`: it could not be opened, or is a script, whose interpreter opens it by its name.
    opened: Option<Arc<Opened>>,
}

struct Opened {
    descriptor: OwnedFd,
    /// Its device and its number there.
    identity: (u64, u64),
}

impl Program {
    /// The one that the environment variable names, that lies beside the running program, or that `PATH` finds: programs that
    /// use a library lie anywhere. `None` when there is none, or the variable is empty.
    #[must_use]
    pub fn find(name: &str, variable: &str) -> Option<Self> {
        find(name, variable).map(Self::at)
    }

    /// The one at this place. If it is not there, who starts it is told so.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let opened = open(&path).map(Arc::new);
        Self { path, opened }
    }

    /// Where it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts it in an empty environment, at the root of the file system.
    #[must_use]
    pub fn command(&self) -> Command {
        // A process that became a daemon may have closed all descriptors, and opened others.
        let mut command =
            match self.opened.as_ref().filter(|opened| identity(&opened.descriptor) == Some(opened.identity)) {
                Some(opened) => Command::new(link(&opened.descriptor)),
                None => Command::new(&self.path),
            };
        // Ctrl-C is for the program that started it, which ends it: a child that ended first looked like one that a file had ended.
        command.arg0(&self.path).env_clear().current_dir("/").process_group(0);
        command
    }
}

/// Names the process where processes are listed. One that a [`Program`] started has the number of a descriptor for a name until then.
pub fn set_process_name(name: &CStr) {
    // It works without.
    let _ = rustix::thread::set_name(name);
}

/// The place alone: descriptors differ from process to process, and code that is kept names the compiler that made it.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(&self.path).finish()
    }
}

/// Both name the same place.
impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Program {}

/// Without `/proc` it is started by its name.
fn open(path: &Path) -> Option<Opened> {
    let mut file = File::open(path).ok()?;
    let mut magic = [0; 4];
    file.read_exact(&mut magic).ok()?;
    // Where a process has no standard descriptors, a file takes their place, and pipes take it from the file in the child.
    let descriptor = rustix::io::fcntl_dupfd_cloexec(&file, FIRST_DESCRIPTOR).ok()?;
    let identity = identity(&descriptor)?;
    let is_program = &magic == b"\x7fELF" && Path::new(&link(&descriptor)).exists();
    is_program.then_some(Opened { descriptor, identity })
}

fn link(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

fn identity(descriptor: &OwnedFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(descriptor).ok().map(|status| (status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a program there by another process. A process that another test starts holds, until it is one of its own, what this one has open
    /// for writing, and such a file is not run: "Text file busy".
    fn install(from: &Path, to: &Path) {
        let status = Command::new("install").args(["-m", "700"]).args([from, to]).status().unwrap();
        assert!(status.success());
    }

    fn said(program: &Program) -> String {
        let output = program.command().arg("told").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// A server that had confined itself was not allowed to start the new file, "Permission denied", until it was restarted;
    /// without Landlock it started one that spoke another version of the protocol.
    #[test]
    fn another_file_that_takes_its_name_is_not_started() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("says");
        install(Path::new("/bin/echo"), &path);
        let program = Program::at(&path);
        assert_eq!(said(&program), "told\n");
        let other = directory.path().join("other");
        install(Path::new("/bin/false"), &other);
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(said(&program), "told\n");
        assert_eq!(said(&Program::at(&path)), "");
    }

    /// Code that a server had compiled and kept was compiled again by the next one.
    #[test]
    fn it_is_told_the_same_in_each_process() {
        let told = |program: Program| format!("{program:?}");
        let first = Program::at("/bin/echo");
        assert_eq!(told(Program::at("/bin/echo")), told(first.clone()));
        assert_eq!(told(first), "Program(\"/bin/echo\")");
    }

    #[test]
    fn a_script_and_a_program_that_is_not_there_are_started_by_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("says");
        let error = Program::at(&path).command().spawn().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        let text = directory.path().join("text");
        std::fs::write(&text, "#!/bin/sh\necho script $1\n").unwrap();
        install(&text, &path);
        assert_eq!(said(&Program::at(&path)), "script told\n");
    }
}
