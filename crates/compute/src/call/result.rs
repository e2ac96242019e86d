//! A result on its way to the host: made as far as it is asked for, and a little more.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use diskside_wire::function::{Outcome, Trailer};

use crate::call::answer::Piece;
use crate::call::context::CallEvents;
use crate::call::control::Control;
use crate::call::trailer;
use crate::schedule::quota::{Account, PART_BYTES};
use crate::schedule::seat::{GIVEN_UP, Seat};

/// How much result is made before it is asked for, besides one chunk's.
const RESULT_AHEAD: u64 = 1 << 20;

/// A result is handed over in pieces of this, each with a charge of its own.
const PART_LEN: usize = 1 << 20;

/// Whose result it is.
#[derive(Clone, Copy)]
pub(crate) struct ResultOf<'a> {
    pub(crate) tag: u64,
    pub(crate) events: &'a dyn CallEvents,
    /// What is sent is charged to it.
    pub(crate) account: &'a Account,
    /// Where it waits for the host.
    pub(crate) seat: &'a Seat,
    pub(crate) control: &'a Control,
    pub(crate) len_max: u64,
    /// When the host stops waiting.
    pub(crate) until: Instant,
}

/// Output that goes to the host, as far as it asks for it.
pub(crate) struct ResultWriter<'a> {
    call: ResultOf<'a>,
    /// Bytes so far.
    pub(crate) sent: u64,
    /// How long the host was waited for.
    pub(crate) sending: Duration,
    /// Why a write failed, if one did.
    pub(crate) failure: Option<Trailer>,
}

impl<'a> ResultWriter<'a> {
    pub(crate) fn new(call: ResultOf<'a>) -> Self {
        Self { call, sent: 0, sending: Duration::ZERO, failure: None }
    }

    fn fail(&mut self, trailer: Trailer) -> io::Error {
        let told = io::Error::other(trailer.message.clone());
        self.failure = Some(trailer);
        told
    }

    /// Writes all bytes. Before it waits for the host it calls `waits` with how long it has waited, which says after how long to
    /// call it again.
    ///
    /// # Errors
    /// The host does not take them: see [`failure`](Self::failure).
    pub(crate) fn write_while(&mut self, bytes: &[u8], waits: &mut dyn FnMut(Duration) -> Duration) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let ResultOf { tag, events, account, seat, control, len_max: most, until } = self.call;
        if self.sent + bytes.len() as u64 > most {
            let told = format!("the result exceeds the {most} bytes that the request allows");
            return Err(self.fail(trailer::simple(Outcome::OutputFull, &told)));
        }
        let began = Instant::now();
        let mut wait = seat.wait();
        loop {
            let seen = control.seen();
            if control.cancel.is_cancelled() {
                return Err(self.fail(trailer::simple(Outcome::Cancelled, "the call was cancelled")));
            }
            let unclaimed = events.unclaimed(tag);
            // The bytes that are there may be too few for the Receive that waits for them.
            let is_short = unclaimed == 0 || events.is_short(tag);
            if is_short || unclaimed + bytes.len() as u64 <= RESULT_AHEAD {
                break;
            }
            let look = waits(began.elapsed());
            if control.wait(seen, wait.piece(until).min(look)) {
                wait.heard();
            } else if Instant::now() >= until {
                let told = "the deadline passed before the host took the result";
                return Err(self.fail(trailer::simple(Outcome::Deadline, told)));
            }
            if wait.is_over() {
                return Err(self.fail(trailer::simple(Outcome::Deadline, GIVEN_UP)));
            }
        }
        let (wait, waits) = (RefCell::new(wait), RefCell::new(waits));
        for part in bytes.chunks(PART_LEN) {
            let was_asked = Cell::new(false);
            let is_unwanted = || {
                // It is asked before the first wait for room, and again behind each.
                if was_asked.replace(true) {
                    (*waits.borrow_mut())(began.elapsed());
                }
                control.cancel.is_cancelled() || wait.borrow_mut().is_over()
            };
            let is_asked_for = || events.is_asked_for(tag);
            let held = account.hold_until(part.len() + PART_BYTES, until, is_unwanted, is_asked_for);
            let holding =
                held.map_err(|no_room| self.fail(trailer::without_room(&no_room, control.cancel.is_cancelled())))?;
            self.sent += part.len() as u64;
            events.produced(tag, Piece::held(part.to_vec(), holding));
        }
        self.sending += began.elapsed();
        Ok(())
    }
}

impl Write for ResultWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_while(bytes, &mut |_| Duration::MAX).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
