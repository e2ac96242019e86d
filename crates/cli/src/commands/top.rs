//! `diskside top`: what a target does.

use super::exports::{parse_export, session, target_of};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::{self, Table, bytes};
use clap::Args;
use diskside::ExportUrl;
use diskside::wire::function::{StatisticsEntry, StatisticsPage};
use diskside_observe::seen::{Held, Quota, counters, entry_name, entry_program, held, kind_name, quotas};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Arguments of `top`.
#[derive(Args)]
pub(crate) struct Top {
    /// A target
    #[arg(value_name = "diskside://HOST[:PORT]", value_parser = parse_export)]
    url: ExportUrl,
    /// Milliseconds from one look to the next
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..))]
    interval_ms: u64,
    /// End after so many looks [default: never; once if standard output is not a terminal]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON, one document for each look
    #[arg(long)]
    json: bool,
}

type Look = (StatisticsPage, Vec<StatisticsEntry>, Instant);

impl Top {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        let compute = session.compute(&target_of(&self.url)?).map_err(session_failure)?;
        let live = std::io::stdout().is_terminal() && !self.json;
        let count = self.count.unwrap_or(if live { u64::MAX } else { 1 });
        let mut before: Option<Look> = None;
        for at in 0..count {
            if at > 0 {
                std::thread::sleep(Duration::from_millis(self.interval_ms));
            }
            let (page, entries) =
                compute.statistics().map_err(|e| Failure::Environment(format!("{}: {e}", self.url)))?;
            let now = (page, entries, Instant::now());
            if self.json {
                output::print_json(document(&now))?;
            } else {
                let mut out = std::io::stdout().lock();
                if live {
                    // To the top left, and clear what is below.
                    write!(out, "\x1b[H\x1b[J")?;
                }
                write!(out, "{}", self.text(&now, before.as_ref()))?;
                out.flush()?;
            }
            before = Some(now);
        }
        Ok(())
    }

    /// The server's own numbers, which a host sees only if that is granted to it.
    fn server_text(
        &self,
        page: &StatisticsPage,
        then: Option<&StatisticsPage>,
        rate: impl Fn(u64, Option<u64>) -> String,
    ) -> String {
        // A server that tells has been up for some milliseconds.
        if page.uptime_ms.get() == 0 {
            let shown = "this host sees what is its own; `statistics = true` in a grant shows it the server's numbers";
            return format!("{}: {shown}\n\n", self.url);
        }
        let mut text = format!(
            "{}: up {} s; engines {} of {} busy, {} calls queued, {} open\n",
            self.url,
            page.uptime_ms.get() / 1000,
            page.engines_busy.get(),
            page.engines.get(),
            page.queued.get(),
            page.tags_open.get(),
        );
        text += &format!(
            "calls {} begun, {} ended well, {} failed; {} of prepared requests\n",
            page.started.get(),
            page.succeeded.get(),
            page.failed.get(),
            page.prepared_calls.get(),
        );
        text += &format!(
            "read from media {}, written {}; received from hosts {}, sent {}; kept {} of at most {}, read {}\n",
            rate(page.media_read.get(), then.map(|p| p.media_read.get())),
            rate(page.media_written.get(), then.map(|p| p.media_written.get())),
            rate(page.received.get(), then.map(|p| p.received.get())),
            rate(page.sent.get(), then.map(|p| p.sent.get())),
            bytes(page.cache_len.get()),
            bytes(page.cache_len_max.get()),
            rate(page.cache_read.get(), then.map(|p| p.cache_read.get())),
        );
        text += &format!(
            "memory of hosts: {} of calls that run, {} of what waits or is kept, of at most {}\n\n",
            bytes(page.calls_memory.get()),
            bytes(page.kept_memory.get()),
            bytes(page.memory_max.get()),
        );
        text
    }

    fn text(&self, (page, entries, at): &Look, before: Option<&Look>) -> String {
        let seconds = before.map(|(.., then)| at.duration_since(*then).as_secs_f64());
        let rate = |now: u64, then: Option<u64>| match (then, seconds) {
            (Some(then), Some(seconds)) if seconds > 0.0 => {
                format!("{}/s", bytes((now.saturating_sub(then) as f64 / seconds) as u64))
            }
            _ => bytes(now),
        };
        let then = before.map(|(page, ..)| page);
        let text = self.server_text(page, then, rate);
        let head = ["kind", "name", ">operations", ">read", ">written", ">busy", ">failed", ">waiting", ">oldest"];
        let mut table = Table::new(&head);
        for entry in counters(entries) {
            let then = before.and_then(|(_, entries, _)| {
                entries.iter().find(|other| other.kind == entry.kind && other.id == entry.id)
            });
            table.row(vec![
                kind_name(entry.kind).into(),
                entry_name(entry),
                entry.operations.get().to_string(),
                rate(entry.read.get(), then.map(|e| e.read.get())),
                rate(entry.written.get(), then.map(|e| e.written.get())),
                format!("{:.1} ms", entry.busy_us.get() as f64 / 1e3),
                entry.failed.get().to_string(),
                waits(entry, || entry.waiting.get().to_string()),
                waits(entry, || format!("{:.1} s", f64::from(entry.oldest_ms.get()) / 1e3)),
            ]);
        }
        text + &table.to_string() + &quota_table(entries) + &held_table(entries)
    }
}

/// A number of an entry for whose disk something waits; else nothing.
fn waits(entry: &StatisticsEntry, shown: impl Fn() -> String) -> String {
    if entry.waiting.get() == 0 { String::new() } else { shown() }
}

fn held_document(held: Held) -> serde_json::Value {
    json!({
        "host": held.host, "export": held.export, "bytes": held.bytes, "bytes_max": held.bytes_max, "files": held.files,
        "files_max": held.files_max,
    })
}

fn quota_document(quota: Quota) -> serde_json::Value {
    json!({
        "host": quota.host, "id": quota.id, "quota": quota.quota, "used": quota.used, "max": quota.max, "refusals": quota.refusals,
        "pauses": quota.pauses, "paused_us": quota.paused_us, "run_us": quota.run_us,
    })
}

/// The quotas of hosts with their effects, if any host has one.
fn quota_table(entries: &[StatisticsEntry]) -> String {
    let quotas: Vec<_> = quotas(entries).collect();
    if quotas.is_empty() {
        return String::new();
    }
    let shown = |value: Option<u64>, shown: &dyn Fn(u64) -> String| value.map_or_else(|| "-".to_owned(), shown);
    let (count, time) = (|count: u64| count.to_string(), |us: u64| format!("{:.1} ms", us as f64 / 1e3));
    let mut table =
        Table::new(&["host", "quota", ">used", ">at most", ">refused", ">pauses", ">paused", ">functions ran"]);
    for quota in quotas {
        let amount = |amount: u64| if quota.is_of_bytes() { bytes(amount) } else { amount.to_string() };
        table.row(vec![
            quota.host.clone(),
            quota.quota.to_owned(),
            shown(quota.used, &amount),
            amount(quota.max),
            shown(quota.refusals, &count),
            shown(quota.pauses, &count),
            shown(quota.paused_us, &time),
            shown(quota.run_us, &time),
        ]);
    }
    format!("\n{table}")
}

/// What hosts hold in exports, if that is counted.
fn held_table(entries: &[StatisticsEntry]) -> String {
    let held: Vec<_> = held(entries).collect();
    if held.is_empty() {
        return String::new();
    }
    let most = |most: Option<String>| most.unwrap_or_else(|| "-".into());
    let mut table = Table::new(&["host", "export", ">holds", ">at most", ">files", ">at most"]);
    for held in held {
        table.row(vec![
            held.host,
            held.export,
            bytes(held.bytes),
            most(held.bytes_max.map(bytes)),
            held.files.to_string(),
            most(held.files_max.map(|files| files.to_string())),
        ]);
    }
    format!("\n{table}")
}

fn document((page, entries, _): &Look) -> serde_json::Value {
    let entry = |e: &StatisticsEntry| {
        json!({
            "kind": kind_name(e.kind), "id": e.id.get(), "name": entry_name(e), "program": entry_program(e), "operations": e.operations.get(),
            "read_bytes": e.read.get(), "written_bytes": e.written.get(), "busy_us": e.busy_us.get(),
            "failed": e.failed.get(), "waiting": e.waiting.get(), "oldest_ms": e.oldest_ms.get(),
        })
    };
    json!({
        "uptime_ms": page.uptime_ms.get(), "engines": page.engines.get(), "engines_busy": page.engines_busy.get(),
        "queued": page.queued.get(), "tags_open": page.tags_open.get(), "started": page.started.get(),
        "succeeded": page.succeeded.get(), "failed": page.failed.get(), "prepared_calls": page.prepared_calls.get(),
        "media_read_bytes": page.media_read.get(), "media_written_bytes": page.media_written.get(),
        "received_bytes": page.received.get(), "sent_bytes": page.sent.get(), "run_us": page.run_us.get(),
        "back_edges": page.back_edges.get(), "cache_bytes": page.cache_len.get(),
        "cache_read_bytes": page.cache_read.get(), "cache_hits": page.cache_hits.get(),
        "cache_misses": page.cache_misses.get(), "cache_max_bytes": page.cache_len_max.get(),
        "calls_memory_bytes": page.calls_memory.get(), "kept_memory_bytes": page.kept_memory.get(),
        "memory_max_bytes": page.memory_max.get(),
        "entries": counters(entries).map(entry).collect::<Vec<_>>(),
        "quotas": quotas(entries).map(quota_document).collect::<Vec<_>>(),
        "held": held(entries).map(held_document).collect::<Vec<_>>(),
    })
}
