//! `diskside explain`.

use crate::error::Failure;
use crate::output;
use clap::Args;
use diskside::sandbox::verify::explain;
use std::io::Write as _;

/// Arguments of `explain`.
#[derive(Args)]
pub(crate) struct Explain {
    /// A code of the verifier, such as V0301
    code: String,
}

impl Explain {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let code = self.code.to_ascii_uppercase();
        let Some(e) = explain(&code) else {
            return Err(Failure::Usage(format!(
                "no code {code}; codes look like V0301 and stand at the head of a refusal"
            )));
        };
        writeln!(output::stdout(), "{}: {}\n\n{}", e.code, e.title, e.text.trim())?;
        Ok(())
    }
}
