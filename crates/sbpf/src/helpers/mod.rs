//! Helpers: the functions that the host offers to programs, by name.
//!
//! A helper is data ([`Helper`]: name, typed signature, cost, effects) and a body. The list can be
//! read before anything is loaded. A name carries its version: a changed meaning is a new name.

mod access;
mod decompress;
mod file;
mod filter;
pub(crate) mod find;
mod fold;
mod hash;
pub mod heap;
mod memory;
pub(crate) mod regex;
mod table;
#[cfg(test)]
mod tests;
mod world;

pub use regex::check_regex;
pub use table::standard;
pub use world::LOG_LINE_BYTES_MAX;

use crate::machine::{Fault, Machine};

/// Index into a [`HelperSet`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HelperId(pub u16);

/// Type of a helper's parameter. `len` names the parameter (0 to 4) that holds the byte length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Param {
    /// A number.
    Scalar,
    /// Memory that the helper reads; the length is another parameter times `unit` bytes.
    Read {
        /// Which parameter holds the count.
        len: u8,
        /// Bytes per counted element.
        unit: u8,
    },
    /// Memory that the helper writes.
    Write {
        /// Which parameter holds the count.
        len: u8,
        /// Bytes per counted element.
        unit: u8,
    },
    /// Memory that the helper reads at an offset, nowhere past the first `boundary` bytes. Only what it
    /// reads has to be there.
    ReadWithin {
        /// Which parameter holds the boundary.
        boundary: u8,
    },
    /// As [`Self::ReadWithin`], for writing.
    WriteWithin {
        /// Which parameter holds the boundary.
        boundary: u8,
    },
    /// A structure of this many bytes that the helper reads.
    Struct(u8),
    /// A pointer whose validity the helper itself decides, such as that of `ds_free`.
    Pointer,
}

/// The result that a helper returns in `r0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Return {
    /// Nothing; `r0` is 0.
    Void,
    /// A number.
    Scalar,
    /// A pointer into the heap region, or NULL.
    Heap,
    /// The pointer passed as this parameter.
    Param(u8),
}

/// The effects of a call besides its result. Programs with any of these are not probed, retried, split
/// or moved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HelperEffects {
    /// Reads a clock.
    pub uses_clock: bool,
    /// Reads or writes files, or logs.
    pub does_io: bool,
    /// Works on the files of a program of kind `kernel`.
    pub uses_files: bool,
}

/// The cost of a call, as programs that choose between helpers want to know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HelperCost {
    /// One or two machine instructions in the program's own code; no budget.
    Inline,
    /// One unit of budget.
    Fixed,
    /// One unit of budget, and one for each 64 bytes that it handles.
    Linear,
}

impl HelperCost {
    /// Its name, as targets and the command line have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Fixed => "fixed",
            Self::Linear => "linear",
        }
    }
}

/// The body of a helper. Arguments are `r1` to `r5`; the result goes to `r0`.
pub type HelperFn = fn(&mut Machine, [u64; 5]) -> Result<u64, Fault>;

/// A helper.
#[derive(Clone, Copy)]
pub struct Helper {
    /// Name by which programs call it.
    pub name: &'static str,
    /// Version of its meaning, from 1: what means something else has another name as well (`ds_find2`).
    pub version: u16,
    /// The cost of a call.
    pub cost: HelperCost,
    /// C prototype, as in the header.
    pub prototype: &'static str,
    /// One line of help.
    pub doc: &'static str,
    /// Parameter types; shorter than five when it takes fewer.
    pub params: &'static [Param],
    /// Result type.
    pub ret: Return,
    /// Effects.
    pub effects: HelperEffects,
    /// Set for floating-point intrinsics: the tiers lower them inline, `body` is never called.
    pub float: Option<crate::ir::FloatOp>,
    /// Its body.
    pub body: HelperFn,
}

impl std::fmt::Debug for Helper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.prototype)
    }
}

/// The helpers of a host.
#[derive(Clone, Debug, Default)]
pub struct HelperSet {
    helpers: Vec<Helper>,
    by_name: std::collections::HashMap<&'static str, HelperId>,
}

impl HelperSet {
    /// A set with these helpers.
    ///
    /// # Panics
    /// If two have one name, or there are more than 65,536: the set is the program's own.
    #[must_use]
    pub fn new(helpers: Vec<Helper>) -> Self {
        let mut by_name = std::collections::HashMap::with_capacity(helpers.len());
        for (i, h) in helpers.iter().enumerate() {
            let id = HelperId(u16::try_from(i).expect("at most 65,536 helpers"));
            assert!(by_name.insert(h.name, id).is_none(), "two helpers are named {}", h.name);
        }
        Self { helpers, by_name }
    }

    /// The helper with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<HelperId> {
        self.by_name.get(name).copied()
    }

    /// A helper of this set.
    #[must_use]
    pub fn get(&self, id: HelperId) -> &Helper {
        &self.helpers[usize::from(id.0)]
    }

    /// All helpers, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Helper> {
        self.helpers.iter()
    }

    /// Names that differ little from `name`, nearest first: what the author may have meant.
    #[must_use]
    pub fn near(&self, name: &str) -> Vec<&'static str> {
        let mut all: Vec<_> = self.helpers.iter().map(|h| (distance(name, h.name), h.name)).collect();
        all.sort_unstable();
        all.into_iter().take_while(|(d, _)| *d <= 1 + name.len() / 3).take(3).map(|(_, n)| n).collect()
    }
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
