//! The audit file: connections, refusals, loads and runs, one line of JSON each.
//!
//! A thread of its own writes. Those who report never wait for it: an event that finds no room is counted, and the
//! count goes with the host's next line. Each host has a queue of its own, and so many lines a minute, so none keeps
//! another's from being written. Unknown peers share a queue, and have a few lines a minute for each address. No line
//! contains anything of a key: those who report have none.

mod file;
mod line_file;
mod queues;
mod record;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use diskside_compute::{ProgramEvent, Watch};
use diskside_nvme::Nqn;
use diskside_rights::QuotaWatch;

use crate::config::HostSpec;
use crate::notices::Notices;
pub(crate) use file::{AuditFile, check_link};
use queues::{Lines, OTHERS, STRANGERS};
use record::Program;
pub(crate) use record::{Record, Told};
use writer::write_all;

/// Characters of a reason: programs can say much when they fail.
const REASON_LEN_MAX: usize = 1000;

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

    /// Tells what a host did to a reservation, or could not do because of one: in the log, too. It has few lines for it.
    pub(crate) fn tell_reservation(&self, nqn: &str, what: &str) {
        let Some(left_out) = self.refusals.admit(&format!("reservation {nqn}:"), Instant::now()) else { return };
        tracing::info!(host = nqn, left_out, "reservation: {what}");
        if self.is_on() {
            let (host, reason) = (Some(nqn.to_owned()), Some(what.to_owned()));
            self.lines.left_out(nqn, left_out);
            self.tell(Record { event: "reservation", host, reason, ..Record::default() });
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

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;
    use std::time::Duration;

    use super::queues::HOST_WAITING_MAX;
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

    /// Nothing said that a host had taken a volume from the others, nor that they were kept from it.
    #[test]
    fn changes_of_reservations_have_a_few_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::start(AuditFile::open(Some(&path), None).unwrap(), names()).unwrap();
        (0..1000).for_each(|_| audit.tell_reservation("nqn.a", "acquire on volume data"));
        audit.tell_reservation("nqn.b", "conflict on volume data");
        drop(audit);
        let lines = lines(&path);
        assert_eq!(lines.len(), 11, "ten of the first host, and the other's one");
        // Hosts take turns in it, so the order of two says nothing.
        let of = |host: &str| lines.iter().find(|line| line["host"] == host).unwrap();
        assert_eq!((&of("nqn.a")["event"], &of("nqn.a")["principal"]), (&"reservation".into(), &"ann".into()));
        assert_eq!(of("nqn.b")["reason"], "conflict on volume data");
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
}
