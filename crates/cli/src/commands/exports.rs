//! `diskside ls`, `cat`, `stat` and `rm`: files of exports.

use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::{self, Table, bytes};
use clap::Args;
use diskside::ExportUrl;
use diskside::host::function::{FileInfo, FunctionError, Listed};
use diskside::session::{Session, SessionOptions};
use diskside::wire::file::FileKind;
use serde_json::json;
use std::io::Write;

const URL: &str = "diskside://HOST[:PORT]/EXPORT/PATH";

/// Arguments of `ls`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside ls diskside://server
  diskside ls diskside://server/logs")]
pub(crate) struct Ls {
    /// A target, to list its exports, or a directory
    #[arg(value_name = URL, value_parser = parse_export)]
    url: ExportUrl,
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

/// Arguments of `rm`.
#[derive(Args)]
pub(crate) struct Rm {
    /// Files, or with --dir empty directories
    #[arg(required = true, value_name = URL, value_parser = parse_export)]
    urls: Vec<ExportUrl>,
    /// Remove empty directories
    #[arg(long)]
    dir: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Bytes that are read ahead of what is written out.
const CAT_LEN: usize = 4 << 20;

impl Ls {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        if self.url.path.is_empty() {
            return self.exports(&session);
        }
        let files = session.files(&self.url).map_err(session_failure)?;
        let path = self.url.path.as_bytes();
        let info = files.stat(path).map_err(|e| failed(&self.url, &e))?;
        let mut entries = match info.kind {
            FileKind::Directory => files.list(path).map_err(|e| failed(&self.url, &e))?,
            kind => vec![Listed { name: self.url.name().as_bytes().to_vec(), kind, info: Some(info) }],
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if self.json {
            let list: Vec<_> = entries.iter().map(entry_document).collect();
            return Ok(output::print_json(json!({ "url": self.url.to_string(), "entries": list }))?);
        }
        let mut table = Table::new(&["kind", ">size", "modified", "name"]);
        for entry in &entries {
            let (size, modified) = entry.info.map_or_else(Default::default, |i| (size_of(&i), time_text(i.modified.0)));
            table.row(vec![kind_name(entry.kind).into(), size, modified, shown(&entry.name)]);
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
        let mut out = std::io::stdout().lock();
        for url in &self.urls {
            let file = session.open(&url.to_string()).map_err(session_failure)?;
            let mut offset = 0;
            let mut next = file.pread(offset, CAT_LEN);
            loop {
                let piece = next.wait().map_err(session_failure)?;
                offset += piece.len() as u64;
                next = file.pread(offset, CAT_LEN);
                if piece.is_empty() {
                    break;
                }
                out.write_all(&piece)?;
            }
        }
        Ok(out.flush()?)
    }
}

impl Stat {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        let files = session.files(&self.url).map_err(session_failure)?;
        let i = files.stat(self.url.path.as_bytes()).map_err(|e| failed(&self.url, &e))?;
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

impl Rm {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = session(&self.connect)?;
        for url in &self.urls {
            let files = session.files(url).map_err(session_failure)?;
            let path = url.path.as_bytes();
            let removed = if self.dir { files.remove_directory(path) } else { files.unlink(path) };
            removed.map_err(|e| failed(url, &e))?;
        }
        Ok(())
    }
}

pub(super) fn session(connect: &Connect) -> Result<Session, Failure> {
    Ok(Session::new(SessionOptions { connect: connect.options()?, ..SessionOptions::default() }))
}

pub(super) fn parse_export(text: &str) -> Result<ExportUrl, String> {
    text.parse().map_err(|e: diskside::LocationError| e.to_string())
}

fn failed(url: &ExportUrl, error: &FunctionError) -> Failure {
    Failure::Environment(format!("{url}: {error}"))
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

fn entry_document(entry: &Listed) -> serde_json::Value {
    let mut document = entry.info.as_ref().map_or_else(|| json!({}), info_document);
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

/// A name as a terminal may show it.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name)
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
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
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
