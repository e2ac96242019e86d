//! The program over files that mean it ill, and plans that do not fit: each ends its own scan with a message, and nothing else.

mod common;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, FixedSizeBinaryArray, Float64Array, Int64Array, RecordBatch, StringArray};
use common::How;
use diskside_scan::{
    Aggregate, AggregateKind, ColumnFunction, Expression, FailureKind, Frame, Gives, Plan, Program, Report, ScanError,
    To, parse_aggregates, parse_filter, parse_order,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn scan_bytes(file: &Path, plan: &[u8]) -> Result<(Vec<u8>, Report), ScanError> {
    scan_by(&common::program(), file, plan)
}

fn scan_by(program: &Program, file: &Path, plan: &[u8]) -> Result<(Vec<u8>, Report), ScanError> {
    common::scan(program, file, plan, How::default())
}

fn scan_with(program: &Program, file: &Path, plan: &[u8], threads: u32) -> Result<(Vec<u8>, Report), ScanError> {
    common::scan(program, file, plan, How { threads, ..How::default() })
}

fn scan(file: &Path, plan: &Plan) -> Result<(Vec<u8>, Report), ScanError> {
    scan_bytes(file, &plan.to_bytes())
}

fn filtered(condition: &str) -> Plan {
    Plan { filter: Some(parse_filter(condition).unwrap()), ..Plan::default() }
}

/// Four row groups of a thousand rows: `a` counts, `b` has NULLs, `c` is a text.
fn small(directory: &Path) -> PathBuf {
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(0..4000));
    let b: ArrayRef = Arc::new(Int64Array::from_iter((0..4000).map(|row| (row % 3 != 0).then_some(row % 7))));
    let c: ArrayRef = Arc::new(StringArray::from_iter_values((0..4000).map(|row| format!("text {}", row % 50))));
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(1000)).set_compression(Compression::SNAPPY);
    write(directory, "small.parquet", vec![("a", a), ("b", b), ("c", c)], properties.build())
}

fn write(directory: &Path, name: &str, columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> PathBuf {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = directory.join(name);
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

/// The programs were replaced under a server that ran: its scans ended with "exit code 1", and it said that the file is damaged.
#[test]
fn a_start_of_another_version_is_an_error_that_says_so() {
    let (mut to, its_end) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside-scan"));
    let mut child = command.stdin(OwnedFd::from(its_end)).stdout(Stdio::piped()).spawn().unwrap();
    // The byte that it waits for, and a Start that is too short.
    to.write_all(&[0, 1, 0, 0, 0, 2, 0, 0, 0, 7, 7]).unwrap();
    let said = Frame::read(child.stdout.as_mut().unwrap(), To::Parent);
    let Ok(Frame::Failed(failure)) = said else { panic!("{said:?}") };
    assert_eq!(failure.kind, FailureKind::Reading);
    assert!(failure.message.contains("are perhaps of two versions; restart"), "{}", failure.message);
    assert!(child.wait().unwrap().success());
}

#[test]
fn row_groups_that_statistics_rule_out_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = small(directory.path());
    let report = |condition: &str| scan(&file, &filtered(condition)).unwrap().1;
    let third = report("a between 2100 and 2199");
    assert_eq!((third.row_groups, third.pruned, third.rows_read, third.rows_selected), (4, 3, 1000, 100));
    let none = report("a > 5000 or c < 'text'");
    assert_eq!((none.pruned, none.rows_read), (4, 0));
    // What is not NULL is 0 to 6 in each.
    assert_eq!(report("b in (7, 8)").pruned, 4);
    assert_eq!((report("b is null").pruned, report("a is null").pruned), (0, 4));
    assert_eq!(report("not (a < 4000)").rows_selected, 0);
}

/// A process that had started before its file was known has that file, and no other.
#[test]
fn a_process_that_waited_scans_the_file_that_it_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let program = common::program().with_spare();
    let plan = Plan { aggregates: parse_aggregates("sum(a)").unwrap(), ..Plan::default() };
    for rows in 1..=6 {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let file = write(directory.path(), "one.parquet", vec![("a", values)], WriterProperties::default());
        let (result, report) = scan_by(&program, &file, &plan.to_bytes()).unwrap();
        assert_eq!(report.rows_read, rows as u64);
        assert_eq!(result, scan(&file, &plan).unwrap().0);
        // Whether one is ready by now or not, the next scan has to be right.
        std::thread::sleep(Duration::from_millis(10 * (rows as u64 % 3)));
    }
}

/// Sums of floating-point numbers depend on the order in which they are added up, and groups come in the order in which they
/// are met: neither may be that of threads.
#[test]
fn a_result_is_the_same_however_many_threads_make_it() {
    let directory = tempfile::tempdir().unwrap();
    let rows = 0..200_000_i64;
    let part: ArrayRef =
        Arc::new(Float64Array::from_iter_values(rows.clone().map(|row| 0.1 * (row * row % 977) as f64)));
    let name: ArrayRef = Arc::new(StringArray::from_iter(
        rows.clone().map(|row| (row % 11 != 0).then(|| format!("name {}", row * 31 % 4001 / 7))),
    ));
    let row: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(9_000)).build();
    let file = write(directory.path(), "many.parquet", vec![("row", row), ("part", part), ("name", name)], properties);
    let program = common::program();
    let sums = parse_aggregates("sum(part), avg(part * 3.5e0), min(name), max(part), count(name), sum(row)").unwrap();
    let wanted = parse_filter("row <> 17 and part > 1.5e0").unwrap();
    let rows = Plan { filter: Some(wanted), ..Plan::default() };
    let plans = [
        Plan { aggregates: sums.clone(), ..rows.clone() },
        Plan { aggregates: sums, by: vec!["name".into()], ..rows.clone() },
        Plan { order: parse_order("part desc, row").unwrap(), limit: Some(300), ..rows.clone() },
        Plan { limit: Some(20_000), ..rows.clone() },
        rows,
    ];
    for plan in plans {
        let [one, two, many] =
            [1, 2, 100].map(|threads| scan_with(&program, &file, &plan.to_bytes(), threads).unwrap());
        assert!(one == two && one == many, "{plan:?}");
        assert!(one.0.len() > 500, "{plan:?}");
    }
}

/// Texts that rows are only grouped by are decoded as codes of a dictionary, if all pages of the column have codes: the groups are
/// those of the texts.
#[test]
fn groups_are_the_same_whether_a_column_has_dictionaries_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let text =
        |row: u32, count: u32| (!row.is_multiple_of(7)).then(|| format!("a text of some length {}", row * 31 % count));
    let column = |count: u32| Arc::new(StringArray::from_iter((0..6000).map(|row| text(row, count)))) as ArrayRef;
    // The second one's dictionary becomes too long in the middle of a row group; the third one has none.
    let columns = vec![("few", column(40)), ("many", column(4001)), ("plain", column(40))];
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(2500))
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(100)
        .set_dictionary_page_size_limit(20 << 10)
        .set_column_dictionary_enabled("plain".into(), false);
    let file = write(directory.path(), "texts.parquet", columns, properties.build());
    for by in ["few", "many", "plain"] {
        let plan = Plan { aggregates: parse_aggregates("count(*)").unwrap(), by: vec![by.into()], ..Plan::default() };
        // A column that the filter names is decoded as texts.
        let filter = Some(parse_filter(&format!("{by} is null or {by} is not null")).unwrap());
        let texts = scan(&file, &Plan { filter, ..plan.clone() }).unwrap().0;
        assert!(texts.len() > 1000, "{by}");
        assert_eq!(scan(&file, &plan).unwrap().0, texts, "{by}");
    }
}

/// A value that is between the least and the greatest one of each row group, and in none: only a Bloom filter knows.
#[test]
fn row_groups_that_bloom_filters_rule_out_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let even: ArrayRef = Arc::new(Int64Array::from_iter_values((0..4000).map(|row| row * 7919 % 4001 * 2)));
    let narrow: ArrayRef =
        Arc::new(arrow_array::UInt32Array::from_iter_values((0..4000).map(|row| u32::MAX - row * 13 % 4003 * 5)));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..4000).map(|row| format!("{}", row * 31 % 4001))));
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).set_bloom_filter_fpp(0.001);
    let columns = vec![("even", even), ("narrow", narrow), ("text", text)];
    let file = write(directory.path(), "bloom.parquet", columns, properties.build());
    let report = |condition: &str| scan(&file, &filtered(condition)).unwrap().1;
    // Filters are wrong about one value in a hundred: of these they are not.
    for none in ["even = 4001", "even in (1001, 4003) and text is not null", "text = '4002x'", "narrow = 4294967293"] {
        let report = report(none);
        assert_eq!((report.pruned, report.rows_read), (4, 0), "{none}");
    }
    for one in ["even = 4002", "text in ('17', 'x')", "narrow = 4294967290", "even = 4002 or text = 'x'"] {
        assert_eq!(report(one).rows_selected, 1, "{one}");
    }
    assert_eq!(report("even = 4002").pruned, 3);
}

/// A table in one row group of many pages, with an index of them and without one.
fn paged(directory: &Path, rng: &mut fastrand::Rng) -> [PathBuf; 2] {
    const ROWS: i64 = 20_000;
    let sorted: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let near: ArrayRef =
        Arc::new(Int64Array::from_iter((0..ROWS).map(|row| (row / 700 % 3 != 0).then(|| row / 10 + rng.i64(0..50)))));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{:05}", row / 3))));
    let ratio: ArrayRef = Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| match row % 1000 {
        0 => f64::NAN,
        _ => row as f64 / 7.0,
    })));
    let random: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|_| rng.i64(..))));
    let columns = vec![("sorted", sorted), ("near", near), ("text", text), ("ratio", ratio), ("random", random)];
    // Only one column has a dictionary, which is read whatever its pages are.
    let properties = || {
        let properties = WriterProperties::builder().set_data_page_row_count_limit(331).set_write_batch_size(50);
        properties.set_dictionary_enabled(false).set_column_dictionary_enabled("near".into(), true)
    };
    let without = properties().set_statistics_enabled(EnabledStatistics::None).set_offset_index_disabled(true);
    [("indexed.parquet", properties()), ("plain.parquet", without)]
        .map(|(name, properties)| write(directory, name, columns.clone(), properties.build()))
}

fn rows(stream: &[u8]) -> RecordBatch {
    let reader = arrow_ipc::reader::StreamReader::try_new(stream, None).unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
    arrow_select::concat::concat_batches(&schema, &batches).unwrap()
}

/// A value of a large row group was searched in all of its pages.
#[test]
fn pages_that_an_index_rules_out_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let [file, _] = paged(directory.path(), &mut fastrand::Rng::with_seed(1));
    let report = |condition: &str| scan(&file, &filtered(condition)).unwrap().1;
    let all = report("random is not null");
    let one = report("sorted = 7777");
    assert_eq!((one.rows_selected, one.pruned), (1, 0));
    assert!(one.rows_read < 1000 && one.needed_len < all.needed_len / 10, "{one:?}, {all:?}");
    // Besides the pages, the end of the file is read.
    assert!(one.read_len < all.read_len / 4, "{one:?}, {all:?}");
    // Between two pages that are next to each other: the footer cannot know that there is nothing.
    let none = report("near > 1000 and sorted < 5000");
    assert_eq!((none.pruned, none.rows_read, none.rows_selected), (1, 0, 0));
}

#[test]
fn the_same_rows_come_with_an_index_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let files = paged(directory.path(), &mut rng);
    for _ in 0..60 {
        let test = |rng: &mut fastrand::Rng| {
            let how = ["=", "<", "<=", ">", ">=", "<>"][rng.usize(0..6)];
            match rng.u8(0..7) {
                0 => format!("sorted {how} {}", rng.i64(-10..20_010)),
                1 => format!("near {how} {}", rng.i64(-10..2060)),
                2 => format!("text {how} '{:05}'", rng.u32(0..7000)),
                3 => format!("text like '{:03}%'", rng.u32(0..70)),
                4 => format!("ratio {how} {}.5e0", rng.u32(0..2900)),
                5 => format!("near is {}null", ["", "not "][rng.usize(0..2)]),
                _ => format!("sorted in ({}, {}, {})", rng.u32(0..20_000), rng.u32(0..20_000), rng.u32(0..20_000)),
            }
        };
        let (a, b, c) = (test(&mut rng), test(&mut rng), test(&mut rng));
        let condition = [
            format!("{a} and {b}"),
            format!("{a} or {b}"),
            format!("({a} or {b}) and {c}"),
            format!("not ({a}) and {b}"),
        ];
        let condition = &condition[rng.usize(0..4)];
        let plan = Plan { columns: vec!["random".into(), "text".into(), "near".into()], ..filtered(condition) };
        let [indexed, plain] = files.each_ref().map(|file| rows(&scan(file, &plan).unwrap().0));
        assert_eq!(indexed, plain, "seed {seed}: {condition}");
    }
}

/// Bytes of an index that are changed: an error, or the rows of pages that are there, but no crash of the server.
#[test]
fn an_index_that_lies_ends_its_own_scan_alone() {
    let directory = tempfile::tempdir().unwrap();
    let [file, _] = paged(directory.path(), &mut fastrand::Rng::with_seed(2));
    let bytes = std::fs::read(&file).unwrap();
    let metadata = ParquetMetaDataReader::new();
    let metadata = metadata.parse_and_finish(&bytes::Bytes::from(bytes.clone())).unwrap();
    let chunks = metadata.row_group(0).columns();
    let first = chunks.iter().filter_map(|chunk| chunk.column_index_range()).map(|range| range.start).min().unwrap();
    let last = chunks.iter().filter_map(|chunk| chunk.offset_index_range()).map(|range| range.end).max().unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let damaged = directory.path().join("damaged.parquet");
    for _ in 0..40 {
        let mut bytes = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            bytes[rng.usize(first as usize..last as usize)] = rng.u8(..);
        }
        std::fs::write(&damaged, bytes).unwrap();
        match scan(&damaged, &filtered("sorted between 5000 and 6000")) {
            Ok((_, report)) => assert!(report.rows_selected <= 1001, "{report:?}"),
            Err(ScanError::Failed(failure)) => assert_eq!(failure.kind, FailureKind::File, "{failure:?}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn null_is_neither_in_nor_out() {
    let directory = tempfile::tempdir().unwrap();
    let file = small(directory.path());
    let count = |condition: &str| scan(&file, &filtered(condition)).unwrap().1.rows_selected;
    let known = 4000 - 1334;
    assert_eq!(count("b is null"), 1334);
    assert_eq!(count("b = 3") + count("b <> 3"), known);
    assert_eq!(count("b = 3") + count("not (b = 3)"), known);
    assert_eq!(count("b in (3, null)"), count("b = 3"));
    assert_eq!(count("b not in (3, null)"), 0);
    assert_eq!(count("b < 2.5"), count("b <= 2"));
    assert_eq!((count("b = 2.5"), count("b <> 2.5")), (0, known));
    assert_eq!(count("b + 1 > 3 and c like '%7' and true"), count("b >= 3 and c like 'text %7'"));
    assert_eq!((count("1 < 2"), count("null")), (4000, 0));
}

/// `arrow-rs` panics on some damaged files (and on 44 of the first 4,500 that were tried): such a panic, like a damaged
/// page, is an error of that scan. A file that is changed where nobody looks gives a result.
#[test]
fn damaged_files_end_their_scan_with_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let file = small(directory.path());
    let whole = std::fs::read(&file).unwrap();
    let plan =
        Plan { aggregates: parse_aggregates("sum(a * b), max(c), count(*)").unwrap(), ..filtered("c like '%1%'") };
    let sum = scan(&file, &plan).unwrap().0;
    let mut random = fastrand::Rng::with_seed(7);
    let damaged = directory.path().join("damaged.parquet");
    let (mut failed, mut same) = (0, 0);
    for round in 0..250 {
        let mut bytes = whole.clone();
        // The footer decides most.
        let from = if round % 2 == 0 { bytes.len() - bytes.len().min(1500) } else { 0 };
        for _ in 0..random.usize(1..4) {
            let at = random.usize(from..bytes.len());
            bytes[at] = random.u8(..);
        }
        if round % 10 == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        std::fs::write(&damaged, &bytes).unwrap();
        match scan(&damaged, &plan) {
            Ok((result, _)) => same += usize::from(result == sum),
            Err(ScanError::Failed(failure)) => {
                let is_out_of_memory = failure.kind == FailureKind::Memory
                    && failure.message.contains("signal 6")
                    && failure.message.contains("128 MiB");
                assert!(is_out_of_memory || failure.message.starts_with("the file: "), "{failure:?}");
                // Neither kinds of errors, one in front of the other, nor directories of the machine that built the program.
                let is_plain = !failure.message.contains("arquet error: ") && !failure.message.contains(".cargo");
                assert!(is_plain && !failure.message.contains("arquet argument error: "), "{failure:?}");
                failed += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(failed > 50 && same > 5, "{failed} failed, {same} are the same");
}

/// 300 MiB of zeros in one page are some kilobytes: there is no limit in Parquet on what a page decompresses to.
#[test]
fn a_page_that_does_not_fit_ends_its_scan_alone() {
    let directory = tempfile::tempdir().unwrap();
    let zeros = FixedSizeBinaryArray::try_new(1 << 20, vec![0_u8; 300 << 20].into(), None).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_size_limit(1 << 30)
        .set_write_batch_size(1 << 20);
    let file = write(directory.path(), "bomb.parquet", vec![("zeros", Arc::new(zeros))], properties.build());
    assert!(std::fs::metadata(&file).unwrap().len() < 100 << 10);
    let told = scan(&file, &Plan { limit: Some(1), ..Plan::default() }).unwrap_err().to_string();
    assert!(told.contains("128 MiB") || told.contains("decode") || told.contains("memory"), "{told}");
}

#[test]
fn plans_that_do_not_fit_are_told_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let file = small(directory.path());
    let sums = |text: &str| Plan { aggregates: parse_aggregates(text).unwrap(), ..Plan::default() };
    let mut random = fastrand::Rng::with_seed(3);
    for (plan, wanted) in [
        (filtered("d = 1"), "no column `d`; it has a, b, c"),
        (
            filtered("c > 1.5"),
            "column `c` is of type text, and is compared with a number, 1.5: a text is in quotes, as in '1.5'",
        ),
        (filtered("c = true"), "is compared with true: a text is in quotes, as in 'true'"),
        (filtered("c = 1e0"), "is compared with a number, 1e0: compare it with a text in 'single quotes'"),
        (filtered("a = ' 1'"), "is compared with a text, ' 1': a number has no quotes, as in 1"),
        (
            filtered("c in ('x', 3)"),
            "column `c` is of type text, and is compared with a number, 3: a text is in quotes, as in '3'",
        ),
        (filtered("a = 'x'"), "column `a` is of type integer, and is compared with a text, 'x'"),
        (filtered("a in (1, 'x')"), "column `a` is of type integer, and is compared with a text, 'x'"),
        (filtered("a = date '2000-01-01'"), "column `a` is of type integer, and is compared with a date"),
        (filtered("a + 1 = 'x'"), "a number is compared with a text, 'x'"),
        (
            filtered("a like '1%'"),
            "column `a` is of type integer, and is compared with a pattern: LIKE is of a column of texts",
        ),
        (filtered("a + 1"), "a filter is a condition, such as a < 1"),
        (filtered("a = c"), "column `a` is of type integer, and is compared with column `c` of type text"),
        (sums("sum(c)"), "`sum(c)` is not of numbers"),
        (sums("sum(c + 1)"), "only numbers are added and multiplied"),
        (sums("sum(9223372036854775807 + a)"), "a sum or a product has more digits than a result holds"),
    ] {
        let Err(ScanError::Failed(failure)) = scan(&file, &plan) else { panic!("{plan:?} is carried out") };
        assert_eq!(failure.kind, FailureKind::Plan, "{failure:?}");
        assert!(failure.message.contains(wanted), "{failure:?}");
    }
    let good = filtered("c like '%1%' and a in (1, 2, 3) or b is null").to_bytes();
    for _ in 0..100 {
        let mut bytes = good.clone();
        let at = random.usize(..bytes.len());
        bytes[at] = random.u8(..);
        match scan_bytes(&file, &bytes) {
            Ok(_) => {}
            Err(ScanError::Failed(failure)) => assert_eq!(failure.kind, FailureKind::Plan, "{failure:?}"),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn groups_have_their_share_of_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..400_000));
    let file = write(directory.path(), "keys.parquet", vec![("key", keys)], WriterProperties::new());
    let count = Aggregate { kind: AggregateKind::Count, input: None, name: "n".into() };
    let plan = Plan { aggregates: vec![count], by: vec!["key".into()], ..Plan::default() };
    let scanned = scan(&file, &plan);
    let Err(ScanError::Failed(failure)) = scanned else { panic!("so many groups do not fit: {scanned:?}") };
    assert_eq!(failure.kind, FailureKind::Memory, "{failure:?}");
    let few = Plan {
        filter: Some(Expression::In(
            Box::new(Expression::Column("key".into())),
            vec![diskside_scan::Literal::Number { digits: 5, scale: 0 }],
        )),
        ..plan
    };
    assert_eq!(scan(&file, &few).unwrap().1.rows_selected, 1);
}

/// Columns of a few rows had room for thousands while they waited to be sorted: a file of a hundred kilobytes needed more than 128 MiB.
#[test]
fn the_first_rows_of_many_small_row_groups_fit() {
    let directory = tempfile::tempdir().unwrap();
    let column =
        |column: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..6000).map(|row| row * column % 1009))) };
    let names: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
    let columns = names.iter().zip(1..).map(|(name, number)| (&**name, column(number))).collect();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
    let file = write(directory.path(), "groups.parquet", columns, properties);
    let order = parse_order("c1 desc, c0").unwrap();
    let found = rows(&scan(&file, &Plan { order, limit: Some(40), ..Plan::default() }).unwrap().0);
    let first = found.column(1).as_primitive::<Int64Type>().values();
    assert!(found.num_rows() == 40 && first.is_sorted_by(|a, b| a >= b) && first[0] == 1008, "{first:?}");
}

/// A function that sums up `a`, as an object.
fn sum_of_a() -> Vec<u8> {
    let source = "#include \"diskside.h\"\nstruct sum { __s64 a; };\nstruct rows { const __s64 *a; };\n\
        SEC(\"columns/sum\") __s64 sum(struct sum *out, const struct rows *in, __u64 rows, const void *args, \
        const struct ds_call *call) { for (__u64 i = 0; i < rows; i++) out->a += in->a[i]; return 8; }\n\
        SEC(\"combine/sum\") __s64 fold(struct sum *acc, __u64 acc_len, __u64 cap, const struct sum *part, __u64 part_len) \
        { acc->a += part->a; return 8; }\n";
    let clang = ["clang-19", "clang"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let mut child = Command::new(clang.expect("clang is on the path: install the package `clang`"))
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-x", "c", "-c", "-", "-o", "-", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/include"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

fn with_function(object: Vec<u8>, gives: Gives) -> Plan {
    let function = ColumnFunction { object, name: String::new(), args: Vec::new(), gives };
    Plan { function: Some(Box::new(function)), ..Plan::default() }
}

/// The object of a function comes from a host, whom nobody trusts: it may be anything.
#[test]
fn a_damaged_object_ends_its_scan_with_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let file = small(directory.path());
    let object = sum_of_a();
    let (result, report) = scan(&file, &with_function(object.clone(), Gives::Result)).unwrap();
    assert_eq!((result.is_empty(), report.rows_selected), (false, 4000));
    for gives in [Gives::Rows, Gives::Partial, Gives::Result] {
        let of_rows = Plan { limit: Some(1), ..with_function(object.clone(), gives) };
        let refused = scan(&file, &of_rows).unwrap_err();
        assert!(matches!(&refused, ScanError::Failed(of) if of.kind == FailureKind::Plan), "{refused}");
    }
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..150 {
        let mut changed = object.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..changed.len());
            changed[at] = random.u8(..);
        }
        match scan(&file, &with_function(changed, Gives::Result)) {
            Ok(_) => {}
            Err(ScanError::Failed(failure)) => {
                let is_of_function = matches!(failure.kind, FailureKind::Plan | FailureKind::Function(_));
                assert!(is_of_function && failure.message.starts_with("the file: "), "{failure:?}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// A footer of a few hundred bytes claimed any number of rows, and a sum of a constant was counted until its deadline.
#[test]
fn row_groups_of_more_rows_than_there_can_be_are_refused() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let footer_len = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
    let footer_start = bytes.len() - 8 - footer_len;
    let footer = ParquetMetaDataReader::decode_metadata(&bytes[footer_start..bytes.len() - 8]).unwrap();
    let claimed = |rows| footer.row_groups()[0].clone().into_builder().set_num_rows(rows).build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for (rows, is_read) in [(3, true), (1 << 40, false), (-1, false)] {
        let metadata = footer.clone().into_builder().set_row_groups(vec![claimed(rows)]).build();
        let mut changed = bytes[..footer_start].to_vec();
        ParquetMetaDataWriter::new(&mut changed, &metadata).finish().unwrap();
        let file = directory.path().join("claims.parquet");
        std::fs::write(&file, changed).unwrap();
        let plan = Plan { aggregates: parse_aggregates("sum(1)").unwrap(), ..Plan::default() };
        match scan(&file, &plan) {
            Ok(_) => assert!(is_read, "{rows}"),
            Err(ScanError::Failed(failure)) => {
                assert!(!is_read && failure.kind == FailureKind::File, "{rows}: {failure:?}");
            }
            Err(error) => panic!("{rows}: {error}"),
        }
    }
}
