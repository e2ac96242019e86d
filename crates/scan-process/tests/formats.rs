//! Files that are not Parquet: the same rows come out of all, whatever lies on the border of two pieces, and what is wrong is
//! told with its line.

mod common;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Decimal64Type, Int64Type};
use arrow_array::{ArrayRef, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_select::concat::concat_batches;
use common::How;
use diskside_scan::{
    Failure, FailureKind, Format, Part, Plan, Report, ScanError, parse_aggregates, parse_columns, parse_filter,
    parse_order, parse_types,
};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn scan(file: &Path, plan: &Plan) -> Result<(RecordBatch, Report), ScanError> {
    let how = How { name: file.file_name().unwrap().to_str().unwrap(), ..How::default() };
    let (result, report) = common::scan(&common::program(), file, &plan.to_bytes(), how)?;
    let reader = StreamReader::try_new(Cursor::new(result), None).unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    Ok((concat_batches(&schema, &batches).unwrap(), report))
}

fn failed(file: &Path, plan: &Plan) -> Failure {
    match scan(file, plan) {
        Err(ScanError::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

fn written(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn sums(text: &str) -> Plan {
    Plan { aggregates: parse_aggregates(text).unwrap(), ..Plan::default() }
}

fn rows(columns: &str, condition: &str) -> Plan {
    Plan { columns: parse_columns(columns).unwrap(), filter: Some(parse_filter(condition).unwrap()), ..Plan::default() }
}

fn integers(batch: &RecordBatch, column: usize) -> Vec<Option<i64>> {
    batch.column(column).as_primitive::<Int64Type>().iter().collect()
}

fn texts(batch: &RecordBatch, column: usize) -> Vec<Option<&str>> {
    batch.column(column).as_string::<i32>().iter().collect()
}

/// Rows whose texts have delimiters, quotes and ends of lines, so many that pieces of 2 MiB end everywhere.
const MANY: i64 = 60_000;

fn text_of(row: i64) -> String {
    ["plain", "a,b", "said \"x\"", "two\nlines", "\r\n", "", "é"][row as usize % 7].repeat(row as usize % 19)
}

#[test]
fn values_may_have_delimiters_quotes_and_ends_of_lines() {
    let directory = tempfile::tempdir().unwrap();
    let mut csv = String::from("id,\"a text\",other\r\n");
    for row in 0..MANY {
        let quoted = text_of(row).replace('"', "\"\"");
        write!(csv, "{row},\"{quoted}\",{}\r\n", row % 10).unwrap();
    }
    assert!(csv.len() > 2 << 20);
    let file = written(directory.path(), "many.csv", &csv);
    let (found, report) = scan(&file, &rows("id,\"a text\"", "other = 7")).unwrap();
    assert_eq!((report.rows_read, report.rows_selected), (MANY as u64, MANY as u64 / 10));
    let wanted: Vec<i64> = (0..MANY).filter(|row| row % 10 == 7).collect();
    assert_eq!(integers(&found, 0), wanted.iter().copied().map(Some).collect::<Vec<_>>());
    let wanted: Vec<String> = wanted.into_iter().map(text_of).collect();
    // Nothing between two delimiters is NULL, quoted or not.
    let wanted: Vec<_> = wanted.iter().map(|text| (!text.is_empty()).then_some(&**text)).collect();
    assert_eq!(texts(&found, 1), wanted);
    let (count, _) = scan(&file, &sums("count(*), count(\"a text\"), sum(id)")).unwrap();
    let known = (0..MANY).filter(|row| !text_of(*row).is_empty()).count() as i64;
    assert_eq!((0..2).map(|at| integers(&count, at)[0]).collect::<Vec<_>>(), [Some(MANY), Some(known)]);
}

/// A line belongs to one part, so that parts of a file make the whole.
#[test]
fn parts_of_a_text_make_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let lines: String = (0..500_000).map(|row| format!("{row},{}\n", row * 3)).collect();
    let csv = written(directory.path(), "parts.csv", format!("a,b\n{lines}"));
    let json: String = (0..200_000).map(|row| format!("{{\"a\": {row}, \"b\": \"{row}\"}}\n")).collect();
    let json = written(directory.path(), "parts.jsonl", json);
    for (file, count) in [(csv, 500_000_i64), (json, 200_000)] {
        let whole = scan(&file, &sums("count(*), sum(a)")).unwrap();
        assert!(whole.1.row_groups > 1, "{:?}", whole.1);
        assert_eq!(integers(&whole.0, 0), [Some(count)]);
        let part = |first, parts| {
            let part = Part { first, count: parts };
            scan(&file, &Plan { part, ..sums("count(*)") }).unwrap().0
        };
        let all: i64 = (0..whole.1.row_groups as u32).filter_map(|first| integers(&part(first, 1), 0)[0]).sum();
        assert_eq!(all, count);
        let (first, rest) = (integers(&part(0, 1), 0)[0].unwrap(), integers(&part(1, u32::MAX), 0)[0].unwrap());
        assert!(first > 0 && rest > 0 && first + rest == count, "{first} and {rest}");
        let groups = whole.1.row_groups as u32;
        // It was cut, in silence, to what is there.
        let beyond = failed(&file, &Plan { part: Part { first: 1, count: groups }, ..sums("count(*)") });
        let told = format!("pieces 1..{} are not all there: it has {groups}, counted from 0", groups + 1);
        assert!(beyond.kind == FailureKind::Plan && beyond.message.contains(&told), "{beyond:?}");
    }
}

#[test]
fn types_are_those_of_the_first_lines_or_as_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let text = "\u{feff}whole,price,day,moment,flag,name,nothing\n\
                1,2.50,2024-02-29,2024-02-29 12:30:00.5,true,x,\n\
                -7,0.05,1969-12-31,2024-02-29 12:30:00,False,y,\n";
    let file = written(directory.path(), "types.csv", text);
    let all = scan(&file, &Plan::default()).unwrap().0;
    let types: Vec<String> = all.schema().fields().iter().map(|field| field.data_type().to_string()).collect();
    assert_eq!(types, ["Int64", "Float64", "Date32", "Timestamp(µs)", "Boolean", "Utf8", "Utf8"]);
    let exact = Plan { types: parse_types("price decimal(15, 2)").unwrap(), ..sums("sum(price)") };
    let sum = scan(&file, &exact).unwrap().0;
    assert!(sum.schema().field(0).data_type().to_string().starts_with("Decimal"), "{:?}", sum.schema());
    let filtered = rows("whole", "price = 0.05 and day < date '1970-01-01' and not flag and nothing is null");
    assert_eq!(integers(&scan(&file, &filtered).unwrap().0, 0), [Some(-7)]);
    let prices = Plan { types: exact.types, ..rows("price", "true") };
    let prices = scan(&file, &prices).unwrap().0;
    assert_eq!(prices.column(0).as_primitive::<Decimal64Type>().values()[..], [250, 5]);
    let bare = written(directory.path(), "bare.txt", "1|2|\n3|4|\n");
    let format = Format::Csv { delimiter: b'|', has_header: false };
    let found = scan(&bare, &Plan { format, ..rows("column1", "column0 = 3") }).unwrap().0;
    assert_eq!(integers(&found, 0), [Some(4)]);
}

/// A column whose values look like dates and are none, such as 30 February, was guessed to be of dates, and its scan failed.
#[test]
fn what_looks_like_a_date_and_is_none_is_a_text() {
    let directory = tempfile::tempdir().unwrap();
    let lines = "day,at,real\n2024-02-30,2024-02-30 25:00:00,2024-02-29\r\n2024-01-01,2024-01-01 00:00:00,\n";
    let file = written(directory.path(), "dates.csv", lines);
    let plan = rows("day, at", "real = date '2024-02-29'");
    let (batch, _) = scan(&file, &plan).unwrap();
    assert_eq!((texts(&batch, 0), texts(&batch, 1)), (vec![Some("2024-02-30")], vec![Some("2024-02-30 25:00:00")]));
}

/// Lines that end as those of old Macintoshes were one line, the names of columns, and the file had no rows.
#[test]
fn a_carriage_return_alone_ends_no_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), "old.csv", "a,b\r1,2\r3,4\r");
    let plan = sums("count(*)");
    let failure = failed(&file, &plan);
    assert!(failure.kind == FailureKind::File && failure.message.contains("carriage return alone"), "{failure:?}");
    let quoted = written(directory.path(), "quoted.csv", "a,\"b\rc\"\r\n1,2\r\n");
    assert_eq!(integers(&scan(&quoted, &plan).unwrap().0, 0), [Some(1)]);
}

#[test]
fn what_is_wrong_with_a_text_is_told_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let whole = |name: &str, text: &str| written(directory.path(), name, text);
    let long: String = (0..70_000).map(|row| format!("{row},\"{row}\n\"\n")).collect();
    let late = format!("a,b\n{long}x,y\n");
    for (name, text, wanted) in [
        ("few.csv", "a,b\n1,2\n\n3\n", "line 4 has too few values: 1, where the first one has 2"),
        ("many.csv", "a,b\n1,2\n3,4,5\n", "line 3 has too many values: 3"),
        (
            "cents.csv",
            "a;b\n1,5;2\n",
            "line 2 has too many values: 2, where the first one has 1; that looks like a text with another delimiter: --delimiter ';'",
        ),
        ("late.csv", &late, "line 140002: column `a`: 'x' is not of type integer"),
        ("open.csv", "a,b\n1,\"2\n3,4\n", "line 2: a quote is not closed"),
        // All of the file was the name of a column, and it was a table without rows.
        ("header.csv", "a,\"b\n1,2\n3,4\n", "line 1: a quote is not closed"),
        ("empty.csv", "", "it is empty"),
        ("few.jsonl", "{\"a\": 1}\n\n{\"a\": x}\n", "its first lines are not JSON objects: line 3: "),
        ("plain.txt", "a,b\n1,2\n3,4\n5,6\n", "If it is CSV, Arrow or JSON lines, say so: --input csv,"),
        ("array.jsonl", "[1, 2]\n", "its first lines are not JSON objects"),
    ] {
        let failure = failed(&whole(name, text), &sums("sum(a)"));
        assert_eq!(failure.kind, FailureKind::File, "{failure:?}");
        assert!(failure.message.contains(wanted), "{wanted}: {failure:?}");
    }
    let lines: String = (0..60_000).map(|row| format!("{{\"a\": {row}}}\n")).collect();
    let wrong = failed(&whole("late.jsonl", &format!("{lines}{{\"a\": \"x\"}}\n")), &sums("sum(a)"));
    assert!(wrong.message.contains("line 60001: "), "{wrong:?}");
    let cents = format!("a;b\n{}1,5;2\n", "1;2\n".repeat(70_000));
    let cents = failed(&whole("late_cents.csv", &cents), &sums("count(*)"));
    let wanted =
        "line 70002 has too many values: 2, where the first one has 1; that looks like a text with another delimiter";
    assert!(cents.message.contains(wanted), "{cents:?}");
    let known = whole("known.csv", "a,b\n1,2\n");
    let flags = failed(&whole("flags.csv", "a\ntrue\n"), &sums("min(a)"));
    assert!(
        flags
            .message
            .contains("`min(a)` is not of numbers, dates, timestamps and texts: column `a` is of type boolean"),
        "{flags:?}"
    );
    // No line said it: the caller did.
    let typed = failed(
        &whole("typed.csv", "a,b\nx,2\n"),
        &Plan { types: parse_types("a integer").unwrap(), ..Plan::default() },
    );
    assert!(typed.message.contains("which the first lines or the given types say"), "{typed:?}");
    let unknown = failed(&known, &Plan { types: parse_types("c date").unwrap(), ..Plan::default() });
    assert_eq!(
        (unknown.kind, &*unknown.message),
        (FailureKind::Plan, "known.csv: there is no column `c` to have a type")
    );
    for (text, delimiter) in [("a;b\n1;2\n", "';'"), ("a\tb\n1\t2\n", "$'\\t'"), ("a|b\n1|2\n", "'|'")] {
        let other = failed(&whole("other.csv", text), &rows("b", "b = 2"));
        let told = format!("that looks like a text with another delimiter: --delimiter {delimiter}");
        assert!(other.kind == FailureKind::Plan && other.message.ends_with(&told), "{other:?}");
    }
    assert!(!failed(&known, &rows("c", "c = 2")).message.contains("delimiter"));
    let compressed = failed(&whole("a.csv.gz", "\x1f"), &Plan::default());
    assert_eq!(compressed.kind, FailureKind::Unsupported);
}

/// A member that the first 256 KiB lack could be neither named nor given a type.
#[test]
fn a_member_that_begins_late_is_a_column_if_it_is_given_a_type() {
    let directory = tempfile::tempdir().unwrap();
    let early: String = (0..40_000).map(|row| format!("{{\"a\": {row}}}\n")).collect();
    let late = r#"{"a": 1, "late": 1.25}"#;
    let file = written(directory.path(), "late.jsonl", format!("{early}{late}\n{{\"late\": null}}\n"));
    let types = || parse_types("late decimal(5, 2)").unwrap();
    let found = scan(&file, &Plan { types: types(), ..rows("a,late", "late > 1") }).unwrap().0;
    assert_eq!(integers(&found, 0), [Some(1)]);
    assert_eq!(found.column(1).as_primitive::<Decimal64Type>().values(), &[125]);
    let all = scan(&file, &Plan { types: types(), ..Plan::default() }).unwrap().0;
    assert_eq!((all.num_rows(), all.column(1).null_count()), (40_002, 40_001));
    let unknown = failed(&file, &rows("late", "late > 1"));
    assert!(unknown.message.ends_with("is a column if it is given a type: --types 'late text'"), "{unknown:?}");
}

/// The fraction of a number was cut off where the first lines had whole ones, and the sum was wrong without a word.
#[test]
fn a_fraction_is_no_whole_number_in_json_lines() {
    let directory = tempfile::tempdir().unwrap();
    let typed = |name: &str, types: &str| Plan { types: parse_types(types).unwrap(), ..sums(name) };
    for (wrong, value) in
        [("2.5", "2.5"), ("-2.9", "-2.9"), ("9007199254740993.0", "9007199254740993.0"), ("1e3", "1e3")]
    {
        let file = written(directory.path(), "some.jsonl", format!("{{\"v\": 1}}\n{{\"v\": {wrong}}}\n"));
        let failure = failed(&file, &typed("sum(v)", "v integer"));
        let told = format!("line 2: column `v`: '{value}' is not of type integer");
        assert!(failure.message.contains(&told) && failure.message.contains("--types 'v float'"), "{failure:?}");
    }
    let lines = "{\"a\": 1, \"in\": {\"b\": 7, \"c\": [1, -2]}}\n".repeat(20_000);
    let file = written(directory.path(), "nested.jsonl", format!("{lines}{{\"a\": null, \"in\": {{\"b\": 2.7}}}}\n"));
    let failure = failed(&file, &rows("in", "a is null"));
    assert!(failure.message.contains("line 20001: column `in`: '2.7'"), "{failure:?}");
    let file = written(directory.path(), "whole.jsonl", format!("{lines}{{\"a\": -9223372036854775808}}\n"));
    assert_eq!(integers(&scan(&file, &sums("min(a), count(a)")).unwrap().0, 0), [Some(i64::MIN)]);
    let (batch, _) = scan(&file, &Plan { limit: Some(1), ..rows("in", "a = 1") }).unwrap();
    let inner = batch.column(0).as_struct().column(0).as_primitive::<Int64Type>();
    assert_eq!(inner.value(0), 7);
}

/// pandas writes its texts as large ones: a group by one was "a damaged file".
#[test]
fn large_texts_are_grouped_by() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large.arrow");
    let texts_of = LargeStringArray::from(vec![Some("a"), None, Some("a")]);
    let columns: [(&str, ArrayRef); 2] = [("s", Arc::new(texts_of)), ("v", Arc::new(Int64Array::from(vec![1, 2, 3])))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = FileWriter::try_new(File::create(&file).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let plan = Plan { by: parse_columns("s").unwrap(), ..sums("sum(v)") };
    let (batch, _) = scan(&file, &plan).unwrap();
    assert_eq!(texts(&batch, 0), [Some("a"), None]);
}

#[test]
fn json_lines_have_columns_in_the_order_of_the_text() {
    let directory = tempfile::tempdir().unwrap();
    let text = "{\"z\": 1, \"price\": 0.5, \"a\": \"x\"}\n{\"a\": \"y\", \"late\": true, \"z\": 2}\n  \n{\"z\": null}";
    let file = written(directory.path(), "some.ndjson", text);
    let all = scan(&file, &Plan::default()).unwrap().0;
    let names: Vec<&str> = all.schema_ref().fields().iter().map(|field| &**field.name()).collect();
    assert_eq!(names, ["z", "price", "a", "late"]);
    assert_eq!(integers(&all, 0), [Some(1), Some(2), None]);
    let found = scan(&file, &rows("a", "late and price is null")).unwrap().0;
    assert_eq!(texts(&found, 0), [Some("y")]);
    assert_eq!(integers(&scan(&file, &sums("count(*)")).unwrap().0, 0), [Some(3)]);
}

/// Twenty batches, whose texts are a dictionary.
fn batches() -> Vec<RecordBatch> {
    let batch = |number: i64| {
        let a: ArrayRef = Arc::new(Int64Array::from_iter_values(number * 1000..number * 1000 + 1000));
        let values = Arc::new(StringArray::from(vec!["one", "two", "three"]));
        let codes = Int32Array::from_iter((0..1000).map(|row| (row % 7 != 0).then_some(row % 3)));
        let c: ArrayRef = Arc::new(arrow_array::DictionaryArray::try_new(codes, values).unwrap());
        RecordBatch::try_from_iter([("a", a), ("c", c)]).unwrap()
    };
    (0..20).map(batch).collect()
}

fn arrow_file(path: &Path, compression: Option<CompressionType>) {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let batches = batches();
    let mut writer =
        FileWriter::try_new_with_options(File::create(path).unwrap(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

#[test]
fn arrow_files_and_streams_are_scanned() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (name, compression) in
        [("plain", None), ("lz4", Some(CompressionType::LZ4_FRAME)), ("zstd", Some(CompressionType::ZSTD))]
    {
        arrow_file(&path(name), compression);
    }
    let batches = batches();
    let mut stream = StreamWriter::try_new(File::create(path("stream")).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| stream.write(batch).unwrap());
    stream.finish().unwrap();
    for name in ["plain", "lz4", "zstd", "stream"] {
        let (found, report) = scan(&path(name), &rows("c,a", "c = 'two' and a >= 19990")).unwrap();
        assert_eq!(report.rows_read, 20_000, "{name}");
        assert_eq!(integers(&found, 1), [Some(19_991), Some(19_997)], "{name}");
        assert_eq!(texts(&found, 0), [Some("two"); 2], "{name}");
        let count = Plan { by: vec!["c".into()], ..sums("count(*)") };
        assert_eq!(scan(&path(name), &count).unwrap().0.num_rows(), 4, "{name}: three texts and NULL");
        assert_eq!(integers(&scan(&path(name), &sums("count(*)")).unwrap().0, 0), [Some(20_000)], "{name}");
    }
    let whole = std::fs::read(path("stream")).unwrap();
    let cut = failed(&written(directory.path(), "cut", &whole[..whole.len() - 1000]), &sums("count(*)"));
    assert!(cut.kind == FailureKind::File && cut.message.contains("in the middle of a message"), "{cut:?}");
    // A damaged batch was called a damaged schema.
    let mut damaged = whole;
    let schema_end = 8 + u32::from_le_bytes(damaged[4..8].try_into().unwrap()) as usize;
    damaged[schema_end + 8..schema_end + 40].fill(0xff);
    let damaged = failed(&written(directory.path(), "damaged", &damaged), &sums("count(*)"));
    assert!(damaged.kind == FailureKind::File && damaged.message.contains("piece 0"), "{damaged:?}");
    let ended = failed(&written(directory.path(), "ended", [0xff, 0xff, 0xff, 0xff, 8, 1, 0, 0, 7]), &sums("count(*)"));
    assert!(ended.message.contains("it ends before its schema does"), "{ended:?}");
    let whole = std::fs::read(path("plain")).unwrap();
    let cut = failed(&written(directory.path(), "cut", &whole[..whole.len() - 1]), &sums("count(*)"));
    assert!(cut.message.contains("its footer is damaged, or it was not written to its end"), "{cut:?}");
    let typed = Plan { types: parse_types("a text").unwrap(), ..Plan::default() };
    assert_eq!(failed(&path("plain"), &typed).kind, FailureKind::Plan);
}

#[test]
fn damaged_arrow_files_end_their_scan_with_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("whole");
    arrow_file(&file, Some(CompressionType::LZ4_FRAME));
    let whole = std::fs::read(&file).unwrap();
    let plan = Plan { by: vec!["c".into()], ..sums("sum(a)") };
    let (mut random, mut failures) = (fastrand::Rng::with_seed(11), 0);
    for round in 0..150 {
        let mut bytes = whole.clone();
        let from = if round % 2 == 0 { bytes.len() - 2000 } else { 0 };
        for _ in 0..random.usize(1..6) {
            let at = random.usize(from..bytes.len());
            bytes[at] = random.u8(..);
        }
        match scan(&written(directory.path(), "damaged", &bytes), &plan) {
            Ok(_) => {}
            Err(ScanError::Failed(failure)) => {
                let is_out_of_memory = failure.kind == FailureKind::Memory
                    && failure.message.contains("signal 6")
                    && failure.message.contains("128 MiB");
                assert!(is_out_of_memory || failure.message.starts_with("damaged: "), "{failure:?}");
                failures += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(failures > 20, "{failures} failed");
}

#[test]
fn the_first_rows_of_an_order_are_those_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let values: Vec<Option<i64>> = (0..200_000).map(|_| (random.u8(..) > 3).then(|| random.i64(-500..500))).collect();
    let lines: String = values.iter().zip(0..).fold("v,row\n".into(), |mut lines: String, (value, row)| {
        writeln!(lines, "{},{row}", value.map_or(String::new(), |value| value.to_string())).unwrap();
        lines
    });
    let file = written(directory.path(), "order.csv", lines);
    let order = |order: &str, limit| Plan { order: parse_order(order).unwrap(), limit: Some(limit), ..Plan::default() };
    let mut wanted: Vec<(Option<i64>, i64)> = values.iter().copied().zip(0..).collect();
    // NULL comes last, whichever way.
    wanted.sort_unstable_by_key(|(value, row)| (value.is_none(), value.map(|value| -value), *row));
    for limit in [0, 1, 1000, 65_536] {
        let (found, report) = scan(&file, &order("v desc, row", limit)).unwrap();
        let read = if limit == 0 { 0 } else { 200_000 };
        assert_eq!((found.num_rows() as u64, report.rows_read), (limit, read));
        let found: Vec<_> = integers(&found, 0).into_iter().zip(integers(&found, 1).into_iter().flatten()).collect();
        assert!(found[..] == wanted[..limit as usize], "{limit}");
    }
    let groups = Plan { by: vec!["v".into()], aggregates: sums("count(*) as n").aggregates, ..order("v", 2) };
    assert_eq!(integers(&scan(&file, &groups).unwrap().0, 0), [Some(-500), Some(-499)]);
    let unknown = failed(&file, &order("nothing", 3));
    assert_eq!(unknown.kind, FailureKind::Plan);
    assert!(unknown.message.contains("no column `nothing` to be sorted by"), "{unknown:?}");
}

/// A file of 2 MiB with 4,000 columns did not fit 2 GiB, because parsers make room for a whole batch; and where a value was wrong, each
/// value before it was parsed by itself.
#[test]
fn a_text_of_very_many_columns_is_scanned_and_its_wrong_line_is_found() {
    const COLUMNS: usize = 1500;
    const ROWS: usize = 400;
    let directory = tempfile::tempdir().unwrap();
    let joined = |value: &dyn Fn(usize) -> String| (0..COLUMNS).map(value).collect::<Vec<_>>().join(",");
    let csv = |last: &str| {
        let last = |column| if column == COLUMNS - 1 { last.to_owned() } else { "1".into() };
        format!(
            "{}\n{}{}\n",
            joined(&|column| format!("c{column}")),
            (joined(&|_| "1".into()) + "\n").repeat(ROWS - 1),
            joined(&last)
        )
    };
    let json = |last: &str| {
        let row = joined(&|column| format!("\"c{column}\": 1"));
        format!("{{{row}}}\n{}{{\"c7\": {last}}}\n", "{}\n".repeat(ROWS - 2))
    };
    for (name, right, wrong) in [("wide.csv", csv("1"), csv("x")), ("wide.jsonl", json("1"), json("\"x\""))] {
        let (found, _) = scan(&written(directory.path(), name, right), &Plan::default()).unwrap();
        assert_eq!((found.num_rows(), found.num_columns()), (ROWS, COLUMNS), "{name}");
        assert!(found.schema().field(1499).name() == "c1499", "{name}");
        let plan = Plan { types: parse_types("c7 integer").unwrap(), ..Plan::default() };
        let failure = failed(&written(directory.path(), name, wrong), &plan);
        let line = if name == "wide.csv" { ROWS + 1 } else { ROWS };
        assert!(failure.message.contains(&format!("line {line}: ")), "{failure}");
        assert_eq!(
            failure.message.contains("column `c1499`: 'x' is not of type integer"),
            name == "wide.csv",
            "{failure}"
        );
    }
}
