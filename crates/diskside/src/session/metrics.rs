//! The counters of a session, in the text format of OpenMetrics: for a process that exports to Prometheus.

use super::Session;
use diskside_host::Stats;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

type Labels = [(&'static str, String); 1];

impl Session {
    /// Its counters as OpenMetrics text: decisions by plan and by reason, requests over mounted volumes, what it keeps, and what its
    /// connections did, by server. Labels have the names of servers as they were given.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut registry = Registry::with_prefix("diskside_client");
        self.decided(&mut registry);
        self.mounted_volumes_did(&mut registry);
        self.keeps(&mut registry);
        self.connections_did(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes every metric");
        text
    }

    fn decided(&self, registry: &mut Registry) {
        let counts = self.decisions();
        let plans = counts.plans().map(|(plan, count)| ([("plan", plan.name().to_owned())], count));
        counters(registry, "requests", "Requests with a choice of side, by where they ran", None, plans);
        let reasons = counts.reasons().map(|(reason, count)| ([("reason", reason.name().to_owned())], count));
        counters(registry, "decisions", "Requests with a choice of side, by why they ran there", None, reasons);
        counter(registry, "probes", "Requests of which a part ran on the other side, to measure it", counts.probes());
    }

    fn mounted_volumes_did(&self, registry: &mut Registry) {
        let counts = self.mounted_counters();
        let help = "Requests over files of mounted volumes that ran at the volume";
        counter(registry, "mounted_requests", help, counts.at_volume());
        let help =
            "Results over files of mounted volumes that were dropped because the file changed, and asked for once more";
        counter(registry, "mounted_retries", help, counts.retried());
        let plain = counts.plain().into_iter().map(|(reason, count)| ([("reason", reason.name().to_owned())], count));
        let help = "Requests over files of mounted volumes that read them as any program does, by why";
        counters(registry, "mounted_plain_requests", help, None, plain);
    }

    fn keeps(&self, registry: &mut Registry) {
        let cached = Gauge::<i64>::default();
        cached.set(i64::try_from(self.cached_bytes()).unwrap_or(i64::MAX));
        let help = "Bytes of files of exports that the session keeps in memory";
        registry.register_with_unit("cache", help, Unit::Bytes, cached);
    }

    fn connections_did(&self, registry: &mut Registry) {
        let mut links = self.inner.links.all();
        links.sort_by(|(one, _), (other, _)| one.cmp(other));
        let host = |name: String| name.rsplit_once("://").map_or(name.clone(), |(_, host)| host.to_owned());
        let stats: Vec<_> = links.into_iter().map(|(name, link)| (host(name), link.connection.stats())).collect();
        for (at, (name, help, _)) in Stats::default().entries().enumerate() {
            let (name, unit) = match name.strip_suffix("_bytes") {
                Some(name) => (name, Some(Unit::Bytes)),
                None => (name, None),
            };
            let value = |stats: &Stats| stats.entries().nth(at).map_or(0, |(_, _, value)| value);
            let of_servers = stats.iter().map(|(server, stats)| ([("server", server.clone())], value(stats)));
            let help = help.trim().trim_end_matches('.');
            counters(registry, &format!("connection_{name}"), help, unit, of_servers);
        }
    }
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

/// A counter for each label.
fn counters(
    registry: &mut Registry,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    values: impl Iterator<Item = (Labels, u64)>,
) {
    let family = Family::<Labels, Counter>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).inc_by(value);
    }
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, family),
        None => registry.register(name, help, family),
    }
}
