//! Files that have no name until they are whole: seen by nobody, and gone with their writer.

use std::io::Write;

use diskside_export::SinkMode;
use diskside_wire::file::{FileFlags, FileHandle, FileRequest};
use rustix::io::Errno;

use super::host::{Host, Refused, exports};

const UNNAMED: FileFlags = FileFlags::UNNAMED;
const RW: FileFlags = FileFlags::READ_WRITE;

impl Host {
    fn begin(&self, path: &str) -> Result<FileHandle, Refused> {
        self.create(path, RW | UNNAMED).map(|opened| opened.handle())
    }

    fn publish(&self, file: FileHandle) -> Result<u64, Refused> {
        self.try_ask(FileRequest::Publish { file })
    }
}

#[test]
fn a_file_is_seen_by_nobody_until_it_is_published_and_then_whole() {
    let host = Host::new();
    host.file("x", "old");
    for (name, names) in [("x", vec!["x"]), ("y", vec!["x", "y"])] {
        let path = format!("data/{name}");
        let before = host.list("data", 4096);
        let opened = host.create(&path, RW | UNNAMED).unwrap();
        assert_eq!((opened.created.get(), opened.attributes.size.get()), (1, 0));
        assert_eq!(opened.attributes.mode.get() & 0o777, 0o640);
        let file = opened.handle();
        host.write(file, 0, b"new and longer").returned.unwrap();
        assert_eq!(host.read(file).unwrap(), b"new and longer");
        assert_eq!(host.list("data", 4096), before);
        assert_eq!(host.publish(file), Ok(0));
        assert_eq!(
            (host.list("data", 4096), host.content(name)),
            (names.iter().map(|n| (*n).into()).collect(), b"new and longer".to_vec())
        );
        // From now on the handle is one of the named file.
        host.write(file, 0, b"NEW").returned.unwrap();
        assert_eq!(host.content(name), b"NEW and longer");
        let (errno, message) = host.publish(file).unwrap_err();
        assert_eq!(errno, Errno::INVAL.raw_os_error());
        assert_eq!(
            message,
            format!("publish {path}: the file has its name; only one that was created without can get it")
        );
    }
    let named = host.open("data/x", RW);
    assert_eq!(host.publish(named).unwrap_err().0, Errno::INVAL.raw_os_error());
}

#[test]
fn what_is_closed_or_goes_with_its_session_leaves_nothing() {
    let host = Host::new();
    host.file("x", "old");
    let file = host.begin("data/x").unwrap();
    host.write(file, 0, b"half").returned.unwrap();
    assert_eq!(host.try_ask(FileRequest::Close { file }), Ok(0));
    assert_eq!(host.publish(file).unwrap_err().0, Errno::STALE.raw_os_error());
    assert_eq!((host.list("data", 4096), host.content("x")), (vec!["x".to_owned()], b"old".to_vec()));

    let file = host.begin("data/x").unwrap();
    host.write(file, 0, b"half").returned.unwrap();
    let Host { dir, session } = host;
    drop(session);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!((left, std::fs::read(dir.path().join("x")).unwrap()), (vec!["x".into()], b"old".to_vec()));
}

#[test]
fn functions_write_such_files_like_others() {
    let host = Host::new();
    host.file("x", "old");
    let file = host.begin("data/x").unwrap();
    let mut sink = host.session.sink(file, SinkMode::InPlace { offset: 0 }).unwrap();
    sink.write_all(b"made by a function").unwrap();
    assert_eq!(sink.finish().unwrap(), 18);
    assert_eq!(host.content("x"), b"old");
    host.publish(file).unwrap();
    assert_eq!(host.content("x"), b"made by a function");
    // It has no name yet that it could take as a replacement.
    let file = host.begin("data/x").unwrap();
    let error = host.session.sink(file, SinkMode::Replace).unwrap_err();
    assert_eq!(error.errno, Errno::STALE, "{}", error.message);
    assert_eq!(host.list("data", 4096), ["x"]);
}

#[test]
fn a_name_that_it_cannot_get_is_refused_before_anything_is_written() {
    let host = Host::new();
    std::fs::create_dir(host.path().join("sub")).unwrap();
    host.file("x", "old");
    for (path, errno) in [
        ("data/sub", Errno::ISDIR),
        ("data/none/x", Errno::NOENT),
        ("data/x/y", Errno::NOTDIR),
        ("data/../x", Errno::XDEV),
        ("data", Errno::INVAL),
        ("nothing/x", Errno::NOENT),
    ] {
        assert_eq!(host.begin(path).unwrap_err().0, errno.raw_os_error(), "{path}");
    }
    // A link is followed, but not out of the export.
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path().join("made"), host.path().join("link")).unwrap();
    assert_eq!(
        host.begin("data/link").unwrap_err(),
        (
            Errno::XDEV.raw_os_error(),
            "create data/link: the path leads out of the export, or into another mount".to_owned()
        )
    );
    // What takes the name meanwhile is replaced, if it can be.
    let file = host.begin("data/late").unwrap();
    std::fs::create_dir(host.path().join("late")).unwrap();
    assert_eq!(host.publish(file).unwrap_err().0, Errno::ISDIR.raw_os_error());
    assert_eq!(host.try_ask(FileRequest::Close { file }), Ok(0));
    let began = std::time::Instant::now();
    while host.list("data", 4096) != ["late", "link", "sub", "x"] {
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", host.list("data", 4096));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let session = exports(&[diskside_export::ExportSpec::new("data", host.path())]).session();
    let refused = Host { dir: tempfile::tempdir().unwrap(), session };
    assert_eq!(
        refused.begin("data/x").unwrap_err(),
        (Errno::ROFS.raw_os_error(), "create data/x: the export is read-only; serve it with `,rw`".into())
    );
}
