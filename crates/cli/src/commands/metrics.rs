//! `diskside metrics`: what a target does, for Prometheus.

mod scrape;

use super::exports::{parse_export, session};
use super::top::{entry_name, entry_program, kind_name};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::{self, say};
use clap::Args;
use diskside::ExportUrl;
use diskside::session::Session;
use diskside::target::config::parse_address;
use diskside::wire::function::{StatisticsEntry, StatisticsPage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};

/// Arguments of `metrics`.
#[derive(Args)]
#[command(after_help = "\
Without --listen the metrics are printed once, in the text format of OpenMetrics: what node_exporter's textfile \
collector reads. With it they are served at http://ADDRESS/metrics, read from the target anew for each scrape; while \
the target cannot be reached, diskside_up is 0. The page tells the names of volumes, exports and programs: listen \
where only those may connect who may know them.")]
pub(crate) struct Metrics {
    /// A target
    #[arg(value_name = "diskside://HOST[:PORT]", value_parser = parse_export)]
    url: ExportUrl,
    /// Answer scrapes at this address until a signal ends it
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    connect: Connect,
}

impl Metrics {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let Some(address) = self.listen else {
            let look = self.look(&mut None)?;
            std::io::stdout().write_all(page(Some(look)).as_bytes())?;
            return Ok(());
        };
        let in_listen = |error| Failure::Environment(format!("listening at {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(in_listen)?;
        let mut out = output::stdout();
        writeln!(out, "http://{}/metrics", listener.local_addr().map_err(in_listen)?)?;
        out.flush()?;
        drop(out);
        let mut session = None;
        scrape::answer(&listener, || {
            let look = self.look(&mut session);
            if let Err(failure) = &look {
                say(format_args!("diskside: {failure}"));
                // What was connected may be what failed.
                session = None;
            }
            page(look.ok())
        });
        Ok(())
    }

    fn look(&self, kept: &mut Option<Session>) -> Result<Look, Failure> {
        let session = match kept {
            Some(session) => session,
            None => kept.insert(session(&self.connect)?),
        };
        let compute = session.compute(&self.url.target()).map_err(session_failure)?;
        let (page, entries) =
            compute.statistics().map_err(|error| Failure::Environment(format!("{}: {error}", self.url)))?;
        Ok(Look { page, entries })
    }
}

/// What the target told.
#[derive(Debug)]
struct Look {
    page: StatisticsPage,
    entries: Vec<StatisticsEntry>,
}

/// The text of one scrape; nothing was told when the target cannot be reached.
fn page(look: Option<Look>) -> String {
    let mut registry = Registry::with_prefix("diskside");
    registry.register_collector(Box::new(Told(look)));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("a string takes every metric");
    page
}

#[derive(Debug)]
struct Told(Option<Look>);

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut out = Out(&mut encoder);
        out.gauge("up", "Whether the target told its statistics", None, self.0.is_some().into())?;
        let Some(Look { page, entries }) = &self.0 else { return Ok(()) };
        let bytes = Some(&Unit::Bytes);
        out.gauge(
            "uptime",
            "Time since the target started",
            Some(&Unit::Seconds),
            seconds(page.uptime_ms.get() * 1000),
        )?;
        out.gauge("engines", "Functions that may compute at a time", None, page.engines.get().into())?;
        out.gauge("engines_busy", "Functions that compute now", None, page.engines_busy.get().into())?;
        out.gauge("calls_queued", "Calls that wait for an engine", None, page.queued.get().into())?;
        out.gauge("tags_open", "Tags that are open", None, page.tags_open.get().into())?;
        out.counter("calls_started", "Calls that began", None, page.started.get())?;
        out.counter("calls_succeeded", "Calls that ended well", None, page.succeeded.get())?;
        out.counter("calls_failed", "Calls that ended otherwise", None, page.failed.get())?;
        out.counter("prepared_calls", "Calls of prepared requests", None, page.prepared_calls.get())?;
        out.counter("media_read", "Read from media and files for functions", bytes, page.media_read.get())?;
        out.counter("media_written", "Written to media and files by functions", bytes, page.media_written.get())?;
        out.counter("received", "Received from hosts as input", bytes, page.received.get())?;
        out.counter("sent", "Sent to hosts as results", bytes, page.sent.get())?;
        out.counter("run", "Time that functions ran", Some(&Unit::Seconds), seconds(page.run_us.get()))?;
        out.gauge("cache", "Kept of volumes for later calls", bytes, page.cache_len.get() as f64)?;
        out.gauge("cache_max", "Kept of volumes at most", bytes, page.cache_len_max.get() as f64)?;
        out.gauge("calls_memory", "What calls that run may use", bytes, page.calls_memory.get() as f64)?;
        out.gauge("kept_memory", "What waits for calls or is kept for hosts", bytes, page.kept_memory.get() as f64)?;
        out.gauge("memory_max", "Both at most", bytes, page.memory_max.get() as f64)?;
        out.counter("cache_read", "Read from what is kept", bytes, page.cache_read.get())?;
        out.counter("cache_hits", "Blocks that were asked for and kept", None, page.cache_hits.get())?;
        out.counter("cache_misses", "Blocks that were asked for and not kept", None, page.cache_misses.get())?;

        let operations = "Calls of functions; commands, reads and writes of volumes and exports";
        out.family("operations", operations, None, entries, |entry| entry.operations.get() as f64)?;
        out.family("operations_failed", "Those that failed", None, entries, |entry| entry.failed.get() as f64)?;
        out.family("operations_read", "What they read", bytes, entries, |entry| entry.read.get() as f64)?;
        out.family("operations_written", "What they wrote", bytes, entries, |entry| entry.written.get() as f64)?;
        let busy = Some(&Unit::Seconds);
        out.family("operations_busy", "Time that they took", busy, entries, |entry| seconds(entry.busy_us.get()))
    }
}

/// Writes metrics of the one kind or the other.
struct Out<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Out<'_, '_> {
    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, unit, gauge.metric_type())?)
    }

    fn counter<N>(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: N) -> fmt::Result
    where
        ConstCounter<N>: EncodeMetric,
    {
        let counter = ConstCounter::new(value);
        counter.encode(self.0.encode_descriptor(name, help, unit, counter.metric_type())?)
    }

    /// A counter of each entry.
    fn family(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        entries: &[StatisticsEntry],
        value: impl Fn(&StatisticsEntry) -> f64,
    ) -> fmt::Result {
        let kind = ConstCounter::new(0.0).metric_type();
        let mut family = self.0.encode_descriptor(name, help, unit, kind)?;
        for entry in entries {
            let mut labels = vec![
                ("kind", kind_name(entry.kind).to_owned()),
                ("id", entry.id.get().to_string()),
                ("name", entry_name(entry)),
            ];
            labels.extend(entry_program(entry).map(|program| ("program", program)));
            ConstCounter::new(value(entry)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside::wire::function::statistics_kind;

    #[test]
    fn a_page_has_what_the_target_told_with_units_and_labels() {
        let mut told = StatisticsPage::new();
        told.sent.set(12);
        told.uptime_ms.set(1500);
        let mut entry = StatisticsEntry::new(statistics_kind::EXPORT, 3, "a\"b\n");
        entry.read.set(4096);
        let mut function = StatisticsEntry::new(statistics_kind::FUNCTION, 7, "mine");
        function.program_id.set(0xab);
        let rest = StatisticsEntry::new(statistics_kind::FUNCTION, 0, "");
        let text = page(Some(Look { page: told, entries: vec![entry, function, rest] }));
        for line in [
            "# TYPE diskside_sent_bytes counter",
            "diskside_sent_bytes_total 12",
            "diskside_up 1.0",
            "diskside_uptime_seconds 1.5",
            r#"diskside_operations_read_bytes_total{kind="export",id="3",name="a\"b\n"} 4096.0"#,
            r#"diskside_operations_total{kind="function",id="7",name="mine",program="00000000000000ab"} 0.0"#,
            r#"diskside_operations_total{kind="function",id="0",name="(others)"} 0.0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_target_that_cannot_be_reached_is_down() {
        let text = page(None);
        assert!(text.contains("\ndiskside_up 0.0\n") && !text.contains("calls"), "{text}");
    }
}
