//! Messages to the process that scans: answers to its reads, by a thread that waits for them, and grants of turns, at
//! once.

use crate::frames::Frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fmt;
use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Reads that a process may have asked for at one time.
const READS_MAX: usize = 64;

/// Brings bytes that were asked for; it may have begun to read them already.
pub struct Answer(pub Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

/// The way to the process.
#[derive(Debug)]
pub(crate) struct ToChild {
    pipe: Arc<Pipe>,
    /// The thread that answers, once there was a read.
    answers: Option<SyncSender<Answer>>,
}

#[derive(Debug)]
struct Pipe {
    to: Mutex<UnixStream>,
    /// Turns that were granted and not sent yet, each with its threads: the writer sends them before its next answer.
    granted: Mutex<Vec<u32>>,
}

impl ToChild {
    pub(crate) fn new(to: UnixStream) -> Self {
        Self { pipe: Arc::new(Pipe { to: Mutex::new(to), granted: Mutex::default() }), answers: None }
    }

    /// Hands over the file, if there is one, and says what to do.
    pub(crate) fn begin(
        &self,
        file: Option<BorrowedFd<'_>>,
        mut frames: impl Iterator<Item = Frame>,
    ) -> io::Result<()> {
        let mut to = self.pipe.lock();
        let files = file.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !with.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // A file needs a byte that it comes with.
        sendmsg(&*to, &[IoSlice::new(&[0])], &mut with, SendFlags::NOSIGNAL)?;
        let mut to = io::BufWriter::new(&mut *to);
        frames.try_for_each(|frame| frame.write(&mut to))?;
        to.flush()
    }

    /// Grants a turn of so many threads. Never waits; false: the process does not read.
    pub(crate) fn grant(&self, threads: u32) -> io::Result<bool> {
        self.pipe.granted().push(threads);
        self.pipe.tell(true)
    }

    /// Has a read answered. False: there are too many.
    pub(crate) fn answer(&mut self, answer: Answer) -> io::Result<bool> {
        if self.answers.is_none() {
            let (answers, queue) = sync_channel(READS_MAX);
            let pipe = Arc::clone(&self.pipe);
            std::thread::Builder::new().name("scan reads".into()).spawn(move || pipe.write_answers(&queue))?;
            self.answers = Some(answers);
        }
        let sent = self.answers.as_ref().map_or(Ok(()), |answers| answers.try_send(answer));
        // If the process is gone, the next frame says so.
        Ok(!matches!(sent, Err(TrySendError::Full(_))))
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, UnixStream> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granted(&self) -> MutexGuard<'_, Vec<u32>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of what was granted, unless another thread writes: it does so then.
    fn tell(&self, only_at_once: bool) -> io::Result<bool> {
        while !self.granted().is_empty() {
            let mut to = match self.to.try_lock() {
                Ok(to) => to,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(true),
            };
            if only_at_once && !has_room(&to) {
                return Ok(false);
            }
            self.write_granted(&mut to)?;
        }
        Ok(true)
    }

    fn write_granted(&self, to: &mut UnixStream) -> io::Result<()> {
        let granted = std::mem::take(&mut *self.granted());
        granted.into_iter().try_for_each(|threads| Frame::Granted { threads }.write(to))
    }

    fn write_answers(&self, queue: &Receiver<Answer>) {
        while let Ok(Answer(answer)) = queue.recv() {
            let frame = match answer() {
                Ok(bytes) => Frame::Bytes(bytes),
                Err(message) => Frame::NotRead(message),
            };
            let written = {
                let mut to = self.lock();
                self.write_granted(&mut to).and_then(|()| frame.write(&mut *to))
            };
            if written.and_then(|()| self.tell(false)).is_err() {
                return;
            }
        }
    }
}

fn has_room(to: &UnixStream) -> bool {
    let mut room = [PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)];
    poll(&mut room, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::To;
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// A process that reads a store at a server was refused turns: its pipe was the reading thread's.
    #[test]
    fn a_turn_is_granted_while_a_read_waits_for_its_bytes() {
        let (to, its_end) = UnixStream::pair().unwrap();
        let mut command = Command::new("cat");
        let mut child = command.stdin(OwnedFd::from(its_end)).stdout(Stdio::piped()).spawn().unwrap();
        drop(command);
        let (mut to, mut from) = (ToChild::new(to), child.stdout.take().unwrap());
        let (release, released) = sync_channel(1);
        let late = Answer(Box::new(move || {
            released.recv_timeout(Duration::from_secs(60)).unwrap();
            Ok(vec![1; 3_000_000])
        }));
        assert!(to.answer(late).unwrap());
        assert!(to.grant(2).unwrap());
        assert_eq!(Frame::read(&mut from, To::Child).unwrap(), Frame::Granted { threads: 2 });
        release.send(()).unwrap();
        // The answer fills the pipe: what is granted meanwhile comes behind it, and nobody waits.
        std::thread::sleep(Duration::from_millis(50));
        assert!(to.grant(2).unwrap());
        assert_eq!(Frame::read(&mut from, To::Child).unwrap(), Frame::Bytes(vec![1; 3_000_000]));
        assert_eq!(Frame::read(&mut from, To::Child).unwrap(), Frame::Granted { threads: 2 });
        drop(to);
        child.wait().unwrap();
    }
}
