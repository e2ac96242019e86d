//! Why an object could not become an image.

use super::Kind;
use std::fmt;

/// The problem with an object, its place, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A stated limit is exceeded.
    #[error("{what} is {value}, above the limit of {limit}; make the object smaller")]
    Limit {
        /// The thing counted, with its unit.
        what: &'static str,
        /// The amount there is.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes are not an ELF file, or are a damaged one.
    #[error("malformed ELF object: {what}; compile it again, or check that it was copied whole")]
    Elf {
        /// The problem.
        what: String,
    },
    /// Compiled for big-endian eBPF.
    #[error("the object is big-endian eBPF; compile it with `-target bpf` or `-target bpfel`")]
    BigEndian,
    /// Compiled for something other than eBPF.
    #[error(
        "the object is for ELF machine {machine}, not for eBPF (247); \
         compile it with `clang -target bpf -c`"
    )]
    Machine {
        /// `e_machine` of the file header.
        machine: u16,
    },
    /// An executable or shared library.
    #[error(
        "ELF file type {file_type} is not supported: only relocatable objects are; \
         load the `.o` that `clang -target bpf -c` writes"
    )]
    FileType {
        /// `e_type` of the file header.
        file_type: u16,
    },
    /// Raw code that is not a whole number of instruction slots, or has none at all.
    #[error(
        "raw eBPF code of {len_bytes} bytes: the length must be a positive multiple of 8; \
         check that the file was copied whole"
    )]
    RawLength {
        /// Length of the code.
        len_bytes: usize,
    },
    /// A section that is damaged.
    #[error("section `{section}`: {what}; compile the object again")]
    Section {
        /// Its name.
        section: String,
        /// The problem.
        what: String,
    },
    /// A well-formed section that this product leaves out.
    #[error("section `{section}` is not supported: {what}")]
    UnsupportedSection {
        /// Its name.
        section: String,
        /// Why, and what to do instead.
        what: &'static str,
    },
    /// eBPF maps.
    #[error(
        "eBPF maps are not supported: {} in section `{section}`; \
         keep state in global variables, or in the state region between calls",
        Names(names)
    )]
    Map {
        /// The maps.
        names: Vec<String>,
        /// The section that holds them.
        section: String,
    },
    /// A symbol that is damaged.
    #[error("symbol `{symbol}` of section `{section}`: {what}; compile the object again")]
    Symbol {
        /// Its name.
        symbol: String,
        /// Where it is defined.
        section: String,
        /// The problem.
        what: String,
    },
    /// A relocation that is damaged or makes no sense.
    #[error("relocation at {place}: {what}; compile the object again")]
    Relocation {
        /// Where it applies.
        place: Place,
        /// The problem.
        what: String,
    },
    /// A well-formed relocation that this product leaves out.
    #[error("{place}: {what} is not supported; {instead}")]
    UnsupportedRelocation {
        /// Where it applies.
        place: Place,
        /// The feature that the code asks for.
        what: &'static str,
        /// The advice: what to do instead.
        instead: &'static str,
    },
    /// A column of a program of kind `columns` that none can have.
    #[error("columns/{program}: {}{what}", member_of(.field))]
    Column {
        /// The program.
        program: String,
        /// The member of its structure; empty: there is none.
        field: String,
        /// The problem.
        what: String,
    },
    /// Symbols without a definition.
    #[error("{}", MissingList(symbols))]
    Missing {
        /// All of them, in order of first use.
        symbols: Vec<MissingSymbol>,
    },
    /// A helper is declared otherwise than it is.
    #[error(
        "helper `{helper}` is declared with {what}, but this host offers `{prototype}`; \
         include the header that belongs to this version"
    )]
    Signature {
        /// The helper.
        helper: String,
        /// The difference.
        what: String,
        /// Its prototype here.
        prototype: String,
    },
    /// A call by number where helpers are called by name.
    #[error(
        "{place}: call of helper number {number}; helpers are called by name here \
         (numbers have a meaning for `--kind lambda_io` only, 156 to 162)"
    )]
    NumericCall {
        /// The call.
        place: Place,
        /// The number.
        number: i32,
    },
    /// A call to a place that is not a function.
    #[error("{place}: {what}; compile the object again")]
    CallTarget {
        /// The call.
        place: Place,
        /// The problem with its target.
        what: String,
    },
    /// A code section whose name chooses no kind.
    #[error(
        "section `{section}`: {what}; name it `<kind>/<name>` with a kind out of read, write, \
         combine, columns, traverse, kernel, exec, lambda, lambda_io, xrp, delilah, \
         or choose one with `--kind`"
    )]
    SectionName {
        /// The section.
        section: String,
        /// The problem with it.
        what: String,
    },
    /// Nothing in the object can be called.
    #[error(
        "the object holds no program; mark its entry point with `SEC(\"read/<name>\")` \
         or choose a kind with `--kind`"
    )]
    NoProgram,
    /// Two programs that cannot be told apart.
    #[error("two `{}` programs are named `{name}`; rename one", kind.name())]
    DuplicateProgram {
        /// Their kind.
        kind: Kind,
        /// Their name.
        name: String,
    },
    /// Type or line information that is damaged.
    #[error("section `{section}` at offset {offset:#x}: {what}; compile the object again")]
    Debug {
        /// `.BTF` or `.BTF.ext`.
        section: &'static str,
        /// Offset in the section.
        offset: usize,
        /// The problem.
        what: &'static str,
    },
    /// An argument structure that cannot be a schema.
    #[error("argument `{field}` of program `{program}`: {what}")]
    Argument {
        /// The program.
        program: String,
        /// The member, with those that contain it.
        field: String,
        /// The problem, and what to do instead.
        what: String,
    },
    /// A `.diskside` note that is damaged or out of range.
    #[error("section `.diskside` at offset {offset:#x}: {what}")]
    Note {
        /// Offset in the section.
        offset: usize,
        /// The problem, and what to do instead.
        what: String,
    },
    /// A `.diskside` note for a later version of the program ABI.
    #[error(
        "the object asks for version {version} of the program ABI, this host has {supported}; \
         compile it with the header of this host"
    )]
    AbiVersion {
        /// The version in the note.
        version: u32,
        /// The newest version known here.
        supported: u32,
    },
}

impl ImageError {
    /// True for a well-formed object that uses what this product leaves out, false for a damaged one.
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::BigEndian
                | Self::Machine { .. }
                | Self::FileType { .. }
                | Self::UnsupportedSection { .. }
                | Self::Map { .. }
                | Self::UnsupportedRelocation { .. }
                | Self::AbiVersion { .. }
        )
    }

    pub(super) fn elf(what: impl Into<String>) -> Self {
        Self::Elf { what: what.into() }
    }

    pub(super) fn section(section: &str, what: impl Into<String>) -> Self {
        Self::Section { section: section.to_owned(), what: what.into() }
    }
}

/// A position in a section of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The section.
    pub section: String,
    /// Offset in bytes.
    pub offset: u64,
    /// The symbol that is referred to; empty when there is none.
    pub symbol: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`+{:#x}", self.section, self.offset)?;
        if self.symbol.is_empty() {
            return Ok(());
        }
        write!(f, " (symbol `{}`)", self.symbol)
    }
}

/// A symbol without a definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingSymbol {
    /// Its name.
    pub name: String,
    /// Helpers with names like it.
    pub near: Vec<String>,
    /// Its first use.
    pub place: Place,
}

const LISTED_MAX: usize = 16;

struct MissingList<'a>(&'a [MissingSymbol]);

impl fmt::Display for MissingList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("neither the object nor this host defines ")?;
        for (i, s) in self.0.iter().take(LISTED_MAX).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}`{}` (used at `{}`+{:#x}", s.name, s.place.section, s.place.offset)?;
            if !s.near.is_empty() {
                write!(f, "; did you mean {}?", s.near.join(", "))?;
            }
            f.write_str(")")?;
        }
        if self.0.len() > LISTED_MAX {
            write!(f, " and {} more", self.0.len() - LISTED_MAX)?;
        }
        f.write_str("; define it, or declare it weak and test its address before the call")
    }
}

/// The member that a problem is about, where there is one.
fn member_of(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("column `{field}`: ") }
}

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().take(LISTED_MAX).enumerate() {
            write!(f, "{}`{name}`", if i == 0 { "" } else { ", " })?;
        }
        if self.0.len() > LISTED_MAX {
            write!(f, " and {} more", self.0.len() - LISTED_MAX)?;
        }
        Ok(())
    }
}
