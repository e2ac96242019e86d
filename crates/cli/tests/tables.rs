//! Tables of text whose columns go by the names in their first line.
//!
//! A user who tried it first gave `by=city`, as of a data frame, and the error asked to repeat the line of names as an
//! argument; with the number of the column, the line of names was a group of its own.

mod common;

use common::{Server, diskside, fed, good, said};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

const BY_NAME: [&str; 6] = ["run", "csv_aggregate", "--arg", "by=city", "--arg", "sum=cents"];
const TABLE: &str = "city,cents\nGraz,250\nLinz,100\nGraz,50\n";
const EXPECTED: &str = " key  count  sum  min  max  not_numbers\n\
                        Graz      2  300   50  250            0\n\
                        Linz      1  100  100  100            0\n";

fn of(files: &[&str]) -> String {
    good(&[&BY_NAME[..], files].concat())
}

#[test]
fn columns_go_by_the_names_in_the_first_line() {
    let server = Server::start("");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let gzip = gzip.write_all(TABLE.as_bytes()).and_then(|()| gzip.finish()).expect("memory");
    let forms = [
        ("plain.csv", TABLE.as_bytes().to_vec()),
        ("table.csv.gz", gzip),
        ("table.csv.zst", zstd::encode_all(TABLE.as_bytes(), 3).expect("memory")),
        ("windows.csv", format!("\u{feff}\"city\",cents\r\n{}", &TABLE["city,cents\n".len()..]).into_bytes()),
        ("no-end.csv", TABLE.trim_end().as_bytes().to_vec()),
    ];
    for (name, bytes) in &forms {
        let path = server.file(name, bytes);
        assert_eq!(of(&[path.to_str().expect("text")]), EXPECTED, "{name}");
        for place in ["auto", "host", "device"] {
            assert_eq!(of(&["--where", place, &server.at(name)]), EXPECTED, "{name} at {place}");
        }
    }
    let twice = EXPECTED.replace("2  300", "4  600").replace("1  100  100", "2  200  100");
    assert_eq!(of(&[&server.at("plain.csv"), &server.at("plain.csv")]), twice, "each file begins with the names");
}

#[test]
fn columns_by_number_take_every_line() {
    let server = Server::start("");
    server.file("table.csv", TABLE.as_bytes());
    let all = good(&["run", "csv_aggregate", "--arg", "by=1", &server.at("table.csv")]);
    assert!(all.contains("city"), "{all}");
}

#[test]
fn a_first_line_without_the_name_is_told() {
    let server = Server::start("");
    let run = |name: &str, bytes: &[u8]| {
        server.file(name, bytes);
        diskside(&[&BY_NAME[..], &[&server.at(name)]].concat()).2
    };
    assert!(run("other.csv", b"town,cents\nGraz,1\n").contains("the first line of the input"));
    assert!(run("long.csv", &[b'x'; 100_000]).contains("its first line is longer than 65536 bytes"));
    assert!(run("bytes.csv", b"\xff\xfe,cents\n1,2\n").contains("not text in UTF-8"));
    let (cut, piped) = (zstd::encode_all(&[b'x'; 1000][..], 3).expect("memory"), [&BY_NAME[..], &["-"]].concat());
    assert!(run("cut.csv.zst", &cut[..cut.len() - 4]).contains("cut off"));
    let told = said(&fed(&piped, TABLE.as_bytes()));
    assert!(told.contains("give the names of its columns"), "{told}");
    let named = [&piped[..], &["--arg", "columns=city,cents"]].concat();
    assert_eq!(fed(&named, TABLE.as_bytes()).stdout, EXPECTED.as_bytes());
}
