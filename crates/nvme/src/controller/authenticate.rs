//! The gate: what a queue does until its host has proved who it is, and again whenever the host does so again.

use std::time::Instant;

use crate::auth::{AuthError, Done, Received, Sent};
use crate::status::Status;

use super::command::Command;
use super::connection::{Connection, ConnectionError, Link, State};
use super::execute::{CSS_ALL, Claim};
use super::request::{MediumId, Operation, Request, Tag};
use super::slots::Sink;

impl Connection {
    /// Takes the result that [`Operation::Authenticate`] asked for. If the command ended meanwhile, nothing happens.
    pub fn computed(&mut self, _now: Instant, tag: Tag, done: Done) {
        let Some(slot) = self.owed(tag) else { return };
        if !self.can_send() {
            self.slots.remove(slot);
            return;
        }
        let authentication = self.link.as_mut().and_then(|link| link.authentication.as_mut());
        // A tag may have been that of a connection before, whose work comes late.
        if !authentication.is_some_and(|authentication| authentication.computed(done)) {
            return;
        }
        self.answer(slot, Status::SUCCESS, 0);
        self.finish_if_idle();
    }

    /// Whether a message of the host is on its way or being worked on: there is one at a time.
    pub(super) fn is_sending_authentication(&self) -> bool {
        self.slots.indices().any(|slot| matches!(self.slots.get(slot).command, Command::AuthenticationSend))
    }

    pub(super) fn execute_authentication_send(&mut self, now: Instant, slot: u32) {
        let message = match std::mem::take(&mut self.slots.get_mut(slot).sink) {
            Sink::Memory(message) => message,
            Sink::None | Sink::Buffer(_) => Vec::new(),
        };
        let Some(link) = &mut self.link else { return self.answer(slot, Status::INVALID_OPCODE.dnr(), 0) };
        let Some(authentication) = &mut link.authentication else {
            return self.answer(slot, Status::INVALID_OPCODE.dnr(), 0);
        };
        // A key that was taken away is none for connections either that were made before.
        let (keys, accepted, concatenates) = link.controller.subsystem.keys_of(&link.controller.host);
        authentication.set_keys(keys, accepted, concatenates);
        let was_busy = authentication.is_busy();
        let sent = authentication.sent(&message);
        if !was_busy {
            self.authentication_deadline.get_or_insert(now + self.config.authentication_timeout);
        }
        match sent {
            Sent::Taken => self.answer(slot, Status::SUCCESS, 0),
            Sent::Compute(work) => {
                let (tag, nsid, medium) = (self.slots.tag(slot), 0, MediumId(u64::MAX));
                self.requests.push_back(Request { tag, nsid, medium, operation: Operation::Authenticate(work) });
            }
            Sent::Authenticated => {
                self.note_generated();
                self.answer(slot, Status::SUCCESS, 0);
                self.admit(now);
            }
            Sent::Failed => {
                self.answer(slot, Status::SUCCESS, 0);
                self.end_unauthenticated();
            }
            Sent::OutOfTurn => self.answer(slot, Status::COMMAND_SEQUENCE_ERROR.dnr(), 0),
        }
    }

    pub(super) fn execute_authentication_receive(&mut self, now: Instant, slot: u32) {
        let len_max = self.slots.get(slot).len as usize;
        let Some(authentication) = self.link.as_mut().and_then(|link| link.authentication.as_mut()) else {
            return self.answer(slot, Status::INVALID_OPCODE.dnr(), 0);
        };
        match authentication.received(len_max) {
            Received::Message(message) => self.answer_bytes(slot, &message, 0),
            Received::Authenticated(message) => {
                self.note_generated();
                self.answer_bytes(slot, &message, 0);
                self.admit(now);
            }
            Received::Failed(message) => {
                self.answer_bytes(slot, &message, 0);
                self.end_unauthenticated();
            }
            Received::OutOfTurn => self.answer(slot, Status::COMMAND_SEQUENCE_ERROR.dnr(), 0),
            Received::TooLong => self.answer(slot, Status::INVALID_FIELD.dnr(), 0),
        }
    }

    /// If the authentication made the key of a secure channel the host comes over that next.
    fn note_generated(&mut self) {
        let Some(link) = &mut self.link else { return };
        let Some(psk) = link.authentication.as_mut().and_then(|authentication| authentication.take_generated()) else {
            return;
        };
        if self.channel.is_none() {
            link.controller.set_awaits_channel();
        }
        self.generated = Some(psk);
    }

    /// The host is who it says: the queue takes commands. One that authenticated again continues as before.
    fn admit(&mut self, now: Instant) {
        self.authentication_deadline = None;
        let Some(mut link) = self.link.take_if(|link| !link.authenticated) else { return };
        link.place = link.controller.subsystem.place(&link.controller.host);
        let admitted = if link.place.is_none() {
            Err(ConnectionError::TooMany)
        } else if link.queue_id == 0 {
            link.controller.set_authenticated();
            Ok(())
        } else {
            self.join(&mut link)
        };
        let link = self.link.insert(link);
        if let Err(error) = admitted {
            return self.end(Some(error), State::Draining);
        }
        link.authenticated = true;
        if let Some(link) = self.link.as_ref().filter(|link| link.queue_id == 0) {
            self.deadline = Some(now + self.keep_alive(link));
        }
    }

    /// An I/O queue whose host has proved who it is becomes one of the controller that Connect named.
    fn join(&self, link: &mut Link) -> Result<(), ConnectionError> {
        let gone = ConnectionError::Authentication(AuthError::QueueGone);
        let named = link.controller.clone();
        let claim = Claim { cntlid: named.cntlid, host: &named.host, host_id: &named.host_id };
        let controller = self.controller_of(&named.subsystem, claim).map_err(|_| gone.clone())?;
        if !controller.add_queue(link.queue_id, self.waker.clone(), link.close.clone()) {
            return Err(gone);
        }
        link.all_command_sets = controller.cc().css() == CSS_ALL;
        link.fence_inbox = Some(named.subsystem.reservations.inboxes.add(controller.host_id, None, self.waker.clone()));
        link.namespaces = named.subsystem.snapshot_for(&controller);
        link.counters = controller.add_counters();
        link.controller = controller;
        Ok(())
    }

    /// It did not prove it: what is to be said is sent, then the connection is closed.
    fn end_unauthenticated(&mut self) {
        let authentication = self.link.as_ref().and_then(|link| link.authentication.as_ref());
        let error = authentication.and_then(|authentication| authentication.error().cloned());
        self.end(error.map(ConnectionError::Authentication), State::Draining);
    }
}
