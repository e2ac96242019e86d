//! How a call hears while it runs: that it must stop, that its host took bytes of the result, and that its host lost a right.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use diskside_sbpf::machine::CancelToken;

use crate::call::used::{Lost, Used};

/// Shared by a call and its tag.
#[derive(Debug, Default)]
pub struct Control {
    /// Ends what computes.
    pub cancel: CancelToken,
    /// Counts these messages.
    news: Mutex<u64>,
    moved: Condvar,
    /// What it uses.
    used: Mutex<Vec<Used>>,
    /// The first of it that its host lost. Set before the call is stopped, so that what stops knows why.
    lost: OnceLock<Lost>,
}

impl Control {
    /// Stops the call.
    pub(crate) fn stop(&self) {
        self.cancel.cancel();
        self.taken();
    }

    /// The host took bytes, or asks for some.
    pub(crate) fn taken(&self) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.moved.notify_all();
    }

    /// The news so far: to be asked for before looking whether there is room.
    pub(crate) fn seen(&self) -> u64 {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for news since `seen`. False: there were none for so long.
    pub(crate) fn wait(&self, seen: u64, at_most: Duration) -> bool {
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let (news, _) =
            self.moved.wait_timeout_while(news, at_most, |news| *news == seen).unwrap_or_else(PoisonError::into_inner);
        *news != seen
    }

    // -- rights -------------------------------------------------------------------------------------------------------

    /// Notes that the call is about to use this: its rights are looked at behind that.
    pub(crate) fn note(&self, all: impl IntoIterator<Item = Used>) {
        let mut used = self.used();
        for one in all {
            if !used.iter().any(|known| known.includes(&one)) {
                used.push(one);
            }
        }
    }

    /// Stops the call if something that it uses is lost, and says why.
    pub(crate) fn stop_if_lost(&self, lost: impl Fn(&Used) -> Option<Lost>) -> Option<&Lost> {
        if self.lost.get().is_some() {
            return self.lost();
        }
        let lost = self.used().iter().find_map(lost);
        if let Some(lost) = lost {
            self.lost.get_or_init(|| lost);
            // An export that is not served any more goes when nobody uses it.
            self.used().clear();
            self.stop();
        }
        self.lost()
    }

    /// Why the call may not continue, if it may not.
    pub(crate) fn lost(&self) -> Option<&Lost> {
        self.lost.get()
    }

    fn used(&self) -> MutexGuard<'_, Vec<Used>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
