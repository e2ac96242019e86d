//! How a result is shown.

use super::Run;
use crate::output::{self, Table, bytes, rate};
use diskside::CodeStats;
use diskside::result::{Value, columns, rows};
use diskside::session::{Counts, Ran, RanPart, SessionFunction as Function};
use serde_json::json;
use std::io::{IsTerminal, Write};

type Map = serde_json::Map<String, serde_json::Value>;

pub(super) fn print(
    run: &Run,
    function: &Function,
    ran: &Ran,
    code: &CodeStats,
    counts: &Counts,
) -> std::io::Result<()> {
    let (lines, dropped) = &ran.log;
    for line in lines {
        eprintln!("{}: {line}", function.name());
    }
    if *dropped > 0 {
        eprintln!("{}: {dropped} more lines were dropped", function.name());
    }
    if run.explain {
        explain(ran, counts);
    }
    if let Some(returned) = ran.returned().filter(|_| !run.json) {
        eprintln!("{} returned {returned}", function.name());
    }
    if run.json {
        return output::print_json(document(run, function, ran, code, counts));
    }
    if run.out.is_none() {
        print_result(function, &ran.result)?;
    }
    if run.stats {
        eprint!("{}{}", stats_table(ran), code_line(code));
    }
    Ok(())
}

/// Where it ran and why, and what moved.
fn explain(ran: &Ran, counts: &Counts) {
    for (name, decision) in &ran.decisions {
        eprintln!("{name}: {decision}");
    }
    for (name, why) in &ran.refusals {
        eprintln!("{name}: host, through the file system: {why}");
    }
    let is_refused = |part: &RanPart| ran.refusals.iter().any(|(name, _)| *name == part.name);
    let here = ran.parts.iter().filter(|part| !is_refused(part));
    let here = here.filter(|part| ran.decisions.iter().all(|(name, _)| *name != part.name));
    here.for_each(|part| eprintln!("{}: host: the data is here", part.name));
    if ran.decisions.len() > 1 {
        eprintln!("{counts}");
    }
    if !ran.decisions.is_empty() {
        let (sent, received) = (bytes(ran.sent_bytes), bytes(ran.received_bytes));
        eprintln!("{} of data: {sent} sent, {received} received", bytes(ran.input_bytes));
    }
}

/// Rows of fields where the function describes its result; text as it is; else hexadecimal.
fn print_result(function: &Function, result: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let described = function.main().entry().result.as_ref().and_then(|s| Some((s, rows(s, result)?)));
    match described {
        Some((schema, rows)) if rows.len() == 1 => {
            let width = columns(schema).map(|f| f.name.len()).max().unwrap_or(0);
            for (field, value) in columns(schema).zip(&rows[0]) {
                writeln!(out, "{:width$}  {value}", field.name)?;
            }
            Ok(())
        }
        Some((schema, rows)) => {
            let titles: Vec<String> = columns(schema).map(|f| format!(">{}", f.name)).collect();
            let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
            rows.iter().for_each(|row| table.row(row.iter().map(Value::to_string).collect()));
            write!(out, "{table}")
        }
        None if is_text(result) || !std::io::stdout().is_terminal() => out.write_all(result),
        None => hex_dump(&mut out, result),
    }
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|t| t.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r')))
}

fn hex_dump(out: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    for (i, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
        let text: String = line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        writeln!(out, "{:08x}  {:47}  {text}", i * 16, hex.join(" "))?;
    }
    Ok(())
}

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
            "file": p.name, "from": p.range.start, "to": p.range.end, "side": p.side.name(),
            "input_bytes": p.input_bytes, "output_bytes": p.output_bytes,
            "queue_ns": ns(p.queue), "wait_ns": ns(p.wait), "run_ns": ns(p.run), "write_ns": ns(p.write),
            "send_ns": ns(p.send), "total_ns": ns(p.total),
        })
    };
    let mut document = json!({
        "function": function.name(),
        "kind": function.kind().name(),
        "files": run.files,
        "stats": {
            "tier": ran.parts.iter().find_map(|p| p.tier).map(|tier| tier.name()),
            "threads": run.threads,
            "input_bytes": ran.input_bytes,
            "output_bytes": ran.parts.iter().map(|p| p.output_bytes).sum::<u64>(),
            "chunks": ran.parts.iter().map(|p| p.chunks).sum::<Option<u64>>(),
            "retreating_edges": ran.parts.iter().map(|p| p.back_edges).sum::<u64>(),
            "queue_ns": ns(sum(|p| p.queue)),
            "run_ns": ns(sum(|p| p.run)),
            "wait_ns": ns(sum(|p| p.wait)),
            "write_ns": ns(sum(|p| p.write)),
            "send_ns": ns(sum(|p| p.send)),
            "total_ns": ns(ran.total),
            "sent_bytes": ran.sent_bytes,
            "received_bytes": ran.received_bytes,
            "llvm": {
                "compiled": code.llvm_compiled,
                "loaded": code.llvm_loaded,
                "failed": code.llvm_failed,
                "last_failure": code.llvm_last_failure,
                "time_ns": code.llvm_time.as_nanos() as u64,
            },
        },
        "refusals": ran.refusals.iter().map(|(file, why)| json!({ "file": file, "why": why })).collect::<Vec<_>>(),
        "decisions": ran.decisions.iter().map(decision).collect::<Vec<_>>(),
        "decision_counts": {
            "total": counts.total(),
            "plans": counts.plans().map(|(plan, n)| (plan.name().to_owned(), json!(n))).collect::<Map>(),
            "reasons": counts.reasons().map(|(reason, n)| (reason.name().to_owned(), json!(n))).collect::<Map>(),
            "probes": counts.probes(),
        },
        "parts": ran.parts.iter().map(part).collect::<Vec<_>>(),
        "returned": ran.returned(),
        "log": ran.log.0,
        "log_dropped": ran.log.1,
    });
    if let Some(path) = &run.out {
        document["out"] = json!(path);
        return document;
    }
    let described = function.main().entry().result.as_ref().and_then(|s| Some((s, rows(s, &ran.result)?)));
    if let Some((schema, rows)) = described {
        let object =
            |row: &Vec<Value>| columns(schema).zip(row).map(|(f, v)| (f.name.clone(), value(v))).collect::<Map>();
        document["rows"] = rows.iter().map(object).map(serde_json::Value::Object).collect();
    } else if let Some(text) = std::str::from_utf8(&ran.result).ok().filter(|t| is_text(t.as_bytes())) {
        document["text"] = json!(text);
    } else {
        document["hex"] = json!(ran.result.iter().map(|b| format!("{b:02x}")).collect::<String>());
    }
    document
}

/// Integers beyond what a JSON number holds exactly in every reader stay exact: as decimal text.
fn value(v: &Value) -> serde_json::Value {
    const EXACT_MAX: u128 = 1 << 53;
    match v {
        Value::Integer(i) if i.unsigned_abs() <= EXACT_MAX => json!(*i as i64),
        Value::Integer(i) => json!(i.to_string()),
        Value::Float(f) if f.is_finite() => json!(f),
        Value::Float(f) => json!(f.to_string()),
        Value::Text(t) => json!(t),
        Value::Bool(b) => json!(b),
        Value::List(l) => l.iter().map(value).collect(),
    }
}

/// What LLVM did, when it did anything.
fn code_line(code: &CodeStats) -> String {
    let ms = code.llvm_time.as_secs_f64() * 1e3;
    let mut text = String::new();
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
    let ms = |d: std::time::Duration| format!("{:.1} ms", d.as_secs_f64() * 1e3);
    let mut table = Table::new(&[
        "side", "tier", ">chunks", ">input", ">output", ">queue", ">wait", ">run", ">write", ">send", ">total", ">rate",
    ]);
    for p in &ran.parts {
        table.row(vec![
            p.side.name().into(),
            p.tier.map_or("-", |tier| tier.name()).into(),
            p.chunks.map_or_else(|| "-".into(), |chunks| chunks.to_string()),
            bytes(p.input_bytes),
            bytes(p.output_bytes),
            ms(p.queue),
            ms(p.wait),
            ms(p.run),
            ms(p.write),
            ms(p.send),
            ms(p.total),
            rate(p.input_bytes, p.total),
        ]);
    }
    table
}
