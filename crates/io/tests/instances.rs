//! Requests from any thread over real files.

mod without;

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::instance::{InstanceConfig, Instances, LocalFile, Threads};
use diskside_io::request::{AsyncIo, Cause, Outcome, Request, Status, block_on, block_on_all, block_on_any, poll};
use diskside_io::ring::{Interface, interface};
use diskside_io::unanswered;

fn configs() -> Vec<InstanceConfig> {
    let base = InstanceConfig { in_flight_max: 8, staging_max: 16, ..InstanceConfig::default() };
    vec![
        base.clone(),
        InstanceConfig { spin: Duration::ZERO, ..base.clone() },
        InstanceConfig { instances: 3, ..base.clone() },
        InstanceConfig { in_flight_max: 1, ..base.clone() },
        InstanceConfig { threads: Threads::Two, ..base.clone() },
        InstanceConfig { threads: Threads::Two, instances: 2, in_flight_max: 1, ..base.clone() },
        InstanceConfig { sq_poll: Some(Duration::from_millis(20)), ..base.clone() },
        InstanceConfig { threads: Threads::Two, sq_poll: Some(Duration::from_millis(20)), ..base },
    ]
}

fn scratch(instances: &Instances) -> LocalFile {
    instances.file(tempfile::tempfile().unwrap()).unwrap()
}

fn read(offset: u64, len: usize) -> Request {
    Request::Read { offset, buffer: Buffer::zeroed(len) }
}

fn write(offset: u64, bytes: &[u8]) -> Request {
    Request::Write { offset, buffer: Buffer::copy_of(bytes), durable: false }
}

fn errno(outcome: &Outcome) -> Option<Errno> {
    match outcome.status.cause() {
        Some(Cause::Errno(errno)) => Some(errno),
        _ => None,
    }
}

#[test]
fn many_threads_write_and_read_back_what_they_wrote() {
    for config in configs() {
        let instances = Instances::start(&config).unwrap();
        let file = scratch(&instances);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (file, config) = (&file, &config);
                scope.spawn(move || {
                    let at = |block: u64| (block * 4 + thread) * 1000;
                    let content = |block: u64| vec![(block * 7 + thread) as u8; 1000];
                    let writes: Vec<_> = (0..50).map(|block| file.submit(write(at(block), &content(block)))).collect();
                    for outcome in block_on_all(writes) {
                        assert_eq!((outcome.status, outcome.transferred_bytes), (Status::Success, 1000), "{config:?}");
                    }
                    let reads: Vec<_> = (0..50).map(|block| file.submit(read(at(block), 1000))).collect();
                    for (block, outcome) in block_on_all(reads).into_iter().enumerate() {
                        assert_eq!(&outcome.into_read().unwrap()[..], content(block as u64));
                    }
                });
            }
        });
        assert_eq!(block_on(file.submit(Request::Flush)).status, Status::Success);
        assert_eq!(file.len_bytes().unwrap(), 200_000);
    }
}

#[test]
fn the_end_of_the_file_is_a_success_with_fewer_bytes() {
    for config in configs() {
        let file = scratch(&Instances::start(&config).unwrap());
        block_on(file.submit(write(0, &[9; 5000]))).into_result().unwrap();
        assert_eq!(block_on(file.submit(read(4000, 4096))).transferred_bytes, 1000);
        let past = block_on(file.submit(read(1 << 40, 10)));
        assert_eq!((past.status, past.transferred_bytes), (Status::Success, 0));
        assert_eq!(block_on(file.submit(read(0, 0))).status, Status::Success);
    }
}

#[test]
fn each_errno_has_its_class_and_the_buffer_comes_back() {
    for config in configs() {
        let instances = Instances::start(&config).unwrap();
        let read_only = instances.file(File::open("/proc/self/exe").unwrap()).unwrap();
        let write_only = instances.file(File::options().write(true).open("/dev/null").unwrap()).unwrap();
        let full = instances.file(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        let folder = instances.file(File::open("/proc").unwrap()).unwrap();
        // Nothing is mapped at its first page: the kernel answers EIO.
        let memory = instances.file(File::open("/proc/self/mem").unwrap()).unwrap();

        let outcomes = block_on_all([
            read_only.submit(write(0, b"x")),
            write_only.submit(read(0, 1)),
            full.submit(write(0, b"x")),
            folder.submit(read(0, 1)),
            memory.submit(read(0, 1)),
        ]);
        assert!(matches!(outcomes[0].status, Status::BadDescriptor(_)));
        assert!(matches!(outcomes[1].status, Status::BadDescriptor(_)));
        assert!(matches!(outcomes[2].status, Status::OutOfSpace(_)));
        assert!(matches!(outcomes[3].status, Status::Other(_)));
        assert!(matches!(outcomes[4].status, Status::IoError(_)));
        let errnos: Vec<_> = outcomes.iter().map(|outcome| errno(outcome).unwrap()).collect();
        assert_eq!(errnos, [Errno::BADF, Errno::BADF, Errno::NOSPC, Errno::ISDIR, Errno::IO]);
        assert!(outcomes.iter().all(|outcome| { outcome.buffer.as_ref().is_some_and(|buffer| buffer.len() == 1) }));
    }
}

#[test]
fn a_full_file_system_says_how_much_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let size = c"size=64k";
    // Mounting needs root; without it there is no small file system to fill.
    if rustix::mount::mount("tmpfs", folder.path(), "tmpfs", rustix::mount::MountFlags::empty(), size).is_err() {
        return;
    }
    struct Mounted<'a>(&'a std::path::Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
    let mounted = Mounted(folder.path());
    for config in configs() {
        let path = mounted.0.join("file");
        let instances = Instances::start(&config).unwrap();
        let file = instances.file(File::create(&path).unwrap()).unwrap();
        let outcome = block_on(file.submit(write(0, &vec![1; 100_000])));
        assert!(matches!(outcome.status, Status::OutOfSpace(_)), "{:?}", outcome.status);
        assert_eq!((errno(&outcome), outcome.transferred_bytes), (Some(Errno::NOSPC), 65_536));
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_pipe_is_read_in_pieces_until_the_buffer_is_full() {
    for config in configs() {
        let instances = Instances::start(&config).unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let pipe = instances.file(reader).unwrap();
        let future = pipe.submit(read(0, 100));
        let mut writer = File::from(writer);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(1));
            writer.write_all(&[5; 10]).unwrap();
        }
        assert_eq!(&block_on(future).into_read().unwrap()[..], &[5; 100]);
    }
}

#[test]
fn any_of_several_requests_ends_the_wait() {
    let instances = Instances::start(&InstanceConfig::default()).unwrap();
    let (reader, mut writer) = {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (instances.file(reader).unwrap(), File::from(writer))
    };
    let file = scratch(&instances);
    let requests = [reader.submit(read(0, 1)), file.submit(write(0, b"now"))];
    assert_eq!(block_on_any(&requests), 1);
    assert_eq!(poll(&requests), Some(1));
    assert_eq!(requests[0].status(), Status::InFlight);
    writer.write_all(b"!").unwrap();
    assert!(block_on_all(requests).iter().all(|outcome| outcome.status == Status::Success));
}

#[test]
fn holes_and_zeroes_read_as_zeroes() {
    let file = scratch(&Instances::start(&InstanceConfig::default()).unwrap());
    block_on(file.submit(write(0, &[1; 20_000]))).into_result().unwrap();
    let outcomes = block_on_all([
        file.submit(Request::Deallocate { offset: 4096, len: 4096 }),
        file.submit(Request::WriteZeroes { offset: 10_000, len: 5_000 }),
    ]);
    if outcomes.iter().any(|outcome| errno(outcome) == Some(Errno::OPNOTSUPP)) {
        return; // a file system without holes
    }
    let bytes = block_on(file.submit(read(0, 20_000))).into_read().unwrap();
    let zeroed = |at: usize| (4096..8192).contains(&at) || (10_000..15_000).contains(&at);
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == u8::from(!zeroed(at))));
}

#[test]
fn direct_files_stop_at_the_end_of_the_file_and_refuse_what_is_not_aligned() {
    let path = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(&path, vec![3; 10_000]).unwrap();
    let Ok(direct) = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path) else {
        return;
    };
    let polling = InstanceConfig { io_poll: true, ..InstanceConfig::default() };
    for config in configs().into_iter().chain([polling]) {
        let instances = Instances::start(&config).unwrap();
        let file = instances.file(direct.try_clone().unwrap()).unwrap();
        assert!(file.is_direct());
        let outcome = block_on(file.submit(read(0, 16_384)));
        if config.io_poll && errno(&outcome) == Some(Errno::OPNOTSUPP) {
            continue; // a device without poll queues
        }
        assert_eq!((outcome.status, outcome.transferred_bytes), (Status::Success, 10_000), "{config:?}");
        let askew = block_on(file.submit(read(1, 4096)));
        assert_eq!(errno(&askew), Some(Errno::INVAL));
        assert_eq!(block_on(file.submit(Request::Flush)).status, Status::Success);
    }
}

#[test]
fn what_was_submitted_completes_though_everyone_left() {
    for config in configs() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let instances = Instances::start(&config).unwrap();
        let file = instances.file(temp.reopen().unwrap()).unwrap();
        let futures: Vec<_> = (0..100).map(|at| file.submit(write(at * 100, &[7; 100]))).collect();
        drop((instances, file));
        assert_eq!(std::fs::read(temp.path()).unwrap(), [7; 10_000]);
        assert!(futures.iter().all(|future| future.status() == Status::Success));
    }
}

#[test]
fn senseless_sizes_are_refused() {
    let base = InstanceConfig::default();
    for config in [
        InstanceConfig { instances: 0, ..base.clone() },
        InstanceConfig { in_flight_max: 0, ..base.clone() },
        InstanceConfig { staging_max: 0, ..base.clone() },
        InstanceConfig { io_poll: true, threads: Threads::Two, ..base },
    ] {
        let error = Instances::start(&config).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
}

/// "Always the first instance" served everything right, and passed all tests. Here each instance has room for one request, which
/// waits for a pipe: the requests are all under way at once only if each is another instance's.
#[test]
fn requests_go_to_the_instances_in_turn() {
    const INSTANCES: usize = 4;
    for threads in [Threads::One, Threads::Two] {
        let config = InstanceConfig { instances: INSTANCES, in_flight_max: 1, threads, ..InstanceConfig::default() };
        let instances = Instances::start(&config).unwrap();
        let pipes: Vec<_> = (0..2 * INSTANCES).map(|_| rustix::pipe::pipe().unwrap()).collect();
        let (send, answered) = std::sync::mpsc::channel();
        for (at, (reader, _)) in pipes.iter().enumerate() {
            let pipe = instances.file(reader.try_clone().unwrap()).unwrap();
            let (future, send) = (pipe.submit(read(0, 1)), send.clone());
            std::thread::spawn(move || send.send((at, block_on(future).into_read().unwrap()[0])));
        }
        let answer = |at: usize| {
            rustix::io::write(&pipes[at].1, &[at as u8]).unwrap();
            answered.recv_timeout(Duration::from_secs(20))
        };
        // The last of the first round is answered first, though those before it wait; and the second round comes behind
        // it.
        for at in (0..INSTANCES).rev().chain(INSTANCES..2 * INSTANCES) {
            assert_eq!(answer(at), Ok((at, at as u8)), "{threads:?}: it waits behind another one's request");
        }
    }
}

#[test]
fn all_of_this_holds_without_io_uring() {
    without::all_again("all_of_this_holds_without_io_uring");
}

/// Commands that copied a file were silent while a disk of this machine hung: what they asked it for was counted nowhere.
#[test]
fn a_watched_file_counts_among_what_disks_have_not_answered_until_they_do() {
    if matches!(interface(), Ok(Interface::Posix(_))) {
        eprintln!("NOT TESTED: a pipe is read by position with io_uring alone");
        return;
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let instances = Instances::start(&InstanceConfig::default()).unwrap();
    let read = || Request::Read { offset: 0, buffer: Buffer::zeroed(1) };
    let plain = instances.file(reader.try_clone().unwrap()).unwrap();
    let watched = instances.file(reader).unwrap().watched();
    let unwatched = plain.submit(read());
    assert_eq!(unanswered::here().len(), 0);
    let asked = watched.submit(read());
    assert_eq!(unanswered::here().len(), 1, "the disk owes it");
    drop(writer);
    assert_eq!(block_on(asked).into_read().unwrap().len(), 0);
    assert_eq!(unanswered::here().len(), 0);
    block_on(unwatched).into_read().unwrap();
}
