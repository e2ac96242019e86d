//! `diskside functions`.

use super::exports::{parse_export, session, target_of};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::{self, Table};
use clap::Args;
use diskside::sandbox::helpers::Helper;
use diskside::sandbox::verify::Effects;
use diskside::wire::function::HelperEntry;
use diskside::{Engine, ExportUrl, Function};
use serde_json::json;
use std::io::Write;

/// Arguments of `functions`.
#[derive(Args)]
pub(crate) struct Functions {
    /// Show one function with its arguments and result; or list those of a target: diskside://HOST[:PORT]
    #[arg(value_name = "NAME|URL")]
    name: Option<String>,
    /// List the helpers that functions can call, here or at the target: what a call costs, and what they do
    #[arg(long)]
    helpers: bool,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Functions {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let url = self.name.as_deref().filter(|name| name.contains("://"));
        let url = url.map(|url| parse_export(url).map_err(Failure::Usage)).transpose()?;
        match (&url, &self.name) {
            (None, Some(name)) if self.helpers => {
                let told = "helpers are those of this machine, or of a target: diskside://HOST[:PORT]";
                return Err(Failure::Usage(format!("--helpers {name}: {told}")));
            }
            (url, _) if self.helpers => return self.list_helpers(url.as_ref()),
            (Some(url), _) => return self.list_at_target(url),
            (None, _) => {}
        }
        let engine = Engine::new(diskside::helpers());
        let names: Vec<String> = match &self.name {
            Some(name) => vec![name.clone()],
            None => diskside::library::shipped().map(|f| f.name.to_owned()).collect(),
        };
        let mut functions = Vec::new();
        for name in &names {
            functions.push(diskside::library::describe(&engine, name)?);
        }
        if self.json {
            let list: Vec<_> = functions.iter().map(document).collect();
            output::print_json(json!({ "functions": list }))?;
        } else if self.name.is_some() {
            for function in &functions {
                write!(output::stdout(), "{}", describe(function))?;
            }
        } else {
            let mut table = Table::new(&["function", "kind", "folds", "arguments"]);
            for f in &functions {
                let args = f.args().map_or_else(String::new, |s| {
                    s.fields.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", ")
                });
                let folds = if f.combine().is_some() { "yes" } else { "no" };
                table.row(vec![f.name().into(), f.kind().name().into(), folds.into(), args]);
            }
            write!(output::stdout(), "{table}")?;
        }
        Ok(())
    }

    fn list_at_target(&self, url: &ExportUrl) -> Result<(), Failure> {
        let compute = session(&self.connect)?.compute(&target_of(url)?).map_err(session_failure)?;
        let mut programs = compute.programs().map_err(|e| Failure::Environment(format!("{url}: {e}")))?;
        programs.sort_by_key(|program| program.index);
        if self.json {
            let list: Vec<_> = programs
                .iter()
                .map(|p| {
                    json!({
                        "index": p.index, "name": p.name, "functions": p.functions, "size_bytes": p.len_bytes,
                        "hash": format!("{:016x}", p.hash), "sha256": hex(&p.sha256), "shipped": p.device_defined,
                        "active": p.active, "own": p.own,
                    })
                })
                .collect();
            let helpers = compute.helpers();
            return Ok(output::print_json(json!({ "url": url.to_string(), "programs": list, "helpers": helpers }))?);
        }
        let mut table = Table::new(&[">index", "function", ">functions", ">size", "from", "hash"]);
        for p in &programs {
            let from = match (p.device_defined, p.own) {
                (true, _) => "target",
                (false, true) => "you",
                (false, false) => "another host",
            };
            let (size, hash) = match p.is_service() {
                true => ("-".into(), "-".into()),
                false => (output::bytes(p.len_bytes.into()), format!("{:016x}", p.hash)),
            };
            table.row(vec![p.index.to_string(), p.name.clone(), p.functions.to_string(), size, from.into(), hash]);
        }
        Ok(write!(std::io::stdout().lock(), "{table}")?)
    }

    fn list_helpers(&self, url: Option<&ExportUrl>) -> Result<(), Failure> {
        let helpers = match url {
            Some(url) => {
                let compute = session(&self.connect)?.compute(&target_of(url)?).map_err(session_failure)?;
                compute.described_helpers().map_err(|e| Failure::Environment(format!("{url}: {e}")))?
            }
            None => diskside::helpers().iter().map(described).collect(),
        };
        if self.json {
            let list: Vec<_> = helpers
                .iter()
                .map(|h| {
                    json!({
                        "name": h.name, "version": h.version, "cost": h.cost, "prototype": h.prototype, "doc": h.doc,
                        "inline": h.cost == "inline",
                    })
                })
                .collect();
            return Ok(output::print_json(json!({ "helpers": list }))?);
        }
        let mut out = std::io::stdout().lock();
        for helper in &helpers {
            writeln!(out, "{};\n    {} [version {}, {}]", helper.prototype, helper.doc, helper.version, helper.cost)?;
        }
        Ok(())
    }
}

fn described(helper: &Helper) -> HelperEntry {
    HelperEntry {
        name: helper.name.into(),
        version: helper.version,
        cost: helper.cost.name().into(),
        prototype: helper.prototype.into(),
        doc: helper.doc.into(),
    }
}

/// The effects by name; empty for a pure function.
pub(super) fn effect_names(e: Effects) -> Vec<&'static str> {
    [
        (e.writes_globals, "writes globals"),
        (e.uses_clock, "uses the clock"),
        (e.does_io, "does I/O"),
        (e.uses_state, "uses state"),
    ]
    .into_iter()
    .filter_map(|(has, name)| has.then_some(name))
    .collect()
}

fn describe(f: &Function) -> String {
    let mut text = format!("{} ({})\n", f.name(), f.kind().name());
    if let Some(schema) = f.args() {
        text += "arguments:\n";
        for a in &schema.fields {
            let default = a.default.as_ref().map_or_else(String::new, |d| format!(" [default: {d}]"));
            let doc = a.doc.as_ref().map_or_else(String::new, |d| format!(": {d}"));
            text += &format!("  {}  {}{default}{doc}\n", a.name, diskside::args::describe(a));
        }
    }
    if let Some(schema) = &f.main().entry().result {
        text += &format!("result: rows of {}\n", schema.name);
        for r in schema.fields.iter().filter(|r| !r.is_hidden) {
            text += &format!("  {}  {}\n", r.name, diskside::args::describe(r));
        }
    }
    text
}

fn document(f: &Function) -> serde_json::Value {
    let args = f.args().map(|s| {
        let one = |a: &diskside::sandbox::image::ArgField| {
            json!({ "name": a.name, "type": diskside::args::describe(a), "default": a.default, "doc": a.doc })
        };
        s.fields.iter().map(one).collect::<Vec<_>>()
    });
    let result = f
        .main()
        .entry()
        .result
        .as_ref()
        .map(|s| s.fields.iter().filter(|r| !r.is_hidden).map(|r| r.name.clone()).collect::<Vec<_>>());
    json!({
        "name": f.name(),
        "kind": f.kind().name(),
        "folds": f.combine().is_some(),
        "effects": effect_names(f.main().verified().effects),
        "arguments": args,
        "result": result,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
