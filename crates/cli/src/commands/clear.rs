//! `diskside clear`.

use super::exports::{parse_export, session};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::parse_bytes;
use clap::Args;
use diskside::ExportUrl;

/// Arguments of `clear`.
#[derive(Args)]
#[command(after_help = "\
A named state is shared by all that this host (--hostnqn) runs at the target, and goes with its last connection: what another
command or program of the host keeps there is what this one clears. A run that uses it goes on; the next finds zeroes.

Examples:
  diskside clear diskside://server --state counters
  diskside clear diskside://server --state counters --from 4KiB --len 64
  diskside clear diskside://server --cache")]
pub(crate) struct Clear {
    /// The target
    #[arg(value_name = "diskside://HOST[:PORT]", value_parser = parse_export)]
    url: ExportUrl,
    /// Zero this named state (diskside run --state)
    #[arg(long, value_name = "NAME", required_unless_present = "cache")]
    state: Option<String>,
    /// The first byte of it to zero
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_bytes, requires = "state")]
    from: u64,
    /// How many bytes of it [default: all that follow]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "state")]
    len: Option<u64>,
    /// Drop what the target keeps in memory of its volumes for later functions, or of the one with this namespace ID
    #[arg(long, value_name = "NSID", num_args = 0..=1, default_missing_value = "0", require_equals = true)]
    cache: Option<u32>,
    #[command(flatten)]
    connect: Connect,
}

impl Clear {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let failed =
            |error: diskside::host::function::FunctionError| Failure::Environment(format!("{}: {error}", self.url));
        let session = session(&self.connect)?;
        let compute = session.compute(&self.url.target()).map_err(session_failure)?;
        if let Some(name) = &self.state {
            let end = self.len.map_or(u64::MAX, |len| self.from.saturating_add(len));
            compute.clear_state(name, self.from..end).map_err(failed)?;
        }
        if let Some(nsid) = self.cache {
            compute.clear_cache(Some(nsid).filter(|nsid| *nsid != 0)).map_err(failed)?;
        }
        Ok(())
    }
}
