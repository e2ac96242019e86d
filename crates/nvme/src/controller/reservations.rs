//! The reservations of one namespace (Base 2.0, 8.19): who is registered, who holds the reservation, and whom it excludes.
//!
//! A pure state machine. Where the specification leaves room it does as Linux's nvmet does, unless a comment says why not.

#[cfg(test)]
mod model_tests;
mod table;
#[cfg(test)]
mod tests;

pub(super) use table::{Change, Reservations};
pub use table::{HostReservations, ReservedWrite};

use zerocopy::IntoBytes;

use crate::status::Status;
use crate::wire::{
    RegisterAction, ReleaseAction, ReservationNotice, ReservationRegistrant, ReservationStatus, ReservationType,
};

/// The identifier of a host, which it gives in Connect: registrations are by it, whatever controller it uses.
pub(super) type HostId = [u8; 16];

/// The most registrants of a namespace. Hosts make their identifiers up, so that without a bound one host could fill memory.
pub(super) const REGISTRANTS_MAX: usize = 256;

/// The commands from which a reservation keeps a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exclusion {
    /// Nothing.
    #[default]
    Nothing,
    /// Commands that write.
    Writes,
    /// Those that read, too.
    Everything,
}

/// How a command uses a namespace, as reservations tell commands apart (Base 2.0, 8.19.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedUse {
    /// It reads: Read, Compare, Verify, the source of a Copy.
    Read,
    /// It writes or makes writes durable: Write, Write Zeroes, Dataset Management, Flush, the destination of a Copy.
    Write,
}

impl Exclusion {
    /// Refuses a command that is excluded.
    pub(super) fn check(self, what: ReservedUse) -> Result<(), Status> {
        if self.forbids(what) { Err(CONFLICT) } else { Ok(()) }
    }

    pub(super) fn forbids(self, what: ReservedUse) -> bool {
        match what {
            ReservedUse::Read => self == Self::Everything,
            ReservedUse::Write => self >= Self::Writes,
        }
    }
}

/// The answer to a host that is excluded, or whose key is not the one it says. Repeating the command does not help.
pub(super) const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

/// Something that a host is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) host: HostId,
    pub(super) notice: ReservationNotice,
}

/// Registrations and reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reserved {
    /// In the order in which they registered.
    registrants: Vec<Registrant>,
    held: Option<Held>,
    /// GEN.
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registrant {
    host: HostId,
    key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    kind: ReservationType,
    /// If all registrants hold it: the one that acquired it, which is as good as any.
    by: HostId,
}

impl Reserved {
    /// The commands from which the reservation keeps this host.
    pub(super) fn exclusion(&self, host: &HostId) -> Exclusion {
        let Some(held) = &self.held else { return Exclusion::Nothing };
        let is_free = held.by == *host || !held.kind.excludes_registrants() && self.key_of(host).is_some();
        match (is_free, held.kind.excludes_reads()) {
            (true, _) => Exclusion::Nothing,
            (false, false) => Exclusion::Writes,
            (false, true) => Exclusion::Everything,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Reservation Register.
    pub(super) fn register(
        &mut self,
        host: HostId,
        action: RegisterAction,
        ignore_key: bool,
        (current, new): (u64, u64),
    ) -> Result<Vec<Told>, Status> {
        let known = self.key_of(&host);
        let may = |known: Option<u64>| known.is_some_and(|key| ignore_key || key == current);
        // Zero means no key where one is preempted.
        if action != RegisterAction::Unregister && new == 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let mut told = Vec::new();
        match action {
            RegisterAction::Register if known.is_some_and(|key| key != new) => return Err(CONFLICT),
            RegisterAction::Unregister if !may(known) => return Err(CONFLICT),
            RegisterAction::Unregister => self.remove(&host, &host, &mut told),
            // IEKEY takes the place of a registration, too (8.19.3); nvmet refuses a host that is not registered.
            RegisterAction::Replace if !may(known) && !ignore_key => return Err(CONFLICT),
            RegisterAction::Register | RegisterAction::Replace => self.set_key(host, new)?,
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(told)
    }

    /// Acquires a reservation.
    pub(super) fn acquire(&mut self, host: HostId, current: u64, kind: ReservationType) -> Result<Vec<Told>, Status> {
        self.check_key(&host, current)?;
        match self.held {
            None => self.held = Some(Held { kind, by: host }),
            Some(held) if self.holds(&host) && held.kind == kind => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(Vec::new())
    }

    /// Takes away the registrations with a key, and the reservation if its holder has that key.
    pub(super) fn preempt(
        &mut self,
        host: HostId,
        (current, preempted): (u64, u64),
        kind: ReservationType,
    ) -> Result<Vec<Told>, Status> {
        self.check_key(&host, current)?;
        let mut told = Vec::new();
        match self.held {
            Some(held) if held.kind.is_of_all_registrants() && preempted == 0 => {
                self.held = Some(Held { kind, by: host });
                self.remove_all(|one| one.host != host, &host, &mut told);
            }
            // Here nvmet changes the type of its host's own reservation whatever the key, so that a holder cannot preempt others.
            Some(held) if !held.kind.is_of_all_registrants() && self.key_of(&held.by) == Some(preempted) => {
                // The new holder first: nobody is told that a reservation is gone which has only changed hands.
                self.held = Some(Held { kind, by: host });
                self.remove_all(|one| one.host != host && one.key == preempted, &host, &mut told);
                if held.kind != kind {
                    self.tell_released(&host, &mut told);
                }
            }
            Some(_) if preempted == 0 => return Err(Status::INVALID_FIELD.dnr()),
            Some(_) | None => {
                if !self.registrants.iter().any(|one| one.key == preempted) {
                    return Err(CONFLICT);
                }
                self.remove_all(|one| one.key == preempted, &host, &mut told);
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(told)
    }

    /// Reservation Release.
    pub(super) fn release(
        &mut self,
        host: HostId,
        action: ReleaseAction,
        current: u64,
        kind: Option<ReservationType>,
    ) -> Result<Vec<Told>, Status> {
        self.check_key(&host, current)?;
        let mut told = Vec::new();
        match (action, self.held) {
            (ReleaseAction::Release, Some(held)) if self.holds(&host) => {
                // A conflict in nvmet; 7.4 says that the field is wrong.
                if kind != Some(held.kind) {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                self.give_up(held.kind, &host, &mut told);
            }
            (ReleaseAction::Release, _) => {}
            (ReleaseAction::Clear, _) => {
                self.held = None;
                let others = self.registrants.drain(..).filter(|one| one.host != host);
                told.extend(others.map(|one| Told { host: one.host, notice: ReservationNotice::ReservationPreempted }));
                self.generation = self.generation.wrapping_add(1);
            }
        }
        Ok(told)
    }

    /// The data of a Report. What it is cut to, the host says.
    pub(super) fn report(&self) -> Vec<u8> {
        let mut status = ReservationStatus::zeroed();
        status.generation.set(self.generation);
        status.kind = self.held.map_or(0, |held| held.kind as u8);
        status.registrants.set(self.registrants.len() as u16);
        let mut report = status.as_bytes().to_vec();
        for one in &self.registrants {
            let entry = ReservationRegistrant::new(one.host, one.key, self.holds(&one.host));
            report.extend_from_slice(entry.as_bytes());
        }
        report
    }

    // -- parts --------------------------------------------------------------------------------------------------------

    fn key_of(&self, host: &HostId) -> Option<u64> {
        self.registrants.iter().find(|one| one.host == *host).map(|one| one.key)
    }

    /// Whether a host is registered with this key: all but Register and Report need that.
    fn check_key(&self, host: &HostId, key: u64) -> Result<(), Status> {
        if self.key_of(host) == Some(key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn holds(&self, host: &HostId) -> bool {
        let is_registered = || self.key_of(host).is_some();
        self.held.is_some_and(|held| held.by == *host || held.kind.is_of_all_registrants() && is_registered())
    }

    fn set_key(&mut self, host: HostId, key: u64) -> Result<(), Status> {
        if let Some(known) = self.registrants.iter_mut().find(|one| one.host == host) {
            known.key = key;
        } else if self.registrants.len() < REGISTRANTS_MAX {
            self.registrants.push(Registrant { host, key });
        } else {
            return Err(Status::INSUFFICIENT_RESOURCES.dnr());
        }
        Ok(())
    }

    /// Takes away the registrations of those for a host, and tells the others.
    fn remove_all(&mut self, which: impl Fn(&Registrant) -> bool, for_host: &HostId, told: &mut Vec<Told>) {
        let gone: Vec<HostId> = self.registrants.iter().filter(|one| which(one)).map(|one| one.host).collect();
        for host in gone {
            self.remove(&host, for_host, told);
            if host != *for_host {
                told.push(Told { host, notice: ReservationNotice::RegistrationPreempted });
            }
        }
    }

    /// Takes a registration away, and with its holder's, or the last one of all registrants, the reservation.
    fn remove(&mut self, host: &HostId, for_host: &HostId, told: &mut Vec<Told>) {
        self.registrants.retain(|one| one.host != *host);
        let Some(held) = self.held.filter(|held| held.by == *host) else { return };
        match self.registrants.first() {
            Some(first) if held.kind.is_of_all_registrants() => self.held = Some(Held { by: first.host, ..held }),
            _ => self.give_up(held.kind, for_host, told),
        }
    }

    /// The reservation is gone. Where registrants could do all that the holder could, they are told.
    fn give_up(&mut self, kind: ReservationType, for_host: &HostId, told: &mut Vec<Told>) {
        self.held = None;
        if !kind.excludes_registrants() {
            self.tell_released(for_host, told);
        }
    }

    fn tell_released(&self, for_host: &HostId, told: &mut Vec<Told>) {
        let others = self.registrants.iter().filter(|one| one.host != *for_host);
        told.extend(others.map(|one| Told { host: one.host, notice: ReservationNotice::ReservationReleased }));
    }
}
