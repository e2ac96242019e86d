//! Servers that hold copies of the same exports, as one URL names them: which of them answers.
//!
//! A session uses one server of a URL until that vanishes. A file of such a URL is a file of that server, with its name, its
//! version and its kept blocks, so no request mixes bytes of two copies. A request whose server vanishes is begun again over
//! the same files at another server ([`Tries`](super::tries::Tries)).

mod race;

use super::answered::ServerFailure;
use super::link::Link;
use super::memo::Memo;
use crate::location::{Copies, ExportUrl, Server};
use diskside_host::{ConnectOptions, ConnectionState, find_service};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a silent server keeps a request from another copy.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(5);

/// The sets of servers that a session's URLs name.
#[derive(Debug)]
pub(super) struct CopySets {
    options: ConnectOptions,
    /// Those of the session, some of which were given to it.
    links: Arc<Memo<String, Arc<Link>>>,
    sets: Mutex<HashMap<String, Arc<CopySet>>>,
}

/// The servers of one URL.
#[derive(Debug)]
pub(super) struct CopySet {
    /// Without a path.
    url: ExportUrl,
    options: ConnectOptions,
    /// Those of the session.
    links: Arc<Memo<String, Arc<Link>>>,
    current: Mutex<Option<OneCopy>>,
    /// Which request without a thread looks for a server.
    turn: tokio::sync::Mutex<()>,
}

/// A server of a set, connected.
#[derive(Clone, Debug)]
pub(super) struct OneCopy {
    /// Without a path, and of this server alone.
    pub(super) server: ExportUrl,
    pub(super) link: Arc<Link>,
}

impl CopySets {
    pub(super) fn new(options: &ConnectOptions, links: &Arc<Memo<String, Arc<Link>>>) -> Self {
        Self { options: options.clone(), links: Arc::clone(links), sets: Mutex::default() }
    }

    /// The set of a URL that names several servers.
    pub(super) fn of(&self, url: &ExportUrl) -> Arc<CopySet> {
        let url = ExportUrl { path: Vec::new(), ..url.clone() };
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let (options, links) = (self.options.clone(), Arc::clone(&self.links));
            Arc::new(CopySet {
                current: Mutex::default(),
                turn: tokio::sync::Mutex::new(()),
                url: url.clone(),
                options,
                links,
            })
        };
        Arc::clone(sets.entry(url.to_string()).or_insert_with(new))
    }
}

impl CopySet {
    pub(super) fn name(&self) -> String {
        self.url.to_string()
    }

    /// The server that the session uses, or the first one that answers now; none of those that `failed`. The second value is
    /// servers that did not answer now.
    ///
    /// # Errors
    /// Why none of the others answers.
    pub(super) fn choose(&self, failed: &[ServerFailure]) -> Result<(OneCopy, Vec<ServerFailure>), Vec<ServerFailure>> {
        let may_be = |server: &ExportUrl| failed.iter().all(|failure| failure.server != server.authority());
        // Others that want a server of this set wait here for the one that is found.
        let mut current = self.lock();
        if let Some(copy) = current.as_ref().filter(|copy| is_up(&copy.link) && may_be(&copy.server)) {
            return Ok((copy.clone(), Vec::new()));
        }
        let mut steps = self.steps()?;
        steps.iter_mut().for_each(|step| step.retain(&may_be));
        steps.retain(|step| !step.is_empty());
        let attached = steps.iter().flatten().find_map(|server| Some((server, self.links.get(&server.host)?)));
        let (found, silent) = match attached.filter(|(_, link)| is_up(link)) {
            Some((server, link)) => (Some(OneCopy { server: server.clone(), link }), Vec::new()),
            None => race::first_to_answer(steps, &connect_options(&self.options)),
        };
        let found = found.ok_or_else(|| silent.clone())?;
        *current = Some(found.clone());
        Ok((found, silent))
    }

    /// The server that the session uses now, if nobody looks for another one.
    pub(super) fn uses(&self) -> Option<OneCopy> {
        self.current.try_lock().ok()?.clone().filter(|copy| is_up(&copy.link))
    }

    /// Waits until no other request without a thread looks for a server.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The servers in the order in which they are tried; those of one step at the same time.
    fn steps(&self) -> Result<Vec<Vec<ExportUrl>>, Vec<ServerFailure>> {
        if self.url.copies != Copies::Service {
            return Ok(vec![self.url.servers().into_iter().map(|server| self.url.at(server)).collect()]);
        }
        let found = find_service(&self.url.host);
        let found =
            found.map_err(|error| vec![ServerFailure { server: error.name.clone(), why: error.to_string() }])?;
        let server = |(host, port): (String, u16)| vec![self.url.at(Server { host, port: Some(port) })];
        Ok(found.into_iter().map(server).collect())
    }

    /// How long lost servers are waited for.
    pub(super) fn loss_timeout(&self) -> Duration {
        self.options.loss_timeout
    }

    /// Has the next request look for a server again.
    pub(super) fn forget(&self, link: &Arc<Link>) {
        self.lock().take_if(|copy| Arc::ptr_eq(&copy.link, link));
    }

    fn lock(&self) -> MutexGuard<'_, Option<OneCopy>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_up(link: &Link) -> bool {
    link.connection.state() == ConnectionState::Up
}

/// A server that is lost is not waited for: there are others.
fn connect_options(options: &ConnectOptions) -> ConnectOptions {
    let keep_alive = options.keep_alive.min(KEEP_ALIVE_MAX);
    ConnectOptions { loss_timeout: Duration::ZERO, keep_alive, ..options.clone() }
}
