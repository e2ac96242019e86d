//! `diskside key`: keys of hosts, made here and allowed at servers.

mod allow;
mod explain;
pub(crate) mod hosts_file;
pub(crate) mod rights;
mod rotate;

use super::volume::parse_nqn;
use crate::error::Failure;
use crate::output::{self, say};
use clap::{Args, Subcommand};
use diskside::host::{PORT_DEFAULT, Url};
use diskside_keys::{HostKey, KeyFileError, KeySource, Kind, default_path, server_path};
pub(crate) use rotate::parse_until;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

/// Arguments of `key`.
#[derive(Args)]
#[command(after_help = "\
A host proves with its key who it is. On the host:
  diskside key new --tls
(or, for servers that do not speak TLS, without --tls) prints one line, which is as secret as the key. Give it to the server's operator, who runs
  diskside key allow --name ann --config diskside.toml
pastes it, and serves with that file:
  diskside serve --config diskside.toml ...
The other way round, `diskside invite` makes the key at the server, and `diskside join` takes it on the host.")]
pub(crate) struct Key {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make this host's name and key, and print the line for the server's operator.
    New(New),
    /// Print the line for the server's operator again.
    Show(Show),
    /// At a server: let a host in, whose line is read from standard input.
    Allow(allow::Allow),
    /// Change the key for another one, while both are let in.
    Rotate(rotate::Rotate),
    /// Print how a Linux host connects with this key, by nvme-cli.
    Explain(explain::Explain),
}

#[derive(Args)]
struct New {
    /// Servers must prove who they are, too
    #[arg(long, conflicts_with = "tls")]
    mutual: bool,
    /// A key of TLS: both prove who they are, and nobody else can read or change what they say
    #[arg(long)]
    tls: bool,
    /// A key of TLS and one of DH-HMAC-CHAP, for servers that demand both (require = "tls+auth")
    #[arg(long, conflicts_with_all = ["mutual", "tls"])]
    both: bool,
    /// The host's name [default: a new one]
    #[arg(long, value_name = "NQN", value_parser = parse_nqn)]
    nqn: Option<diskside::host::Nqn>,
    #[command(flatten)]
    file: KeyFile,
}

#[derive(Args)]
struct Show {
    #[command(flatten)]
    file: KeyFile,
}

/// Where the key is.
#[derive(Args)]
struct KeyFile {
    /// The file of the key [default: what DISKSIDE_KEY names, or ~/.config/diskside/key]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The key for this server, which `diskside join` keeps
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_server, conflicts_with = "file")]
    server: Option<String>,
}

impl Key {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        match self.command {
            Command::New(c) => c.execute(),
            Command::Show(c) => c.execute(),
            Command::Allow(c) => c.execute(),
            Command::Rotate(c) => c.execute(),
            Command::Explain(c) => c.execute(),
        }
    }
}

impl New {
    fn execute(self) -> Result<(), Failure> {
        let path = self.file.path()?;
        let kind = match (self.both, self.tls, self.mutual) {
            (true, ..) => Kind::Both,
            (false, true, _) => Kind::Tls,
            (false, false, true) => Kind::Mutual,
            (false, false, false) => Kind::Host,
        };
        let key = HostKey::new(self.nqn, kind);
        key.write(&path).map_err(failure)?;
        say(format_args!("made {}, with which this host is {}", path.display(), key.nqn));
        introduce(&key)
    }
}

impl Show {
    fn execute(self) -> Result<(), Failure> {
        introduce(&self.file.read()?)
    }
}

impl KeyFile {
    /// Where the file is, or is to be.
    fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(server) = &self.server {
            return kept_for(server);
        }
        let named = std::env::var_os(diskside_keys::KEY_VARIABLE).filter(|text| !text.is_empty() && text != "none");
        let path = self.file.clone().or_else(|| named.map(PathBuf::from)).or_else(default_path);
        path.ok_or_else(|| Failure::Usage("neither HOME nor XDG_CONFIG_HOME says where: name a file (--file)".into()))
    }

    /// Where no file is named, that of the key which is kept for this server, if there is one.
    fn or_for(mut self, server: &str) -> Self {
        if self.file.is_none()
            && self.server.is_none()
            && let KeySource::File(path) = KeySource::Usual.for_server(server)
        {
            self.file = Some(path);
        }
        self
    }

    fn read(&self) -> Result<HostKey, Failure> {
        let file = match &self.server {
            Some(server) => Some(kept_for(server)?),
            None => self.file.clone(),
        };
        let source = file.map_or(KeySource::Usual, KeySource::File);
        let found = source.read().map_err(failure)?;
        let none = || Failure::Environment("this host has no key; `diskside key new` makes one".into());
        found.map(|(key, _)| key).ok_or_else(none)
    }
}

/// The file of the key for a server, `HOST:PORT`.
pub(crate) fn kept_for(server: &str) -> Result<PathBuf, Failure> {
    let nowhere = || Failure::Usage("neither HOME nor XDG_CONFIG_HOME says where: name a file (--file)".into());
    server_path(server).ok_or_else(nowhere)
}

/// A server as URLs name it, with its port.
pub(crate) fn parse_server(text: &str) -> Result<String, String> {
    if text.contains('/') {
        return Err("a name or an address, and a port: HOST[:PORT]".into());
    }
    let url: Url = format!("nvme-tcp://{text}").parse().map_err(|e: diskside::host::UrlError| e.to_string())?;
    Ok(url.server(PORT_DEFAULT))
}

/// Prints the line, and what it is for where somebody looks.
fn introduce(key: &HostKey) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        say("this line is for the server's operator, and as secret as the key: for `diskside key allow --name NAME`");
    }
    writeln!(output::stdout(), "{}", *key.introduction().to_line())?;
    Ok(())
}

pub(crate) fn failure(error: KeyFileError) -> Failure {
    Failure::Environment(error.to_string())
}
