//! Lines that wait for the disk: a queue of each host, which take turns, and the lines that find no room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::file::AuditFile;
use super::record::Record;

/// Lines of one host that wait for the disk, and of all.
pub(super) const HOST_WAITING_MAX: usize = 512;
const WAITING_MAX: usize = 16 << 10;
/// Lines of one host in a [`WINDOW`].
const HOST_LINES_MAX: u32 = 1000;
const WINDOW: Duration = Duration::from_secs(60);
/// Hosts with lines of their own; others share the lines of one.
const HOSTS_MAX: usize = 4096;

/// Lines on their way to the disk.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Whether anybody wants them.
    pub(super) on: AtomicBool,
    /// Lines that nobody wrote.
    pub(super) lost: AtomicU64,
    queues: Mutex<Queues>,
    pub(super) more: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// By NQN; what strangers did is under no name.
    hosts: BTreeMap<String, HostLines>,
    /// When hosts were last looked through for some to forget.
    swept: Option<Instant>,
    /// Those with lines that wait, in the order of their turns.
    turns: VecDeque<String>,
    waiting: usize,
    /// Files that lines were to go to from then on, each with the lines that waited then, which are of the file before.
    pub(super) changes: VecDeque<(Vec<(String, Waiting)>, AuditFile)>,
    pub(super) ended: bool,
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
pub(super) struct Waiting {
    pub(super) t_ms: u64,
    pub(super) record: Record,
    pub(super) left_out: u64,
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
    pub(super) fn pop(&mut self) -> Option<(String, Waiting)> {
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
    pub(super) fn lost(&mut self, host: &str, left_out: u64) {
        if let Some(lines) = self.hosts.get_mut(host) {
            lines.left_out += left_out + 1;
        }
    }
}

impl Lines {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many lines of a host were left out before its next one.
    pub(super) fn left_out(&self, host: &str, count: u64) {
        if count > 0
            && let Some(lines) = self.lock().hosts.get_mut(host)
        {
            lines.left_out += count;
        }
    }

    pub(super) fn push(&self, host: &str, record: Record, now: Instant) {
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
pub(super) const STRANGERS: &str = "";
pub(super) const OTHERS: &str = "(others)";

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
