//! Local files served by threads of their own, for requests from any thread.
//!
//! [`Instances`] are a number of rings (io_urings, where there are), each with one thread, or with two of which one submits
//! and the other completes (DAPHNE D6.3, part 2). A request goes to the instances in turn: into the
//! staging queue of one (first in, first out, any number of producers), from there into its ring as
//! long as the cap on requests in flight allows, so that neither queue of the ring ever overflows.
//! Transfers that come back short are continued where they stopped; the end of a file is a success
//! with fewer bytes. The threads sleep when there is nothing to do.
//!
//! ```
//! # use diskside_io::{buffer::Buffer, instance::{InstanceConfig, Instances}, request::{AsyncIo, Request, block_on}};
//! # fn main() -> std::io::Result<()> {
//! let instances = Instances::start(&InstanceConfig::default())?;
//! let file = instances.file(std::fs::File::open("/proc/self/exe")?)?;
//! let future = file.submit(Request::Read { offset: 0, buffer: Buffer::zeroed(4096) });
//! let bytes = block_on(future).into_read()?;
//! assert_eq!(&bytes[..4], b"\x7fELF");
//! # Ok(()) }
//! ```

mod active;
mod one_thread;
mod two_threads;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags};

use crate::request::{AsyncIo, Request, RequestFuture, Status, promise};
use crate::ring::RingConfig;
use crate::unanswered;
use active::{FileState, Staged};

/// How [`Instances`] are set up.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// How many rings, each with threads of its own; at least 1.
    pub instances: usize,
    /// Threads of one instance.
    pub threads: Threads,
    /// Requests of one instance that may be in flight at once; at least 1.
    pub in_flight_max: u32,
    /// Requests that may wait in the staging queue of one instance; `submit` sleeps while it is full.
    pub staging_max: usize,
    /// How long a thread polls at most before it sleeps (one thread an instance only).
    pub spin: Duration,
    /// Let a kernel thread submit, which sleeps after this long without work (`IORING_SETUP_SQPOLL`).
    pub sq_poll: Option<Duration>,
    /// Poll the device for completions (`IORING_SETUP_IOPOLL`): only for files opened with
    /// `O_DIRECT` on devices that have poll queues; elsewhere requests fail with `EOPNOTSUPP`.
    pub io_poll: bool,
}

/// Threads of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One submits and completes: less to hand over.
    #[default]
    One,
    /// One submits, the other completes: a slow submission (buffered, in the page cache) delays no completion.
    Two,
}

/// A number of rings with their threads. Clones refer to the same ones; the threads end, after
/// all requests, when the last clone and the last [`LocalFile`] are gone.
#[derive(Clone, Debug)]
pub struct Instances {
    shared: Arc<Shared>,
}

/// A file whose requests are served by [`Instances`].
#[derive(Clone, Debug)]
pub struct LocalFile {
    state: Arc<FileState>,
    instances: Instances,
    is_watched: bool,
}

struct Shared {
    instances: Vec<Instance>,
    next: AtomicUsize,
}

/// One instance as its producers see it.
struct Instance {
    /// `None` only while it is being dropped.
    staging: Option<SyncSender<Staged>>,
    bell: Bell,
    threads: Vec<JoinHandle<()>>,
}

/// Makes an instance's thread look into its staging queue.
enum Bell {
    Ring(crate::ring::Waker),
    Thread(std::thread::Thread),
    /// The thread sleeps on the queue itself.
    Queue,
}

impl Default for InstanceConfig {
    fn default() -> Self {
        Self {
            instances: 1,
            threads: Threads::One,
            in_flight_max: 128,
            staging_max: 4096,
            spin: Duration::from_micros(100),
            sq_poll: None,
            io_poll: false,
        }
    }
}

/// Most instances of one [`Instances`]: each has one or two threads.
pub const INSTANCES_MAX: usize = 256;
/// Most requests of an instance that may be in flight: as many as one ring takes, less the read that listens for
/// wake-ups.
pub const IN_FLIGHT_MAX: u32 = 32_767;
/// Longest staging queue of an instance; it is made in advance.
pub const STAGING_MAX: usize = 1 << 20;

impl InstanceConfig {
    /// Whether there can be such instances.
    pub fn check(&self) -> io::Result<()> {
        let wrong = |name: &str, given: usize, most: usize| {
            let text = format!("{name} is {given}, and must be from 1 to {most}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        };
        if !(1..=INSTANCES_MAX).contains(&self.instances) {
            return wrong("instances", self.instances, INSTANCES_MAX);
        }
        if !(1..=IN_FLIGHT_MAX).contains(&self.in_flight_max) {
            return wrong("in_flight_max", self.in_flight_max as usize, IN_FLIGHT_MAX as usize);
        }
        if !(1..=STAGING_MAX).contains(&self.staging_max) {
            return wrong("staging_max", self.staging_max, STAGING_MAX);
        }
        Ok(())
    }

    fn ring(&self) -> RingConfig {
        // One entry more than may be in flight: the read that listens for wake-ups.
        let entries = self.in_flight_max.saturating_add(1);
        RingConfig { entries, spin: self.spin, sq_poll: self.sq_poll, io_poll: self.io_poll }
    }
}

impl Instances {
    /// Makes the rings and starts their threads.
    pub fn start(config: &InstanceConfig) -> io::Result<Self> {
        config.check()?;
        let instances = (0..config.instances).map(|index| Instance::start(index, config)).collect::<io::Result<_>>()?;
        Ok(Self { shared: Arc::new(Shared { instances, next: AtomicUsize::new(0) }) })
    }

    /// Serves a file, block device or whatever else can be read and written by position.
    pub fn file(&self, file: impl Into<OwnedFd>) -> io::Result<LocalFile> {
        let fd = file.into();
        let direct = rustix::fs::fcntl_getfl(&fd)?.contains(OFlags::DIRECT);
        let state = Arc::new(FileState { fd: Arc::new(fd), direct });
        Ok(LocalFile { state, instances: self.clone(), is_watched: false })
    }
}

impl LocalFile {
    /// The descriptor.
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.state.fd
    }

    /// The same, whose requests count among those that disks of this machine have not answered
    /// ([`here`](crate::unanswered::here)). That costs each a lock.
    #[must_use]
    pub fn watched(self) -> Self {
        Self { is_watched: true, ..self }
    }

    /// Whether the file was opened with `O_DIRECT`.
    pub fn is_direct(&self) -> bool {
        self.state.direct
    }
}

impl AsyncIo for LocalFile {
    fn submit(&self, request: Request) -> RequestFuture {
        let (promise, future) = promise();
        let shared = &self.instances.shared;
        let turn = shared.next.fetch_add(1, Ordering::Relaxed) % shared.instances.len();
        let asked = self.is_watched.then(|| unanswered::here().ask(Instant::now()));
        shared.instances[turn].stage(Staged { file: Arc::clone(&self.state), request, promise, asked });
        future
    }

    fn len_bytes(&self) -> io::Result<u64> {
        file_len_bytes(&self.state.fd)
    }

    fn alignment_bytes(&self) -> u32 {
        if self.state.direct { crate::buffer::ALIGNMENT_BYTES as u32 } else { 1 }
    }
}

/// The length of a file or block device.
pub(crate) fn file_len_bytes(fd: impl AsFd) -> io::Result<u64> {
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(u64::try_from(stat.st_size).unwrap_or(0));
    }
    // Other holders of the descriptor share the position; we and our callers never use it.
    Ok(rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0))?)
}

impl Instance {
    fn start(index: usize, config: &InstanceConfig) -> io::Result<Self> {
        let (staging, staged) = sync_channel(config.staging_max);
        let (bell, threads) = match config.threads {
            Threads::One => one_thread::start(index, config, staged)?,
            Threads::Two => two_threads::start(index, config, staged)?,
        };
        Ok(Self { staging: Some(staging), bell, threads })
    }

    fn stage(&self, staged: Staged) {
        let staging = self.staging.as_ref().expect("present until the last user is gone");
        match staging.send(staged) {
            Ok(()) => self.bell.ring(),
            Err(refused) => refused.0.refuse(Status::lost("the I/O instance's thread has ended")),
        }
    }
}

impl Bell {
    fn ring(&self) {
        match self {
            Self::Ring(waker) => waker.wake(),
            Self::Thread(thread) => thread.unpark(),
            Self::Queue => {}
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Without producers the threads finish what is staged and in flight, then end.
        self.staging = None;
        self.bell.ring();
        for thread in self.threads.drain(..) {
            // A panic in it is a bug that its own message reports; its promises already said "lost".
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("instances", &self.instances.len()).finish()
    }
}
