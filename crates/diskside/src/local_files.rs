//! Files of this machine by a pattern, or below a directory: found as a target finds those of its exports, in the same order.

use diskside_paths::{Kind, Pattern, PatternError, Tree, Visit, WalkError, walk};
use std::ffi::OsStr;
use std::fs::FileType;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// Files of one search: more would be too many for one command.
pub const FOUND_MAX: usize = 1 << 20;

/// Why files cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// It is not a pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A directory cannot be listed.
    #[error("{}: {error}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Directories lie in each other without end, as it seems.
    #[error("too many directories in each other")]
    TooDeep,
    /// There are more files than one command takes.
    #[error("it has more than {FOUND_MAX} files; name a part of it")]
    TooMany,
}

/// The files below a directory, hidden ones too, without symbolic links, pipes and sockets.
///
/// # Errors
/// See [`FindError`].
pub fn below(directory: &Path) -> Result<Vec<PathBuf>, FindError> {
    search(directory, &Pattern::parse(b"", true)?)
}

/// The files that a pattern with wildcards means, with symbolic links to files; those to directories are followed where it names them
/// without wildcards.
///
/// # Errors
/// See [`FindError`].
pub fn matching(pattern: &Path) -> Result<Vec<PathBuf>, FindError> {
    by_pattern(pattern, false)
}

/// The files below a directory, or those that a pattern means and those below the directories that it means.
///
/// # Errors
/// See [`FindError`].
pub fn below_or_matching(path: &Path, is_pattern: bool) -> Result<Vec<PathBuf>, FindError> {
    if is_pattern { by_pattern(path, true) } else { below(path) }
}

fn by_pattern(pattern: &Path, below: bool) -> Result<Vec<PathBuf>, FindError> {
    let is_literal = |name: &&OsStr| !Pattern::has_wildcards(name.as_bytes());
    let base: PathBuf = pattern.iter().take_while(is_literal).collect();
    let names: PathBuf = pattern.iter().skip_while(is_literal).collect();
    search(&base, &Pattern::parse(names.as_os_str().as_bytes(), below)?)
}

fn search(base: &Path, pattern: &Pattern) -> Result<Vec<PathBuf>, FindError> {
    let mut found = Vec::new();
    let walked = walk(pattern, &mut Here(base), b"", &mut |visit| {
        if let Visit::Found(path, kind) = visit
            && kind != Kind::Directory
        {
            found.push(base.join(OsStr::from_bytes(path)));
        }
        if found.len() > FOUND_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match walked {
        Err(WalkError::Tree((path, error))) => Err(FindError::Directory { path, error }),
        Err(WalkError::TooDeep) => Err(FindError::TooDeep),
        Ok(()) if found.len() > FOUND_MAX => Err(FindError::TooMany),
        Ok(()) => Ok(found),
    }
}

/// A directory of this machine; the empty path is the one where we are.
struct Here<'a>(&'a Path);

impl Here<'_> {
    fn path(&self, path: &[u8]) -> PathBuf {
        let path = self.0.join(OsStr::from_bytes(path));
        if path.as_os_str().is_empty() { ".".into() } else { path }
    }
}

impl Tree for Here<'_> {
    type Error = (PathBuf, io::Error);

    fn kind(&mut self, path: &[u8]) -> Result<Option<Kind>, Self::Error> {
        Ok(self.path(path).metadata().ok().map(|found| kind(found.file_type())))
    }

    fn list(&mut self, directory: &[u8], each: &mut dyn FnMut(&[u8], Kind)) -> Result<(), Self::Error> {
        let path = self.path(directory);
        let failed = |error| (path.clone(), error);
        let entries = match path.read_dir() {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let found = entry.file_type().map_err(failed)?;
            // No data lies in them: a pipe that nobody writes to would be waited for.
            if !(found.is_fifo() || found.is_socket() || found.is_char_device()) {
                each(entry.file_name().as_bytes(), kind(found));
            }
        }
        Ok(())
    }
}

fn kind(found: FileType) -> Kind {
    if found.is_file() {
        Kind::File
    } else if found.is_dir() {
        Kind::Directory
    } else if found.is_symlink() {
        Kind::Symlink
    } else {
        Kind::Other
    }
}
