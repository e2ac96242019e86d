//! Tables of RocksDB as the functions `sst_get` and `sst_facts` see them (`functions/sst.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most tables of one lookup.
pub const TABLES_MAX: usize = 16;
/// Bytes of the longest key that is looked up.
pub const KEY_LEN_MAX: usize = 1024;
/// The snapshot to which every version is visible.
pub const LATEST: u64 = (1 << 56) - 1;

/// Bytes in front of the tables of a request.
const REQUEST_LEN: usize = 16;
/// Bytes in front of the value of an answer.
const ANSWER_LEN: usize = 24;
/// Bytes that the functions keep for themselves behind a request.
const SEARCH_LEN: usize = 40 + KEY_LEN_MAX + 8;
const KEY_IS_LAST: u8 = 32;
const FACTS_LEN: usize = size_of::<TableFacts>();

/// The record of a table: its length, or everything that a lookup needs.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TableFacts {
    len: u64,
    index_offset: u64,
    index_len: u32,
    context: u32,
    checksum: u8,
    flags: u8,
    reason: u16,
    dict_len: u32,
    dict_offset: u64,
    ranges_offset: u64,
    ranges_len: u32,
    reserved: u32,
}

const _: () = assert!(FACTS_LEN == 56, "functions/sst.h");

/// Why a lookup cannot be decided at the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Unsupported {
    /// Lengths or offsets in the table that cannot be.
    Malformed,
    /// The file does not end as a table does.
    NotATable,
    /// A format version before 2 or after 7.
    Version,
    /// Blocks without checksums, or with ones that are not known.
    ChecksumKind,
    /// Bytes that are not those that were written.
    Checksum,
    /// A block that is compressed by something else than Snappy, LZ4 and zstd.
    Compression,
    /// Keys that are not ordered by their bytes.
    Comparator,
    /// An index that is not known.
    IndexKind,
    /// The table has more than 1,024 range deletions.
    RangeDeletions,
    /// An ingested table, and a snapshot.
    Ingested,
    /// A block that keeps keys and values apart.
    Apart,
    /// The newest version is an operand of a merge.
    Merge,
    /// The value is in a blob file.
    Blob,
    /// The value is an entity of columns.
    Columns,
    /// A record that is not known.
    RecordKind,
    /// A key longer than [`KEY_LEN_MAX`].
    LongKey,
    /// A block longer than 1 MiB, as it is stored or decompressed.
    LongBlock,
    /// A value of so many bytes, for which there was no room.
    LongValue(u32),
    /// A range deletion covers the key, which is the last one of its table: it may end before it.
    RangeEdge,
    /// Something that a newer function says.
    Unknown(u32),
}

impl Unsupported {
    fn of(reason: u32, value_len: u32) -> Self {
        match reason {
            1 => Self::Malformed,
            2 => Self::NotATable,
            3 => Self::Version,
            4 => Self::ChecksumKind,
            5 => Self::Checksum,
            6 => Self::Compression,
            7 => Self::Comparator,
            8 => Self::IndexKind,
            9 => Self::RangeDeletions,
            10 => Self::Ingested,
            11 => Self::Apart,
            12 => Self::Merge,
            13 => Self::Blob,
            14 => Self::Columns,
            15 => Self::RecordKind,
            16 => Self::LongKey,
            17 => Self::LongBlock,
            18 => Self::LongValue(value_len),
            19 => Self::RangeEdge,
            other => Self::Unknown(other),
        }
    }

    /// A short name for counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotATable => "not-a-table",
            Self::Version => "version",
            Self::ChecksumKind => "checksum-kind",
            Self::Checksum => "checksum",
            Self::Compression => "compression",
            Self::Comparator => "comparator",
            Self::IndexKind => "index-kind",
            Self::RangeDeletions => "range-deletions",
            Self::Ingested => "ingested",
            Self::Apart => "apart",
            Self::Merge => "merge",
            Self::Blob => "blob",
            Self::Columns => "columns",
            Self::RecordKind => "record-kind",
            Self::LongKey => "long-key",
            Self::LongBlock => "long-block",
            Self::LongValue(_) => "long-value",
            Self::RangeEdge => "range-edge",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// What a lookup found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// No table has a visible version of the key.
    Absent,
    /// The newest visible version.
    Found {
        /// Its value.
        value: Vec<u8>,
        /// Its sequence number.
        sequence: u64,
        /// The table that has it, of those of the request.
        table: u32,
    },
    /// The newest visible version is a deletion.
    Deleted {
        /// Its sequence number.
        sequence: u64,
        /// The table that has it, of those of the request.
        table: u32,
    },
    /// It is not known.
    Unsupported(Unsupported),
}

impl TableFacts {
    /// A table of which only the length is known: a lookup reads its footer and properties first.
    #[must_use]
    pub fn unknown(len_bytes: u64) -> Self {
        Self { len: len_bytes, ..Self::default() }
    }

    /// For a lookup of the table's last key, by what the database says of it: a range deletion that is in the table may end before
    /// that key, which the table does not tell.
    #[must_use]
    pub fn of_last_key(self, yes: bool) -> Self {
        Self { flags: if yes { self.flags | KEY_IS_LAST } else { self.flags }, ..self }
    }

    /// Why it cannot be searched, if that is known.
    #[must_use]
    pub fn unsupported(&self) -> Option<Unsupported> {
        (self.reason != 0).then(|| Unsupported::of(self.reason.into(), 0))
    }
}

/// A request of `sst_get`: the newest version of `key` that is not newer than `snapshot`, in the first of these tables that
/// has one.
#[must_use]
pub fn get_request(snapshot: u64, tables: &[TableFacts], key: &[u8]) -> Vec<u8> {
    let mut request = Vec::with_capacity(REQUEST_LEN + size_of_val(tables) + key.len());
    request.extend_from_slice(&snapshot.to_le_bytes());
    request.extend_from_slice(&(tables.len() as u32).to_le_bytes());
    request.extend_from_slice(&(key.len() as u32).to_le_bytes());
    request.extend_from_slice(tables.as_bytes());
    request.extend_from_slice(key);
    request
}

/// Bytes of scratch of a request, with room for a value of so many bytes.
#[must_use]
pub fn scratch_len(request: &[u8], value_len: usize) -> usize {
    (request.len() + SEARCH_LEN).max(ANSWER_LEN + value_len)
}

/// The answer in the result of `sst_get`; `None`: it has another form.
#[must_use]
pub fn answer(result: &[u8]) -> Option<Answer> {
    let (head, value) = result.split_at_checked(ANSWER_LEN)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let sequence = u64::from_le_bytes(head[16..24].try_into().expect("eight bytes"));
    match word(0) {
        0 => Some(Answer::Absent),
        1 => (value.len() == word(12) as usize).then(|| Answer::Found {
            value: value.to_vec(),
            sequence,
            table: word(8),
        }),
        2 => Some(Answer::Deleted { sequence, table: word(8) }),
        3 => Some(Answer::Unsupported(Unsupported::of(word(4), word(12)))),
        _ => None,
    }
}

/// A request of `sst_facts` over tables of which nothing is known yet.
#[must_use]
pub fn facts_request(tables: &[TableFacts]) -> Vec<u8> {
    get_request(0, tables, &[])
}

/// The tables in the result of `sst_facts`; `None`: it has another form.
#[must_use]
pub fn facts(result: &[u8], tables: usize) -> Option<Vec<TableFacts>> {
    let bytes = result.get(REQUEST_LEN..).filter(|bytes| bytes.len() == tables * FACTS_LEN)?;
    bytes.chunks_exact(FACTS_LEN).map(|bytes| TableFacts::read_from_bytes(bytes).ok()).collect()
}
