//! Clears of one volume that come together: how often it is flushed and its cache dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::builder;
use diskside_io::Errno;
use diskside_nvme::wire::Sqe;
use diskside_server::config::{FunctionRule, GrantSpec, HostSpec, Mode, VolumeSpec};
use diskside_volume::media::MemoryMedium;
use diskside_volume::medium::{Access, Medium, Properties, Step};
use diskside_wire::function::{ClearSelect, FunctionCommand};

const READER: &str = "nqn.2026-11.org.example:reader";
const WRITER: &str = "nqn.2026-11.org.example:writer";
/// No test waits for longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A medium that counts what Clear does with it, and keeps Clear waiting as long as it is held.
#[derive(Debug)]
struct Counting {
    inner: MemoryMedium,
    flushed: AtomicUsize,
    dropped: AtomicUsize,
    held: Mutex<bool>,
    moved: Condvar,
}

impl Counting {
    fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.moved.notify_all();
    }

    /// How often it was flushed, and its cache dropped.
    fn counts(&self) -> (usize, usize) {
        (self.flushed.load(Ordering::SeqCst), self.dropped.load(Ordering::SeqCst))
    }
}

impl Medium for Counting {
    fn properties(&self) -> &Properties {
        self.inner.properties()
    }

    fn start(&self, access: &Access<'_>) -> Step {
        self.flushed.fetch_add(usize::from(matches!(access, Access::Flush)), Ordering::SeqCst);
        self.inner.start(access)
    }

    fn drop_cached(&self) -> Result<(), Errno> {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        drop(self.moved.wait_timeout_while(self.held.lock().unwrap(), PATIENCE, |held| *held).unwrap());
        Ok(())
    }
}

fn post(client: &mut Client, id: u64) -> u16 {
    client.queue.post(Sqe::function_clear(COMPUTE, ClearSelect::Cache, id, 0..0), None, 0).unwrap()
}

/// Each of a host's Clears flushed the volume and dropped its cache, thousands of times a second, although the host could only read it:
/// reads of other hosts took six times as long.
#[test]
fn clears_that_come_while_one_runs_share_one_more_and_those_of_readers_flush_nothing() {
    let medium = Arc::new(Counting {
        inner: MemoryMedium::new(1 << 20, false).unwrap(),
        flushed: AtomicUsize::new(0),
        dropped: AtomicUsize::new(0),
        held: Mutex::new(true),
        moved: Condvar::new(),
    });
    let mut builder = builder().medium(VolumeSpec::new("data", "counting").writable(), medium.clone());
    for (name, nqn, mode) in [("reader", READER, Mode::Read), ("writer", WRITER, Mode::ReadWrite)] {
        let functions = vec![FunctionRule::Any];
        let volumes = [("data".to_owned(), mode)].into();
        let grant = GrantSpec { to: vec![name.into()], volumes, functions, ..GrantSpec::default() };
        builder = builder.host(HostSpec { name: name.into(), nqn: nqn.into(), ..HostSpec::default() }).grant(grant);
    }
    let running = start(builder);
    let (mut reader, mut writer) = (Client::connect_as(&running, READER), Client::connect_as(&running, WRITER));
    let first = post(&mut reader, VOLUME.into());
    let began = Instant::now();
    while medium.counts().1 == 0 {
        assert!(began.elapsed() < PATIENCE, "it never began");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut others: Vec<u16> = (0..20).map(|_| post(&mut reader, VOLUME.into())).collect();
    others.push(post(&mut reader, 0));
    let of_writer = post(&mut writer, VOLUME.into());
    // They have come when the next command of their queue has.
    reader.queue.read(VOLUME, 0, 1).ok();
    writer.queue.read(VOLUME, 0, 1).ok();
    assert_eq!(medium.counts(), (0, 1), "one runs, and flushes nothing for a host that only reads");
    medium.hold(false);
    for cid in [first].into_iter().chain(others) {
        reader.queue.wait(cid).unwrap().ok();
    }
    writer.queue.wait(of_writer).unwrap().ok();
    assert_eq!(medium.counts(), (1, 2), "one more for all others, with the flush of the one that writes");
    for (id, dropped) in [(VOLUME.into(), 3), (0, 4)] {
        let again = post(&mut reader, id);
        reader.queue.wait(again).unwrap().ok();
        assert_eq!(medium.counts(), (1, dropped), "none runs: it begins one");
    }
}
