//! The result on its way out: an Arrow stream in frames.

use crate::columns::outgoing;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array as _, ArrayRef, BinaryArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::concat::concat_batches;
use diskside_scan::{Compression, Frame, OUTPUT_LEN_MAX};
use std::io::{self, Write};
use std::sync::Arc;

/// Batches go out when they have so many rows together, or so many bytes.
const BATCH_ROWS: usize = 64 << 10;
const BATCH_LEN: usize = 1 << 20;
/// Rows of the first batch that show how much shorter compression makes the result.
const SAMPLE_ROWS: usize = 8 << 10;
/// Tenths of a compressed length: a result that is not so many times longer is not worth its compression.
const SHORTER_TENTHS: usize = 13;

/// Rows that go out.
pub(crate) struct ResultStream {
    schema: SchemaRef,
    writer: StreamWriter<Frames>,
    kept: Vec<RecordBatch>,
    kept_rows: usize,
    kept_len: usize,
    /// The writer compresses, and no batch has shown yet whether that pays.
    is_doubtful: bool,
}

impl ResultStream {
    /// Of rows with these columns.
    pub(crate) fn new(schema: &Schema, compression: Compression) -> Result<Self, ArrowError> {
        let schema = outgoing_schema(schema);
        let writer = writer(Frames::default(), &schema, compression)?;
        let is_doubtful = compression != Compression::None;
        Ok(Self { schema, writer, kept: Vec::new(), kept_rows: 0, kept_len: 0, is_doubtful })
    }

    /// Adds rows, whose columns are the schema's in order.
    pub(crate) fn add(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), ArrowError> {
        if rows == 0 {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = columns.iter().map(out).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.kept_rows += rows;
        self.kept_len += batch.get_array_memory_size();
        self.kept.push(batch);
        if self.kept_rows >= BATCH_ROWS || self.kept_len >= BATCH_LEN { self.write_kept() } else { Ok(()) }
    }

    fn write_kept(&mut self) -> Result<(), ArrowError> {
        (self.kept_rows, self.kept_len) = (0, 0);
        let batch = match &self.kept[..] {
            [] => return Ok(()),
            [one] => one.clone(),
            many => concat_batches(&self.schema, many)?,
        };
        self.kept.clear();
        if std::mem::take(&mut self.is_doubtful) && !is_shorter(&batch)? {
            // Nothing of the other writer went out.
            self.writer = writer(Frames::default(), &self.schema, Compression::None)?;
        }
        self.writer.get_mut().goes_out = true;
        self.writer.write(&batch)
    }

    /// Ends the stream.
    pub(crate) fn finish(mut self) -> Result<(), ArrowError> {
        self.write_kept()?;
        self.writer.get_mut().goes_out = true;
        self.writer.finish()?;
        self.writer.get_mut().flush()?;
        Ok(())
    }
}

fn writer<W: Write>(out: W, schema: &Schema, compression: Compression) -> Result<StreamWriter<W>, ArrowError> {
    let compression = (compression == Compression::Lz4).then_some(CompressionType::LZ4_FRAME);
    let options = IpcWriteOptions::default().try_with_compression(compression)?;
    StreamWriter::try_new_with_options(out, schema, options)
}

/// Whether compression makes the first rows so much shorter that it pays.
fn is_shorter(batch: &RecordBatch) -> Result<bool, ArrowError> {
    let sample = batch.slice(0, batch.num_rows().min(SAMPLE_ROWS));
    let len = |compression| {
        let mut writer = writer(Vec::new(), sample.schema_ref(), compression)?;
        let before = writer.get_ref().len();
        writer.write(&sample)?;
        Ok::<_, ArrowError>(writer.get_ref().len() - before)
    };
    Ok(len(Compression::None)? * 10 >= len(Compression::Lz4)? * SHORTER_TENTHS)
}

/// The columns of a result.
pub(crate) fn outgoing_schema(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        let data_type = outgoing(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    // A file's metadata does not belong to its rows.
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

/// Views become texts and bytes of their own.
pub(crate) fn out(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(StringArray::from_iter(array.as_string_view().iter())),
        DataType::BinaryView => Arc::new(BinaryArray::from_iter(array.as_binary_view().iter())),
        _ => Arc::clone(array),
    }
}

/// Bytes as frames to the parent.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Not before the first rows: without any, the parent may still have the file scanned elsewhere if they do not fit here.
    goes_out: bool,
}

/// Bytes are kept until there are so many.
const FRAME_LEN: usize = 256 << 10;

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= FRAME_LEN {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.goes_out {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        for part in self.bytes.chunks(OUTPUT_LEN_MAX) {
            Frame::Output(part.to_vec()).write(&mut out)?;
        }
        self.bytes.clear();
        out.flush()
    }
}

/// Exact values as an array of a type that holds them.
pub(crate) fn exact_array(data_type: &DataType, values: impl Iterator<Item = Option<i128>>) -> ArrayRef {
    fn of<T: ArrowPrimitiveType>(data_type: &DataType, values: impl Iterator<Item = Option<i128>>) -> ArrayRef
    where
        T::Native: TryFrom<i128>,
    {
        let value = |value: i128| T::Native::try_from(value).ok().expect("a value of this column");
        let array = PrimitiveArray::<T>::from_iter(values.map(|known| known.map(value)));
        Arc::new(array.with_data_type(data_type.clone()))
    }
    match data_type {
        DataType::Int8 => of::<Int8Type>(data_type, values),
        DataType::Int16 => of::<Int16Type>(data_type, values),
        DataType::Int32 => of::<Int32Type>(data_type, values),
        DataType::UInt8 => of::<UInt8Type>(data_type, values),
        DataType::UInt16 => of::<UInt16Type>(data_type, values),
        DataType::UInt32 => of::<UInt32Type>(data_type, values),
        DataType::UInt64 => of::<UInt64Type>(data_type, values),
        DataType::Date32 => of::<Date32Type>(data_type, values),
        DataType::Decimal32(..) => of::<Decimal32Type>(data_type, values),
        DataType::Decimal64(..) => of::<Decimal64Type>(data_type, values),
        DataType::Decimal128(..) => of::<Decimal128Type>(data_type, values),
        DataType::Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(data_type, values),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of::<TimestampMillisecondType>(data_type, values),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(data_type, values),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(data_type, values),
        _ => of::<Int64Type>(&DataType::Int64, values),
    }
}
