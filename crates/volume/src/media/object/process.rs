//! The process that speaks to the store, seen from the server: a thread reads what it says, and starts it again if it ends.
//!
//! The thread begins with the first read: a server gives up its rights after it has opened its volumes, and that counts for threads
//! that begin later.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::buffer::{Hugepages, SharedMemory};

use super::frames::{self, Opened, Reply, Request};
use crate::pending::Answer;

/// Name of the program.
const PROGRAM: &str = "diskside-objects";
/// The variable that says where it is; empty for nowhere.
const VARIABLE: &str = "DISKSIDE_OBJECTS";
/// Reads that the process has at one time; others wait here.
const IN_FLIGHT_MAX: usize = 64;
/// How soon a process is started again that ended.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// Beginnings of what it is told of this process's environment: who it is to the store, and how to reach it.
const ENVIRONMENT: [&str; 8] =
    ["AWS_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];

/// Names of addresses, certificates of authorities, and libraries that are loaded late.
const FILES: &[&str] = &[
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/ld.so.cache",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/dev/urandom",
];

/// A process that reads one version of one object.
pub(super) struct Process {
    shared: Arc<Shared>,
}

struct Shared {
    url: String,
    /// What it was at first: a process that finds another version is not used.
    object: Opened,
    state: Mutex<State>,
    /// There is a read while no process runs, or the medium is closed.
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    /// The process that nobody listens to yet.
    unheard: Option<Running>,
    /// The pipe to the process, while it runs.
    to: Option<ChildStdin>,
    next_id: u64,
    in_flight: HashMap<u64, Read>,
    waiting: VecDeque<Read>,
    closed: bool,
}

/// A read that has no answer yet.
struct Read {
    offset: u64,
    /// Bytes of the object; the rest, up to the length, are zeroes.
    in_object: usize,
    len: usize,
    answer: Answer,
}

/// A process that has opened the object.
struct Running {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it; gives the length of the object, too.
    pub(super) fn open(url: &str) -> io::Result<(Self, u64)> {
        let (running, to, object) = start(url)?;
        let len = match &object {
            Opened::Object { len, .. } => *len,
            Opened::Refused(message) => return Err(io::Error::other(format!("{url}: {message}"))),
        };
        let state = Mutex::new(State { unheard: Some(running), to: Some(to), ..State::default() });
        let shared = Arc::new(Shared { url: url.to_owned(), object, state, wanted: Condvar::new() });
        Ok((Self { shared }, len))
    }

    /// Reads `in_object` bytes at `offset`; the answer is filled with zeroes up to `len`.
    pub(super) fn read(&self, offset: u64, in_object: usize, len: usize, answer: Answer) {
        let mut state = self.shared.state();
        state.waiting.push_back(Read { offset, in_object, len, answer });
        if let Some(running) = state.unheard.take() {
            let shared = Arc::clone(&self.shared);
            let listening = std::thread::Builder::new().name("objects".into()).spawn(move || shared.serve(running));
            if let Err(error) = listening {
                tracing::error!(%error, "no thread to read objects");
                state.to = None;
                return state.fail(Errno::AGAIN);
            }
        }
        state.send();
        drop(state);
        self.shared.wanted.notify_one();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closed = true;
        // The end of its pipe ends the process, and that the thread.
        state.to = None;
        state.fail(Errno::NODEV);
        if let Some(mut running) = state.unheard.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        drop(state);
        self.shared.wanted.notify_one();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("url", &self.shared.url).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings answers as long as the medium is open, by one process after the other.
    fn serve(&self, mut running: Running) {
        loop {
            let ended = self.listen(&mut running.from);
            let _ = running.child.kill();
            let _ = running.child.wait();
            {
                let mut state = self.state();
                state.to = None;
                state.fail(Errno::IO);
                if state.closed {
                    return;
                }
            }
            tracing::warn!(url = self.url, error = %ended, "the process that reads objects ended; it is started again when it is needed");
            match self.restart() {
                Some(next) => running = next,
                None => return,
            }
        }
    }

    /// Takes replies until the process ends.
    fn listen(&self, from: &mut BufReader<ChildStdout>) -> io::Error {
        loop {
            if let Err(error) = self.take_reply(from) {
                return error;
            }
        }
    }

    fn take_reply(&self, from: &mut BufReader<ChildStdout>) -> io::Result<()> {
        let malformed = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let reply = Reply::read(from)?;
        let read = {
            let mut state = self.state();
            let read = state.in_flight.remove(&reply.id).ok_or_else(|| malformed("a reply to no read"))?;
            state.send();
            read
        };
        if reply.errno != 0 {
            // What it says is an error number of this system; anything else is an error all the same.
            let errno = i32::try_from(reply.errno).ok().filter(|errno| (1..4096).contains(errno));
            let errno = errno.map_or(Errno::IO, Errno::from_raw_os_error);
            if errno == Errno::STALE {
                tracing::warn!(
                    url = self.url,
                    "the object was replaced; its volume reads nothing more until it is opened again"
                );
            }
            read.answer.give(Err(errno));
            return Ok(());
        }
        if reply.len as usize != read.in_object {
            return Err(malformed("a reply of another length than was asked for"));
        }
        let mut bytes = vec![0; read.len];
        from.read_exact(&mut bytes[..read.in_object])?;
        let memory = SharedMemory::zeroed(read.len, Hugepages::No);
        memory.write(0, &bytes);
        read.answer.give(Ok(memory.slice(0..read.len)));
        Ok(())
    }

    /// Waits until somebody reads again, and starts another process. `None`: the medium was closed.
    fn restart(&self) -> Option<Running> {
        loop {
            std::thread::sleep(RESTART_AFTER);
            {
                let mut state = self.state();
                while state.waiting.is_empty() && !state.closed {
                    state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.closed {
                    return None;
                }
            }
            let started = start(&self.url);
            let mut state = self.state();
            match started {
                Ok((running, to, object)) if object == self.object => {
                    state.to = Some(to);
                    state.send();
                    return Some(running);
                }
                Ok((_, _, Opened::Object { .. })) => state.fail(Errno::STALE),
                Ok((_, _, Opened::Refused(message))) => {
                    tracing::warn!(url = self.url, message, "the object cannot be opened again");
                    state.fail(Errno::IO);
                }
                Err(error) => {
                    tracing::warn!(url = self.url, %error, "the object cannot be opened again");
                    state.fail(Errno::IO);
                }
            }
        }
    }
}

impl State {
    /// Hands over what waits, as far as it may be in flight. The pipe has room for so many requests: writing does not wait.
    fn send(&mut self) {
        while self.in_flight.len() < IN_FLIGHT_MAX
            && let Some(to) = &mut self.to
            && let Some(read) = self.waiting.pop_front()
        {
            if !read.answer.is_wanted() {
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            let request = Request { id, offset: read.offset, len: read.in_object as u32 };
            // Where that fails the process has ended, and the thread that reads of it fails all that is in flight.
            let _ = request.write(to);
            self.in_flight.insert(id, read);
        }
    }

    fn fail(&mut self, errno: Errno) {
        let in_flight = std::mem::take(&mut self.in_flight).into_values();
        for read in in_flight.chain(std::mem::take(&mut self.waiting)) {
            read.answer.give(Err(errno));
        }
    }
}

/// Where the program is, if it is there.
pub fn program() -> Option<PathBuf> {
    diskside_child::find(PROGRAM, VARIABLE)
}

/// The files that the program reads to make connections. Who closes the files of a server leaves these open to it.
pub fn files_of_connections() -> Vec<PathBuf> {
    let named =
        ["SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_WEB_IDENTITY_TOKEN_FILE"].into_iter().filter_map(std::env::var_os);
    FILES.iter().map(PathBuf::from).chain(named.map(PathBuf::from)).collect()
}

/// Starts a process and has it open the object.
fn start(url: &str) -> io::Result<(Running, ChildStdin, Opened)> {
    let program = program().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{url} is an object of a store, which takes the program {PROGRAM} beside this one, in PATH or where {VARIABLE} says"),
        )
    })?;
    let is_told = |name: &str| ENVIRONMENT.iter().any(|beginning| name.starts_with(beginning));
    let mut child = Command::new(&program)
        .env_clear()
        .envs(std::env::vars().filter(|(name, _)| is_told(name)))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{} cannot be started: {error}", program.display())))?;
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("a process without pipes"));
    };
    let mut from = BufReader::new(from);
    let opened = frames::write_text(&mut to, url).and_then(|()| Opened::read(&mut from));
    match opened {
        Ok(object) => Ok((Running { child, from }, to, object)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(io::Error::new(
                error.kind(),
                format!("{}: it ended before it opened {url} ({error})", program.display()),
            ))
        }
    }
}
