//! Changes to blocks that several tasks want at once: one of them reads the block, makes all changes that wait for it, and
//! writes it.
//!
//! A few keys get most updates. If each of them were read and written after the other, those who come last would wait for as
//! many round trips as there are updates of the block before them.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::error::KvError;
use crate::format::{VALUE_LEN, Value};

/// The blocks that are to be changed, by their first byte.
#[derive(Default)]
pub(crate) struct Changes(RefCell<HashMap<u64, Block>>);

#[derive(Default)]
struct Block {
    /// Somebody reads and writes it.
    is_written: bool,
    waiting: VecDeque<Rc<Change>>,
}

struct Change {
    /// What has to be read and written for it.
    window: Range<u64>,
    /// Where in that.
    at: usize,
    value: Value,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    waker: Option<Waker>,
    ended: Option<Result<(), (io::ErrorKind, String)>>,
}

/// What comes of a change.
pub(crate) enum Turn<'a> {
    /// It is the caller's to write, with all that wait.
    Write(Writing<'a>),
    /// Somebody else wrote it, or failed to.
    Ended(Result<(), KvError>),
}

/// Changes of one block that are being written.
pub(crate) struct Writing<'a> {
    changes: &'a Changes,
    block: u64,
    taken: Vec<Rc<Change>>,
}

/// A change that waits; it does not, once nobody wants it any more.
struct Waits<'a>(&'a Changes, Rc<Change>);

impl Changes {
    /// Waits until a value was written at `at` of the window, or until the caller is to write it.
    pub(crate) async fn turn(&self, window: &Range<u64>, at: usize, value: &Value) -> Turn<'_> {
        let change = Rc::new(Change { window: window.clone(), at, value: *value, state: RefCell::default() });
        let block = window.start;
        self.0.borrow_mut().entry(block).or_default().waiting.push_back(Rc::clone(&change));
        let waits = Waits(self, change);
        poll_fn(|context| {
            let change = &waits.1;
            let mut state = change.state.borrow_mut();
            if let Some(ended) = state.ended.take() {
                let failed =
                    |(kind, why)| KvError::Io { what: "writing", offset: block, source: io::Error::new(kind, why) };
                return Poll::Ready(Turn::Ended(ended.map_err(failed)));
            }
            let mut blocks = self.0.borrow_mut();
            let of_block = blocks.get_mut(&block).expect("it is there as long as a change waits");
            if of_block.is_written {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            of_block.is_written = true;
            let all = of_block.waiting.drain(..);
            let (taken, left): (Vec<_>, Vec<_>) = all.partition(|other| other.window == change.window);
            of_block.waiting = left.into();
            Poll::Ready(Turn::Write(Writing { changes: self, block, taken }))
        })
        .await
    }
}

impl Writing<'_> {
    /// Makes the changes, in the order in which they were asked for.
    pub(crate) fn apply(&self, window: &mut [u8]) {
        for change in &self.taken {
            window[change.at..change.at + VALUE_LEN].copy_from_slice(&change.value);
        }
    }

    /// Tells all whose changes these are.
    pub(crate) fn end<T>(mut self, written: &Result<T, KvError>) {
        for change in self.taken.drain(..) {
            let mut state = change.state.borrow_mut();
            state.ended = Some(match written {
                Ok(_) => Ok(()),
                Err(KvError::Io { source, .. }) => Err((source.kind(), source.to_string())),
                Err(other) => Err((io::ErrorKind::Other, other.to_string())),
            });
            state.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut blocks = self.changes.0.borrow_mut();
        let Some(block) = blocks.get_mut(&self.block) else { return };
        block.is_written = false;
        // A caller that gave up before it was written leaves the others' changes to the next, and its own to nobody.
        for change in self.taken.drain(..).rev().filter(|change| Rc::strong_count(change) > 1) {
            block.waiting.push_front(change);
        }
        match block.waiting.front() {
            Some(next) => next.state.borrow_mut().waker.take().into_iter().for_each(Waker::wake),
            None => drop(blocks.remove(&self.block)),
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let Self(changes, change) = self;
        let mut blocks = changes.0.borrow_mut();
        if let Some(block) = blocks.get_mut(&change.window.start) {
            block.waiting.retain(|other| !Rc::ptr_eq(other, change));
            match block.waiting.front() {
                // It may have been this one's turn.
                Some(next) if !block.is_written => {
                    next.state.borrow_mut().waker.take().into_iter().for_each(Waker::wake);
                }
                None if !block.is_written => drop(blocks.remove(&change.window.start)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::Context;

    const WINDOW: Range<u64> = 512..1024;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn written_by(turn: Option<Turn<'_>>) -> Writing<'_> {
        match turn {
            Some(Turn::Write(writing)) => writing,
            Some(Turn::Ended(_)) => panic!("somebody else wrote it"),
            None => panic!("it waits"),
        }
    }

    #[test]
    fn those_who_wait_are_written_together() {
        let changes = Changes::default();
        let value = |byte: u8| [byte; VALUE_LEN];
        let (one, two, three) = (value(1), value(2), value(3));
        let mut first = pin!(changes.turn(&WINDOW, 0, &one));
        let mut second = pin!(changes.turn(&WINDOW, 64, &two));
        let mut third = pin!(changes.turn(&WINDOW, 64, &three));
        let mut elsewhere = pin!(changes.turn(&(0..512), 0, &one));
        let writing = written_by(poll(first.as_mut()));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none(), "the block is being written");
        written_by(poll(elsewhere.as_mut())).end(&Ok(()));
        writing.end(&Ok(()));
        let writing = written_by(poll(third.as_mut()));
        let mut block = [0; 512];
        writing.apply(&mut block);
        assert_eq!((block[0], block[64], block[127], block[128]), (0, 3, 3, 0), "in order, the last one stays");
        let failed = KvError::Io { what: "writing", offset: 512, source: io::ErrorKind::StorageFull.into() };
        writing.end(&Err::<(), _>(failed));
        let Some(Turn::Ended(Err(KvError::Io { source, .. }))) = poll(second.as_mut()) else {
            panic!("it was written")
        };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert!(changes.0.borrow().is_empty(), "nothing is left");
    }

    #[test]
    fn who_gives_up_leaves_the_turn_to_the_next() {
        let changes = Changes::default();
        let value = [7; VALUE_LEN];
        {
            let mut second = Box::pin(changes.turn(&WINDOW, 64, &value));
            {
                let mut first = Box::pin(changes.turn(&WINDOW, 0, &value));
                let writing = written_by(poll(first.as_mut()));
                assert!(poll(second.as_mut()).is_none());
                // Neither what it has begun nor what it asked for is finished.
                drop(first);
                drop(writing);
            }
            let writing = written_by(poll(second.as_mut()));
            let mut block = [0; 512];
            writing.apply(&mut block);
            assert_eq!((block[0], block[64]), (0, 7), "what nobody wants any more is not written");
            // It is dropped without an end, and so is its change.
        }
        assert!(changes.0.borrow().is_empty(), "nothing is left");
    }
}
