//! Suggestions for a name that is not there: names like it in the same directory, here or at a target.

use crate::error::Failure;
use diskside::host::function::Files;
use diskside::session::{Session, SessionError};
use diskside::{ExportUrl, Location};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Names of a directory that are looked at.
const NAMES_MAX: usize = 10_000;
/// Names that are shown.
const SHOWN_MAX: usize = 3;

/// The failure, with what may have been meant if it is that the file is not there.
pub(super) fn explain_session(session: &Session, location: &Location, error: SessionError) -> Failure {
    let is_missing = is_missing(&error);
    let failure = super::volume::session_failure(error);
    if !is_missing {
        return failure;
    }
    match location {
        Location::Local(path) => explain_here(path, failure),
        Location::Export(url) => explain_export(session, url, failure),
        Location::Volume(_) => failure,
    }
}

/// The failure of a file of an export that is not there, with what may have been meant.
pub(super) fn explain_export(session: &Session, url: &ExportUrl, failure: Failure) -> Failure {
    failure.hinting(&near_there(session, url))
}

fn is_missing(error: &SessionError) -> bool {
    match error {
        SessionError::Open { source, .. } => source.kind() == ErrorKind::NotFound,
        SessionError::Device { source, .. } => source.errno() == Some(NOT_FOUND),
        _ => false,
    }
}

/// `ENOENT`, as targets send it.
pub(super) const NOT_FOUND: i32 = 2;

/// The failure of a path of this machine that is not there, with where it leads, or with what may have been meant.
pub(crate) fn explain_here(path: &Path, failure: Failure) -> Failure {
    match std::fs::read_link(path) {
        Ok(to) => failure.adding(&format!("; it is a symbolic link to {}, which is not there", to.display())),
        Err(_) => failure.hinting(&near_here(path)),
    }
}

/// Paths like one that is not there on this machine.
fn near_here(path: &Path) -> Vec<String> {
    let (Some(name), Some(directory)) = (path.file_name(), path.parent()) else { return Vec::new() };
    let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let Ok(entries) = std::fs::read_dir(listed) else { return Vec::new() };
    let names = entries.take(NAMES_MAX).filter_map(|entry| Some(entry.ok()?.file_name().as_bytes().to_vec()));
    let near = near(name.as_bytes(), names);
    near.iter().map(|name| directory.join(OsStr::from_bytes(name)).display().to_string()).collect()
}

fn near_there(session: &Session, url: &ExportUrl) -> Vec<String> {
    let near = session.look(url, |files| Ok(near_at(files, url)));
    near.ok().and_then(Result::ok).unwrap_or_default()
}

fn near_at(files: &Files, url: &ExportUrl) -> Vec<String> {
    let (export, within) = split_at_slash(&url.path, url.path.iter().position(|byte| *byte == b'/'));
    let Ok(exports) = files.exports() else { return Vec::new() };
    if exports.iter().all(|known| known.name.as_bytes() != export) {
        let near = near(export, exports.into_iter().map(|known| known.name.into_bytes()));
        return shown(url, near.into_iter().map(|name| [&name, within].concat()));
    }
    let (directory, name) = split_at_slash(&url.path, url.path.iter().rposition(|byte| *byte == b'/'));
    // A link that leads nowhere is listed, too.
    let near = near(name.get(1..).unwrap_or_default(), names_in(files, directory));
    shown(url, near.into_iter().map(|name| [directory, b"/", &name].concat()))
}

/// What stands before a slash, and what follows with it.
fn split_at_slash(path: &[u8], at: Option<usize>) -> (&[u8], &[u8]) {
    path.split_at(at.unwrap_or(path.len()))
}

fn names_in(files: &Files, directory: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let listed = files.list(directory).unwrap_or_default();
    listed.into_iter().take(NAMES_MAX).map(|entry| entry.name)
}

fn shown(url: &ExportUrl, paths: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
    paths.map(|path| ExportUrl { path, ..url.clone() }.to_string()).collect()
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The names that differ little from this one, nearest first.
fn near(wanted: &[u8], names: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let wanted = text(wanted);
    let most = 1 + wanted.chars().count() / 4;
    let distance = |name: &[u8]| strsim::damerau_levenshtein(&wanted.to_lowercase(), &text(name).to_lowercase());
    let others = names.filter(|name| text(name) != wanted);
    let mut near: Vec<_> = others.map(|name| (distance(&name), name)).filter(|(far, _)| *far <= most).collect();
    near.sort();
    near.into_iter().take(SHOWN_MAX).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_others_not_at_all() {
        let names =
            ["server.lgo", "server.log.1", "Server.log", "other", "serverlog"].map(|name| name.as_bytes().to_vec());
        let near = near(b"server.log", names.into_iter());
        assert_eq!(near, [&b"Server.log"[..], b"server.lgo", b"serverlog"]);
        assert_eq!(super::near(b"x", [b"abc".to_vec()].into_iter()), [] as [Vec<u8>; 0]);
    }
}
