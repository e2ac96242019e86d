//! `diskside build`.

use crate::error::Failure;
use crate::output_file::{refuse_to_replace, write_file};
use clap::Args;
use diskside::ResolveError;
use diskside::compile::{compile, lower};
use std::path::PathBuf;

/// Arguments of `build`.
#[derive(Args)]
pub(crate) struct Build {
    /// C source, or LLVM's bitcode for eBPF (`.bc`, `.ll`) that another compiler wrote
    source: PathBuf,
    /// Where to write the object; by default beside the source, ending in `.o`
    #[arg(short, long, value_name = "OBJECT")]
    output: Option<PathBuf>,
    /// Bytes of a stack frame, for bitcode
    #[arg(long, value_name = "BYTES")]
    stack: Option<u32>,
}

impl Build {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let output = self.output.unwrap_or_else(|| self.source.with_extension("o"));
        refuse_to_replace(&self.source, "the source", &output)?;
        let extension = self.source.extension().and_then(|e| e.to_str());
        let object = match extension {
            Some("c") if self.stack.is_some() => {
                return Err(Failure::Usage("--stack is for bitcode; the stack of C source grows by itself".into()));
            }
            Some("c") => compile(&self.source),
            Some("bc" | "ll") => lower(&self.source, self.stack),
            _ => {
                let source = self.source.display();
                return Err(Failure::Usage(format!("{source} is neither C source (.c) nor LLVM's bitcode (.bc, .ll)")));
            }
        };
        let object = object.map_err(|error| Failure::from(ResolveError::from(error)))?;
        write_file(&output, &object)
    }
}
