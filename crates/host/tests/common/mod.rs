//! A real target on this machine, and a wire to it that can be cut.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diskside_host::{ConnectOptions, Url, Volume};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Request, block_on};
use diskside_server::config::{Size, VolumeSpec};
use diskside_server::{Running, Target, TargetBuilder};

pub const NQN: &str = "nqn.2026-11.org.example:target";

pub fn builder() -> TargetBuilder {
    Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().unwrap()])
}

/// A target that serves an image which this machine has mounted by a loop device: the kernel writes the image itself, past
/// the target, so this one keeps nothing of what it read.
pub fn serve_image(image: &std::path::Path) -> Running {
    let volume = VolumeSpec::new("data", image.to_str().expect("a path")).writable();
    start(builder().compute(|compute| compute.cache = Size::from_bytes(0)).volume(volume))
}

pub fn start(builder: TargetBuilder) -> Running {
    builder.build().unwrap().start().unwrap()
}

pub fn memory_target(mib: u64) -> Running {
    start(builder().volume(VolumeSpec::new("data", format!("mem:{mib}MiB")).writable()))
}

pub fn address(running: &Running) -> SocketAddr {
    running.handle().local_addresses()[0]
}

pub fn url_at(address: SocketAddr) -> Url {
    format!("nvme-tcp://{address}/{NQN}/1").parse().unwrap()
}

pub fn url(running: &Running) -> Url {
    url_at(address(running))
}

/// Options that make tests short.
pub fn options() -> ConnectOptions {
    ConnectOptions {
        connect_timeout: Duration::from_secs(5),
        command_timeout: Duration::from_secs(10),
        reconnect_delay_min: Duration::from_millis(10),
        reconnect_delay_max: Duration::from_millis(100),
        loss_timeout: Duration::from_secs(20),
        ..ConnectOptions::default()
    }
}

pub fn connect(running: &Running) -> Volume {
    Volume::connect(&url(running), &options()).unwrap()
}

pub fn read(offset: u64, len: usize) -> Request {
    Request::Read { offset, buffer: Buffer::zeroed(len) }
}

pub fn write(offset: u64, bytes: &[u8]) -> Request {
    Request::Write { offset, buffer: Buffer::copy_of(bytes), durable: false }
}

pub fn write_now(volume: &impl AsyncIo, offset: u64, bytes: &[u8]) {
    assert_eq!(block_on(volume.submit(write(offset, bytes))).into_result().unwrap(), bytes.len() as u64);
}

pub fn read_now(volume: &impl AsyncIo, offset: u64, len: usize) -> Vec<u8> {
    block_on(volume.submit(read(offset, len))).into_read().unwrap().into_vec()
}

pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|at| ((at ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A relay in front of a target: its connections can be cut, and new ones refused.
pub struct Wire {
    pub address: SocketAddr,
    shared: Arc<WireState>,
}

struct WireState {
    target: Mutex<SocketAddr>,
    refuse: AtomicBool,
    /// Bytes still to be passed on before everything is cut; `u64::MAX`: no limit.
    budget: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Wire {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(WireState {
            target: Mutex::new(target),
            refuse: AtomicBool::new(false),
            budget: AtomicU64::new(u64::MAX),
            streams: Mutex::default(),
        });
        let state = Arc::clone(&shared);
        // Both ends at the end of the test process; connections end with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                state.join(stream);
            }
        });
        Self { address, shared }
    }

    /// Cuts all connections now.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Cuts all connections after so many more bytes.
    pub fn cut_after(&self, bytes: u64) {
        self.shared.budget.store(bytes, Ordering::SeqCst);
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Leads new connections elsewhere.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.refuse(true);
        self.cut();
    }
}

impl WireState {
    fn join(self: &Arc<Self>, host: TcpStream) {
        if self.refuse.load(Ordering::SeqCst) {
            return;
        }
        let target = *self.target.lock().unwrap();
        let Ok(target) = TcpStream::connect(target) else { return };
        for stream in [&host, &target] {
            stream.set_nodelay(true).unwrap();
            self.streams.lock().unwrap().push(stream.try_clone().unwrap());
        }
        let pairs = [(host.try_clone().unwrap(), target.try_clone().unwrap()), (target, host)];
        for (from, to) in pairs {
            let state = Arc::clone(self);
            std::thread::spawn(move || state.relay(from, to));
        }
    }

    fn relay(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            // At once, as others take from it too; who finds too little ends it, so that one of them cuts, and once.
            let take = |left: u64| (left != u64::MAX).then(|| left.checked_sub(len as u64).unwrap_or(u64::MAX));
            if let Ok(left) = self.budget.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                && left < len as u64
            {
                let _ = to.write_all(&bytes[..left as usize]);
                return self.cut();
            }
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The input of which `bitmap` makes these bytes.
pub fn as_runs(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [1, *byte]).collect()
}
