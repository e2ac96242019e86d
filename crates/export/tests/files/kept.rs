//! The properties that files of an export keep when they are written as a whole: published by a host, or replaced by a
//! function's output.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use diskside_export::ExportSpec;
use diskside_export::SinkMode;
use diskside_wire::file::{FileFlags, FileRequest};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, mknodat, setxattr};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::host::{Host, Refused};

const RW: FileFlags = FileFlags::READ_WRITE;
const UID: u32 = 54_321;
const WAYS: [Way; 2] = [Way::Published, Way::Replaced];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Published,
    Replaced,
}

/// Makes `content` the file, then adds to it by the same handle.
fn write(host: &Host, way: Way, name: &str, content: &[u8]) -> Result<(), Refused> {
    let path = format!("data/{name}");
    let file = match way {
        Way::Published => {
            let file = host.create(&path, RW | FileFlags::UNNAMED)?.handle();
            assert!(host.write(file, 0, content).returned.is_ok());
            host.try_ask(FileRequest::Publish { file })?;
            file
        }
        Way::Replaced => {
            let file = host.try_open(&path, RW)?;
            let refused = |error: diskside_export::FileError| (error.errno.raw_os_error(), error.message);
            let mut sink = host.session.sink(file, SinkMode::Replace).map_err(refused)?;
            sink.append(content).map_err(refused)?;
            sink.finish().map_err(refused)?;
            file
        }
    };
    assert_eq!(host.read(file).unwrap(), content, "the handle is one of what has the name");
    host.write(file, content.len() as u64, b"+").returned.unwrap();
    Ok(())
}

fn written(host: &Host, way: Way, name: &str) {
    let content = format!("{way:?}");
    write(host, way, name, content.as_bytes()).unwrap();
    assert_eq!(host.content(name), format!("{content}+").as_bytes(), "{name}");
}

fn old(host: &Host, name: &str, mode: u32) -> PathBuf {
    host.file(name, "old content that is longer");
    let path = host.path().join(name);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path
}

/// A file that was copied to an export had the mode of a new one, and neither list nor attributes.
#[test]
fn a_replaced_file_keeps_mode_attributes_and_acl() {
    // Owner rw, user 54321 r, group r, mask rw, others nothing: as acl(5) has it in attributes.
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, may, id) in [(1u16, 6u16, u32::MAX), (2, 4, UID), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        acl.extend([tag.to_le_bytes(), may.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    for way in WAYS {
        let host = Host::new();
        let path = old(&host, "x", 0o604);
        let before = path.metadata().unwrap();
        written(&host, way, "x");
        let after = path.metadata().unwrap();
        assert_eq!((after.mode(), after.ino() != before.ino()), (before.mode(), true), "{way:?}");
        for (name, value) in [("user.origin", &b"here"[..]), ("system.posix_acl_access", &acl)] {
            if setxattr(&path, name, value, XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
                eprintln!("not tested: {name} cannot be set in {}", host.path().display());
                continue;
            }
            written(&host, way, "x");
            let mut found = vec![0; 1024];
            let len = getxattr(&path, name, &mut found[..]).unwrap();
            assert_eq!(&found[..len], value, "{way:?}: {name}");
        }
    }
}

#[test]
fn links_of_both_kinds_keep_meaning_the_file() {
    for way in WAYS {
        let host = Host::new();
        std::fs::create_dir(host.path().join("sub")).unwrap();
        let path = old(&host, "sub/x", 0o640);
        std::fs::hard_link(&path, host.path().join("hard")).unwrap();
        symlink("sub/x", host.path().join("link")).unwrap();
        symlink("../link", host.path().join("sub/second")).unwrap();
        for name in ["hard", "link", "sub/second"] {
            written(&host, way, name);
            assert_eq!(host.content("hard"), host.content("sub/x"), "{way:?}: {name}");
        }
        assert_eq!(path.metadata().unwrap().nlink(), 2);
        assert!(host.path().join("link").is_symlink() && host.path().join("sub/second").is_symlink());
        assert_eq!(host.list("data", 4096), ["hard", "link", "sub"]);
    }
    let host = Host::new();
    symlink("made", host.path().join("dangling")).unwrap();
    written(&host, Way::Published, "dangling");
    assert_eq!(host.content("made"), b"Published+");
    assert!(host.path().join("dangling").is_symlink());
}

#[test]
fn no_way_leads_out_of_the_export() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("x"), "outside").unwrap();
    let host = Host::new();
    symlink(outside.path().join("x"), host.path().join("absolute")).unwrap();
    symlink(format!("..{}/x", "/..".repeat(8)), host.path().join("up")).unwrap();
    symlink(outside.path(), host.path().join("directory")).unwrap();
    for name in ["absolute", "up", "directory/x"] {
        let (errno, message) = write(&host, Way::Published, name, b"new").unwrap_err();
        assert_eq!(errno, Errno::XDEV.raw_os_error(), "{name}");
        assert_eq!(message, format!("create data/{name}: the path leads out of the export, or into another mount"));
    }
    symlink("round", host.path().join("round")).unwrap();
    assert_eq!(
        write(&host, Way::Published, "round", b"new").unwrap_err().1,
        "create data/round: Too many levels of symbolic links (os error 40): its symbolic links lead in a circle; remove one of them"
    );
    assert_eq!(std::fs::read(outside.path().join("x")).unwrap(), b"outside");
}

/// `cp` to an export replaced a FIFO by a file.
#[test]
fn what_is_no_file_is_refused_and_stays() {
    let host = Host::new();
    let fifo = host.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(host.path().join("socket")).unwrap();
    std::fs::create_dir(host.path().join("sub")).unwrap();
    for (name, expected) in [
        ("fifo", "Invalid argument (os error 22): it is a device or a FIFO, which is never replaced"),
        ("socket", "No such device or address (os error 6): it is a socket, which cannot be written as a file"),
        ("sub", "Is a directory (os error 21): name a file in it"),
    ] {
        let (_, message) = write(&host, Way::Published, name, b"new").unwrap_err();
        assert_eq!(message, format!("create data/{name}: {expected}"));
    }
    // It may also take the name while the file is being written.
    let late = host.create("data/late", RW | FileFlags::UNNAMED).unwrap().handle();
    mknodat(CWD, host.path().join("late"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let (_, message) = host.try_ask(FileRequest::Publish { file: late }).unwrap_err();
    assert_eq!(
        message,
        "publish data/late: Invalid argument (os error 22): it is a device or a FIFO, which is never replaced"
    );
    assert_eq!(host.list("data", 4096), ["fifo", "late", "socket", "sub"]);
}

#[test]
fn what_the_exports_user_cannot_give_is_kept_by_writing_in_place() {
    if !geteuid().is_root() {
        return eprintln!("not tested: only root can make an export of another user");
    }
    for way in WAYS {
        let host = Host::with(|spec| {
            std::fs::set_permissions(&spec.path, PermissionsExt::from_mode(0o777)).unwrap();
            ExportSpec { uid: Some(UID), gid: Some(UID), ..spec }
        });
        let shared = old(&host, "shared", 0o666);
        let before = shared.metadata().unwrap();
        written(&host, way, "shared");
        let after = shared.metadata().unwrap();
        assert_eq!(
            (after.ino(), after.uid(), after.gid(), after.mode()),
            (before.ino(), 0, before.gid(), before.mode()),
            "{way:?}: another's file"
        );
        let read_only = old(&host, "read-only", 0o644);
        let (errno, message) = write(&host, way, "read-only", b"new").unwrap_err();
        assert_eq!(errno, Errno::ACCESS.raw_os_error(), "{way:?}: {message}");
        assert_eq!(std::fs::read(&read_only).unwrap(), b"old content that is longer");

        // Its own file, in a directory that is another's: the new content waits in the root.
        let sub = host.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        let own = old(&host, "sub/own", 0o600);
        chown(&own, Some(UID), Some(UID)).unwrap();
        std::fs::set_permissions(&sub, PermissionsExt::from_mode(0o755)).unwrap();
        written(&host, way, "sub/own");
        assert_eq!((own.metadata().unwrap().uid(), own.metadata().unwrap().mode() & 0o777), (UID, 0o600));
        // Where that is not theirs either, they get an error.
        std::fs::set_permissions(host.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (_, message) = write(&host, way, "sub/own", b"new").unwrap_err();
        assert!(message.ends_with("nor in the export's root, to hold the new content"), "{way:?}: {message}");
        assert_eq!(host.list("data", 4096), ["read-only", "shared", "sub"]);
    }
}
