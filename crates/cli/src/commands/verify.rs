//! `diskside verify`.

use super::functions::effect_names;
use super::{load_image, parse_kind};
use crate::error::Failure;
use crate::output;
use clap::Args;
use diskside::sandbox::image::Kind;
use diskside::sandbox::verify::verify;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write as _;

/// Arguments of `verify`.
#[derive(Args)]
pub(crate) struct Verify {
    /// An object, C source, or a shipped function
    object: OsString,
    /// Take every program as of this kind
    #[arg(long, value_parser = parse_kind)]
    kind: Option<Kind>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let image = load_image(&self.object, self.kind)?;
        let helpers = diskside::helpers();
        let mut refused = 0;
        let mut list = Vec::new();
        for (i, program) in image.programs.iter().enumerate() {
            match verify(&image, i, &helpers) {
                Ok(verified) => {
                    let effects = effect_names(verified.effects);
                    list.push(json!({ "program": program.section, "ok": true, "effects": effects }));
                    if !self.json {
                        let effects =
                            if effects.is_empty() { String::new() } else { format!(" ({})", effects.join(", ")) };
                        writeln!(output::stdout(), "{}: ok{effects}", program.section)?;
                    }
                }
                Err(findings) => {
                    refused += 1;
                    let found: Vec<_> = findings
                        .iter()
                        .map(|d| {
                            json!({
                                "code": d.code, "class": format!("{:?}", d.class).to_lowercase(), "reason": d.reason,
                                "insn": d.insn, "source": d.source, "path": d.path, "suggestion": d.suggestion,
                            })
                        })
                        .collect();
                    list.push(json!({ "program": program.section, "ok": false, "findings": found }));
                    if !self.json {
                        writeln!(output::stdout(), "{}: refused", program.section)?;
                        for finding in &findings {
                            writeln!(output::stdout(), "{}", finding.render(&image))?;
                        }
                    }
                }
            }
        }
        if self.json {
            output::print_json(json!({ "object": self.object.to_string_lossy(), "programs": list }))?;
        }
        match refused {
            0 => Ok(()),
            n => Err(Failure::Load(format!(
                "{}: {n} of {} programs refused",
                self.object.display(),
                image.programs.len()
            ))),
        }
    }
}
