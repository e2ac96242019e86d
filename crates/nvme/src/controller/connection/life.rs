//! The life of a connection: how it notices the end of what it depends on, and how it ends itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::pdu::Encoder;
use crate::wire::{FatalError, PduKind};

use super::super::command::QueueKind;
use super::super::identify::KEEP_ALIVE_GRANULARITY_100MS;
use super::super::slots::Stage;
use super::{Connection, ConnectionError, Link, State};

/// How long a host that asked for no Keep Alive may send no command at all: its controller must not stay for ever.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(600);

impl Connection {
    /// Whether commands are taken, or may be once the host connects.
    pub(in crate::controller) fn is_open(&self) -> bool {
        !self.finishing && !matches!(self.state, State::Draining | State::Closed)
    }

    pub(in crate::controller) fn queue_kind(&self) -> Option<QueueKind> {
        self.link.as_ref().map(|link| if link.queue_id == 0 { QueueKind::Admin } else { QueueKind::Io })
    }

    /// Notices what others changed: the end of the controller or the target, and the namespaces.
    pub(super) fn look_around(&mut self) {
        let Some(link) = &mut self.link else {
            if self.subsystems.is_shutting_down() {
                self.end(Some(ConnectionError::Shutdown), State::Closed);
            }
            return;
        };
        if self.subsystems.is_shutting_down() {
            // Whatever order the controller's queues end in: each first answers what the embedder has.
            if self.is_open() && !self.finishing {
                self.finishing = true;
                self.error = Some(ConnectionError::Shutdown);
                self.finish_if_idle();
            }
            return;
        }
        if link.close.load(Ordering::Acquire) || link.controller.is_closed() {
            self.end(Some(ConnectionError::ControllerGone), State::Closed);
            return;
        }
        if link.controller.subsystem.epoch() != link.namespaces.epoch {
            link.namespaces = link.controller.subsystem.snapshot_for(&link.controller);
        }
    }

    /// While finishing: ends once the embedder owes no answer.
    pub(in crate::controller) fn finish_if_idle(&mut self) {
        let owed = |slot| self.slots.get(slot).stage == Stage::WithEmbedder;
        if self.finishing && !self.slots.indices().any(owed) {
            self.end(None, State::Draining);
        }
    }

    /// The peer broke the protocol: tell it, and end.
    pub(in crate::controller) fn terminate(&mut self, error: FatalError) {
        let encoder = Encoder::plain();
        encoder.terminate(&mut self.out, PduKind::C2hTermReq, error, self.decoder.offending_header());
        self.end(Some(ConnectionError::Protocol(error)), State::Draining);
    }

    /// Ends the connection, and with an admin queue its controller.
    pub(in crate::controller) fn end(&mut self, error: Option<ConnectionError>, state: State) {
        if matches!(self.state, State::Draining | State::Closed) {
            if state == State::Closed {
                self.state = state;
            }
            return;
        }
        self.state = state;
        self.deadline = None;
        if self.error.is_none() {
            self.error = error;
        }
        self.unlink();
    }

    fn unlink(&mut self) {
        // Requests of the embedder may end after the connection: fences that are held for them fall when that is dropped.
        self.hold_fences();
        let Some(link) = &mut self.link else { return };
        link.place = None;
        if link.queue_id == 0 {
            link.controller.subsystem.detach(link.controller.cntlid);
            link.controller.close();
        } else {
            link.controller.remove_queue(link.queue_id, &link.close);
        }
    }

    /// How long the host may be silent.
    pub(in crate::controller) fn keep_alive(&self, link: &Link) -> Duration {
        let timeout_ms = link.controller.features().keep_alive_ms;
        match (timeout_ms, link.controller.subsystem.is_discovery()) {
            (0, false) => SILENCE_MAX,
            // Discovery controllers without a timeout end after two minutes without a command (Base 3.1.3.3.1).
            (0, true) => Duration::from_secs(120),
            (timeout_ms, _) => {
                let granularity_ms = u64::from(KEEP_ALIVE_GRANULARITY_100MS) * 100;
                Duration::from_millis(u64::from(timeout_ms).next_multiple_of(granularity_ms))
            }
        }
    }
}

impl Drop for Connection {
    /// A connection that is dropped without [`handle_close`](Self::handle_close) must not leave its controller behind.
    fn drop(&mut self) {
        if !matches!(self.state, State::Draining | State::Closed) {
            self.unlink();
        }
    }
}
