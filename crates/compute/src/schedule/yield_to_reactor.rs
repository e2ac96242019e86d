//! Engines let reactors go first: a command of some microseconds must not wait until a function has used up its time
//! slice.
//!
//! Threads of calls look now and then whether they keep a reactor waiting that has something to do on their processor, and
//! sleep until it does. The reactor in turn sleeps half as long as it worked before it looks at what came meanwhile
//! (`Ring::give_way`). So the thread has a third of a processor that they share, reads wait for some hundred microseconds at
//! most, and whatever else runs on the machine competes with engines by the kernel's rules alone.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diskside_engine::{ReadAt, Turns};
use diskside_io::buffer::Part;
use diskside_io::readahead::Reading;

use crate::reactors::Reactors;
use diskside_volume::blocking::HOLD_BYTES;

/// How long a thread computes before it looks again.
const LOOK: Duration = Duration::from_micros(50);
/// How long it lets a reactor go first at a time: one that is always busy leaves a sixth of its processor.
const GIVE_WAY: Duration = Duration::from_micros(250);

/// The way of reactors.
#[derive(Debug)]
pub(crate) struct Way {
    reactors: Arc<dyn Reactors>,
}

thread_local! {
    /// When this thread looked last.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

impl Way {
    pub(crate) fn new(reactors: Arc<dyn Reactors>) -> Self {
        Self { reactors }
    }

    /// Lets a reactor go first that waits for this thread's processor, and says whether it did. Cheap enough to be called
    /// every few microseconds.
    pub(crate) fn give(&self, now: Instant) -> bool {
        if LOOKED.get().is_some_and(|looked| now - looked < LOOK) {
            return false;
        }
        let waited = self.reactors.give_way(GIVE_WAY);
        LOOKED.set(Some(if waited { Instant::now() } else { now }));
        waited
    }
}

/// A source of a call that is read in pieces, with the reactors' way free between them. Bytes that are in memory are copied in the
/// host's turn, as its functions compute: else a host with many calls has many threads that copy, and all the others wait for
/// each of them. A disk is waited for without a turn.
#[derive(Debug)]
pub(crate) struct InPieces {
    inner: Arc<dyn ReadAt>,
    way: Arc<Way>,
    turns: Arc<dyn Turns>,
    /// Pieces that are read without looking whether they are in memory: the last one that was looked for was not.
    unlooked: AtomicU32,
}

/// How many pieces follow one that was not in memory before another is looked for: who has a disk to wait for waits for few turns.
const UNLOOKED: u32 = 16;

impl InPieces {
    pub(crate) fn new(inner: Arc<dyn ReadAt>, way: Arc<Way>, turns: Arc<dyn Turns>) -> Self {
        Self { inner, way, turns, unlooked: AtomicU32::new(0) }
    }

    /// Reads pieces that are in memory, in the host's turn; how many bytes it got before one that is not. It takes no turn for a disk:
    /// other reads of it that this thread has under way would wait with it, and hold their blocks.
    fn read_kept(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let looks = |left: u32| left.checked_sub(1);
        if !self.inner.has_memory() {
            return 0;
        }
        if self.unlooked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, looks).is_ok() {
            return 0;
        }
        let (mut done, mut is_kept) = (0, true);
        self.turns.take(&mut || {
            for piece in buffer.chunks_mut(HOLD_BYTES) {
                self.turns.pause();
                is_kept = self.inner.read_now(offset + done as u64, piece);
                if !is_kept {
                    break;
                }
                done += piece.len();
            }
        });
        if !is_kept {
            self.unlooked.store(UNLOOKED, Ordering::Relaxed);
        }
        done
    }
}

impl ReadAt for InPieces {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, into: Part) -> Reading<'_> {
        Box::pin(async move {
            let Part { mut buffer, range } = into;
            let from = |at: usize| offset + (at - range.start) as u64;
            let mut at = range.start;
            loop {
                at += self.read_kept(from(at), &mut buffer[at..range.end]);
                let piece = at..range.end.min(at + HOLD_BYTES);
                if piece.is_empty() {
                    return Ok(buffer);
                }
                self.way.give(Instant::now());
                at = piece.end;
                buffer = self.inner.read(from(piece.start), Part { buffer, range: piece }).await?;
            }
        })
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use crate::schedule::compilers::Compilers;
    use crate::schedule::permits::{Gate, HostTurns, Turn};
    use crate::schedule::pool::Pool;
    use diskside_sbpf::machine::CancelToken;
    use diskside_wire::function::Class;

    #[derive(Debug)]
    struct Nobody;

    impl Reactors for Nobody {
        fn deliver(&self, _name: crate::reactors::Name, _answer: crate::call::answer::Answer) {}

        fn give_way(&self, _at_most: Duration) -> bool {
            false
        }
    }

    /// One whose mailbox says that it waits, at any time.
    #[derive(Debug, Default)]
    struct Waits(AtomicU32);

    impl Reactors for Waits {
        fn deliver(&self, _name: crate::reactors::Name, _answer: crate::call::answer::Answer) {}

        fn give_way(&self, at_most: Duration) -> bool {
            assert_eq!(at_most, GIVE_WAY);
            self.0.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    /// Half of it is in memory. It notes for each piece how many threads had a permit then.
    #[derive(Debug)]
    struct HalfKept {
        gate: Arc<Gate>,
        read: Mutex<Vec<(u64, usize)>>,
    }

    const LEN: usize = 64 * HOLD_BYTES;

    impl HalfKept {
        fn note(&self, offset: u64) {
            self.read.lock().unwrap().push((offset / HOLD_BYTES as u64, self.gate.busy()));
        }
    }

    impl ReadAt for HalfKept {
        fn len(&self) -> u64 {
            LEN as u64
        }

        fn read(&self, offset: u64, into: Part) -> Reading<'_> {
            self.note(offset);
            Box::pin(async { Ok(into.buffer) })
        }

        fn read_now(&self, offset: u64, _: &mut [u8]) -> bool {
            let is_kept = offset < LEN as u64 / 2;
            if is_kept {
                self.note(offset);
            }
            is_kept
        }

        fn has_memory(&self) -> bool {
            true
        }
    }

    /// Nothing failed when engines computed on while a reactor waited for their processor: commands of some microseconds then wait for
    /// the kernel's time slices.
    #[test]
    fn a_function_pauses_for_a_reactor_that_waits_and_looks_no_more_often_than_it_may() {
        let reactor = Arc::new(Waits::default());
        let way = Arc::new(Way::new(Arc::clone(&reactor) as Arc<dyn Reactors>));
        let now = Instant::now();
        LOOKED.set(Some(now));
        assert!(!way.give(now + LOOK / 2), "it looked just now");
        assert_eq!(reactor.0.load(Ordering::Relaxed), 0);
        assert!(way.give(now + LOOK), "the reactor waits");
        assert_eq!(reactor.0.load(Ordering::Relaxed), 1);

        let gate = Arc::new(Gate::new(1));
        let until = Instant::now() + Duration::from_secs(3600);
        let turn = Turn { host: 1, cpu_share: 100, class: Class::Normal, cancel: CancelToken::new(), until };
        let compilers = Arc::new(Compilers::new(&gate, &Pool::of_three()));
        let waited = Arc::default();
        let turns = HostTurns::of((&gate, &compilers), &way, turn, &waited);
        turns.take(&mut || {
            LOOKED.set(None);
            turns.pause();
        });
        assert_eq!(reactor.0.load(Ordering::Relaxed), 2, "a pause in the middle of a chunk is the reactor's");
        assert!(waited.within() > Duration::ZERO, "the wait is none of the function's time");
    }

    /// A host whose sixteen calls were copied from the page cache had sixteen threads more than its turns, and a call of another host,
    /// which takes a millisecond, took a hundred.
    #[test]
    fn bytes_in_memory_are_copied_in_a_turn_and_a_disk_is_waited_for_without() {
        let gate = Arc::new(Gate::new(1));
        let way = Arc::new(Way::new(Arc::new(Nobody)));
        let until = Instant::now() + Duration::from_secs(3600);
        let turn = Turn { host: 1, cpu_share: 100, class: Class::Normal, cancel: CancelToken::new(), until };
        let compilers = Arc::new(Compilers::new(&gate, &Pool::of_three()));
        let turns = HostTurns::of((&gate, &compilers), &way, turn, &Arc::default());
        let inner = Arc::new(HalfKept { gate, read: Mutex::default() });
        let reader = InPieces::new(Arc::clone(&inner) as Arc<dyn ReadAt>, way, turns);
        reader.read_exact_at(0, &mut vec![0; LEN]).unwrap();
        let want: Vec<_> = (0..64).map(|piece| (piece, usize::from(piece < 32))).collect();
        assert_eq!(*inner.read.lock().unwrap(), want);
    }
}
