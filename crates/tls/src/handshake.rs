//! The handshake of either side, from the first byte to the keys of the records.

use std::fmt;

use diskside_nvme::auth::TlsPsk;

use crate::alert::Alert;
use crate::openssl::{Machine, Progress, Side, Unavailable};
use crate::schedule::Secrets;

/// A handshake under way. Any thread may carry it on.
pub struct Handshake {
    machine: Machine,
    /// Bytes that came so far.
    received: usize,
}

/// The result of some bytes from the other side.
#[derive(Debug)]
pub struct Step {
    /// The bytes to send to it.
    pub output: Vec<u8>,
    /// The channel, if it is made.
    pub done: Option<Done>,
}

/// A channel that has been made.
#[derive(Debug)]
pub struct Done {
    /// The keys of its records.
    pub secrets: Secrets,
    /// The bytes that the other side sent behind the handshake: the start of its records.
    pub rest: Vec<u8>,
}

/// Why no channel was made.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct HandshakeError {
    /// The reason of the failure.
    pub why: String,
    /// The reason that the other side gave, if it did.
    pub theirs: Option<Alert>,
    /// The bytes still to be sent to the other side: our reason.
    pub output: Vec<u8>,
}

/// Both sides say much less in a handshake, also with certificates.
const RECEIVED_LEN_MAX: usize = 64 << 10;

impl Handshake {
    /// The side that begins: [`step`](Self::step) with nothing gives its first words.
    pub fn host(psk: TlsPsk) -> Result<Self, Unavailable> {
        Machine::new(Side::Host, psk).map(|machine| Self { machine, received: 0 })
    }

    /// The side that answers, with the key that [`Hello::choose`](crate::Hello::choose) found. It is given all that the host
    /// sent.
    pub fn server(psk: TlsPsk) -> Result<Self, Unavailable> {
        Machine::new(Side::Server, psk).map(|machine| Self { machine, received: 0 })
    }

    /// Whether a server waits for nothing but the host's proof that it has the key. All that takes long is done then.
    pub fn awaits_proof(&self) -> bool {
        self.machine.has_answered()
    }

    /// Takes what came.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, HandshakeError> {
        self.received += input.len();
        let mut output = Vec::new();
        match self.machine.step(input, &mut output) {
            Progress::NeedsMore if self.received > RECEIVED_LEN_MAX => {
                Err(HandshakeError { why: "it says too much before the channel is made".into(), theirs: None, output })
            }
            Progress::NeedsMore => Ok(Step { output, done: None }),
            Progress::Done(secrets) => Ok(Step { output, done: Some(Done { secrets, rest: self.machine.rest() }) }),
            Progress::Failed { why, theirs } => Err(HandshakeError { why, theirs: theirs.map(Alert), output }),
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("received", &self.received).finish_non_exhaustive()
    }
}
