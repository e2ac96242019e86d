//! Which files a run is over: those that were named, those that patterns of exports mean, and those below directories.

use super::super::exports::{failed, no_match, not_there};
use super::super::near::{NOT_FOUND, explain_session};
use super::super::volume::session_failure;
use crate::error::Failure;
use diskside::local_files::{self, FindError};
use diskside::session::{File, OpenMode, Session};
use diskside::wire::file::{FileFlags, FileKind};
use diskside::{ExportUrl, Location};
use diskside_paths::Pattern;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::Path;

/// The files, in the order in which they were named, and in each place in that of their names.
pub(super) fn open(session: &Session, named: &[OsString], recursive: bool) -> Result<Vec<File>, Failure> {
    let mut files = Vec::new();
    for name in named {
        match &expand(session, name, recursive)?[..] {
            // That one of a few is not there is known before anything is printed.
            [location] if named.len() <= super::LENGTHS_MAX => {
                let file = session.open_as(location, OpenMode::Read);
                files.push(file.map_err(|error| explain_session(session, location, error))?);
            }
            locations => {
                for location in locations {
                    files.push(session.open_late(location).map_err(session_failure)?);
                }
            }
        }
    }
    Ok(files)
}

fn expand(session: &Session, name: &OsStr, recursive: bool) -> Result<Vec<Location>, Failure> {
    let location: Location =
        super::input_name(name).try_into().map_err(|e: diskside::LocationError| Failure::Usage(e.to_string()))?;
    match &location {
        Location::Export(url) if recursive || Pattern::has_wildcards(&url.path) => beneath(session, url, recursive),
        Location::Local(path) if recursive && path.is_dir() => below(path),
        // Something takes the place of closed standard input and is a directory; opening it gives that error.
        Location::Local(path) if path.is_dir() && path.as_os_str() != "/dev/stdin" => {
            Err(Failure::Environment(format!(
                "{}: it is a directory, which has no bytes of its own: name the files in it, or --recursive takes all below it",
                path.display()
            )))
        }
        _ => Ok(vec![location]),
    }
}

/// What a pattern means at its target.
fn beneath(session: &Session, url: &ExportUrl, recursive: bool) -> Result<Vec<Location>, Failure> {
    let is_pattern = Pattern::has_wildcards(&url.path);
    let found = session
        .look(url, |files| files.find(&url.path, FileFlags::RECURSIVE.when(recursive)))
        .map_err(session_failure)?;
    let found = found.map_err(|error| match failed(url, &error) {
        // It means nothing where there is no such export.
        Failure::Environment(told) if is_pattern && error.errno() == Some(NOT_FOUND) => Failure::Usage(told),
        failure => failure,
    })?;
    let is_file = |kind| kind != FileKind::Directory;
    let mut locations = Vec::new();
    for one in found.into_iter().filter(|one| is_file(one.kind)) {
        locations.push(Location::Export(ExportUrl { path: one.path, ..url.clone() }));
    }
    if !locations.is_empty() {
        return Ok(locations);
    }
    if is_pattern {
        return Err(no_match(url));
    }
    let looked = session.look(url, |files| files.stat(&url.path)).map_err(session_failure)?;
    looked.map_err(|error| not_there(session, url, &error))?;
    Err(no_files(url))
}

fn no_files(directory: impl Display) -> Failure {
    Failure::Usage(format!("{directory}: there are no files in it"))
}

/// The files below a directory of this machine.
fn below(directory: &Path) -> Result<Vec<Location>, Failure> {
    let named = directory.display();
    match local_files::below(directory) {
        Ok(found) if found.is_empty() => Err(no_files(named)),
        Ok(found) => Ok(found.into_iter().map(Location::Local).collect()),
        Err(error @ FindError::Directory { .. }) => Err(Failure::Environment(error.to_string())),
        Err(error @ FindError::TooDeep) => Err(Failure::Environment(format!("{named}: {error}"))),
        Err(error) => Err(Failure::Usage(format!("{named}: {error}"))),
    }
}
