//! The audit file: connections, refusals, loads and runs, one line of JSON each.
//!
//! A thread of its own writes. Those who report never wait for it: an event that finds no room is counted, and the
//! count goes with the host's next line. Each host has a queue of its own, and so many lines a minute, so none keeps
//! another's from being written. Unknown peers share a queue, and have a few lines a minute for each address. No line
//! contains anything of a key: those who report have none.

mod line_file;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use diskside_compute::{ProgramEvent, Watch};
use diskside_nvme::Nqn;
use diskside_rights::QuotaWatch;
use serde::Serialize;

use crate::config::HostSpec;
use crate::notices::Notices;
use line_file::LineFile;

/// Lines of one host that wait for the disk, and of all.
const HOST_WAITING_MAX: usize = 512;
const WAITING_MAX: usize = 16 << 10;
/// Lines of one host in a [`WINDOW`].
const HOST_LINES_MAX: u32 = 1000;
const WINDOW: Duration = Duration::from_secs(60);
/// Hosts with lines of their own; others share the lines of one.
const HOSTS_MAX: usize = 4096;
/// Characters of a reason: programs can say much when they fail.
const REASON_LEN_MAX: usize = 1000;

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

/// The events of a connection that the audit has already.
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
    /// Not known of what was refused before all of it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    /// The number of calls of a prepared request that share this line.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
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
    /// Lines of the host that were left out since its last one, because the disk was behind or it had its share.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
}

/// Where records go.
#[derive(Debug)]
pub(crate) struct Audit {
    lines: Arc<Lines>,
    strangers: Notices,
    /// Lines of what hosts wanted beyond their quotas and rights.
    refusals: Notices,
    names: Arc<KnownNames>,
    /// It starts with the first file.
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Where lines go.
    path: Mutex<Option<PathBuf>>,
}

/// A file that lines are to go to; none: they go nowhere.
#[derive(Debug)]
pub(crate) struct AuditFile(Option<(PathBuf, File)>);

/// Lines on their way to the disk.
#[derive(Debug, Default)]
struct Lines {
    /// Whether anybody wants them.
    on: AtomicBool,
    /// Lines that nobody wrote.
    lost: AtomicU64,
    queues: Mutex<Queues>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Queues {
    /// By NQN; what strangers did is under no name.
    hosts: BTreeMap<String, HostLines>,
    /// When hosts were last looked through for some to forget.
    swept: Option<Instant>,
    /// Those with lines that wait, in the order of their turns.
    turns: VecDeque<String>,
    waiting: usize,
    /// Files that lines were to go to from then on, each with the lines that waited then, which are of the file before.
    changes: VecDeque<(Vec<(String, Waiting)>, AuditFile)>,
    ended: bool,
}

/// Lines of one host.
#[derive(Debug)]
struct HostLines {
    waiting: VecDeque<Waiting>,
    /// Since its last line that was not.
    left_out: u64,
    /// Lines in this window.
    since: Instant,
    lines: u32,
}

/// When, what, and how many lines were left out before.
#[derive(Debug)]
struct Waiting {
    t_ms: u64,
    record: Record,
    left_out: u64,
}

impl Queues {
    /// Adds a line of a host. False: there is no room for it.
    fn push(&mut self, host: &str, record: Record, now: Instant) -> bool {
        // Not for each of a thousand new names a second: to look through them takes longer than all else.
        if self.hosts.len() >= HOSTS_MAX
            && !self.hosts.contains_key(host)
            && self.swept.is_none_or(|swept| now >= swept + SWEEP_EVERY)
        {
            self.swept = Some(now);
            self.hosts.retain(|_, lines| !lines.waiting.is_empty() || lines.left_out > 0 || now < lines.since + WINDOW);
        }
        let is_told_apart = self.hosts.len() < HOSTS_MAX || self.hosts.contains_key(host);
        let host = if is_told_apart { host } else { OTHERS };
        let lines = self.hosts.entry(host.to_owned()).or_insert_with(|| HostLines {
            waiting: VecDeque::new(),
            left_out: 0,
            since: now,
            lines: 0,
        });
        if now >= lines.since + WINDOW {
            (lines.since, lines.lines) = (now, 0);
        }
        // Those of strangers were counted by their addresses.
        let is_over = lines.lines >= HOST_LINES_MAX && host != STRANGERS;
        if is_over || lines.waiting.len() >= HOST_WAITING_MAX || self.waiting >= WAITING_MAX {
            lines.left_out += 1;
            return false;
        }
        lines.lines += 1;
        if lines.waiting.is_empty() {
            self.turns.push_back(host.to_owned());
        }
        lines.waiting.push_back(Waiting { t_ms: now_ms(), record, left_out: std::mem::take(&mut lines.left_out) });
        self.waiting += 1;
        true
    }

    /// Takes the next line out; hosts take turns.
    fn pop(&mut self) -> Option<(String, Waiting)> {
        let host = self.turns.pop_front()?;
        let lines = self.hosts.get_mut(&host)?;
        let line = lines.waiting.pop_front()?;
        self.waiting -= 1;
        if !lines.waiting.is_empty() {
            self.turns.push_back(host.clone());
        }
        Some((host, line))
    }

    /// A line that was taken out could not be written.
    fn lost(&mut self, host: &str, left_out: u64) {
        if let Some(lines) = self.hosts.get_mut(host) {
            lines.left_out += left_out + 1;
        }
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many lines of a host were left out before its next one.
    fn left_out(&self, host: &str, count: u64) {
        if count > 0
            && let Some(lines) = self.lock().hosts.get_mut(host)
        {
            lines.left_out += count;
        }
    }

    fn push(&self, host: &str, record: Record, now: Instant) {
        if self.lock().push(host, record, now) {
            self.more.notify_one();
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How often hosts are looked through for some to forget.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The queue of what peers did that are not known, and that of hosts that are not told apart. No host has such a name.
const STRANGERS: &str = "";
const OTHERS: &str = "(others)";

/// How hosts are called here, by NQN.
#[derive(Debug, Default)]
pub(crate) struct KnownNames(Mutex<BTreeMap<String, String>>);

impl KnownNames {
    /// Replaces them by those of these hosts.
    pub(crate) fn set(&self, hosts: &[HostSpec]) {
        let names = hosts.iter().map(|host| (host.nqn.clone(), host.name.clone())).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub(crate) fn name_of(&self, nqn: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(nqn).cloned()
    }
}

impl AuditFile {
    /// Opens the file, which is made if there is none. Nobody but its owner can read it then. Where root starts the server, a file
    /// of root's becomes that of `user`, which the server becomes: the server opens it again at SIGHUP.
    pub(crate) fn open(path: Option<&Path>, user: Option<u32>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let found = file.metadata()?;
        if let Some(user) = user.filter(|_| found.is_file() && found.uid() == 0) {
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

impl Audit {
    /// Lines go to this file.
    pub(crate) fn start(file: AuditFile, names: Arc<KnownNames>) -> io::Result<Self> {
        let (lines, strangers, refusals) = Default::default();
        let audit = Self { lines, strangers, refusals, names, writer: Mutex::default(), path: Mutex::default() };
        audit.go_on_in(file)?;
        Ok(audit)
    }

    /// Writes to this file from now on, which begins with the event that a configuration was read, as the last line of
    /// the old file does.
    pub(crate) fn reload(&self, file: AuditFile) -> io::Result<()> {
        let reload = || self.tell(Record { event: "reload", ..Record::default() });
        let path = file.0.as_ref().map(|(path, _)| path.clone());
        if path != *self.path.lock().unwrap_or_else(PoisonError::into_inner) {
            reload();
        }
        self.go_on_in(file)?;
        reload();
        Ok(())
    }

    /// Says that a configuration was not taken.
    pub(crate) fn not_reloaded(&self, why: &str) {
        self.tell(Record { event: "reload.refused", reason: Some(why.to_owned()), ..Record::default() });
    }

    /// Says that of a configuration that was taken this failed.
    pub(crate) fn reloaded_in_part(&self, why: &str) {
        self.tell(Record { event: "reload.incomplete", reason: Some(why.to_owned()), ..Record::default() });
    }

    fn go_on_in(&self, file: AuditFile) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() && file.0.is_some() {
            let lines = Arc::clone(&self.lines);
            let thread = std::thread::Builder::new().name("diskside-audit".into());
            *writer = Some(thread.spawn(move || write_all(&lines))?);
        }
        *self.path.lock().unwrap_or_else(PoisonError::into_inner) = file.0.as_ref().map(|(path, _)| path.clone());
        self.lines.on.store(file.0.is_some(), Ordering::Relaxed);
        // Without a file so far there are no lines, and nobody who would take the change.
        if writer.is_some() {
            let mut queues = self.lines.lock();
            let told_before = std::iter::from_fn(|| queues.pop()).collect();
            queues.changes.push_back((told_before, file));
            drop(queues);
            self.lines.more.notify_one();
        }
        Ok(())
    }

    /// Whether anybody wants to know: else nothing need be put together.
    pub(crate) fn is_on(&self) -> bool {
        self.lines.on.load(Ordering::Relaxed)
    }

    /// Tells of what a host that is known did, or of the target itself.
    pub(crate) fn tell(&self, record: Record) {
        if self.is_on() {
            let host = record.host.clone();
            self.lines.push(host.as_deref().unwrap_or(OTHERS), self.named(record), Instant::now());
        }
    }

    /// Tells of a peer that is not known, as long as its address has lines left.
    pub(crate) fn tell_of_stranger(&self, record: Record, now: Instant) {
        if !self.is_on() {
            return;
        }
        let peer = record.peer.clone().unwrap_or_default();
        // The next line of this address has the number of those that were left out.
        if let Some(left_out) = self.strangers.admit(&peer, now) {
            self.lines.left_out(STRANGERS, left_out);
            self.lines.push(STRANGERS, self.named(record), now);
        }
    }

    /// Tells that keys of a host have ended, or are good again; so many of those with an end are good.
    pub(crate) fn tell_of_keys(&self, host: &Nqn, good: usize) {
        let reason = Some(format!("keys of this host with an end: {good} are good"));
        self.tell(Record { event: "key", host: Some(host.to_string()), reason, ..Record::default() });
    }

    /// Tells what a host wanted and did not get. A host that asks again and again has few lines for it, and keeps the others for
    /// what it did.
    fn tell_refusal(&self, event: &'static str, nqn: &str, what: &str) {
        if self.is_on()
            && let Some(left_out) = self.refusals.admit(&format!("{event} {nqn}:"), Instant::now())
        {
            let (host, reason) = (Some(nqn.to_owned()), Some(what.to_owned()));
            self.lines.left_out(nqn, left_out);
            self.tell(Record { event, host, reason, ..Record::default() });
        }
    }

    /// How the host is called here, and no more of the reason than a line holds.
    fn named(&self, mut record: Record) -> Record {
        if record.principal.is_none() {
            record.principal = record.host.as_deref().and_then(|nqn| self.names.name_of(nqn));
        }
        if let Some(reason) = &mut record.reason
            && let Some((at, _)) = reason.char_indices().nth(REASON_LEN_MAX)
        {
            reason.truncate(at);
        }
        record
    }

    /// Lines that were left out so far.
    pub(crate) fn left_out(&self) -> u64 {
        self.lines.lost.load(Ordering::Relaxed) + self.strangers.left_out() + self.refusals.left_out()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // The thread ends once all is written.
        self.lines.lock().ended = true;
        self.lines.more.notify_one();
        if let Some(writer) = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // It has nothing that can panic.
            let _ = writer.join();
        }
    }
}

impl QuotaWatch for Audit {
    fn refused(&self, nqn: &str, what: &str) {
        self.tell_refusal("quota", nqn, what);
    }

    fn denied(&self, nqn: &str, what: &str) {
        self.tell_refusal("deny", nqn, what);
    }
}

impl Watch for Audit {
    fn wants(&self) -> bool {
        self.is_on()
    }

    fn program(&self, host: &str, event: ProgramEvent<'_>) {
        let hex = |sha256: [u8; 32]| sha256.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (name, reason, program) = match event {
            ProgramEvent::Loaded { sha256, len, refused } => {
                let sha256 = sha256.map(hex);
                ("program.load", refused, Program { sha256, function: None, calls: None, bytes: len, run_us: None })
            }
            ProgramEvent::Ran { sha256, function, calls, bytes, run_us, failed } => {
                let (sha256, function, run_us) = (Some(hex(sha256)), Some(function.to_owned()), Some(run_us));
                ("program.run", failed, Program { sha256, function, calls, bytes, run_us })
            }
        };
        let (host, reason) = (Some(host.to_owned()), reason.map(str::to_owned));
        self.tell(Record { event: name, host, reason, program: Some(program), ..Record::default() });
    }
}

fn write_all(lines: &Lines) {
    let mut file: Option<LineFile> = None;
    let mut queues = lines.lock();
    loop {
        if let Some((told_before, AuditFile(next))) = queues.changes.pop_front() {
            drop(queues);
            for (host, line) in told_before {
                write(lines, file.as_mut(), &host, line);
            }
            file = next.map(|(path, file)| LineFile::new(path, file));
            queues = lines.lock();
        } else if let Some((host, line)) = queues.pop() {
            drop(queues);
            write(lines, file.as_mut(), &host, line);
            queues = lines.lock();
        } else if queues.ended {
            return;
        } else {
            queues = lines.more.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn write(lines: &Lines, file: Option<&mut LineFile>, host: &str, line: Waiting) {
    let Waiting { t_ms, record, left_out } = line;
    let Some(told) = file else { return };
    let line = serde_json::to_string(&Line { v: 1, t_ms, record: &record, left_out });
    let written = line.map_err(io::Error::from).and_then(|line| told.add(&line));
    match written {
        Err(error) => {
            lines.lost.fetch_add(1, Ordering::Relaxed);
            lines.lock().lost(host, left_out);
            if !std::mem::replace(&mut told.has_warned, true) {
                tracing::error!(path = %told.path.display(), %error, "the audit file cannot be written");
            }
        }
        Ok(()) if std::mem::take(&mut told.has_warned) => {
            tracing::warn!(path = %told.path.display(), "the audit file is written again");
        }
        Ok(()) => {}
    }
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
        let audit = Audit::start(AuditFile::open(Some(&path), None).unwrap(), names()).unwrap();
        audit.tell(Record { event: "connect", host: Some("nqn.a".into()), queue: Some(0), ..Record::default() });
        let start = Instant::now();
        for port in 0..1000 {
            audit.tell_of_stranger(record(&format!("192.0.2.1:{port}")), start);
        }
        let minute = Duration::from_secs(61);
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

    /// Those who report do not wait for a disk: a pipe that nobody reads acts as one that hangs.
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
        let audit = Audit::start(AuditFile::open(Some(&path), None).unwrap(), names()).unwrap();
        let tell = |host: &str| {
            let (host, reason) = (Some(host.to_owned()), Some("x".repeat(100)));
            audit.tell(Record { event: "connect", host, reason, ..Record::default() });
        };
        for _ in 0..HOST_WAITING_MAX * 3 {
            tell("nqn.a");
        }
        assert!(audit.left_out() > HOST_WAITING_MAX as u64 / 2, "{}", audit.left_out());
        // One host filled the queue of all, and what others did was lost.
        let before = audit.left_out();
        (0..100).for_each(|_| tell("nqn.b"));
        assert_eq!(audit.left_out(), before);
        // It reads again: the thread comes to its end.
        let drain = std::thread::spawn(move || io::copy(&mut { reader }, &mut io::sink()).map(drop));
        drop(audit);
        drop(drain);
    }

    /// A host wrote as many lines as it liked, and the disk was full of them.
    #[test]
    fn a_host_has_so_many_lines_a_minute_and_the_next_one_tells_of_the_others() {
        let (mut queues, start) = (Queues::default(), Instant::now());
        let mut written = Vec::new();
        let mut tell = |host: &str, count: u32, now: Instant| {
            for _ in 0..count {
                queues.push(host, Record { event: "program.run", ..Record::default() }, now);
                written.extend(queues.pop().map(|(host, line)| (host, line.left_out)));
            }
        };
        tell("nqn.a", HOST_LINES_MAX + 50, start);
        tell("nqn.b", 1, start);
        tell("nqn.a", 1, start + WINDOW);
        assert_eq!(written.len(), HOST_LINES_MAX as usize + 2);
        assert_eq!(written[HOST_LINES_MAX as usize..], [("nqn.b".to_owned(), 0), ("nqn.a".to_owned(), 50)]);
    }

    #[test]
    fn hosts_take_turns_and_names_without_end_take_no_memory() {
        let (mut queues, now) = (Queues::default(), Instant::now());
        for host in ["a", "a", "a", "b"] {
            queues.push(host, Record::default(), now);
        }
        let order: Vec<_> = std::iter::from_fn(|| queues.pop()).map(|(host, _)| host).collect();
        assert_eq!(order, ["a", "b", "a", "a"]);
        for host in 0..100_000 {
            queues.push(&host.to_string(), Record::default(), now);
        }
        assert!(queues.hosts.len() <= HOSTS_MAX + 1 && queues.waiting <= WAITING_MAX);
    }

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
}
