//! What a call works with, and who hears of its bytes and its end.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use diskside_export::FileSession;
use diskside_wire::function::Trailer;

use crate::call::answer::Piece;
use crate::environment::Environment;
use crate::host::Host;
use crate::schedule::quota::{Holding, NoRoom};
use crate::schedule::seat::Seat;

/// What all calls of a controller work with.
#[derive(Debug)]
pub(crate) struct CallContext {
    pub(crate) host: Arc<Host>,
    pub(crate) environment: Arc<Environment>,
    /// The files that the controller opened.
    pub(crate) files: FileSession,
}

impl CallContext {
    /// Where a call of this host waits for it.
    pub(crate) fn seat(&self) -> Seat {
        Seat::new(&self.environment.pool, self.host.id)
    }

    /// Waits for room for a result, until then or until it is not wanted any more, or others need what the call holds.
    ///
    /// # Errors
    /// There was none.
    pub(crate) fn hold_until(
        &self,
        len: usize,
        until: Instant,
        is_unwanted: impl Fn() -> bool,
        is_urgent: impl Fn() -> bool,
    ) -> Result<Holding, NoRoom> {
        let seat = self.seat();
        let wait = RefCell::new(seat.wait());
        self.host.account.hold_until(len, until, || is_unwanted() || wait.borrow_mut().is_over(), is_urgent)
    }
}

/// Who asked for calls, each by its tag.
pub(crate) trait CallEvents: fmt::Debug + Send + Sync {
    /// Bytes of a call's result that nobody asked for yet.
    fn unclaimed(&self, tag: u64) -> u64;

    /// Whether somebody waits for more of a call's result than there is.
    fn is_short(&self, tag: u64) -> bool;

    /// Whether somebody waits for bytes of a call's result.
    fn is_asked_for(&self, tag: u64) -> bool;

    /// A call made bytes of its result.
    fn produced(&self, tag: u64, piece: Piece);

    /// A call read bytes of its host's stream.
    fn consumed(&self, now: Instant, tag: u64);

    /// A call has ended.
    fn ended(&self, now: Instant, tag: u64, trailer: Trailer);
}
