//! `diskside invite`: a host that a server makes up, with its key and rights, as a text for the person who is to be it.

use super::key::hosts_file::{HostsFile, HostsFileArgs, Until, parse_name};
use super::key::rights::{RightsArgs, warn_of_rights};
use super::key::{failure, parse_server, parse_until};
use super::volume::parse_nqn;
use crate::error::Failure;
use crate::output::{self, say};
use clap::Args;
use diskside::host::Nqn;
use diskside::target::config::ServeConfig;
use diskside_keys::{HostKey, Invitation, Kind};
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

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
    #[command(flatten)]
    rights: RightsArgs,
    /// When its key ends: a day, a moment, or a time from now (2026-12-01, 7d, 12h), or never
    #[arg(long, value_name = "WHEN", value_parser = parse_until, default_value = "never")]
    until: Until,
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
        file.allow(&self.name, key.introduction(), Some(self.until), None)?;
        let config = file.resolve()?;
        let server = self.at.clone().map_or_else(|| reached(&config), Ok)?;
        let subsystem = self.nqn.clone().map_or_else(|| parse_nqn(&config.nqn), Ok).map_err(Failure::Usage)?;
        if let Some(path) = self.out.as_ref().filter(|path| path.symlink_metadata().is_ok()) {
            return Err(Failure::Usage(format!("{}: it exists; name a new file", path.display())));
        }
        let invitation = Invitation { server, subsystem, host: key.introduction() };
        let granted = self.rights.grant(&self.name, &config, file.path())?;
        warn_of_rights(&self.name, granted.is_some(), &config);
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
        let until = match self.until {
            Until::Never => String::new(),
            Until::At(until) => format!(" until {until}"),
        };
        say(format_args!("{} may connect as {}{until}\n{}", self.name, key.nqn, told.trim_end()));
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

/// An address of the configuration that others can reach.
fn reached(config: &ServeConfig) -> Result<String, Failure> {
    let addresses = config.advertise.iter().chain(config.listen.iter().map(|listen| &listen.address));
    let mut reached = addresses.filter(|at| !at.ip().is_unspecified() && !at.ip().is_loopback() && at.port() != 0);
    let found = reached.next().map(ToString::to_string);
    found.ok_or_else(|| {
        Failure::Usage("the configuration does not say where hosts find this server: --at HOST[:PORT]".into())
    })
}
