//! As whom an export works, and what the system then refuses. Most of it needs root, and says when it is skipped.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use diskside_export::ExportSpec;
use diskside_export::{Exports, FileSink, SinkMode};
use diskside_wire::file::{FileFlags, FileRequest};
use rustix::io::Errno;

use super::host::Host;

const UID: u32 = 54_321;
const GID: u32 = 54_322;
const OTHER: u32 = 54_400;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: this test needs root, to act as another user");
    }
    root
}

/// An export that works as another user, who owns its directory.
fn as_other_user() -> Host {
    let host = Host::with(|spec| {
        chown(&spec.path, Some(UID), Some(GID)).unwrap();
        ExportSpec { uid: Some(UID), gid: Some(GID), groups: vec![OTHER], ..spec }
    });
    std::fs::set_permissions(host.path(), PermissionsExt::from_mode(0o755)).unwrap();
    host
}

#[test]
fn files_are_made_by_the_exports_user_and_checked_against_it() {
    if !is_root() {
        return;
    }
    let host = as_other_user();
    let made = host.create("data/own", FileFlags::WRITE).unwrap();
    assert_eq!((made.attributes.uid.get(), made.attributes.gid.get()), (UID, GID));
    host.file("root-only", "secret");
    std::fs::set_permissions(host.path().join("root-only"), PermissionsExt::from_mode(0o600)).unwrap();
    for flags in [FileFlags::READ, FileFlags::WRITE] {
        let (errno, message) = host.try_open("data/root-only", flags).unwrap_err();
        assert_eq!(errno, Errno::ACCESS.raw_os_error());
        assert_eq!(message, "lookup data/root-only: Permission denied (os error 13)");
    }
    host.file("group", "for the group");
    chown(host.path().join("group"), Some(0), Some(OTHER)).unwrap();
    std::fs::set_permissions(host.path().join("group"), PermissionsExt::from_mode(0o040)).unwrap();
    assert_eq!(host.read(host.open("data/group", FileFlags::READ)).unwrap(), b"for the group", "by a further group");

    let dir = host.path().join("root-dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("x"), "x").unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
    let path = &b"data/root-dir/x"[..];
    for request in [
        FileRequest::Stat { base: None, path, flags: FileFlags::NONE },
        FileRequest::Unlink { dir: None, path },
        FileRequest::Create { dir: None, path, mode: 0o600, flags: FileFlags::WRITE },
        FileRequest::MakeDirectory { dir: None, path: b"data/root-dir/d", mode: 0o700 },
        FileRequest::Rename { dir: None, from: b"data/own", to: b"data/root-dir/y", flags: FileFlags::NONE },
        FileRequest::List { base: None, path: b"data/root-dir", cursor: 0, len_max: 4096, flags: FileFlags::NONE },
    ] {
        assert_eq!(host.errno(request), Errno::ACCESS, "{request:?}");
    }
    // The threads of the export changed their user; the process did not.
    assert!(rustix::process::geteuid().is_root());
    assert_eq!(std::fs::read(dir.join("x")).unwrap(), b"x");
    // Many requests at once: each thread that is started for them has the user, too.
    std::thread::scope(|scope| {
        for n in 0..16 {
            let host = &host;
            scope.spawn(move || {
                let made = host.create(&format!("data/{n}"), FileFlags::WRITE).unwrap();
                assert_eq!(made.attributes.uid.get(), UID);
                assert!(host.try_open("data/root-only", FileFlags::READ).is_err());
            });
        }
    });
}

/// A server of root's kept the set-user-ID bit of a program that a host wrote something else into: the host had root's rights
/// as soon as somebody ran it.
#[test]
fn no_file_that_a_host_writes_runs_as_its_owner() {
    let host = Host::new();
    host.file("program", "as root");
    let path = host.path().join("program");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).unwrap();
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o6755, "it was one");
    let file = host.open("data/program", FileFlags::WRITE);
    host.ask(FileRequest::Write { file, offset: 0, data: b"whatever", flags: FileFlags::NONE });
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn another_user_needs_root() {
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this test needs a user other than root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let spec = ExportSpec { uid: Some(0), ..ExportSpec::new("data", dir.path()).writable() };
    let error = Exports::open(&[spec]).unwrap_err().to_string();
    assert!(error.contains("cannot act as uid 0"), "{error}");
    assert!(error.contains("run it as root, or leave uid= and gid= out"), "{error}");
}

#[test]
fn what_cannot_be_exported_is_said_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let refused = |path: PathBuf| Exports::open(&[ExportSpec::new("data", path).writable()]).unwrap_err().to_string();
    let (none, file) = (dir.path().join("none"), dir.path().join("file"));
    assert_eq!(
        refused(none.clone()),
        format!("export `data`: {}: No such file or directory (os error 2)", none.display())
    );
    let (is, dir) = (file.display(), dir.path().display());
    assert_eq!(refused(file.clone()), format!("export `data`: {is} is a file; export its directory, {dir}"));
}

/// Writes until the file system is full: the reply has the number of bytes, and the next one the error.
#[test]
fn a_full_file_system_is_reported_and_loses_nothing() {
    let point = tempfile::tempdir().unwrap();
    let Some(_mounted) = mount_tmpfs(point.path(), "256k") else { return };
    let session = Exports::open(&[ExportSpec::new("data", point.path()).writable()]).unwrap().session();
    let host = Host { dir: point, session };
    let file = host.create("data/x", FileFlags::READ | FileFlags::WRITE).unwrap().handle();
    let chunk = vec![7; 100 << 10];
    let mut total = 0;
    let error = loop {
        match host.write(file, total, &chunk).returned {
            Ok(written) => total += written,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno, Errno::NOSPC);
    assert_eq!(error.message, format!("write data/x at byte {total}: No space left on device (os error 28)"));
    assert!(total > 200 << 10, "a short write says how much of it was written");
    assert_eq!(host.read(file).unwrap(), vec![7; total as usize]);

    host.ask(FileRequest::Truncate { file, len: 10 });
    // Output is written while more is made, so the end of it may be the first to hear that it does not fit.
    let fill = |sink: &mut FileSink| {
        let refused = (0..10).find_map(|_| sink.append(&chunk).err());
        refused.unwrap_or_else(|| sink.finish().unwrap_err())
    };
    let mut sink = host.session.sink(file, SinkMode::Replace).unwrap();
    assert_eq!(fill(&mut sink).errno, Errno::NOSPC);
    assert_eq!(sink.abort(), 0);
    assert_eq!(host.content("x"), [7; 10], "a replacement that does not fit leaves the old file");
    assert_eq!(host.list("data", 4096), ["x"], "and nothing beside it");
    drop(sink);
    let mut sink = host.session.sink(file, SinkMode::Append).unwrap();
    assert_eq!(fill(&mut sink).errno, Errno::NOSPC);
    drop(sink);
    assert_eq!(std::fs::metadata(host.path().join("x")).unwrap().size(), 10, "what was appended is taken back");
    // The threads of the export drop what was not to be written when they come to it.
    let since = Instant::now();
    while rustix::fs::statvfs(host.path()).unwrap().f_bfree < (250 << 10) / 4096 {
        assert!(since.elapsed() < Duration::from_secs(20), "space is given back");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut sink = host.session.sink(file, SinkMode::InPlace { offset: 4 }).unwrap();
    let full = fill(&mut sink);
    let written = std::fs::metadata(host.path().join("x")).unwrap().size() - 4;
    assert!(written > 200 << 10, "as much is written as fits");
    let told = format!("writing data/x, byte {written} of the output: No space left on device (os error 28)");
    assert_eq!((full.errno, full.message), (Errno::NOSPC, told));
    assert_eq!((sink.written_bytes(), sink.durable_bytes()), (written, written), "and that much stays");
}

/// A small file system of its own; `None`, loudly, where this process may not mount.
pub(crate) fn mount_tmpfs(point: &Path, size: &str) -> Option<Mounted> {
    let done =
        Command::new("mount").args(["-t", "tmpfs", "-o"]).arg(format!("size={size}")).arg("none").arg(point).output();
    if done.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(Mounted(point.to_owned()));
    }
    eprintln!("SKIPPED: this test needs to mount a tmpfs: {done:?}");
    None
}

/// Unmounts when dropped.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
