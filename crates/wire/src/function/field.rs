//! Errors in the bytes of a peer.

/// A field that cannot be as it is. The answer to the command is Invalid Field, and the error log names the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {problem}")]
pub struct FieldError {
    /// Where in the data.
    pub offset: u32,
    /// The error.
    pub problem: &'static str,
}

impl FieldError {
    /// An error of the field at this byte.
    pub const fn new(offset: usize, problem: &'static str) -> Self {
        Self { offset: offset as u32, problem }
    }
}
