//! Whether an export hands out what decides who may use it.

use std::path::{Path, PathBuf};

use diskside_export::ExportSpec;

use super::{ConfigError, ServeConfig};

impl ServeConfig {
    /// Hosts must not read each other's keys, nor write who is let in and what was noted of them. Looks at the file system.
    pub(crate) fn check_exposed(&self) -> Result<(), ConfigError> {
        let keys = self.known_hosts.iter().flat_map(|host| {
            host.dhchap_keys.iter().chain(&host.dhchap_controller_key).chain(&host.tls_keys).map(|key| &key.path)
        });
        let keys: Vec<PathBuf> = keys.flat_map(|path| places(path)).collect();
        let config = self.file.iter().flat_map(|path| places(path)).map(|path| ("the configuration", path));
        let audit = self.security.audit.iter().flat_map(|path| places(path)).map(|path| ("the audit file", path));
        let written: Vec<(&str, PathBuf)> = config.chain(audit).collect();
        for export in &self.exports {
            let Ok(root) = export.path.canonicalize() else { continue };
            if let Some(key) = keys.iter().find(|key| key.starts_with(&root)) {
                return Err(exposes(export, "a key", key, "read it"));
            }
            if let Some((what, path)) = written.iter().find(|(_, path)| export.rw && path.starts_with(&root)) {
                return Err(exposes(export, what, path, "change it"));
            }
        }
        Ok(())
    }
}

/// Where a file is, and where its name is, which may be a link or that of a file to come.
fn places(path: &Path) -> Vec<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = parent.canonicalize().ok().zip(path.file_name()).map(|(parent, name)| parent.join(name));
    path.canonicalize().ok().into_iter().chain(named).collect()
}

fn exposes(export: &ExportSpec, what: &str, path: &Path, do_what: &str) -> ConfigError {
    let what = format!(
        "{what} is in it, {}, so hosts could {do_what}: export another directory, or keep that elsewhere",
        path.display()
    );
    ConfigError::Value { field: format!("export `{}`", export.name), what }
}
