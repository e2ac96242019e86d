//! The events that a shell reports to a connection, and the work that it takes from one: parts B and D of the interface.
//! Part C, the embedder's answers, is in `reply`.

use std::time::{Duration, Instant};

use crate::auth::AuthError;
use crate::buffer::{BufferPool, Buffers};
use crate::pdu::Step;
use crate::transmit::Transmit;

use super::super::command::QueueKind;
use super::super::request::{Operation, Request};
use super::super::slots::Sink;
use super::life::SILENCE_MAX;
use super::{Connection, ConnectionError, State};

/// So late nobody looks at a deadline who has not stood still.
const LATE: Duration = Duration::from_secs(1);

impl Connection {
    // -- B: what happened ---------------------------------------------------------------------------------------------

    /// Bytes came from the socket. Returns how many were consumed: fewer than given means that
    /// [`wants_input`](Self::wants_input) became false; keep the rest and offer it again later. Bytes that come after the
    /// end are consumed and dropped.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], pool: &mut impl BufferPool) -> usize {
        self.look_around();
        let mut input = bytes;
        while self.wants_input() && self.take_step(now, &mut input, pool) {}
        if self.is_open() { bytes.len() - input.len() } else { bytes.len() }
    }

    /// Bytes came from the socket and already are in what was the [`receive_target`](Self::receive_target) when the receive
    /// began, from its start on, and not beyond its end. Data digests are checked from `bytes`. All of them are taken,
    /// also where further input became unwelcome meanwhile: they are in their place.
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8], pool: &mut impl BufferPool) {
        self.look_around();
        if !self.is_open() {
            return;
        }
        debug_assert!(
            self.data_target().is_some_and(|target| bytes.len() <= target.len as usize),
            "bytes were received into the target"
        );
        self.placed = true;
        let mut input = bytes;
        while self.is_open() && self.take_step(now, &mut input, pool) {}
        self.placed = false;
    }

    /// Takes what is next in the input; false if there is nothing left of it.
    fn take_step(&mut self, now: Instant, input: &mut &[u8], pool: &mut impl BufferPool) -> bool {
        match self.decoder.step(input) {
            Ok(Step::Starved) => return false,
            Ok(Step::Header(header)) => self.on_header(now, header, pool),
            Ok(Step::Data(data)) => self.on_data(data, pool),
            Ok(Step::End { intact }) => self.on_end(now, intact, pool),
            Err(error) => self.terminate(error),
        }
        true
    }

    /// The socket is gone or was closed; call it once at the end of every connection. Buffers that the connection owns
    /// are released; those of a batch that is being sent are in the `Transmit`, see [`Transmit::abandon`]. Requests that
    /// the embedder has may still be completed (that only releases), or forgotten with the connection.
    pub fn handle_close(&mut self, buffers: &mut impl Buffers) {
        self.end(Some(ConnectionError::PeerClosed), State::Closed);
        self.out.abandon(|buffer| buffers.release(buffer));
        self.sending = false;
        self.held = None;
        self.fences.are_kept = true;
        let slots: Vec<u32> = self.slots.indices().collect();
        for slot in slots {
            if let Sink::Buffer(buffer) = self.slots.remove(slot) {
                buffers.release(buffer);
            }
        }
        for request in self.requests.drain(..) {
            if let Some(slice) = request.operation.data() {
                buffers.release(slice.buffer);
            }
        }
    }

    /// [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        if !self.is_open() || self.excuse(now) {
            return;
        }
        if is_due(self.authentication_deadline) {
            return self.end(Some(ConnectionError::Authentication(AuthError::Timeout)), State::Closed);
        }
        if !is_due(self.deadline) {
            return;
        }
        if let Some(link) = &self.link
            && link.controller.features().keep_alive_ms == 0
            && !link.controller.subsystem.is_discovery()
            && link.controller.take_heard()
        {
            self.deadline = Some(now + SILENCE_MAX);
            return;
        }
        let error = match &self.link {
            None => ConnectionError::ConnectTimeout,
            Some(link) => ConnectionError::KeepAliveExpired(self.keep_alive(link)),
        };
        self.end(Some(error), State::Closed);
    }

    /// A caller that looks much later than it was asked to stood still: its process was stopped, or its machine. The host's words
    /// meanwhile may not have been heard, so the host has its time once more, and then none before it is heard.
    fn excuse(&mut self, now: Instant) -> bool {
        let is_late = self.poll_timeout().is_some_and(|due| now.saturating_duration_since(due) >= LATE);
        if !is_late || std::mem::replace(&mut self.was_late, true) {
            return false;
        }
        let time = self.link.as_ref().map_or(self.config.connect_timeout, |link| self.keep_alive(link));
        self.deadline = self.deadline.map(|deadline| deadline.max(now + time));
        let time = self.config.authentication_timeout;
        self.authentication_deadline = self.authentication_deadline.map(|deadline| deadline.max(now + time));
        true
    }

    /// The waker was woken.
    pub fn handle_wake(&mut self, _now: Instant) {
        self.look_around();
        // Others wait for that, also while this one ends.
        self.hold_fences();
        if !self.is_open() {
            return;
        }
        self.pass_fences();
        // Nobody acts for a queue before proving to be its host.
        match self.link.as_ref().filter(|link| link.authenticated).map(|link| link.queue_id) {
            Some(0) => self.tell_events(),
            Some(_) => self.obey_aborts(),
            None => {}
        }
        if self.queue_kind() == Some(QueueKind::Admin) {
            self.finish_aborts();
        }
    }

    /// The pool has buffers again after it had none. Returns whether the connection still waits for more; if not, offer
    /// input that was not consumed again.
    pub fn handle_buffers(&mut self, now: Instant, pool: &mut impl BufferPool) -> bool {
        if self.is_open() {
            self.look_around();
        }
        if self.is_open() {
            self.serve_waiting(now, pool);
            if let Some((sqe, data_len)) = self.held.take() {
                self.on_command(now, sqe, data_len, pool);
            }
        }
        self.awaits_buffers()
    }

    /// The batch was sent completely; the `Transmit` is empty and can be used again.
    pub fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        debug_assert!(transmit.is_empty(), "only a batch that was sent completely is done");
        transmit.clear();
        self.sending = false;
    }

    // -- D: what to do ------------------------------------------------------------------------------------------------

    /// The operation that [`poll_request`](Self::poll_request) gives next. It may be left there; the connection continues to
    /// receive.
    pub fn next_operation(&self) -> Option<&Operation> {
        self.requests.front().map(|request| &request.operation)
    }

    /// How many commands of its host were refused without a request, since this was asked last.
    pub fn take_refused_commands(&mut self) -> u32 {
        std::mem::take(&mut self.refused_commands)
    }

    /// The next request for the media.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Moves what there is to send into `transmit`, which must be empty. Returns whether there is anything.
    pub fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool {
        debug_assert!(transmit.is_clear(), "one batch at a time");
        if self.out.is_empty() || self.state == State::Closed {
            return false;
        }
        std::mem::swap(&mut self.out, transmit);
        self.unsent_answers = 0;
        self.unsent_bytes = 0;
        self.sending = true;
        true
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [self.deadline, self.authentication_deadline].into_iter().flatten();
        if self.is_open() { deadlines.min() } else { None }
    }
}
