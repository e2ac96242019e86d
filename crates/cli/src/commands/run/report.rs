//! How a result is shown.

use super::Run;
use super::shown::Shown;
use crate::error::Failure;
use crate::output::{self, Table, answered_document, bytes, duration, rate, say};
use diskside::CodeStats;
use diskside::session::{Counts, Ran, RanPart, SessionFunction as Function};
use serde_json::json;

type Map = serde_json::Map<String, serde_json::Value>;

pub(super) fn print(
    run: &Run,
    function: &Function,
    ran: &Ran,
    code: &CodeStats,
    counts: &Counts,
    shown: Shown<'_>,
) -> Result<(), Failure> {
    let (lines, dropped) = &ran.log;
    for line in lines {
        say(format_args!("{}: {line}", function.name()));
    }
    if *dropped > 0 {
        say(format_args!("{}: {dropped} more lines were dropped", function.name()));
    }
    if run.explain || run.stats && !run.json {
        ran.answered.iter().for_each(say);
    }
    if run.explain {
        explain(ran, counts);
    }
    if let Some(returned) = ran.returned().filter(|_| !run.json) {
        say(format_args!("{} returned {returned}", function.name()));
    }
    if run.json {
        let document = document(run, function, ran, code, counts);
        return if run.out.is_none() { shown.finish_json(document) } else { Ok(output::print_json(document)?) };
    }
    if run.out.is_none() {
        shown.finish()?;
    }
    if run.stats {
        say(stats_table(ran).to_string().trim_end());
        more(ran.parts.len(), "parts");
        if !ran.fold.is_zero() {
            say(format_args!("the results of all parts were folded here in {}", duration(ran.fold)));
        }
        let code = code_line(code);
        if !code.is_empty() {
            say(code.trim_end());
        }
    }
    Ok(())
}

/// Where it ran and why, and what moved.
fn explain(ran: &Ran, counts: &Counts) {
    for (name, decision) in ran.decisions.iter().take(LINES_MAX) {
        say(format_args!("{name}: {decision}"));
    }
    more(ran.decisions.len(), "files, each with a decision of its own");
    for (name, why) in ran.refusals.iter().take(LINES_MAX) {
        say(format_args!("{name}: host, through the file system: {why}"));
    }
    more(ran.refusals.len(), "files through the file system");
    let is_refused = |part: &RanPart| ran.refusals.iter().any(|(name, _)| *name == part.name);
    let here = ran.parts.iter().filter(|part| !is_refused(part));
    let here = here.filter(|part| ran.decisions.iter().all(|(name, _)| *name != part.name));
    here.take(LINES_MAX).for_each(|part| say(format_args!("{}: host: the data is here", part.name)));
    if ran.decisions.len() > 1 {
        say(counts);
    }
    if !ran.decisions.is_empty() {
        let (sent, received) = (bytes(ran.sent_bytes), bytes(ran.received_bytes));
        say(format_args!("{} of data: {sent} sent, {received} received", bytes(ran.input_bytes)));
    }
}

/// Files with a line each.
const LINES_MAX: usize = 16;

fn more(count: usize, what: &str) {
    if count > LINES_MAX {
        say(format_args!("and {} more {what}", count - LINES_MAX));
    }
}

/// Files, parts and decisions in a document; how many there are is in it, too.
const FILES_MAX: usize = 256;

fn document(run: &Run, function: &Function, ran: &Ran, code: &CodeStats, counts: &Counts) -> serde_json::Value {
    let sum = |of: fn(&RanPart) -> std::time::Duration| ran.parts.iter().map(of).sum::<std::time::Duration>();
    let ns = |d: std::time::Duration| d.as_nanos() as u64;
    let decision = |(name, d): &(String, diskside::session::Decision)| {
        json!({
            "file": name, "plan": d.plan.name(), "reason": d.reason.name(), "text": d.to_string(),
            "host_s": d.estimate.map(|e| e.host_s), "device_s": d.estimate.map(|e| e.device_s),
            "split_s": d.estimate.and_then(|e| e.split_s), "recalled": d.recalled,
        })
    };
    let part = |p: &RanPart| {
        json!({
            "file": p.name, "from": p.range.start, "to": p.range.end, "side": p.side.name(), "depth": p.depth,
            "input_bytes": p.input_bytes, "output_bytes": p.output_bytes,
            "queue_ns": ns(p.queue), "wait_ns": ns(p.wait), "run_ns": ns(p.run), "fold_ns": p.fold.map(ns),
            "write_ns": ns(p.write),
            "send_ns": ns(p.send), "total_ns": ns(p.total),
        })
    };
    let mut document = json!({
        "function": function.name(),
        "kind": function.kind().name(),
        "files": run.files.iter().map(|file| file.to_string_lossy()).take(FILES_MAX).collect::<Vec<_>>(),
        "files_named": run.files.len(),
        "stats": {
            "tier": ran.parts.iter().find_map(|p| p.tier).map(|tier| tier.name()),
            "threads": run.threads,
            "depth": ran.parts.iter().filter_map(|p| p.depth).max(),
            "input_bytes": ran.input_bytes,
            "output_bytes": ran.parts.iter().map(|p| p.output_bytes).sum::<u64>(),
            "chunks": ran.parts.iter().map(|p| p.chunks).sum::<Option<u64>>(),
            "retreating_edges": ran.parts.iter().map(|p| p.back_edges).sum::<u64>(),
            "queue_ns": ns(sum(|p| p.queue)),
            "run_ns": ns(sum(|p| p.run)),
            "fold_ns": ran.folding().map(ns),
            "wait_ns": ns(sum(|p| p.wait)),
            "write_ns": ns(sum(|p| p.write)),
            "send_ns": ns(sum(|p| p.send)),
            "total_ns": ns(ran.total),
            "sent_bytes": ran.sent_bytes,
            "received_bytes": ran.received_bytes,
            "plainer_code": code.plainer,
            "llvm": {
                "compiled": code.llvm_compiled,
                "loaded": code.llvm_loaded,
                "failed": code.llvm_failed,
                "last_failure": code.llvm_last_failure,
                "time_ns": code.llvm_time.as_nanos() as u64,
            },
        },
        "refusals": ran.refusals.iter().take(FILES_MAX).map(|(file, why)| json!({ "file": file, "why": why })).collect::<Vec<_>>(),
        "answered": ran.answered.iter().map(answered_document).collect::<Vec<_>>(),
        "decisions": ran.decisions.iter().take(FILES_MAX).map(decision).collect::<Vec<_>>(),
        "decision_counts": {
            "total": counts.total(),
            "plans": counts.plans().map(|(plan, n)| (plan.name().to_owned(), json!(n))).collect::<Map>(),
            "reasons": counts.reasons().map(|(reason, n)| (reason.name().to_owned(), json!(n))).collect::<Map>(),
            "probes": counts.probes(),
        },
        "parts": ran.parts.iter().take(FILES_MAX).map(part).collect::<Vec<_>>(),
        "parts_count": ran.parts.len(),
        "returned": ran.returned(),
        "log": ran.log.0,
        "log_dropped": ran.log.1,
    });
    if let Some(path) = &run.out {
        document["out"] = json!(path.to_string_lossy());
    }
    document
}

/// A line on LLVM's work, if there was any, and on the code.
fn code_line(code: &CodeStats) -> String {
    let ms = code.llvm_time.as_secs_f64() * 1e3;
    let mut text = code.plainer.as_ref().map(|why| format!("code: {why}\n")).unwrap_or_default();
    if code.llvm_compiled + code.llvm_loaded + code.llvm_failed > 0 {
        text += &format!(
            "llvm: {} compiled, {} from the store, {} failed, in {ms:.1} ms\n",
            code.llvm_compiled, code.llvm_loaded, code.llvm_failed
        );
    }
    for why in [&code.llvm_last_failure, &code.store_failure].into_iter().flatten() {
        text += &format!("llvm: {why}\n");
    }
    text
}

fn stats_table(ran: &Ran) -> Table {
    let mut table = Table::new(&[
        "side", "tier", ">chunks", ">depth", ">input", ">output", ">queue", ">wait", ">run", ">fold", ">write",
        ">send", ">total", ">rate",
    ]);
    for p in ran.parts.iter().take(LINES_MAX) {
        table.row(vec![
            p.side.name().into(),
            p.tier.map_or("-", |tier| tier.name()).into(),
            p.chunks.map_or_else(|| "-".into(), |chunks| chunks.to_string()),
            p.depth.map_or_else(|| "-".into(), |depth| depth.to_string()),
            bytes(p.input_bytes),
            bytes(p.output_bytes),
            duration(p.queue),
            duration(p.wait),
            duration(p.run),
            p.fold.map_or_else(|| "-".into(), duration),
            duration(p.write),
            duration(p.send),
            duration(p.total),
            rate(p.input_bytes, p.total),
        ]);
    }
    table
}
