//! The process that speaks to the store, seen from the server: a thread reads what it says, and starts it again if it ends.
//!
//! The thread begins with the first question: a server gives up its rights after it has opened its volumes and exports, and that counts for threads
//! that begin later.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_child::Program;
use rustix::io::Errno;

use crate::frames::{self, Ask, Kind, Opening, Reply, Request};
use crate::store::{Answered, Asker, StoreError};

/// Name of the program.
const PROGRAM: &str = "diskside-objects";
/// The variable that says where it is; empty for nowhere.
const VARIABLE: &str = "DISKSIDE_OBJECTS";
/// Questions that the process has at one time; others wait here.
const IN_FLIGHT_MAX: usize = 64;
/// How often failures are logged.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// How soon a process is started again that ended.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// Beginnings of the names that it gets of this process's environment: its identity at the store, and how to reach it.
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

/// A process that reads of one store.
pub(crate) struct Process {
    shared: Arc<Shared>,
}

struct Shared {
    program: Program,
    url: String,
    state: Mutex<State>,
    /// When a failure was logged last.
    told: Mutex<Option<Instant>>,
    /// There is a question while no process runs, or the store is closed.
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    /// The process that nobody listens to yet.
    unheard: Option<Running>,
    /// The pipe to the process, while it runs.
    to: Option<ChildStdin>,
    next_id: u64,
    in_flight: HashMap<u64, Asked>,
    waiting: VecDeque<Asked>,
    closed: bool,
}

/// A question that has no answer yet.
struct Asked {
    ask: Ask,
    asker: Box<dyn Asker>,
}

/// A process that has understood its URL.
struct Running {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it.
    pub(crate) fn open(url: &str) -> io::Result<Self> {
        let program = program().ok_or_else(|| {
            let told = format!(
                "{url} is in a store of objects, which takes the program {PROGRAM} beside this one, in PATH or where {VARIABLE} says"
            );
            io::Error::new(io::ErrorKind::NotFound, told)
        })?;
        let (running, to) = start(&program, url)?;
        let state = Mutex::new(State { unheard: Some(running), to: Some(to), ..State::default() });
        Ok(Self {
            shared: Arc::new(Shared {
                program,
                url: url.to_owned(),
                state,
                told: Mutex::default(),
                wanted: Condvar::new(),
            }),
        })
    }

    /// Asks; the answer comes later.
    pub(crate) fn ask(&self, ask: Ask, asker: Box<dyn Asker>) {
        let mut state = self.shared.state();
        state.waiting.push_back(Asked { ask, asker });
        if let Some(running) = state.unheard.take() {
            let shared = Arc::clone(&self.shared);
            let listening = std::thread::Builder::new().name("objects".into()).spawn(move || shared.serve(running));
            if let Err(error) = listening {
                tracing::error!(%error, "no thread to read objects");
                state.to = None;
                let failed = state.take_all();
                drop(state);
                return fail(failed, Errno::AGAIN);
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
        let failed = state.take_all();
        if let Some(mut running) = state.unheard.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        drop(state);
        fail(failed, Errno::NODEV);
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

    /// Brings answers as long as the store is open, by one process after the other.
    fn serve(&self, mut running: Running) {
        loop {
            let ended = self.listen(&mut running.from);
            let _ = running.child.kill();
            let _ = running.child.wait();
            let (failed, closed) = {
                let mut state = self.state();
                state.to = None;
                (state.take_all(), state.closed)
            };
            fail(failed, Errno::IO);
            if closed {
                return;
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
        let reply: Reply = frames::read(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let data = frames::read_data(from, &reply)?;
        let asked = {
            let mut state = self.state();
            let asked = state.in_flight.remove(&reply.id).ok_or_else(|| malformed("a reply to no question"))?;
            state.send();
            asked
        };
        let result = check(&asked.ask, reply, data).inspect_err(|error| self.tell(&asked.ask, error));
        asked.asker.take(result);
        Ok(())
    }

    /// Says why there is no answer, once in a while: a store that is away fails each question. That nothing is there is an answer.
    /// The process itself may not write to the server's log, which may be a file.
    fn tell(&self, ask: &Ask, error: &StoreError) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if error.errno == Errno::NOENT || told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return;
        }
        *told = Some(Instant::now());
        match error.errno {
            Errno::STALE => tracing::warn!(
                url = self.url,
                path = ask.path(),
                "the object was replaced; what has its old version open reads nothing more of it"
            ),
            _ => tracing::warn!(url = self.url, path = ask.path(), error = error.message, "the store gives no answer"),
        }
    }

    /// Waits until somebody asks again, and starts another process. `None`: the store was closed.
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
            let started = start(&self.program, &self.url);
            let mut state = self.state();
            match started {
                Ok((running, to)) => {
                    state.to = Some(to);
                    state.send();
                    return Some(running);
                }
                Err(error) => {
                    tracing::warn!(url = self.url, %error, "the process that reads objects cannot be started again");
                    let failed = state.take_all();
                    drop(state);
                    fail(failed, Errno::IO);
                }
            }
        }
    }
}

impl State {
    /// Hands over what waits, as far as it may be in flight. The process reads so many questions ahead: writing does not wait long.
    fn send(&mut self) {
        while self.in_flight.len() < IN_FLIGHT_MAX
            && let Some(to) = &mut self.to
            && let Some(asked) = self.waiting.pop_front()
        {
            if !asked.asker.is_wanted() {
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            // Where that fails the process has ended, and the thread that reads of it fails all that is in flight.
            let _ = frames::write(to, &Request { id, ask: asked.ask.clone() });
            self.in_flight.insert(id, asked);
        }
    }

    /// Takes all that has no answer.
    fn take_all(&mut self) -> Vec<Asked> {
        let in_flight = std::mem::take(&mut self.in_flight).into_values();
        in_flight.chain(std::mem::take(&mut self.waiting)).collect()
    }
}

fn fail(all: Vec<Asked>, errno: Errno) {
    for asked in all {
        asked.asker.take(Err(StoreError::of(errno)));
    }
}

/// An answer, if it is one to what was asked.
fn check(ask: &Ask, reply: Reply, data: Vec<u8>) -> Answered {
    if reply.errno != 0 {
        // Its answer is an error number of this system; anything else is an error all the same.
        let errno = if (1..4096).contains(&reply.errno) { Errno::from_raw_os_error(reply.errno) } else { Errno::IO };
        return Err(StoreError { errno, message: reply.message });
    }
    let fits = match ask {
        Ask::Read { len, .. } => data.len() == *len as usize,
        Ask::First { len, .. } => {
            let there = reply.meta.as_ref().filter(|meta| meta.kind == Kind::Object).map_or(0, |meta| meta.len);
            data.len() as u64 == there.min(u64::from(*len))
        }
        Ask::Head { .. } | Ask::List { .. } => data.is_empty(),
    };
    let strange = || StoreError { errno: Errno::IO, message: "a reply of another length than was asked for".into() };
    if fits { Ok((reply, data)) } else { Err(strange()) }
}

/// The program, if it is there.
pub fn program() -> Option<Program> {
    Program::find(PROGRAM, VARIABLE)
}

/// The files that the program reads to make connections. Who closes the files of a server leaves these open to it.
pub fn files_of_connections() -> Vec<PathBuf> {
    let named =
        ["SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_WEB_IDENTITY_TOKEN_FILE"].into_iter().filter_map(std::env::var_os);
    FILES.iter().map(PathBuf::from).chain(named.map(PathBuf::from)).collect()
}

/// Starts a process and tells it its URL.
fn start(program: &Program, url: &str) -> io::Result<(Running, ChildStdin)> {
    let is_told = |name: &str| ENVIRONMENT.iter().any(|beginning| name.starts_with(beginning));
    let mut child = program
        .command()
        .envs(std::env::vars().filter(|(name, _)| is_told(name)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("{} cannot be started: {error}", program.path().display()))
        })?;
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("a process without pipes"));
    };
    let mut from = BufReader::new(from);
    let opening = Opening { url: url.to_owned() };
    let reply = frames::write(&mut to, &opening).and_then(|()| frames::read::<Reply>(&mut from));
    let error = match reply {
        Ok(Some(reply)) if reply.errno == 0 => return Ok((Running { child, from }, to)),
        Ok(Some(reply)) => io::Error::other(format!("{url}: {}", reply.message)),
        Ok(None) => io::Error::other(format!("{}: it ended before it took {url}", program.path().display())),
        Err(error) => io::Error::new(error.kind(), format!("{}: {error}, asked for {url}", program.path().display())),
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(error)
}
