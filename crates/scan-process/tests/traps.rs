//! Files that are as the format has them and tempt a reader to leave rows out: empty row groups, statistics that were cut or have
//! another order, and row groups that are too large.

mod common;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_ipc::reader::StreamReader;
use common::How;
use diskside_scan::{FailureKind, Part, Plan, Report, ScanError, parse_aggregates, parse_filter, parse_order};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::{Statistics, ValueStatistics};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file with a row group for each batch, of which the footer says what `of` makes of it.
fn written(path: &Path, batches: &[RecordBatch], of: impl Fn(usize, RowGroupMetaData) -> RowGroupMetaData) -> PathBuf {
    let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::Chunk);
    let properties = properties.set_max_row_group_row_count(Some(usize::MAX)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    let bytes = writer.into_inner().unwrap();
    let footer_len = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
    let footer_start = bytes.len() - 8 - footer_len;
    let footer = ParquetMetaDataReader::decode_metadata(&bytes[footer_start..bytes.len() - 8]).unwrap();
    let groups = footer.row_groups().iter().cloned().enumerate().map(|(at, group)| of(at, group)).collect();
    let footer = footer.into_builder().set_row_groups(groups).build();
    let mut changed = bytes[..footer_start].to_vec();
    ParquetMetaDataWriter::new(&mut changed, &footer).finish().unwrap();
    std::fs::write(path, changed).unwrap();
    path.to_owned()
}

/// The same with the first column's statistics.
fn stated(path: &Path, batch: &RecordBatch, statistics: &Statistics) -> PathBuf {
    written(path, std::slice::from_ref(batch), |_, group| {
        let mut columns = group.columns().to_vec();
        columns[0] = columns[0].clone().into_builder().set_statistics(statistics.clone()).build().unwrap();
        group.into_builder().set_column_metadata(columns).build().unwrap()
    })
}

fn scan(file: &Path, plan: &Plan) -> Result<(Vec<u8>, Report), ScanError> {
    common::scan(&common::program(), file, &plan.to_bytes(), How::default())
}

fn filtered(file: &Path, condition: &str) -> Report {
    let plan = Plan { filter: Some(parse_filter(condition).unwrap()), ..Plan::default() };
    scan(file, &plan).unwrap_or_else(|error| panic!("{condition}: {error}")).1
}

fn numbers(result: Vec<u8>, column: usize) -> Vec<i64> {
    let batches = StreamReader::try_new(Cursor::new(result), None).unwrap().map(Result::unwrap);
    batches.flat_map(|batch| batch.column(column).as_primitive::<Int64Type>().values().to_vec()).collect()
}

/// So many rows from a number on.
fn rows(first: i64, count: i64) -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
    let text: ArrayRef =
        Arc::new(StringArray::from_iter((0..count).map(|row| (row % 3 != 0).then(|| format!("t{row}")))));
    RecordBatch::try_from_iter([("n", n), ("text", text)]).unwrap()
}

#[test]
fn empty_row_groups_in_the_middle_are_no_end_and_no_row() {
    let directory = tempfile::tempdir().unwrap();
    let full = [rows(0, 10), rows(10, 5), rows(15, 20)];
    let file = full_and_empty(&directory.path().join("empty.parquet"), &full);
    let plain = written(&directory.path().join("full.parquet"), &full, |_, group| group);
    let plans = [
        Plan::default(),
        Plan { filter: Some(parse_filter("n >= 9 and n <> 12").unwrap()), ..Plan::default() },
        Plan { filter: Some(parse_filter("text is null").unwrap()), limit: Some(8), ..Plan::default() },
        Plan { aggregates: parse_aggregates("count(*), sum(n), min(text), max(n)").unwrap(), ..Plan::default() },
        Plan { aggregates: parse_aggregates("count(*)").unwrap(), by: vec!["text".into()], ..Plan::default() },
        Plan { order: parse_order("n desc").unwrap(), limit: Some(17), ..Plan::default() },
        Plan { limit: Some(12), columns: vec!["n".into()], ..Plan::default() },
    ];
    for plan in plans {
        let ((found, report), (wanted, _)) = (scan(&file, &plan).unwrap(), scan(&plain, &plan).unwrap());
        assert_eq!(report.row_groups, 7);
        assert!(found == wanted, "{plan:?}");
    }
    let part = |first, count| {
        let plan = Plan { part: Part { first, count }, columns: vec!["n".into()], ..Plan::default() };
        numbers(scan(&file, &plan).unwrap().0, 0)
    };
    assert_eq!((part(0, 1), part(2, 1), part(2, 2)), (vec![], vec![], (10..15).collect()));
    assert_eq!(part(0, 7), (0..35).collect::<Vec<_>>());
}

/// Row groups without rows before, between and behind others: none, full, none, full, none, full, none.
fn full_and_empty(path: &Path, full: &[RecordBatch]) -> PathBuf {
    use parquet::arrow::arrow_writer::ArrowRowGroupWriterFactory;
    use parquet::arrow::{ArrowSchemaConverter, arrow_writer::compute_leaves};
    use parquet::file::writer::SerializedFileWriter;
    let schema = full[0].schema();
    let of_file = ArrowSchemaConverter::new().convert(&schema).unwrap();
    let mut writer = SerializedFileWriter::new(
        std::fs::File::create(path).unwrap(),
        of_file.root_schema_ptr(),
        Arc::new(WriterProperties::default()),
    )
    .unwrap();
    let factory = ArrowRowGroupWriterFactory::new(&writer, Arc::clone(&schema));
    let none = full[0].slice(0, 0);
    let groups = full.iter().flat_map(|batch| [&none, batch]).chain([&none]);
    for (at, batch) in groups.enumerate() {
        let mut columns = factory.create_column_writers(at).unwrap();
        for ((column, array), field) in columns.iter_mut().zip(batch.columns()).zip(schema.fields()) {
            for leaf in compute_leaves(field, array).unwrap() {
                column.write(&leaf).unwrap();
            }
        }
        let mut group = writer.next_row_group().unwrap();
        for column in columns {
            column.close().unwrap().append_to_row_group(&mut group).unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    path.to_owned()
}

fn texts(values: &[&str]) -> RecordBatch {
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(values));
    RecordBatch::try_from_iter([("text", text)]).unwrap()
}

/// Bounds of texts, which may be cut.
fn bounds(min: &[u8], max: &[u8], is_exact: bool, is_old: bool) -> Statistics {
    let bytes = |bytes: &[u8]| Some(ByteArray::from(bytes.to_vec()));
    let of = ValueStatistics::new(bytes(min), bytes(max), None, Some(0), is_old);
    Statistics::ByteArray(of.with_min_is_exact(is_exact).with_max_is_exact(is_exact))
}

#[test]
fn bounds_of_texts_that_were_cut_rule_out_only_what_is_outside_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.parquet");
    let batch = texts(&["apple pie", "banana split", "cherry tart"]);
    // The least is a prefix; the last byte of the greatest is one more than it was.
    let file = stated(&path, &batch, &bounds(b"app", b"chf", false, false));
    for (condition, selected) in [
        ("text = 'cherry tart'", 1),
        ("text > 'cherry'", 1),
        ("text >= 'cherry tart'", 1),
        ("text <= 'apple pie'", 1),
        ("text < 'apple pj'", 1),
        ("text like 'cherry%'", 1),
        ("text like 'apple p%'", 1),
        ("text in ('cherry tart', 'zebra')", 1),
        ("text <> 'app'", 3),
        // Neither bound is a value.
        ("text = 'app' or text = 'chf'", 0),
    ] {
        let report = filtered(&file, condition);
        assert_eq!((report.pruned, report.rows_selected), (0, selected), "{condition}");
    }
    for condition in
        ["text > 'chf'", "text < 'app'", "text = 'chg'", "text like 'b%' and text = 'zebra'", "text like 'd%'"]
    {
        assert_eq!(filtered(&file, condition).pruned, 1, "{condition}");
    }
    // One value, by its cut bounds: others may be there.
    let file = stated(&path, &texts(&["aaa1", "aaa2"]), &bounds(b"aaa", b"aaa\xff", false, false));
    assert_eq!(filtered(&file, "text <> 'aaa'").rows_selected, 2);
    // All bytes of the greatest one are ff, and nothing that is cut is above it: it is left out.
    let lower = Statistics::byte_array(Some(ByteArray::from(b"app".to_vec())), None, None, Some(0), false);
    let file = stated(&path, &batch, &lower);
    assert_eq!(filtered(&file, "text > 'cherry'").rows_selected, 1);
}

/// A writer that cuts bounds of bytes cuts those of decimals in bytes: a part of a number is another number.
#[test]
fn bounds_of_decimals_that_were_cut_are_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let price = Decimal128Array::from_iter_values([300_000, 400_000]).with_precision_and_scale(30, 2).unwrap();
    let batch = RecordBatch::try_from_iter([("price", Arc::new(price) as ArrayRef)]).unwrap();
    let fixed = |bytes: &[u8]| Some(FixedLenByteArray::from(bytes.to_vec()));
    let whole = |value: i128| value.to_be_bytes()[3..].to_vec();
    let of = |min: &[u8], max: &[u8]| {
        let of = ValueStatistics::new(fixed(min), fixed(max), None, Some(0), false);
        Statistics::FixedLenByteArray(of.with_min_is_exact(false).with_max_is_exact(false))
    };
    let (min, max) = (whole(300_000), whole(400_000));
    assert_eq!(min.len(), 13, "so many bytes have 30 digits");
    let path = directory.path().join("decimals.parquet");
    let file = stated(&path, &batch, &of(&min, &max));
    assert_eq!((filtered(&file, "price > 4000").pruned, filtered(&file, "price = 3000").pruned), (1, 0));
    let file = stated(&path, &batch, &of(&min[..11], &max[..12]));
    assert_eq!(filtered(&file, "price >= 4000").rows_selected, 1);
}

/// Old writers compared all as signed numbers, texts byte by byte as such, and kept the result as `min` and `max`.
#[test]
fn bounds_in_the_old_order_are_used_for_signed_numbers_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.parquet");
    let is_pruned = |column: ArrayRef, statistics: &Statistics, condition: &str, selected: u64| {
        let file = stated(&path, &RecordBatch::try_from_iter([("column", column)]).unwrap(), statistics);
        let report = filtered(&file, condition);
        assert_eq!(report.rows_selected, selected, "{condition}");
        report.pruned == 1
    };
    // As signed numbers, the greatest is the least, and the least the greatest.
    let unsigned: ArrayRef = Arc::new(UInt32Array::from(vec![5, u32::MAX, 7]));
    let old = |min, max, is_old| Statistics::int32(Some(min), Some(max), None, Some(0), is_old);
    assert!(!is_pruned(Arc::clone(&unsigned), &old(-1, 7, true), "column = 4294967295", 1));
    assert!(!is_pruned(Arc::clone(&unsigned), &old(1, 7, true), "column > 7", 1));
    assert!(is_pruned(unsigned, &old(5, -1, false), "column < 5", 0), "the new order is known");
    let signed: ArrayRef = Arc::new(Int32Array::from(vec![5, -1, 7]));
    assert!(is_pruned(Arc::clone(&signed), &old(-1, 7, true), "column > 7", 0));
    assert!(!is_pruned(signed, &old(-1, 7, true), "column = -1", 1));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "\u{e9}", "z"]));
    let signed = bounds("\u{e9}".as_bytes(), b"z", true, true);
    assert!(!is_pruned(Arc::clone(&text), &signed, "column = 'a'", 1));
    // A bound that only looks like one in the right order.
    assert!(!is_pruned(Arc::clone(&text), &bounds(b"a", b"z", true, true), "column > 'z'", 1));
    assert!(is_pruned(text, &bounds(b"a", "\u{e9}".as_bytes(), true, false), "column > '\u{e9}'", 0));
}

#[test]
fn a_row_group_that_is_larger_than_the_memory_is_refused_with_its_number_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(2);
    let mut batch = |rows: usize| {
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| random.i64(1..))));
        let small: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows as i32));
        RecordBatch::try_from_iter([("n", n), ("small", small)]).unwrap()
    };
    // 48 MB of `n` are more than a third of 128 MiB.
    let file = written(&directory.path().join("large.parquet"), &[batch(1000), batch(6_000_000)], |_, group| group);
    let count = parse_aggregates("count(n)").unwrap();
    let plan = Plan { aggregates: count, filter: Some(parse_filter("n > 0").unwrap()), ..Plan::default() };
    let Err(ScanError::Failed(failure)) = scan(&file, &plan) else { panic!("it has room") };
    assert_eq!(failure.kind, FailureKind::Memory);
    let (before, told) = failure.message.split_once(" bytes of the needed columns, ").unwrap();
    let len: u64 = before.strip_prefix("the file: row group 1 has ").unwrap().parse().unwrap();
    assert!((48_000_000..50_000_000).contains(&len), "{len}");
    let room = "and a scan here has room for 44739242; scan it on the host, or write the file with smaller ones";
    assert_eq!(told, room);
    let first = Plan { part: Part { first: 0, count: 1 }, ..plan.clone() };
    assert_eq!(scan(&file, &first).unwrap().1.rows_selected, 1000, "the other row group has room");
    let narrow = Plan {
        columns: vec!["small".into()],
        filter: Some(parse_filter("small = 5999999").unwrap()),
        ..Plan::default()
    };
    assert_eq!(scan(&file, &narrow).unwrap().1.rows_selected, 1, "its other column has room");
}
