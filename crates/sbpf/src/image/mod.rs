//! An image: what a compiled object holds, linked and laid out, before verification.
//!
//! All code sections follow one another in [`Image::code`]; an instruction's index there is
//! the `insn` of every diagnostic and trap. After linking
//! - `LDDW` of a data symbol holds its program-visible address ([`RegionId::RODATA`] or
//!   [`RegionId::DATA`]), with the slot's `src` cleared;
//! - a call of a program function has `src` 1 and `imm` relative to the next instruction;
//! - a call of a helper has `src` 0 and `imm` an index into [`Image::imports`];
//! - the address of a weak helper is 1 where the helper exists, else 0.
//!
//! [`RegionId::RODATA`]: crate::region::RegionId::RODATA
//! [`RegionId::DATA`]: crate::region::RegionId::DATA

mod args;
mod btf;
mod columns;
mod compat;
mod elf;
mod error;
mod functions;
mod input;
mod layout;
mod lines;
mod link;
mod load;
mod note;
mod schema;

pub use elf::{ALIGN_MAX, NAME_LEN_MAX, OBJECT_LEN_MAX, RELOCATIONS_MAX, SECTIONS_MAX, SYMBOLS_MAX};
pub use error::{ImageError, MissingSymbol, Place};
pub use functions::{FUNCTIONS_MAX, PROGRAMS_MAX};
pub use input::{InputElement, InputKind};
pub use layout::{CODE_SLOTS_MAX, DATA_LEN_MAX};
pub use load::LoadOptions;
pub use note::ABI_VERSION;
pub use schema::{ArgField, ArgSchema, ArgType, COLUMN_BUFFERS_MAX, ColumnField, ColumnKind, ColumnSchema};

use crate::helpers::HelperId;
use crate::insn::Slot;

/// A linked object with one or more programs.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Every instruction slot of every code section.
    pub code: Vec<Slot>,
    /// Functions, in the order of their first instruction; they cover `code` without overlap.
    pub functions: Vec<Function>,
    /// Programs, in the order of their sections.
    pub programs: Vec<Program>,
    /// Helpers that the code calls.
    pub imports: Vec<Import>,
    /// Bytes of the read-only data region.
    pub rodata: Vec<u8>,
    /// Initial bytes of the data region: `.data`, then zeros for `.bss`.
    pub data: Vec<u8>,
    /// Source positions, sorted by `insn`; each holds until the next.
    pub lines: Vec<SourceLine>,
    /// The requests of the `.diskside` note.
    pub note: Note,
    /// SHA-256 of the object's bytes: the name of the program, for anyone who has to trust it.
    pub sha256: [u8; 32],
    /// The first 64 bits of it, for tables whose entries are compared, and for people.
    pub content_hash: u64,
}

/// A function of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Symbol name.
    pub name: String,
    /// Index of the first slot in [`Image::code`].
    pub start: usize,
    /// One past the last slot.
    pub end: usize,
    /// Number of parameters by BTF, where known.
    pub params: Option<u8>,
}

/// An entry point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Name after the slash of the section (or the symbol's, where the section has none).
    pub name: String,
    /// Full section name.
    pub section: String,
    /// How it is called: by what, and with what.
    pub kind: Kind,
    /// Flags between the kind and the slash, such as `unordered`.
    pub flags: Vec<String>,
    /// Index into [`Image::functions`].
    pub function: usize,
    /// The schema of its arguments, from the BTF type of parameter 4.
    pub args: Option<ArgSchema>,
    /// The rows of its output, from the BTF type of parameter 1.
    pub result: Option<ArgSchema>,
    /// The elements of its input, from the BTF type of parameter 2; `None`: bytes.
    pub input: Option<InputElement>,
    /// The columns that it reads, from the BTF type of parameter 2, of a program of kind `columns`.
    pub columns: Option<ColumnSchema>,
}

/// Program kinds, chosen by section name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// `s64 f(void *out, const void *in, u64 in_len, const ARGS *args, const struct ds_call *call)`.
    Read,
    /// As `read`; its output goes to the medium.
    Write,
    /// `s64 f(void *acc, u64 acc_len, u64 acc_cap, const void *part, u64 part_len)`.
    Combine,
    /// `s64 f(OUT *out, const COLUMNS *in, u64 rows, const ARGS *args, const struct ds_call *call)`.
    Columns,
    /// `s64 f(struct ds_traverse *t)`.
    Traverse,
    /// `s64 f(struct ds_kernel *k, const ARGS *args, OUT *result)`.
    Kernel,
    /// `s64 f(struct ds_exec *x)`.
    Exec,
    /// lambda-IO's plain form: `ssize_t f(void *out, void *in, size_t len)`.
    Lambda,
    /// lambda-IO's context form: `int f(struct context *)`.
    LambdaIo,
    /// XRP and BPF-oF: `unsigned f(struct bpf_xrp *)`.
    Xrp,
    /// Delilah: `u64 f(void *data, u64 len, void *state, u64 state_len)`.
    Delilah,
    /// Raw code without a contract: `r1` is the input's address, `r2` its length, input writable.
    /// For conformance suites and tests; no section name chooses it.
    Raw,
}

impl Kind {
    /// The kind that a section's prefix names.
    #[must_use]
    pub fn from_section_prefix(prefix: &str) -> Option<Self> {
        Some(match prefix {
            "read" => Self::Read,
            "write" => Self::Write,
            "combine" => Self::Combine,
            "columns" => Self::Columns,
            "traverse" => Self::Traverse,
            "kernel" => Self::Kernel,
            "exec" => Self::Exec,
            "lambda" => Self::Lambda,
            "lambda_io" => Self::LambdaIo,
            "xrp" => Self::Xrp,
            "delilah" => Self::Delilah,
            _ => return None,
        })
    }

    /// The section prefix, also the name in docs and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Combine => "combine",
            Self::Columns => "columns",
            Self::Traverse => "traverse",
            Self::Kernel => "kernel",
            Self::Exec => "exec",
            Self::Lambda => "lambda",
            Self::LambdaIo => "lambda_io",
            Self::Xrp => "xrp",
            Self::Delilah => "delilah",
            Self::Raw => "raw",
        }
    }
}

/// A helper that the code calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// Its name; the name carries the version (`ds_find2`).
    pub name: String,
    /// True when the symbol is weak: absence is not an error, its address is 0.
    pub weak: bool,
    /// The helper that it resolved to; `None` only for an absent weak helper.
    pub helper: Option<HelperId>,
}

/// A source position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// First instruction slot that it covers.
    pub insn: usize,
    /// File name as the compiler recorded it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub column: u32,
    /// The line's text, trimmed; may be empty.
    pub text: String,
}

/// The `.diskside` note (all fields optional in the object).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Version of the program ABI.
    pub abi_version: u32,
    /// Bytes of a stack frame; a multiple of 64, at most [`Note::STACK_BYTES_MAX`].
    pub stack_bytes: u32,
    /// Output capacity: `in_len * out_ratio.0 / out_ratio.1 + out_constant`.
    pub out_ratio: (u32, u32),
    /// See `out_ratio`.
    pub out_constant: u64,
    /// Where records begin and end; `None` when the object does not say.
    pub split: Option<Split>,
    /// A piece holds a multiple of this many records.
    pub piece_records: u32,
    /// Whether outputs of pieces follow one another.
    pub concatenates: bool,
    /// Whether the output of a program of kind `columns` says of each row whether it is selected.
    pub selects: bool,
    /// The kind of programs whose section names none.
    pub kind: Option<Kind>,
    /// What its author knows of its cost.
    pub cost: Option<CostHints>,
}

/// What the author of an object knows of its cost. It is used where nothing is measured yet, and is never part of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostHints {
    /// Bytes of output for 1,000 bytes of input, when outputs are folded.
    pub output_permille: u32,
    /// Times that it goes through its input.
    pub passes: u32,
    /// Whether it accesses memory anywhere, and more of it than fits into a cache.
    pub scattered: bool,
}

impl CostHints {
    /// The most output.
    pub const OUTPUT_PERMILLE_MAX: u32 = 1_000_000;
    /// The most passes.
    pub const PASSES_MAX: u32 = 1000;
}

impl Note {
    /// Largest frame.
    pub const STACK_BYTES_MAX: u32 = 1 << 20;
    /// The frame that eBPF defines.
    pub const STACK_BYTES_DEFAULT: u32 = 512;
    /// Most records that a piece can be asked to hold a multiple of.
    pub const PIECE_RECORDS_MAX: u32 = 65_536;
}

impl Default for Note {
    fn default() -> Self {
        Self {
            abi_version: 1,
            stack_bytes: Self::STACK_BYTES_DEFAULT,
            out_ratio: (1, 1),
            out_constant: 4096,
            split: None,
            piece_records: 1,
            concatenates: false,
            selects: false,
            kind: None,
            cost: None,
        }
    }
}

/// Where input may be cut: between records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Split {
    /// Nowhere. No object declares it: a function that says nothing runs once.
    Whole,
    /// Between any two bytes.
    Bytes,
    /// At multiples of a record of this many bytes.
    Fixed(u32),
    /// After this delimiter byte.
    Delimiter(u8),
}

impl Image {
    /// Code without an object file: one function, one program.
    ///
    /// Calls of helpers must already be import indices into `imports`.
    #[must_use]
    pub fn from_code(name: &str, kind: Kind, code: Vec<Slot>, imports: Vec<Import>) -> Self {
        let end = code.len();
        Self {
            code,
            functions: vec![Function { name: name.to_owned(), start: 0, end, params: None }],
            programs: vec![Program {
                name: name.to_owned(),
                section: format!("{}/{name}", kind.name()),
                kind,
                flags: Vec::new(),
                function: 0,
                args: None,
                result: None,
                input: None,
                columns: None,
            }],
            imports,
            ..Self::default()
        }
    }

    /// The source position of an instruction, where the object has line information.
    #[must_use]
    pub fn line_of(&self, insn: usize) -> Option<&SourceLine> {
        let i = self.lines.partition_point(|l| l.insn <= insn);
        let line = &self.lines[i.checked_sub(1)?];
        // A position does not reach into the next function.
        let function = self.functions.get(self.functions.partition_point(|f| f.end <= insn))?;
        (line.insn >= function.start).then_some(line)
    }

    /// The program with this name; of two with one name, the first that is not a `combine`.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<usize> {
        let named = |p: &&(usize, &Program)| p.1.name == name;
        let all: Vec<_> = self.programs.iter().enumerate().collect();
        all.iter().filter(named).find(|p| p.1.kind != Kind::Combine).or_else(|| all.iter().find(named)).map(|p| p.0)
    }
}
