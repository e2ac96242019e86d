//! The audit's events of a connection: a host came, was refused, did not prove its identity, or went.

use diskside_nvme::Nqn;
use diskside_nvme::controller::ConnectionError;

use super::connection::Connection;
use super::core::Core;
use crate::audit::{Record, Told};

impl Connection {
    /// Tells who came, once that is known, and who was not let in.
    pub(super) fn tell_of_arrival(&mut self, core: &Core) {
        if let Some(host) = self.machine.take_refused() {
            let why = self.tell_refused(core, &host);
            self.log_refused(core, Some(&host), why, why);
        }
        let audit = &core.shared.audit;
        if !audit.is_on() {
            return;
        }
        if self.told != Told::Nothing || self.machine.queue_id() != Some(0) || !self.machine.is_authenticated() {
            return;
        }
        let Some((host, subsystem)) = self.machine.host_nqn().zip(self.machine.subsystem_nqn()) else { return };
        match subsystem.is_discovery() {
            // It is shown nothing, and most hosts then go without more.
            true if !core.shared.subsystem.lets_in(host) => {
                self.tell_refused(core, host);
            }
            true => {}
            false => {
                let authenticated = Some(self.machine.has_proved_itself());
                audit.tell(Record { authenticated, ..self.record("connect") });
                self.told = Told::Arrival;
                return;
            }
        }
        self.told = Told::All;
    }

    /// Says in the audit that a host is not let in; why not.
    fn tell_refused(&self, core: &Core, host: &Nqn) -> &'static str {
        let is_known = core.shared.subsystem.has_key_of(host);
        let why = match is_known {
            false => "the host is not known",
            true => "the host is known, and does not come over TLS with its key of TLS",
        };
        let (named, reason, peer) = (Some(host.to_string()), Some(why.to_owned()), Some(self.peer.clone()));
        let record = Record { event: "connect.refused", host: named, peer, reason, ..Record::default() };
        core.shared.audit.tell_of_stranger(record, core.now);
        why
    }

    /// Writes a line to the log, unless its address has had many, or one with the same cause just now.
    pub(super) fn log_refused(&self, core: &Core, host: Option<&Nqn>, cause: &str, why: &str) {
        let (peer, host) = (self.peer(), host.map(Nqn::as_str));
        let cause = format!("{cause} {}", host.unwrap_or_default());
        match core.shared.notices.admit_once(peer, Some(&cause), core.now) {
            Some(left_out) => tracing::warn!(peer, host, why, left_out, "connection refused"),
            None => tracing::debug!(peer, host, why, "connection refused"),
        }
    }

    /// Tells that the host's secure channel was not made, or was broken.
    pub(super) fn tell_of_channel(&mut self, core: &Core, host: Option<Nqn>, why: &str) {
        // A host with an event for its coming gets one for its going, with the reason.
        if self.told == Told::Nothing {
            self.told = Told::All;
            let mut record = Record { reason: Some(why.to_owned()), ..self.record("auth.fail") };
            record.host = record.host.or(host.map(|host| host.to_string()));
            core.shared.audit.tell_of_stranger(record, core.now);
        }
    }

    /// Tells that the host went, or did not prove who it is.
    pub(super) fn tell_of_end(&mut self, core: &Core, why: &str) {
        let audit = &core.shared.audit;
        let told = std::mem::replace(&mut self.told, Told::All);
        if !audit.is_on() {
            return;
        }
        let reason = self.machine.error().map_or_else(|| why.to_owned(), ToString::to_string);
        let authentication = matches!(self.machine.error(), Some(ConnectionError::Authentication(_)));
        if authentication {
            let record = Record { reason: Some(reason), ..self.record("auth.fail") };
            audit.tell_of_stranger(record, core.now);
        } else if told == Told::Arrival {
            audit.tell(Record { reason: Some(reason), ..self.record("disconnect") });
        }
    }

    fn record(&self, event: &'static str) -> Record {
        let host = self.machine.host_nqn().map(ToString::to_string);
        Record { event, host, peer: Some(self.peer.clone()), queue: self.machine.queue_id(), ..Record::default() }
    }
}
