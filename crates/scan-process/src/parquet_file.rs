//! A Parquet file: its footer, its columns, and its row groups.

use crate::bloom::Lookup;
use crate::columns::physical;
use crate::condition::Condition;
use crate::dictionary::{Dictionary, is_coded};
use crate::input::{Fetched, Input};
use crate::pages::{self, Found, Pages};
use crate::prune::RowGroup;
use crate::table::{BATCH_ROWS, Batches, Table};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use diskside_scan::{Failure, FailureKind};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy,
};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::page_index::PageIndexProvider;
use parquet::file::metadata::{ParquetMetaDataReader, RowGroupMetaData};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// So much of the end is read first: most footers are in it.
const TAIL_LEN: u64 = 64 << 10;
/// The longest footer that is read.
const FOOTER_LEN_MAX: u64 = 64 << 20;
/// The end of a file: the length of the footer, and a magic number.
const END_LEN: u64 = 8;
/// Bytes of a value in memory, at most where it is short.
const VIEW_LEN: i64 = 16;
/// What errors of Parquet and Arrow begin with.
const KINDS_OF_ERRORS: [&str; 5] =
    ["Parquet argument error:", "Parquet error:", "Arrow: ", "External error:", "External: "];

/// An open file.
pub(crate) struct ParquetFile {
    schema: SchemaRef,
    /// With the types that are decoded to.
    metadata: ArrowReaderMetadata,
    pages: Arc<Pages>,
    /// For each column its only leaf; `None`: it is nested.
    leaves: Vec<Option<usize>>,
}

/// Rows of a row group: each costs nothing where no column is needed of it, and a file may claim any number.
const ROWS_MAX: i64 = i32::MAX as i64;

/// Times of INT96 in microseconds: in nanoseconds, as they are read otherwise, those before 1677 and after 2262 are wrong.
fn far_reaching(schema: &Schema, int96: &HashSet<usize>) -> Schema {
    let field = |(column, field): (usize, &Arc<Field>)| match field.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) if int96.contains(&column) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Timestamp(TimeUnit::Microsecond, zone.clone())))
        }
        _ => Arc::clone(field),
    };
    let fields: Vec<_> = schema.fields().iter().enumerate().map(field).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

impl ParquetFile {
    pub(crate) fn open(input: &mut Input) -> Result<Self, Failure> {
        let len = input.len();
        let damaged = |input: &Input, what: &str| input.failure(FailureKind::File, what);
        if len < 4 + END_LEN {
            return Err(damaged(input, "it is too short to be a Parquet file"));
        }
        let tail = input.read_metadata(len.saturating_sub(TAIL_LEN)..len)?;
        let (footer_len, magic) = tail[tail.len() - END_LEN as usize..].split_at(4);
        match magic {
            b"PAR1" => {}
            b"PARE" => {
                return Err(input.failure(FailureKind::Unsupported, "it is encrypted, which a scan does not read"));
            }
            _ if input.read_metadata(0..4)?.as_ref() == b"PAR1" => {
                return Err(damaged(
                    input,
                    "it begins as a Parquet file and does not end as one: it was cut off, or is still being written",
                ));
            }
            _ => {
                return Err(damaged(
                    input,
                    "it is not a Parquet file: it does not end with PAR1. If it is CSV, Arrow or JSON lines, say so: \
                     --input csv, --input arrow or --input jsonl",
                ));
            }
        }
        let footer_len = u64::from(u32::from_le_bytes(footer_len.try_into().expect("four bytes")));
        if footer_len > FOOTER_LEN_MAX || footer_len + END_LEN > len {
            return Err(damaged(input, &format!("its footer has {footer_len} bytes, which cannot be")));
        }
        let start = len - END_LEN - footer_len;
        let tail_start = len - tail.len() as u64;
        let footer = match start >= tail_start {
            true => tail.slice((start - tail_start) as usize..tail.len() - END_LEN as usize),
            false => input.read_metadata(start..len - END_LEN)?,
        };
        let told = |error: parquet::errors::ParquetError| {
            damaged(input, &format!("its footer is damaged: {}", told_of(&error)))
        };
        let pages = Arc::new(Pages::default());
        let metadata = ParquetMetaDataReader::decode_metadata(&footer).map_err(told)?.into_builder();
        let metadata =
            Arc::new(metadata.set_page_index(Some(Arc::clone(&pages) as Arc<dyn PageIndexProvider>)).build());
        let written = ArrowReaderMetadata::try_new(Arc::clone(&metadata), ArrowReaderOptions::new()).map_err(told)?;
        let int96: HashSet<usize> = {
            let of_file = written.metadata().file_metadata().schema_descr();
            let leaves = 0..of_file.num_columns();
            let is_int96 = |leaf: &usize| of_file.column(*leaf).physical_type() == PhysicalType::INT96;
            leaves.filter(is_int96).map(|leaf| of_file.get_column_root_idx(leaf)).collect()
        };
        let wanted = physical(&far_reaching(written.schema(), &int96));
        let options = ArrowReaderOptions::new().with_schema(Arc::new(wanted));
        // Columns that cannot be read in the fastest types are read as they were written.
        let metadata = ArrowReaderMetadata::try_new(metadata, options).unwrap_or(written);
        let rows = metadata.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).enumerate();
        if let Some((group, rows)) = rows.into_iter().find(|(_, rows)| !(0..=ROWS_MAX).contains(rows)) {
            return Err(damaged(
                input,
                &format!("row group {group} has {rows} rows, and a scan reads at most {ROWS_MAX}"),
            ));
        }
        let of_file = metadata.metadata().file_metadata().schema_descr();
        let mut leaves: Vec<Option<usize>> = vec![None; metadata.schema().fields().len()];
        let mut seen = vec![0; leaves.len()];
        for leaf in 0..of_file.num_columns() {
            let root = of_file.get_column_root_idx(leaf);
            let Some(count) = seen.get_mut(root) else { return Err(damaged(input, "its schema is damaged")) };
            *count += 1;
            let is_flat =
                *count == 1 && of_file.column(leaf).max_rep_level() == 0 && of_file.column(leaf).max_def_level() <= 1;
            leaves[root] = is_flat.then_some(leaf);
        }
        Ok(Self { schema: Arc::clone(metadata.schema()), metadata, pages, leaves })
    }

    fn row_groups(&self) -> &[RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }

    fn row_group<'a>(&'a self, group: usize, needed: &'a [usize]) -> RowGroup<'a> {
        RowGroup { metadata: &self.row_groups()[group], schema: &self.schema, needed, leaves: &self.leaves }
    }

    /// The leaves of columns.
    fn leaves_of(&self, columns: &[usize]) -> Vec<usize> {
        let of_file = self.metadata.metadata().file_metadata().schema_descr();
        (0..of_file.num_columns()).filter(|leaf| columns.contains(&of_file.get_column_root_idx(*leaf))).collect()
    }
}

impl Table for ParquetFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn keep_dictionaries(&mut self, columns: &[usize]) {
        let is_coded = |column: usize| {
            let leaf = self.leaves[column];
            leaf.is_some_and(|leaf| self.row_groups().iter().all(|group| is_coded(group.column(leaf))))
        };
        let field = |(column, field): (usize, &Arc<Field>)| match field.data_type() {
            DataType::Utf8View if columns.contains(&column) && is_coded(column) => {
                let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
                Arc::new(field.as_ref().clone().with_data_type(coded))
            }
            _ => Arc::clone(field),
        };
        let fields: Vec<_> = self.schema.fields().iter().enumerate().map(field).collect();
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
        // Otherwise they stay as they are.
        if let Ok(metadata) = ArrowReaderMetadata::try_new(Arc::clone(self.metadata.metadata()), options) {
            self.metadata = metadata;
        }
    }

    fn group_name(&self) -> &'static str {
        "row group"
    }

    fn groups(&self) -> usize {
        self.row_groups().len()
    }

    fn rows(&self, group: usize) -> Option<u64> {
        Some(u64::try_from(self.row_groups()[group].num_rows()).unwrap_or(0))
    }

    fn is_sequential(&self) -> bool {
        false
    }

    fn may_fulfil(&self, group: usize, needed: &[usize], condition: &Condition) -> bool {
        self.row_group(group, needed).may_fulfil(condition)
    }

    fn lookups(&self, group: usize, needed: &[usize], condition: &Condition) -> Vec<Lookup> {
        Lookup::of(&self.row_group(group, needed), condition)
    }

    fn dictionaries(&self, group: usize, needed: &[usize], condition: &Condition) -> Vec<Dictionary> {
        let needed_len = self.ranges(group, needed).iter().map(|range| range.end - range.start).sum();
        Dictionary::of(&self.row_group(group, needed), condition, needed_len)
    }

    fn dictionary_may_fulfil(
        &self,
        group: usize,
        needed: &[usize],
        condition: &Condition,
        (dictionary, page): (&Dictionary, Fetched),
    ) -> bool {
        dictionary.may_fulfil(&self.row_group(group, needed), condition, page)
    }

    fn indexes(&self, group: usize, needed: &[usize], condition: &Condition) -> Vec<Range<u64>> {
        pages::ranges(&self.row_group(group, needed), &self.leaves_of(needed), condition)
    }

    fn leave_out(&self, indexes: Vec<(usize, Fetched)>, needed: &[usize], condition: &Condition) -> Vec<usize> {
        let (leaves, mut chosen, mut unwanted) = (self.leaves_of(needed), HashMap::new(), Vec::new());
        for (group, indexes) in indexes {
            let (found, pages) = pages::choose(&self.row_group(group, needed), &leaves, condition, &indexes);
            if found == Found::Nothing {
                unwanted.push(group);
            }
            chosen.extend(pages.map(|pages| (group, pages)));
        }
        self.pages.set(chosen);
        unwanted
    }

    fn batch_len(&self, group: usize, columns: &[usize]) -> u64 {
        let metadata = &self.row_groups()[group];
        let (rows, of_batch) = (metadata.num_rows().max(1), i64::try_from(BATCH_ROWS).unwrap_or(i64::MAX));
        let of_leaf = |leaf: usize| {
            let all = metadata.column(leaf).uncompressed_size().max(0);
            // A text that is there once is pointed to from each row.
            (all / rows).max(VIEW_LEN).saturating_mul(rows.min(of_batch)).cast_unsigned()
        };
        self.leaves_of(columns).into_iter().map(of_leaf).fold(0, u64::saturating_add)
    }

    fn ranges(&self, group: usize, columns: &[usize]) -> Vec<Range<u64>> {
        let (metadata, pages) = (&self.row_groups()[group], self.pages.of(group));
        let of_leaf = |leaf: usize| {
            let (start, len) = metadata.column(leaf).byte_range();
            let chunk = start..start.saturating_add(len);
            pages.map_or_else(|| std::iter::once(chunk.clone()).collect(), |pages| pages.ranges(leaf, chunk.clone()))
        };
        self.leaves_of(columns).into_iter().flat_map(of_leaf).collect()
    }

    fn decode<'a>(&'a self, fetched: Fetched, group: usize, columns: &[usize]) -> Result<Batches<'a>, String> {
        let of_file = self.metadata.metadata().file_metadata().schema_descr();
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(fetched, self.metadata.clone())
            .with_projection(ProjectionMask::roots(of_file, columns.iter().copied()))
            .with_row_groups(vec![group])
            .with_batch_size(BATCH_ROWS);
        if let Some(pages) = self.pages.of(group) {
            let rows = usize::try_from(self.row_groups()[group].num_rows()).map_err(|error| error.to_string())?;
            // Others decode rows that are left out, whose pages are not here.
            reader = reader.with_row_selection_policy(RowSelectionPolicy::Selectors);
            reader = reader.with_row_selection(RowSelection::from_consecutive_ranges(pages.rows(), rows));
        }
        let reader = reader.build().map_err(|error| told_of(&error))?;
        Ok(Box::new(reader.map(|batch| batch.map_err(|error| told_of(&error)))))
    }
}

/// The message of an error, without the names of the kinds of error that it went through: each adds one in front.
fn told_of(error: &dyn std::error::Error) -> String {
    let told = error.to_string();
    let mut rest = told.as_str();
    while let Some(inner) = KINDS_OF_ERRORS.iter().find_map(|kind| rest.strip_prefix(kind)) {
        rest = inner.trim_start();
    }
    rest.to_owned()
}
