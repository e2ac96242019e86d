//! Plans that no parser made over files that are all right, and files that were changed at random: each ends its own scan, soon,
//! and says why. `DISKSIDE_MUTATIONS` says how many of each are tried, and `DISKSIDE_SEED` which.

mod common;

use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int8Array,
    Int64Array, ListArray, NullArray, RecordBatch, StringArray, StringViewArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use common::How;
use diskside_scan::{
    Aggregate, AggregateKind, Arithmetic, ColumnType, Comparison, Compression, Expression, FailureKind, Format,
    Literal, Order, Part, Plan, ScanError,
};
use fastrand::Rng;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// No scan of a few rows takes so long, whatever they are.
const LONG: Duration = Duration::from_secs(10);
const ROWS: i64 = 300;

fn count() -> u32 {
    std::env::var("DISKSIDE_MUTATIONS").map_or(60, |count| count.parse().unwrap())
}

fn rng() -> Rng {
    Rng::with_seed(std::env::var("DISKSIDE_SEED").map_or(1, |seed| seed.parse().unwrap()))
}

/// How a scan ends: `Ok` with the length of its result, or why not.
fn scan(file: &Path, plan: &[u8]) -> Result<usize, ScanError> {
    let how = How { name: file.file_name().unwrap().to_str().unwrap(), timeout: LONG, ..How::default() };
    common::scan(&common::program(), file, plan, how).map(|(result, _)| result.len())
}

fn columns() -> RecordBatch {
    let rows = || 0..ROWS;
    let some = |row: i64| row % 5 != 0;
    let texts = || rows().map(|row| some(row).then(|| format!("text {}", row % 20)));
    let (wide, edges) = (|row: i64| (row as i128 - 7) << (row % 100), [i64::MIN, -1, 0, 1, i64::MAX]);
    let all: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int64Array::from_iter(rows().map(|row| some(row).then(|| edges[row as usize % 5]))))),
        ("i", Arc::new(Int8Array::from_iter_values(rows().map(|row| row as i8)))),
        ("u", Arc::new(UInt64Array::from_iter_values(rows().map(|row| u64::MAX - row as u64)))),
        (
            "d",
            Arc::new(
                Decimal128Array::from_iter_values(rows().map(i128::from)).with_precision_and_scale(15, 2).unwrap(),
            ),
        ),
        ("w", Arc::new(Decimal128Array::from_iter_values(rows().map(wide)).with_precision_and_scale(38, 30).unwrap())),
        ("f", Arc::new(Float32Array::from_iter_values(rows().map(|row| [f32::NAN, f32::MAX, -0.0][row as usize % 3])))),
        ("g", Arc::new(Float64Array::from_iter_values(rows().map(|row| [f64::NAN, 1e308, -1e-308][row as usize % 3])))),
        ("t", Arc::new(StringArray::from_iter(texts()))),
        ("b", Arc::new(BooleanArray::from_iter(rows().map(|row| some(row).then_some(row % 2 == 0))))),
        ("y", Arc::new(Date32Array::from_iter_values(rows().map(|row| [i32::MIN, 0, i32::MAX][row as usize % 3])))),
        ("s", Arc::new(TimestampMicrosecondArray::from_iter_values(rows().map(|row| edges[row as usize % 5])))),
    ];
    RecordBatch::try_from_iter_with_nullable(all.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

/// Columns that only Arrow files have.
fn columns_of_arrow() -> RecordBatch {
    let all = columns();
    let texts = || (0..ROWS).map(|row| Some(["a text that is longer than a view", "b", "c"][row as usize % 3]));
    let codes: DictionaryArray<arrow_array::types::Int16Type> = texts().collect();
    let views: ArrayRef = Arc::new(StringViewArray::from_iter(texts()));
    let more: [(String, ArrayRef); 2] = [("c".into(), Arc::new(codes)), ("v".into(), views)];
    let names = all.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let of_all = names.into_iter().zip(all.columns().iter().cloned()).chain(more);
    RecordBatch::try_from_iter_with_nullable(of_all.map(|(name, column)| (name, column, true))).unwrap()
}

fn parquet() -> Vec<u8> {
    parquet_of(&columns(), WriterProperties::default())
}

fn parquet_of(columns: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), columns.schema(), Some(properties)).unwrap();
    writer.write(columns).unwrap();
    writer.into_inner().unwrap()
}

/// The same rows in other encodings, pages and codecs.
fn ways_of_parquet() -> [WriterProperties; 4] {
    let builder = || WriterProperties::builder().set_max_row_group_row_count(Some(100));
    let delta =
        [("a", Encoding::DELTA_BINARY_PACKED), ("t", Encoding::DELTA_BYTE_ARRAY), ("g", Encoding::BYTE_STREAM_SPLIT)];
    let pages = builder().set_data_page_row_count_limit(20).set_write_batch_size(20);
    let delta = delta
        .into_iter()
        .fold(pages.clone(), |builder, (column, encoding)| builder.set_column_encoding(column.into(), encoding));
    [
        builder().set_compression(Codec::SNAPPY).set_bloom_filter_enabled(true).build(),
        pages.set_writer_version(WriterVersion::PARQUET_2_0).set_compression(Codec::ZSTD(ZstdLevel::default())).build(),
        delta.set_dictionary_enabled(false).set_compression(Codec::LZ4_RAW).build(),
        builder().set_compression(Codec::GZIP(GzipLevel::default())).set_dictionary_page_size_limit(64).build(),
    ]
}

/// With lists, which have levels.
fn columns_and_lists() -> RecordBatch {
    let all = columns();
    let lists = (0..ROWS).map(|row| (row % 4 != 0).then(|| (0..row % 3).map(|value| (value != 1).then_some(value))));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    let names = all.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let of_all = names.into_iter().zip(all.columns().iter().cloned()).chain([("l".to_owned(), lists)]);
    RecordBatch::try_from_iter_with_nullable(of_all.map(|(name, column)| (name, column, true))).unwrap()
}

fn arrow(is_stream: bool, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let (batch, mut bytes) = (columns_of_arrow(), Vec::new());
    if is_stream {
        let mut writer = StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
        (0..3).for_each(|_| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &batch.schema(), options).unwrap();
        (0..3).for_each(|_| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    }
    bytes
}

fn csv() -> Vec<u8> {
    let row = |row: i64| {
        let (day, text) = (row % 28 + 1, ["x", "\"a,\"\"b\n\"", ""][row as usize % 3]);
        format!("{row},{row}.25,{text},2024-02-{day:02},{},2024-02-{day:02} 01:02:03\r\n", row % 2 == 0)
    };
    format!("a,d,t,y,b,s\r\n{}", (0..ROWS).map(row).collect::<String>()).into_bytes()
}

fn json() -> Vec<u8> {
    let row = |row: i64| {
        let nested = ["[1, 2]", "[]", "null"][row as usize % 3];
        format!("{{\"a\": {row}, \"g\": {row}.5, \"t\": \"\\u00e9 {row}\", \"b\": true, \"n\": {{\"l\": {nested}}}}}\n")
    };
    (0..ROWS).map(row).collect::<String>().into_bytes()
}

/// Changes some bytes, as files and plans are changed by those who mean it ill.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    const NUMBERS: [u64; 10] = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];
    for _ in 0..[1, 1, 1, 2, 4][rng.usize(0..5)] {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(0..bytes.len());
        match rng.u8(0..10) {
            0..3 => bytes[at] ^= 1 << rng.u8(0..8),
            3 => bytes[at] = rng.u8(..),
            4..7 => {
                let width = [1, 2, 4, 8][rng.usize(0..4)];
                let at = if rng.bool() { at / width * width } else { at };
                let number = NUMBERS[rng.usize(0..NUMBERS.len())].to_le_bytes();
                bytes.iter_mut().skip(at).zip(&number[..width]).for_each(|(to, from)| *to = *from);
            }
            7 => {
                let (from, len) = (rng.usize(0..other.len()), rng.usize(0..64));
                let part = &other[from..other.len().min(from + len)];
                drop(bytes.splice(at..(at + rng.usize(0..64)).min(bytes.len()), part.iter().copied()));
            }
            8 => {
                let part = bytes[at..(at + rng.usize(0..200)).min(bytes.len())].to_vec();
                let to = rng.usize(0..bytes.len());
                drop(bytes.splice(to..to, part));
            }
            _ if rng.u8(0..4) == 0 => bytes.truncate(at),
            _ => drop(bytes.drain(at..(at + rng.usize(0..40)).min(bytes.len()))),
        }
    }
}

fn name(rng: &mut Rng) -> String {
    const NAMES: [&str; 13] = ["a", "i", "u", "d", "w", "f", "g", "t", "b", "y", "s", "z", ""];
    let unknown = if rng.u8(0..10) == 0 { 2 } else { 0 };
    NAMES[rng.usize(0..11 + unknown)].into()
}

fn literal(rng: &mut Rng) -> Literal {
    match rng.u8(0..12) {
        0 => Literal::Null,
        1 => Literal::Boolean(rng.bool()),
        2..5 => Literal::Number {
            digits: [0, 1, -1, 25, i128::MAX, i128::MIN, i64::MAX.into(), 10_i128.pow(38), 1 << 100][rng.usize(0..9)],
            scale: [0, 0, 1, 2, 30, 37][rng.usize(0..6)],
        },
        5..8 => Literal::Float([0.0, -0.0, f64::NAN, f64::INFINITY, 1e308, 5e-324, 1.5][rng.usize(0..7)]),
        8 => Literal::Text(["text 1", "", "\u{10ffff}", "%"][rng.usize(0..4)].into()),
        9 => Literal::Date([i32::MIN, 0, i32::MAX][rng.usize(0..3)]),
        _ => Literal::Timestamp([i64::MIN, 0, i64::MAX][rng.usize(0..3)]),
    }
}

fn number(rng: &mut Rng, depth: u32) -> Expression {
    if depth == 0 || rng.u8(0..4) == 0 {
        return match rng.bool() {
            true => Expression::Column(name(rng)),
            false => Expression::Literal(literal(rng)),
        };
    }
    let how = [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply][rng.usize(0..3)];
    Expression::Arithmetic(how, Box::new(number(rng, depth - 1)), Box::new(number(rng, depth - 1)))
}

fn condition(rng: &mut Rng, depth: u32) -> Expression {
    const HOW: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];
    let many = |rng: &mut Rng| (0..rng.usize(0..4)).map(|_| condition(rng, depth - 1)).collect();
    match rng.u8(0..if depth == 0 { 8 } else { 12 }) {
        0..3 => {
            let deep = rng.u32(0..4);
            Expression::Compare(HOW[rng.usize(0..6)], Box::new(number(rng, deep)), Box::new(number(rng, deep / 2)))
        }
        3 => {
            let among = (0..rng.usize(0..6)).map(|_| literal(rng)).collect();
            Expression::In(Box::new(number(rng, 0)), among)
        }
        4 => Expression::IsNull(Box::new(number(rng, depth.min(2)))),
        5 => Expression::Like(
            Box::new(Expression::Column(name(rng))),
            ["%1%", "text _", "", "%%_%x", "\\"][rng.usize(0..5)].into(),
        ),
        6 => Expression::Column("b".into()),
        7 => Expression::Literal(literal(rng)),
        8 => Expression::And(many(rng)),
        9 => Expression::Or(many(rng)),
        10 => Expression::IsNull(Box::new(condition(rng, depth - 1))),
        _ => Expression::Not(Box::new(condition(rng, depth - 1))),
    }
}

/// A plan that the parser of bytes takes, and no parser of texts made.
fn plan(rng: &mut Rng) -> Plan {
    const KINDS: [AggregateKind; 5] =
        [AggregateKind::Count, AggregateKind::Sum, AggregateKind::Min, AggregateKind::Max, AggregateKind::Avg];
    let names = |rng: &mut Rng, most: usize| (0..rng.usize(0..=most)).map(|_| name(rng)).collect::<Vec<_>>();
    let aggregate = |rng: &mut Rng| {
        let (kind, deep) = (KINDS[rng.usize(0..5)], rng.u32(0..4));
        let input = (kind != AggregateKind::Count || rng.bool()).then(|| number(rng, deep));
        Aggregate { kind, input, name: name(rng) }
    };
    let mut plan = Plan { compression: [Compression::None, Compression::Lz4][rng.usize(0..2)], ..Plan::default() };
    if rng.bool() {
        let deep = rng.u32(0..4);
        plan.filter = Some(condition(rng, deep));
    }
    if rng.bool() {
        plan.aggregates = (0..rng.usize(0..4)).map(|_| aggregate(rng)).collect();
        plan.by = names(rng, 3);
    }
    if !plan.aggregates() {
        plan.columns = names(rng, 4);
    }
    if rng.u8(0..3) == 0 {
        plan.limit = Some([0, 1, 7, 65_536, u64::MAX, 1 << 63][rng.usize(0..6)]);
    }
    if plan.limit.is_some_and(|limit| limit <= 65_536) {
        plan.order = names(rng, 3).into_iter().map(|column| Order { column, is_descending: rng.bool() }).collect();
    }
    if rng.u8(0..6) == 0 {
        plan.part = Part { first: [0, 1, u32::MAX][rng.usize(0..3)], count: [0, 1, u32::MAX][rng.usize(0..3)] };
    }
    plan
}

/// What ends were met, how often.
#[derive(Debug, Default)]
struct Ends(BTreeMap<String, u32>);

impl Ends {
    fn add(&mut self, ended: &Result<usize, ScanError>) {
        let told = match ended {
            Ok(_) => "a result".into(),
            Err(ScanError::Failed(failure)) if failure.message.contains("panicked at") => {
                let (_, place) = failure.message.split_once("panicked at").unwrap();
                format!("{:?}: panicked at{}", failure.kind, place.chars().take(220).collect::<String>())
            }
            Err(ScanError::Failed(failure)) => format!("{:?}", failure.kind),
            Err(other) => other.to_string(),
        };
        *self.0.entry(told).or_default() += 1;
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.iter().for_each(|(end, count)| println!("{count:6} {end}"));
    }
}

/// A plan over a file that is all right never has the file blamed, and never ends without a word.
#[test]
fn a_plan_that_no_parser_made_ends_its_scan_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (mut rng, mut ends) = (rng(), Ends::default());
    let files = [("a.parquet", parquet()), ("a.arrow", arrow(false, None)), ("a.csv", csv()), ("a.jsonl", json())];
    for (name, bytes) in &files {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    for _ in 0..count() {
        let (name, _) = &files[[0, 0, 0, 1, 1, 2, 3][rng.usize(0..7)]];
        let mut plan = plan(&mut rng);
        if rng.bool() && !matches!(*name, "a.parquet" | "a.arrow") {
            plan.types =
                vec![("a".into(), ColumnType::Decimal { precision: 38, scale: 37 }), ("t".into(), ColumnType::Text)];
            plan.format = if *name == "a.csv" {
                Format::Csv { delimiter: b',', has_header: rng.bool() }
            } else {
                Format::JsonLines
            };
        }
        let ended = scan(&directory.path().join(name), &plan.to_bytes());
        ends.add(&ended);
        let is_text = !matches!(*name, "a.parquet" | "a.arrow");
        match ended {
            Ok(_) => {}
            Err(ScanError::Failed(failure)) => match failure.kind {
                FailureKind::Plan | FailureKind::Unsupported | FailureKind::Memory => {}
                // Values of another type than the plan says.
                FailureKind::File if is_text && !failure.message.contains("panicked") => {}
                _ => panic!("{name}: {failure:?} of {plan:?}"),
            },
            Err(error) => panic!("{name}: {error} of {plan:?}"),
        }
    }
}

#[test]
fn a_plan_whose_bytes_were_changed_ends_its_scan_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (mut rng, mut ends) = (rng(), Ends::default());
    let file = directory.path().join("a.parquet");
    std::fs::write(&file, parquet()).unwrap();
    for _ in 0..count() {
        let (mut bytes, other) = (plan(&mut rng).to_bytes(), plan(&mut rng).to_bytes());
        mutate(&mut rng, &mut bytes, &other);
        let ended = scan(&file, &bytes);
        ends.add(&ended);
        match ended {
            Err(ScanError::Failed(failure))
                if failure.message.contains("panicked") || failure.kind == FailureKind::Bug =>
            {
                panic!("{failure:?} of {:?}", Plan::from_bytes(&bytes));
            }
            Ok(_) | Err(ScanError::Failed(_)) => {}
            Err(error) => panic!("{error} of {:?}", Plan::from_bytes(&bytes)),
        }
    }
}

/// Bytes of a plan come from anybody, and those of a plan with a function are read by the server itself.
#[test]
fn bytes_are_a_plan_in_one_form_or_none() {
    let mut rng = rng();
    for _ in 0..count().saturating_mul(200) {
        let (mut bytes, other) = (plan(&mut rng).to_bytes(), plan(&mut rng).to_bytes());
        mutate(&mut rng, &mut bytes, &other);
        if let Ok(plan) = Plan::from_bytes(&bytes) {
            assert_eq!(plan.to_bytes(), bytes, "{plan:?}");
        }
        if bytes.len() > 2 {
            bytes[0] = 2;
        }
        let _ = diskside_scan::function_of(&bytes);
    }
}

fn changed_files_end_their_scans(name: &str, whole: &[u8], plans: &[Plan]) {
    let directory = tempfile::tempdir().unwrap();
    let (mut rng, mut ends, file) = (rng(), Ends::default(), directory.path().join(name));
    std::fs::write(&file, whole).unwrap();
    for plan in plans {
        scan(&file, &plan.to_bytes()).unwrap();
    }
    for _ in 0..count() {
        let mut bytes = whole.to_vec();
        mutate(&mut rng, &mut bytes, whole);
        std::fs::write(&file, &bytes).unwrap();
        let plan = &plans[rng.usize(0..plans.len())];
        let ended = scan(&file, &plan.to_bytes());
        ends.add(&ended);
        match ended {
            Ok(_) => {}
            Err(ScanError::Failed(failure)) if failure.kind != FailureKind::Bug => {}
            Err(error) => {
                let kept = std::env::temp_dir().join(format!("mutated-{name}"));
                std::fs::write(&kept, &bytes).unwrap();
                panic!("{error}: {} with {plan:?}", kept.display());
            }
        }
    }
}

fn plans(by: &str, text: &str) -> [Plan; 4] {
    let counted = |kind, input: Option<&str>| Aggregate {
        kind,
        input: input.map(|input| Expression::Column(input.into())),
        name: "n".into(),
    };
    let sums = [
        counted(AggregateKind::Count, None),
        counted(AggregateKind::Avg, Some("a")),
        counted(AggregateKind::Max, Some(text)),
    ];
    let like = Expression::Like(Box::new(Expression::Column(text.into())), "%e%".into());
    [
        Plan::default(),
        Plan { aggregates: sums[..1].to_vec(), ..Plan::default() },
        Plan { aggregates: sums.to_vec(), by: vec![by.into()], filter: Some(like), ..Plan::default() },
        Plan { limit: Some(50), order: vec![Order { column: text.into(), is_descending: true }], ..Plan::default() },
    ]
}

#[test]
fn a_changed_arrow_file_ends_its_scan_alone() {
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        changed_files_end_their_scans("a.arrow", &arrow(false, compression), &plans("c", "v"));
    }
}

#[test]
fn a_changed_arrow_stream_ends_its_scan_alone() {
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        changed_files_end_their_scans("a.arrows", &arrow(true, compression), &plans("c", "v"));
    }
}

#[test]
fn a_changed_parquet_file_ends_its_scan_alone() {
    let number = Literal::Number { digits: i64::MAX.into(), scale: 0 };
    let of_a = Expression::Compare(
        Comparison::Equal,
        Box::new(Expression::Column("a".into())),
        Box::new(Expression::Literal(number)),
    );
    // Statistics, Bloom filters and page indexes are read only where there is a condition.
    let pruned = Plan { filter: Some(of_a), columns: vec!["t".into(), "l".into(), "d".into()], ..Plan::default() };
    let plans: Vec<Plan> = plans("t", "t").into_iter().chain([pruned]).collect();
    for properties in ways_of_parquet() {
        changed_files_end_their_scans("a.parquet", &parquet_of(&columns_and_lists(), properties), &plans);
    }
}

#[test]
fn a_changed_csv_file_ends_its_scan_alone() {
    changed_files_end_their_scans("a.csv", &csv(), &plans("t", "t"));
}

#[test]
fn a_changed_json_lines_file_ends_its_scan_alone() {
    changed_files_end_their_scans("a.jsonl", &json(), &plans("t", "t"));
}

/// A batch of no bytes may have any number of rows: they were counted a few thousand at a time, for days.
#[test]
fn a_batch_that_has_more_rows_than_there_can_be_ends_its_scan_soon() {
    let directory = tempfile::tempdir().unwrap();
    let column: ArrayRef = Arc::new(NullArray::new(ROWS as usize));
    let batch = RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let file = directory.path().join("rows.arrow");
    let sums = [(AggregateKind::Count, None), (AggregateKind::Sum, Some(Literal::Number { digits: 1, scale: 0 }))];
    let sums = sums.map(|(kind, input)| Aggregate { kind, input: input.map(Expression::Literal), name: "n".into() });
    let is_null = Expression::IsNull(Box::new(Expression::Column("n".into())));
    for rows in [1 << 40, 1 << 62, u64::MAX] {
        // The rows of the batch, and those of its column.
        let mut bytes = bytes.clone();
        let places: Vec<usize> = (0..bytes.len() - 8).filter(|at| bytes[*at..][..8] == ROWS.to_le_bytes()).collect();
        assert_eq!(places.len(), 3, "the batch, its column, and the NULLs in it");
        places.iter().for_each(|at| bytes[*at..][..8].copy_from_slice(&rows.to_le_bytes()));
        std::fs::write(&file, &bytes).unwrap();
        for plan in [
            Plan::default(),
            Plan { aggregates: sums[..1].to_vec(), ..Plan::default() },
            Plan { aggregates: sums.to_vec(), ..Plan::default() },
            Plan { filter: Some(is_null.clone()), limit: Some(7), ..Plan::default() },
        ] {
            let failed = scan(&file, &plan.to_bytes()).map_err(|error| match error {
                ScanError::Failed(failure) => failure.message,
                other => panic!("{rows}: {other} of {plan:?}"),
            });
            let told = failed.unwrap_err();
            assert!(told.contains("rows") || told.contains("record batch 0"), "{rows}: {told}");
        }
    }
}
