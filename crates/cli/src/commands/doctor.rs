//! `diskside doctor`: what this machine has for Diskside, what it lacks, and what to do about it.

mod findings;
mod machine;

use crate::error::Failure;
use crate::output;
use clap::Args;
use findings::{Finding, State};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;

/// Arguments of `doctor`.
#[derive(Args)]
#[command(after_help = "\
It changes nothing and asks nobody. It ends with 1 if something is missing without which commands or a server fail, and with 0 if \
there are at most things that make them slower.")]
pub(crate) struct Doctor {
    /// Directories or files that are to be served: what their file systems do
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let mut findings = machine::all();
        findings.extend(self.paths.iter().map(|path| machine::file_system(path)));
        if self.json {
            let listed = findings.iter().map(|Finding { what, state, found, remedy }| {
                json!({ "what": what, "state": state.name(), "found": found, "remedy": remedy })
            });
            output::print_json(json!({ "findings": listed.collect::<Vec<_>>() }))?;
        } else {
            let mut out = output::stdout();
            for Finding { what, state, found, remedy } in &findings {
                writeln!(out, "{:8} {what:14} {found}", state.name())?;
                if let Some(remedy) = remedy {
                    writeln!(out, "{:23} {remedy}", "")?;
                }
            }
        }
        let missing: Vec<_> =
            findings.iter().filter(|one| one.state == State::Missing).map(|one| one.what.as_str()).collect();
        match missing[..] {
            [] => Ok(()),
            _ => Err(Failure::Function(format!("missing: {}", missing.join(", ")))),
        }
    }
}
