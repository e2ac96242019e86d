//! Files whose names are bytes: no UTF-8, control characters, and what means something in URLs.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use common::{Server, command, diskside, good, json, output_of};

/// No UTF-8, with an escape in it that is none, and a line's end.
const NAME: &[u8] = b"a\xff %41\n";
const IN_URL: &str = "a%FF %2541%0A";
const TEXT: &str = "one\ntwo\nthree\n";

/// A server with such a file, a directory of such a name with two of them, and the path of the first here.
fn server() -> (Server, PathBuf) {
    let server = Server::start("");
    let path = server.dir.join(OsStr::from_bytes(NAME));
    std::fs::write(&path, TEXT).expect("the file system takes it");
    let directory = server.dir.join(OsStr::from_bytes(b"dir\xfe"));
    std::fs::create_dir(&directory).expect("made");
    for name in [&b"plain"[..], NAME] {
        std::fs::write(directory.join(OsStr::from_bytes(name)), TEXT).expect("written");
    }
    (server, path)
}

/// A file of an export whose name was no UTF-8 had no URL, so nothing could be done with it. Bytes are escaped in URLs now.
#[test]
fn a_file_of_any_name_is_used_by_its_url() {
    let (server, _) = server();
    let url = server.at(IN_URL);
    assert_eq!(good(&["cat", &url]), TEXT);
    assert_eq!(json(&["stat", &url])["url"], url);
    for place in ["host", "device", "auto"] {
        let ran = json(&["run", "wc", &url, "--where", place]);
        assert_eq!((&ran["rows"][0]["lines"], &ran["files"][0]), (&3.into(), &url.as_str().into()), "{place}");
        assert_eq!(ran["parts"][0]["file"], url, "{place}");
    }
    // Written by a shell that knows nothing of URLs.
    let raw = [server.at("dir").as_bytes(), b"\xfe/plain"].concat();
    let ran = command(&["run", "wc", "--json"]).arg(OsStr::from_bytes(&raw)).output().expect("it runs");
    let ran: serde_json::Value = serde_json::from_slice(output_of(&ran)).expect("JSON");
    assert_eq!((&ran["rows"][0]["lines"], &ran["parts"][0]["file"]), (&3.into(), &server.at("dir%FE/plain").into()));
    let (code, _, said) = diskside(&["cat", &server.at("b%FF")]);
    assert!(code == 4 && said.contains("/data/b%FF: "), "{code}: {said}");
    let (code, _, said) = diskside(&["cat", &server.at("b%00")]);
    assert!(code == 2 && said.contains("%00 is no byte of a name"), "{code}: {said}");
}

/// The function's own file was the only one that had to have a name in UTF-8.
#[test]
fn a_function_may_have_any_name() {
    let (server, path) = server();
    let source = server.dir.join(OsStr::from_bytes(b"f\xff:.bpf.c"));
    let code = "#include \"diskside.h\"\nDS_CONCATENATE;\nDS_SPLIT_BYTES;\nstruct len { __u64 len; };\nSEC(\"read/len\")\n\
        __s64 len(struct len *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        out->len = in_len;\nreturn sizeof(*out);\n}\n";
    std::fs::write(&source, code).expect("written");
    let named = [source.as_os_str().as_bytes(), b":len"].concat();
    for function in [source.as_os_str(), OsStr::from_bytes(&named)] {
        let ran = command(&["run"]).arg(function).arg(&path).output().expect("it runs");
        assert_eq!(output_of(&ran), b"len  14\n", "{function:?}");
        for what in ["inspect", "verify"] {
            let told = command(&[what]).arg(function).output().expect("it runs");
            assert!(told.status.success(), "{what} {function:?}: {told:?}");
        }
    }
}

#[test]
fn patterns_and_directories_have_files_of_any_name() {
    let (server, _) = server();
    let listed = json(&["ls", &server.at("")]);
    let mut urls: Vec<&str> =
        listed["entries"].as_array().expect("a list").iter().filter_map(|entry| entry["url"].as_str()).collect();
    urls.sort_unstable();
    assert_eq!(urls, [server.at(IN_URL), server.at("dir%FE")]);
    assert!(good(&["ls", &server.at("")]).contains(IN_URL));
    // What is listed can be named.
    for url in urls {
        good(&["stat", url]);
    }
    for (named, lines) in [("a*", 3), ("dir%FE/*", 6), ("**/a?*", 6)] {
        let ran = json(&["run", "wc", &server.at(named)]);
        assert_eq!(ran["rows"][0]["lines"], lines, "{named}: {ran}");
        let listed = json(&["ls", &server.at(named)]);
        for entry in listed["entries"].as_array().expect("a list") {
            good(&["stat", entry["url"].as_str().expect("a URL")]);
        }
    }
    assert_eq!(json(&["run", "wc", "--recursive", &server.at("dir%FE")])["rows"][0]["lines"], 6);
    // The other characters of a part with a wildcard are UTF-8.
    let (code, _, said) = diskside(&["ls", &server.at("*%FF")]);
    assert!(code == 4 && said.contains("it is not UTF-8"), "{code}: {said}");
}

#[test]
fn copies_keep_a_name_and_give_one() {
    let (server, here) = server();
    let directory = tempfile::tempdir().expect("a directory");
    let copied = |from: &OsStr, to: &OsStr| {
        output_of(&command(&["cp"]).args([from, to]).output().expect("it runs"));
    };
    copied(OsStr::new(&server.at(IN_URL)), directory.path().as_os_str());
    let copy = directory.path().join(OsStr::from_bytes(NAME));
    assert_eq!(std::fs::read_to_string(&copy).expect("it has its name"), TEXT);
    std::fs::create_dir(server.dir.join("into")).expect("made");
    copied(here.as_os_str(), OsStr::new(&server.at("into")));
    assert_eq!(std::fs::read_to_string(server.dir.join("into").join(OsStr::from_bytes(NAME))).expect("made"), TEXT);
    copied(here.as_os_str(), OsStr::new(&server.at("new%FD")));
    assert_eq!(std::fs::read_to_string(server.dir.join(OsStr::from_bytes(b"new\xfd"))).expect("made"), TEXT);
    good(&["run", "grep", &server.at(IN_URL), "--arg", "pattern=two", "--out", &server.at("found%FC")]);
    assert_eq!(std::fs::read_to_string(server.dir.join(OsStr::from_bytes(b"found\xfc"))).expect("made"), "two\n");
    good(&["clear", "--cache", &server.at("new%FD")]);
    good(&["rm", &server.at("new%FD")]);
    assert!(!server.dir.join(OsStr::from_bytes(b"new\xfd")).exists());
    // And files here.
    let ran = command(&["run", "wc", "--json"]).arg(&here).output().expect("it runs");
    let ran: serde_json::Value = serde_json::from_slice(output_of(&ran)).expect("JSON");
    assert_eq!(ran["rows"][0]["lines"], 3);
}
