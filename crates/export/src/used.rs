//! An export that is in use: whether its host may still use it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use diskside_rights::{Access, HostRights};
use rustix::io::Errno;

use crate::export::Export;
use crate::reply::FileError;

/// An export that something of a host uses for longer than one look at its rights lasts.
#[derive(Clone, Debug)]
pub struct UsedExport {
    export: Arc<Export>,
    access: Access,
}

impl UsedExport {
    pub(crate) fn new(export: &Arc<Export>, access: Access) -> Self {
        Self { export: Arc::clone(export), access }
    }

    /// Whether a host with these rights may still use it so.
    ///
    /// # Errors
    /// It is not served any more (`ESTALE`), or the host lost the right to it (`EACCES`).
    pub fn check(&self, rights: &HostRights) -> Result<(), FileError> {
        let Export { name, withdrawn, .. } = &*self.export;
        if withdrawn.load(Ordering::Acquire) {
            return Err(FileError::because(Errno::STALE, format!("export {name} is not served any more")));
        }
        if rights.export(name) < self.access {
            let how = if self.access == Access::Write { "change" } else { "use" };
            return Err(FileError::because(Errno::ACCESS, format!("this host may not {how} export {name} any more")));
        }
        Ok(())
    }

    /// Whether the other is of the same export, and needs no more.
    pub fn includes(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.export, &other.export) && self.access >= other.access
    }
}
