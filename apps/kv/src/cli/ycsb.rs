//! `diskside-kv ycsb`.

use super::{Failure, StoreArgs, line, print};
use clap::Args;
use diskside_kv::ycsb::{self, Plan, Report, Workload};
use serde_json::json;
use std::time::Duration;

/// Arguments of `ycsb`.
#[derive(Args)]
pub(crate) struct Ycsb {
    #[command(flatten)]
    store: StoreArgs,
    /// a, b, c, d, e, f or uniform
    #[arg(long, default_value = "c", value_parser = workload)]
    workload: Workload,
    /// Operations side by side
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Start operations at this rate a second, whatever becomes of those before
    #[arg(long)]
    rate: Option<f64>,
    /// Stop after this many seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Stop after this many operations
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    operations: u64,
    /// Seed of the choice of keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn workload(name: &str) -> Result<Workload, String> {
    Workload::from_name(name).ok_or_else(|| "a, b, c, d, e, f or uniform".into())
}

impl Ycsb {
    pub(super) fn store(&self) -> &str {
        &self.store.store
    }

    pub(crate) fn execute(self) -> Result<(), Failure> {
        let usage = |what: &str| Err(Failure::Usage(what.to_owned()));
        if !self.seconds.is_finite() || self.seconds <= 0.0 || self.rate.is_some_and(|r| !r.is_finite() || r <= 0.0) {
            return usage("--seconds and --rate are positive numbers");
        }
        // Some workloads write.
        let store = if self.workload.writes() { self.store.open_to_write()? } else { self.store.open()? };
        let keys = store.block_on(store.last_key())?.saturating_add(1);
        let middle = store.block_on(store.get(keys / 2))?;
        if middle.is_none() || store.block_on(store.get(0))?.is_none() {
            return usage("the workloads need a store with the keys 0, 1, 2, …; see `diskside-kv create --levels`");
        }
        let plan = Plan {
            clients: self.clients,
            rate: self.rate,
            duration: Duration::from_secs_f64(self.seconds),
            operations_max: self.operations,
            seed: self.seed,
            ..Plan::new(self.workload, keys)
        };
        let before = store.counters();
        let report = ycsb::run(&store, store.port(), &plan)?;
        let after = store.counters();
        let round_trips = (after.reads - before.reads) + (after.pushed - before.pushed);
        self.show(&report, round_trips as f64 / report.operations().max(1) as f64)
    }

    fn show(&self, report: &Report, round_trips: f64) -> Result<(), Failure> {
        let us = |ns: u64| ns as f64 / 1e3;
        if self.store.json {
            let latencies = report.latencies.iter().map(|(operation, h)| {
                let at = |q: f64| us(h.value_at_quantile(q));
                json!({ "operation": operation.name(), "count": h.len(), "mean_us": h.mean() / 1e3, "p50_us": at(0.5),
                        "p99_us": at(0.99), "p999_us": at(0.999), "max_us": us(h.max()) })
            });
            let latencies: Vec<_> = latencies.collect();
            let document = json!({ "workload": self.workload.name(), "operations": report.operations(),
                "operations_per_s": report.rate(), "reads_per_operation": round_trips,
                "missing": report.missing, "latencies": latencies });
            return print(true, document, "");
        }
        let (rate, missing) = (report.rate(), report.missing);
        line(&format!("{rate:.0} operations/s, {round_trips:.2} reads or calls each, {missing} found nothing"))?;
        report.latencies.iter().try_for_each(|(operation, h)| {
            let at = |q: f64| us(h.value_at_quantile(q));
            let (name, count, p50, p99, max) = (operation.name(), h.len(), at(0.5), at(0.99), us(h.max()));
            line(&format!("{name}: {count}, p50 {p50:.1} us, p99 {p99:.1} us, max {max:.1} us"))
        })
    }
}
