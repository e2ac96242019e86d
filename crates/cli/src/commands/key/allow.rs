//! `diskside key allow`: a host's key into a file beside the server's configuration, and the host into that.

use super::hosts_file::{HostsFile, HostsFileArgs, Until, parse_name, read_line, tell_of_restart};
use super::parse_until;
use super::rights::{RightsArgs, warn_of_rights};
use crate::error::Failure;
use crate::output;
use clap::Args;
use std::io::Write as _;

#[derive(Args)]
pub(super) struct Allow {
    /// How the host is called at this server
    #[arg(long, value_parser = parse_name)]
    name: String,
    #[command(flatten)]
    rights: RightsArgs,
    /// When its key ends: a day, a moment, or a time from now (2026-12-01, 7d, 12h), or never [default: never; of a host that
    /// is known, when the last of its keys does]
    #[arg(long, value_name = "WHEN", value_parser = parse_until)]
    until: Option<Until>,
    #[command(flatten)]
    file: HostsFileArgs,
}

impl Allow {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let host = read_line()?;
        let (name, nqn) = (&self.name, host.nqn.clone());
        let mut file = HostsFile::open(self.file)?;
        let config = file.path().to_owned();
        let has_key = file.has(name, &host);
        if let Some(over) = file.ended(name).filter(|_| has_key) {
            let what = format!(
                "the keys of `{name}` ended at {over}, this one with them: have the host make another (diskside key rotate), or change \
                 the end in {}",
                config.display()
            );
            return Err(Failure::Usage(what));
        }
        if has_key && self.until.is_some() {
            let what = format!(
                "{name} has this key already, whose end stays: change it in {}, or have the host make another (diskside key rotate)",
                config.display()
            );
            return Err(Failure::Usage(what));
        }
        if has_key && self.rights.is_empty() {
            let what = format!("{name} may connect as {nqn} with this key already; nothing was changed");
            return Ok(writeln!(output::stdout(), "{what}")?);
        }
        let has_others = if has_key { false } else { file.allow(name, host, self.until, None)? };
        // After the host: without one, a server that others reach has no valid configuration.
        let resolved = file.resolve()?;
        let granted = self.rights.grant(name, &resolved, &config)?;
        let is_granted = granted.is_some() || resolved.grants.iter().any(|grant| grant.to.contains(name));
        warn_of_rights(name, is_granted, &resolved);
        granted.map_or(Ok(()), |grant| file.grant(grant))?;
        let told = file.write()?;
        write!(output::stdout(), "{name} may connect as {nqn}\n{told}")?;
        if has_others {
            writeln!(
                output::stdout(),
                "its earlier keys are good, too: `diskside key rotate --name {name} --finish` takes them away"
            )?;
        }
        Ok(tell_of_restart(name, &config)?)
    }
}
