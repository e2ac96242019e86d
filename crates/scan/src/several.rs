//! What starts a scan of several files. The process that does it reads no file: it asks for scans of each, and puts their results
//! together.

use crate::bytes::{COLUMNS_MAX, Reader, Writer};
use crate::plan::{ColumnType, Literal};

/// The most bytes of a frame with a file: its name, and the values that its path has.
pub(crate) const FILE_LEN_MAX: usize = 64 << 10;

/// What is scanned of several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several {
    /// How many files follow.
    pub files: u32,
    /// So many of them, the first ones, are scanned. Only the columns of the others count.
    pub scanned: u32,
    /// They are parts of one file, in order: the first one says the columns of all.
    pub are_parts: bool,
    /// So many of them are scanned at one time.
    pub at_once: u32,
    /// Bytes of address space that the process may use.
    pub memory_len: u64,
    /// How messages call all of them.
    pub name: String,
    /// Columns that paths say, or the metadata of a table.
    pub columns: Vec<(String, ColumnType)>,
    /// Columns of a table that are NULL where none of its files has them. The values that its metadata has of `columns` hold even where a
    /// file has a column of that name. `None`: the files are not those of a table.
    pub of_table: Option<Vec<(String, ColumnType)>>,
    /// The plan for all rows of all files, as bytes.
    pub plan: Vec<u8>,
}

/// One of several files.
#[derive(Clone, Debug, PartialEq)]
pub struct OneFile {
    /// How messages call it.
    pub name: String,
    /// The value of each column that its path, or a table, says.
    pub values: Vec<Literal>,
}

impl Writer {
    fn columns(&mut self, columns: &[(String, ColumnType)]) {
        self.list(columns, |to, (name, of)| {
            to.text(name);
            to.column_type(*of);
        });
    }
}

impl Several {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        [self.files, self.scanned, self.are_parts.into(), self.at_once].into_iter().for_each(|number| to.u32(number));
        to.0.extend_from_slice(&self.memory_len.to_le_bytes());
        to.text(&self.name);
        to.columns(&self.columns);
        to.u32(self.of_table.is_some().into());
        to.columns(self.of_table.as_deref().unwrap_or_default());
        to.0.extend_from_slice(&self.plan);
        to.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let columns =
            |from: &mut Reader<'_>| from.list(COLUMNS_MAX, |from| Ok((from.text()?, from.column_type()?))).ok();
        Some(Self {
            files: from.u32().ok()?,
            scanned: from.u32().ok()?,
            are_parts: from.u32().ok()? != 0,
            at_once: from.u32().ok()?,
            memory_len: u64::from_le_bytes(from.take().ok()?),
            name: from.text().ok()?,
            columns: columns(&mut from)?,
            of_table: match (from.u32().ok()?, columns(&mut from)?) {
                (0, none) if none.is_empty() => None,
                (1, of_table) => Some(of_table),
                _ => return None,
            },
            plan: from.rest().to_vec(),
        })
    }
}

impl OneFile {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        to.text(&self.name);
        to.list(&self.values, Writer::literal);
        to.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let file = Self { name: from.text().ok()?, values: from.list(COLUMNS_MAX, Reader::literal).ok()? };
        from.rest().is_empty().then_some(file)
    }
}
