//! Files of exports whose reads hang: what hangs with them, and what does not. Such a file is on a file system of this machine, and a
//! listener of fanotify(7) answers nobody who asks to read it. Needs root.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::{Advice, fadvise};
use zerocopy::FromBytes as _;

use crate::client::{COMPUTE, Client, start};
use crate::common::{builder, pattern};
use diskside_nvme::wire::Sqe;
use diskside_server::config::ExportSpec;
use diskside_server::{Running, TargetBuilder};
use diskside_sys::cache::residency;
use diskside_wire::file::{FileFlags, FileHandle, FileRequest, OpenedFile};
use diskside_wire::function::{FunctionCommand as _, FunctionKind, FunctionRequest, Outcome, Trailer};

const MIB: usize = 1 << 20;
/// Longer than anything takes that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory with files that can hang.
struct Disk {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
}

/// A file hangs as long as this is there.
struct Hang(#[expect(dead_code, reason = "its end lets everybody read")] Fanotify);

impl Disk {
    fn new() -> Option<Self> {
        let disk = Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), bytes: pattern(8 * MIB, 7) };
        for name in ["f", "g"] {
            std::fs::write(disk.path(name), &disk.bytes).unwrap();
            disk.forget(name);
        }
        if listener().is_none() {
            eprintln!("NOT TESTED: a listener that decides on reads needs root");
            return None;
        }
        Some(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Nothing of it is in the page cache any more.
    fn forget(&self, name: &str) {
        let (file, began) = (File::open(self.path(name)).unwrap(), Instant::now());
        file.sync_all().unwrap();
        loop {
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            match residency(&file, 0..self.bytes.len() as u64).unwrap().cached {
                0 => return,
                left => assert!(began.elapsed() < PATIENCE, "{left} pages of {name} stay in memory"),
            }
        }
    }

    fn hang(&self, name: &str) -> Hang {
        let listener = listener().unwrap();
        let path = self.path(name);
        listener.mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_ACCESS_PERM, AT_FDCWD, Some(&path)).unwrap();
        Hang(listener)
    }

    fn serve(&self, with: impl FnOnce(TargetBuilder) -> TargetBuilder) -> Running {
        start(with(builder().reactors(1).export(ExportSpec::new("data", self.dir.path()).writable())))
    }

    /// Reads of both kinds, short and long, of a file that is not in memory; its attributes; a name that is looked up and listed.
    fn is_calm(&self, client: &mut Client, name: &str) {
        self.forget(name);
        let file = soon(client, &lookup(&format!("data/{name}")), |result| {
            OpenedFile::read_from_bytes(result).unwrap().handle()
        });
        for (offset, len) in [(4096, 4096), (MIB, 512 << 10), (8 * MIB - 100, 4096)] {
            let read = FileRequest::Read { file, offset: offset as u64, len: len as u32 };
            let end = (offset + len).min(self.bytes.len());
            soon(client, &read, |result| assert!(result == &self.bytes[offset..end]));
        }
        soon(client, &FileRequest::Stat { base: Some(file), path: b"", flags: FileFlags::NONE }, |_| ());
        soon(
            client,
            &FileRequest::List { base: None, path: b"data", cursor: 0, len_max: 4096, flags: FileFlags::NONE },
            |_| (),
        );
        soon(client, &FileRequest::Close { file }, |_| ());
    }
}

fn listener() -> Option<Fanotify> {
    let flags = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_UNLIMITED_QUEUE;
    Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC).ok()
}

fn lookup(path: &str) -> FileRequest<'_> {
    FileRequest::Lookup { dir: None, path: path.as_bytes(), flags: FileFlags::READ }
}

/// Sends an operation and gives its tag.
fn begin(client: &mut Client, request: &FileRequest<'_>) -> u64 {
    let tag = client.tag();
    let request = FunctionRequest { args: request.to_bytes(), ..FunctionRequest::new(FunctionKind::File, 0) };
    client.send(tag, &request).ok();
    tag
}

/// The result and the trailer of an operation, if it is over.
fn is_over(client: &mut Client, tag: u64) -> Option<(Vec<u8>, Trailer)> {
    let first = client.receive(tag, 0, MIB as u32, 20);
    if first.answer.pending && first.bytes.is_empty() {
        return None;
    }
    let (mut bytes, mut trailer) = (first.bytes, first.trailer);
    while trailer.is_none() {
        let more = client.receive(tag, bytes.len() as u64, MIB as u32, 1000);
        bytes.extend(more.bytes);
        trailer = more.trailer;
    }
    trailer.map(|trailer| (bytes, trailer))
}

/// The end of an operation that waits for no file that hangs.
fn soon<T>(client: &mut Client, request: &FileRequest<'_>, take: impl FnOnce(&[u8]) -> T) -> T {
    let tag = begin(client, request);
    take(&ended(client, tag, request))
}

fn ended(client: &mut Client, tag: u64, what: &dyn std::fmt::Debug) -> Vec<u8> {
    let began = Instant::now();
    loop {
        if let Some((bytes, trailer)) = is_over(client, tag) {
            assert_eq!(trailer.outcome, Outcome::Ok, "{what:?}: {}", trailer.message);
            return bytes;
        }
        assert!(began.elapsed() < PATIENCE, "{what:?} waits for a file that hangs");
    }
}

/// Reads of a file at many places, which all hang, some of them long. None continues another: nothing is read ahead, so that none of
/// them finds its bytes in memory.
fn reads(client: &mut Client, file: FileHandle, count: u64) -> Vec<(u64, usize, usize)> {
    let place =
        |n: u64| ((n * 200_000 + 5000) as usize % (7 * MIB), if n.is_multiple_of(4) { 256 << 10 } else { 4096 });
    let read = |(offset, len): (usize, usize)| {
        let tag = begin(client, &FileRequest::Read { file, offset: offset as u64, len: len as u32 });
        (tag, offset, len)
    };
    (0..count).map(place).map(read).collect()
}

/// How many descriptors this process has of a file.
fn open_files(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == path)).count()
}

/// Reads of one file that hung kept all threads that a host has of an export, and with a second host all of the export: reads of its
/// other files, and whatever needs a name, waited for that one file.
#[test]
fn a_file_that_hangs_keeps_nothing_of_its_export_but_its_own_reads() {
    let Some(disk) = Disk::new() else { return };
    let running = disk.serve(|builder| builder);
    let mut hosts: Vec<Client> =
        ["one", "two"].map(|name| Client::connect_as(&running, &format!("nqn.2026-11.org.example:{name}"))).into();
    let hang = disk.hang("f");
    let mut open = Vec::new();
    for host in &mut hosts {
        let file = host.open("data/f", FileFlags::READ);
        // More than the export has threads, and than one of its files has workers.
        open.push(reads(host, file, 24));
    }
    for _ in 0..3 {
        hosts.iter_mut().for_each(|host| disk.is_calm(host, "g"));
    }
    for (host, reads) in hosts.iter_mut().zip(&open) {
        assert!(reads.iter().all(|(tag, ..)| is_over(host, *tag).is_none()), "it does not hang");
    }
    // One read of the first host waits for its turn and is given up: it is not begun any more.
    let (given_up, ..) = open[0].pop().unwrap();
    hosts[0].queue.command(Sqe::function_cancel(COMPUTE, given_up, false, 0), None, 0).ok();
    drop(hang);
    for (host, reads) in hosts.iter_mut().zip(open) {
        for (tag, offset, len) in reads {
            assert!(ended(host, tag, &(offset, len)) == disk.bytes[offset..offset + len]);
        }
    }
    let began = Instant::now();
    let trailer = loop {
        match is_over(&mut hosts[0], given_up) {
            Some((bytes, trailer)) if bytes.is_empty() => break trailer,
            over => assert!(over.is_none() && began.elapsed() < PATIENCE, "a read that was given up has bytes"),
        }
    };
    assert_eq!((trailer.outcome, &*trailer.message), (Outcome::Cancelled, "cancelled before it began"));
    hosts.iter_mut().for_each(|host| disk.is_calm(host, "f"));
}

/// Hosts go away with hundreds of reads of a file that hangs: nothing of them stays when it hangs no more, and meanwhile they keep
/// nobody from being served.
#[test]
fn hosts_that_go_away_while_a_file_hangs_leave_nothing() {
    let Some(disk) = Disk::new() else { return };
    let running = disk.serve(|builder| builder);
    let mut other = Client::connect(&running);
    let hang = disk.hang("f");
    for _ in 0..2 {
        let mut hosts: Vec<Client> =
            (0..5).map(|n| Client::connect_as(&running, &format!("nqn.2026-11.org.example:gone{n}"))).collect();
        for host in &mut hosts {
            let file = host.open("data/f", FileFlags::READ);
            reads(host, file, 60);
        }
        disk.is_calm(&mut other, "g");
        drop(hosts);
        disk.is_calm(&mut other, "g");
    }
    assert!(open_files(&disk.path("f")) > 0, "it does not hang");
    drop(hang);
    let began = Instant::now();
    while open_files(&disk.path("f")) > 0 {
        assert!(began.elapsed() < PATIENCE, "{} descriptors are left", open_files(&disk.path("f")));
        disk.is_calm(&mut other, "g");
    }
    disk.is_calm(&mut other, "f");
}

/// A target that stops gives up reads of a file that hangs, once it has waited for `stop_ms`.
#[test]
fn a_target_ends_while_a_file_hangs() {
    let Some(disk) = Disk::new() else { return };
    let running = disk.serve(|builder| builder.limits(|limits| limits.stop_ms = 200));
    let mut client = Client::connect(&running);
    let file = client.open("data/f", FileFlags::READ);
    let hang = disk.hang("f");
    reads(&mut client, file, 12);
    disk.is_calm(&mut client, "g");
    let began = Instant::now();
    running.handle().stop();
    running.wait().unwrap();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    drop(hang);
}
