//! `diskside ls`, `cat` and `stat`: files of exports.

use super::near::{NOT_FOUND, explain_export, explain_session};
use super::volume::{Connect, session_failure};
use super::waiting::Waiting;
use crate::error::Failure;
use crate::output::{self, Table, bytes};
use clap::Args;
use diskside::copy::{CopyError, FileCopyError, copy_file_in_order};
use diskside::host::Url;
use diskside::host::function::{FileInfo, Files, Found, FunctionError, Listed};
use diskside::session::{OpenMode, Session, SessionOptions};
use diskside::wire::file::{FileFlags, FileKind};
use diskside::{ExportUrl, Location, PathText};
use diskside_paths::Pattern;
use serde_json::json;
use std::io::Write;
use std::sync::atomic::AtomicU64;

const URL: &str = "diskside://HOST[:PORT]/EXPORT/PATH";

/// Arguments of `ls`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside ls diskside://server
  diskside ls diskside://server/logs
  diskside ls 'diskside://server/logs/**/*.log'")]
pub(crate) struct Ls {
    /// A target, to list its exports, a directory, or a pattern with *, ?, [...] or **
    #[arg(value_name = URL, value_parser = parse_export)]
    url: ExportUrl,
    /// List all files below directories
    #[arg(long, short)]
    recursive: bool,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `cat`.
#[derive(Args)]
pub(crate) struct Cat {
    /// Files
    #[arg(required = true, value_name = URL, value_parser = parse_export)]
    urls: Vec<ExportUrl>,
    #[command(flatten)]
    connect: Connect,
}

/// Arguments of `stat`.
#[derive(Args)]
pub(crate) struct Stat {
    /// A file or a directory
    #[arg(value_name = URL, value_parser = parse_export)]
    url: ExportUrl,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        if self.url.path.is_empty() {
            return self.exports(&session);
        }
        let path = &self.url.path[..];
        if self.recursive || Pattern::has_wildcards(path) {
            let flags = FileFlags::RECURSIVE.when(self.recursive) | FileFlags::ATTRIBUTES;
            let found = session.look(&self.url, |files| files.find(path, flags));
            let found = found.map_err(session_failure)?.map_err(|e| failed(&self.url, &e))?;
            if found.is_empty() {
                return Err(no_match(&self.url));
            }
            let named = |path: &Vec<u8>| ExportUrl { path: path.clone(), ..self.url.clone() };
            let entries =
                found.into_iter().map(|Found { path, kind, info }| (named(&path), Listed { name: path, kind, info }));
            return self.print(&entries.collect::<Vec<_>>());
        }
        // Both at one server: another one may have another directory.
        let looked = session.look(&self.url, |files| {
            let info = files.stat(path)?;
            let listed = if info.kind == FileKind::Directory { Some(files.list(path)) } else { None };
            Ok((info, listed.transpose()?))
        });
        let (info, listed) = looked.map_err(session_failure)?.map_err(|e| not_there(&session, &self.url, &e))?;
        let mut entries: Vec<(ExportUrl, Listed)> = match listed {
            Some(listed) => listed.into_iter().map(|entry| (self.url.join(&entry.name), entry)).collect(),
            None => {
                let (name, kind) = (self.url.name().to_vec(), info.kind);
                vec![(self.url.clone(), Listed { name, kind, info: Some(info) })]
            }
        };
        entries.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        self.print(&entries)
    }

    fn print(&self, entries: &[(ExportUrl, Listed)]) -> Result<(), Failure> {
        if self.json {
            let list: Vec<_> = entries.iter().map(|(url, entry)| entry_document(url, entry)).collect();
            return Ok(output::print_json(json!({ "url": self.url.to_string(), "entries": list }))?);
        }
        let mut table = Table::new(&["kind", ">size", "modified", "name"]);
        for (_, entry) in entries {
            let (size, modified) = entry.info.map_or_else(Default::default, |i| (size_of(&i), time_text(i.modified.0)));
            table.row(vec![kind_name(entry.kind).into(), size, modified, PathText(&entry.name).to_string()]);
        }
        Ok(write!(std::io::stdout().lock(), "{table}")?)
    }

    fn exports(&self, session: &Session) -> Result<(), Failure> {
        let mut exports = session.exports(&self.url).map_err(session_failure)?;
        exports.sort_by(|a, b| a.name.cmp(&b.name));
        if self.json {
            let list: Vec<_> = exports
                .iter()
                .map(|e| json!({ "name": e.name, "read_only": e.read_only, "uid": e.owner.0, "gid": e.owner.1 }))
                .collect();
            return Ok(output::print_json(json!({ "url": self.url.to_string(), "exports": list }))?);
        }
        let mut table = Table::new(&["export", "access", "as"]);
        for e in &exports {
            let access = if e.read_only { "read-only" } else { "read-write" };
            table.row(vec![e.name.clone(), access.into(), format!("{}:{}", e.owner.0, e.owner.1)]);
        }
        Ok(write!(std::io::stdout().lock(), "{table}")?)
    }
}

impl Cat {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        let _waiting = Waiting::watch(&session, self.urls.iter().cloned().map(Location::Export));
        let done = AtomicU64::new(0);
        for url in &self.urls {
            let location = Location::Export(url.clone());
            let file = session.open_as(&location, OpenMode::Read);
            let file = file.map_err(|error| explain_session(&session, &location, error))?;
            copy_file_in_order(&file, &mut output::stdout(), &done).map_err(|error| match error {
                FileCopyError::Copy(CopyError::Write { error, .. }) => Failure::Output(error),
                FileCopyError::Copy(error) => Failure::Environment(format!("{url}: {error}")),
                FileCopyError::Session(error) => session_failure(error),
            })?;
        }
        Ok(())
    }
}

impl Stat {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        let looked = session.look(&self.url, |files| files.stat(&self.url.path[..]));
        let i = looked.map_err(session_failure)?.map_err(|e| not_there(&session, &self.url, &e))?;
        if self.json {
            let mut document = info_document(&i);
            document["url"] = json!(self.url.to_string());
            return Ok(output::print_json(document)?);
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "file      {}", self.url)?;
        writeln!(out, "kind      {}", kind_name(i.kind))?;
        writeln!(out, "size      {} ({} bytes)", bytes(i.len_bytes), i.len_bytes)?;
        writeln!(out, "access    {:04o}, {}:{}{}", i.permissions, i.owner.0, i.owner.1, read_only(&i))?;
        writeln!(out, "modified  {}", time_text(i.modified.0))?;
        writeln!(out, "version   {:016x}", i.version)?;
        Ok(())
    }
}

pub(super) fn session(connect: &Connect) -> Result<Session, Failure> {
    Ok(Session::new(SessionOptions { connect: connect.options()?, ..SessionOptions::default() }))
}

pub(super) fn parse_export(text: &str) -> Result<ExportUrl, String> {
    text.parse().map_err(|e: diskside::LocationError| e.to_string())
}

/// The server that a URL names, where it is about one.
pub(super) fn target_of(url: &ExportUrl) -> Result<Url, Failure> {
    url.one_target().map_err(|error| Failure::Usage(error.to_string()))
}

pub(super) fn failed(url: &ExportUrl, error: &FunctionError) -> Failure {
    Failure::Environment(format!("{url}: {error}"))
}

/// Refuses an output without an export: a target alone cannot have a file.
pub(super) fn refuse_no_export(url: &ExportUrl) -> Result<(), Failure> {
    if !url.path.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!("{url} names no export: write {URL}; `diskside ls {url}` lists its exports")))
}

/// Refuses an output whose name ends in a slash, which means a directory.
pub(super) fn refuse_directory(name: &str) -> Result<(), Failure> {
    if !name.ends_with('/') {
        return Ok(());
    }
    Err(Failure::Environment(format!(
        "cannot write {name}: there is no such directory; make it first, or leave out the slash"
    )))
}

/// Refuses an output that is a pattern: a pattern means files that are there. A file of that very name is allowed.
pub(super) fn refuse_pattern(files: &Files, url: &ExportUrl, remedy: &str) -> Result<(), Failure> {
    let is_pattern = url.path.iter().any(|byte| matches!(byte, b'*' | b'?'));
    if !is_pattern || files.stat(&url.path).is_ok() {
        return Ok(());
    }
    Err(Failure::Usage(format!("{url} is a pattern, and names no file to write: name one; {remedy}")))
}

/// As [`failed`], with names like it.
pub(super) fn not_there(session: &Session, url: &ExportUrl, error: &FunctionError) -> Failure {
    let failure = failed(url, error);
    if error.errno() == Some(NOT_FOUND) { explain_export(session, url, failure) } else { failure }
}

/// As `ls` says it.
pub(super) fn no_match(url: &ExportUrl) -> Failure {
    Failure::Usage(format!("cannot access '{url}': No such file or directory"))
}

fn read_only(info: &FileInfo) -> &'static str {
    if info.read_only { ", in a read-only export" } else { "" }
}

fn size_of(info: &FileInfo) -> String {
    if info.kind == FileKind::File { bytes(info.len_bytes) } else { String::new() }
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}

fn entry_document(url: &ExportUrl, entry: &Listed) -> serde_json::Value {
    let mut document = entry.info.as_ref().map_or_else(|| json!({}), info_document);
    document["url"] = json!(url.to_string());
    document["name"] = json!(String::from_utf8_lossy(&entry.name));
    document["kind"] = json!(kind_name(entry.kind));
    document
}

fn info_document(i: &FileInfo) -> serde_json::Value {
    json!({
        "kind": kind_name(i.kind), "size_bytes": i.len_bytes, "mode": i.permissions, "uid": i.owner.0,
        "gid": i.owner.1, "modified_s": i.modified.0, "modified_ns": i.modified.1, "inode": i.inode.0,
        "version": format!("{:016x}", i.version), "read_only": i.read_only,
    })
}

/// `2026-11-21 16:05:09`, UTC.
fn time_text(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Year, month and day of a day since 1970 in the Gregorian calendar, whose cycle of 400 years begins in March.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
        ] {
            assert_eq!(time_text(seconds), text);
        }
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(PathText(b"a\x1b[2Jb\n").to_string(), "a%1B[2Jb%0A");
    }
}
