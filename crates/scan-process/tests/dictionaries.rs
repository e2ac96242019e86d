//! Row groups that dictionaries of their columns rule out, and those that these must not rule out.

mod common;

use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int64Array, RecordBatch,
    StringArray, UInt32Array,
};
use common::How;
use diskside_scan::{Plan, Report, ScanError, parse_filter};
use fastrand::Rng;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROWS_OF_GROUP: usize = 5000;
const GROUPS: usize = 12;

fn scan(file: &Path, condition: &str, columns: &[&str]) -> Result<(Vec<u8>, Report), ScanError> {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    let plan = Plan { filter: Some(parse_filter(condition).unwrap()), columns, ..Plan::default() };
    common::scan(&common::program(), file, &plan.to_bytes(), How::default())
}

fn report(file: &Path, condition: &str) -> Report {
    scan(file, condition, &[]).unwrap().1
}

fn write(directory: &Path, name: &str, columns: Vec<(&str, ArrayRef)>, by: WriterPropertiesBuilder) -> PathBuf {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true)));
    let (batch, path) = (batch.unwrap(), directory.join(name));
    let properties = by.set_max_row_group_row_count(Some(ROWS_OF_GROUP)).set_offset_index_disabled(true).build();
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::SNAPPY)
}

/// Columns of a few values a row group: those of the group with a number are 40 apart, with their last one that of the next.
fn columns(rng: &mut Rng) -> Vec<(&'static str, ArrayRef)> {
    let values: Vec<Option<i64>> = (0..GROUPS * ROWS_OF_GROUP)
        .map(|row| {
            let group = (row / ROWS_OF_GROUP) as i64;
            // The last group has NULL alone.
            (group + 1 < GROUPS as i64 && rng.u8(0..10) > 0).then(|| group + 40 * rng.i64(0..20))
        })
        .collect();
    let of = |value: fn(i64) -> i64| values.iter().map(move |of| of.map(value)).collect::<Vec<_>>();
    let (whole, half) = (of(|value| value), of(|value| value / 2));
    let float = |value: &Option<i64>| value.map(|value| if value % 97 == 0 { f64::NAN } else { value as f64 / 4.0 });
    let decimal = |digits: u8| {
        let scaled = Decimal128Array::from_iter(whole.iter().map(|value| value.map(|value| i128::from(value) - 300)));
        Arc::new(scaled.with_precision_and_scale(digits, 2).unwrap()) as ArrayRef
    };
    vec![
        ("whole", Arc::new(Int64Array::from(whole.clone()))),
        (
            "small",
            Arc::new(Int8Array::from_iter(half.iter().map(|value| value.map(|value| (value % 250 - 125) as i8)))),
        ),
        ("unsigned", Arc::new(UInt32Array::from_iter(whole.iter().map(|of| of.map(|of| u32::MAX - of as u32))))),
        ("text", Arc::new(StringArray::from_iter(whole.iter().map(|of| of.map(|of| format!("text {of} of many")))))),
        ("float", Arc::new(Float64Array::from_iter(whole.iter().map(float)))),
        ("single", Arc::new(Float32Array::from_iter(whole.iter().map(|of| float(of).map(|of| of as f32))))),
        ("day", Arc::new(Date32Array::from_iter(whole.iter().map(|of| of.map(|of| of as i32))))),
        ("short", decimal(9)),
        ("decimal", decimal(15)),
        ("long", decimal(30)),
    ]
}

/// Between the least and the greatest value of each row group, and in one of them or none: statistics do not know.
#[test]
fn row_groups_whose_dictionaries_have_no_wanted_value_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "few.parquet", columns(&mut Rng::with_seed(1)), properties());
    let pruned = |condition: &str| {
        let report = report(&file, condition);
        (report.pruned, report.pruned_by_dictionaries)
    };
    // That all of the last row group is NULL, its statistics say.
    for one in [
        "whole = 404",
        "whole in (404, 399, 3000)",
        "whole between 404 and 405 and whole <> 405",
        "text = 'text 404 of many'",
        "text like '% 404 %'",
        "text like '_ext 404%' and whole > 0",
        "float = 101e0",
        "single in (101e0, 99.875e0)",
        "unsigned = 4294966891",
        "day = date '1971-02-09'",
        "short = 1.04",
        "decimal = 1.04",
        "long = 1.04",
        "(whole = 404 or whole = 399) and text is not null",
    ] {
        assert_eq!(pruned(one), (11, 10), "{one}");
    }
    assert_eq!(pruned("whole = 399"), (12, 11), "there are ten numbers before a group's next one");
    assert_eq!(pruned("whole > 404 and whole < 410"), (7, 6));
    // A condition that may be true of NULL, or of other columns, rules nothing out.
    for all in ["whole = 399 or whole is null", "whole = 399 or text = 'x'", "not (whole <> 399)", "whole is null"] {
        assert_eq!(pruned(all).1, 0, "{all}");
    }
    let one = report(&file, "whole = 404");
    let all = report(&file, "whole is null or whole > 0");
    assert_eq!((one.rows_read, all.pruned), (ROWS_OF_GROUP as u64, 0));
    assert!(one.read_len < all.read_len / 4, "{one:?}, {all:?}");
}

/// A value that each has: the dictionaries of some show that those of the others are not worth it.
#[test]
fn dictionaries_of_a_few_row_groups_are_enough_where_they_rule_none_out() {
    let directory = tempfile::tempdir().unwrap();
    let rows = GROUPS * 4 * ROWS_OF_GROUP;
    let mut rng = Rng::with_seed(2);
    let texts = (0..rows).map(|_| format!("{:040}", rng.u8(0..50)));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let file = write(directory.path(), "same.parquet", vec![("text", text)], properties());
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(&file).unwrap()).unwrap();
    let chunk = metadata.row_group(0).column(0);
    let dictionary = (chunk.data_page_offset() - chunk.dictionary_page_offset().unwrap()).cast_unsigned();
    let [plain, searched] =
        ["text > '0'", "text like '%44%'"].map(|condition| report(&file, &format!("{condition} and text is not null")));
    assert_eq!((plain.pruned, searched.pruned), (0, 0));
    let more = searched.read_len - plain.read_len;
    assert!((dictionary * 6..=dictionary * 10).contains(&more), "{more} for dictionaries of {dictionary}");
}

/// A writer gives a dictionary up that becomes too long: values behind it are not in it.
#[test]
fn a_dictionary_that_was_given_up_rules_nothing_out() {
    let directory = tempfile::tempdir().unwrap();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let values = (0..ROWS_OF_GROUP as i64 * 2).map(|row| if row % 2 == 0 { -1 } else { row });
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let by = || properties().set_writer_version(version).set_statistics_enabled(EnabledStatistics::None);
        let given_up =
            by().set_dictionary_page_size_limit(2000).set_write_batch_size(100).set_data_page_row_count_limit(500);
        let given_up = write(directory.path(), "up.parquet", vec![("n", Arc::clone(&values))], given_up);
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(&given_up).unwrap()).unwrap();
        assert!(metadata.row_group(0).column(0).dictionary_page_offset().is_some());
        for wanted in [3, 2001, 4999, 9999] {
            let report = report(&given_up, &format!("n = {wanted}"));
            assert_eq!((report.rows_selected, report.pruned_by_dictionaries), (1, 0), "{wanted} {version:?}");
        }
    }
}

fn rows(stream: &[u8]) -> RecordBatch {
    let reader = arrow_ipc::reader::StreamReader::try_new(stream, None).unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
    arrow_select::concat::concat_batches(&schema, &batches).unwrap()
}

/// The same rows come with dictionaries and without: of a file whose writer made none.
#[test]
fn the_same_rows_come_with_a_dictionary_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let seed = std::env::var("DISKSIDE_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    let mut rng = Rng::with_seed(seed);
    let columns = columns(&mut rng);
    let [coded, plain] = [("coded.parquet", true), ("plain.parquet", false)].map(|(name, is_coded)| {
        write(directory.path(), name, columns.clone(), properties().set_dictionary_enabled(is_coded))
    });
    let mut by_dictionaries = 0;
    for _ in 0..100 {
        let test = |rng: &mut Rng| {
            let (how, number) = (["=", "=", "<", "<=", ">", ">=", "<>"][rng.usize(0..7)], rng.i64(-10..820));
            let (cents, next) = (number - 300, number + rng.i64(0..15));
            match rng.u8(0..12) {
                0 => format!("whole {how} {number}"),
                1 => format!("small {how} {}", number % 130),
                2 => format!("unsigned {how} {}", i64::from(u32::MAX) - number),
                3 => format!("text {how} 'text {number} of many'"),
                4 => format!("text like '%t {}_ %'", number / 10),
                5 => format!("float {how} {}e0", number as f64 / 4.0),
                6 => format!("single in ({}e0, {}e0)", number as f64 / 4.0, next as f64 / 4.0),
                7 => format!(
                    "{} {how} {}.{:02}",
                    ["short", "decimal", "long"][rng.usize(0..3)],
                    cents / 100,
                    cents.abs() % 100
                ),
                8 => format!("whole between {number} and {next}"),
                9 => format!("whole in ({number}, {next}, 5000)"),
                10 => format!("day {how} date '1971-{:02}-11'", 1 + number.unsigned_abs() % 12),
                _ => format!("{} is {}null", ["whole", "text"][rng.usize(0..2)], ["", "not "][rng.usize(0..2)]),
            }
        };
        let (a, b, c) = (test(&mut rng), test(&mut rng), test(&mut rng));
        let conditions = [
            a.clone(),
            format!("{a} and {b}"),
            format!("{a} or {b}"),
            format!("({a} or {b}) and {c}"),
            format!("not ({a}) and {b}"),
            format!("({a} and {b}) or ({a} and {c})"),
        ];
        let condition = &conditions[rng.usize(0..conditions.len())];
        let [coded, plain] = [&coded, &plain].map(|file| scan(file, condition, &["whole", "text", "long"]).unwrap());
        assert_eq!(
            (plain.1.pruned_by_dictionaries, coded.1.rows_selected),
            (0, plain.1.rows_selected),
            "seed {seed}: {condition}"
        );
        assert_eq!(rows(&coded.0), rows(&plain.0), "seed {seed}: {condition}");
        by_dictionaries += coded.1.pruned_by_dictionaries;
    }
    assert!(by_dictionaries > 100, "seed {seed}: {by_dictionaries}");
}

/// A dictionary that says that it decompresses to a gigabyte is not made room for, and one with changed bytes ends its own scan at
/// most.
#[test]
fn a_dictionary_that_lies_ends_its_own_scan_alone() {
    let directory = tempfile::tempdir().unwrap();
    let by = properties().set_compression(Compression::ZSTD(ZstdLevel::default()));
    let file = write(directory.path(), "lies.parquet", columns(&mut Rng::with_seed(3)), by);
    let whole = std::fs::read(&file).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(&file).unwrap()).unwrap();
    let (mut rng, mut ended) = (Rng::with_seed(4), [0; 2]);
    for _ in 0..60 {
        let mut bytes = whole.clone();
        let group = rng.usize(0..GROUPS - 1);
        // Those of `whole` and `text`.
        for column in [0, 3] {
            let chunk = metadata.row_group(group).column(column);
            let (first, last) = (chunk.dictionary_page_offset().unwrap() as usize, chunk.data_page_offset() as usize);
            if rng.bool() {
                // Kind, length: that of what it decompresses to.
                bytes[first + 3..first + 5].copy_from_slice(&[0xff, 0xff]);
            }
            for _ in 0..rng.usize(0..3) {
                bytes[rng.usize(first..last)] = rng.u8(..);
            }
        }
        std::fs::write(&file, &bytes).unwrap();
        match scan(&file, ["whole = 404", "text like '% 404 %'"][rng.usize(0..2)], &[]) {
            Ok((_, report)) => {
                ended[0] += 1;
                assert!(report.rows_selected <= ROWS_OF_GROUP as u64, "{report:?}");
            }
            Err(ScanError::Failed(failure)) => {
                ended[1] += 1;
                assert!(failure.message.contains("row group") || failure.message.contains("128 MiB"), "{failure:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(ended[0] > 5 && ended[1] > 5, "{ended:?}");
}
