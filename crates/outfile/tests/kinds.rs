//! Each kind of thing that a path can mean, and what is left of it.

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;

use common::{Dir, mode, read, refusal, write};
use diskside_outfile::{Destination, OutFile};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::geteuid;

#[test]
fn a_new_file_appears_whole_and_nothing_else_does() {
    let dir = Dir::new();
    // The name that was written through before; it is a user's file like any other.
    let precious = dir.file("x.partial", b"precious", 0o600);
    let mut file = OutFile::create(&dir.path("x")).expect("it begins");
    file.write_all(b"half").expect("there is room");
    assert_eq!(dir.names(), ["x.partial"]);
    file.write_all(b" and half").expect("there is room");
    file.publish().expect("it is new");
    assert_eq!(
        (dir.names(), read(&dir.path("x"))),
        (vec!["x".to_owned(), "x.partial".to_owned()], "half and half".into())
    );
    std::fs::File::create(dir.path("usual")).expect("made");
    assert_eq!(mode(&dir.path("x")), mode(&dir.path("usual")), "the mode of any new file");
    drop(OutFile::create(&dir.path("y")).expect("it begins"));
    assert_eq!((dir.names().len(), read(&precious)), (3, "precious".to_owned()), "what is given up leaves nothing");
}

#[test]
fn a_file_is_replaced_at_once() {
    let dir = Dir::new();
    let path = dir.file("x", b"old", 0o640);
    let mut reader = std::fs::File::open(&path).expect("it is there");
    let before = std::fs::metadata(&path).expect("it is there").ino();
    write(&path, b"new").expect("it is ours");
    let mut seen = String::new();
    reader.read_to_string(&mut seen).expect("it is open");
    assert_eq!((seen.as_str(), read(&path).as_str()), ("old", "new"), "who has the old one open keeps it");
    assert_ne!(std::fs::metadata(&path).expect("it is there").ino(), before);
    assert_eq!((mode(&path), dir.names()), (0o640, vec!["x".to_owned()]));
}

/// A result took the place of the link, and the file that it named stayed old.
#[test]
fn links_are_followed_and_stay() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("sub")).expect("made");
    let target = dir.file("sub/target", b"old", 0o604);
    symlink("sub/target", dir.path("first")).expect("made");
    symlink("../first", dir.path("sub/second")).expect("made");
    symlink(dir.path("sub"), dir.path("directory")).expect("made");
    for (turn, name) in ["first", "sub/second", "directory/target", "directory/second"].into_iter().enumerate() {
        write(&dir.path(name), format!("{turn}").as_bytes()).expect("it leads to a file");
        assert_eq!((read(&target), mode(&target)), (turn.to_string(), 0o604), "{name}");
    }
    let is_link = |name: &str| std::fs::symlink_metadata(dir.path(name)).expect("it is there").is_symlink();
    assert!(is_link("first") && is_link("sub/second") && is_link("directory"));
    symlink("sub/made", dir.path("dangling")).expect("made");
    write(&dir.path("dangling"), b"new").expect("it makes the file");
    assert!(is_link("dangling") && read(&dir.path("sub/made")) == "new");
    symlink("round", dir.path("round")).expect("made");
    assert_eq!(
        refusal(&dir, "round"),
        "round: Too many levels of symbolic links (os error 40): its symbolic links lead in a circle; remove one of them"
    );
    symlink("none/x", dir.path("lost")).expect("made");
    assert!(refusal(&dir, "lost").ends_with("there is no directory none; make it first"), "{}", refusal(&dir, "lost"));
}

#[test]
fn what_is_no_place_for_a_file_says_what_to_do() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("sub")).expect("made");
    dir.file("x", b"old", 0o600);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path("socket")).expect("bound");
    for (name, expected) in [
        ("sub", "sub: Is a directory (os error 21): name a file in it"),
        ("sub/", "sub/: Is a directory (os error 21): name a file in it"),
        ("none/x", "none/x: No such file or directory (os error 2): there is no directory none; make it first"),
        ("x/y", "x/y: Not a directory (os error 20): x is no directory"),
        ("socket", "socket: No such device or address (os error 6): it is a socket, which cannot be written as a file"),
    ] {
        assert_eq!(refusal(&dir, name), expected);
    }
    let empty = write(Path::new(""), b"new").expect_err("there is no such name").to_string();
    assert_eq!(empty, ": No such file or directory (os error 2): the name is empty");
    assert_eq!(dir.names(), ["socket", "sub", "x"]);
}

/// A result took the place of the FIFO, whose reader waited on.
#[test]
fn a_fifo_is_written_and_stays() {
    let dir = Dir::new();
    let path = dir.path("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    assert!(Destination::find(&path).expect("it is there").is_stream());
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| std::fs::read(&path).expect("read to its end"));
        write(&path, b"through it").expect("it has a reader");
        reader.join().expect("it has read")
    });
    assert_eq!(read, b"through it");
    assert!(std::fs::metadata(&path).expect("it is there").file_type().is_fifo());
    // The reader goes away: an error with the name, and no signal.
    let mut file = std::thread::scope(|scope| {
        let reader = scope.spawn(|| drop(std::fs::File::open(&path).expect("it has a writer")));
        let file = OutFile::create(&path).expect("it has a reader");
        reader.join().expect("it has gone");
        file
    });
    let error = file.write_all(b"x").expect_err("nobody reads");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    assert!(error.to_string().ends_with("fifo: Broken pipe (os error 32)"), "{error}");
}

/// `-o /dev/stdout` as root took /dev/stdout from the machine.
#[test]
fn a_device_is_written_and_stays() {
    if !geteuid().is_root() {
        return eprintln!("not tested: only root can make device nodes");
    }
    let dir = Dir::new();
    let node = |name: &str, minor| {
        let path = dir.path(name);
        let made = mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o600), makedev(1, minor));
        made.map(|()| path)
    };
    let (Ok(null), Ok(full)) = (node("null", 3), node("full", 7)) else {
        return eprintln!("not tested: device nodes cannot be made here");
    };
    if let Err(error) = std::fs::OpenOptions::new().write(true).open(&null) {
        return eprintln!("not tested: device nodes cannot be used here: {error}");
    }
    write(&null, b"gone").expect("it takes everything");
    let error = write(&full, b"x").expect_err("it is always full");
    // What it is called, and the number that programs ask for.
    let known = error.get_ref().and_then(|error| error.downcast_ref::<diskside_outfile::WriteError>());
    assert_eq!(known.map(|error| error.errno), Some(rustix::io::Errno::NOSPC));
    let error = error.to_string();
    assert!(error.ends_with("full: No space left on device (os error 28)"), "{error}");
    for path in [null, full] {
        let found = std::fs::metadata(&path).expect("it is there");
        assert!(found.file_type().is_char_device(), "{}", path.display());
    }
    assert_eq!(dir.names(), ["full", "null"]);
}

#[test]
fn a_descriptor_is_written_where_it_stands() {
    // In a process of its own: this one's descriptors are those of the test.
    let dir = Dir::new();
    let path = dir.file("log", b"begin\n", 0o600);
    let log = std::fs::OpenOptions::new().append(true).open(&path).expect("it is there");
    let run = |out: &str| {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "a_child_writes_where_it_is_told", "--nocapture"]).env("DISKSIDE_TEST_OUT", out);
        let run = command.stderr(log.try_clone().expect("a descriptor")).output().expect("it runs");
        String::from_utf8_lossy(&run.stdout).into_owned()
    };
    for out in ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2", "/proc/thread-self/fd/2"] {
        run(out);
    }
    assert_eq!(read(&path), format!("begin\n{}", "told\n".repeat(4)), "neither emptied nor replaced");
    let said = run("/dev/fd/77");
    assert!(said.contains("this process was not started with that descriptor open for writing"), "{said}");
    let said = run("/dev/fd/0");
    assert!(said.contains("/dev/fd/0: Bad file descriptor (os error 9)"), "{said}");
}

/// The process that the test above runs; by itself it has nothing to do.
#[test]
fn a_child_writes_where_it_is_told() {
    if let Some(out) = std::env::var_os("DISKSIDE_TEST_OUT")
        && let Err(error) = write(Path::new(&out), b"told\n")
    {
        println!("{error}");
    }
}
