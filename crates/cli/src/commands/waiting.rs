//! The disk that a command waits for, if it does not answer: one line on standard error, so that nobody wonders what a silent command does.
//!
//! The line is known to be true, and not guessed from the time that a command takes: what disks of this machine are asked for is counted,
//! and a server tells what its disks owe. Nothing is asked of it in the first seconds.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use diskside::host::Url;
use diskside::io::unanswered;
use diskside::session::Session;
use diskside::wire::function::{StatisticsEntry, statistics_kind};
use diskside::{ExportUrl, Location};

use super::exports::target_of;
use crate::output::say;

/// A disk that has not answered for so long is told of; and how often it is looked.
const TOLD_AFTER: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a server is asked, unless its disk owes something for a second already.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Servers of a command that are asked.
const SERVERS_MAX: usize = 8;

/// Looks whether disks answer, until it is dropped.
pub(super) struct Waiting(#[expect(dead_code, reason = "dropped, it ends the thread")] Option<Sender<()>>);

/// Where a server has files of the command.
struct There {
    target: Url,
    /// The server, for people.
    server: String,
    kind: u8,
    name: Name,
}

enum Name {
    Export(String),
    Volume(u32),
}

impl Waiting {
    /// For the files that a command reads and writes. Without a thread for it the command does its work all the same.
    pub(super) fn watch(session: &Session, locations: impl IntoIterator<Item = Location>) -> Self {
        let mut places: Vec<There> = Vec::new();
        let mut is_here = false;
        for location in locations {
            match There::of(&location) {
                Some(there) if places.iter().any(|known| known.is_same(&there)) => {}
                Some(there) if places.len() < SERVERS_MAX => places.push(there),
                Some(_) => {}
                None => is_here = true,
            }
        }
        let (over, is_over) = channel::<()>();
        let session = session.clone();
        let look = move || {
            let mut ask_at = Instant::now() + ASK_EVERY;
            while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let local = unanswered::here().oldest().map(|since| since.elapsed()).filter(|_| is_here);
                if let Some(age) = local.filter(|age| *age >= TOLD_AFTER) {
                    return say(told("the disk of a file on this machine", age));
                }
                if Instant::now() < ask_at {
                    continue;
                }
                let ages = places.iter().filter_map(|there| Some((there, there.oldest(&session)?)));
                let oldest = ages.max_by_key(|(_, age)| *age);
                match oldest {
                    Some((there, age)) if age >= TOLD_AFTER => return say(told(&there.disk(), age)),
                    Some((_, age)) if age >= LOOK_EVERY => {}
                    _ => ask_at = Instant::now() + ASK_EVERY,
                }
            }
        };
        let started = std::thread::Builder::new().name("waiting".into()).spawn(look);
        Self(started.is_ok().then_some(over))
    }
}

impl There {
    fn of(location: &Location) -> Option<Self> {
        match location {
            Location::Local(_) => None,
            Location::Export(url) => {
                let target = target_of(url).ok()?;
                let path = String::from_utf8_lossy(&url.path);
                let name = Name::Export(path.split('/').next().unwrap_or_default().to_owned());
                let server = ExportUrl { path: Vec::new(), ..url.clone() }.to_string();
                Some(Self { target, server, kind: statistics_kind::EXPORT, name })
            }
            Location::Volume(url) => {
                let name = Name::Volume(url.nsid?);
                Some(Self { target: url.clone(), server: url.to_string(), kind: statistics_kind::VOLUME, name })
            }
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_name = match (&self.name, &other.name) {
            (Name::Export(one), Name::Export(other)) => one == other,
            (Name::Volume(one), Name::Volume(other)) => one == other,
            _ => false,
        };
        is_same_name && self.server == other.server
    }

    fn is(&self, entry: &StatisticsEntry) -> bool {
        let is_named = match &self.name {
            Name::Export(name) => entry.name() == *name,
            Name::Volume(nsid) => entry.id.get() == *nsid,
        };
        entry.kind == self.kind && is_named
    }

    /// For how long the disk there has not answered. A server that does not answer at all is found by others.
    fn oldest(&self, session: &Session) -> Option<Duration> {
        let (_, entries) = session.compute(&self.target).ok()?.statistics().ok()?;
        let entry = entries.iter().find(|entry| self.is(entry))?;
        Some(Duration::from_millis(entry.oldest_ms.get().into()))
    }

    fn disk(&self) -> String {
        match &self.name {
            Name::Export(name) => format!("the disk of export {name} of {}", self.server),
            Name::Volume(_) => format!("the disk of {}", self.server),
        }
    }
}

fn told(disk: &str, age: Duration) -> String {
    format!("diskside: waiting: {disk} has not answered for {} s", age.as_secs())
}
