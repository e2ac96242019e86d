//! Who is told what hosts load and run.

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
        /// Of its object.
        sha256: [u8; 32],
        /// Bytes of its object.
        len: u64,
        /// Why not.
        refused: Option<&'a str>,
    },
    /// It ran one. Calls of prepared requests are not told one by one.
    Ran {
        /// Of its object.
        sha256: [u8; 32],
        /// Which of its functions.
        function: &'a str,
        /// Bytes that it read of media.
        bytes: u64,
        /// How long it computed.
        run_us: u64,
        /// Why it did not end well.
        failed: Option<&'a str>,
    },
}
