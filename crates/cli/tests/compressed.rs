//! Input that is compressed: the same result as of what it decompresses to, wherever the function runs.

mod common;

use common::{Server, command, diskside, fed, good, output_of, said};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("memory")
}

/// Several chunks of 64 KiB.
fn log() -> Vec<u8> {
    let line = |n: u32| {
        format!("{n} {} {}\n", "x".repeat((n % 37) as usize), if n.is_multiple_of(997) { "ERROR" } else { "ok" })
    };
    (0..20_000).flat_map(|n| line(n).into_bytes()).collect()
}

const PLACES: [&str; 3] = ["auto", "host", "device"];
const GREP: [&str; 6] = ["run", "grep", "--arg", "pattern=ERROR", "--chunk", "64KiB"];

#[test]
fn a_compressed_file_gives_what_it_decompresses_to_gives() {
    let server = Server::start("");
    let log = log();
    let (begin, end) = log.split_at(log.len() / 3);
    let plain = server.file("log", &log);
    let expected = good(&[&GREP[..], &[plain.to_str().expect("text")]].concat());
    assert!(expected.lines().count() == 21, "{expected}");
    let compressed = [
        ("log.gz", gzip(&log)),
        ("members.gz", [gzip(begin), gzip(b""), gzip(end)].concat()),
        ("padded.gz", [&gzip(&log)[..], &[0; 1000]].concat()),
        ("log.zst", zstd(&log)),
        ("frames.zst", [zstd(begin), zstd(end)].concat()),
        // The name says nothing.
        ("plain", gzip(&log)),
    ];
    for (name, bytes) in &compressed {
        let path = server.file(name, bytes);
        let path = path.to_str().expect("text");
        for threads in ["1", "3"] {
            assert_eq!(good(&[&GREP[..], &["--threads", threads, path]].concat()), expected, "{name}");
            for place in PLACES {
                let url = server.at(name);
                let run = [&GREP[..], &["--threads", threads, "--where", place, &url]].concat();
                assert_eq!(good(&run), expected, "{name} at {place}");
            }
        }
        assert_eq!(output_of(&fed(&[&GREP[..], &["-"]].concat(), bytes)), expected.as_bytes(), "{name} through a pipe");
        assert_eq!(output_of(&fed(&[&GREP[..], &["/dev/stdin"]].concat(), bytes)), expected.as_bytes(), "{name}");
    }
    // In one run with others.
    let here = |name| server.dir.join(name).to_str().expect("text").to_owned();
    for inputs in [
        [server.at("log.gz"), here("log"), server.at("log.zst")],
        [here("members.gz"), here("log"), here("frames.zst")],
    ] {
        let inputs = inputs.each_ref().map(String::as_str);
        assert_eq!(good(&[&GREP[..], &inputs[..]].concat()), expected.repeat(3), "{inputs:?}");
    }
}

#[test]
fn output_into_files_is_of_the_decompressed_bytes() {
    let server = Server::start("");
    let log = log();
    let plain = server.file("log", &log);
    let expected = good(&[&GREP[..], &[plain.to_str().expect("text")]].concat());
    let path = server.file("log.gz", &gzip(&log));
    let out = server.dir.join("out");
    for (input, out_name) in [
        (path.to_str().expect("text").to_owned(), out.to_str().expect("text").to_owned()),
        (server.at("log.gz"), server.at("out")),
        (path.to_str().expect("text").to_owned(), server.at("out")),
    ] {
        good(&[&GREP[..], &[&input, "--out", &out_name]].concat());
        assert_eq!(std::fs::read_to_string(&out).expect("written"), expected, "{input} {out_name}");
        std::fs::remove_file(&out).expect("there");
    }
}

#[test]
fn a_part_of_it_is_a_part_of_the_decompressed_bytes() {
    let server = Server::start("");
    let numbers = common::numbers(50_000);
    let part = server.file("part", &numbers[80_000..240_000]);
    let expected = good(&["run", "stats64", part.to_str().expect("text")]);
    for (name, bytes) in [("numbers.gz", gzip(&numbers)), ("numbers.zst", zstd(&numbers))] {
        let path = server.file(name, &bytes);
        let run = ["run", "stats64", "--offset", "80000", "--length", "160000", "--chunk", "64KiB"];
        assert_eq!(good(&[&run[..], &[path.to_str().expect("text")]].concat()), expected);
        assert_eq!(output_of(&fed(&[&run[..], &["-"]].concat(), &bytes)), expected.as_bytes());
        for place in PLACES {
            let told = good(&[&run[..], &["--where", place, &server.at(name)]].concat());
            assert_eq!(told, expected, "{name} at {place}");
        }
        // The target's answer was 4, and its message had the file's name twice.
        for (length, range) in [(&[][..], "400001..400001"), (&["--length", "7"], "400001..400008")] {
            let beyond = |place: &str, input: &str| {
                let told = format!("diskside: bytes {range} are not in {input}, which has 400000\n");
                let run = [&["run", "stats64", "--offset", "400001", "--where", place, input], length].concat();
                assert_eq!(diskside(&run), (2, Vec::new(), told));
            };
            beyond("host", path.to_str().expect("text"));
            PLACES.iter().for_each(|place| beyond(place, &server.at(name)));
        }
    }
}

/// A part of a stream, or of what is decompressed, was exactly its bytes: it began and ended within lines, where one of a file has
/// whole ones.
#[test]
fn a_part_of_lines_has_whole_lines_as_of_a_file() {
    let server = Server::start("");
    let log = log();
    let plain = server.file("log", &log).display().to_string();
    server.file("log.gz", &gzip(&log));
    server.file("log.zst", &zstd(&log));
    let end = log.len() as u64;
    for (offset, length) in [(0, 10), (1, 200_000), (70_001, 65_536), (end - 100, 100), (end - 3, 1)] {
        let (offset, length) = (offset.to_string(), length.to_string());
        for function in [&["run", "wc"][..], &["run", "grep", "--arg", "pattern=x"]] {
            let run = [function, &["--offset", &offset, "--length", &length, "--chunk", "64KiB"]].concat();
            let expected = good(&[&run[..], &[&plain]].concat());
            for name in ["log.gz", "log.zst"] {
                for place in PLACES {
                    let told = good(&[&run[..], &["--where", place, &server.at(name)]].concat());
                    assert_eq!(told, expected, "{run:?}, {name} at {place}");
                }
                let here = server.dir.join(name).display().to_string();
                assert_eq!(good(&[&run[..], &[&here]].concat()), expected, "{run:?}, {name}");
            }
            assert_eq!(output_of(&fed(&[&run[..], &["-"]].concat(), &log)), expected.as_bytes(), "{run:?}, a pipe");
        }
    }
}

#[test]
fn none_leaves_the_bytes_as_they_are_and_a_codec_insists() {
    let server = Server::start("");
    let bytes = gzip(&log());
    let path = server.file("log.gz", &bytes);
    let path = path.to_str().expect("text");
    let size = format!("bytes  {}\n", bytes.len());
    for input in [path, &server.at("log.gz")] {
        let told = good(&["run", "wc", input, "--decompress", "none"]);
        assert!(told.ends_with(&size), "{told}");
        assert_eq!(good(&["run", "wc", input, "--decompress", "gzip"]), good(&["run", "wc", input]));
        let (code, out, told) = diskside(&["run", "wc", input, "--decompress", "zstd"]);
        assert_eq!((code, &out[..]), (4, &b""[..]), "{told}");
        assert!(told.contains("the zstd data is damaged at byte 0: Unknown frame descriptor"), "{told}");
    }
    let (code, _, told) = diskside(&["run", "wc", path, "--decompress", "lz4"]);
    assert!(code == 2 && told.contains("use auto, none, gzip or zstd"), "{told}");
}

#[test]
fn damaged_input_says_where_and_gives_nothing() {
    let server = Server::start("");
    let whole = gzip(&log());
    let mut corrupt = whole.clone();
    let crc = corrupt.len() - 8;
    corrupt[crc] ^= 1;
    let zstd_cut = &zstd(&log())[..2_000];
    let cases = [
        (
            "cut.gz",
            &whole[..2_000],
            "the gzip data is cut off: it ends at byte 2000, in the middle of a member".to_owned(),
        ),
        ("corrupt.gz", &corrupt, format!("the gzip data is damaged at byte {}: incorrect data check", crc + 4)),
        ("cut.zst", zstd_cut, "the zstd data is cut off: it ends at byte 2000, in the middle of a frame".to_owned()),
    ];
    for (name, bytes, why) in cases {
        let path = server.file(name, bytes);
        let path = path.to_str().expect("text");
        assert_eq!(diskside(&["run", "wc", path]), (4, Vec::new(), format!("diskside: {path}: {why}\n")));
        let told = format!("diskside: /dev/stdin: {why}\n");
        let piped = fed(&["run", "wc", "-"], bytes);
        assert_eq!((piped.status.code(), &piped.stdout[..], said(&piped)), (Some(4), &b""[..], told));
        let url = server.at(name);
        for place in PLACES {
            let (code, out, told) = diskside(&["run", "wc", &url, "--where", place]);
            assert_eq!((code, &out[..]), (4, &b""[..]), "{told}");
            assert!(told.starts_with(&format!("diskside: {url}: ")) && told.ends_with(&format!("{why}\n")), "{told}");
        }
        let out = server.dir.join("out");
        let (code, _, told) = diskside(&["run", "wc", path, "--out", out.to_str().expect("text")]);
        assert_eq!(code, 4, "{told}");
        assert!(!out.exists(), "nothing of a result");
    }
}

/// gzip(1) warns of it. For a function at a server only the server's log did.
#[test]
fn what_follows_gzip_data_is_ignored_with_a_warning_wherever_the_function_runs() {
    let server = Server::start("");
    let garbage = [&gzip(b"one\ntwo\n")[..], b"garbage"].concat();
    let path = server.file("log.gz", &garbage).display().to_string();
    let url = server.at("log.gz");
    let told =
        |name: &str| format!("wc: warning: {name}: what follows its gzip data is not gzip data, and is ignored\n");
    for (input, place) in [(&path, "auto"), (&url, "host"), (&url, "device"), (&url, "auto")] {
        let output = command(&["run", "wc", input, "--where", place]).output().expect("diskside runs");
        assert_eq!(output_of(&output), b"lines  2\nwords  2\nbytes  8\n");
        assert_eq!(said(&output), told(input), "{input} {place}");
    }
    // So many files are one request, by their paths.
    let names: Vec<String> = (0..12).map(|n| format!("{n:02}.gz")).collect();
    for (n, name) in names.iter().enumerate() {
        server.file(name, if n == 7 { &garbage } else { &garbage[..garbage.len() - 7] });
    }
    let urls: Vec<String> = names.iter().map(|name| server.at(name)).collect();
    let args: Vec<&str> = ["run", "wc"].into_iter().chain(urls.iter().map(String::as_str)).collect();
    let output = command(&args).output().expect("diskside runs");
    assert_eq!((output_of(&output), said(&output)), (&b"lines  24\nwords  24\nbytes  96\n"[..], told(&urls[7])));
    let output = command(&["run", "wc", &url, "--length", "4"]).output().expect("diskside runs");
    assert_eq!((output_of(&output), said(&output).as_str()), (&b"lines  1\nwords  1\nbytes  4\n"[..], ""));
}

/// A few KiB that decompress to a GiB: what the call is given of it bounds what it costs.
#[test]
fn a_bomb_costs_what_the_call_may_and_no_more() {
    let server = Server::start("");
    let mut bomb = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("memory");
    let zeroes = vec![0; 8 << 20];
    (0..128).for_each(|_| bomb.write_all(&zeroes).expect("memory"));
    let bomb = bomb.finish().expect("memory");
    assert!(bomb.len() < 1 << 20);
    let path = server.file("bomb", &bomb);
    for input in [path.to_str().expect("text"), &server.at("bomb")] {
        // It ends after the first chunk, whose iterations are too many.
        let (code, _, told) = diskside(&["run", "stats64", input, "--budget", "1000"]);
        assert!(code == 1 && told.contains("budget"), "{told}");
        let (code, _, told) = diskside(&["run", "stats64", input, "--length", "1MiB"]);
        assert_eq!(code, 0, "{told}");
    }
    // The window is memory that the input asks for.
    let window = server.file("window.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, (31 - 10) << 3, 0x19, 0, 0, b'a', b'b', b'c']);
    for input in [window.to_str().expect("text"), &server.at("window.zst")] {
        let (code, _, told) = diskside(&["run", "wc", input]);
        assert_eq!(code, 4, "{told}");
        assert!(told.contains("its window is larger than 8 MiB, which is the most that a call is given"), "{told}");
    }
}

/// Behind another file, a compressed one ended for the function where its compressed bytes end: at a server, each piece
/// after that was marked as the last.
#[test]
fn the_last_piece_of_a_compressed_file_is_the_last_behind_another_file_too() {
    let server = Server::start("");
    let source = "#include \"diskside.h\"\nDS_SPLIT_LINES;\nDS_CONCATENATE;\nSEC(\"read/flags\")\n\
        __s64 flags(__u8 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        *out = call->flags & DS_LAST ? 'L' : '.';\nreturn 1;\n}\n";
    let function = server.file("flags.bpf.c", source.as_bytes());
    let function = function.to_str().expect("text");
    let (plain, gz) = (server.file("a", &log()), server.file("b.gz", &gzip(&log())));
    let run = ["run", function, "--chunk", "64KiB"];
    let expected = good(&[&run[..], &[plain.to_str().expect("text"), gz.to_str().expect("text")]].concat());
    assert_eq!(expected.matches('L').count(), 2, "{expected}");
    for place in PLACES {
        let found = good(&[&run[..], &["--where", place, &server.at("a"), &server.at("b.gz")]].concat());
        assert_eq!(found, expected, "{place}");
    }
}
