//! Values that are equal to others, in conditions and in order, and codecs in which they can be read.

mod common;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use common::How;
use diskside_scan::{Plan, parse_columns, parse_filter, parse_order};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file with these columns, and one `row` that counts; so many rows are a row group.
fn written(directory: &Path, columns: Vec<(&str, ArrayRef)>, group_rows: usize, compression: Compression) -> PathBuf {
    let row: ArrayRef = Arc::new(Int64Array::from_iter_values(0..columns[0].1.len() as i64));
    let batch = RecordBatch::try_from_iter(std::iter::once(("row", row)).chain(columns)).unwrap();
    let path = directory.join("values.parquet");
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).set_compression(compression);
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

/// The numbers of the rows that come.
fn rows(file: &Path, plan: &Plan) -> Vec<i64> {
    let result = common::scan(&common::program(), file, &plan.to_bytes(), How::default());
    let (result, _) = result.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    let batches = StreamReader::try_new(Cursor::new(result), None).unwrap().map(Result::unwrap);
    batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

fn filtered(file: &Path, condition: &str) -> Vec<i64> {
    rows(file, &Plan { filter: Some(parse_filter(condition).unwrap()), ..Plan::default() })
}

/// -0.0 came before 0.0, although `=` says that they are equal.
#[test]
fn zeros_are_equal_in_an_order_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let values = [0.0, -0.0, -1.5, -0.0, f64::NAN, 0.0, 1.5, -0.0];
    let wide: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
    let narrow: ArrayRef = Arc::new(Float32Array::from_iter_values(values.map(|value| value as f32)));
    for group_rows in [1, 3, 100] {
        let columns = vec![("wide", Arc::clone(&wide)), ("narrow", Arc::clone(&narrow))];
        let file = written(directory.path(), columns, group_rows, Compression::UNCOMPRESSED);
        for column in ["wide", "narrow"] {
            let first = |direction: &str, limit: u64| {
                let columns = parse_columns(&format!("row, {column}")).unwrap();
                let order = parse_order(&format!("{column} {direction}")).unwrap();
                rows(&file, &Plan { columns, order, limit: Some(limit), ..Plan::default() })
            };
            assert_eq!(first("", 100), [2, 0, 1, 3, 5, 7, 6, 4]);
            assert_eq!(first("desc", 100), [4, 6, 0, 1, 3, 5, 7, 2]);
            assert_eq!((first("", 3), first("desc", 4)), (vec![2, 0, 1], vec![4, 6, 0, 1]));
        }
        // As they are written, both stay as they are.
        assert_eq!(filtered(&file, "wide = 0"), [0, 1, 3, 5, 7]);
    }
}

#[test]
fn in_is_a_list_of_what_equals_says() {
    let directory = tempfile::tempdir().unwrap();
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(0), Some(1), Some(2), None, Some(1 << 60)]));
    let decimal = Decimal128Array::from(vec![Some(50), Some(100), Some(25), None, Some(150)]);
    let decimal: ArrayRef = Arc::new(decimal.with_precision_and_scale(10, 2).unwrap());
    let truth: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(false)]));
    let columns = vec![("whole", whole), ("decimal", decimal), ("truth", truth)];
    let file = written(directory.path(), columns, 2, Compression::UNCOMPRESSED);
    for (condition, wanted) in [
        ("whole in (1, 5e-1)", vec![1]),
        ("whole in (2e0, 1)", vec![1, 2]),
        ("whole in (1152921504606846976e0)", vec![4]),
        ("whole not in (1, 5e-1)", vec![0, 2, 4]),
        ("whole not in (1, 5e-1, null)", vec![]),
        ("whole in (1, 5e-1, null)", vec![1]),
        ("decimal in (5e-1, 1.5)", vec![0, 4]),
        ("decimal not in (5e-1, 1.5)", vec![1, 2]),
        ("truth in (true)", vec![0, 3]),
        ("truth in (false, false)", vec![1, 4]),
        ("truth in (true, false)", vec![0, 1, 3, 4]),
        ("truth not in (true)", vec![1, 4]),
        ("truth not in (true, false)", vec![]),
        ("truth in (true, null)", vec![0, 3]),
        ("truth in (null) or whole = 0", vec![0]),
        ("truth not in (null)", vec![]),
    ] {
        assert_eq!(filtered(&file, condition), wanted, "{condition}");
    }
    // A list of booleans in a list of booleans, and so on, took three times as long with each.
    let nested = "(whole = 1) in (true)";
    let plan = Plan { filter: Some(parse_filter(nested).unwrap()), ..Plan::default() };
    let told = common::scan(&common::program(), &file, &plan.to_bytes(), How::default()).unwrap_err().to_string();
    assert!(told.contains("IN is of a column of numbers, dates, texts or booleans"), "{told}");
}

/// One of them was refused as a feature that is "disabled at compile time".
#[test]
fn all_codecs_of_parquet_are_read_that_writers_use() {
    let directory = tempfile::tempdir().unwrap();
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..5000).map(|row| row % 7)));
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ] {
        let file = written(directory.path(), vec![("value", Arc::clone(&values))], 1000, codec);
        let found = filtered(&file, "value = 3");
        assert!(found.len() == 714 && found[..3] == [3, 10, 17], "{codec:?}: {found:?}");
    }
}
