//! Arguments, results and columns of programs, by their types.

/// Most buffers of a call: each is a region of its own.
pub const COLUMN_BUFFERS_MAX: usize = 64;

/// Arguments described by the BTF type of parameter 4.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArgSchema {
    /// Name of the structure.
    pub name: String,
    /// Its size in bytes.
    pub len_bytes: u32,
    /// Its members, in order of offset.
    pub fields: Vec<ArgField>,
}

/// One argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArgField {
    /// Member name.
    pub name: String,
    /// Offset in bytes.
    pub offset: u32,
    /// Element type.
    pub ty: ArgType,
    /// Number of elements; 1 for a plain member, 0 for a flexible array at the end.
    pub count: u32,
    /// True for a member declared as an array.
    pub is_array: bool,
    /// Named values, where the type is an enumeration.
    pub values: Vec<(String, i64)>,
    /// Default from `btf_decl_tag("default:…")`.
    pub default: Option<String>,
    /// Smallest value from `btf_decl_tag("min:…")`.
    pub min: Option<i64>,
    /// Largest value from `btf_decl_tag("max:…")`.
    pub max: Option<i64>,
    /// One line of help from `btf_decl_tag("doc:…")`.
    pub doc: Option<String>,
    /// Whether it is the length of a record in bytes, from `btf_decl_tag("is:record_len")`.
    pub is_record_len: bool,
    /// Whether it is a regular expression for `ds_regex_find`, from `btf_decl_tag("is:regex")`.
    pub is_regex: bool,
    /// Whether it is a column of a table of text, by its number from 1 or its name, from `btf_decl_tag("is:column")`.
    pub is_column: bool,
    /// Whether it is the line with the names of the columns, from `btf_decl_tag("is:column_names")`: if it is absent, naming
    /// a column refers to the first line of the input.
    pub is_column_names: bool,
    /// Whether it is left out when a result is shown, from `btf_decl_tag("is:hidden")`.
    pub is_hidden: bool,
    /// Digits behind the point of a decimal, of which it holds all digits as an integer, from `btf_decl_tag("decimal:…")`.
    pub scale: Option<u8>,
}

/// Element type of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "named as in C headers")]
pub enum ArgType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    /// Bits of a float, from `btf_decl_tag("type:f32")`.
    F32,
    /// Bits of a double, from `btf_decl_tag("type:f64")`.
    F64,
    /// `char`: text when an array.
    Char,
    Bool,
}

impl ArgType {
    /// Size of one element.
    #[must_use]
    pub const fn len_bytes(self) -> u32 {
        match self {
            Self::U8 | Self::I8 | Self::Char | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// The columns of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ColumnSchema {
    /// Name of the structure.
    pub name: String,
    /// Its size in bytes.
    pub len_bytes: u32,
    /// Its members, in order of offset.
    pub fields: Vec<ColumnField>,
}

/// A member: the values of a column, or which of them are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColumnField {
    /// The name of the column.
    pub column: String,
    /// Offset in bytes.
    pub offset: u32,
    /// The part of the column that it has.
    pub kind: ColumnKind,
    /// Digits behind the point that the column must have, from `btf_decl_tag("decimal:…")`.
    pub scale: Option<u8>,
}

/// The part of a column that a member has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ColumnKind {
    /// A value for each row.
    Values(ArgType),
    /// A byte for each row: 1 where it has a value, 0 where it is NULL.
    Validity,
    /// Texts: where each begins, and their bytes.
    Text,
    /// The number of each row's text in a list of texts.
    Dictionary,
}

impl ColumnKind {
    pub(super) const POINTER_LEN: u32 = 8;

    /// Offsets of the pointers in the member, one for each buffer.
    #[must_use]
    pub const fn pointers(self) -> &'static [u32] {
        match self {
            Self::Values(_) | Self::Validity => &[0],
            Self::Text => &[0, 8],
            Self::Dictionary => &[0, 8, 16],
        }
    }

    /// Size of the member in bytes.
    pub(super) const fn len_bytes(self) -> u32 {
        match self {
            Self::Values(_) | Self::Validity => Self::POINTER_LEN,
            Self::Text => 2 * Self::POINTER_LEN,
            Self::Dictionary => 4 * Self::POINTER_LEN,
        }
    }
}

impl ColumnSchema {
    /// Offsets of all pointers, in the order of their buffers.
    pub fn pointers(&self) -> impl Iterator<Item = u32> {
        self.fields.iter().flat_map(|field| field.kind.pointers().iter().map(|at| field.offset + at))
    }

    /// The column that a buffer belongs to.
    #[must_use]
    pub fn column_of(&self, buffer: usize) -> Option<&str> {
        let columns = self.fields.iter().flat_map(|field| field.kind.pointers().iter().map(|_| field.column.as_str()));
        columns.into_iter().nth(buffer)
    }
}
