//! Finding a function by what a user writes: a shipped name, an object, or C source.

use crate::raw;
use diskside_compile::{CompileError, compile};
use diskside_engine::{Engine, Function, LoadError};
use diskside_sbpf::image::{Image, Kind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a function was not found or not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Neither a shipped function nor a path.
    #[error("no function is called `{name}`{}; `diskside functions` lists them; a path to an object ends in .o, one to C source in .c", did_you_mean(.near))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Names like it.
        near: Vec<&'static str>,
    },
    /// The file could not be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An object, where raw bytecode was said to be.
    #[error("{}: it is an object, whose sections name the kinds of its programs; --kind is for raw bytecode", .path.display())]
    NotRaw {
        /// Which file.
        path: PathBuf,
    },
    /// The source does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The object cannot be loaded.
    #[error("{what}: {source}")]
    Load {
        /// Name or path.
        what: String,
        /// Why.
        source: LoadError,
    },
}

/// The bytes of an object, and where they come from.
#[derive(Clone, Debug)]
pub struct Object {
    /// Name or path, for messages.
    pub what: String,
    /// The ELF object.
    pub bytes: Vec<u8>,
    /// Which function of it is meant, when that was said.
    pub function: Option<String>,
}

/// Finds and loads `NAME`, `FILE.o[:NAME]` or `FILE.c[:NAME]`.
///
/// # Errors
/// Why there is no such function, or why it cannot be loaded.
pub fn resolve(engine: &Engine, what: impl AsRef<OsStr>) -> Result<Function, ResolveError> {
    resolve_object(engine, what).map(|(_, function)| function)
}

/// As [`resolve`], with the object's bytes.
pub(crate) fn resolve_object(engine: &Engine, what: impl AsRef<OsStr>) -> Result<(Vec<u8>, Function), ResolveError> {
    let object = object(what)?;
    match engine.load(&object.bytes, object.function.as_deref()) {
        Ok(function) => Ok((object.bytes, function)),
        Err(source) => Err(ResolveError::Load { what: object.what, source }),
    }
}

/// Finds and loads a function over columns, with the bytes of its object: `FILE.o[:NAME]` or `FILE.c[:NAME]`.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_columns(engine: &Engine, what: impl AsRef<OsStr>) -> Result<(Vec<u8>, Function), ResolveError> {
    let object = object(what)?;
    match engine.load_columns(&object.bytes, object.function.as_deref()) {
        Ok(function) => Ok((object.bytes, function)),
        Err(source) => Err(ResolveError::Load { what: object.what, source }),
    }
}

/// The function of this kind that a file of raw bytecode is, as an object that any target loads.
pub(crate) fn resolve_raw(engine: &Engine, path: &Path, kind: Kind) -> Result<(Vec<u8>, Function), ResolveError> {
    let code = std::fs::read(path).map_err(|source| ResolveError::Read { path: path.to_owned(), source })?;
    if code.starts_with(ELF_MAGIC) {
        return Err(ResolveError::NotRaw { path: path.to_owned() });
    }
    let failed = |source: LoadError| ResolveError::Load { what: path.display().to_string(), source };
    // Errors of the code name the code.
    Image::from_raw(&code, kind, engine.helpers()).map_err(|error| failed(error.into()))?;
    let object = raw::object_of(&code, kind).map_err(|error| ResolveError::Read {
        path: path.to_owned(),
        source: std::io::Error::other(error.to_string()),
    })?;
    let function = engine.load(&object, None).map_err(failed)?;
    Ok((object, function))
}

const ELF_MAGIC: &[u8] = b"\x7fELF";

/// As [`resolve`], to look at a function of whatever kind.
///
/// # Errors
/// As [`resolve`].
pub fn describe(engine: &Engine, what: impl AsRef<OsStr>) -> Result<Function, ResolveError> {
    let object = object(what)?;
    let image = Image::from_elf(&object.bytes, engine.helpers());
    image
        .map_err(Into::into)
        .and_then(|image| Function::any_from_image(&Arc::new(image), object.function.as_deref(), engine.helpers()))
        .map_err(|source| ResolveError::Load { what: object.what, source })
}

/// Finds the object that `what` names, without loading it.
///
/// # Errors
/// Why there is none.
pub fn object(what: impl AsRef<OsStr>) -> Result<Object, ResolveError> {
    let name = what.as_ref();
    let what = name.to_string_lossy().into_owned();
    if let Some(shipped) = diskside_functions::shipped().iter().find(|f| name == f.name) {
        let (bytes, function) = (shipped.object.to_vec(), Some(what.clone()));
        return Ok(Object { what, bytes, function });
    }
    let (path, function) = split_path(name);
    match path.extension().and_then(|e| e.to_str()) {
        Some("c") => Ok(Object { what, bytes: compile(path)?, function }),
        None if !path.exists() => Err(ResolveError::Unknown { near: near_names(&what), name: what }),
        _ => {
            let bytes = std::fs::read(path).map_err(|source| ResolveError::Read { path: path.to_owned(), source })?;
            Ok(Object { what, bytes, function })
        }
    }
}

/// `FILE:NAME` when the file exists and the whole does not.
fn split_path(what: &OsStr) -> (&Path, Option<String>) {
    let bytes = what.as_bytes();
    let colon = bytes.iter().rposition(|byte| *byte == b':').filter(|_| !Path::new(what).exists());
    let name = colon.and_then(|at| std::str::from_utf8(&bytes[at + 1..]).ok()).filter(|name| !name.contains('/'));
    match (colon, name) {
        (Some(at), Some(name)) => (Path::new(OsStr::from_bytes(&bytes[..at])), Some(name.to_owned())),
        _ => (Path::new(what), None),
    }
}

fn near_names(name: &str) -> Vec<&'static str> {
    let shares = |f: &&str| f.contains(name) || name.contains(*f) || f.chars().take(3).eq(name.chars().take(3));
    diskside_functions::shipped().iter().map(|f| f.name).filter(shares).take(3).collect()
}

fn did_you_mean(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!(" (did you mean {}?)", names.join(" or ")) }
}

/// The shipped functions, by name.
pub fn shipped() -> impl Iterator<Item = &'static diskside_functions::Shipped> {
    diskside_functions::shipped().iter()
}
