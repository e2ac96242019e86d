//! The purpose that files are opened for.

/// The purpose that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading.
    Read,
    /// Reading and writing; it must be there.
    Write,
    /// Reading and writing; it is made if it is not there.
    Create,
}

impl OpenMode {
    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }
}
