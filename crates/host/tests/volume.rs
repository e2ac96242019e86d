//! A volume of a real target does what a file does.

mod common;

use std::time::Duration;

use common::{builder, connect, memory_target, options, pattern, read, read_now, start, url, write, write_now};
use diskside_host::{
    Command, CommandData, CommandFailure, ConnectOptions, Connection, HostError, InlineVolume, Url, Volume, discover,
};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Cause, Request, Status, block_on, block_on_all, block_on_any};
use diskside_nvme::host::CommandError;
use diskside_nvme::wire::{Sqe, admin_opcode};
use diskside_server::config::VolumeSpec;

#[test]
fn what_is_written_is_read_whatever_its_length() {
    let running = memory_target(32);
    for digests in [false, true] {
        for io_queues in [1, 3] {
            let options = ConnectOptions { io_queues, header_digest: digests, data_digest: digests, ..options() };
            let volume = Volume::connect(&url(&running), &options).unwrap();
            assert_eq!((volume.block_len(), volume.len_bytes().unwrap()), (4096, 32 << 20));
            let mut offset = 0;
            // One block, more than a capsule carries, more than one command carries.
            for (seed, blocks) in [1, 2, 3, 33, 300, 1500].into_iter().enumerate() {
                let bytes = pattern(blocks * 4096, seed as u32);
                write_now(&volume, offset, &bytes);
                assert_eq!(read_now(&volume, offset, bytes.len()), bytes, "{blocks} blocks, {options:?}");
                offset += bytes.len() as u64;
            }
            assert_eq!(block_on(volume.submit(Request::Flush)).status, Status::Success);
        }
    }
}

/// A run whose deadline had passed did not end as long as its disk hung: the connection waited for reads that nobody waited for.
#[test]
fn a_connection_ends_without_reads_that_nobody_waits_for() {
    // A block takes a second.
    let running = start(builder().volume("slow=mem:1MiB,rw,rate=4KiB".parse::<VolumeSpec>().unwrap()));
    let volume = connect(&running);
    write_now(&volume, 0, &pattern(4096, 1));
    let wanted = volume.submit(read(0, 4096));
    let unwanted: Vec<_> = (0..64).map(|_| volume.submit(read(0, 4096))).collect();
    drop(unwanted);
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(volume);
        ended.send(())
    });
    assert!(has_ended.recv_timeout(Duration::from_secs(30)).is_ok(), "it waits for all of them");
    assert_eq!(block_on(wanted).into_read().unwrap()[..], pattern(4096, 1), "one that somebody waits for is finished");
}

#[test]
fn many_threads_share_a_volume() {
    let running = memory_target(64);
    let options = ConnectOptions { io_queues: 2, queue_depth: 8, staging_max: 16, ..options() };
    let volume = Volume::connect(&url(&running), &options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let volume = &volume;
            scope.spawn(move || {
                let at = |step: u64| (step * 4 + thread) * 8192;
                let writes: Vec<_> =
                    (0..200).map(|step| volume.submit(write(at(step), &pattern(8192, step as u32)))).collect();
                assert!(block_on_all(writes).into_iter().all(|outcome| outcome.into_result().unwrap() == 8192));
                let reads: Vec<_> = (0..200).map(|step| volume.submit(read(at(step), 8192))).collect();
                for (step, outcome) in block_on_all(reads).into_iter().enumerate() {
                    assert_eq!(outcome.into_read().unwrap()[..], pattern(8192, step as u32));
                }
            });
        }
    });
    let stats = volume.connection().stats();
    assert_eq!((stats.commands, stats.read_bytes, stats.written_bytes), (1600, 800 * 8192, 800 * 8192));
    assert_eq!((stats.associations, stats.losses, stats.retries), (1, 0, 0));
}

#[test]
fn futures_work_in_any_executor_and_complete_in_any_order() {
    let running = memory_target(16);
    let volume = connect(&running);
    let requests: Vec<_> = (0..32).map(|at| volume.submit(read(at * 4096, 4096))).collect();
    let first = block_on_any(&requests);
    assert!(requests[first].is_done());
    drop(requests);
    let mut future = std::pin::pin!(async {
        let outcome = volume.submit(write(0, &[7; 4096])).await;
        (outcome.status, volume.submit(read(0, 4096)).await.into_read().unwrap()[0])
    });
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let answer = loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => break answer,
            std::task::Poll::Pending => std::thread::park_timeout(Duration::from_secs(10)),
        }
    };
    assert_eq!(answer, (Status::Success, 7));
}

#[test]
fn an_inline_volume_does_the_same_in_its_owners_thread() {
    let running = memory_target(16);
    let mut inline = InlineVolume::connect(&url(&running), &options()).unwrap();
    let requests: Vec<_> = (0..300).map(|at| inline.submit(write(at * 4096, &pattern(4096, at as u32)))).collect();
    for request in requests {
        assert_eq!(inline.block_on(request).status, Status::Success);
    }
    let request = inline.submit(read(7 * 4096, 8192));
    let bytes = inline.block_on(request).into_read().unwrap();
    assert_eq!((&bytes[..4096], &bytes[4096..]), (&pattern(4096, 7)[..], &pattern(4096, 8)[..]));
    let request = inline.submit(read(1, 4096));
    assert!(matches!(inline.block_on(request).status, Status::Other(Cause::Refused(_))));

    // Other threads may use it as well, as long as its owner turns it.
    let other = inline.volume().clone();
    let served = std::thread::spawn(move || read_now(&other, 7 * 4096, 4096));
    while !served.is_finished() {
        inline.wait(Some(Duration::from_millis(1)));
    }
    assert_eq!(served.join().unwrap(), pattern(4096, 7));

    let last = inline.submit(write(0, &[5; 4096]));
    drop(inline);
    assert_eq!(last.status(), Status::Success, "what was submitted is done");
    let nowhere = format!("{}7", url(&running)).parse().unwrap();
    assert!(matches!(InlineVolume::connect(&nowhere, &options()), Err(HostError::NoNamespace { nsid: 17, .. })));
}

#[test]
fn zeroes_and_holes_read_as_zeroes() {
    let running = memory_target(16);
    let volume = connect(&running);
    write_now(&volume, 0, &[1; 10 << 20]);
    let outcomes = block_on_all([
        volume.submit(Request::WriteZeroes { offset: 4096, len: 4096 }),
        volume.submit(Request::Deallocate { offset: 1 << 20, len: 5 << 20 }),
    ]);
    assert!(outcomes.iter().all(|outcome| outcome.status == Status::Success), "{outcomes:?}");
    let bytes = read_now(&volume, 0, 10 << 20);
    let zeroed = |at: usize| (4096..8192).contains(&at) || (1 << 20..6 << 20).contains(&at);
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == u8::from(!zeroed(at))));
}

#[test]
fn the_end_of_the_volume_ends_reads_and_refuses_writes() {
    let running = memory_target(1);
    let volume = connect(&running);
    let end = 1 << 20;
    assert_eq!(block_on(volume.submit(read(end - 4096, 12_288))).transferred_bytes, 4096);
    for offset in [end, 1 << 40, u64::MAX - 4095] {
        let past = block_on(volume.submit(read(offset, 4096)));
        assert_eq!((past.status, past.transferred_bytes), (Status::Success, 0), "{offset}");
        let refused = block_on(volume.submit(write(offset, &[0; 4096])));
        assert!(matches!(refused.status, Status::OutOfSpace(Cause::Refused(_))), "{:?}", refused.status);
        assert_eq!(refused.buffer.unwrap().len(), 4096);
    }
    assert_eq!(block_on(volume.submit(read(0, 0))).status, Status::Success);
    assert_eq!(block_on(volume.submit(write(0, &[]))).status, Status::Success);
    for askew in [read(1, 4096), read(0, 100), write(512, &[0; 4096])] {
        let outcome = block_on(volume.submit(askew));
        assert!(outcome.status.to_string().contains("multiples of the volume's block length"), "{}", outcome.status);
    }
}

#[test]
fn every_status_keeps_its_name() {
    let running = start(builder().volume(VolumeSpec::new("data", "mem:1MiB")));
    let volume = connect(&running);
    assert!(volume.is_read_only());
    let refused = block_on(volume.submit(write(0, &[0; 4096])));
    assert!(matches!(refused.status, Status::AccessDenied(_)), "{:?}", refused.status);
    assert!(refused.status.to_string().contains("serve it with `,rw`"), "{}", refused.status);

    let send = |sqe, data| block_on(volume.command(Command { sqe, data, timeout: None, repeatable: true }));
    let outcome = send(Sqe::write(1, 0, 1), CommandData::Send(Buffer::zeroed(4096)));
    let Err(CommandFailure::Command(CommandError::Status { status, .. })) = outcome.result else {
        panic!("{outcome:?}")
    };
    assert!(status.name().is_some_and(|name| name.contains("Write")), "{status}");
    assert_eq!(outcome.buffer.unwrap().len(), 4096);

    let outcome = send(Sqe::read(1, 1 << 30, 1), CommandData::Receive(Buffer::zeroed(4096)));
    assert!(outcome.result.unwrap_err().to_string().starts_with("LBA Out of Range"));
    let outcome = send(Sqe::new(0xee, 1), CommandData::None);
    assert!(outcome.result.unwrap_err().to_string().starts_with("Invalid Command Opcode"));
    assert!(send(Sqe::verify(1, 0, 8), CommandData::None).result.is_ok());
    let outcome = send(Sqe::compare(1, 0, 1), CommandData::Send(Buffer::copy_of(&[1; 4096])));
    assert!(outcome.result.unwrap_err().to_string().starts_with("Compare Failure"));
    assert_eq!(volume.connection().stats().command_errors, 4);
}

#[test]
fn admin_commands_bring_their_data() {
    let running = memory_target(1);
    let volume = connect(&running);
    let identify = Sqe::new(admin_opcode::IDENTIFY, 0).with_dword(10, 1);
    let data = CommandData::Receive(Buffer::zeroed(4096));
    let outcome =
        block_on(volume.connection().command(Command { sqe: identify, data, timeout: None, repeatable: true }));
    assert!(outcome.result.is_ok());
    let serial = volume.connection().controller().serial;
    assert_eq!(outcome.buffer.unwrap()[4..4 + serial.len()], *serial.as_bytes());
}

#[test]
fn discovery_lists_the_subsystem() {
    let running = memory_target(1);
    let target: Url = format!("nvme-tcp://{}", common::address(&running)).parse().unwrap();
    let found = discover(&target, &options()).unwrap();
    let ours: Vec<_> = found.iter().filter(|entry| entry.nqn.as_str() == common::NQN).collect();
    assert_eq!(ours.len(), 1, "{found:?}");
    assert_eq!(ours[0].service, common::address(&running).port().to_string());
}

#[test]
fn what_is_not_there_is_said_in_words() {
    let running = memory_target(1);
    let fails = |text: String| -> String {
        let url: Url = text.parse().unwrap();
        Volume::connect(&url, &options()).unwrap_err().to_string()
    };
    let address = common::address(&running);
    let error = fails(format!("nvme-tcp://{address}/{}/7", common::NQN));
    assert_eq!(error, "the subsystem has no namespace 7; it has 1, 1023, 1024");
    let error = fails(format!("nvme-tcp://{address}/nqn.2026-11.org.example:other/1"));
    assert!(error.contains("Connect Invalid Parameters"), "{error}");
    assert!(fails(format!("nvme-tcp://{address}/{}", common::NQN)).contains("the URL names no namespace"));
    assert!(fails(format!("nvme-tcp://{address}")).contains("the URL names no namespace"));
    let error = Connection::connect(&format!("nvme-tcp://{address}").parse().unwrap(), &options()).unwrap_err();
    assert!(error.to_string().contains("diskside discover"), "{error}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = fails(format!("nvme-tcp://{free}/{}/1", common::NQN));
    assert!(error.contains(&format!("cannot connect to {free}")) && error.contains("refused"), "{error}");
    let error = fails(format!("nvme-tcp://no-such-host.invalid/{}/1", common::NQN));
    assert!(error.contains("cannot find the host \"no-such-host.invalid\""), "{error}");
}

#[test]
fn a_peer_that_says_nothing_or_nonsense_is_given_up() {
    use std::io::Write as _;
    for nonsense in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(nonsense).unwrap();
            std::thread::sleep(Duration::from_millis(500));
        });
        let options = ConnectOptions { connect_timeout: Duration::from_millis(200), ..options() };
        let error = Volume::connect(&common::url_at(address), &options).unwrap_err();
        assert!(matches!(error, HostError::Ended { .. } | HostError::TooSlow { .. }), "{error}");
        peer.join().unwrap();
    }
}

#[test]
fn what_was_submitted_is_done_though_everyone_left() {
    let running = memory_target(16);
    let volume = connect(&running);
    let futures: Vec<_> = (0..500).map(|at| volume.submit(write(at * 4096, &[9; 4096]))).collect();
    drop(volume);
    assert!(futures.iter().all(|future| future.status() == Status::Success));
    assert_eq!(read_now(&connect(&running), 499 * 4096, 4096), [9; 4096]);
}
