//! How the disk below a volume or an export is: what it has not answered, and what it failed.
//!
//! Everybody who asks it counts here: commands of hosts, and functions, copies, traversals, sinks and kernels. So an operator sees which
//! disk hangs, since when, and how many operations wait for it. [`Health::look`] writes that to the log, and is to be called once a second;
//! failures are written as they come, few lines of them however many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::unanswered::{Asked, Unanswered};
use serde::Serialize;

/// A disk that has not answered for so long is told of in the log.
pub const HANGS_AFTER: Duration = Duration::from_secs(5);
/// One that hangs again and again is told of so often at most.
const HANGS_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Lines about failures in so long, and how often one of the same cause among them.
const LINES_MAX: u32 = 10;
const LINES_IN: Duration = Duration::from_secs(60);
const SAME_AFTER: Duration = Duration::from_secs(5);

/// What a disk is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Below {
    /// A volume: its medium.
    Volume,
    /// An export: its file system, or its store.
    Export,
}

/// The state of one disk.
#[derive(Debug)]
pub struct Health {
    below: Below,
    name: String,
    unanswered: Unanswered,
    errors: AtomicU64,
    hang: Mutex<Hang>,
    lines: Mutex<Lines>,
}

/// What metrics tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthStats {
    /// What it is below.
    pub below: Below,
    /// The name of that.
    pub name: String,
    /// Operations that it has not answered.
    pub waiting: u64,
    /// Milliseconds that the oldest of them has waited.
    pub oldest_ms: u64,
    /// Operations that it failed so far.
    pub errors: u64,
}

/// An operation that a disk failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// What was to be done.
    pub operation: &'a str,
    /// The file, in an export.
    pub file: Option<&'a str>,
    /// First byte.
    pub offset: Option<u64>,
    /// What the system said.
    pub errno: Errno,
}

/// What was told of a disk that hangs.
#[derive(Debug, Default)]
struct Hang {
    told: Option<Instant>,
    /// Since when the operation waits of which was told, until it is answered.
    since: Option<Instant>,
}

/// What was told of failures.
#[derive(Debug, Default)]
struct Lines {
    since: Option<Instant>,
    count: u32,
    left_out: u64,
    causes: Vec<(String, Instant)>,
}

/// What there is to say of a disk that hangs, or does no more.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Hangs(Duration),
    Answers(Duration),
}

impl Health {
    /// For the disk below the volume or export of this name.
    pub fn new(below: Below, name: &str) -> Self {
        let (unanswered, errors, hang, lines) = Default::default();
        Self { below, name: name.to_owned(), unanswered, errors, hang, lines }
    }

    /// The disk is asked for something; what this returns is to be kept until it has answered.
    pub fn ask(&self, now: Instant) -> Asked {
        self.unanswered.ask(now)
    }

    /// The disk failed something. An error that is not the disk's, such as a right that is missing, counts for nothing here.
    pub fn failed(&self, failure: &Failure<'_>) {
        self.failed_because(failure, || None);
    }

    /// The same; `why` is asked for more than the system said, if there is a line.
    pub fn failed_because(&self, failure: &Failure<'_>, why: impl FnOnce() -> Option<String>) {
        if self.count(failure.errno)
            && let Some(left_out) = lock(&self.lines).admit(failure, Instant::now())
        {
            let Failure { operation, file, offset, errno } = failure;
            let (volume, export) = self.names();
            let (error, why) = (std::io::Error::from(*errno), why());
            tracing::warn!(volume, export, file, operation, offset, %error, why, left_out, "the disk failed an operation");
        }
    }

    /// Counts a failure that somebody else tells of. Whether it is the disk's.
    pub fn count(&self, errno: Errno) -> bool {
        let is_its = is_of_disk(errno);
        if is_its {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        is_its
    }

    /// The state now.
    pub fn stats(&self) -> HealthStats {
        let age = self.unanswered.oldest().map_or(Duration::ZERO, |since| since.elapsed());
        HealthStats {
            below: self.below,
            name: self.name.clone(),
            waiting: self.unanswered.len() as u64,
            oldest_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            errors: self.errors.load(Ordering::Relaxed),
        }
    }

    /// Writes to the log that the disk hangs, once, and that it answers again. To be called once a second.
    pub fn look(&self, now: Instant) {
        let (volume, export) = self.names();
        let news = lock(&self.hang).look(self.unanswered.oldest(), now);
        match news {
            None => {}
            Some(News::Hangs(age)) => {
                let (seconds, waiting) = (age.as_secs(), self.unanswered.len());
                tracing::warn!(volume, export, seconds, waiting, "the disk has not answered for {seconds} s");
            }
            Some(News::Answers(took)) => {
                let seconds = took.as_secs();
                tracing::warn!(volume, export, seconds, "the disk answers again, after {seconds} s");
            }
        }
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        match self.below {
            Below::Volume => (Some(&self.name), None),
            Below::Export => (None, Some(&self.name)),
        }
    }
}

impl Hang {
    fn look(&mut self, oldest: Option<Instant>, now: Instant) -> Option<News> {
        let age = |since| now.saturating_duration_since(since);
        if let Some(since) = self.since {
            // Others that were asked later may wait as long: then it hangs still.
            let still = oldest.filter(|oldest| age(*oldest) >= HANGS_AFTER);
            if still.is_none() {
                self.since = None;
                return Some(News::Answers(age(since)));
            }
            return None;
        }
        let since = oldest.filter(|oldest| age(*oldest) >= HANGS_AFTER)?;
        if self.told.is_some_and(|told| age(told) < HANGS_TOLD_EVERY) {
            return None;
        }
        (self.told, self.since) = (Some(now), Some(since));
        Some(News::Hangs(age(since)))
    }
}

impl Lines {
    /// Whether a line is written: then how many were left out since the last one that was.
    fn admit(&mut self, failure: &Failure<'_>, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= LINES_IN) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.causes.retain(|(_, at)| now.saturating_duration_since(*at) < SAME_AFTER);
        let cause = format!("{} {}", failure.operation, failure.errno.raw_os_error());
        if self.count >= LINES_MAX || self.causes.iter().any(|(known, _)| *known == cause) {
            self.left_out += 1;
            return None;
        }
        self.count += 1;
        self.causes.push((cause, now));
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Whether an operation failed because of the disk, or of the way to it, and not because of what it asked for.
pub fn is_of_disk(errno: Errno) -> bool {
    const OF_DISKS: [Errno; 15] = [
        Errno::IO,
        Errno::NOSPC,
        Errno::NXIO,
        Errno::NODEV,
        Errno::TIMEDOUT,
        Errno::REMOTEIO,
        Errno::UCLEAN,
        Errno::BADMSG,
        Errno::ILSEQ,
        Errno::NODATA,
        Errno::NOLINK,
        Errno::NOMEDIUM,
        Errno::NOTCONN,
        Errno::CONNABORTED,
        Errno::HOSTDOWN,
    ];
    OF_DISKS.contains(&errno)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_disk_that_hangs_is_told_of_once_and_again_when_it_answers() {
        let (mut hang, start) = (Hang::default(), Instant::now());
        let at = |seconds| start + seconds * SECOND;
        assert_eq!(hang.look(Some(at(0)), at(4)), None, "it is slow, and no more");
        assert_eq!(hang.look(Some(at(0)), at(5)), Some(News::Hangs(5 * SECOND)));
        assert_eq!(hang.look(Some(at(0)), at(6)), None);
        assert_eq!(hang.look(Some(at(3)), at(8)), None, "the next one waits as long");
        assert_eq!(hang.look(Some(at(9)), at(10)), Some(News::Answers(10 * SECOND)));
        assert_eq!(hang.look(None, at(11)), None);
        // One that hangs for a while again and again has a line a minute.
        assert_eq!(hang.look(Some(at(11)), at(20)), None);
        assert_eq!(hang.look(None, at(21)), None, "nobody heard that it hung");
        assert_eq!(hang.look(Some(at(30)), at(64)), None);
        assert_eq!(hang.look(Some(at(30)), at(65)), Some(News::Hangs(35 * SECOND)));
        assert_eq!(hang.look(None, at(66)), Some(News::Answers(36 * SECOND)));
    }

    #[test]
    fn a_disk_that_fails_everything_has_few_lines_and_they_tell_of_the_others() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        let failure = |errno| Failure { operation: "read", file: None, offset: Some(0), errno };
        let mut admit = |errno, seconds| lines.admit(&failure(errno), start + seconds * SECOND);
        assert_eq!([admit(Errno::IO, 0), admit(Errno::IO, 1), admit(Errno::IO, 4)], [Some(0), None, None]);
        assert_eq!(admit(Errno::NOSPC, 4), Some(2), "another cause");
        assert_eq!(admit(Errno::IO, 5), Some(0));
        let admitted = (6..60).filter(|seconds| admit(Errno::IO, *seconds).is_some()).count();
        assert_eq!(admitted, 7, "ten a minute");
        assert_eq!(admit(Errno::IO, 60), Some(19));
    }

    #[test]
    fn what_a_host_may_not_is_no_failure_of_the_disk() {
        let health = Health::new(Below::Volume, "data");
        let failed = |errno| health.failed(&Failure { operation: "write", file: None, offset: None, errno });
        [Errno::ROFS, Errno::ACCESS, Errno::STALE, Errno::CANCELED, Errno::DQUOT].into_iter().for_each(failed);
        assert_eq!(health.stats().errors, 0);
        failed(Errno::IO);
        let asked = health.ask(Instant::now() - 3 * SECOND);
        let stats = health.stats();
        assert_eq!((stats.errors, stats.waiting, stats.name), (1, 1, "data".to_owned()));
        assert!(stats.oldest_ms >= 3000, "{}", stats.oldest_ms);
        drop(asked);
        assert_eq!((health.stats().waiting, health.stats().oldest_ms), (0, 0));
    }
}
