//! The reasons for which a configuration cannot be used.

use std::path::PathBuf;

/// Why a configuration cannot be used: where, what, and what to write instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Everybody on the machine may write the file.
    #[error(
        "{path}: its mode is {mode:04o}, so everybody on this machine could let himself in by it: look through it, and `chmod o-w` it, or keep it \
         where modes can be changed",
        path = path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Somebody else owns the file that root is to obey.
    #[error(
        "{path}: it belongs to user {owner}, who could have root serve any file by it: look through it, and `chown root` it, or start the \
         server as that user",
        path = path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The file is not TOML, or has a field that is unknown or of the wrong kind.
    #[error("{origin}:{line}: {what}")]
    Parse {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A value that cannot be.
    #[error("{field}: {what}")]
    Value {
        /// The field, as in the file.
        field: String,
        /// What is wrong with it.
        what: String,
    },
}
