//! Who came, who was refused, what was loaded and run: one line of JSON each, in a file of its own.
//!
//! A thread of its own writes. Who has something to tell never waits for it: what finds no room is counted, and the count is
//! told with the next line that does. Peers that are not known have a few lines a minute for each address. Nothing of a key is
//! in any line: those who tell have none.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use diskside_compute::{ProgramEvent, Watch};
use serde::Serialize;

use crate::config::HostSpec;
use crate::notices::Notices;

/// Lines that wait for the disk.
const WAITING_MAX: usize = 4096;

/// What happened.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Record {
    pub(crate) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// How the host is called here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authenticated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<Program>,
}

/// What the audit was told of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing yet.
    #[default]
    Nothing,
    /// That its host came; only of admin queues.
    Arrival,
    /// There is nothing more to tell.
    All,
}

/// A program, and what it did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Program {
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_us: Option<u64>,
}

/// A line as it is written.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    /// Milliseconds since 1970.
    t_ms: u64,
    #[serde(flatten)]
    record: &'a Record,
    /// Lines that were left out since the last one, because the disk was behind or a peer had its share.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
}

/// Where records go.
#[derive(Debug)]
pub(crate) struct Audit {
    /// `None`: nobody asked for them.
    lines: Option<SyncSender<Message>>,
    strangers: Notices,
    lost: Arc<Lost>,
    names: Arc<KnownNames>,
    writer: Option<JoinHandle<()>>,
}

/// Lines that nobody wrote.
#[derive(Debug, Default)]
struct Lost {
    total: AtomicU64,
    /// Of these, and of those of strangers, since the last line.
    untold: AtomicU64,
}

impl Lost {
    fn add(&self, lines: u64) {
        self.total.fetch_add(lines, Ordering::Relaxed);
        self.untold.fetch_add(lines, Ordering::Relaxed);
    }
}

/// How hosts are called here, by NQN.
#[derive(Debug, Default)]
pub(crate) struct KnownNames(Mutex<BTreeMap<String, String>>);

impl KnownNames {
    /// Replaces them by those of these hosts.
    pub(crate) fn set(&self, hosts: &[HostSpec]) {
        let names = hosts.iter().map(|host| (host.nqn.clone(), host.name.clone())).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn name_of(&self, nqn: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(nqn).cloned()
    }
}

enum Message {
    /// When, what, and how many lines were left out before.
    Record(Box<(u64, Record, u64)>),
    /// The file may have been moved away.
    Reopen,
}

impl Audit {
    /// Appends to the file at `path`, which is made if there is none; without a path nothing is kept.
    pub(crate) fn start(path: Option<&Path>, names: Arc<KnownNames>) -> io::Result<Self> {
        let (strangers, lost) = (Notices::default(), Arc::<Lost>::default());
        let Some(path) = path else { return Ok(Self { lines: None, strangers, lost, names, writer: None }) };
        let file = open(path)?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let (path, count) = (path.to_owned(), Arc::clone(&lost));
        let thread = std::thread::Builder::new().name("diskside-audit".into());
        let writer = thread.spawn(move || write_all(&receiver, file, &path, &count))?;
        Ok(Self { lines: Some(sender), strangers, lost, names, writer: Some(writer) })
    }

    /// Whether anybody wants to know: else nothing need be put together.
    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Tells of what a host that is known did.
    pub(crate) fn tell(&self, mut record: Record) {
        let Some(lines) = &self.lines else { return };
        if record.principal.is_none() {
            record.principal = record.host.as_deref().and_then(|nqn| self.names.name_of(nqn));
        }
        let left_out = self.lost.untold.swap(0, Ordering::Relaxed);
        if lines.try_send(Message::Record(Box::new((now_ms(), record, left_out)))).is_err() {
            self.lost.untold.fetch_add(left_out, Ordering::Relaxed);
            self.lost.add(1);
        }
    }

    /// Tells of a peer that is not known, as long as its address has lines left.
    pub(crate) fn tell_of_stranger(&self, record: Record, now: Instant) {
        if !self.is_on() {
            return;
        }
        let peer = record.peer.clone().unwrap_or_default();
        // What is left out is told with the next line of this address.
        if let Some(left_out) = self.strangers.admit(&peer, now) {
            self.lost.untold.fetch_add(left_out, Ordering::Relaxed);
            self.tell(record);
        }
    }

    /// Begins the file anew, if it was moved away.
    pub(crate) fn reopen(&self) {
        if let Some(lines) = &self.lines {
            // A full queue is a full disk's or a slow one's: the next reload comes.
            let _ = lines.try_send(Message::Reopen);
        }
    }

    /// Lines that were left out so far.
    pub(crate) fn left_out(&self) -> u64 {
        self.lost.total.load(Ordering::Relaxed) + self.strangers.left_out()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // The end of the channel ends the thread, once all is written.
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            // It has nothing that can panic.
            let _ = writer.join();
        }
    }
}

impl Watch for Audit {
    fn wants(&self) -> bool {
        self.is_on()
    }

    fn program(&self, host: &str, event: ProgramEvent<'_>) {
        let (name, sha256, function, bytes, run_us, reason) = match event {
            ProgramEvent::Loaded { sha256, len, refused } => {
                ("program.load", sha256, None, len, None, refused.map(str::to_owned))
            }
            ProgramEvent::Ran { sha256, function, bytes, run_us, failed } => {
                ("program.run", sha256, Some(function.to_owned()), bytes, Some(run_us), failed.map(str::to_owned))
            }
        };
        let sha256 = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        let program = Some(Program { sha256, function, bytes, run_us });
        self.tell(Record { event: name, host: Some(host.to_owned()), reason, program, ..Record::default() });
    }
}

fn write_all(lines: &Receiver<Message>, mut file: File, path: &Path, lost: &Lost) {
    let mut warned = false;
    while let Ok(message) = lines.recv() {
        let (t_ms, record, left_out) = match message {
            Message::Record(record) => *record,
            Message::Reopen => {
                match open(path) {
                    Ok(again) => file = again,
                    Err(error) => tracing::warn!(path = %path.display(), %error, "the audit file stays as it is"),
                }
                continue;
            }
        };
        let written = serde_json::to_string(&Line { v: 1, t_ms, record: &record, left_out })
            .map_err(io::Error::from)
            // One write each: whoever reads the file sees whole lines.
            .and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            lost.untold.fetch_add(left_out, Ordering::Relaxed);
            lost.add(1);
            if !std::mem::replace(&mut warned, true) {
                tracing::error!(path = %path.display(), %error, "the audit file cannot be written");
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Arc<KnownNames> {
        let names = KnownNames::default();
        names.set(&[HostSpec { name: "ann".into(), nqn: "nqn.a".into(), ..HostSpec::default() }]);
        Arc::new(names)
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn record(peer: &str) -> Record {
        Record { event: "auth.fail", peer: Some(peer.into()), ..Record::default() }
    }

    #[test]
    fn each_line_is_whole_and_strangers_have_a_few_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::start(Some(&path), names()).unwrap();
        audit.tell(Record { event: "connect", host: Some("nqn.a".into()), queue: Some(0), ..Record::default() });
        let start = Instant::now();
        for port in 0..1000 {
            audit.tell_of_stranger(record(&format!("192.0.2.1:{port}")), start);
        }
        let minute = std::time::Duration::from_secs(61);
        audit.tell_of_stranger(record("192.0.2.1:1"), start + minute);
        drop(audit);
        let lines = lines(&path);
        assert_eq!(lines.len(), 12, "one, ten of the thousand, and the one a minute later");
        assert_eq!(
            (&lines[0]["event"], &lines[0]["principal"], &lines[0]["v"]),
            (&"connect".into(), &"ann".into(), &1.into())
        );
        assert_eq!(lines[11]["left_out"], 990);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Who tells does not wait for a disk: a pipe that nobody reads stands for one that hangs.
    #[test]
    fn a_disk_that_hangs_holds_nobody_up_and_what_is_lost_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        // A reader there must be, or opening it would wait.
        let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let audit = Audit::start(Some(&path), names()).unwrap();
        for _ in 0..WAITING_MAX * 3 {
            audit.tell(Record { event: "connect", reason: Some("x".repeat(100)), ..Record::default() });
        }
        assert!(audit.left_out() > WAITING_MAX as u64 / 2, "{}", audit.left_out());
        // It reads again: the thread comes to its end.
        let drain = std::thread::spawn(move || io::copy(&mut { reader }, &mut io::sink()).map(drop));
        drop(audit);
        drop(drain);
    }
}
