//! Results that are compressed, and those that compression hardly makes shorter.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use common::How;
use diskside_scan::{Compression, Plan, parse_aggregates};
use parquet::arrow::ArrowWriter;
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROWS: i64 = 150_000;

fn written(directory: &Path, column: ArrayRef) -> PathBuf {
    let batch = RecordBatch::try_from_iter([("column", column)]).unwrap();
    let path = directory.join("table.parquet");
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

fn results(file: &Path, plan: &Plan) -> [Vec<u8>; 2] {
    [Compression::None, Compression::Lz4].map(|compression| {
        let plan = Plan { compression, ..plan.clone() };
        common::scan(&common::program(), file, &plan.to_bytes(), How::default()).unwrap().0
    })
}

fn batches(result: &[u8]) -> Vec<RecordBatch> {
    StreamReader::try_new(Cursor::new(result), None).unwrap().map(Result::unwrap).collect()
}

/// All results were compressed, also those that became no shorter: the time was lost on both sides.
#[test]
fn rows_that_compression_hardly_makes_shorter_are_sent_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let file = written(directory.path(), Arc::new(Int64Array::from_iter_values((0..ROWS).map(|_| random.i64(..)))));
    let [plain, packed] = results(&file, &Plan::default());
    assert!(batches(&plain).len() > 1);
    assert!(plain == packed, "{} bytes, and {} compressed", plain.len(), packed.len());
    // A row is hardly shorter, nor is none.
    for aggregates in ["count(*), max(column)", "sum(column * 0)"] {
        let [plain, packed] =
            results(&file, &Plan { aggregates: parse_aggregates(aggregates).unwrap(), ..Plan::default() });
        assert_eq!(plain, packed, "{aggregates}");
    }
    let [plain, packed] = results(&file, &Plan { limit: Some(0), ..Plan::default() });
    assert_eq!(plain, packed);
}

#[test]
fn rows_that_compression_makes_shorter_are_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let text = (0..ROWS).map(|row| (row % 5 != 0).then(|| format!("a text of some length {}", row % 100)));
    let file = written(directory.path(), Arc::new(StringArray::from_iter(text)));
    let [plain, packed] = results(&file, &Plan::default());
    assert!(packed.len() * 13 < plain.len() * 10, "{} bytes, and {} compressed", plain.len(), packed.len());
    let rows = batches(&plain);
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>() as i64, ROWS);
    assert!(batches(&packed) == rows);
}
