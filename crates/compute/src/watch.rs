//! The interface of those who hear what hosts load and run.

use std::fmt;

/// Is told what hosts load and run. It must not wait.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Whether it wants to know: else nothing is put together for it.
    fn wants(&self) -> bool;

    /// A host loaded a program, or ran one.
    fn program(&self, host: &str, event: ProgramEvent<'_>);
}

/// What a host did with a program.
#[derive(Clone, Copy, Debug)]
pub enum ProgramEvent<'a> {
    /// It loaded one of so many bytes, or was refused.
    Loaded {
        /// Of its object; `None`: it was refused before all of it came.
        sha256: Option<[u8; 32]>,
        /// Bytes of its object.
        len: u64,
        /// Why not.
        refused: Option<&'a str>,
    },
    /// It ran one.
    Ran {
        /// Of its object.
        sha256: [u8; 32],
        /// Which of its functions.
        function: &'a str,
        /// The number of calls of a prepared request, which are reported together; `None`: one call.
        calls: Option<u64>,
        /// Bytes that it read of media, or of memory ranges.
        bytes: u64,
        /// How long it computed.
        run_us: u64,
        /// Why it did not end well, or the last of them that did not.
        failed: Option<&'a str>,
    },
}
