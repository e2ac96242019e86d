//! Which writes of a file would be lost together with its server.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Handles of one association have numbers that follow one another, from a random 64-bit one on.
const SESSION_SPAN: u64 = 1 << 32;

/// The account of one file, whichever handles it is open by.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Changes that the server has confirmed, and how many of them a sync has made durable.
    confirmed: u64,
    durable: u64,
    /// The generation of the last handle.
    handle: Option<u64>,
}

impl Ledger {
    /// A handle with this generation is used from now on. False: something was confirmed by a server that is lost, or seems to be,
    /// and is not known to be durable.
    ///
    /// Nothing tells a host whether a server that it has to connect to again is still the same process. A change that was never
    /// confirmed is not at risk, because it is sent again.
    #[must_use]
    pub(crate) fn succeed(&self, generation: u64) -> bool {
        let mut state = self.lock();
        let is_same = state.handle.is_some_and(|before| is_of_one_session(before, generation));
        state.handle = Some(generation);
        is_same || state.confirmed == state.durable
    }

    pub(crate) fn confirm(&self) {
        self.lock().confirmed += 1;
    }

    /// What a sync that begins now makes durable, if it succeeds.
    pub(crate) fn mark(&self) -> u64 {
        self.lock().confirmed
    }

    pub(crate) fn note_durable(&self, mark: u64) {
        let mut state = self.lock();
        state.durable = state.durable.max(mark);
    }

    pub(crate) fn owes_sync(&self) -> bool {
        let state = self.lock();
        state.confirmed != state.durable
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of_one_session(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).min(b.wrapping_sub(a)) < SESSION_SPAN
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = u64::MAX - 3;
    const SECOND: u64 = 77 << 40;

    #[test]
    fn only_what_was_confirmed_and_not_synced_is_at_risk() {
        let ledger = Ledger::default();
        assert!(ledger.succeed(FIRST));
        // A write is under way when the server is lost: it is sent again.
        assert!(ledger.succeed(SECOND));
        ledger.confirm();
        assert!(ledger.owes_sync());
        assert!(ledger.succeed(SECOND + 9), "the server forgot the handle, and has the write");
        assert!(!ledger.succeed(FIRST));
    }

    #[test]
    fn a_sync_answers_for_what_was_confirmed_before_it_began() {
        let ledger = Ledger::default();
        assert!(ledger.succeed(FIRST));
        ledger.confirm();
        let mark = ledger.mark();
        ledger.confirm();
        ledger.note_durable(mark);
        assert!(!ledger.succeed(SECOND), "the second one came while the sync ran");
        ledger.note_durable(ledger.mark());
        assert!(!ledger.owes_sync() && ledger.succeed(FIRST.wrapping_add(1 << 40)));
    }

    #[test]
    fn generations_of_one_session_may_pass_the_largest_number() {
        assert!(is_of_one_session(FIRST, FIRST.wrapping_add(10)) && is_of_one_session(FIRST.wrapping_add(10), FIRST));
        assert!(!is_of_one_session(FIRST, SECOND));
    }
}
