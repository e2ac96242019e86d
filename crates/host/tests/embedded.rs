//! Host and target in one process, joined in memory.

mod common;

use std::io;
use std::sync::Arc;
use std::task::Waker;

use common::{NQN, memory_target, options, pattern, read, read_now, write, write_now};
use diskside_host::{ConnectOptions, Connection, Stream, StreamRead, StreamWrite, Transport};
use diskside_io::request::{AsyncIo as _, Request, Status, block_on, block_on_all};
use diskside_nvme::Nqn;
use diskside_server::Handle;
use diskside_server::link::{LoopEnd, LoopRead, LoopWriteError};

struct Embedded(Handle);

struct End(LoopEnd);

impl Transport for Embedded {
    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "the target takes no connection");
        Ok(Box::new(End(self.0.connect_loop().ok_or_else(refused)?)))
    }
}

impl Stream for End {
    fn set_waker(&mut self, waker: Waker) {
        self.0.set_waker(waker);
    }

    fn read(&mut self) -> StreamRead {
        match self.0.read() {
            LoopRead::Bytes(bytes) => StreamRead::Bytes(bytes),
            LoopRead::Empty => StreamRead::Empty,
            LoopRead::Closed => StreamRead::Closed,
        }
    }

    fn write(&mut self, bytes: Vec<u8>) -> StreamWrite {
        match self.0.write(bytes) {
            Ok(()) => StreamWrite::Taken,
            Err(LoopWriteError::Full(bytes)) => StreamWrite::Full(bytes),
            Err(LoopWriteError::Closed(_)) => StreamWrite::Closed,
        }
    }
}

#[test]
fn an_embedded_target_serves_as_one_behind_a_socket() {
    let running = memory_target(16);
    let transport = Arc::new(Embedded(running.handle().clone()));
    for data_digest in [false, true] {
        let options = ConnectOptions { io_queues: 2, data_digest, ..options() };
        let connection = Connection::embedded(transport.clone(), Nqn::new(NQN).unwrap(), &options).unwrap();
        let volume = connection.volume(1).unwrap();
        let bytes = pattern(5 << 20, 1);
        write_now(&volume, 0, &bytes);
        assert_eq!(read_now(&volume, 0, 5 << 20), bytes);
        let writes: Vec<_> = (0..500).map(|at| volume.submit(write(at * 8192, &pattern(8192, at as u32)))).collect();
        assert!(block_on_all(writes).iter().all(|outcome| outcome.status == Status::Success));
        let reads: Vec<_> = (0..500).map(|at| volume.submit(read(at * 8192, 8192))).collect();
        for (at, outcome) in block_on_all(reads).into_iter().enumerate() {
            assert_eq!(outcome.into_read().unwrap()[..], pattern(8192, at as u32));
        }
        assert_eq!(block_on(volume.submit(Request::Flush)).status, Status::Success);
        assert_eq!(connection.address().to_string(), "the embedded target");
    }
}

/// A host in the same process has the target's memory at hand anyway.
#[test]
fn an_embedded_host_needs_no_key() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    diskside_keys::write_secret(&key, &diskside_keys::new_secret()).unwrap();
    let ann = format!("ann=nqn.2026-01.org.example:ann,key={}", key.display()).parse().unwrap();
    let volume = diskside_server::config::VolumeSpec::new("data", "mem:1MiB").writable();
    let running = common::start(common::builder().volume(volume).host(ann));
    let transport = Arc::new(Embedded(running.handle().clone()));
    let connection = Connection::embedded(transport, Nqn::new(NQN).unwrap(), &options()).unwrap();
    let volume = connection.volume(1).unwrap();
    write_now(&volume, 0, &[3; 4096]);
    // It stays when the hosts change, of which it is none.
    running.handle().set_hosts(&[]).unwrap();
    assert_eq!(read_now(&volume, 0, 4096), [3; 4096]);
}

/// It used to leave the connection with a reactor that was no more: the host waited for its connect timeout.
#[test]
fn a_target_that_has_ended_refuses() {
    let running = memory_target(1);
    let transport = Arc::new(Embedded(running.handle().clone()));
    running.handle().stop_now();
    running.wait().unwrap();
    let error = Connection::embedded(transport, Nqn::new(NQN).unwrap(), &options()).unwrap_err();
    assert!(error.to_string().contains("the embedded target"), "{error}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(cause.as_deref(), Some("the target takes no connection"), "{error}");
}
