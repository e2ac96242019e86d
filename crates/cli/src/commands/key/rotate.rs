//! `diskside key rotate`: another key beside the old one, at the host and at its server, and the end of the old one.

use super::hosts_file::{HostsFile, HostsFileArgs, Until, parse_name, read_line};
use super::{KeyFile, failure, introduce};
use crate::error::Failure;
use crate::output::{self, say};
use clap::Args;
use diskside::host::{ConnectOptions, KeySource, Url, discover};
use diskside::target::config::Moment;
use diskside_keys::{HostKey, KeyFileError, Trouble};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "\
A key is changed without a moment in which the host is not let in. On the host:
  diskside key rotate
makes the new key beside the old one, which stays valid, and prints a line as secret as the key. At the server, where the host is \
called ann:
  diskside key rotate --name ann --old-until 7d      (paste the line)
  kill -HUP PID                                      (of the server; nobody is disconnected)
takes both. Then on the host:
  diskside key rotate --finish
uses the new key. The old one ends by itself, or at once at the server:
  diskside key rotate --name ann --finish
  kill -HUP PID")]
pub(super) struct Rotate {
    /// At a server: how the host is called there, whose line is read from standard input
    #[arg(long, value_parser = parse_name, conflicts_with_all = ["file", "server"])]
    name: Option<String>,
    /// At a server: when its old keys end, a day, a moment, or a time from now (2026-12-01, 2026-12-01T18:30:00Z, 7d, 12h)
    /// [default: when --finish takes them away]
    #[arg(long, value_name = "WHEN", value_parser = parse_when, requires = "name", conflicts_with = "finish")]
    old_until: Option<Moment>,
    /// At a server: when the new key ends, or never [default: when the last of the old ones was to end]
    #[arg(long, value_name = "WHEN", value_parser = parse_until, requires = "name", conflicts_with = "finish")]
    until: Option<Until>,
    /// Use the new key from now on; at a server: take the old keys away
    #[arg(long)]
    finish: bool,
    /// With --finish and --server: use the new key although the server does not take it, or cannot be reached
    #[arg(long, requires = "finish", conflicts_with = "name")]
    force: bool,
    #[command(flatten)]
    hosts: HostsFileArgs,
    #[command(flatten)]
    file: KeyFile,
}

impl Rotate {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match (&self.name, self.finish) {
            (Some(_), false) => self.add_at_server(),
            (Some(_), true) => self.finish_at_server(),
            (None, false) => self.begin(),
            (None, true) => self.finish(),
        }
    }

    fn begin(&self) -> Result<(), Failure> {
        let path = self.file.path()?;
        let next = path.with_added_extension("next");
        let none = |error: KeyFileError| match &error.trouble {
            Trouble::Io(source) if source.kind() == std::io::ErrorKind::NotFound => Failure::Environment(format!(
                "{}: there is no key to change; `diskside key new` makes one, and --server names the server of one that \
                 `diskside join` keeps",
                error.path.display()
            )),
            _ => failure(error),
        };
        let key = HostKey::read(&path).map_err(none)?.renewed();
        key.write(&next).map_err(|error| match error {
            KeyFileError { trouble: Trouble::Exists, path } => Failure::Environment(format!(
                "{}: a new key is there already. `diskside key show --file {0}` prints its line, `diskside key rotate --finish` \
                 uses it",
                path.display()
            )),
            error => failure(error),
        })?;
        say(format_args!("made {}; the old key is used until `diskside key rotate --finish`", next.display()));
        introduce(&key)
    }

    fn finish(&self) -> Result<(), Failure> {
        let path = self.file.path()?;
        let next = path.with_added_extension("next");
        let none = |error: KeyFileError| match &error.trouble {
            Trouble::Io(source) if source.kind() == std::io::ErrorKind::NotFound => Failure::Environment(format!(
                "{}: there is no new key; `diskside key rotate` makes one",
                error.path.display()
            )),
            _ => failure(error),
        };
        // One that cannot be read does not take the place of one that can.
        let key = HostKey::read(&next).map_err(none)?;
        if let Some(server) = self.file.server.as_ref().filter(|_| !self.force) {
            try_at(server, &next)?;
        }
        let old = path.with_added_extension("old");
        let is_tried = self.file.server.is_some() && !self.force;
        if !is_tried {
            std::fs::copy(&path, &old)
                .map_err(|error| failure(KeyFileError { path: old.clone(), trouble: error.into() }))?;
        }
        key.replace(&path).map_err(failure)?;
        std::fs::remove_file(&next).map_err(|error| failure(KeyFileError { path: next, trouble: error.into() }))?;
        writeln!(output::stdout(), "the new key is used from now on")?;
        if !is_tried {
            say(format_args!("the old one is in {}: remove it once servers take the new one", old.display()));
        }
        Ok(())
    }

    fn add_at_server(self) -> Result<(), Failure> {
        let name = self.name.expect("it was asked");
        let host = read_line()?;
        let mut file = HostsFile::open(self.hosts)?;
        if !file.knows(&name) {
            return Err(file.unknown(&name));
        }
        if file.has(&name, &host) {
            let what = format!("{name} has this key already; `diskside key rotate` on the host makes a new one");
            return Err(Failure::Usage(what));
        }
        let has_others = file.allow(&name, host, self.until, self.old_until)?;
        let told = file.write()?;
        let mut out = output::stdout();
        let until = match (has_others, self.old_until) {
            (false, _) => "may use this key".to_owned(),
            (true, None) => "may use either key, the old one until --finish".to_owned(),
            (true, Some(until)) => format!("may use either key, the old one until {until} at the latest"),
        };
        write!(out, "{name} {until}\n{told}")?;
        Ok(writeln!(out, "a server that runs takes both after `kill -HUP` of its process")?)
    }

    fn finish_at_server(self) -> Result<(), Failure> {
        let name = self.name.expect("it was asked");
        let mut file = HostsFile::open(self.hosts)?;
        if file.keep_newest(&name)? == 0 {
            let what = format!("{}: `{name}` has one key, and keeps it", file.path().display());
            return Err(Failure::Usage(what));
        }
        let told = file.write()?;
        let mut out = output::stdout();
        write!(out, "{name} may use its newest key alone\n{told}")?;
        Ok(writeln!(out, "a server that runs refuses the old ones after `kill -HUP` of its process")?)
    }
}

/// Connects with a new key: a host with a key that the server does not know is locked out.
fn try_at(server: &str, key: &Path) -> Result<(), Failure> {
    let options = ConnectOptions {
        key: KeySource::File(key.to_owned()),
        loss_timeout: Duration::ZERO,
        ..ConnectOptions::default()
    };
    let url: Url = format!("nvme-tcp://{server}").parse().map_err(|e| Failure::Usage(format!("{server}: {e}")))?;
    discover(&url, &options).map(drop).map_err(|error| {
        Failure::Environment(format!(
            "{server} does not let in who has the new key, and the old one stays: {error}. `diskside key show --file {}` prints its \
             line for `diskside key rotate --name` there; --force uses it without the server",
            key.display()
        ))
    })
}

/// A moment, a time from now, or never.
pub(crate) fn parse_until(text: &str) -> Result<Until, String> {
    if text == "never" { Ok(Until::Never) } else { parse_when(text).map(Until::At) }
}

/// A moment, or a time from now.
fn parse_when(text: &str) -> Result<Moment, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "min" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let from_now = seconds.zip(number.parse::<u32>().ok());
    let moment = match from_now {
        Some((seconds, number)) => Moment::after(Duration::from_secs(seconds * u64::from(number))),
        None => text.parse().map_err(|what| format!("{what}, or 7d, 12h or 30min from now"))?,
    };
    if moment.is_past() { Err(format!("{moment} is over")) } else { Ok(moment) }
}
