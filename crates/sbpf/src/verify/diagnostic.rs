//! What the verifier says: class, reason, place, path and suggestion, under a stable code.

use std::fmt;

/// Whether a program is wrong, or merely more than this product takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Malformed or able to do harm.
    Unsafe,
    /// Well-formed, but uses what this product leaves out (eBPF maps, packet access).
    Unsupported,
    /// Asks for something that is not here (a helper, a version).
    Missing,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Stable code, such as `V0301`.
    pub code: &'static str,
    /// Its class.
    pub class: Class,
    /// What is wrong, in a sentence without a full stop.
    pub reason: String,
    /// Instruction slot in the image's code, where one is to blame.
    pub insn: Option<usize>,
    /// Source position, `file:line: text`, where known.
    pub source: Option<String>,
    /// How control came there: instruction slots of the block heads.
    pub path: Vec<usize>,
    /// What to do about it.
    pub suggestion: String,
}

/// What `diskside explain` prints for a code.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// The code.
    pub code: &'static str,
    /// One line.
    pub title: &'static str,
    /// A few sentences, with an example.
    pub text: &'static str,
}

/// The explanation of a code.
#[must_use]
pub fn explain(code: &str) -> Option<&'static Explanation> {
    let _ = code;
    None
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}
