//! Compiling C source to an eBPF object with clang.

use diskside_functions::clang;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why source did not become an object.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// No clang that can compile for BPF.
    #[error("no clang was found to compile {}: install one (Debian: apt-get install clang), or set DISKSIDE_CLANG", .0.display())]
    NoClang(PathBuf),
    /// Clang refused the source.
    #[error("{} does not compile:\n{stderr}", path.display())]
    Refused {
        /// Which file.
        path: PathBuf,
        /// What clang said.
        stderr: String,
    },
    /// The environment is at fault.
    #[error("compiling {}: {source}", path.display())]
    Environment {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Compiles `path` with the headers of this product.
///
/// # Errors
/// No clang, or what it said.
pub fn compile(path: &Path) -> Result<Vec<u8>, CompileError> {
    let environment = |source| CompileError::Environment { path: path.to_owned(), source };
    std::fs::metadata(path).map_err(environment)?;
    let clang = clang::find().ok_or_else(|| CompileError::NoClang(path.to_owned()))?;
    let dir = tempfile::tempdir().map_err(environment)?;
    for header in diskside_abi::HEADERS {
        std::fs::write(dir.path().join(header.name), header.text).map_err(environment)?;
    }
    let object = dir.path().join("function.o");
    let output = Command::new(clang)
        .args(clang::OPTIONS)
        .arg(path)
        .arg("-I")
        .arg(dir.path())
        .arg("-o")
        .arg(&object)
        .output()
        .map_err(environment)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(CompileError::Refused { path: path.to_owned(), stderr });
    }
    std::fs::read(object).map_err(environment)
}
