//! `diskside inspect`.

mod loops;

use super::functions::effect_names;
use super::{load_image, parse_kind};
use crate::error::Failure;
use crate::output::{self, Table, bytes};
use clap::Args;
use diskside::llvm::remarks::{self, Outcome};
use diskside::llvm::{Compiler, PROGRAM, VARIABLE, compile};
use diskside::sandbox::activation::{Program, Tier};
use diskside::sandbox::disasm;
use diskside::sandbox::image::{CostHints, Image, Kind};
use diskside::sandbox::ir::LoopReport;
use diskside::{CodeCache, OnMiss, TierChoice};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::sync::Arc;

/// Arguments of `inspect`.
#[derive(Args)]
pub(crate) struct Inspect {
    /// An object, C source, or a shipped function
    object: OsString,
    /// Take every program as of this kind
    #[arg(long, value_parser = parse_kind)]
    kind: Option<Kind>,
    /// Show the instructions, with source lines
    #[arg(long)]
    code: bool,
    /// Show the checked IR after checks were hoisted
    #[arg(long)]
    ir: bool,
    /// Compile in this tier too, and say what became of each loop: llvm
    #[arg(long, value_parser = parse_tier)]
    tier: Option<Tier>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The outcome of LLVM for the loops of each program, by their first instruction.
type Outcomes = BTreeMap<u32, Outcome>;

impl Inspect {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let image = load_image(&self.object, self.kind)?;
        let helpers = Arc::new(diskside::helpers());
        let programs: Vec<_> = (0..image.programs.len()).map(|i| Program::new(&image, i, &helpers)).collect();
        let said: Vec<Option<Outcomes>> = programs
            .iter()
            .map(|p| self.tier.and(p.as_ref().ok()).map(said_by_llvm).transpose())
            .collect::<Result<_, _>>()?;
        if self.json {
            let list: Vec<_> = programs
                .iter()
                .enumerate()
                .map(|(i, p)| document(&image, i, p.as_ref().ok(), said[i].as_ref()))
                .collect();
            let imports: Vec<_> = image.imports.iter().map(|i| json!({ "name": i.name, "weak": i.weak })).collect();
            let cost = image.note.cost.as_ref().map(|cost| {
                json!({ "output_permille": cost.output_permille, "passes": cost.passes, "scattered": cost.scattered })
            });
            let object = self.object.to_string_lossy();
            let mut document = json!({ "object": object, "programs": list, "helpers": imports });
            if let Some(cost) = cost {
                document["hints"] = cost;
            }
            return Ok(output::print_json(document)?);
        }
        write!(output::stdout(), "{}", summary(&image, &programs))?;
        for (i, program) in programs.iter().enumerate() {
            writeln!(output::stdout(), "\n{}", image.programs[i].section)?;
            match program {
                Ok(program) => {
                    write!(output::stdout(), "{}", loops::report(&image, program, said[i].as_ref()))?;
                    if let Some(why) = plainer(program) {
                        writeln!(output::stdout(), "  code: {why}")?;
                    }
                    if self.ir {
                        write!(output::stdout(), "{}", program.optimised())?;
                    }
                }
                Err(findings) => {
                    for finding in findings {
                        writeln!(output::stdout(), "{}", finding.render(&image))?;
                    }
                }
            }
        }
        if self.code {
            for f in 0..image.functions.len() {
                writeln!(
                    output::stdout(),
                    "\n{}:\n{}",
                    image.functions[f].name,
                    disasm::listing(&image, f).trim_end()
                )?;
            }
        }
        Ok(())
    }
}

fn summary<E>(image: &Image, programs: &[Result<Program, E>]) -> String {
    let mut table = Table::new(&["program", "kind", ">instructions", ">stack", "effects"]);
    for (entry, program) in image.programs.iter().zip(programs) {
        let f = &image.functions[entry.function];
        let (stack, effects) = match program {
            Ok(p) => (p.verified().stack_len.to_string(), effects_text(p)),
            Err(_) => ("-".into(), "refused".into()),
        };
        table.row(vec![entry.section.clone(), entry.kind.name().into(), (f.end - f.start).to_string(), stack, effects]);
    }
    let needs: Vec<_> =
        image.imports.iter().map(|i| if i.weak { format!("{} (weak)", i.name) } else { i.name.clone() }).collect();
    let needs = if needs.is_empty() { "none".into() } else { needs.join(", ") };
    let cost = image.note.cost.as_ref().map_or_else(String::new, |cost| format!("hints: {}\n", cost_text(cost)));
    format!(
        "{table}{cost}helpers: {needs}\nrodata {}, data {}\n",
        bytes(image.rodata.len() as u64),
        bytes(image.data.len() as u64)
    )
}

/// What the author says of its cost.
fn cost_text(cost: &CostHints) -> String {
    let passes = if cost.passes == 1 { "1 pass".to_owned() } else { format!("{} passes", cost.passes) };
    let places = if cost.scattered { "scattered accesses" } else { "accesses in order" };
    format!("{} bytes of output for 1000 of input, {passes}, {places}", cost.output_permille)
}

fn effects_text(program: &Program) -> String {
    let names = effect_names(program.verified().effects);
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Why its code is not as fast as that of others, if so.
fn plainer(program: &Program) -> Option<String> {
    let code = CodeCache::default();
    code.get(program, TierChoice::Best, OnMiss::CallingThread).ok()?;
    code.stats().plainer
}

/// Compiles with LLVM, for what it says of loops.
fn said_by_llvm(program: &Program) -> Result<Outcomes, Failure> {
    let compiler = Compiler::find().ok_or_else(|| {
        Failure::Environment(format!("{PROGRAM} is not here: put it beside diskside, or name it in {VARIABLE}"))
    })?;
    let compiled = compile(program.optimised(), &compiler)
        .map_err(|e| Failure::Load(format!("{}: {e}", program.entry().section)))?;
    Ok(remarks::outcomes(&compiled.remarks))
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    match text {
        "llvm" => Ok(Tier::Llvm),
        _ => Err("the tier that says more of loops is llvm".into()),
    }
}

fn document(image: &Image, index: usize, program: Option<&Program>, said: Option<&Outcomes>) -> serde_json::Value {
    let entry = &image.programs[index];
    let f = &image.functions[entry.function];
    let mut document = json!({
        "program": entry.section,
        "kind": entry.kind.name(),
        "instructions": f.end - f.start,
        "ok": program.is_some(),
    });
    if let Some(p) = program {
        document["effects"] = json!(effect_names(p.verified().effects));
        document["stack_bytes"] = json!(p.verified().stack_len);
        let one = |l: &LoopReport| {
            let mut one = json!({
                "insn": l.insn, "accesses": l.accesses, "unchecked": l.unchecked, "hoisted": l.hoisted, "why": l.why,
                "line": image.line_of(l.insn as usize).map(|s| s.line),
            });
            match said.map(|said| said.get(&l.insn)) {
                None => {}
                Some(Some(Outcome::Vectorised { width, interleaved })) => {
                    one["llvm"] = json!({ "vectorised": true, "width": width, "interleaved": interleaved });
                }
                Some(Some(Outcome::Scalar { reasons })) => {
                    one["llvm"] = json!({ "vectorised": false, "reasons": reasons });
                }
                Some(None) => one["llvm"] = json!({ "vectorised": false, "reasons": [] }),
            }
            one
        };
        document["loops"] = p.optimised().functions.iter().flat_map(|f| &f.loops).map(one).collect();
    }
    document
}
