//! A server's configuration, changed by commands: hosts, their keys and grants. What people wrote beside them stays.

use super::super::configuration;
use super::failure;
use crate::error::Failure;
use crate::output::{self, say};
use crate::output_file::write_file;
use clap::Args;
use diskside::target::config::{ConfigError, Moment, Requirement, ServeConfig, Settings, check_host_name, read_config};
use diskside_keys::{Introduction, KeyFileError, read_secret, read_tls_secret, write_secret, write_tls_secret};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};
use zeroize::Zeroizing;

/// Which configuration, and where its keys are.
#[derive(Args, Clone)]
pub(crate) struct HostsFileArgs {
    /// The server's configuration; it is made if there is none [default: diskside.toml, or else
    /// /etc/diskside/diskside.toml if that is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the keys [default: `keys` beside the configuration]
    #[arg(long, value_name = "DIRECTORY")]
    keys: Option<PathBuf>,
}

/// The configuration, and what is to be written with it.
pub(crate) struct HostsFile {
    at: At,
    document: DocumentMut,
    /// What it demanded of hosts, if it was one that serve takes.
    required: Option<Requirement>,
    new: Vec<NewKey>,
    old: Vec<PathBuf>,
}

/// Where it is, and its keys are.
struct At {
    config: PathBuf,
    keys: Option<PathBuf>,
}

/// A key that is written.
struct NewKey {
    what: &'static str,
    path: PathBuf,
    write: Box<WriteKey>,
}

/// When a key ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Never,
    At(Moment),
}

/// Writes a key to a new file.
type WriteKey = dyn Fn(&Path) -> Result<(), KeyFileError>;

/// Lists of keys that a host has.
const KEY_LISTS: [&str; 2] = ["dhchap_keys", "tls_keys"];
/// No line of a host is as long.
const LINE_LEN_MAX: u64 = 4096;

impl HostsFile {
    /// Reads the configuration, which may not be there yet. What serve would not take is not changed.
    pub(crate) fn open(HostsFileArgs { config, keys }: HostsFileArgs) -> Result<Self, Failure> {
        let at = At { config: config.unwrap_or_else(configuration::usual), keys };
        let text = match read_config(&at.config) {
            Ok(text) => text,
            Err(ConfigError::Read { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(ConfigError::Read { error, .. }) => return Err(at.cannot("read", &error)),
            Err(error) => return Err(Failure::Usage(error.to_string())),
        };
        let settings = Settings::from_toml(&text, &at.origin()).map_err(|e| Failure::Usage(e.to_string()))?;
        let required = ServeConfig::resolve(settings).ok().map(|config| config.security.require);
        let document = text.parse().map_err(|e| at.wrong(format!("{e}")))?;
        Ok(Self { at, document, required, new: Vec::new(), old: Vec::new() })
    }

    /// As a server would run with it.
    pub(crate) fn resolve(&self) -> Result<ServeConfig, Failure> {
        let settings = Settings::from_toml(&self.document.to_string(), &self.at.origin());
        let settings = settings.map_err(|e| Failure::Usage(e.to_string()))?;
        ServeConfig::resolve(settings).map_err(|e| self.at.wrong(e.to_string()))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.at.config
    }

    /// Whether a host of this name is known.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.host(name).is_some()
    }

    /// Whether a host of this name has all the keys of an introduction already. A key that cannot be read is another.
    pub(crate) fn has(&self, name: &str, host: &Introduction) -> bool {
        let Some(table) = self.host(name) else { return false };
        let any = |list: &str, is_it: &dyn Fn(&Path) -> bool| {
            let keys = table.get(list).and_then(Item::as_array).into_iter().flatten();
            keys.filter_map(file_of).any(|file| is_it(&self.at.beside().join(file)))
        };
        let has_key = host.key.as_ref().is_none_or(|key| {
            any("dhchap_keys", &|path| {
                read_secret(path, owner_of(path)).is_ok_and(|known| known.to_text() == key.to_text())
            })
        });
        let has_tls_key = host.tls_key.as_ref().is_none_or(|key| {
            any("tls_keys", &|path| {
                read_tls_secret(path, owner_of(path)).is_ok_and(|known| known.to_text() == key.to_text())
            })
        });
        has_key && has_tls_key && table.get("nqn").and_then(Item::as_str) == Some(host.nqn.as_str())
    }

    /// When the keys of a host ended, if all of them have.
    pub(crate) fn ended(&self, name: &str) -> Option<Moment> {
        last_end(self.host(name)?).ok().flatten().filter(|until| until.is_past())
    }

    fn host(&self, name: &str) -> Option<&Table> {
        let hosts = self.document.get("host").and_then(Item::as_array_of_tables);
        hosts.into_iter().flatten().find(|host| name_of(host) == Some(name))
    }

    /// That nobody is.
    pub(crate) fn unknown(&self, name: &str) -> Failure {
        self.at.unknown(name)
    }

    /// Lets a host in until then. One that is known by this name gets another key, and the ones before it end then, if that is
    /// said. Whether it has earlier ones that do the same.
    pub(crate) fn allow(
        &mut self,
        name: &str,
        host: Introduction,
        until: Option<Until>,
        old_until: Option<Moment>,
    ) -> Result<bool, Failure> {
        let at = &self.at;
        let tables = self.document.entry("host").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let tables = tables.as_array_of_tables_mut().ok_or_else(|| at.wrong("`host` is no [[host]]".into()))?;
        let known = tables.iter().position(|table| name_of(table) == Some(name));
        let table = match known {
            Some(index) => tables.get_mut(index).expect("it was just found"),
            None => {
                let mut table = Table::new();
                table.insert("name", value(name));
                table.insert("nqn", value(host.nqn.as_str()));
                tables.push(table);
                tables.iter_mut().last().expect("it was just added")
            }
        };
        if let Some(nqn) = table.get("nqn").and_then(Item::as_str).filter(|nqn| *nqn != host.nqn.as_str()) {
            let what = format!("`{name}` is {nqn} already; choose another name for {}", host.nqn);
            return Err(Failure::Usage(what));
        }
        let until = match until {
            Some(Until::Never) => None,
            Some(Until::At(moment)) => Some(moment),
            // A host that is let in until a day is let in until that day with another key, too.
            None => last_end(table).map_err(|what| at.wrong(what))?,
        };
        if let Some(over) = until.filter(|until| until.is_past()) {
            let what = format!(
                "the keys of `{name}` ended at {over}: say until when the new one is good (--until 30d, or never)"
            );
            return Err(Failure::Usage(what));
        }
        if let Some(until) = old_until {
            KEY_LISTS.iter().try_for_each(|list| end(table, list, until)).map_err(|what| at.wrong(what))?;
        }
        let directory = at.directory();
        let mut added = Vec::new();
        if let Some(key) = host.key {
            added.push("dhchap_keys");
            let stem = at.add_key(table, "dhchap_keys", name, until)?;
            let write = Box::new(move |path: &Path| write_secret(path, &key));
            self.new.push(NewKey { what: "key", path: directory.join(&stem), write });
            if let Some(key) = host.server_key {
                let stem = format!("{stem}.server");
                table.insert("dhchap_controller_key", value(format!("file:{}", at.shown(&stem))));
                let write = Box::new(move |path: &Path| write_secret(path, &key));
                self.new.push(NewKey { what: "server's key", path: directory.join(stem), write });
            }
        }
        if let Some(key) = host.tls_key {
            added.push("tls_keys");
            // The server would not start with it.
            diskside_tls::is_available().map_err(|error| {
                Failure::Environment(format!(
                    "{error}; a key without TLS does without (diskside invite --no-tls; on the host, diskside key new)"
                ))
            })?;
            let stem = at.add_key(table, "tls_keys", &format!("{name}.tls"), until)?;
            let write = Box::new(move |path: &Path| write_tls_secret(path, &key));
            self.new.push(NewKey { what: "key of TLS", path: directory.join(stem), write });
        }
        let keys = |list: &str| table.get(list).and_then(Item::as_array).map_or(0, Array::len);
        Ok(added.into_iter().any(|list| keys(list) > 1))
    }

    /// Takes all keys of a host away but the newest of each kind. How many there were.
    pub(crate) fn keep_newest(&mut self, name: &str) -> Result<usize, Failure> {
        let at = &self.at;
        let table = host_named(&mut self.document, name).ok_or_else(|| at.unknown(name))?;
        let mut taken = 0;
        for list in KEY_LISTS {
            let Some(keys) = table.get_mut(list).and_then(Item::as_array_mut) else { continue };
            while keys.len() > 1 {
                let key = keys.remove(0);
                taken += 1;
                // Those in the directory of keys were made by these commands.
                let file = file_of(&key).map(|file| at.beside().join(file));
                self.old.extend(file.filter(|file| file.parent() == Some(&*at.directory())));
            }
            if let Some(newest) = keys.get_mut(0).filter(|_| taken > 0) {
                newest.decor_mut().set_prefix("");
            }
        }
        Ok(taken)
    }

    /// Adds a `[[grant]]`.
    pub(crate) fn grant(&mut self, grant: Table) -> Result<(), Failure> {
        let tables = self.document.entry("grant").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let tables = tables.as_array_of_tables_mut();
        tables.ok_or_else(|| self.at.wrong("`grant` is no [[grant]]".into()))?.push(grant);
        Ok(())
    }

    /// Writes keys and configuration, if it is one that serve takes; or nothing. What was written, for people.
    pub(crate) fn write(self) -> Result<String, Failure> {
        let required = self.resolve()?.security.require;
        if self.required == Some(Requirement::Tls) && required == Requirement::Auth {
            return Err(self.at.wrong(
                "all hosts have keys of TLS, so the server takes nobody in the clear; with a host that has none it would. Have the \
                 host run `diskside key new --tls`; or, if that is meant, write require = \"auth\" under [security]"
                    .into(),
            ));
        }
        let mut made: Vec<&Path> = Vec::new();
        let done = self.new.iter().try_for_each(|key| {
            (key.write)(&key.path).map_err(failure)?;
            made.push(&key.path);
            Ok(())
        });
        if let Err(error) = done.and_then(|()| write_file(&self.at.config, self.document.to_string().as_bytes())) {
            // Files that nothing names would be in the way the next time.
            made.iter().for_each(|path| drop(std::fs::remove_file(path)));
            return Err(error);
        }
        let mut told = String::new();
        for NewKey { what, path, .. } in &self.new {
            told += &format!("  {what:<15}{}\n", path.display());
        }
        for path in &self.old {
            match std::fs::remove_file(path) {
                Ok(()) => told += &format!("  {:<15}{}\n", "removed", path.display()),
                Err(error) => say(format_args!("{} stays, and nothing uses it any more: {error}", path.display())),
            }
        }
        told += &format!("  {:<15}{}\n", "configuration", self.at.config.display());
        Ok(told)
    }
}

impl At {
    /// Adds a key to a list of a host's: the name of its file. It works beside the others until they are taken away.
    fn add_key(&self, table: &mut Table, list: &str, stem: &str, until: Option<Moment>) -> Result<String, Failure> {
        let keys = table.entry(list).or_insert_with(|| value(Array::new()));
        let keys = keys.as_array_mut().ok_or_else(|| self.wrong(format!("`{list}` is no list")))?;
        // A file may be left of a host that was taken out.
        let directory = self.directory();
        let is_free = |stem: &String| {
            !keys.iter().any(|key| file_of(key) == Some(&self.shown(stem)))
                && directory.join(stem).symlink_metadata().is_err()
        };
        let mut stems = std::iter::once(stem.to_owned()).chain((2..).map(|number| format!("{stem}.{number}")));
        let stem = stems.find(is_free).expect("there are as many names as numbers");
        match until {
            None => keys.push(format!("file:{}", self.shown(&stem))),
            Some(until) => keys.push(ending(self.shown(&stem), until)),
        }
        Ok(stem)
    }

    fn beside(&self) -> &Path {
        self.config.parent().unwrap_or(Path::new(""))
    }

    fn directory(&self) -> PathBuf {
        self.keys.clone().unwrap_or_else(|| self.beside().join("keys"))
    }

    /// A key's file as the configuration names it: beside itself, if it can.
    fn shown(&self, stem: &str) -> String {
        match &self.keys {
            None => format!("keys/{stem}"),
            Some(keys) => {
                let path = keys.join(stem);
                std::path::absolute(&path).unwrap_or(path).display().to_string()
            }
        }
    }

    fn origin(&self) -> String {
        self.config.display().to_string()
    }

    fn unknown(&self, name: &str) -> Failure {
        self.wrong(format!("no host is called `{name}`; `diskside key allow` and `diskside invite` let one in"))
    }

    fn wrong(&self, what: String) -> Failure {
        Failure::Usage(format!("{}: {what}", self.config.display()))
    }

    fn cannot(&self, what: &str, error: &std::io::Error) -> Failure {
        Failure::Environment(format!("cannot {what} {}: {error}", self.config.display()))
    }
}

/// Gives all keys of a list an end, but those that end before.
fn end(table: &mut Table, list: &str, until: Moment) -> Result<(), String> {
    let Some(keys) = table.get_mut(list).and_then(Item::as_array_mut) else { return Ok(()) };
    for key in keys.iter_mut() {
        let ends = key.as_inline_table().and_then(|table| table.get("until")).and_then(Value::as_str);
        if ends.map(str::parse::<Moment>).transpose()?.is_some_and(|ends| ends <= until) {
            continue;
        }
        let file = file_of(key).ok_or_else(|| format!("`{list}` has a key that is no file"))?;
        let decor = key.decor().clone();
        *key = Value::InlineTable(ending(file.to_owned(), until));
        *key.decor_mut() = decor;
    }
    Ok(())
}

/// A key in this file, until then.
fn ending(file: String, until: Moment) -> InlineTable {
    [("file", file), ("until", until.to_string())].into_iter().collect()
}

/// When the last key of a host ends; `None`: it has a key without an end, or none.
fn last_end(table: &Table) -> Result<Option<Moment>, String> {
    let mut last = None;
    for key in KEY_LISTS.iter().filter_map(|list| table.get(list)?.as_array()).flatten() {
        let until = key.as_inline_table().and_then(|table| table.get("until")).and_then(Value::as_str);
        match until.map(str::parse::<Moment>).transpose()? {
            Some(until) => last = last.max(Some(until)),
            None => return Ok(None),
        }
    }
    Ok(last)
}

/// The user that a file is of: a service's keys are compared by root, too.
fn owner_of(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|metadata| metadata.uid())
}

/// The file of a key, as it is written.
fn file_of(key: &Value) -> Option<&str> {
    match key {
        Value::InlineTable(table) => table.get("file")?.as_str(),
        key => key.as_str()?.strip_prefix("file:"),
    }
}

fn host_named<'a>(document: &'a mut DocumentMut, name: &str) -> Option<&'a mut Table> {
    let tables = document.get_mut("host").and_then(Item::as_array_of_tables_mut)?;
    tables.iter_mut().find(|table| name_of(table) == Some(name))
}

fn name_of(table: &Table) -> Option<&str> {
    table.get("name").and_then(Item::as_str)
}

/// The line of a host from standard input: an argument could be seen by everybody on the machine.
pub(super) fn read_line() -> Result<Introduction, Failure> {
    if std::io::stdin().is_terminal() {
        say("paste the line that diskside printed on the host, and press Enter:");
    }
    Introduction::parse(&read_secret_line(LINE_LEN_MAX)?).map_err(Failure::Usage)
}

/// A line of standard input, which is wiped.
pub(crate) fn read_secret_line(len_max: u64) -> Result<Zeroizing<String>, Failure> {
    let mut line = Zeroizing::new(String::with_capacity(len_max as usize));
    let mut input = std::io::Read::take(std::io::stdin().lock(), len_max);
    let read = input.read_line(&mut line);
    read.map_err(|error| Failure::Environment(format!("standard input: {error}")))?;
    Ok(line)
}

/// What is to be done at the server then.
pub(crate) fn tell_of_restart(name: &str, config: &Path) -> std::io::Result<()> {
    let mut out = output::stdout();
    writeln!(out, "start the server with it: diskside serve --config {} ...", config.display())?;
    writeln!(out, "one that runs with it lets {name} in after `kill -HUP` of its process")
}

pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    check_host_name(text).map(|()| text.to_owned())
}
