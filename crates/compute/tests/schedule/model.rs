//! The specification's rules for loading, activating and unloading, and no more.

use diskside_nvme::Status;

pub(super) const HOSTS: usize = 3;
pub(super) const NQNS: [&str; HOSTS] =
    ["nqn.2026-11.org.example:a", "nqn.2026-11.org.example:b", "nqn.2026-11.org.example:c"];
const HOST_PROGRAMS_MAX: usize = 2;
const ACTIVE_MAX: usize = 2;

/// A program index.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelSlot {
    Empty,
    Loading { owner: usize, object: usize, len: usize, sent: usize },
    Verifying { owner: usize, object: usize, len: usize, ticket: u64 },
    Loaded { owner: usize, object: usize, len: usize, active: bool, ticket: u64, calls: usize },
}

pub(super) struct Model {
    pub(super) slots: Vec<ModelSlot>,
    total_len_max: usize,
    tickets: u64,
}

type Done<T> = Result<T, Status>;

impl ModelSlot {
    pub(super) fn owner(&self) -> Option<usize> {
        match *self {
            Self::Empty => None,
            Self::Loading { owner, .. } | Self::Verifying { owner, .. } | Self::Loaded { owner, .. } => Some(owner),
        }
    }

    fn len(&self) -> usize {
        match *self {
            Self::Empty => 0,
            Self::Loading { sent, .. } => sent,
            Self::Verifying { len, .. } | Self::Loaded { len, .. } => len,
        }
    }
}

impl Model {
    pub(super) fn new(slots: usize, total_len_max: usize) -> Self {
        Self { slots: vec![ModelSlot::Empty; slots], total_len_max, tickets: 0 }
    }

    /// A part of an object of `total` bytes. Gives the number of the verification that follows, if one does.
    pub(super) fn load(
        &mut self,
        host: usize,
        slot: usize,
        object: usize,
        total: usize,
        offset: usize,
        len: usize,
    ) -> Done<Option<u64>> {
        let others = self.slots.iter().enumerate().filter(|(at, _)| *at != slot);
        let used: usize = others.map(|(_, slot)| slot.len()).sum();
        let own = self.slots.iter().filter(|slot| slot.owner() == Some(host)).count();
        let others = self.slots.iter().enumerate().filter(|(at, it)| *at != slot && it.owner() == Some(host));
        let own_bytes: usize = others.map(|(_, it)| it.len()).sum();
        let part = self.total_len_max / 8;
        let is_for_others = |more: usize| used + more > self.total_len_max - part && own_bytes + more > part;
        let slot = &mut self.slots[slot];
        let mine = slot.owner() == Some(host);
        match slot {
            ModelSlot::Loaded { .. } | ModelSlot::Verifying { .. } => return Err(Status::PROGRAM_IN_USE.dnr()),
            ModelSlot::Loading { .. } if !mine => return Err(Status::PROGRAM_IN_USE.dnr()),
            ModelSlot::Loading { .. } | ModelSlot::Empty => {}
        }
        if offset == 0 {
            *slot = ModelSlot::Empty;
            if len == 0 {
                return Err(Status::INVALID_PROGRAM_DATA.dnr());
            }
            if used + total > self.total_len_max || is_for_others(total) {
                return Err(Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr());
            }
            if own - usize::from(mine) >= HOST_PROGRAMS_MAX {
                return Err(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr());
            }
            *slot = ModelSlot::Loading { owner: host, object, len: total, sent: 0 };
        }
        let ModelSlot::Loading { object, len: total, sent, .. } = slot else {
            return Err(Status::INVALID_PROGRAM_DATA.dnr());
        };
        if offset + len > *total {
            *slot = ModelSlot::Empty;
            return Err(Status::PROGRAM_TOO_BIG.dnr());
        }
        if offset != *sent || len == 0 {
            *slot = ModelSlot::Empty;
            return Err(Status::INVALID_PROGRAM_DATA.dnr());
        }
        if used + *sent + len > self.total_len_max || is_for_others(*sent + len) {
            *slot = ModelSlot::Empty;
            return Err(Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr());
        }
        *sent += len;
        if *sent < *total {
            return Ok(None);
        }
        self.tickets += 1;
        *slot = ModelSlot::Verifying { owner: host, object: *object, len: *total, ticket: self.tickets };
        Ok(Some(self.tickets))
    }

    pub(super) fn is_verifying(&self, slot: usize, number: u64) -> bool {
        matches!(self.slots[slot], ModelSlot::Verifying { ticket, .. } if ticket == number)
    }

    /// A verification ends; `bad` is the object that is not a valid program.
    pub(super) fn verify(&mut self, slot: usize, number: u64, bad: usize) -> Done<()> {
        match self.slots[slot] {
            ModelSlot::Verifying { owner, object, len, ticket } if ticket == number => {
                if object == bad {
                    self.slots[slot] = ModelSlot::Empty;
                    return Err(Status::INVALID_PROGRAM_DATA.dnr());
                }
                self.slots[slot] = ModelSlot::Loaded { owner, object, len, active: false, ticket, calls: 0 };
                Ok(())
            }
            _ => Err(Status::NO_PROGRAM.dnr()),
        }
    }

    pub(super) fn give_up(&mut self, slot: usize, number: u64) {
        if self.is_verifying(slot, number) {
            self.slots[slot] = ModelSlot::Empty;
        }
    }

    pub(super) fn activate(&mut self, host: usize, slot: usize, activate: bool) -> Done<()> {
        let active_now =
            self.slots.iter().filter(|slot| matches!(slot, ModelSlot::Loaded { active: true, .. })).count();
        let ModelSlot::Loaded { owner, active, .. } = &mut self.slots[slot] else {
            return Err(Status::NO_PROGRAM.dnr());
        };
        if *owner != host {
            return Err(Status::NO_PROGRAM.dnr());
        }
        if *active == activate {
            return Ok(());
        }
        if activate && active_now >= ACTIVE_MAX {
            return Err(Status::MAXIMUM_PROGRAMS_ACTIVATED.dnr());
        }
        *active = activate;
        Ok(())
    }

    pub(super) fn unload(&mut self, host: usize, slot: usize) -> Done<()> {
        let slot = &mut self.slots[slot];
        match slot {
            ModelSlot::Empty => return Err(Status::NO_PROGRAM.dnr()),
            _ if slot.owner() != Some(host) => return Err(Status::NO_PROGRAM.dnr()),
            ModelSlot::Verifying { .. } => return Err(Status::PROGRAM_IN_USE.dnr()),
            ModelSlot::Loaded { active: true, .. } => return Err(Status::PROGRAM_IN_USE.dnr()),
            ModelSlot::Loaded { calls: 1.., .. } => return Err(Status::PROGRAM_IN_USE),
            ModelSlot::Loaded { .. } | ModelSlot::Loading { .. } => *slot = ModelSlot::Empty,
        }
        Ok(())
    }

    /// The object at an index that a host can call.
    pub(super) fn active(&self, host: usize, slot: usize) -> Done<usize> {
        match self.slots[slot] {
            ModelSlot::Loaded { object, owner, active: true, .. } if owner == host => Ok(object),
            ModelSlot::Loaded { owner, .. } if owner == host => Err(Status::PROGRAM_NOT_ACTIVATED.dnr()),
            _ => Err(Status::NO_PROGRAM.dnr()),
        }
    }

    /// A call of the program at an index waits or runs. Gives what to say when it ends.
    pub(super) fn begin(&mut self, slot: usize) -> (usize, u64) {
        let ModelSlot::Loaded { ticket, calls, .. } = &mut self.slots[slot] else { panic!("it is there") };
        *calls += 1;
        (slot, *ticket)
    }

    /// Calls of the program at an index.
    pub(super) fn calls(&self, slot: usize) -> usize {
        if let ModelSlot::Loaded { calls, .. } = self.slots[slot] { calls } else { 0 }
    }

    /// A call has ended, of a program that may have gone with its host.
    pub(super) fn end(&mut self, (slot, begun): (usize, u64)) {
        if let ModelSlot::Loaded { ticket, calls, .. } = &mut self.slots[slot]
            && *ticket == begun
        {
            *calls -= 1;
        }
    }

    pub(super) fn forget(&mut self, host: usize) {
        self.slots.iter_mut().filter(|slot| slot.owner() == Some(host)).for_each(|slot| *slot = ModelSlot::Empty);
    }
}
