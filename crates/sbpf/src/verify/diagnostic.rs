//! The verifier's messages: class, reason, place, path and suggestion, under a stable code.

use crate::disasm::disassemble;
use crate::image::Image;
use crate::insn::{CallTarget, Insn, decode};
use std::fmt::{self, Write};

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
    /// The problem, in a sentence without a full stop.
    pub reason: String,
    /// Instruction slot in the image's code, where one is to blame.
    pub insn: Option<usize>,
    /// Source position, `file:line: text`, where known.
    pub source: Option<String>,
    /// How control came there: instruction slots of the block heads.
    pub path: Vec<usize>,
    /// The advice: what to do about it.
    pub suggestion: String,
}

/// A path longer than this is shown by its ends.
const PATH_SHOWN_MAX: usize = 9;

impl Diagnostic {
    /// The finding on several lines, for people.
    ///
    /// ```text
    /// V0301 unsafe
    ///   reason:     r3 is read before it is set
    ///   at:         instruction 5 of `main`: add %r0, %r3
    ///               sum.bpf.c:12: total += x;
    ///   path:       0 -> 3 -> 5
    ///   suggestion: set the register on every path; in C, initialise the variable
    /// ```
    #[must_use]
    pub fn render(&self, image: &Image) -> String {
        let mut out = format!("{} {}\n", self.code, self.class);
        let mut line = |name: &str, text: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "  {name:<11} {text}");
        };
        line("reason:", &self.reason);
        if let Some(insn) = self.insn {
            line("at:", &place(image, insn));
        }
        if let Some(source) = &self.source {
            line(if self.insn.is_some() { "" } else { "at:" }, source);
        }
        if self.path.len() > 1 {
            line("path:", &path(&self.path));
        }
        line("suggestion:", &self.suggestion);
        out
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsafe => "unsafe",
            Self::Unsupported => "unsupported",
            Self::Missing => "missing",
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for Diagnostic {}

fn place(image: &Image, insn: usize) -> String {
    let function = image.functions.iter().find(|f| (f.start..f.end).contains(&insn));
    let mut out = format!("instruction {insn}");
    if let Some(f) = function {
        let _ = write!(out, " of `{}`", f.name);
    }
    let end = function.map_or(image.code.len(), |f| f.end);
    let Some(slots) = image.code.get(insn..end.min(insn + 2)) else {
        return out;
    };
    let import = match decode(slots) {
        Ok(Insn::Call { target: CallTarget::Helper(n) }) => image.imports.get(n as usize),
        _ => None,
    };
    match import {
        Some(import) => {
            let _ = write!(out, ": call helper {}", import.name);
        }
        None => {
            if let Some(line) = disassemble(slots).first() {
                let _ = write!(out, ": {}", line.text);
            }
        }
    }
    out
}

fn path(heads: &[usize]) -> String {
    let join = |part: &[usize]| {
        let all: Vec<String> = part.iter().map(usize::to_string).collect();
        all.join(" -> ")
    };
    if heads.len() <= PATH_SHOWN_MAX {
        return join(heads);
    }
    let half = PATH_SHOWN_MAX / 2;
    format!("{} -> ({} blocks) -> {}", join(&heads[..half]), heads.len() - 2 * half, join(&heads[heads.len() - half..]))
}
