//! `diskside clear`.

use super::exports::{self, parse_export, session};
use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::parse_bytes;
use clap::Args;
use diskside::ExportUrl;
use diskside::session::Session;
use diskside::wire::file::{FileFlags, FileKind};
use diskside_paths::Pattern;

/// Arguments of `clear`.
#[derive(Args)]
#[command(after_help = "\
A named state is shared by all that this host (--hostnqn) runs at the target, and goes with its last connection: what another
command or program of the host keeps there is what this one clears. A run that uses it continues; the next finds zeroes.

Examples:
  diskside clear diskside://server --state counters
  diskside clear diskside://server --state counters --from 4KiB --len 64
  diskside clear diskside://server --cache
  diskside clear diskside://server/data/2026.log --cache
  diskside clear 'diskside://server/data/**/*.log' --cache")]
pub(crate) struct Clear {
    /// The target; with --cache also a file of an export, or a pattern with *, ?, [...] or **
    #[arg(value_name = "diskside://HOST[:PORT][/EXPORT/PATH]", value_parser = parse_export)]
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
    /// Drop what the target has in memory, the page cache included: of the file; else of its volumes and objects of stores, or of the
    /// volume with this namespace ID
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
        if !self.url.path.is_empty() {
            return self.files(&session);
        }
        let compute = session.compute(&exports::target_of(&self.url)?).map_err(session_failure)?;
        if let Some(name) = &self.state {
            let end = self.len.map_or(u64::MAX, |len| self.from.saturating_add(len));
            compute.clear_state(name, self.from..end).map_err(failed)?;
        }
        if let Some(nsid) = self.cache {
            compute.clear_cache(Some(nsid).filter(|nsid| *nsid != 0)).map_err(failed)?;
        }
        Ok(())
    }

    /// Drops what is cached of files.
    fn files(&self, session: &Session) -> Result<(), Failure> {
        if self.state.is_some() || self.cache != Some(0) {
            let told = "a path goes with --cache alone: states and volumes are those of a target";
            return Err(Failure::Usage(format!("{}: {told}", self.url)));
        }
        let files = session.files(&self.url).map_err(session_failure)?;
        let path = &self.url.path[..];
        let paths = if Pattern::has_wildcards(path) {
            let found = files.find(path, FileFlags::NONE).map_err(|error| exports::failed(&self.url, &error))?;
            found.into_iter().filter(|found| found.kind == FileKind::File).map(|found| found.path).collect()
        } else {
            vec![path.to_vec()]
        };
        if paths.is_empty() {
            return Err(exports::no_match(&self.url));
        }
        for path in paths {
            files.drop_cached(&path).map_err(|error| exports::not_there(session, &self.url, &error))?;
        }
        Ok(())
    }
}
