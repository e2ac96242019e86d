//! Reads and writes of a thread that waits for them, by a ring of its own.
//!
//! An access is a future: [`moved`] for an operation, [`ended`] for whatever a [`ByteFile`](crate::bytefile::ByteFile) or a medium
//! began. [`run`] polls such futures on the calling thread and sleeps on the thread's ring while none of them is ready. So what
//! needs several accesses, one after the other or some at a time, is written as a sequence, and no thread sits in a system call
//! for a disk: a future can be dropped at any time ([`run_unless`]), and the ring keeps the buffer of its operation until the
//! kernel has no use for it any more.
//!
//! The ring is made when the first operation needs it: who reads memory alone has none.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::bytefile::{Begun, Hold};
use crate::ring::{self, Op, OpId, Payload, Ring, RingConfig};
use crate::unanswered::Asked;

/// How often a thread that sleeps looks whether it is still wanted.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// How long a thread that is not wanted waits all the same: a disk that is well answers within that, and nothing is left behind.
const PATIENCE: Duration = Duration::from_millis(50);
/// Operations of the process that nobody waits for any more: with so many a thread that is not wanted waits for its own, so that a
/// disk that hangs takes no memory without end.
const LATE_MAX: usize = 64;
/// The same of one thread, whose ring is to have room for what it is asked for next.
const LATE_OF_THREAD_MAX: usize = 16;
/// How often a thread that ends looks whether the disk has answered, so that others hear that it has not.
const LATE_LOOK: Duration = Duration::from_secs(1);
/// Entries of a ring. More operations wait in it.
const ENTRIES: u32 = 16;

static LATE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: Own = Own::new();
    static LANDING: Landing = const { Landing };
}

/// Runs a future to its end.
pub fn run<F: Future>(future: F) -> F::Output {
    drive(future, None).expect("nothing stops it")
}

/// Runs a future to its end, unless that is `stopped`, which is asked some times a second; `None` then.
pub fn run_unless<F: Future>(future: F, stopped: &dyn Fn() -> bool) -> Option<F::Output> {
    drive(future, Some(stopped))
}

fn drive<F: Future>(future: F, stopped: Option<&dyn Fn() -> bool>) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = waker();
    let mut context = Context::from_waker(&waker);
    // The alarm of a future that runs this one.
    let outer = OWN.with(|own| own.alarm.take());
    let mut given_up = None;
    let output = loop {
        OWN.with(|own| own.alarm.set(None));
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            break Some(output);
        }
        if stopped.is_some_and(|stopped| stopped()) {
            let since = *given_up.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE && may_leave() {
                break None;
            }
        }
        OWN.with(|own| own.wait(stopped.map(|_| LOOK)));
    };
    OWN.with(|own| own.alarm.set(outer));
    output
}

/// Makes the ring of this thread, which has use for it, if it is not there: so an error that explains itself is not lost.
pub(crate) fn make_ring() -> io::Result<()> {
    OWN.with(Own::make_ring)
}

/// Whether operations may be left to the ring that nobody waits for any more.
pub(crate) fn may_leave() -> bool {
    LATE.load(Ordering::Relaxed) < LATE_MAX && OWN.with(|own| own.late.get()) < LATE_OF_THREAD_MAX
}

/// Whether this thread's ring has operations that nobody waits for: what they are asked of is to hear when they are over.
pub fn has_late() -> bool {
    OWN.with(|own| own.late.get() > 0)
}

/// Wakes this thread while it runs futures, or is parked.
pub(crate) fn waker() -> std::task::Waker {
    OWN.with(|own| Arc::clone(&own.sleeper).into())
}

/// Hands everything to the kernel that was begun, and takes what has ended, without sleeping.
pub fn look() {
    OWN.with(|own| own.turn(Some(Duration::ZERO)));
}

/// Has this thread wait at its end until the kernel has no use for any of its buffers. Without that they, and the files that are read,
/// are lost when the thread ends while a disk hangs for longer than a ring waits.
pub fn land_at_end() {
    // In this order: what is made later ends earlier.
    OWN.with(|_| ());
    LANDING.with(|_| ());
}

/// Waits until the kernel has no use for any buffer of this thread.
pub(crate) fn land() {
    OWN.with(|own| {
        while own.ring.borrow().as_ref().is_some_and(|ring| ring.in_flight() > 0) {
            own.turn(Some(LATE_LOOK));
        }
    });
}

/// How an access ended.
#[derive(Debug)]
pub struct Moved {
    /// Bytes moved, or why not.
    pub result: Result<u64, Errno>,
    /// The buffer again.
    pub buffer: Buffer,
}

/// Carries out a read or a write. With `by_worker` not even its beginning is this thread's: a file system may wait there already.
///
/// # Panics
/// If the operation is another one, without a buffer.
pub async fn moved(op: Op, by_worker: bool) -> Moved {
    moved_of(None, op, by_worker).await
}

/// The same of a disk that may be watched: it has answered when the operation is over, also if nobody waits for that any more.
///
/// # Panics
/// As [`moved`].
pub async fn moved_of(asked: Option<Asked>, op: Op, by_worker: bool) -> Moved {
    let mut moving = match OWN.with(|own| own.begin(op, by_worker, asked)) {
        Ok(moving) => moving,
        Err((errno, op)) => return Moved { result: Err(errno), buffer: buffer_of(op) },
    };
    poll_fn(move |_| moving.poll()).await
}

/// Waits for so long.
pub async fn sleep(time: Duration) {
    if time.is_zero() {
        return;
    }
    let until = Instant::now() + time;
    poll_fn(|_| {
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        OWN.with(|own| own.alarm.set(Some(own.alarm.get().map_or(until, |alarm| alarm.min(until)))));
        Poll::Pending
    })
    .await;
}

/// Waits until the access has ended that was begun, and gives what keeps others away from its bytes. `asks` says when its disk is asked, if
/// that is watched: not before the time that a slowed medium takes for it.
///
/// # Panics
/// If somebody else had the bytes: that is for the caller to try again.
pub async fn ended(begun: Begun, by_worker: bool, asks: impl FnOnce() -> Option<Asked>) -> (Moved, Hold) {
    match begun {
        Begun::Ring { op, after, hold, .. } => {
            sleep(after).await;
            (moved_of(asks(), op, by_worker).await, hold)
        }
        Begun::Elsewhere { future, buffer, hold } => {
            let _asked = asks();
            let outcome = future.await;
            let result = outcome.status.to_result().map(|()| outcome.transferred_bytes);
            let result = result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
            // Who failed may have lost the buffer.
            let buffer = outcome.buffer.or(buffer).unwrap_or_else(|| Buffer::zeroed(0));
            (Moved { result, buffer }, hold)
        }
        Begun::Done { result, buffer, after, hold } => {
            sleep(after).await;
            (Moved { result, buffer }, hold)
        }
        Begun::Busy { .. } => unreachable!("the caller has the bytes to itself"),
    }
}

/// A thread's ring, and what it waits for.
struct Own {
    ring: RefCell<Option<Ring>>,
    /// Operations that a future waits for, by their tokens.
    waits: RefCell<BTreeMap<u64, Wait>>,
    begun: Cell<u64>,
    /// Operations that nobody waits for any more: this thread's part of [`LATE`].
    late: Cell<usize>,
    /// What was asked with them, by their tokens.
    late_asked: RefCell<BTreeMap<u64, Asked>>,
    /// When a future that was polled wants to be polled again.
    alarm: Cell<Option<Instant>>,
    sleeper: Arc<Sleeper>,
}

/// What a future waits for.
enum Wait {
    /// An operation in flight, and the disk that is asked for it, if that is watched.
    Moving(Option<Asked>),
    Moved(Moved),
}

impl Own {
    fn new() -> Self {
        let sleeper = Sleeper { thread: std::thread::current(), woken: AtomicBool::new(false), ring: OnceLock::new() };
        let (ring, waits, begun, late, late_asked, alarm) = Default::default();
        Self { ring, waits, begun, late, late_asked, alarm, sleeper: Arc::new(sleeper) }
    }

    fn make_ring(&self) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        if ring.is_none() {
            let config = RingConfig { entries: ENTRIES, spin: Duration::ZERO, ..RingConfig::default() };
            let made = ring.insert(Ring::new_or_posix(&config)?);
            self.sleeper.ring.get_or_init(|| made.waker());
        }
        Ok(())
    }

    fn begin(&self, op: Op, by_worker: bool, asked: Option<Asked>) -> Result<Moving, (Errno, Op)> {
        if let Err(error) = self.make_ring() {
            return Err((Errno::from_io_error(&error).unwrap_or(Errno::IO), op));
        }
        let mut ring = self.ring.borrow_mut();
        let ring = ring.as_mut().expect("it was made before");
        let token = self.begun.replace(self.begun.get() + 1);
        self.waits.borrow_mut().insert(token, Wait::Moving(asked));
        let id = if by_worker { ring.push_to_worker(token, op) } else { ring.push(token, op) };
        Ok(Moving { token, id })
    }

    /// Sleeps until something happens that a future may wait for, or for so long.
    fn wait(&self, most: Option<Duration>) {
        let alarm = self.alarm.get().map(|alarm| alarm.saturating_duration_since(Instant::now()));
        let is_woken = self.sleeper.woken.swap(false, Ordering::SeqCst).then_some(Duration::ZERO);
        self.turn([most, alarm, is_woken].into_iter().flatten().min());
    }

    fn count_late(&self, change: isize) {
        self.late.set(self.late.get().wrapping_add_signed(change));
        LATE.fetch_add(change as usize, Ordering::Relaxed);
    }

    fn turn(&self, most: Option<Duration>) {
        let mut ring = self.ring.borrow_mut();
        let Some(ring) = &mut *ring else {
            return most.map_or_else(std::thread::park, std::thread::park_timeout);
        };
        // An error of the wait itself ends it early: the completions that are there are taken all the same.
        let _ = ring.wait(most);
        let mut waits = self.waits.borrow_mut();
        while let Some(done) = ring.next_completion() {
            let buffer = if let Payload::Buffer(buffer) = done.payload { buffer } else { Buffer::zeroed(0) };
            match waits.get_mut(&done.token) {
                Some(wait) => *wait = Wait::Moved(Moved { result: done.result.map(u64::from), buffer }),
                None => {
                    self.late_asked.borrow_mut().remove(&done.token);
                    self.count_late(-1);
                }
            }
        }
        if self.late.get() > 0 {
            let now = Instant::now();
            self.late_asked.borrow().values().for_each(|asked| asked.is_left(now));
        }
    }
}

impl Drop for Own {
    /// Operations that are under way when a thread ends are its ring's, which ends with it.
    fn drop(&mut self) {
        LATE.fetch_sub(self.late.get(), Ordering::Relaxed);
    }
}

/// Waits, at the end of a thread that has one, for its operations.
struct Landing;

impl Drop for Landing {
    fn drop(&mut self) {
        land();
    }
}

/// An operation in flight that a future waits for.
struct Moving {
    token: u64,
    id: OpId,
}

impl Moving {
    fn poll(&mut self) -> Poll<Moved> {
        let mut moved = None;
        OWN.with(|own| {
            let mut waits = own.waits.borrow_mut();
            if matches!(waits.get(&self.token), Some(Wait::Moved(_)))
                && let Some(Wait::Moved(ended)) = waits.remove(&self.token)
            {
                moved = Some(ended);
            }
        });
        moved.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        // At the end of a thread the ring may be gone before.
        let _ = OWN.try_with(|own| {
            let wait = own.waits.borrow_mut().remove(&self.token);
            if let Some(Wait::Moving(asked)) = wait
                && let Some(ring) = &mut *own.ring.borrow_mut()
            {
                own.count_late(1);
                if let Some(asked) = asked {
                    asked.is_left(Instant::now());
                    own.late_asked.borrow_mut().insert(self.token, asked);
                }
                ring.cancel(self.id);
            }
        });
    }
}

/// How a thread is woken: parked as long as it has no ring.
struct Sleeper {
    thread: Thread,
    /// Set before the ring is looked for: a thread that makes one meanwhile sees it.
    woken: AtomicBool,
    ring: OnceLock<ring::Waker>,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if let Some(ring) = self.ring.get() {
            ring.wake();
        }
        self.thread.unpark();
    }
}

fn buffer_of(op: Op) -> Buffer {
    match op {
        Op::Read { buffer, .. } | Op::Write { buffer, .. } => buffer,
        other => panic!("{other:?} moves no bytes"),
    }
}
