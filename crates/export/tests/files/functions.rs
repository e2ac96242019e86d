//! Files as sources and sinks of functions: never mixed, never half published.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use diskside_export::{FileSink, SinkMode};
use diskside_io::readahead::{ReadAt, ReadAtError};
use diskside_wire::file::{FileFlags, FileRequest};
use rustix::io::Errno;

use super::host::Host;

const RW: FileFlags = FileFlags::READ_WRITE;

fn sink(host: &Host, path: &str, mode: SinkMode) -> FileSink {
    host.session.sink(host.open(path, RW), mode).unwrap()
}

#[test]
fn a_source_reads_anywhere_and_notices_every_change() {
    let host = Host::new();
    type Change = dyn Fn(&std::path::Path);
    let changes: [(&str, &Change); 5] = [
        ("written over", &|path| {
            let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all(b"X").unwrap();
        }),
        ("appended", &|path| {
            std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"X").unwrap();
        }),
        ("cut", &|path| std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(3).unwrap()),
        ("cut and grown again", &|path| {
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(3).unwrap();
            file.set_len(10).unwrap();
        }),
        ("removed", &|path| std::fs::remove_file(path).unwrap()),
    ];
    for (name, change) in changes {
        host.file("x", "0123456789");
        let file = host.open("data/x", FileFlags::READ);
        // The file was made a moment ago: a change in the same clock tick has to be noticed as well.
        let source = host.session.source(file).unwrap();
        let mut buffer = [0; 4];
        assert_eq!((source.name(), source.len_bytes()), ("data/x", 10));
        source.read_exact_at(6, &mut buffer).unwrap();
        assert_eq!(buffer, *b"6789");
        let beyond = source.read_exact_at(8, &mut buffer).unwrap_err();
        assert!(matches!(beyond, ReadAtError::Changed(_)), "no file that stayed the same ends there");
        assert_eq!(source.unchanged(), Ok(()));
        change(&host.path().join("x"));
        let error = source.unchanged().unwrap_err();
        assert!(error.changed, "{name}");
        assert_eq!(error.message, "data/x changed while it was read; read it again", "{name}");
    }
}

#[test]
fn a_source_is_a_file_that_was_opened_for_reading() {
    let host = Host::new();
    host.file("x", "x");
    let refused = |handle| host.session.source(handle).unwrap_err();
    assert_eq!(refused(host.open("data/x", FileFlags::WRITE)).errno, Errno::BADF);
    assert_eq!(refused(host.open("data", FileFlags::READ)).message, "data is a directory; a function reads a file");
    let file = host.open("data/x", FileFlags::READ);
    assert_eq!(host.session.sink(file, SinkMode::Append).unwrap_err().errno, Errno::BADF);
    host.ask(FileRequest::Close { file });
    assert_eq!(refused(file).errno, Errno::STALE);
}

#[test]
fn in_place_output_says_how_much_of_it_is_durable() {
    let host = Host::new();
    host.file("x", "0123456789");
    let mut sink = sink(&host, "data/x", SinkMode::InPlace { offset: 2 });
    sink.write_all(b"ab").unwrap();
    sink.write_all(b"cd").unwrap();
    assert_eq!((sink.written_bytes(), sink.durable_bytes()), (4, 0), "written is not durable");
    assert_eq!(sink.finish(), Ok(4));
    assert_eq!(host.content("x"), b"01abcd6789");
    let mut sink = self::sink(&host, "data/x", SinkMode::InPlace { offset: 0 });
    sink.write_all(b"zz").unwrap();
    assert_eq!(sink.abort(), 2, "in place nothing is taken back, so these bytes are there to stay");
}

#[test]
fn an_append_is_whole_or_taken_back() {
    let host = Host::new();
    host.file("x", "log\n");
    let mut fine = sink(&host, "data/x", SinkMode::Append);
    fine.write_all(b"one\n").unwrap();
    fine.write_all(b"two\n").unwrap();
    assert_eq!(fine.finish(), Ok(8));
    assert_eq!(host.content("x"), b"log\none\ntwo\n");

    let mut fails = sink(&host, "data/x", SinkMode::Append);
    fails.write_all(b"half a li").unwrap();
    assert_eq!(fails.abort(), 0);
    assert_eq!(host.content("x"), b"log\none\ntwo\n");

    let mut disturbed = sink(&host, "data/x", SinkMode::Append);
    disturbed.write_all(b"mine\n").unwrap();
    std::fs::OpenOptions::new().append(true).open(host.path().join("x")).unwrap().write_all(b"theirs\n").unwrap();
    disturbed.write_all(b"mine too\n").unwrap_err();
    let error = disturbed.take_failure().unwrap();
    assert_eq!(error.errno, Errno::STALE);
    assert_eq!(error.message, "writing data/x: another writer changed the file's length meanwhile");
    drop(disturbed);
    let content = host.content("x");
    assert!(content.windows(7).any(|window| window == b"theirs\n"), "another's bytes are never cut off");
}

#[test]
fn a_replacement_is_seen_whole_or_not_at_all() {
    let host = Host::new();
    host.file("x", "old");
    let path = host.path().join("x");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
    let (handle, reader) = (host.open("data/x", RW), host.open("data/x", FileFlags::READ));
    let mut sink = host.session.sink(handle, SinkMode::Replace).unwrap();
    sink.write_all(b"new ").unwrap();
    sink.write_all(b"content").unwrap();
    assert_eq!((host.content("x"), host.read(handle).unwrap()), (b"old".to_vec(), b"old".to_vec()));
    assert_eq!(sink.finish(), Ok(11));
    assert_eq!(host.content("x"), b"new content");
    assert_eq!(host.read(handle).unwrap(), b"new content", "the handle that wrote stands for the new file");
    assert_eq!(host.read(reader).unwrap(), b"old", "one that was open before reads on what it had");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o604, "permissions stay");
    assert_eq!(host.list("data", 4096), ["x"], "no temporary file is left");

    let mut dropped = host.session.sink(handle, SinkMode::Replace).unwrap();
    dropped.write_all(b"half").unwrap();
    assert_eq!(host.list("data", 4096), ["x"], "the new file has no name yet");
    drop(dropped);
    assert_eq!(host.list("data", 4096), ["x"]);
    assert_eq!(host.content("x"), b"new content");
    assert_eq!(host.session.sink(handle, SinkMode::Replace).unwrap().finish(), Ok(0), "by an empty one, too");
    assert_eq!(host.content("x"), b"");
}

#[test]
fn a_replacement_takes_the_name_only_of_the_file_it_was_made_for() {
    let host = Host::new();
    host.file("x", "old");
    let mut sink = sink(&host, "data/x", SinkMode::Replace);
    sink.write_all(b"new").unwrap();
    host.file("y", "another");
    std::fs::rename(host.path().join("y"), host.path().join("x")).unwrap();
    let error = sink.finish().unwrap_err();
    assert_eq!(error.errno, Errno::STALE);
    assert_eq!(error.message, "replacing data/x: that name means another file by now");
    assert_eq!(host.content("x"), b"another");
    assert_eq!(host.list("data", 4096), ["x"]);

    std::os::unix::fs::symlink("x", host.path().join("link")).unwrap();
    let mut followed = host.session.sink(host.open("data/link", RW), SinkMode::Replace).unwrap();
    followed.write_all(b"through the link").unwrap();
    followed.finish().unwrap();
    assert_eq!(host.content("x"), b"through the link");
    assert!(std::fs::symlink_metadata(host.path().join("link")).unwrap().is_symlink());
    let unlinked = host.open("data/x", RW);
    host.ask(FileRequest::Unlink { dir: None, path: b"data/x" });
    assert_eq!(host.session.sink(unlinked, SinkMode::Replace).unwrap_err().errno, Errno::NOENT);
}

/// A file that changed long ago must not be waited for: the wait is for one tick of the clock, at most 10 ms.
#[test]
fn a_source_waits_for_the_clock_only_where_it_must() {
    let host = Host::new();
    host.file("x", "x");
    let file = host.open("data/x", FileFlags::READ);
    drop(host.session.source(file).unwrap());
    let started = Instant::now();
    for _ in 0..1000 {
        host.session.source(file).unwrap();
    }
    // A thousand waits of a tick would take seconds; this says nothing about speed.
    assert!(started.elapsed().as_millis() < 1000);
}
