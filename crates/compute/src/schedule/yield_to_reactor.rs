//! Engines let reactors go first: a command of some microseconds shall not wait until a function has used up its time slice.
//!
//! Threads of calls look now and then whether they keep a reactor waiting that has something to do on their processor, and
//! sleep until it does. The reactor in turn sleeps as long as it worked before it looks at what came meanwhile
//! (`Ring::give_way`). So both have half of a processor that they share, reads wait for some hundred microseconds at
//! most, and whatever else runs on the machine competes with engines by the kernel's rules alone.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_engine::{ReadAt, ReadAtError};

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

/// A source of a call that is read in pieces, with the reactors' way free between them.
#[derive(Debug)]
pub(crate) struct InPieces {
    pub(crate) inner: Arc<dyn ReadAt>,
    pub(crate) way: Arc<Way>,
}

impl ReadAt for InPieces {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        for (piece, at) in buffer.chunks_mut(HOLD_BYTES).zip((offset..).step_by(HOLD_BYTES)) {
            self.way.give(Instant::now());
            self.inner.read_exact_at(at, piece)?;
        }
        Ok(())
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }
}
