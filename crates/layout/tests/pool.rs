//! The pool of written files: what it gives can be written at a volume, what it publishes appears whole, and neither a kill
//! nor a full disk nor another process leaves anything else behind. Needs root.

mod lab;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diskside_layout::pool::{POOL_DIRECTORY, Pool, PoolLimits};
use diskside_layout::{Reason, WriteGuardConfig, admit, watched_writer};
use lab::{Kind, Lab, run};

const MIB: u64 = 1 << 20;

fn limits() -> PoolLimits {
    PoolLimits { len_max_bytes: 32 * MIB, files_max: 4, file_len_min: MIB, patience: Duration::from_secs(45) }
}

fn names(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join(POOL_DIRECTORY)).expect("listed");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))).collect()
}

/// Whether the guard of writes takes a range of the file. Children of other tests have it open for a moment.
fn is_writable(path: &Path, len: u64) -> Result<(), Reason> {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let place = admit(&file).expect("admitted").place;
    let patience = Instant::now() + Duration::from_secs(20);
    let guard =
        watched_writer(file, WriteGuardConfig { place, extents_max: 1 << 16, patience: Duration::from_secs(45) });
    let guard = guard.expect("a guard");
    loop {
        match guard.begin(0..len) {
            Err(refusal) if refusal.reason == Reason::Opened && Instant::now() < patience => {}
            ended => return ended.map(drop).map_err(|refusal| refusal.reason),
        }
    }
}

#[test]
fn what_it_gives_is_written_and_what_it_replaces_comes_back() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        let (mount, output) = (&lab.mount, lab.mount.join("output"));
        assert!(Pool::open_if_there(mount, limits()).expect("looked").is_none(), "nobody made one");
        let pool = Pool::open(mount, limits()).expect("a pool");
        assert_eq!(fs::metadata(mount.join(POOL_DIRECTORY)).expect("told").mode() & 0o777, 0o700);
        assert!(pool.take(1).expect("looked").is_none());

        // Of zeroes first. The device has them, and the file system knows it.
        let file = pool.prepare(5 * MIB - 100).expect("made").expect("there is room");
        assert_eq!(file.len_bytes(), 5 * MIB);
        assert_eq!(is_writable(file.path(), 5 * MIB), Ok(()), "{kind:?}");
        OpenOptions::new().write(true).open(file.path()).expect("open").write_all_at(b"first", 0).expect("written");
        file.publish(3 * MIB + 7, &output).expect("published");
        let bytes = fs::read(&output).expect("read");
        assert!(bytes.len() as u64 == 3 * MIB + 7 && bytes.starts_with(b"first"));
        let umask = fs::metadata(plain(mount)).expect("told").mode() & 0o777;
        assert_eq!(fs::metadata(&output).expect("told").mode() & 0o777, umask, "as any new file");
        assert_eq!(pool.len_bytes().expect("told"), 0);

        // Then over what is there, with its rights, which comes into the pool and serves again.
        fs::set_permissions(&output, fs::Permissions::from_mode(0o640)).expect("set");
        std::os::unix::fs::chown(&output, None, Some(7)).expect("set");
        pool.prepare(MIB).expect("made").expect("room").publish(10, &output).expect("published");
        let now = fs::metadata(&output).expect("told");
        assert_eq!((now.len(), now.mode() & 0o777, now.gid()), (10, 0o640, 7));
        assert_eq!(pool.len_bytes().expect("told"), 3 * MIB + 7);
        assert!(pool.take(3 * MIB + 8).expect("looked").is_none(), "not long enough");
        let again = pool.take(2 * MIB).expect("looked").expect("it is there");
        assert_eq!(is_writable(again.path(), 3 * MIB + 7), Ok(()), "{kind:?}");
        assert!(pool.take(1).expect("looked").is_none(), "only once");
        again.give_back().expect("given back");
        assert!(pool.take(1).expect("looked").is_some());
        drop(pool);
        assert!(names(mount, "lock-").is_empty());
        lab.unmount();
        let check: (&str, &[&str]) =
            if matches!(kind, Kind::Xfs) { ("xfs_repair", &["-n"]) } else { ("e2fsck", &["-fn"]) };
        run(Command::new(check.0).args(check.1).arg(lab.device()));
    }
}

/// A new file, as programs make them.
fn plain(mount: &Path) -> PathBuf {
    let path = mount.join("plain");
    fs::write(&path, b"x").expect("written");
    path
}

#[test]
fn what_cannot_be_written_again_stays_where_it_is() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        let pool = Pool::open(&lab.mount, limits()).expect("a pool");
        let path = lab.mount.join("file");
        let make = |len: u64| {
            let mut file = File::create(&path).expect("made");
            file.write_all(&vec![7; len as usize]).expect("written");
            file
        };
        let refused = |what: &str| {
            assert!(!pool.recycle(&path).expect("looked at"), "{kind:?}: {what}");
            assert!(path.symlink_metadata().is_ok(), "{what} stays");
        };
        make(MIB - 1);
        refused("a short one");
        make(2 * MIB).set_len(3 * MIB).expect("longer");
        refused("a hole");
        let file = make(2 * MIB);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 3 * MIB).expect("allocated");
        refused("space that was never written");
        make(2 * MIB);
        fs::hard_link(&path, lab.mount.join("twin")).expect("linked");
        refused("one with two names");
        fs::remove_file(lab.mount.join("twin")).expect("removed");
        std::os::unix::fs::chown(&path, Some(1), None).expect("set");
        refused("another's");
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("linked");
        refused("a symbolic link");
        fs::remove_file(&path).expect("removed");
        if matches!(kind, Kind::Xfs) {
            make(2 * MIB);
            run(Command::new("cp").arg("--reflink=always").arg(&path).arg(lab.mount.join("twin")));
            refused("one that shares blocks");
        }
        make(2 * MIB);
        fs::remove_file(lab.mount.join("twin")).ok();
        make(2 * MIB);
        assert!(pool.recycle(&path).expect("looked at"), "{kind:?}: a plain one comes");
        assert!(!path.exists() && pool.len_bytes().expect("told") == 2 * MIB);
    }
}

#[test]
fn it_stays_within_its_bounds_and_gives_way_to_others() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let pool = Pool::open(&lab.mount, PoolLimits { len_max_bytes: 8 * MIB, files_max: 3, ..limits() }).expect("a pool");
    assert!(pool.prepare(9 * MIB).expect("asked").is_none(), "more than it may have");
    let first = pool.prepare(6 * MIB).expect("made").expect("room");
    assert!(pool.prepare(3 * MIB).expect("asked").is_none(), "one is in use");
    first.give_back().expect("given back");
    let second = pool.prepare(3 * MIB).expect("made").expect("what nobody uses goes");
    assert_eq!(pool.len_bytes().expect("told"), 3 * MIB);
    second.remove().expect("removed");
    let all: Vec<_> = (0..3).map(|_| pool.prepare(MIB).expect("made").expect("room")).collect();
    assert!(pool.prepare(MIB).expect("asked").is_none(), "three files");
    drop(all);
    assert_eq!(names(&lab.mount, "left-").len(), 3, "dropped: a target may be writing them");
    assert!(pool.take(1).expect("looked").is_none());

    // A disk that is full: what nobody uses is given up, and nothing half made stays.
    fs::remove_dir_all(lab.mount.join(POOL_DIRECTORY)).expect("removed");
    drop(pool);
    let pool = Pool::open(&lab.mount, PoolLimits { len_max_bytes: 1 << 40, ..limits() }).expect("a pool");
    pool.prepare(4 * MIB).expect("made").expect("room").give_back().expect("given back");
    let told = rustix::fs::statvfs(&lab.mount).expect("told");
    let error = pool.prepare(told.f_bavail * told.f_frsize + 64 * MIB).expect_err("it does not fit");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(pool.len_bytes().expect("told"), 0);
}

#[test]
fn others_may_not_look_in() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join(POOL_DIRECTORY)).expect("made");
    fs::set_permissions(dir.path().join(POOL_DIRECTORY), fs::Permissions::from_mode(0o755)).expect("set");
    let error = Pool::open(dir.path(), limits()).expect_err("it is open to others");
    assert!(error.to_string().ends_with(".diskside-pool is not a directory that only you may enter"), "{error}");
    fs::remove_dir(dir.path().join(POOL_DIRECTORY)).expect("removed");
    std::os::unix::fs::symlink("/tmp", dir.path().join(POOL_DIRECTORY)).expect("linked");
    assert!(Pool::open(dir.path(), limits()).is_err(), "it is elsewhere");
}

#[test]
fn no_two_take_the_same_file() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let wide = PoolLimits { files_max: 100, ..limits() };
    let pool = Pool::open(dir.path(), wide).expect("a pool");
    let made: Vec<_> = (0..12).map(|_| pool.prepare(MIB).expect("made").expect("room")).collect();
    made.into_iter().for_each(|file| file.give_back().expect("given back"));
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // As another process would.
                let pool = Pool::open(dir.path(), wide).expect("a pool");
                while let Some(file) = pool.take(1).expect("looked") {
                    taken.lock().expect("nobody panics").push(fs::metadata(file.path()).expect("told").ino());
                    // It stays taken.
                    std::mem::forget(file);
                }
            });
        }
    });
    let taken = taken.into_inner().expect("nobody panics");
    assert_eq!((taken.len(), taken.iter().collect::<HashSet<_>>().len()), (12, 12));
}

const VICTIM: &str = "DISKSIDE_POOL_VICTIM";

/// The process that the test below starts: it publishes one version after another until it is killed.
#[test]
fn publishes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(VICTIM).map(PathBuf::from) else { return };
    let pool = Pool::open(&directory, limits()).expect("a pool");
    for version in 0_u8.. {
        let file = match pool.take(MIB).expect("looked") {
            Some(file) => file,
            None => pool.prepare(MIB).expect("made").expect("room"),
        };
        let writer = OpenOptions::new().write(true).open(file.path()).expect("open");
        writer.write_all_at(&vec![version; MIB as usize], 0).expect("written");
        drop(writer);
        file.publish(MIB, &directory.join("output")).expect("published");
        println!("{version}");
    }
}

/// Whenever it is killed: the output is one whole version, what it had is found by the next, and is not used while a target
/// might be writing it.
#[test]
fn a_kill_leaves_whole_files_and_nothing_that_is_lost() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "--nocapture", "publishes_until_it_is_killed"])
            .env(VICTIM, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // It has published some, and is at another one now.
        let some = lines.map_while(Result::ok).filter(|line| line.parse::<u8>().is_ok()).nth(round + 1);
        assert!(some.is_some(), "it came so far");
        child.kill().expect("killed");
        child.wait().expect("ended");
        let bytes = fs::read(dir.path().join("output")).expect("read");
        assert!(bytes.len() as u64 == MIB && bytes.iter().all(|byte| *byte == bytes[0]), "round {round}: one version");
        // Who comes next keeps what it had, and leaves it alone.
        let pool = Pool::open(dir.path(), limits()).expect("a pool");
        assert!(names(dir.path(), "used-").is_empty() && names(dir.path(), "lock-").len() == 1);
        let files = names(dir.path(), "").len() - 1;
        assert!(files <= limits().files_max, "{files}");
        drop(pool);
        let pool = Pool::open(dir.path(), PoolLimits { patience: Duration::ZERO, ..limits() }).expect("a pool");
        assert!(names(dir.path(), "left-").is_empty(), "the kernel's patience is over: it is used again");
        drop(pool);
    }
}
