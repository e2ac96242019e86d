//! Results of several files that run at once, written in the order of the files.

use diskside_sbpf::machine::{CancelToken, CancelWatch};
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of a result that wait for their turn; a function that makes more waits with them.
const WAITING_LEN_MAX: usize = 4 << 20;

/// Whose turn it is to write.
pub(super) struct Turns<'w> {
    out: Mutex<&'w mut (dyn Write + Send)>,
    turn: Arc<Turn>,
}

#[derive(Default)]
struct Turn {
    /// The file whose result is written.
    now: Mutex<usize>,
    changed: Condvar,
}

/// The result of one file. What comes before its turn is kept, up to a bound.
pub(super) struct InTurn<'t, 'w> {
    turns: &'t Turns<'w>,
    index: usize,
    kept: Vec<u8>,
    cancel: CancelToken,
    /// Wakes who waits for a turn that will not come.
    _watch: CancelWatch,
}

impl<'w> Turns<'w> {
    pub(super) fn new(out: &'w mut (dyn Write + Send)) -> Self {
        Self { out: Mutex::new(out), turn: Arc::default() }
    }

    /// For the result of the file with this index. Cancelled, it waits no more.
    pub(super) fn writer(&self, index: usize, cancel: &CancelToken) -> InTurn<'_, 'w> {
        let turn = Arc::clone(&self.turn);
        let watch = cancel.when_cancelled(move || {
            let _now = turn.lock();
            turn.changed.notify_all();
        });
        InTurn { turns: self, index, kept: Vec::new(), cancel: cancel.clone(), _watch: watch }
    }
}

impl Turn {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InTurn<'_, '_> {
    /// Writes what is left, in its turn, which it hands on.
    pub(super) fn finish(self) -> io::Result<()> {
        let turn = Arc::clone(&self.turns.turn);
        self.end()?;
        *turn.lock() += 1;
        turn.changed.notify_all();
        Ok(())
    }

    /// Writes what is left of a result that ended with a failure, in its turn, behind which nobody writes.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.wait()?;
        self.write_kept()
    }

    fn is_its_turn(&self) -> bool {
        *self.turns.turn.lock() == self.index
    }

    fn wait(&self) -> io::Result<()> {
        let mut now = self.turns.turn.lock();
        while *now != self.index {
            if self.cancel.is_cancelled() {
                return Err(io::Error::other("a file before this one failed"));
            }
            now = self.turns.turn.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn write_kept(&mut self) -> io::Result<()> {
        let kept = std::mem::take(&mut self.kept);
        self.turns.out.lock().unwrap_or_else(PoisonError::into_inner).write_all(&kept)
    }
}

impl Write for InTurn<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_its_turn() && self.kept.len() + bytes.len() <= WAITING_LEN_MAX {
            self.kept.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        self.wait()?;
        self.write_kept()?;
        self.turns.out.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results came one file after another; now they are made at once, and are in the same order.
    #[test]
    fn results_that_are_made_at_once_are_written_in_order() {
        let mut written = Vec::new();
        let turns = Turns::new(&mut written);
        let long = vec![b'c'; WAITING_LEN_MAX + 1];
        std::thread::scope(|scope| {
            // The last one begins first, and is too long to wait in memory.
            for (index, bytes) in [(2, &long[..]), (1, b"bb"), (0, b"a")] {
                let turns = &turns;
                scope.spawn(move || {
                    let mut out = turns.writer(index, &CancelToken::new());
                    bytes.chunks(1 << 16).for_each(|part| out.write_all(part).expect("its turn comes"));
                    out.finish().expect("its turn comes");
                });
            }
        });
        assert!(written == [b"abb", &long[..]].concat());
    }

    #[test]
    fn who_waits_behind_a_failure_is_told() {
        let mut written = Vec::new();
        let turns = Turns::new(&mut written);
        let cancel = CancelToken::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.writer(1, &cancel).finish());
            cancel.cancel();
            assert_eq!(waiting.join().expect("no panic").unwrap_err().to_string(), "a file before this one failed");
        });
        assert!(written.is_empty());
    }
}
