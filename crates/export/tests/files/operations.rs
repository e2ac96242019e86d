//! Every operation, and how each fails.

use diskside_export::ExportSpec;
use diskside_export::HANDLES_MAX;
use diskside_wire::file::{DirEntry, Export, FileAttributes, FileFlags, FileHandle, FileKind, FileRequest};
use rustix::io::Errno;

use super::host::{Host, ask, exports};

const READ: FileFlags = FileFlags::READ;
const WRITE: FileFlags = FileFlags::WRITE;

#[test]
fn a_file_is_made_written_read_renamed_and_removed() {
    let host = Host::new();
    assert_eq!(host.try_ask(FileRequest::MakeDirectory { dir: None, path: b"data/logs", mode: 0o755 }), Ok(0));
    let made = host.create("data/logs/today", READ | WRITE).unwrap();
    assert_eq!((made.created.get(), made.attributes.size.get(), made.attributes.kind()), (1, 0, FileKind::File));
    assert_eq!(made.attributes.mode.get() & 0o777, 0o640);
    let file = made.handle();
    assert_eq!(host.write(file, 0, b"hello world").returned, Ok(11));
    assert_eq!(host.write(file, 6, b"there").returned, Ok(5));
    let append = FileRequest::Write { file, offset: 0, data: b"!", flags: FileFlags::APPEND | FileFlags::DURABLE };
    let reply = host.ask(append);
    assert_eq!((reply.returned, reply.durable_bytes), (Ok(1), 1));
    assert_eq!(host.read(file).unwrap(), b"hello there!");
    assert_eq!(host.content("logs/today"), b"hello there!");
    let part = host.ask(FileRequest::Read { file, offset: 6, len: 3 });
    assert_eq!((part.returned, part.result), (Ok(3), b"the".to_vec()));
    assert_eq!(host.ask(FileRequest::Read { file, offset: 12, len: 3 }).returned, Ok(0), "the end");
    assert_eq!(host.try_ask(FileRequest::Truncate { file, len: 5 }), Ok(0));
    assert_eq!(host.try_ask(FileRequest::Sync { file, flags: FileFlags::NONE }), Ok(0));
    let rename = FileRequest::Rename { dir: None, from: b"data/logs/today", to: b"data/old", flags: FileFlags::NONE };
    assert_eq!(host.try_ask(rename), Ok(0));
    assert_eq!(host.content("old"), b"hello");
    assert_eq!(host.try_ask(FileRequest::RemoveDirectory { dir: None, path: b"data/logs" }), Ok(0));
    assert_eq!(host.try_ask(FileRequest::Unlink { dir: None, path: b"data/old" }), Ok(0));
    assert_eq!(host.read(file).unwrap(), b"hello", "an open file stays readable without a name");
    assert_eq!(host.try_ask(FileRequest::Close { file }), Ok(0));
    let (errno, message) = host.read(file).unwrap_err();
    assert_eq!(errno, Errno::STALE.raw_os_error());
    assert_eq!(message, "read: handle 1 is not open (any more); look the file up again");
    assert_eq!(host.list("data", 4096), [""; 0]);
}

#[test]
fn a_directory_handle_is_where_paths_start() {
    let host = Host::new();
    std::fs::create_dir_all(host.path().join("a/b")).unwrap();
    host.file("a/b/x", "x");
    let handle = host.open("data/a", FileFlags::DIRECTORY);
    let dir = Some(handle);
    let reply = host.ask(FileRequest::Lookup { dir, path: b"b/x", flags: READ });
    let file = <diskside_wire::file::OpenedFile as zerocopy::FromBytes>::read_from_bytes(&reply.result).unwrap();
    assert_eq!(host.read(file.handle()).unwrap(), b"x");
    let create = FileRequest::Create { dir, path: b"y", mode: 0o600, flags: WRITE };
    assert_eq!(host.try_ask(create), Ok(0));
    assert_eq!(host.try_ask(FileRequest::Rename { dir, from: b"y", to: b"b/z", flags: FileFlags::NONE }), Ok(0));
    assert_eq!(host.try_ask(FileRequest::Sync { file: handle, flags: FileFlags::NONE }), Ok(0));
    assert_eq!(host.list("data/a/b", 4096), ["x", "z"]);
    let list = FileRequest::List { base: dir, path: b"", cursor: 0, len_max: 4096, flags: FileFlags::NONE };
    assert_eq!(host.try_ask(list), Ok(1));
    assert_eq!(host.try_ask(FileRequest::Stat { base: dir, path: b"", flags: FileFlags::NONE }), Ok(0));
    let above = host.try_ask(FileRequest::Lookup { dir, path: b"../a", flags: READ }).unwrap_err();
    assert_eq!(above.0, Errno::XDEV.raw_os_error(), "a path stays beneath the directory it starts from");
}

#[test]
fn attributes_are_the_files_own_and_the_version_follows_its_content() {
    let host = Host::new();
    host.file("x", [7; 10_000]);
    let before = host.stat("data/x");
    let meta = std::fs::metadata(host.path().join("x")).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((before.size.get(), before.inode.get()), (10_000, meta.ino()));
    assert_eq!((before.uid.get(), before.gid.get()), (meta.uid(), meta.gid()));
    assert_eq!(before.modified.seconds.get(), meta.mtime());
    assert_eq!(i64::from(before.modified.nanoseconds.get()), meta.mtime_nsec());
    assert_eq!(u64::from(before.mode.get()), u64::from(meta.mode()));
    assert!(before.allocated.get() >= 8192);
    assert_ne!(before.version.get(), 0);
    assert_eq!(host.stat("data/x").version, before.version, "looking changes nothing");
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(!host.stat("data/x").has(FileAttributes::RECENT));
    let file = host.open("data/x", READ | WRITE);
    let read = host.ask(FileRequest::Read { file, offset: 0, len: 10 });
    assert_eq!(read.version, before.version.get(), "bytes come with the version that they are of");
    let wrote = host.write(file, 0, b"y");
    assert_ne!(wrote.version, before.version.get());
    assert_eq!(host.stat("data/x").version.get(), wrote.version);
    std::os::unix::fs::symlink("nowhere", host.path().join("link")).unwrap();
    assert_eq!(host.stat("data/link").kind(), FileKind::Symlink);
    assert_eq!(host.stat("data").kind(), FileKind::Directory);
}

#[test]
fn a_directory_is_listed_in_pages_each_name_once() {
    let host = Host::new();
    let mut want: Vec<String> = (0..500).map(|n| format!("file-{n:03}")).collect();
    want.iter().for_each(|name| host.file(name, name));
    std::fs::create_dir(host.path().join("sub")).unwrap();
    want.push("sub".into());
    for len_max in [64, 1000, 1 << 20] {
        assert_eq!(host.list("data", len_max), want, "{len_max} bytes a page");
    }
    let flags = FileFlags::ATTRIBUTES;
    let reply = host.ask(FileRequest::List { base: None, path: b"data", cursor: 0, len_max: 1 << 20, flags });
    for entry in DirEntry::parse_all(&reply.result).map(Result::unwrap) {
        let attributes = entry.attributes.unwrap();
        let kind = if entry.name == b"sub" { FileKind::Directory } else { FileKind::File };
        assert_eq!((entry.kind, attributes.kind()), (kind, kind));
        assert_eq!(entry.inode, attributes.inode.get());
        assert!(kind == FileKind::Directory || attributes.size.get() == 8);
    }
    let short = FileRequest::List { base: None, path: b"data", cursor: 0, len_max: 31, flags: FileFlags::NONE };
    assert_eq!(
        host.try_ask(short).unwrap_err().1,
        "list: the result has no room for one record; ask for 4096 bytes or more"
    );
    for cursor in [u64::MAX, i64::MAX as u64, 1 << 40] {
        // Whatever it means to the file system, the answer is a list or an errno.
        let list = FileRequest::List { base: None, path: b"data", cursor, len_max: 4096, flags: FileFlags::NONE };
        let _ = host.ask(list);
    }
    assert_eq!(host.list("data", 4096), want);
}

#[test]
fn the_exports_are_listed_with_what_may_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let read_only = ExportSpec::new("second", dir.path());
    let session = exports(&[ExportSpec::new("first", dir.path()).writable(), read_only]).session();
    let reply = ask(&session, FileRequest::ListExports { cursor: 0, len_max: 4096 }, 4096);
    let uid = rustix::process::geteuid().as_raw();
    let records: Vec<_> = Export::parse_all(&reply.result).map(Result::unwrap).collect();
    let told: Vec<_> = records.iter().map(|export| (export.name, export.read_only, export.uid)).collect();
    assert_eq!(told, [(&b"first"[..], false, uid), (&b"second"[..], true, uid)]);
    let next = ask(&session, FileRequest::ListExports { cursor: 1, len_max: 32 }, 4096);
    assert_eq!(Export::parse_all(&next.result).map(|e| e.unwrap().name).collect::<Vec<_>>(), [b"second"]);
    assert_eq!(ask(&session, FileRequest::ListExports { cursor: 2, len_max: 32 }, 4096).returned, Ok(0));
    assert!(ask(&session, FileRequest::ListExports { cursor: 0, len_max: 8 }, 4096).returned.is_err());
    assert_eq!(ask(&session, FileRequest::ListExports { cursor: u64::MAX, len_max: 64 }, 4096).returned, Ok(0));
}

#[test]
fn each_failure_has_its_errno_and_says_what_failed_where() {
    let host = Host::new();
    host.file("x", "x");
    std::fs::create_dir(host.path().join("full")).unwrap();
    host.file("full/y", "");
    let lookup = |path: &'static str, flags| FileRequest::Lookup { dir: None, path: path.as_bytes(), flags };
    let cases = [
        (lookup("data/none", READ), 2, "lookup data/none: No such file or directory (os error 2)"),
        (lookup("other/x", READ), 2, "lookup: there is no export `other`"),
        (lookup("/data/x", READ), 2, "lookup: there is no export ``"),
        (lookup("data/x/y", READ), 20, "lookup data/x/y: Not a directory (os error 20)"),
        (lookup("data/full", WRITE), 21, "lookup data/full: Is a directory (os error 21)"),
        (lookup("data/x", FileFlags::DIRECTORY), 20, "lookup data/x: Not a directory (os error 20)"),
        (lookup("data//etc/passwd", READ), 18, "leads out of the export"),
        (
            FileRequest::Create { dir: None, path: b"data/x", mode: 0o600, flags: WRITE | FileFlags::EXCLUSIVE },
            17,
            "create data/x: File exists (os error 17)",
        ),
        (FileRequest::Create { dir: None, path: b"data/no/x", mode: 0o600, flags: WRITE }, 2, "create data/no/x"),
        (
            FileRequest::Create { dir: None, path: b"data", mode: 0o600, flags: WRITE },
            21,
            "create data: Is a directory",
        ),
        (FileRequest::Unlink { dir: None, path: b"data/full" }, 21, "unlink data/full: Is a directory"),
        (FileRequest::Unlink { dir: None, path: b"data" }, 22, "unlink data: not a regular file or a directory's name"),
        (FileRequest::Unlink { dir: None, path: b"data/full/.." }, 22, "not a regular file or a directory's name"),
        (FileRequest::RemoveDirectory { dir: None, path: b"data/full" }, 39, "Directory not empty (os error 39)"),
        (FileRequest::MakeDirectory { dir: None, path: b"data/full", mode: 0o700 }, 17, "File exists (os error 17)"),
        (
            FileRequest::Rename { dir: None, from: b"data/x", to: b"data/full/y", flags: FileFlags::NO_REPLACE },
            17,
            "rename data/x to data/full/y: File exists (os error 17)",
        ),
        (
            FileRequest::List { base: None, path: b"data/x", cursor: 0, len_max: 99, flags: FileFlags::NONE },
            20,
            "list data/x",
        ),
    ];
    for (request, errno, said) in cases {
        let (got, message) = host.try_ask(request).unwrap_err();
        assert_eq!(got, errno, "{request:?}: {message}");
        assert!(message.contains(said), "{request:?}: {message}");
    }
    let name = "n".repeat(300);
    assert_eq!(
        host.errno(FileRequest::Unlink { dir: None, path: format!("data/{name}").as_bytes() }),
        Errno::NAMETOOLONG
    );
    let (reading, writing) = (host.open("data/x", READ), host.open("data/x", WRITE));
    assert_eq!(
        host.write(reading, 0, b"y").returned.unwrap_err().message,
        "write data/x: the handle was not opened for writing"
    );
    assert_eq!(
        host.try_ask(FileRequest::Truncate { file: reading, len: 0 }).unwrap_err().0,
        Errno::BADF.raw_os_error()
    );
    assert_eq!(host.read(writing).unwrap_err().1, "read data/x: the handle was not opened for reading");
    let far = FileRequest::Write { file: writing, offset: u64::MAX, data: b"x", flags: FileFlags::NONE };
    assert_eq!(host.errno(far), Errno::INVAL);
    assert_eq!(host.content("x"), b"x");
}

#[test]
fn nothing_in_a_read_only_export_changes() {
    let host = Host::with(|spec| ExportSpec { rw: false, ..spec });
    host.file("x", "x");
    let path = &b"data/x"[..];
    let changes = [
        FileRequest::Lookup { dir: None, path, flags: WRITE },
        FileRequest::Create { dir: None, path, mode: 0o600, flags: READ | FileFlags::TRUNCATE },
        FileRequest::Rename { dir: None, from: path, to: b"data/y", flags: FileFlags::NONE },
        FileRequest::Unlink { dir: None, path },
        FileRequest::MakeDirectory { dir: None, path: b"data/d", mode: 0o700 },
        FileRequest::RemoveDirectory { dir: None, path: b"data/d" },
    ];
    for change in changes {
        assert_eq!(host.errno(change), Errno::ROFS, "{change:?}");
    }
    assert_eq!(host.read(host.open("data/x", READ)).unwrap(), b"x");
    assert!(host.stat("data/x").has(FileAttributes::READ_ONLY));
    assert_eq!(host.list("data", 4096), ["x"]);
}

#[test]
fn handles_are_bounded_closed_with_their_session_and_never_another_file() {
    let host = Host::new();
    host.file("x", "x");
    host.file("y", "y");
    let open = |path| host.open(path, READ);
    let first = open("data/x");
    host.ask(FileRequest::Close { file: first });
    let second = open("data/y");
    assert_eq!(second.id, first.id, "numbers are used again");
    assert_eq!(host.read(first).unwrap_err().0, Errno::STALE.raw_os_error(), "but the old handle is not the new file");
    for guess in [FileHandle { id: 0x7fff_ffff, ..second }, FileHandle { generation: 0, ..second }] {
        assert_eq!(host.read(guess).unwrap_err().0, Errno::STALE.raw_os_error());
    }
    let mut all: Vec<FileHandle> = (1..HANDLES_MAX).map(|_| open("data/x")).collect();
    let (errno, message) = host.try_open("data/x", READ).unwrap_err();
    assert_eq!(errno, Errno::MFILE.raw_os_error());
    assert!(message.contains("1024 handles are open, which is the limit"), "{message}");
    host.ask(FileRequest::Close { file: all.pop().unwrap() });
    open("data/x");
    let other = host.session.clone();
    // Only those of this test's files: other tests of the process open and close theirs meanwhile.
    let below = host.dir.path().to_owned();
    let count = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        all.filter(|fd| {
            fd.as_ref().is_ok_and(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(&below)))
        })
        .count()
    };
    let before = count();
    assert!(before > 900, "the handles are open files");
    let Host { dir: _dir, session } = host;
    drop(session);
    assert!(count() + 500 > before, "a clone keeps the session");
    drop(other);
    // A thread of the export may still hold the session of the request that it has just answered.
    let began = std::time::Instant::now();
    while count() + 900 >= before {
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "the last one closes its files");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn requests_of_any_bytes_are_answered_or_refused() {
    let host = Host::new();
    host.file("x", "x");
    let file = host.open("data/x", READ | WRITE);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..3000 {
        let template = match random(6) {
            0 => FileRequest::Lookup { dir: None, path: b"data/x", flags: READ },
            1 => FileRequest::Write { file, offset: 0, data: b"0123", flags: FileFlags::NONE },
            2 => FileRequest::List { base: None, path: b"data", cursor: 0, len_max: 512, flags: FileFlags::NONE },
            3 => FileRequest::Rename { dir: None, from: b"data/x", to: b"data/y", flags: FileFlags::NONE },
            4 => FileRequest::Create { dir: None, path: b"data/z", mode: 0o600, flags: WRITE },
            _ => FileRequest::Read { file, offset: 0, len: 16 },
        };
        let mut bytes = template.to_bytes();
        for _ in 0..random(3) {
            let at = random(bytes.len() as u64) as usize;
            bytes[at] = random(256) as u8;
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        if host.session.submit(bytes, 4096, move |reply| sender.send(reply).unwrap()).is_ok() {
            let reply = receiver.recv().unwrap();
            assert!(reply.result.len() <= 4096);
        }
    }
    assert!(host.path().exists());
}
