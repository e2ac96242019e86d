//! No path leaves its export, whatever links and renames say.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diskside_wire::file::{FileFlags, FileRequest};
use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};
use rustix::io::Errno;

use super::host::Host;

/// A directory `outside` and an export beside it, both with a file `secret`.
fn beside() -> (tempfile::TempDir, Host) {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "outside").unwrap();
    let host = Host::new();
    (outside, host)
}

#[test]
fn links_work_inside_and_do_not_lead_out() {
    let (outside, host) = beside();
    std::fs::create_dir(host.path().join("dir")).unwrap();
    host.file("dir/x", "inside");
    let out = outside.path();
    let in_export = |name: &str| host.path().join(name);
    symlink("dir/../dir/x", in_export("fine")).unwrap();
    symlink("/dir/x", in_export("absolute")).unwrap();
    symlink(out, in_export("dir-out")).unwrap();
    symlink(out.join("secret"), in_export("file-out")).unwrap();
    symlink("../..", in_export("up")).unwrap();
    symlink("/proc/self/root", in_export("magic")).unwrap();
    symlink("loop", in_export("loop")).unwrap();
    symlink(out.join("new"), in_export("dangling")).unwrap();

    assert_eq!(host.read(host.open("data/fine", FileFlags::READ)).unwrap(), b"inside");
    assert_eq!(host.read(host.open("data/dir/../dir/./x", FileFlags::READ)).unwrap(), b"inside");
    let leads_out = [
        "data/absolute",
        "data/dir-out/secret",
        "data/dir-out",
        "data/file-out",
        "data/up",
        "data/..",
        "data/../../etc",
        "data/dir/../../x",
        "data/magic/etc/passwd",
        "data/magic",
    ];
    for path in leads_out {
        for flags in [FileFlags::READ, FileFlags::WRITE, FileFlags::NONE, FileFlags::DIRECTORY] {
            let (errno, message) = host.try_open(path, flags).unwrap_err();
            assert!([Errno::XDEV, Errno::LOOP].contains(&Errno::from_raw_os_error(errno)), "{path}: {message}");
        }
        let path = path.as_bytes();
        let stat = host.ask(FileRequest::Stat { base: None, path, flags: FileFlags::NONE });
        assert!(stat.returned.is_err() && stat.result.is_empty());
        let list = FileRequest::List { base: None, path, cursor: 0, len_max: 4096, flags: FileFlags::NONE };
        assert!(host.try_ask(list).is_err());
    }
    assert_eq!(host.try_open("data/loop", FileFlags::READ).unwrap_err().0, Errno::LOOP.raw_os_error());
    let no_follow = host.try_open("data/fine", FileFlags::READ | FileFlags::NO_FOLLOW).unwrap_err();
    assert_eq!(no_follow.0, Errno::LOOP.raw_os_error());

    let new = b"data/dir-out/new";
    for change in [
        FileRequest::Create { dir: None, path: new, mode: 0o600, flags: FileFlags::WRITE },
        FileRequest::Create { dir: None, path: b"data/dangling", mode: 0o600, flags: FileFlags::WRITE },
        FileRequest::MakeDirectory { dir: None, path: new, mode: 0o700 },
        FileRequest::Unlink { dir: None, path: b"data/dir-out/secret" },
        FileRequest::Rename { dir: None, from: b"data/dir/x", to: new, flags: FileFlags::NONE },
        FileRequest::Rename { dir: None, from: b"data/dir-out/secret", to: b"data/got", flags: FileFlags::NONE },
    ] {
        assert_eq!(host.errno(change), Errno::XDEV, "{change:?}");
    }
    // Removing a link removes the link.
    assert_eq!(host.try_ask(FileRequest::Unlink { dir: None, path: b"data/file-out" }), Ok(0));
    assert_eq!(std::fs::read_dir(out).unwrap().count(), 1);
    assert_eq!(std::fs::read(out.join("secret")).unwrap(), b"outside");
}

/// A directory is exchanged with a symbolic link that leads out, over and over, while a host opens, makes and removes
/// files through it.
#[test]
fn a_directory_that_becomes_a_link_meanwhile_does_not_lead_out() {
    let (outside, host) = beside();
    std::fs::create_dir(host.path().join("swap")).unwrap();
    host.file("swap/secret", "inside");
    symlink(outside.path(), host.path().join("link")).unwrap();
    let stop = AtomicBool::new(false);
    let (inside, refused) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b) = (host.path().join("swap"), host.path().join("link"));
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let (mut inside, mut refused) = (0, 0);
        let until = Instant::now() + Duration::from_secs(20);
        while (inside < 200 || refused < 200) && Instant::now() < until {
            match host.try_open("data/swap/secret", FileFlags::READ) {
                Ok(file) => {
                    assert_eq!(host.read(file).unwrap(), b"inside");
                    host.ask(FileRequest::Close { file });
                    inside += 1;
                }
                Err(_) => refused += 1,
            }
            if let Ok(made) = host.create("data/swap/new", FileFlags::WRITE) {
                host.ask(FileRequest::Close { file: made.handle() });
            }
            let _ = host.ask(FileRequest::Unlink { dir: None, path: b"data/swap/new" });
        }
        stop.store(true, Ordering::Relaxed);
        (inside, refused)
    });
    assert!(inside >= 200 && refused >= 200, "both were met: {inside} and {refused}");
    let left: Vec<_> = std::fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["secret"], "nothing was made outside");
}

/// Directories move while paths with `..` go through them: the kernel then cannot always tell, and must be asked again.
#[test]
fn a_directory_that_moves_meanwhile_does_not_lead_out() {
    let (_outside, host) = beside();
    std::fs::create_dir_all(host.path().join("a/b/c")).unwrap();
    std::fs::create_dir_all(host.path().join("z")).unwrap();
    host.file("a/x", "inside");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b) = (host.path().join("a/b"), host.path().join("z/b"));
            while !stop.load(Ordering::Relaxed) {
                std::fs::rename(&a, &b).unwrap();
                std::fs::rename(&b, &a).unwrap();
            }
        });
        for _ in 0..2000 {
            let parent = host.try_open("data/a/b/c/../../../..", FileFlags::DIRECTORY);
            assert!(parent.is_err(), "that is above the export");
            if let Ok(file) = host.try_open("data/a/b/c/../../x", FileFlags::READ) {
                assert_eq!(host.read(file).unwrap(), b"inside");
                host.ask(FileRequest::Close { file });
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn pipes_devices_and_sockets_are_not_opened() {
    let host = Host::new();
    mkfifoat(CWD, host.path().join("pipe"), Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(host.path().join("socket")).unwrap();
    for path in ["data/pipe", "data/socket"] {
        for flags in [FileFlags::READ, FileFlags::WRITE, FileFlags::NONE] {
            // A pipe opened without a look at it first would wait for its other end for good.
            assert_eq!(host.try_open(path, flags).unwrap_err().0, Errno::INVAL.raw_os_error());
        }
        let create = FileRequest::Create { dir: None, path: path.as_bytes(), mode: 0o600, flags: FileFlags::WRITE };
        assert_eq!(host.errno(create), Errno::INVAL);
    }
    assert_eq!(host.list("data", 4096), ["pipe", "socket"]);
}

#[test]
fn another_mount_in_the_export_is_not_entered() {
    let host = Host::new();
    let point = host.path().join("mount");
    std::fs::create_dir(&point).unwrap();
    let Some(_mounted) = super::credentials::mount_tmpfs(&point, "64k") else { return };
    std::fs::write(point.join("x"), "x").unwrap();
    let (errno, message) = host.try_open("data/mount/x", FileFlags::READ).unwrap_err();
    assert_eq!(errno, Errno::XDEV.raw_os_error());
    assert_eq!(message, "lookup data/mount/x: the path leads out of the export, or into another mount");
}
