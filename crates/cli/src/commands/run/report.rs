//! How a result is shown.

use super::Run;
use crate::output::{self, Table, bytes, rate};
use diskside::result::{Value, columns, rows};
use diskside::{CodeStats, Function, Outcome};
use serde_json::json;
use std::io::{IsTerminal, Write};

pub(super) fn print(run: &Run, function: &Function, outcome: &Outcome, code: &CodeStats) -> std::io::Result<()> {
    let (lines, dropped) = &outcome.log;
    for line in lines {
        eprintln!("{}: {line}", function.name());
    }
    if *dropped > 0 {
        eprintln!("{}: {dropped} more lines were dropped", function.name());
    }
    if run.json {
        return output::print_json(document(run, function, outcome, code));
    }
    if run.out.is_none() {
        print_result(function, &outcome.result)?;
    }
    if run.stats {
        eprint!("{}{}", stats_table(outcome), code_line(code));
    }
    Ok(())
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

fn document(run: &Run, function: &Function, outcome: &Outcome, code: &CodeStats) -> serde_json::Value {
    let stats = &outcome.stats;
    let mut document = json!({
        "function": function.name(),
        "kind": function.kind().name(),
        "files": run.files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>(),
        "stats": {
            "tier": stats.tier.name(),
            "threads": stats.threads,
            "input_bytes": stats.input_bytes,
            "output_bytes": stats.output_bytes,
            "chunks": stats.chunks,
            "retreating_edges": stats.edges,
            "run_ns": stats.run.as_nanos() as u64,
            "wait_ns": stats.wait.as_nanos() as u64,
            "total_ns": stats.total.as_nanos() as u64,
            "llvm": {
                "compiled": code.llvm_compiled,
                "loaded": code.llvm_loaded,
                "failed": code.llvm_failed,
                "last_failure": code.llvm_last_failure,
                "time_ns": code.llvm_time.as_nanos() as u64,
            },
        },
        "log": outcome.log.0,
        "log_dropped": outcome.log.1,
    });
    if let Some(path) = &run.out {
        document["out"] = json!(path.display().to_string());
        return document;
    }
    let described = function.main().entry().result.as_ref().and_then(|s| Some((s, rows(s, &outcome.result)?)));
    if let Some((schema, rows)) = described {
        let object = |row: &Vec<Value>| {
            columns(schema).zip(row).map(|(f, v)| (f.name.clone(), value(v))).collect::<serde_json::Map<_, _>>()
        };
        document["rows"] = rows.iter().map(object).map(serde_json::Value::Object).collect();
    } else if let Some(text) = std::str::from_utf8(&outcome.result).ok().filter(|t| is_text(t.as_bytes())) {
        document["text"] = json!(text);
    } else {
        document["hex"] = json!(outcome.result.iter().map(|b| format!("{b:02x}")).collect::<String>());
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

fn stats_table(outcome: &Outcome) -> Table {
    let s = &outcome.stats;
    let ms = |d: std::time::Duration| format!("{:.1} ms", d.as_secs_f64() * 1e3);
    let mut table =
        Table::new(&["tier", ">threads", ">chunks", ">input", ">output", ">run", ">wait", ">total", ">rate"]);
    table.row(vec![
        s.tier.name().into(),
        s.threads.to_string(),
        s.chunks.to_string(),
        bytes(s.input_bytes),
        bytes(s.output_bytes),
        ms(s.run),
        ms(s.wait),
        ms(s.total),
        rate(s.input_bytes, s.total),
    ]);
    table
}
