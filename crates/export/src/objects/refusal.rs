//! Why something is not done with an object.

use diskside_objects::StoreError;
use diskside_wire::file::FileOp;
use rustix::io::Errno;

use crate::reply::FileError;

/// Why something cannot be done with an object.
pub(crate) fn cannot(op: FileOp, name: &str) -> FileError {
    let changes = matches!(op, FileOp::Write | FileOp::Truncate | FileOp::Publish | FileOp::Create);
    let errno = if changes { Errno::ROFS } else { Errno::OPNOTSUPP };
    FileError::because(errno, format!("{op} {name}: it is an object of a store, which functions and hosts only read"))
}

/// What a store refuses.
pub(super) fn refused(error: &StoreError, what: impl std::fmt::Display) -> FileError {
    match error.errno {
        Errno::STALE => FileError::changed(&what.to_string()),
        errno => FileError::because(errno, format!("{what}: {error}")),
    }
}
