//! How a run ended, in a form that is the same wherever it ran.

use diskside::CallError;
use diskside::session::{FailureKind, Ran, SessionError};
use std::fmt;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a result.
    Gave(Gave),
    /// Without.
    Failed(Failed),
}

/// A result, and what is counted.
#[derive(Clone, PartialEq, Eq)]
pub struct Gave {
    /// The result.
    pub bytes: Vec<u8>,
    /// Bytes that the function was given.
    pub input_bytes: u64,
    /// Pieces on which it was called, where that is reported.
    pub pieces: Option<u64>,
    /// Iterations that it took.
    pub back_edges: u64,
    /// What a program of kind `delilah` returned.
    pub returned: Option<u64>,
    /// Lines that it logged.
    pub log: Vec<String>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What kind of failure.
    pub kind: FailureKind,
    /// Which bytes of the file the function was given.
    pub place: Option<(u32, u64, u64)>,
    /// The instruction that it was stopped at, and the class of the trap.
    pub trap: Option<(u32, u16)>,
    /// In words. Names of files are left out.
    pub text: String,
}

impl Ending {
    /// The ending of a run that was to write its result to `written`. `names` are those that errors may call the files.
    #[must_use]
    pub fn of(ran: Result<Ran, SessionError>, written: Option<Vec<u8>>, names: &[String]) -> Self {
        match ran {
            Ok(ran) => {
                let returned = ran.returned();
                let back_edges = ran.parts.iter().map(|part| part.back_edges).sum();
                let pieces = ran.parts.iter().map(|part| part.chunks).sum();
                let bytes = written.unwrap_or(ran.result);
                let input_bytes = ran.input_bytes;
                Self::Gave(Gave { bytes, input_bytes, pieces, back_edges, returned, log: ran.log.0 })
            }
            Err(error) => Self::Failed(Failed::of(&error, names)),
        }
    }

    /// Several threads log in whatever order they come to it.
    #[must_use]
    pub fn without_log(mut self) -> Self {
        if let Self::Gave(gave) = &mut self {
            gave.log.clear();
        }
        self
    }

    /// The first thing in which two differ; `None` if they are the same.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Self::Gave(one), Self::Gave(two)) => one.difference(two),
            (one, two) if one == two => None,
            (one, two) => Some(format!("{one}\n  instead of\n  {two}")),
        }
    }
}

impl Gave {
    fn difference(&self, other: &Self) -> Option<String> {
        if self.bytes != other.bytes {
            let equal = self.bytes.iter().zip(&other.bytes).take_while(|(a, b)| a == b).count();
            let near = |bytes: &[u8]| format!("{:02x?}", &bytes[equal..bytes.len().min(equal + 16)]);
            let (lens, found) = ((self.bytes.len(), other.bytes.len()), (near(&self.bytes), near(&other.bytes)));
            return Some(format!(
                "{} bytes instead of {}; from byte {equal} on {} instead of {}",
                lens.0, lens.1, found.0, found.1
            ));
        }
        let numbers = [
            ("bytes of input", Some(self.input_bytes), Some(other.input_bytes)),
            ("pieces", self.pieces.or(other.pieces), other.pieces.or(self.pieces)),
            ("iterations", Some(self.back_edges), Some(other.back_edges)),
            ("returned", self.returned, other.returned),
        ];
        let different = numbers.into_iter().find(|(_, one, two)| one != two);
        if let Some((what, one, two)) = different {
            return Some(format!("{what}: {one:?} instead of {two:?}"));
        }
        (self.log != other.log).then(|| format!("logged {:?} instead of {:?}", self.log, other.log))
    }
}

impl Failed {
    fn of(error: &SessionError, names: &[String]) -> Self {
        let (place, trap) = match error {
            SessionError::Call(CallError::Trapped { place, trap, .. }) => {
                (Some(place), Some((trap.insn, trap.kind as u16)))
            }
            SessionError::Call(CallError::Errno { place, .. } | CallError::OutputFull { place, .. }) => {
                (Some(place), None)
            }
            _ => (None, None),
        };
        let place = place.map(|place| (place.source_index, place.range.start, place.range.end));
        let (place, trap) = match error.function().and_then(|error| error.trailer()) {
            Some(trailer) => {
                let place = trailer.place.map(|place| (place.source_index, place.offset, place.offset + place.len));
                (place, (trailer.trap_kind != 0).then_some((trailer.insn, trailer.trap_kind)))
            }
            None => (place, trap),
        };
        Self { kind: error.kind(), place, trap, text: without_names(&error.to_string(), names) }
    }
}

/// Errors begin with the file's name, and at a target once more with the name that it has there.
fn without_names(text: &str, names: &[String]) -> String {
    let mut text = text.to_owned();
    for name in names {
        text = text.replace(name, "FILE");
    }
    while let Some(rest) = text.strip_prefix("FILE: ").filter(|rest| rest.starts_with("FILE")) {
        text = rest.to_owned();
    }
    text
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gave(gave) => write!(f, "{gave:?}"),
            Self::Failed(failed) => {
                write!(f, "{:?} at {:?}, trap {:?}: {}", failed.kind, failed.place, failed.trap, failed.text)
            }
        }
    }
}

impl fmt::Debug for Gave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.bytes[..self.bytes.len().min(24)];
        write!(f, "{} bytes {start:02x?} of {} bytes of input", self.bytes.len(), self.input_bytes)
    }
}
