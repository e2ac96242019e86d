//! A request that is begun again at another server when one vanishes.

use super::alarm::Alarm;
use super::answered::{Answered, ServerFailure};
use super::copies::{CopySet, OneCopy};
use super::error::{FailureKind, SessionError};
use super::link::Link;
use diskside_host::own_thread;
use diskside_sbpf::machine::CancelToken;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait before all servers are tried once more.
const PAUSE: Duration = Duration::from_millis(100);

/// The files of a request: perhaps a file of a URL that names several servers.
pub(super) trait OfCopies: Clone {
    /// The servers, if there are several.
    fn set(&self) -> Option<&Arc<CopySet>>;

    /// The server that it is at.
    fn link(&self) -> Option<&Arc<Link>>;

    /// It at the server that its set uses now, if nothing is to be waited for.
    fn ready(&self) -> Option<(Self, Option<OneCopy>)>;

    /// It at one of the servers.
    fn at(&self, copy: &OneCopy) -> Result<Self, SessionError>;
}

/// How often servers may vanish during one request: it may be what ends them.
pub(super) const LOSSES_MAX: u32 = 8;

/// The tries of one request.
#[derive(Default)]
pub(super) struct Tries {
    cancel: Option<CancelToken>,
    until: Option<Instant>,
    sets: Vec<Tried>,
}

/// One set of servers in the tries of a request.
struct Tried {
    set: Arc<CopySet>,
    /// The server of this try: all files of the set are read from it.
    copy: Option<OneCopy>,
    /// Servers that are not tried again in this round.
    failed: Vec<ServerFailure>,
    /// The last failure of each server.
    told: Vec<ServerFailure>,
    /// When a server vanished last that had answered, and how often that was.
    lost: Option<Instant>,
    losses: u32,
}

/// Why a try cannot continue.
enum Stop {
    /// Another one may.
    Again,
    /// The same, after a pause.
    Later,
    Failed(SessionError),
}

impl Tries {
    /// Those of a request that a token stops, and that has so much time.
    pub(super) fn new(cancel: Option<&CancelToken>, deadline: Option<Duration>) -> Self {
        let until = deadline.map(|deadline| Instant::now() + deadline);
        Self { cancel: cancel.cloned(), until, sets: Vec::new() }
    }

    /// The time of the next try, which has the rest of it.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// The files, each of several servers at one that answers: all of one set at the same one.
    ///
    /// # Errors
    /// No server of a set answers, or one that answers does not open its file.
    pub(super) async fn files<F: OfCopies>(&mut self, files: &[F]) -> Result<Vec<F>, SessionError> {
        if let Some(ready) = self.ready(files) {
            return Ok(ready);
        }
        loop {
            // Connecting takes long: one request of a set does it, in a thread, and the others wait for that.
            let turn = match files.iter().find_map(OfCopies::set) {
                Some(set) => Some(set.turn().await),
                None => None,
            };
            own_thread().await;
            self.sets.iter_mut().for_each(|tried| tried.copy = None);
            let opened = files.iter().map(|file| match file.set() {
                None => Ok(file.clone()),
                Some(set) => self.open(set, |copy| file.at(copy)),
            });
            let stop = match opened.collect() {
                Ok(files) => return Ok(files),
                Err(stop) => stop,
            };
            drop(turn);
            match stop {
                Stop::Again => {}
                Stop::Later => Alarm::after(PAUSE).await,
                Stop::Failed(error) => return Err(error),
            }
        }
    }

    /// The files if, in the first try, nothing is to be waited for.
    fn ready<F: OfCopies>(&mut self, files: &[F]) -> Option<Vec<F>> {
        if !self.sets.is_empty() {
            return None;
        }
        let ready = files.iter().map(|file| {
            let (at, copy) = file.ready()?;
            if let (Some(set), Some(copy)) = (file.set(), copy) {
                let chosen = self.tried(set).copy.get_or_insert_with(|| copy.clone());
                return Arc::ptr_eq(&chosen.link, &copy.link).then_some(at);
            }
            Some(at)
        });
        ready.collect()
    }

    /// One file.
    pub(super) async fn file<F: OfCopies>(&mut self, file: &F) -> Result<F, SessionError> {
        self.files(std::slice::from_ref(file)).await.map(|mut files| files.remove(0))
    }

    /// A server of a set that answers.
    pub(super) fn copy(&mut self, set: &Arc<CopySet>) -> Result<OneCopy, SessionError> {
        self.open_first(set, |copy| Ok(copy.clone()))
    }

    /// Opens something at a server of a set that answers.
    pub(super) fn open_first<T>(
        &mut self,
        set: &Arc<CopySet>,
        open: impl Fn(&OneCopy) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        loop {
            self.tried(set).copy = None;
            match self.open(set, &open) {
                Ok(opened) => return Ok(opened),
                Err(Stop::Again) => {}
                Err(Stop::Later) => std::thread::sleep(PAUSE),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
    }

    /// Whether a request over these files that failed so may be begun again: then the servers that vanished are not used for it.
    ///
    /// # Errors
    /// The failure, if it is not that a server vanished, or the time is over.
    pub(super) fn go_on<F: OfCopies>(&mut self, files: &[F], error: SessionError) -> Result<(), SessionError> {
        let links: Vec<_> = files.iter().filter_map(|file| Some((file.set()?, file.link()?))).collect();
        self.go_on_without(&links, error)
    }

    /// The same of a request over one server.
    pub(super) fn go_on_from(
        &mut self,
        set: &Arc<CopySet>,
        copy: &OneCopy,
        error: SessionError,
    ) -> Result<(), SessionError> {
        self.go_on_without(&[(set, &copy.link)], error)
    }

    fn go_on_without(
        &mut self,
        links: &[(&Arc<CopySet>, &Arc<Link>)],
        error: SessionError,
    ) -> Result<(), SessionError> {
        let is_loss = error.is_loss();
        if links.is_empty() || !is_loss && error.kind() != FailureKind::Environment {
            return Err(error);
        }
        let is_lost = |link: &Arc<Link>| link.is_lost();
        // A request may hear of a loss before the connection's own thread does.
        let all_of_them = is_loss && !links.iter().any(|(_, link)| is_lost(link));
        let (mut vanished, mut too_often) = (false, false);
        for (set, link) in links {
            if !all_of_them && !is_lost(link) {
                continue;
            }
            vanished = true;
            let tried = self.tried(set);
            let Some(copy) = tried.copy.take_if(|copy| Arc::ptr_eq(&copy.link, link)) else { continue };
            let failure = ServerFailure { server: copy.server.authority(), why: error.to_string() };
            tracing::warn!("{}: {failure}; another server is tried", set.name());
            tried.note(failure);
            tried.lost = Some(Instant::now());
            tried.losses += 1;
            too_often |= tried.losses > LOSSES_MAX;
            set.forget(link);
        }
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        if vanished && !too_often && !is_over && !self.is_cancelled() { Ok(()) } else { Err(error) }
    }

    /// Which server each set was read from in the last try.
    pub(super) fn answered(&self) -> Vec<Answered> {
        let answered = self.sets.iter().filter_map(|tried| {
            let copy = tried.copy.as_ref()?;
            Some(Answered { url: tried.set.name(), server: copy.server.authority(), failed: tried.told.clone() })
        });
        answered.collect()
    }

    fn tried(&mut self, set: &Arc<CopySet>) -> &mut Tried {
        let at = self.sets.iter().position(|tried| Arc::ptr_eq(&tried.set, set)).unwrap_or_else(|| {
            let (copy, failed, told, lost, losses) = Default::default();
            self.sets.push(Tried { set: Arc::clone(set), copy, failed, told, lost, losses });
            self.sets.len() - 1
        });
        &mut self.sets[at]
    }

    fn open<T>(&mut self, set: &Arc<CopySet>, open: impl Fn(&OneCopy) -> Result<T, SessionError>) -> Result<T, Stop> {
        let copy = self.chosen(set)?;
        open(&copy).map_err(|error| match self.go_on_from(set, &copy, error) {
            Ok(()) => Stop::Again,
            Err(error) => Stop::Failed(error),
        })
    }

    /// The server of this try.
    fn chosen(&mut self, set: &Arc<CopySet>) -> Result<OneCopy, Stop> {
        let tried = self.tried(set);
        if let Some(copy) = &tried.copy {
            return Ok(copy.clone());
        }
        let failures = match set.choose(&tried.failed) {
            Ok((copy, silent)) => {
                silent.into_iter().for_each(|failure| tried.note(failure));
                tried.copy = Some(copy.clone());
                return Ok(copy);
            }
            Err(failures) => failures,
        };
        failures.into_iter().for_each(|failure| tried.note(failure));
        // As one server that was lost is waited for, so are several.
        let patience = set.loss_timeout();
        let may_come_back = tried.lost.is_some_and(|lost| lost.elapsed() < patience);
        let (name, failures) = (set.name(), tried.told.clone());
        tried.failed.clear();
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        if !may_come_back || is_over || self.is_cancelled() {
            return Err(Stop::Failed(SessionError::NoCopy { name, failures }));
        }
        Err(Stop::Later)
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }
}

impl Tried {
    fn note(&mut self, failure: ServerFailure) {
        for known in [&mut self.failed, &mut self.told] {
            known.retain(|one| one.server != failure.server);
            known.push(failure.clone());
        }
    }
}
