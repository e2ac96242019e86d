//! How a call hears while it runs: that it must stop, and that its host took bytes of the result.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use diskside_sbpf::machine::CancelToken;

/// Shared by a call and its tag.
#[derive(Debug, Default)]
pub struct Control {
    /// Ends what computes.
    pub cancel: CancelToken,
    /// Counts these messages.
    news: Mutex<u64>,
    moved: Condvar,
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
}
