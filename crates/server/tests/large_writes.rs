//! Large writes are received right into the buffer that the medium writes from, however their bytes come, and
//! whatever becomes of their host meanwhile.

mod common;

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Controller, HOST, Queue, builder, pattern, start, tcp};
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::{Size, VolumeSpec};
use diskside_server::stats::ReactorStats;

const BLOCK: usize = 4096;

/// A target with a volume in memory (1) and one in a file (2), of 16 MiB each.
fn target() -> (Running, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = VolumeSpec { size: Some(Size::from_mib(16)), ..volume("file", &directory) };
    (start(builder().volume(VolumeSpec::new("memory", "mem:16MiB").writable()).volume(file)), directory)
}

fn volume(name: &str, directory: &tempfile::TempDir) -> VolumeSpec {
    VolumeSpec::new(name, directory.path().join(name).to_str().unwrap()).writable()
}

fn stats(running: &Running) -> ReactorStats {
    running.handle().stats().reactors[0]
}

/// Waits for what the target does soon.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A queue of a controller over a wire of the test's own.
fn queue_over(running: &Running, controller: &Controller, wire: impl Read + Write + Send + 'static) -> Queue {
    let mut queue = Queue::negotiate(Box::new(wire)).unwrap();
    queue.connect(running.handle().nqn(), HOST, 1, 32, controller.id, 0).unwrap();
    queue
}

#[test]
fn data_is_placed_and_nothing_is_left_of_it() {
    let (running, _directory) = target();
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 32);
    for nsid in [1, 2] {
        let data: Vec<Vec<u8>> = (0..8).map(|seed| pattern((64 + seed) * BLOCK, seed as u64)).collect();
        let before = stats(&running).placed_bytes;
        let posted: Vec<(u16, u16)> = (0..8)
            .map(|at| {
                let lba = at as u64 * 80;
                let write = Sqe::write(nsid, lba, (64 + at) as u32);
                // A read in between comes while headers are received alone.
                let read = Sqe::read(nsid, 1000 + lba, 2);
                (queue.post(write, Some(&data[at]), 0).unwrap(), queue.post(read, None, 2 * BLOCK).unwrap())
            })
            .collect();
        for (write, read) in posted {
            queue.wait(write).unwrap().ok();
            assert_eq!(queue.wait(read).unwrap().ok(), vec![0; 2 * BLOCK]);
        }
        for (at, data) in data.iter().enumerate() {
            assert_eq!(&queue.read(nsid, at as u64 * 80, 64 + at as u32).ok(), data, "write {at} of volume {nsid}");
        }
        // How much depends on how the bytes come, but most of it has always come behind its header.
        let placed = stats(&running).placed_bytes - before;
        let written: usize = data.iter().map(Vec::len).sum();
        assert!(placed as usize > written / 2, "{placed} of {written} bytes");
    }
    eventually("all memory came back", || stats(&running).memory_in_flight_bytes == 0);
    // Small writes come as before.
    let before = stats(&running).placed_bytes;
    queue.write(2, 9, &pattern(2 * BLOCK, 77)).ok();
    assert_eq!(queue.read(2, 9, 2).ok(), pattern(2 * BLOCK, 77));
    assert_eq!(stats(&running).placed_bytes, before);
}

/// Writes in pieces of changing length.
struct Pieces {
    stream: TcpStream,
    lens: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.lens.next().unwrap().min(bytes.len());
        self.stream.write(&bytes[..len])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn bytes_may_come_in_any_pieces() {
    let (running, _directory) = target();
    for lens in [vec![1, 4095, 70_000], vec![23, 24, 25], vec![4097, 1, 1], vec![200_000], vec![8, 16, 4072, 4096]] {
        let controller = Controller::connect(&running);
        let wire =
            Pieces { stream: tcp(running.handle().local_addresses()[0]), lens: lens.clone().into_iter().cycle() };
        let mut queue = queue_over(&running, &controller, wire);
        for nsid in [1, 2] {
            let data = [pattern(40 * BLOCK, 1), pattern(9 * BLOCK, 2), pattern(33 * BLOCK, 3)];
            let posted: Vec<u16> = data
                .iter()
                .enumerate()
                .map(|(at, data)| {
                    let write = Sqe::write(nsid, at as u64 * 50, (data.len() / BLOCK) as u32);
                    queue.post(write, Some(data), 0).unwrap()
                })
                .collect();
            posted.into_iter().for_each(|cid| drop(queue.wait(cid).unwrap().ok()));
            for (at, data) in data.iter().enumerate() {
                let read = queue.read(nsid, at as u64 * 50, (data.len() / BLOCK) as u32).ok();
                assert!(read == *data, "write {at} of volume {nsid} in pieces of {lens:?}");
            }
        }
    }
    eventually("all memory came back", || stats(&running).memory_in_flight_bytes == 0);
}

/// Dies after so many bytes.
struct Mortal {
    stream: TcpStream,
    left: usize,
}

impl Read for Mortal {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Mortal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let len = self.left.min(bytes.len());
        self.left -= len;
        self.stream.write(&bytes[..len])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_host_that_dies_in_the_middle_of_its_data_leaves_nothing_behind() {
    let (running, _directory) = target();
    // ICReq and Connect take 128 and 1096 bytes.
    for left in [72, 144, 160, 168, 200, 4200, 5000, 40_000, 100_000, 300_000] {
        let controller = Controller::connect(&running);
        let stream = tcp(running.handle().local_addresses()[0]);
        let mut queue = queue_over(&running, &controller, Mortal { stream, left: 128 + 1096 + left });
        let data = pattern(64 * BLOCK, 5);
        let posted: Vec<u16> =
            (0..2).filter_map(|at| queue.post(Sqe::write(2, at * 64, 64), Some(&data), 0).ok()).collect();
        let ended = posted.into_iter().find_map(|cid| queue.wait(cid).err());
        assert!(ended.is_some() || left < 144, "it dies before {left} bytes are sent");
        drop((queue, controller));
        let gone = || stats(&running).connections == 0 && stats(&running).memory_in_flight_bytes == 0;
        eventually("the connections are gone, and their memory is back", gone);
    }
}

#[test]
fn a_reactor_that_serves_files_registers_memory_and_one_that_does_not_takes_none() {
    let (running, _directory) = target();
    let controller = Controller::connect(&running);
    controller.io_queue(1, 4).read(2, 0, 1).ok();
    let registered = stats(&running).memory_registered_bytes;
    // Where RLIMIT_MEMLOCK forbids it, it does without.
    assert!(registered == 0 || registered == 4 << 20, "{registered}");
    let running = common::memory_target(1);
    let controller = Controller::connect(&running);
    controller.io_queue(1, 4).read(1, 0, 1).ok();
    assert_eq!(stats(&running).memory_registered_bytes, 0);
}
