//! The loop transport: a host and a controller in one process, joined in memory.
//!
//! The same bytes travel as over TCP, in order and bounded: a writer that is too far ahead is refused until the
//! other end has read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// One end of a connection in memory. Dropping it closes the connection; what was written before is still read.
#[derive(Debug)]
pub struct LoopEnd {
    shared: Arc<Shared>,
    side: usize,
}

/// What [`LoopEnd::read`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoopRead {
    /// These bytes came.
    Bytes(Vec<u8>),
    /// Nothing came yet; the end's waker will be woken.
    Empty,
    /// Nothing will come any more.
    Closed,
}

/// Why [`LoopEnd::write`] did not take bytes; they come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoopWriteError {
    /// The other end has not read enough; the end's waker will be woken when it has.
    Full(Vec<u8>),
    /// The other end is gone.
    Closed(Vec<u8>),
}

/// A new connection: its two ends.
pub fn loop_pair() -> (LoopEnd, LoopEnd) {
    let shared = Arc::new(Shared::default());
    (LoopEnd { shared: Arc::clone(&shared), side: 0 }, LoopEnd { shared, side: 1 })
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<[Side; 2]>,
}

/// What one end reads from.
#[derive(Debug, Default)]
struct Side {
    incoming: VecDeque<Vec<u8>>,
    incoming_bytes: usize,
    /// The writer was refused and wants to know when there is room.
    writer_waits: bool,
    gone: bool,
    waker: Option<Waker>,
}

impl LoopEnd {
    /// Sets the waker for bytes that came, for room to write again, and for the other end's going.
    pub fn set_waker(&self, waker: Waker) {
        let mut sides = self.lock();
        let ready = !sides[self.side].incoming.is_empty() || sides[1 - self.side].gone;
        sides[self.side].waker = Some(waker.clone());
        drop(sides);
        if ready {
            waker.wake();
        }
    }

    /// Hands `bytes` to the other end.
    pub fn write(&self, bytes: Vec<u8>) -> Result<(), LoopWriteError> {
        let mut sides = self.lock();
        let peer = &mut sides[1 - self.side];
        if peer.gone {
            return Err(LoopWriteError::Closed(bytes));
        }
        if peer.incoming_bytes >= LOOP_BYTES_MAX {
            peer.writer_waits = true;
            return Err(LoopWriteError::Full(bytes));
        }
        peer.incoming_bytes += bytes.len();
        peer.incoming.push_back(bytes);
        let waker = peer.waker.clone();
        drop(sides);
        wake(waker);
        Ok(())
    }

    /// Takes what the other end wrote.
    pub fn read(&self) -> LoopRead {
        let mut sides = self.lock();
        let peer_gone = sides[1 - self.side].gone;
        let side = &mut sides[self.side];
        let Some(bytes) = side.incoming.pop_front() else {
            return if peer_gone { LoopRead::Closed } else { LoopRead::Empty };
        };
        side.incoming_bytes -= bytes.len();
        let has_room = side.writer_waits && side.incoming_bytes < LOOP_BYTES_MAX;
        side.writer_waits &= !has_room;
        let waker = if has_room { sides[1 - self.side].waker.clone() } else { None };
        drop(sides);
        wake(waker);
        LoopRead::Bytes(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, [Side; 2]> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LoopEnd {
    fn drop(&mut self) {
        let mut sides = self.lock();
        sides[self.side] = Side { gone: true, ..Side::default() };
        let waker = sides[1 - self.side].waker.clone();
        drop(sides);
        wake(waker);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Bytes in one direction beyond which a writer is refused. One write may reach past it.
const LOOP_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn bytes_keep_their_order_and_wake_the_reader() {
        let (host, target) = loop_pair();
        let count = Arc::new(Count::default());
        target.set_waker(Arc::clone(&count).into());
        host.write(vec![1, 2]).unwrap();
        host.write(vec![3]).unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(target.read(), LoopRead::Bytes(vec![1, 2]));
        assert_eq!(target.read(), LoopRead::Bytes(vec![3]));
        assert_eq!(target.read(), LoopRead::Empty);
    }

    #[test]
    fn a_writer_too_far_ahead_is_refused_and_woken_when_there_is_room() {
        let (host, target) = loop_pair();
        let count = Arc::new(Count::default());
        host.set_waker(Arc::clone(&count).into());
        host.write(vec![0; LOOP_BYTES_MAX]).unwrap();
        assert_eq!(host.write(vec![7]), Err(LoopWriteError::Full(vec![7])));
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        assert!(matches!(target.read(), LoopRead::Bytes(_)));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        host.write(vec![7]).unwrap();
    }

    #[test]
    fn what_was_written_before_the_end_is_still_read() {
        let (host, target) = loop_pair();
        host.write(vec![9]).unwrap();
        drop(host);
        assert_eq!(target.read(), LoopRead::Bytes(vec![9]));
        assert_eq!(target.read(), LoopRead::Closed);
        assert_eq!(target.write(vec![1]), Err(LoopWriteError::Closed(vec![1])));
    }
}
