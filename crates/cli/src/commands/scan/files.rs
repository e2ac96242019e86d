//! The files of a scan, and whether they are still what they were: for programs that scan parts of them.

use super::super::exports::not_there;
use super::super::volume::session_failure;
use crate::error::Failure;
use crate::output;
use diskside::Location;
use diskside::scan::Part;
use diskside::session::{OpenMode, ScanFiles, Session, SessionError};
use serde_json::json;
use std::os::unix::fs::MetadataExt as _;

/// A file before it is scanned.
struct Known {
    size_bytes: u64,
    /// `None`: a volume, which has none.
    version: Option<String>,
}

/// Prints all files that a scan is of.
pub(super) fn print(session: &Session, files: &ScanFiles) -> Result<(), Failure> {
    let document = |location: &Location| {
        let known = known(session, location)?;
        Ok(json!({ "file": location.to_string(), "size_bytes": known.size_bytes, "version": known.version }))
    };
    let all = files.all().iter().map(document).collect::<Result<Vec<_>, Failure>>()?;
    Ok(output::print_json(json!({ "files": all, "is_one_file": files.plain().is_some() }))?)
}

/// Fails unless these files have these versions.
pub(super) fn check_versions(session: &Session, files: &[Location], versions: &[String]) -> Result<(), Failure> {
    for (file, version) in files.iter().zip(versions) {
        let now = known(session, file)?.version;
        if now.as_ref() != Some(version) {
            return Err(Failure::Environment(format!(
                "{file} changed since its version was {version}: read it again from the beginning"
            )));
        }
    }
    Ok(())
}

/// `FIRST..END` as row groups of a file.
pub(super) fn parse_row_groups(text: &str) -> Result<Part, String> {
    let wrong = || format!("`{text}` is not FIRST..END, such as 0..4 for the first four");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (first, end) = (number(first)?, number(end)?);
    match end.checked_sub(first) {
        Some(count) if count > 0 => Ok(Part { first, count }),
        _ => Err(format!("`{text}` has no row group")),
    }
}

fn known(session: &Session, location: &Location) -> Result<Known, Failure> {
    match location {
        Location::Export(url) => {
            let found = session.look(url, |files| files.stat(&url.path)).map_err(session_failure)?;
            let found = found.map_err(|error| not_there(session, url, &error))?;
            Ok(Known { size_bytes: found.len_bytes, version: Some(format!("{:016x}", found.version)) })
        }
        Location::Local(path) => {
            let failed = |source| session_failure(SessionError::Open { name: path.display().to_string(), source });
            let found = std::fs::metadata(path).map_err(failed)?;
            let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
            let version = format!("{:x}-{:x}.{:x}-{:x}.{:x}", found.len(), times[0], times[1], times[2], times[3]);
            Ok(Known { size_bytes: found.len(), version: Some(version) })
        }
        Location::Volume(_) => {
            let opened = session.open_as(location, OpenMode::Read);
            let size_bytes = opened.and_then(|file| file.len_bytes()).map_err(session_failure)?;
            Ok(Known { size_bytes, version: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_groups_are_a_range() {
        assert_eq!(parse_row_groups("3..7"), Ok(Part { first: 3, count: 4 }));
        for wrong in ["3", "3..", "..3", "3..3", "4..3", "a..b", "-1..3", "0..5000000000"] {
            assert!(parse_row_groups(wrong).is_err(), "{wrong}");
        }
    }
}
