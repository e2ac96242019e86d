//! A function that runs on either side.

use crate::library::{ResolveError, resolve_columns, resolve_object, resolve_raw};
use diskside_engine::{Engine, Function};
use diskside_sbpf::image::Kind;
use std::ffi::OsStr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// A function with its object, so that targets can have it too. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct SessionFunction {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    function: Function,
    object: Vec<u8>,
}

impl SessionFunction {
    /// Finds `NAME`, `FILE.o[:NAME]` or `FILE.c[:NAME]`.
    pub(super) fn resolve(engine: &Engine, what: impl AsRef<OsStr>) -> Result<Self, ResolveError> {
        let (object, function) = resolve_object(engine, what)?;
        Ok(Self { inner: Arc::new(Inner { function, object }) })
    }

    /// Takes a file of raw bytecode as a function of this kind.
    pub(super) fn resolve_raw(engine: &Engine, path: &Path, kind: Kind) -> Result<Self, ResolveError> {
        let (object, function) = resolve_raw(engine, path, kind)?;
        Ok(Self { inner: Arc::new(Inner { function, object }) })
    }

    pub(super) fn load(engine: &Engine, object: &[u8], name: Option<&str>) -> Result<Self, ResolveError> {
        let function = engine
            .load(object, name)
            .map_err(|source| ResolveError::Load { what: name.unwrap_or("the object").to_owned(), source })?;
        Ok(Self { inner: Arc::new(Inner { function, object: object.to_vec() }) })
    }

    pub(super) fn resolve_columns(engine: &Engine, what: impl AsRef<OsStr>) -> Result<Self, ResolveError> {
        let (object, function) = resolve_columns(engine, what)?;
        Ok(Self { inner: Arc::new(Inner { function, object }) })
    }

    pub(super) fn load_columns(engine: &Engine, object: &[u8], name: Option<&str>) -> Result<Self, ResolveError> {
        let function = engine
            .load_columns(object, name)
            .map_err(|source| ResolveError::Load { what: name.unwrap_or("the object").to_owned(), source })?;
        Ok(Self { inner: Arc::new(Inner { function, object: object.to_vec() }) })
    }

    /// Its object.
    #[must_use]
    pub fn object(&self) -> &[u8] {
        &self.inner.object
    }

    /// SHA-256 of its object, by which targets know it.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        self.inner.function.main().image().sha256
    }

    /// The first 64 bits of that.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.inner.function.main().image().content_hash
    }
}

impl Deref for SessionFunction {
    type Target = Function;

    fn deref(&self) -> &Function {
        &self.inner.function
    }
}
