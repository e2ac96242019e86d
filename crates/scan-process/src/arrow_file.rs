//! Arrow IPC: files, whose footer says where record batches are, and streams.

use crate::input::{Fetched, Input};
use crate::lines::Pieces;
use crate::table::{Batches, Table};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_cast::cast;
use arrow_ipc::reader::{FileDecoder, StreamDecoder, read_footer_length};
use arrow_ipc::{Block, MetadataVersion, convert, root_as_footer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use diskside_scan::{Failure, FailureKind};
use parquet::file::reader::ChunkReader as _;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

const MAGIC: &[u8] = b"ARROW1";
/// Magic and padding at the beginning; length of the footer and magic at the end.
const START_LEN: u64 = 8;
const END_LEN: u64 = 10;
/// So much of the end is read first: most footers are in it.
const TAIL_LEN: u64 = 64 << 10;
const FOOTER_LEN_MAX: u64 = 64 << 20;
/// Bytes of the mark before a message of a stream, and of the length behind that.
const PREFIX_LEN: u64 = 4;
/// The most rows of a batch, which Arrow itself advises.
const ROWS_MAX: usize = i32::MAX as usize;

/// An open file.
pub(crate) struct ArrowFile {
    written: SchemaRef,
    schema: SchemaRef,
    version: MetadataVersion,
    dictionaries: Vec<(Block, Buffer)>,
    blocks: Vec<Block>,
    /// With the projection that it was made for.
    decoder: Mutex<Option<Arc<FileDecoder>>>,
}

impl ArrowFile {
    /// Whether it is a file, not a stream.
    pub(crate) fn is_one(input: &mut Input) -> Result<bool, Failure> {
        Ok(&input.read_metadata(0..input.len().min(MAGIC.len() as u64))?[..] == MAGIC)
    }

    pub(crate) fn open(input: &mut Input) -> Result<Self, Failure> {
        let len = input.len();
        if len < START_LEN + END_LEN {
            return Err(input.failure(FailureKind::File, "it is too short to be an Arrow file"));
        }
        let tail = input.read_metadata(len.saturating_sub(TAIL_LEN)..len)?;
        let (rest, end) = tail.split_at(tail.len() - END_LEN as usize);
        let told = |what: &dyn std::fmt::Display| {
            input.failure(FailureKind::File, format!("its footer is damaged, or it was not written to its end: {what}"))
        };
        let footer_len = read_footer_length(end.try_into().expect("ten bytes")).map_err(|error| told(&error))? as u64;
        if footer_len > FOOTER_LEN_MAX || footer_len + END_LEN + START_LEN > len {
            return Err(told(&format_args!("{footer_len} bytes cannot be")));
        }
        let footer_start = len - END_LEN - footer_len;
        let footer = match (rest.len() as u64).checked_sub(footer_len) {
            Some(start) => tail.slice(start as usize..rest.len()),
            None => input.read_metadata(footer_start..len - END_LEN)?,
        };
        let told =
            |what: &dyn std::fmt::Display| input.failure(FailureKind::File, format!("its footer is damaged: {what}"));
        let footer = root_as_footer(&footer).map_err(|error| told(&error))?;
        let schema = footer.schema().ok_or_else(|| told(&"it has no schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(
                input.failure(FailureKind::Unsupported, "its numbers are big endian, which a scan does not read")
            );
        }
        let written = Arc::new(convert::try_fb_to_schema(schema).map_err(|error| told(&error))?);
        let checked = |block: &Block| {
            let range = range_of(block).filter(|range| range.end <= footer_start);
            range.map(|_| *block).ok_or_else(|| told(&"a record batch is not in the file"))
        };
        let blocks = footer.recordBatches().into_iter().flatten().map(checked).collect::<Result<_, _>>()?;
        let of_dictionaries = footer.dictionaries().into_iter().flatten().map(checked);
        let of_dictionaries = of_dictionaries.collect::<Result<Vec<_>, _>>()?;
        let version = footer.version();
        let mut dictionaries = Vec::new();
        for block in of_dictionaries {
            let bytes = input.read(range_of(&block).expect("it was checked"))?;
            dictionaries.push((block, Buffer::from(bytes)));
        }
        let schema = Arc::new(without_dictionaries(&written));
        Ok(Self { written, schema, version, dictionaries, blocks, decoder: Mutex::new(None) })
    }

    /// The one with this projection, which all groups have.
    fn decoder(&self, columns: &[usize]) -> Result<Arc<FileDecoder>, String> {
        let mut kept = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decoder) = &*kept {
            return Ok(Arc::clone(decoder));
        }
        let mut decoder = FileDecoder::new(Arc::clone(&self.written), self.version).with_projection(columns.to_vec());
        for (block, bytes) in &self.dictionaries {
            decoder.read_dictionary(block, bytes).map_err(|error| error.to_string())?;
        }
        Ok(Arc::clone(kept.insert(Arc::new(decoder))))
    }
}

fn range_of(block: &Block) -> Option<Range<u64>> {
    let (offset, metadata) = (u64::try_from(block.offset()).ok()?, u64::try_from(block.metaDataLength()).ok()?);
    let len = metadata.checked_add(u64::try_from(block.bodyLength()).ok()?)?;
    // A message begins with its length.
    (metadata >= 8).then_some(offset..offset.checked_add(len)?)
}

impl Table for ArrowFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn group_name(&self) -> &'static str {
        "record batch"
    }

    fn groups(&self) -> usize {
        self.blocks.len()
    }

    fn rows(&self, _group: usize) -> Option<u64> {
        None
    }

    fn is_sequential(&self) -> bool {
        false
    }

    fn ranges(&self, group: usize, _columns: &[usize]) -> Vec<Range<u64>> {
        vec![range_of(&self.blocks[group]).expect("it was checked")]
    }

    fn decode<'a>(&'a self, fetched: Fetched, group: usize, columns: &[usize]) -> Result<Batches<'a>, String> {
        let block = &self.blocks[group];
        let range = range_of(block).expect("it was checked");
        let bytes = fetched.get_bytes(range.start, (range.end - range.start) as usize);
        let bytes = Buffer::from(bytes.map_err(|error| error.to_string())?);
        let batch = self.decoder(columns)?.read_record_batch(block, &bytes);
        let batch = batch.map_err(|error| error.to_string())?;
        let batches = batch.into_iter().map(|batch| decoded(&batch));
        Ok(Box::new(batches.collect::<Vec<_>>().into_iter()))
    }
}

/// An open stream.
pub(crate) struct ArrowStream {
    schema: SchemaRef,
    pieces: Pieces,
    decoder: Mutex<StreamDecoder>,
}

impl ArrowStream {
    pub(crate) fn open(input: &mut Input) -> Result<Self, Failure> {
        // The decoder continues with the next message where it has its bytes, and that may be damaged in another way.
        let schema_end = first_message_end(input)?;
        if schema_end >= input.len() {
            return Err(input.failure(FailureKind::File, "it ends before its schema does"));
        }
        if schema_end > FOOTER_LEN_MAX {
            let told = format!("its schema has {schema_end} bytes, and a scan reads at most {FOOTER_LEN_MAX}");
            return Err(input.failure(FailureKind::Unsupported, told));
        }
        // It looks at a message once there is a byte behind it.
        let mut bytes = Buffer::from(input.read_metadata(0..schema_end + 1)?);
        let told =
            |what: &dyn std::fmt::Display| input.failure(FailureKind::File, format!("its schema is damaged: {what}"));
        let mut decoder = StreamDecoder::new();
        while decoder.schema().is_none() && !bytes.is_empty() {
            decoder.decode(&mut bytes).map_err(|error| told(&error))?;
        }
        let written = decoder.schema().ok_or_else(|| told(&"its first message is another one"))?;
        let (schema, decoder) = (Arc::new(without_dictionaries(&written)), Mutex::new(StreamDecoder::new()));
        Ok(Self { schema, pieces: Pieces::new(0, input.len()), decoder })
    }
}

/// The end of the message with which a stream begins, a schema, which has no body.
fn first_message_end(input: &mut Input) -> Result<u64, Failure> {
    let head = input.read_metadata(0..input.len().min(2 * PREFIX_LEN))?;
    let number = |at: usize| head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    // Old streams have no mark before the length.
    Ok(match (number(0), number(4)) {
        (Some(u32::MAX), Some(len)) => 2 * PREFIX_LEN + u64::from(len),
        (Some(len), _) if len != u32::MAX => PREFIX_LEN + u64::from(len),
        _ => u64::MAX,
    })
}

impl Table for ArrowStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn group_name(&self) -> &'static str {
        "piece"
    }

    fn groups(&self) -> usize {
        self.pieces.count()
    }

    fn rows(&self, _group: usize) -> Option<u64> {
        None
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn ranges(&self, group: usize, _columns: &[usize]) -> Vec<Range<u64>> {
        vec![self.pieces.range(group)]
    }

    fn decode<'a>(&'a self, fetched: Fetched, group: usize, columns: &[usize]) -> Result<Batches<'a>, String> {
        let range = self.pieces.range(group);
        let bytes = fetched.get_bytes(range.start, (range.end - range.start) as usize);
        let mut rest = Buffer::from(bytes.map_err(|error| error.to_string())?);
        let mut decoder = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batches = Vec::new();
        while let Some(batch) = decoder.decode(&mut rest).map_err(|error| error.to_string())? {
            batches.push(batch.project(columns).map_err(|error| error.to_string())?);
        }
        if self.pieces.is_last(group) {
            decoder.finish().map_err(|_| "the stream ends in the middle of a message")?;
        }
        Ok(Box::new(batches.into_iter().map(|batch| decoded(&batch))))
    }
}

/// The columns as they are decoded: each value of a dictionary where its code is.
fn without_dictionaries(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, values) => Arc::new(Field::new(field.name(), values.as_ref().clone(), true)),
        _ => Arc::clone(field),
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

fn decoded(batch: &RecordBatch) -> Result<RecordBatch, String> {
    // Of columns without bytes there may be any number, which is counted for days.
    if batch.num_rows() > ROWS_MAX {
        return Err(format!("it has {} rows, and a scan reads batches of at most {ROWS_MAX}", batch.num_rows()));
    }
    let schema = Arc::new(without_dictionaries(&batch.schema()));
    let column = |(column, field): (&ArrayRef, &Arc<Field>)| match column.data_type() {
        DataType::Dictionary(..) => cast(column, field.data_type()),
        _ => Ok(Arc::clone(column)),
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect::<Result<_, _>>();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = columns.and_then(|columns| RecordBatch::try_new_with_options(schema, columns, &options));
    batch.map_err(|error| error.to_string())
}
