//! `diskside key allow`: a host's key into a file beside the server's configuration, and the host into that.

use super::failure;
use crate::error::Failure;
use crate::output::{self, say};
use clap::Args;
use diskside::target::config::{ServeConfig, Settings, check_host_name};
use diskside_keys::{Introduction, KeyFileError, write_secret, write_tls_secret};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};
use zeroize::Zeroizing;

#[derive(Args)]
pub(super) struct Allow {
    /// How the host is called at this server
    #[arg(long, value_parser = parse_name)]
    name: String,
    /// The server's configuration; it is made if there is none
    #[arg(long, value_name = "FILE", default_value = "diskside.toml")]
    config: PathBuf,
    /// Directory of the keys [default: `keys` beside the configuration]
    #[arg(long, value_name = "DIRECTORY")]
    keys: Option<PathBuf>,
}

/// What is written, where, and how.
type Written = (&'static str, PathBuf, Box<dyn Fn(&Path) -> Result<(), KeyFileError>>);

/// No line of a host is as long.
const LINE_LEN_MAX: u64 = 4096;

impl Allow {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let host = read_line()?;
        let text = match std::fs::read_to_string(&self.config) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(self.cannot("read", &error)),
        };
        let wrong = |what: String| Failure::Usage(format!("{}: {what}", self.config.display()));
        let origin = self.config.display().to_string();
        // What serve would not take is not added to.
        Settings::from_toml(text.as_deref().unwrap_or(""), &origin).map_err(|e| Failure::Usage(e.to_string()))?;
        let mut document: DocumentMut = text.as_deref().unwrap_or("").parse().map_err(|e| wrong(format!("{e}")))?;
        let tables = document.entry("host").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let tables = tables.as_array_of_tables_mut().ok_or_else(|| wrong("`host` is no [[host]]".into()))?;

        let known = tables.iter().position(|table| table.get("name").and_then(Item::as_str) == Some(&self.name));
        let table = match known {
            Some(index) => tables.get_mut(index).expect("it was just found"),
            None => {
                let mut table = Table::new();
                table.insert("name", value(&self.name));
                table.insert("nqn", value(host.nqn.as_str()));
                tables.push(table);
                tables.iter_mut().last().expect("it was just added")
            }
        };
        if let Some(nqn) = table.get("nqn").and_then(Item::as_str).filter(|nqn| *nqn != host.nqn.as_str()) {
            let what = format!("`{}` is {nqn} already; choose another name for {}", self.name, host.nqn);
            return Err(Failure::Usage(what));
        }
        let directory = self.directory();
        let mut written: Vec<Written> = Vec::new();
        if let Some(key) = host.key {
            let stem = self.name_key(table, "dhchap_keys", self.name.clone()).map_err(wrong)?;
            written.push(("key", directory.join(&stem), Box::new(move |path| write_secret(path, &key))));
            if let Some(key) = host.server_key {
                let stem = format!("{stem}.server");
                table.insert("dhchap_controller_key", value(format!("file:{}", self.shown(&stem))));
                written.push(("server's key", directory.join(stem), Box::new(move |path| write_secret(path, &key))));
            }
        }
        if let Some(key) = host.tls_key {
            let stem = self.name_key(table, "tls_keys", format!("{}.tls", self.name)).map_err(wrong)?;
            written.push(("key of TLS", directory.join(&stem), Box::new(move |path| write_tls_secret(path, &key))));
        }
        let text = document.to_string();
        let settings = Settings::from_toml(&text, &origin).map_err(|e| Failure::Usage(e.to_string()))?;
        ServeConfig::resolve(settings).map_err(|e| wrong(e.to_string()))?;

        let mut made: Vec<&Path> = Vec::new();
        let done = written.iter().try_for_each(|(_, path, write)| {
            write(path).map_err(failure)?;
            made.push(path);
            Ok(())
        });
        if let Err(error) = done.and_then(|()| self.replace(&text)) {
            // Files that nothing names would be in the way the next time.
            made.iter().for_each(|path| drop(std::fs::remove_file(path)));
            return Err(error);
        }
        let mut out = output::stdout();
        writeln!(out, "{} may connect as {}", self.name, host.nqn)?;
        for (what, path, _) in &written {
            writeln!(out, "  {what:<15}{}", path.display())?;
        }
        writeln!(out, "  configuration  {}", self.config.display())?;
        writeln!(out, "start the server with it: diskside serve --config {} ...", self.config.display())?;
        writeln!(out, "one that runs with it lets {} in after `kill -HUP` of its process", self.name)?;
        Ok(())
    }

    /// Adds a key to a list of a host's. The second gets the next name, and works beside the first until that is taken away.
    fn name_key(&self, table: &mut Table, list: &str, stem: String) -> Result<String, String> {
        let keys = table.entry(list).or_insert_with(|| value(Array::new()));
        let keys = keys.as_array_mut().ok_or_else(|| format!("`{list}` is no list"))?;
        let stem = if keys.is_empty() { stem } else { format!("{stem}.{}", keys.len() + 1) };
        keys.push(format!("file:{}", self.shown(&stem)));
        Ok(stem)
    }

    fn directory(&self) -> PathBuf {
        let beside = || self.config.parent().unwrap_or(Path::new("")).join("keys");
        self.keys.clone().unwrap_or_else(beside)
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

    /// Writes the configuration whole, or leaves it as it was.
    fn replace(&self, text: &str) -> Result<(), Failure> {
        let new = self.config.with_added_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| {
            if let Ok(metadata) = std::fs::metadata(&self.config) {
                std::fs::set_permissions(&new, metadata.permissions())?;
            }
            std::fs::rename(&new, &self.config)
        });
        written.map_err(|error| {
            let _ = std::fs::remove_file(&new);
            self.cannot("write", &error)
        })
    }

    fn cannot(&self, what: &str, error: &std::io::Error) -> Failure {
        Failure::Environment(format!("cannot {what} {}: {error}", self.config.display()))
    }
}

/// The line from standard input: an argument could be seen by everybody on the machine.
fn read_line() -> Result<Introduction, Failure> {
    if std::io::stdin().is_terminal() {
        say("paste the line that `diskside key new` printed on the host, and press Enter:");
    }
    let mut line = Zeroizing::new(String::with_capacity(LINE_LEN_MAX as usize));
    let mut input = std::io::Read::take(std::io::stdin().lock(), LINE_LEN_MAX);
    let read = input.read_line(&mut line);
    read.map_err(|error| Failure::Environment(format!("standard input: {error}")))?;
    Introduction::parse(&line).map_err(Failure::Usage)
}

fn parse_name(text: &str) -> Result<String, String> {
    check_host_name(text).map(|()| text.to_owned())
}
