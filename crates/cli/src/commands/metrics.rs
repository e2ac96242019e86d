//! `diskside metrics`: what a target does, for Prometheus.

use super::exports::{parse_export, session, target_of};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::{self, say};
use clap::Args;
use diskside::ExportUrl;
use diskside::session::Session;
use diskside::target::config::parse_metrics_address;
use diskside_observe::seen::Seen;
use diskside_observe::{Observer, Watched, metrics};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};

/// A target that has been away for longer is reported as away.
const AWAY_MAX_MS: u64 = 5000;

/// Arguments of `metrics`.
#[derive(Args)]
#[command(after_help = "\
Without --listen the metrics are printed once, in the text format of OpenMetrics: what node_exporter's textfile \
collector reads. With it they are served at http://ADDRESS/metrics, at most a second old, and as a page for \
browsers at http://ADDRESS/; once the target has been away for 5 s, diskside_up is 0. A server tells more of itself: `diskside serve \
--metrics`. The page tells the names of volumes, exports and programs: listen \
where only those may connect who may know them.")]
pub(crate) struct Metrics {
    /// A target
    #[arg(value_name = "diskside://HOST[:PORT]", value_parser = parse_export)]
    url: ExportUrl,
    /// Answer scrapes at this address until a signal ends it
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_metrics_address)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    connect: Connect,
}

impl Metrics {
    pub(crate) fn execute(mut self) -> Result<(), Failure> {
        let Some(address) = self.listen else {
            let seen = self.look(&mut None)?;
            std::io::stdout().write_all(metrics::page(Some(&seen)).as_bytes())?;
            return Ok(());
        };
        // Prometheus gives a scrape up after 10 s.
        self.connect.loss_timeout_ms = self.connect.loss_timeout_ms.min(AWAY_MAX_MS);
        let in_listen = |error| Failure::Environment(format!("listening at {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(in_listen)?;
        let mut out = output::stdout();
        writeln!(out, "http://{}/metrics", listener.local_addr().map_err(in_listen)?)?;
        out.flush()?;
        drop(out);
        let (mut session, mut failing) = (None, false);
        let look = move || {
            let seen = self.look(&mut session);
            if let Err(failure) = &seen {
                // Once, and not for each scrape: it may last.
                if !failing {
                    say(format_args!("diskside: {failure}"));
                }
                // What was connected may be what failed.
                session = None;
            }
            failing = seen.is_err();
            seen.ok()
        };
        Observer::start(listener, Watched::There(Box::new(look))).map_err(in_listen)?;
        loop {
            // Its threads answer, until a signal ends the process.
            std::thread::park();
        }
    }

    fn look(&self, kept: &mut Option<Session>) -> Result<Seen, Failure> {
        let session = match kept {
            Some(session) => session,
            None => kept.insert(session(&self.connect)?),
        };
        let compute = session.compute(&target_of(&self.url)?).map_err(session_failure)?;
        let (page, entries) =
            compute.statistics().map_err(|error| Failure::Environment(format!("{}: {error}", self.url)))?;
        Ok(Seen { page, entries, inside: None })
    }
}
