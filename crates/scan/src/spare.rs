//! The process behind a scan, from its start on, and one that has started before anybody needs it.

use crate::frames::Frame;
use crate::to_child::ToChild;
use diskside_child::Program;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The longest pipe that everybody may have.
const PIPE_LEN: usize = 1 << 20;

/// A process that runs. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) from: ChildStdout,
    pub(crate) to: ToChild,
}

impl Process {
    /// Starts one that waits for its scan.
    pub(crate) fn start(program: &Program) -> io::Result<Self> {
        let (to, its_end) = UnixStream::pair()?;
        let mut command = command(program);
        let mut child = command.stdin(OwnedFd::from(its_end)).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let from = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        widen(&from);
        Ok(Self { child, from, to: ToChild::new(to) })
    }

    /// Tells it what to scan.
    pub(crate) fn tell(&self, file: Option<BorrowedFd<'_>>, frames: impl Iterator<Item = Frame>) -> io::Result<()> {
        self.to.begin(file, frames)
    }

    pub(crate) fn stop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How the program is started, whatever it is to do.
pub(crate) fn command(program: &Program) -> Command {
    let mut command = program.command();
    command
        // Each arena of the C library's takes address space that a limit on it counts.
        .env("MALLOC_ARENA_MAX", "1")
        // Each row group takes the memory that the one before gave back, which would otherwise come from the kernel
        // again, page by page.
        .env("MALLOC_MMAP_THRESHOLD_", (32 << 20).to_string())
        .env("MALLOC_TRIM_THRESHOLD_", (1 << 30).to_string())
        .env("MALLOC_TOP_PAD_", (4 << 20).to_string());
    command
}

/// Lets a pipe hold more than the 64 KiB that it begins with: for each pipeful, both sides wake each other.
pub(crate) fn widen(pipe: impl AsFd) {
    // Where the user has many pipes already, they stay as they are.
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_LEN);
}

/// A process that waits for the next scan. It has seen nothing of any other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    /// The thread that starts processes, once there is one. It lives as long as they may: a scan is killed when its parent dies, and
    /// Linux means the thread that started it.
    starter: Mutex<Option<Sender<Program>>>,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    /// The starter starts one.
    Filling,
    Ready(Process),
}

impl Spare {
    /// The one that waits, if there is one.
    pub(crate) fn take(&self) -> Option<Process> {
        let mut slot = self.slot();
        match std::mem::take(&mut *slot) {
            Slot::Ready(mut process) => process.is_running().then_some(process),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Starts one if there is none, without waiting for it.
    pub(crate) fn refill(&self, program: &Program) {
        {
            let mut slot = self.slot();
            if !matches!(*slot, Slot::Empty) {
                return;
            }
            *slot = Slot::Filling;
        }
        let mut starter = self.0.starter.lock().unwrap_or_else(PoisonError::into_inner);
        if starter.is_none() {
            *starter = start_processes(Arc::downgrade(&self.0));
        }
        if starter.as_ref().is_none_or(|starter| starter.send(program.clone()).is_err()) {
            *self.slot() = Slot::Empty;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.slot()
    }
}

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that starts a process for each program that it is sent, until nobody can send any more.
fn start_processes(shared: Weak<Shared>) -> Option<Sender<Program>> {
    let (sender, programs) = channel::<Program>();
    let fill = move || {
        for program in programs {
            let started = Process::start(&program);
            let Some(shared) = shared.upgrade() else { return };
            // If it fails, the next scan says why.
            *shared.slot() = started.map_or(Slot::Empty, Slot::Ready);
        }
    };
    std::thread::Builder::new().name("scan spare".into()).spawn(fill).ok().map(|_| sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::script;
    use std::time::{Duration, Instant};

    fn pid_of_ready(spare: &Spare) -> u32 {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Slot::Ready(process) = &*spare.slot() {
                return process.child.id();
            }
            assert!(Instant::now() < until, "no process became ready");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A scan of a few milliseconds waited as long again until its process had started.
    #[test]
    fn one_waits_for_the_next_scan_and_serves_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let (program, spare) = (script(directory.path(), "exec sleep 600"), Spare::default());
        assert!(spare.take().is_none());
        spare.refill(&program);
        let first = pid_of_ready(&spare);
        spare.refill(&program);
        assert_eq!(pid_of_ready(&spare), first, "one is enough");
        assert_eq!(spare.take().unwrap().child.id(), first);
        assert!(spare.take().is_none());
        spare.refill(&program);
        assert_ne!(pid_of_ready(&spare), first);
    }

    /// The thread that had started a process ended at once. One that was taken in that moment, and then asked to be killed with its
    /// parent, was killed: a scan in thousands ended with signal 9 on a busy machine.
    #[test]
    fn the_thread_that_starts_processes_lives_as_long_as_they_may() {
        let directory = tempfile::tempdir().unwrap();
        let (program, spare) = (script(directory.path(), "exec sleep 600"), Spare::default());
        let threads = || {
            let names = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
            names.filter(|name| std::fs::read_to_string(name).is_ok_and(|name| name == "scan spare\n")).count()
        };
        // Tests beside this one have such threads, too, each its own.
        let all: Vec<Spare> = (0..20).map(|_| Spare::default()).chain([spare]).collect();
        for spare in &all {
            spare.refill(&program);
            pid_of_ready(spare);
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(threads() >= all.len());
    }

    #[test]
    fn one_that_was_killed_while_it_waited_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let (program, spare) = (script(directory.path(), "exec sleep 600"), Spare::default());
        spare.refill(&program);
        pid_of_ready(&spare);
        if let Slot::Ready(process) = &mut *spare.slot() {
            process.stop();
        }
        assert!(spare.take().is_none());
        spare.refill(&program);
        pid_of_ready(&spare);
    }

    #[test]
    fn a_program_that_cannot_be_started_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let (missing, spare) = (Program::at(directory.path().join("missing")), Spare::default());
        spare.refill(&missing);
        let until = Instant::now() + Duration::from_secs(60);
        while !matches!(*spare.slot(), Slot::Empty) {
            assert!(Instant::now() < until, "still filling");
            std::thread::sleep(Duration::from_millis(1));
        }
        spare.refill(&script(directory.path(), "exec sleep 600"));
        pid_of_ready(&spare);
    }
}
