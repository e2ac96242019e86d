//! Commands about reservations: what must hold before they change one, and how they wait for commands of hosts that a reservation
//! excludes from now on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use zerocopy::FromBytes;

use crate::status::Status;
use crate::wire::{
    AcquireAction, AcquireData, PersistChange, RegisterAction, RegisterData, ReleaseAction, ReservationType, Sqe,
    reservation_opcode,
};

use super::command::{Command, Io, Reservation, Transfer};
use super::config::{Namespace, SubsystemConfig};
use super::connection::Connection;
use super::fence::{AWAITED_MAX, Fence};
use super::io;
use super::request::{Operation, Request, Tag};
use super::reservations::{CONFLICT, Exclusion};
use super::slots::{Sink, Stage};

/// Whether this is a command about reservations.
pub(super) const fn is_reservation(opcode: u8) -> bool {
    use reservation_opcode::{ACQUIRE, REGISTER, RELEASE, REPORT};
    matches!(opcode, REGISTER | REPORT | ACQUIRE | RELEASE)
}

/// Parses a command about the reservations of a volume.
pub(super) fn parse(sqe: &Sqe, config: &SubsystemConfig, namespace: &Namespace) -> Result<(Command, Transfer), Status> {
    let invalid = Status::INVALID_FIELD.dnr();
    if sqe.opcode() == reservation_opcode::REPORT {
        // Identifiers have 128 bits, which the short structure has no room for.
        if !sqe.report_is_extended() {
            return Err(Status::HOST_ID_INCONSISTENT_FORMAT.dnr());
        }
        let len = u32::try_from(sqe.report_len()).ok().filter(|len| *len <= config.transfer_len_max);
        return Ok((Command::Reservation(Reservation::Report), Transfer::ToHost(len.ok_or(invalid)?)));
    }
    // A host that only reads must not be able to keep the others from writing, nor to fill the registrations.
    if namespace.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
    }
    let (action, kind) = (sqe.reservation_action(), ReservationType::from_number(sqe.reservation_type()));
    let (reservation, len) = match sqe.opcode() {
        reservation_opcode::REGISTER => {
            let actions = [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace];
            let action = actions.into_iter().find(|known| *known as u8 == action).ok_or(invalid)?;
            // Nothing persists, which Report says. Asking for it is accepted, as by nvmet: Linux asks for it with every
            // registration, whatever the namespace can do, and could not register otherwise.
            let changes = [PersistChange::Keep, PersistChange::Clear, PersistChange::Persist];
            if !changes.iter().any(|known| *known as u8 == sqe.persist_change()) {
                return Err(invalid);
            }
            (Reservation::Register { action, ignore_key: sqe.ignores_existing_key() }, size_of::<RegisterData>())
        }
        // RESCAP says that IEKEY is as since NVMe 1.3, where only Register has it.
        _ if sqe.ignores_existing_key() => return Err(invalid),
        reservation_opcode::ACQUIRE => {
            let actions = [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort];
            let action = actions.into_iter().find(|known| *known as u8 == action).ok_or(invalid)?;
            (Reservation::Acquire { action, kind: kind.ok_or(invalid)? }, size_of::<AcquireData>())
        }
        _ => {
            let actions = [ReleaseAction::Release, ReleaseAction::Clear];
            let action = actions.into_iter().find(|known| *known as u8 == action).ok_or(invalid)?;
            (Reservation::Release { action, kind }, size_of::<u64>())
        }
    };
    Ok((Command::Reservation(reservation), Transfer::ToUs(len as u32)))
}

/// The specification's word for it.
fn name_of(reservation: Reservation) -> &'static str {
    match reservation {
        Reservation::Register { action: RegisterAction::Register, .. } => "register",
        Reservation::Register { action: RegisterAction::Unregister, .. } => "unregister",
        Reservation::Register { action: RegisterAction::Replace, .. } => "replace",
        Reservation::Acquire { action: AcquireAction::Acquire, .. } => "acquire",
        Reservation::Acquire { action: AcquireAction::Preempt, .. } => "preempt",
        Reservation::Acquire { action: AcquireAction::PreemptAndAbort, .. } => "preempt and abort",
        Reservation::Release { action: ReleaseAction::Release, .. } => "release",
        Reservation::Release { action: ReleaseAction::Clear, .. } => "clear",
        Reservation::Report => "report",
    }
}

impl Connection {
    pub(super) fn execute_reservation(&mut self, now: Instant, slot: u32, reservation: Reservation) {
        let command = self.slots.get_mut(slot);
        let (sqe, len) = (command.sqe, command.len as usize);
        let parameters = match std::mem::take(&mut command.sink) {
            Sink::Memory(memory) => memory,
            Sink::None | Sink::Buffer(_) => Vec::new(),
        };
        if reservation == Reservation::Report {
            let Some(link) = &self.link else { return };
            let report = link.controller.subsystem.reservations.report(sqe.nsid());
            let told = &report[..report.len().min(len)];
            return self.answer_padded(slot, told, len - told.len(), 0);
        }
        match self.reserve(now, &sqe, reservation, &parameters) {
            Ok(None) => self.answer(slot, Status::SUCCESS, 0),
            Ok(Some(is_down)) => {
                self.slots.get_mut(slot).stage = Stage::AwaitsOthers;
                let tag = self.slots.tag(slot);
                self.fences.awaited.push((tag, is_down));
                // They may have been quick.
                self.pass_fences();
            }
            Err(status) => {
                self.note_denial(sqe.nsid(), status);
                self.answer(slot, status, 0);
            }
        }
    }

    /// Changes a reservation. Returns what is set once others have taken note, if there are any to wait for.
    fn reserve(
        &self,
        now: Instant,
        sqe: &Sqe,
        reservation: Reservation,
        parameters: &[u8],
    ) -> Result<Option<Arc<AtomicBool>>, Status> {
        let link = self.link.as_ref().ok_or(Status::COMMAND_SEQUENCE_ERROR.dnr())?;
        // The namespace may have gone, or changed, while the data was on its way.
        let namespace = link.namespaces.get(sqe.nsid()).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr())?;
        if namespace.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        let host = link.controller.host_id;
        if host == [0; 16] {
            return Err(Status::HOST_IDENTIFIER_NOT_INITIALIZED.dnr());
        }
        if self.fences.awaited.len() >= AWAITED_MAX {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        let subsystem = &link.controller.subsystem;
        let change = match reservation {
            Reservation::Register { action, ignore_key } => {
                let data = RegisterData::read_from_bytes(parameters).map_err(|_| Status::INTERNAL_ERROR)?;
                let keys = (data.current_key.get(), data.new_key.get());
                subsystem
                    .change_reservations(now, namespace, |reserved| reserved.register(host, action, ignore_key, keys))?
            }
            Reservation::Acquire { action, kind } => {
                let data = AcquireData::read_from_bytes(parameters).map_err(|_| Status::INTERNAL_ERROR)?;
                let (current, preempted) = (data.current_key.get(), data.preempted_key.get());
                subsystem.change_reservations(now, namespace, |reserved| match action {
                    AcquireAction::Acquire => reserved.acquire(host, current, kind),
                    AcquireAction::Preempt | AcquireAction::PreemptAndAbort => {
                        reserved.preempt(host, (current, preempted), kind)
                    }
                })?
            }
            Reservation::Release { action, kind } => {
                let key = u64::from_le_bytes(parameters.try_into().map_err(|_| Status::INTERNAL_ERROR)?);
                subsystem.change_reservations(now, namespace, |reserved| reserved.release(host, action, key, kind))?
            }
            Reservation::Report => return Ok(None),
        };
        subsystem.tell_reserved(&link.controller, namespace, name_of(reservation));
        let aborts = matches!(reservation, Reservation::Acquire { action: AcquireAction::PreemptAndAbort, .. });
        let is_awaited = |other: &[u8; 16]| match reservation {
            _ if *other == host => false,
            Reservation::Acquire { .. } => change.excludes(other) || aborts && change.preempts(other),
            _ => change.restricts(other),
        };
        let inboxes = subsystem.reservations.inboxes.of(sqe.nsid(), is_awaited);
        if inboxes.is_empty() {
            return Ok(None);
        }
        let is_down = Arc::new(AtomicBool::new(false));
        let fence = Arc::new(Fence::new(sqe.nsid(), &is_down, self.waker.clone()));
        // Hosts that are excluded, but not preempted, may read.
        let aborting = Arc::new(fence.aborting());
        for (other, inbox) in &inboxes {
            inbox.put_up(if aborts && change.preempts(other) { &aborting } else { &fence });
        }
        drop(aborting);
        // It falls with the last queue that holds it: here, if they have none.
        drop(fence);
        Ok(Some(is_down))
    }

    /// An I/O queue takes note of fences that others have put up.
    pub(super) fn hold_fences(&mut self) {
        let Some(inbox) = self.link.as_ref().and_then(|link| link.fence_inbox.clone()) else { return };
        if self.fences.are_kept {
            return;
        }
        let mut by_nsid = BTreeMap::<u32, Vec<Arc<Fence>>>::new();
        for fence in inbox.take() {
            by_nsid.entry(fence.nsid).or_default().push(fence);
        }
        let Some(link) = self.link.as_mut().filter(|_| !by_nsid.is_empty()) else { return };
        // Behind the taking: a change that put up one of these is in it, however old the last look around is.
        link.namespaces = link.controller.subsystem.snapshot_for(&link.controller);
        by_nsid.retain(|_, fences| {
            fences.retain(|fence| fence.is_awaited());
            !fences.is_empty()
        });
        self.fences.held.retain(|(fences, _)| fences.iter().any(|fence| fence.is_awaited()));
        let aborted = by_nsid.iter().filter(|(_, fences)| fences.iter().any(|fence| fence.aborts));
        let aborted: Vec<u32> = aborted.map(|(nsid, _)| *nsid).collect();
        self.refuse_untaken(&aborted);
        for (nsid, fences) in by_nsid {
            self.hold(nsid, fences, aborted.contains(&nsid));
        }
    }

    /// Holds fences of a namespace for writes that the embedder has, and has these stopped; with `aborts` also what reads.
    fn hold(&mut self, nsid: u32, fences: Vec<Arc<Fence>>, aborts: bool) {
        let is_excluded = self.link.as_ref().is_some_and(|link| link.namespaces.exclusion(nsid) != Exclusion::Nothing);
        if !is_excluded && !aborts {
            return;
        }
        let with_embedder = |slot: &u32| {
            let command = self.slots.get(*slot);
            command.stage == Stage::WithEmbedder && command.sqe.nsid() == nsid
        };
        let all: Vec<u32> = self.slots.indices().filter(with_embedder).collect();
        let mut begun = Vec::new();
        for slot in all {
            let (tag, command) = (self.slots.tag(slot), self.slots.get_mut(slot));
            let may_write = command.command.may_write();
            if may_write {
                begun.push(tag);
            }
            // It is not to keep others where it can still be stopped, nor to wait for a rate until it is asked to.
            if (may_write || aborts) && !std::mem::replace(&mut command.is_cancelled, true) {
                self.requests.push_front(Request::cancel(tag, nsid));
            }
        }
        if !begun.is_empty() {
            self.fences.held.push((fences, begun));
        }
    }

    /// Commands that the embedder has not taken yet are as if they came now; those to some namespaces are aborted.
    fn refuse_untaken(&mut self, aborted: &[u32]) {
        let Some(link) = &self.link else { return };
        let (mut kept, mut refused) = (VecDeque::new(), Vec::new());
        for request in std::mem::take(&mut self.requests) {
            let command = self.slots.tagged(request.tag).map(|slot| &self.slots.get(slot).sqe);
            let is_command = !matches!(request.operation, Operation::Cancel | Operation::GiveBack(_));
            let status = command.filter(|_| is_command).and_then(|sqe| {
                let is_excluded = io::is_excluded(sqe, &request.operation, &link.namespaces);
                let is_aborted = || aborted.contains(&sqe.nsid()).then_some(Status::COMMAND_ABORT_REQUESTED);
                if is_excluded { Some(CONFLICT) } else { is_aborted() }
            });
            match status {
                Some(status) => refused.push((request, status)),
                None => kept.push_back(request),
            }
        }
        self.requests = kept;
        for (request, status) in refused {
            self.note_denial(request.nsid, status);
            match self.slots.tagged(request.tag) {
                Some(slot) if self.can_send() => self.answer(slot, status, 0),
                Some(slot) => drop(self.slots.remove(slot)),
                None => {}
            }
            if let Some(data) = request.operation.data() {
                self.requests.push_front(Request { operation: Operation::GiveBack(data), ..request });
            }
        }
        self.drop_fences();
        self.finish_if_idle();
    }

    /// A command has ended: fences fall that were held for it.
    pub(super) fn drop_fences(&mut self) {
        if !self.fences.held.is_empty() {
            let slots = &self.slots;
            self.fences.held.retain(|(_, begun)| begun.iter().any(|tag| slots.tagged(*tag).is_some()));
        }
    }

    /// Answers commands for which no fence is up any more.
    pub(super) fn pass_fences(&mut self) {
        let is_down = |(_, is_down): &mut (Tag, Arc<AtomicBool>)| is_down.load(Ordering::Acquire);
        let passed: Vec<_> = self.fences.awaited.extract_if(.., is_down).collect();
        for (tag, _) in passed {
            if let Some(slot) = self.slots.tagged(tag) {
                self.answer(slot, Status::SUCCESS, 0);
            }
        }
    }
}

impl Command {
    /// Whether it may change blocks: nobody here knows what the embedder's commands do.
    const fn may_write(&self) -> bool {
        match self {
            Self::Io(io) => matches!(
                io,
                Io::Write { .. }
                    | Io::WriteDelta { .. }
                    | Io::WriteZeroes { .. }
                    | Io::DatasetManagement { deallocate: true }
                    | Io::Copy { .. }
            ),
            Self::Other { admin, .. } => !*admin,
            _ => false,
        }
    }
}
