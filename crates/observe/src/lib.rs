//! The observations of a server, at an address: numbers for Prometheus at `/metrics`, a page for browsers at `/`.
//!
//! | Module | What it is |
//! |---|---|
//! | [`seen`] | one look at a server: from within its process, or over the network |
//! | [`metrics`] | a look in the text format of OpenMetrics |
//! | [`history`] | looks of the last hour, as rates |
//! | [`page`] | a look and the history as a page with pictures, without a script |
//! | `http` | the part of HTTP/1.1 that this needs |
//! | `clients` | the connections of those who ask |
//!
//! It is read-only. Requests cost a bounded amount, however many come from however many peers: one thread answers,
//! one look serves everybody for a second, and a connection that is slow to ask gives its place to one that asks.

#![forbid(unsafe_code)]

mod clients;
pub mod history;
mod http;
pub mod metrics;
pub mod page;
mod picture;
pub mod seen;

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diskside_server::Handle;

use history::History;
use seen::Seen;

/// How long one look is given to everybody who asks.
const FRESH: Duration = Duration::from_secs(1);

/// Where looks come from.
pub enum Watched {
    /// The server of this process.
    Here(Handle),
    /// Another one; `None` while it cannot be reached.
    There(Box<dyn FnMut() -> Option<Seen> + Send>),
}

/// Looks at a server, and answers who asks.
pub struct Observer {
    watched: Mutex<Watched>,
    history: Mutex<History>,
    told: Mutex<Option<Told>>,
}

/// The answers that are kept for a while.
struct Told {
    at: Instant,
    metrics: Arc<str>,
    /// The part of the page that stays, and the part that is loaded again and again; each once somebody asks for it.
    pages: [Option<Arc<str>>; 2],
    seen: Option<Seen>,
}

impl Observer {
    /// Answers at `listener`, and looks every few seconds, until the process ends.
    ///
    /// # Errors
    /// Its threads cannot be started.
    pub fn start(listener: TcpListener, watched: Watched) -> io::Result<()> {
        let observer = Arc::new(Self {
            watched: Mutex::new(watched),
            history: Mutex::new(History::default()),
            told: Mutex::new(None),
        });
        let looking = Arc::clone(&observer);
        std::thread::Builder::new().name("observe".into()).spawn(move || {
            loop {
                looking.look();
                std::thread::sleep(history::PERIOD);
            }
        })?;
        clients::serve(listener, move |path| observer.answer(path))
    }

    fn answer(&self, path: &str) -> Option<(&'static str, Arc<str>)> {
        match path {
            "/metrics" => Some((metrics::OPENMETRICS, self.metrics())),
            "/" => Some((page::HTML, self.page(true))),
            "/still" => Some((page::HTML, self.page(false))),
            _ => None,
        }
    }

    fn metrics(&self) -> Arc<str> {
        self.fresh(|told| Arc::clone(&told.metrics))
    }

    fn page(&self, refreshing: bool) -> Arc<str> {
        self.fresh(|told| {
            let page = told.pages[usize::from(refreshing)].get_or_insert_with(|| {
                let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
                page::page(told.seen.as_ref(), &history, refreshing).into()
            });
            Arc::clone(page)
        })
    }

    /// The answer now, made again if it is a second old. Those who ask meanwhile wait for it, and do not ask the server
    /// again.
    fn fresh<T>(&self, take: impl FnOnce(&mut Told) -> T) -> T {
        let mut kept = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|told| told.at.elapsed() >= FRESH) {
            let seen = self.look();
            let metrics = metrics::page(seen.as_ref()).into();
            *kept = Some(Told { at: Instant::now(), metrics, pages: [None, None], seen });
        }
        take(kept.as_mut().expect("it was made"))
    }

    fn look(&self) -> Option<Seen> {
        let seen = match &mut *self.watched.lock().unwrap_or_else(PoisonError::into_inner) {
            Watched::Here(handle) => Some(Seen::of(handle)),
            Watched::There(look) => look(),
        };
        if let Some(seen) = &seen {
            self.history.lock().unwrap_or_else(PoisonError::into_inner).add(Instant::now(), seen);
        }
        seen
    }
}
