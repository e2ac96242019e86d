//! NumPy's files: functions are given the elements, not the header, wherever the file is.

mod common;

use common::{Process, Server, command, diskside, good, output_of};

/// A file as `numpy.save` writes it.
fn npy(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while !(10 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let len = u16::try_from(text.len()).expect("short").to_le_bytes();
    [b"\x93NUMPY\x01\0", &len[..], text.as_bytes(), data].concat()
}

const NUMBERS: u64 = 50_000;

fn array() -> Vec<u8> {
    npy("<i8", "False", "(50000,)", &common::numbers(NUMBERS))
}

#[test]
fn a_function_is_given_the_elements_wherever_the_file_is() {
    let server = Server::start("");
    let plain = server.file("plain", &common::numbers(NUMBERS));
    let array = server.file("array.npy", &array());
    let (plain, path, url) = (plain.to_str().expect("text"), array.to_str().expect("text"), server.at("array.npy"));
    let run = ["run", "stats64", "--chunk", "64KiB"];
    let expected = good(&[&run[..], &[plain]].concat());
    assert_eq!(good(&[&run[..], &[path]].concat()), expected);
    assert_eq!(good(&[&run[..], &[path, "--header", "npy"]].concat()), expected);
    for place in ["auto", "host", "device"] {
        assert_eq!(good(&[&run[..], &[&url, "--where", place]].concat()), expected, "{place}");
    }
    let two = good(&[&run[..], &[plain, plain]].concat());
    assert_eq!(good(&[&run[..], &[path, path]].concat()), two);
    assert_eq!(good(&[&run[..], &[path, &url]].concat()), two);

    let part = ["--offset", "8000", "--length", "80000"];
    let expected = good(&[&run[..], &part, &[plain]].concat());
    for input in [path, &url] {
        assert_eq!(good(&[&run[..], &part, &[input]].concat()), expected);
        let beyond = ["run", "stats64", input, "--offset", "400008"];
        let told = format!("diskside: bytes 400008..400008 are not in {input}, which has 400000\n");
        assert_eq!(diskside(&beyond), (2, Vec::new(), told));
    }
    // Bytes behind the elements do not belong to the array.
    let longer = server.file("longer.npy", &[&self::array()[..], &[1; 24]].concat());
    let longer = good(&[&run[..], &[longer.to_str().expect("text")]].concat());
    assert_eq!(longer, good(&[&run[..], &[plain]].concat()));
}

/// The last line of an array of bytes went on into what follows the elements.
#[test]
fn a_function_over_lines_does_not_read_behind_the_elements() {
    let server = Server::start("");
    let lines = npy("|u1", "False", "(6,)", b"a\nb\ncd");
    let whole = server.file("whole.npy", &lines).display().to_string();
    let longer = server.file("longer.npy", &[&lines[..], b"ef\n"].concat()).display().to_string();
    for place in ["auto", "host", "device"] {
        for input in [&whole, &server.at("whole.npy")] {
            if input.starts_with('/') && place == "device" {
                continue;
            }
            let told = good(&["run", "wc", input, "--where", place]);
            assert!(told.ends_with("bytes  6\n"), "{input}, {place}: {told}");
        }
    }
    for input in [&longer, &server.at("longer.npy")] {
        let (code, out, told) = diskside(&["run", "wc", input]);
        let why = "3 bytes follow its NumPy elements, and the last record of wc would go on into them; \
            --header none gives the function all bytes of the file";
        assert_eq!((code, &out[..], told), (2, &b""[..], format!("diskside: {input}: {why}\n")));
    }
}

#[test]
fn an_array_on_a_volume_is_one_too() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    let mut bytes = array();
    bytes.resize(1 << 20, 0);
    std::fs::write(&image, bytes).expect("written");
    let nqn = "nqn.2026-11.org.example:arrays";
    let volume = format!("data={}", image.display());
    let serve = ["serve", "--listen", "127.0.0.1:0", "--nqn", nqn, "--volume", &volume];
    let (_process, line) = Process::start_until(&serve, "nvme-tcp://");
    let url = line.split_whitespace().find(|word| word.starts_with("nvme-tcp://")).expect("it says where");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, common::numbers(NUMBERS)).expect("written");
    let expected = good(&["run", "stats64", plain.to_str().expect("text")]);
    for place in ["auto", "host", "device"] {
        assert_eq!(good(&["run", "stats64", url, "--where", place]), expected, "{place}");
    }
}

#[test]
fn none_gives_the_header_too() {
    let server = Server::start("");
    let bytes = array();
    let path = server.file("array.npy", &bytes);
    for input in [path.to_str().expect("text"), &server.at("array.npy")] {
        let told = good(&["run", "wc", input, "--header", "none"]);
        assert!(told.ends_with(&format!("bytes  {}\n", bytes.len())), "{told}");
        // What takes bytes takes those of any elements.
        let told = good(&["run", "wc", input]);
        assert!(told.ends_with("bytes  400000\n"), "{told}");
    }
    let plain = server.file("plain", b"text");
    let plain = plain.to_str().expect("text");
    let told = format!("diskside: {plain}: it has no NumPy header\n");
    assert_eq!(diskside(&["run", "wc", plain, "--header", "npy"]), (2, Vec::new(), told));
}

#[test]
fn other_elements_than_the_function_takes_are_refused() {
    let server = Server::start("");
    let data = [0; 96];
    let rows = server.dir.join("rows.bpf.c");
    let source = "#include \"diskside.h\"\nstruct row { __u32 x, y, z; };\n\
        SEC(\"read/rows\") __s64 rows(__u64 *out, const struct row *in, __u64 in_len, const void *args,\n\
        const struct ds_call *call) { out[0] = in_len; return 8; }\n";
    std::fs::write(&rows, source).expect("written");
    let rows = rows.to_str().expect("text");
    for (function, descr, order, shape, why) in [
        (
            "stats64",
            "<f8",
            "False",
            "(12,)",
            "elements `<f8`, shape (12), but stats64 takes signed integers of 8 bytes: save the array as such",
        ),
        (
            "stats64",
            "<u8",
            "False",
            "(12,)",
            "elements `<u8`, shape (12), but stats64 takes signed integers of 8 bytes: save the array as such",
        ),
        (
            "stats64",
            "<i4",
            "False",
            "(4, 6)",
            "elements `<i4`, shape (4, 6), but stats64 takes signed integers of 8 bytes: save the array as such",
        ),
        (
            "stats64",
            ">i8",
            "False",
            "(12,)",
            "elements `>i8`, shape (12), but stats64 takes numbers whose lowest byte comes first: save a.astype(a.dtype.newbyteorder('<'))",
        ),
        (
            "knn_f32",
            "<i4",
            "False",
            "(24,)",
            "elements `<i4`, shape (24), but knn_f32 takes floating-point numbers of 4 bytes: save the array as such",
        ),
        (
            rows,
            "<u4",
            "False",
            "(6, 4)",
            "elements `<u4`, shape (6, 4), but rows takes records of 12 bytes, and a row has 16",
        ),
        (
            rows,
            "<u4",
            "True",
            "(8, 3)",
            "elements `<u4`, shape (8, 3), but rows takes rows, and its columns come first: save numpy.ascontiguousarray(a)",
        ),
    ] {
        let path = server.file("x.npy", &npy(descr, order, shape, &data));
        for input in [path.to_str().expect("text"), &server.at("x.npy")] {
            let mut run = vec!["run", function, input];
            if function == "knn_f32" {
                run.extend(["--arg", "row_len=4", "--arg", "target=1"]);
            }
            let (code, out, told) = diskside(&run);
            assert_eq!((code, &out[..]), (2, &b""[..]), "{told}");
            assert_eq!(told, format!("diskside: {input}: it holds NumPy {why}\n"));
        }
    }
    for (function, descr, order, shape) in [
        ("stats64", "<i8", "True", "(3, 4)"),
        ("stats64", "<M8[ns]", "False", "(12,)"),
        (rows, "<u4", "False", "(8, 3)"),
        (rows, "|V12", "True", "(8,)"),
        ("wc", ">f8", "True", "(3, 4)"),
    ] {
        let path = server.file("x.npy", &npy(descr, order, shape, &data));
        good(&["run", function, path.to_str().expect("text")]);
    }
}

#[test]
fn a_damaged_header_says_what_is_wrong() {
    let server = Server::start("");
    let leave = "; --header none gives the function all bytes of the file";
    for (bytes, why) in [
        (npy("<i8", "False", "(13,)", &[0; 96]), "its NumPy header says 104 bytes of elements, and 96 are there"),
        (npy("|O", "False", "(1,)", b"pickle"), "it holds Python objects, which are pickled: save an array of numbers"),
        (array()[..100].to_vec(), "it ends in its NumPy header"),
        (b"\x93NUMPY\x04\0".to_vec(), "its NumPy format has version 4, and 1 to 3 are known"),
    ] {
        let path = server.file("x.npy", &bytes);
        for input in [path.to_str().expect("text"), &server.at("x.npy")] {
            let told = format!("diskside: {input}: {why}{leave}\n");
            assert_eq!(diskside(&["run", "stats64", input]), (2, Vec::new(), told));
        }
    }
}

/// Output into a file of the export is made there only of whole files.
#[test]
fn output_into_a_file_is_of_the_elements() {
    let server = Server::start("");
    let path = server.file("x.npy", &npy("<i4", "False", "(4,)", &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]));
    let out = server.dir.join("out");
    let filter = ["run", "filter_i32", "--arg", "op=gt", "--arg", "lo=2", "--arg", "form=rows", "--out"];
    for (input, out_name) in
        [(path.to_str().expect("text"), out.to_str().expect("text")), (&server.at("x.npy"), &server.at("out"))]
    {
        let output = command(&[&filter[..], &[out_name, input]].concat()).output().expect("diskside runs");
        output_of(&output);
        assert_eq!(std::fs::read(&out).expect("written"), [3, 0, 0, 0, 4, 0, 0, 0]);
        std::fs::remove_file(&out).expect("there");
    }
}
