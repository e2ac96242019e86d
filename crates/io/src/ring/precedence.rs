//! Threads that compute let a ring's thread go first, where both share a processor.
//!
//! The kernel's scheduler is fair over milliseconds, and so a thread that wakes for a command of some microseconds may
//! wait behind one that computes until that one's time slice ends. A thread that computes can look now and then whether
//! it keeps a ring's thread waiting, and sleep until that thread does.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// One ring's, for any thread, any number of clones; see [`Ring::precedence`](super::Ring::precedence).
#[derive(Clone, Debug)]
pub struct Precedence {
    shared: Arc<Shared>,
    ring: Weak<OwnedFd>,
}

#[derive(Debug)]
struct Shared {
    epoch: Instant,
    /// Where the ring's thread ran when it last came back from the kernel.
    processor: AtomicU32,
    /// Whether it has something to do.
    awake: AtomicBool,
    /// Until when it sleeps on purpose, whatever comes.
    rests_until_ns: AtomicU64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    asleep: Condvar,
}

impl Precedence {
    /// Sleeps until the ring's thread does, or for so long, if that thread wants the very processor on which the caller
    /// runs. Says whether it did.
    pub fn give_way(&self, at_most: Duration) -> bool {
        if !self.is_kept_waiting() {
            return false;
        }
        let shared = &*self.shared;
        let guard = shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        // Looked at again: it may have fallen asleep before it could see that somebody waits for this.
        let waits = self.is_kept_waiting();
        if waits {
            drop(shared.asleep.wait_timeout(guard, at_most).unwrap_or_else(PoisonError::into_inner));
        }
        shared.waiting.fetch_sub(1, Ordering::SeqCst);
        waits
    }

    /// The ring's thread cannot run where the caller does, so it waits if it has something to do there.
    fn is_kept_waiting(&self) -> bool {
        let shared = &*self.shared;
        if shared.processor.load(Ordering::Relaxed) != processor() {
            return false;
        }
        if shared.awake.load(Ordering::SeqCst) {
            return true;
        }
        shared.now_ns() >= shared.rests_until_ns.load(Ordering::Relaxed) && self.has_work()
    }

    /// Whether the kernel has something for the ring: completions, or work that its thread has to do itself.
    fn has_work(&self) -> bool {
        let Some(ring) = self.ring.upgrade() else { return false };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&*ring, PollFlags::IN)], Some(&at_once)), Ok(1..))
    }
}

impl Shared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The ring's own end.
#[derive(Debug)]
pub(super) struct Seat {
    shared: Arc<Shared>,
    /// Another name of the ring. It goes with the ring, or the ring would outlive itself.
    ring: Arc<OwnedFd>,
}

impl Seat {
    pub(super) fn new(ring: OwnedFd) -> Self {
        let shared = Shared {
            epoch: Instant::now(),
            processor: AtomicU32::new(processor()),
            awake: AtomicBool::new(true),
            rests_until_ns: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            asleep: Condvar::new(),
        };
        Self { shared: Arc::new(shared), ring: Arc::new(ring) }
    }

    pub(super) fn precedence(&self) -> Precedence {
        Precedence { shared: Arc::clone(&self.shared), ring: Arc::downgrade(&self.ring) }
    }

    /// The thread has something to do, here.
    pub(super) fn awakes(&self) {
        self.shared.processor.store(processor(), Ordering::Relaxed);
        self.shared.awake.store(true, Ordering::SeqCst);
    }

    /// The thread is about to sleep, for so long at least.
    pub(super) fn falls_asleep(&self, rest: Duration) {
        let shared = &*self.shared;
        let rest_ns = u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX);
        shared.rests_until_ns.store(shared.now_ns().saturating_add(rest_ns), Ordering::Relaxed);
        shared.awake.store(false, Ordering::SeqCst);
        if shared.waiting.load(Ordering::SeqCst) > 0 {
            // With the lock: who is about to wait has looked before this, and waits by now.
            drop(shared.lock.lock().unwrap_or_else(PoisonError::into_inner));
            shared.asleep.notify_all();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.falls_asleep(Duration::MAX);
    }
}

fn processor() -> u32 {
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use rustix::thread::{CpuSet, sched_setaffinity};

    use super::*;
    use crate::buffer::Buffer;
    use crate::ring::{Op, Ring, RingConfig};

    const LONG: Duration = Duration::from_secs(60);

    /// Keeps the calling thread, and those that it starts, on one processor.
    fn stay_here() {
        let mut here = CpuSet::new();
        here.set(rustix::thread::sched_getcpu());
        sched_setaffinity(None, &here).unwrap();
    }

    fn ring() -> Ring {
        Ring::new(&RingConfig { spin: Duration::ZERO, ..RingConfig::default() }).unwrap()
    }

    #[test]
    fn who_computes_sleeps_until_the_rings_thread_does() {
        stay_here();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut ring = ring();
            let precedence = ring.precedence().unwrap();
            ring.wait(Some(Duration::ZERO)).unwrap();
            sender.send((precedence.clone(), ring.waker())).unwrap();
            while precedence.shared.waiting.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // It sleeps until it is woken, and lets the other one run.
            while !ring.wait(None).unwrap().woken {}
        });
        let (precedence, waker) = receiver.recv().unwrap();
        let began = Instant::now();
        assert!(precedence.give_way(LONG));
        assert!(began.elapsed() < LONG, "nobody told it");
        waker.wake();
        thread.join().unwrap();
        assert!(!precedence.give_way(LONG), "the ring has ended");
    }

    #[test]
    fn a_sleeping_thread_wants_the_processor_when_there_is_something_for_it() {
        stay_here();
        let (end, start) = rustix::pipe::pipe().unwrap();
        let mut ring = ring();
        let precedence = ring.precedence().unwrap();
        let buffer = Buffer::zeroed(1);
        ring.push(1, Op::Read { file: Arc::new(end), offset: 0, buffer, range: 0..1 });
        ring.submit().unwrap();
        let seat = ring.seat.as_ref().unwrap();
        seat.falls_asleep(Duration::ZERO);
        assert!(!precedence.is_kept_waiting(), "nothing to do");
        File::from(start).write_all(b"x").unwrap();
        assert!(precedence.is_kept_waiting());
        seat.falls_asleep(LONG);
        assert!(!precedence.is_kept_waiting(), "it rests on purpose");
        seat.awakes();
        assert!(precedence.is_kept_waiting());
        seat.shared.processor.store(processor() + 1, Ordering::Relaxed);
        assert!(!precedence.is_kept_waiting(), "it runs there meanwhile");
    }

    #[test]
    fn a_thread_that_gives_way_rests_after_its_work() {
        let mut ring = ring();
        ring.give_way(true);
        let (waker, precedence) = (ring.waker(), ring.precedence().unwrap());
        ring.rest(None);
        let worked = Instant::now();
        while worked.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let waking = std::thread::spawn(move || {
            while precedence.shared.awake.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let rests_until_ns = precedence.shared.rests_until_ns.load(Ordering::Relaxed);
            waker.wake();
            (precedence, rests_until_ns)
        });
        while !ring.wait(None).unwrap().woken {}
        let woken_ns = ring.seat.as_ref().unwrap().shared.now_ns();
        let (_, rests_until_ns) = waking.join().unwrap();
        assert!(woken_ns >= rests_until_ns, "{woken_ns} {rests_until_ns}");
    }
}
