//! `diskside join`: the key of an invitation into a file for its server, and what this host may do there.

use super::key::hosts_file::read_secret_line;
use super::key::{failure, kept_for};
use super::volume::{host_failure, session_failure};
use crate::error::Failure;
use crate::output::{self, Table, bytes, say};
use clap::Args;
use diskside::ExportUrl;
use diskside::host::function::FunctionError;
use diskside::host::{ConnectOptions, Connection, HostError, KeySource, Url};
use diskside::io::request::AsyncIo as _;
use diskside::session::{Session, SessionError, SessionOptions};
use diskside_keys::{HostKey, INVITATION_LEN_MAX, Invitation};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `join`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside join                          (paste the line of `diskside invite`, and press Enter)
  diskside join --from ann.invitation
The text is read from standard input or from a file, never from the command line, which everybody on this machine can see.
The key is kept for this server alone; other servers are still connected to with the usual key, if there is one.")]
pub(crate) struct Join {
    /// Read the text from a file, which nobody else can read [default: standard input]
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Keep the key in this file, for `--key FILE` or DISKSIDE_KEY [default: ~/.config/diskside/servers/HOST:PORT, where it is
    /// found for this server]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace another key for this server
    #[arg(long)]
    force: bool,
    /// Give up connecting after this many milliseconds
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    timeout_ms: u64,
}

impl Join {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let invitation = match &self.from {
            Some(path) => Invitation::read(path).map_err(failure)?,
            None => {
                if std::io::stdin().is_terminal() {
                    say("paste the line of `diskside invite`, and press Enter:");
                }
                Invitation::parse(&read_secret_line(INVITATION_LEN_MAX as u64)?).map_err(Failure::Usage)?
            }
        };
        let url: Url = format!("nvme-tcp://{}/{}", invitation.server, invitation.subsystem)
            .parse()
            .map_err(|error| Failure::Usage(format!("the server in this invitation: {error}")))?;
        let path = self.file.clone().map_or_else(|| kept_for(&invitation.server), Ok)?;
        let key = invitation.key();
        self.keep(&key, &path)?;
        say(format_args!("{}: the key, with which this host is {}", path.display(), key.nqn));
        let tried = self.show_rights(&url, &path);
        tried.map_err(|error| {
            error.adding(&format!(
                "; the key is kept: try again with diskside ls diskside://{}, once the server has read its configuration again \
                 (kill -HUP there)",
                invitation.server
            ))
        })
    }

    /// Writes the key, unless it is there already.
    fn keep(&self, key: &HostKey, path: &Path) -> Result<(), Failure> {
        if self.force {
            return key.replace(path).map_err(failure);
        }
        if path.symlink_metadata().is_err() {
            return key.write(path).map_err(failure);
        }
        let there = HostKey::read(path).map_err(failure)?;
        // A word at a time would tell how much of it fits; but who runs this has both.
        if *there.introduction().to_line() == *key.introduction().to_line() {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "{}: there is another key for this server, of {}; --force replaces it",
            path.display(),
            there.nqn
        )))
    }

    fn show_rights(&self, url: &Url, path: &Path) -> Result<(), Failure> {
        let options = ConnectOptions {
            key: KeySource::File(path.to_owned()),
            connect_timeout: Duration::from_millis(self.timeout_ms),
            loss_timeout: Duration::ZERO,
            ..ConnectOptions::default()
        };
        let connection = Connection::connect(url, &options).map_err(host_failure)?;
        let mut table = Table::new(&["may use", "access", ">size"]);
        for &nsid in &connection.controller().namespaces {
            match connection.volume(nsid) {
                Ok(volume) => {
                    let access = if volume.is_read_only() { "read" } else { "read, write" };
                    let named = Url { nsid: Some(nsid), ..url.clone() };
                    table.row(vec![named.to_string(), access.into(), bytes(volume.len_bytes()?)]);
                }
                // Those of functions and of memory.
                Err(HostError::NotBlocks { .. }) => {}
                Err(error) => return Err(host_failure(error)),
            }
        }
        let target = format!("diskside://{}", url.server(diskside::host::PORT_DEFAULT));
        let target: ExportUrl = target.parse().map_err(|e: diskside::LocationError| Failure::Usage(e.to_string()))?;
        let session = Session::new(SessionOptions { connect: options, ..SessionOptions::default() });
        let mut exports = match session.exports(&target) {
            // A host that may use volumes alone is shown neither exports nor functions.
            Err(SessionError::Device { source: FunctionError::NoCompute { .. }, .. }) => Vec::new(),
            found => found.map_err(session_failure)?,
        };
        exports.sort_by(|a, b| a.name.cmp(&b.name));
        for export in &exports {
            let access = if export.read_only { "read" } else { "read, write" };
            table.row(vec![format!("{target}/{}", export.name), access.into(), String::new()]);
        }
        let functions = match session.compute(&target.target()) {
            Ok(compute) => {
                let programs = compute.programs().map_err(|e| Failure::Environment(format!("{target}: {e}")))?;
                programs.iter().filter(|program| program.device_defined).count()
            }
            // A server may serve data alone.
            Err(_) => 0,
        };
        let mut out = output::stdout();
        if table.is_empty() {
            writeln!(out, "nothing is granted to this host yet; the server's operator can: diskside key allow --help")?;
        } else {
            write!(out, "{table}")?;
        }
        Ok(writeln!(out, "functions of the server: {functions} (diskside functions {target})")?)
    }
}
