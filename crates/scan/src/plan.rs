//! What a scan does.

/// How deep expressions may be: what evaluates them calls itself.
pub(crate) const DEPTH_MAX: usize = 64;
/// The most rows that go out sorted.
pub const ORDERED_ROWS_MAX: u64 = 64 << 10;
/// The most columns that rows are grouped by.
pub const GROUP_KEYS_MAX: usize = 8;
/// The most bytes of the object of a function.
pub const OBJECT_LEN_MAX: usize = 256 << 10;
/// The most bytes of its arguments.
pub const ARGS_LEN_MAX: usize = 64 << 10;
/// The most bytes of its name.
pub(crate) const NAME_LEN_MAX: usize = 255;

/// A scan of one file. Columns are named: which types they have is known when the file is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What the file is.
    pub format: Format,
    /// Types of columns of a text file that are not what its values look like.
    pub types: Vec<(String, ColumnType)>,
    /// Which row groups.
    pub part: Part,
    /// Columns that go out, in this order; none: all of the file. With aggregates there are none: see [`Plan::by`].
    pub columns: Vec<String>,
    /// Rows for which this is true go out.
    pub filter: Option<Expression>,
    /// What goes out instead of rows.
    pub aggregates: Vec<Aggregate>,
    /// Columns that rows are grouped by, at most [`GROUP_KEYS_MAX`]; they go out before the aggregates.
    pub by: Vec<String>,
    /// Columns of the result that its rows are sorted by, the first one first. It needs a limit, at most [`ORDERED_ROWS_MAX`].
    pub order: Vec<Order>,
    /// The most rows that go out.
    pub limit: Option<u64>,
    /// The most that a result that travels is compressed. A scan on the host does not compress its result, a session has none compressed
    /// by a server on a fast link, and a server none that its first rows show to be hardly shorter then.
    pub compression: Compression,
    /// A function over the columns of the rows that the filter takes.
    pub function: Option<Box<ColumnFunction>>,
}

/// A function of kind `columns`. It selects rows, for what the rest of the plan does with them, or its output goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFunction {
    /// The eBPF object that holds it.
    pub object: Vec<u8>,
    /// Its name; empty: the object holds no other.
    pub name: String,
    /// Its arguments, as it sees them.
    pub args: Vec<u8>,
    /// What it gives.
    pub gives: Gives,
}

/// What a function over columns gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// It selects rows.
    Rows,
    /// A result of its own goes out: structures as rows.
    Result,
    /// Its folded outputs go out as one value, to be folded with those over other files.
    Partial,
}

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Its first and last bytes show it, or the name of a text file: `.csv`, `.tsv`, `.jsonl`, `.ndjson`.
    #[default]
    Auto,
    /// Parquet.
    Parquet,
    /// An Arrow IPC file or stream.
    Arrow,
    /// Values with a delimiter between them, a row a line, quoted by `"` where they have to be (RFC 4180).
    Csv {
        /// What is between values.
        delimiter: u8,
        /// Whether the first line has the names of the columns.
        has_header: bool,
    },
    /// A JSON object a line.
    JsonLines,
}

impl Format {
    /// The format of a text file, by the end of its name; `None`: its name says nothing.
    #[must_use]
    pub fn of_text(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match &extension.to_ascii_lowercase()[..] {
            "csv" => Some(Self::Csv { delimiter: b',', has_header: true }),
            "tsv" => Some(Self::Csv { delimiter: b'\t', has_header: true }),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// The type of a column of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// True or false.
    Boolean,
    /// A whole number of 64 bits.
    Integer,
    /// A floating-point number of 64 bits.
    Float,
    /// A number with so many digits, some of them behind the point.
    Decimal {
        /// All digits, 1 to 38.
        precision: u8,
        /// Those behind the point.
        scale: u8,
    },
    /// A day.
    Date,
    /// Microseconds, on a clock without a zone.
    Timestamp,
    /// A text.
    Text,
}

/// A column that rows are sorted by. NULL comes last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its name in the result.
    pub column: String,
    /// Whether the greatest come first.
    pub is_descending: bool,
}

/// Row groups of a file, from `first` on: of an Arrow file its record batches, of a stream or a text file pieces of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first one.
    pub first: u32,
    /// How many; more than there are means all.
    pub count: u32,
}

impl Default for Part {
    fn default() -> Self {
        Self { first: 0, count: u32::MAX }
    }
}

/// How the buffers of the result are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4 frames.
    Lz4,
}

impl Compression {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }
}

/// One value of all rows, or of all rows of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// Which.
    pub kind: AggregateKind,
    /// Its input; `None`: rows are counted.
    pub input: Option<Expression>,
    /// The name of its column.
    pub name: String,
}

/// Which value. NULL is left out of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateKind {
    /// How many.
    Count,
    /// Their sum; NULL of none.
    Sum,
    /// The smallest; NULL of none.
    Min,
    /// The greatest; NULL of none.
    Max,
    /// Their mean, a floating-point number; NULL of none.
    Avg,
}

/// A value of each row. Conditions know three values: true, false, and NULL where it cannot be known.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A column by its name.
    Column(String),
    /// The same value for all rows.
    Literal(Literal),
    /// Two values compared.
    Compare(Comparison, Box<Self>, Box<Self>),
    /// All of them are true.
    And(Vec<Self>),
    /// One of them is true.
    Or(Vec<Self>),
    /// It is false.
    Not(Box<Self>),
    /// A value is among these.
    In(Box<Self>, Vec<Literal>),
    /// A value is NULL.
    IsNull(Box<Self>),
    /// A text is like a pattern, in which `%` is any text, `_` any character, and `\` takes the next one for what it is.
    Like(Box<Self>, String),
    /// Two numbers.
    Arithmetic(Arithmetic, Box<Self>, Box<Self>),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What is done with two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// It is not known.
    Null,
    /// True or false.
    Boolean(bool),
    /// `digits / 10^scale`, exactly; scale is at most 37.
    Number {
        /// All its digits.
        digits: i128,
        /// How many of them are behind the point.
        scale: u8,
    },
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
    /// A day, counted from 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01T00:00:00 UTC, or on a clock without a zone.
    Timestamp(i64),
}

impl Plan {
    /// The conditions that all have to be true.
    pub fn conjuncts(&self) -> &[Expression] {
        match &self.filter {
            None => &[],
            Some(Expression::And(all)) => all,
            Some(one) => std::slice::from_ref(one),
        }
    }

    /// Whether a function gives its result instead of rows.
    #[must_use]
    pub fn gives_result(&self) -> bool {
        self.function.as_ref().is_some_and(|function| function.gives != Gives::Rows)
    }

    /// Whether it gives sums instead of rows.
    #[must_use]
    pub fn aggregates(&self) -> bool {
        !self.aggregates.is_empty() || !self.by.is_empty()
    }

    /// The columns that rows are grouped by, and that neither the filter nor an aggregate names.
    #[must_use]
    pub fn only_keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.by.iter().map(String::as_str).collect();
        let named = self.filter.iter().chain(self.aggregates.iter().filter_map(|aggregate| aggregate.input.as_ref()));
        named.for_each(|expression| expression.columns(&mut |name| keys.retain(|key| *key != name)));
        keys
    }
}

impl Expression {
    /// Calls `found` with each column that it names.
    pub fn columns<'a>(&'a self, found: &mut dyn FnMut(&'a str)) {
        match self {
            Self::Column(name) => found(name),
            Self::Literal(_) => {}
            Self::And(all) | Self::Or(all) => all.iter().for_each(|one| one.columns(found)),
            Self::Not(one) | Self::In(one, _) | Self::IsNull(one) | Self::Like(one, _) => one.columns(found),
            Self::Compare(_, left, right) | Self::Arithmetic(_, left, right) => {
                left.columns(found);
                right.columns(found);
            }
        }
    }
}

impl Expression {
    /// How many expressions are within each other at most, this one counted.
    pub(crate) fn depth(&self) -> usize {
        let of = |all: &[Self]| all.iter().map(Self::depth).max().unwrap_or(0);
        1 + match self {
            Self::Column(_) | Self::Literal(_) => 0,
            Self::And(all) | Self::Or(all) => of(all),
            Self::Not(one) | Self::In(one, _) | Self::IsNull(one) | Self::Like(one, _) => one.depth(),
            Self::Compare(_, left, right) | Self::Arithmetic(_, left, right) => left.depth().max(right.depth()),
        }
    }
}

impl ColumnType {
    /// A decimal; `None`: it has more than 38 digits, none, or more behind the point than in all.
    #[must_use]
    pub fn decimal(precision: u8, scale: u8) -> Option<Self> {
        ((1..=38).contains(&precision) && scale <= precision).then_some(Self::Decimal { precision, scale })
    }
}

impl Comparison {
    /// The same with its sides exchanged.
    #[must_use]
    pub fn flipped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_text_files_say_their_formats() {
        let csv = |delimiter| Some(Format::Csv { delimiter, has_header: true });
        for (name, format) in [
            ("a.csv", csv(b',')),
            ("dir.tsv/a.CSV", csv(b',')),
            ("a.b.tsv", csv(b'\t')),
            (".jsonl", Some(Format::JsonLines)),
            ("a.NdJson", Some(Format::JsonLines)),
            ("csv", None),
            ("a.csv.gz", None),
            ("a.parquet", None),
            ("a.json", None),
            ("a.", None),
        ] {
            assert_eq!(Format::of_text(name), format, "{name}");
        }
    }
}
