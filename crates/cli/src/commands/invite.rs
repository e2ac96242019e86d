//! `diskside invite`: a host that a server makes up, with its key and rights, as a text for the person who is to be it.

use super::key::hosts_file::{HostsFile, HostsFileArgs, parse_name};
use super::key::{failure, parse_server, parse_when};
use super::volume::parse_nqn;
use crate::error::Failure;
use crate::output::{self, say};
use clap::Args;
use diskside::host::Nqn;
use diskside::target::config::{FunctionRule, Moment, ServeConfig};
use diskside_keys::{HostKey, Invitation, Kind};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use toml_edit::{Array, InlineTable, Table, value};

/// Arguments of `invite`.
#[derive(Args)]
#[command(after_help = "\
Examples, at the server:
  diskside invite --name ann --at server.example --read logs --write out --config diskside.toml
  diskside invite --name bob --at server.example --read '*' --function any --out bob.invitation
The text is as secret as a password: anyone who has it can be this host. It goes to one person, who runs
  diskside join
on their machine and pastes it. `diskside key rotate` then makes a key that was in no text.")]
pub(crate) struct Invite {
    /// How the host is called at this server
    #[arg(long, value_parser = parse_name)]
    name: String,
    /// Where the host finds this server [default: an address of the configuration that others reach]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_server)]
    at: Option<String>,
    /// An export or a volume that the host may read; '*' for all. Without any grant it may use all that others may
    #[arg(long, value_name = "NAME")]
    read: Vec<String>,
    /// An export or a volume that the host may read and write
    #[arg(long, value_name = "NAME")]
    write: Vec<String>,
    /// Functions that the host may run at the server: shipped:*, shipped:NAME, sha256:HEX, signed:HEX or any [default:
    /// shipped:*, with --read or --write]
    #[arg(long = "function", value_name = "RULE")]
    functions: Vec<FunctionRule>,
    /// With --read or --write, the host may run no function at the server
    #[arg(long, conflicts_with = "functions")]
    no_functions: bool,
    /// When its key ends: a day, a moment, or a time from now (2026-12-01, 7d, 12h) [default: never]
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    until: Option<Moment>,
    /// A key of DH-HMAC-CHAP, for servers and hosts without OpenSSL: both prove who they are, and nothing is encrypted
    #[arg(long)]
    no_tls: bool,
    /// The server's subsystem, where `diskside serve` gets it by --nqn [default: that of the configuration]
    #[arg(long, value_name = "NQN", value_parser = parse_nqn)]
    nqn: Option<Nqn>,
    /// Write the text to a new file, which nobody else can read [default: print it]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    hosts: HostsFileArgs,
}

impl Invite {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let mut file = HostsFile::open(self.hosts.clone())?;
        if file.knows(&self.name) {
            let what = format!("{}: `{}` is known already; choose another name", file.path().display(), self.name);
            return Err(Failure::Usage(what));
        }
        let key = HostKey::new(None, if self.no_tls { Kind::Mutual } else { Kind::Tls });
        // With it first: without a host, a server that others reach has no valid configuration.
        file.allow(&self.name, key.introduction(), None)?;
        let config = file.resolve()?;
        let server = self.at.clone().map_or_else(|| reached(&config), Ok)?;
        let subsystem = self.nqn.clone().map_or_else(|| parse_nqn(&config.nqn), Ok).map_err(Failure::Usage)?;
        if let Some(path) = self.out.as_ref().filter(|path| path.symlink_metadata().is_ok()) {
            return Err(Failure::Usage(format!("{}: it exists; name a new file", path.display())));
        }
        let invitation = Invitation { server, subsystem, host: key.introduction() };
        if let Some(until) = self.until {
            file.end_keys(&self.name, until)?;
        }
        let granted = grant(&self, &config, file.path())?;
        warn_of_rights(&self, granted.is_some(), &config);
        granted.map_or(Ok(()), |grant| file.grant(grant))?;
        if let [_] = &config.known_hosts[..] {
            say(
                "it is the first host of the configuration: from now on everybody else is refused, commands on this machine among \
                 them (`diskside key allow --name here` lets those in)",
            );
        }
        let path = file.path().to_owned();
        // First: a configuration that cannot be written leaves no invitation.
        let told = file.write()?;
        say(format_args!("{} may connect as {}\n{}", self.name, key.nqn, told.trim_end()));
        say(format_args!("a server that runs with {} lets it in after `kill -HUP` of its process", path.display()));
        if let Some(path) = &self.out {
            invitation.write(path).map_err(failure)?;
            say(format_args!(
                "{} is for one person, and as secret as a password: `diskside join --from FILE`",
                path.display()
            ));
            return Ok(());
        }
        if std::io::stdout().is_terminal() {
            say("this line is for one person, and as secret as a password: `diskside join` asks for it");
        }
        Ok(writeln!(output::stdout(), "{}", *invitation.to_text())?)
    }
}

/// The grant; `None` where nothing is said.
fn grant(invite: &Invite, config: &ServeConfig, path: &Path) -> Result<Option<Table>, Failure> {
    if invite.read.is_empty() && invite.write.is_empty() && invite.functions.is_empty() {
        return Ok(None);
    }
    let (mut volumes, mut exports) = (InlineTable::new(), InlineTable::new());
    let granted = [(&invite.read, "r"), (&invite.write, "rw")];
    for (name, mode) in granted.into_iter().flat_map(|(names, mode)| names.iter().map(move |name| (name, mode))) {
        let is_volume = name == "*" || config.volumes.iter().any(|volume| volume.name == *name);
        let is_export = name == "*" || config.exports.iter().any(|export| export.name == *name);
        if !is_volume && !is_export {
            let what = format!("`{name}`: {} has no [[export]] and no [[volume]] of this name", path.display());
            return Err(Failure::Usage(what));
        }
        let tables = [(is_volume, &mut volumes), (is_export, &mut exports)];
        tables.into_iter().filter(|(is, _)| *is).for_each(|(_, table)| drop(table.insert(name, mode.into())));
    }
    let mut grant = Table::new();
    grant.insert("to", value(Array::from_iter([&*invite.name])));
    for (what, table) in [("volumes", volumes), ("exports", exports)] {
        if !table.is_empty() {
            grant.insert(what, value(table));
        }
    }
    let shipped = [FunctionRule::Shipped];
    // A host that may read something may let the server look at it: that is the purpose of a server.
    let functions = if invite.functions.is_empty() { &shipped[..] } else { &invite.functions };
    if !invite.no_functions {
        grant.insert("functions", value(Array::from_iter(functions.iter().map(ToString::to_string))));
    }
    Ok(Some(grant))
}

/// Who would be surprised by a grant, or by none.
fn warn_of_rights(invite: &Invite, is_granted: bool, config: &ServeConfig) {
    let others = config.known_hosts.iter().map(|host| &*host.name).filter(|name| *name != invite.name);
    let others: Vec<&str> = others.collect();
    if is_granted && config.grants.is_empty() && !others.is_empty() {
        let others = others.join(", ");
        say(format_args!(
            "this is the first [[grant]] of the configuration: from now on hosts may use what they are granted alone, and nothing \
             is granted to {others}"
        ));
    } else if !is_granted && !config.grants.is_empty() {
        say(format_args!(
            "the configuration has grants, and none for {}: it may use what is granted to all hosts (--read, --write and \
             --function grant more)",
            invite.name
        ));
    }
}

/// An address of the configuration that others can reach.
fn reached(config: &ServeConfig) -> Result<String, Failure> {
    let addresses = config.advertise.iter().chain(&config.listen);
    let mut reached = addresses.filter(|at| !at.ip().is_unspecified() && !at.ip().is_loopback() && at.port() != 0);
    let found = reached.next().map(ToString::to_string);
    found.ok_or_else(|| {
        Failure::Usage("the configuration does not say where hosts find this server: --at HOST[:PORT]".into())
    })
}
