//! Compiles sources with clang, once each: objects are kept by the content of their source.

use diskside_functions::clang;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Where headers are, from this crate.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../abi/include");

/// The object of a source, which messages call `name`, kept in a directory.
///
/// # Errors
/// What clang says of it.
pub fn object(source: &str, name: &str, kept: &Path) -> Result<Vec<u8>, String> {
    let clang = clang::find().ok_or("clang was not found: scripts/setup --for test installs it")?;
    let mut hasher = DefaultHasher::new();
    (source, name, &clang, headers()?).hash(&mut hasher);
    let object = kept.join(format!("{:016x}.o", hasher.finish()));
    if let Ok(bytes) = std::fs::read(&object) {
        return Ok(bytes);
    }
    let failed = |error: std::io::Error| format!("{}: {error}", kept.display());
    std::fs::create_dir_all(kept).map_err(failed)?;
    // Others may compile the same source now: each writes a file of its own, and any of them may stay.
    let work = tempfile::tempdir_in(kept).map_err(failed)?;
    std::fs::write(work.path().join(name), source).map_err(failed)?;
    let output = clang::command(&clang)
        .args(clang::OPTIONS)
        .args(["-Wno-everything", name, "-I", HEADERS, "-fdebug-compilation-dir=.", "-o", "case.o"])
        .current_dir(work.path())
        .output()
        .map_err(|error| format!("{}: {error}", clang.display()))?;
    if !output.status.success() {
        return Err(format!("clang refuses it:\n{}\n{source}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::rename(work.path().join("case.o"), &object).map_err(failed)?;
    std::fs::read(&object).map_err(failed)
}

/// All that a source includes.
fn headers() -> Result<Vec<Vec<u8>>, String> {
    let mut texts = Vec::new();
    for dir in [HEADERS, concat!(env!("CARGO_MANIFEST_DIR"), "/../abi/include/diskside")] {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(|error| format!("{dir}: {error}"))?;
        paths.retain(|path| path.is_file());
        paths.sort();
        for path in paths {
            texts.push(std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?);
        }
    }
    Ok(texts)
}
