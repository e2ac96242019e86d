//! Which file is the server's configuration where nobody names one.

use std::path::{Path, PathBuf};

/// That of the package.
pub(crate) const PACKAGED: &str = "/etc/diskside/diskside.toml";

/// The one in this directory, or else that of the package; one in this directory, if there is neither.
pub(crate) fn usual() -> PathBuf {
    let here = Path::new("diskside.toml");
    let is_packaged = !here.exists() && Path::new(PACKAGED).try_exists().unwrap_or(true);
    if is_packaged { PACKAGED.into() } else { here.into() }
}
