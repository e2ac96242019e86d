//! Where the program of a child is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The program that the environment variable names, that lies beside the running program, or that `PATH` finds: programs that
/// use a library lie anywhere. `None` when there is none, or the variable is empty.
pub(crate) fn find(program: &str, variable: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let beside = std::env::current_exe().ok().and_then(|exe| beside(&exe, program));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside.or_else(|| in_path(&path, program))
}

fn beside(exe: &Path, program: &str) -> Option<PathBuf> {
    let mut dir = exe.parent()?;
    // Cargo puts tests and examples a directory deeper than programs.
    if dir.ends_with("deps") || dir.ends_with("examples") {
        dir = dir.parent()?;
    }
    Some(dir.join(program)).filter(|program| program.is_file())
}

/// Directories that depend on the working directory are left out: anyone who can write there would say what is run.
fn in_path(path: &OsStr, program: &str) -> Option<PathBuf> {
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(program)).find(|program| program.is_file())
}
