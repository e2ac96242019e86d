//! The execution of commands once their data is there.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use zerocopy::FromBytes;

use crate::auth::{self, Concatenation};
use crate::buffer::{BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::status::Status;
use crate::wire::{
    AUTHENTICATION_REQUIRED, CONCATENATION_REQUIRED, CONTROLLER_ID_DYNAMIC, Cap, ConnectData, ConnectError, Cqe, Sqe,
    property,
};

use super::command::{Admin, Command, Io, PropertySet};
use super::connection::{ABORTS_MAX, ASYNC_EVENTS_MAX, ChannelKind, Connection, Link, State};
use super::identify::{self, Question, VERSION};
use super::io::{self, Context};
use super::request::{MediumId, Operation, OtherCommand, Request};
use super::shared::{AbortOrder, Controller, Standing};
use super::slots::{Sink, Stage};
use super::subsystem::{ADMIN_ENTRIES_MAX, Admission, Arrival, Subsystem};
use super::{features, logs};

/// The longest wait for ready, in units of 500 ms: it takes no time at all, and 10 s are what hosts are used to.
const READY_TIMEOUT_500MS: u16 = 20;

/// CC.CSS: all command sets that are supported.
pub(super) const CSS_ALL: u32 = 0b110;

/// Byte offsets that Connect Invalid Parameters points at.
mod at {
    pub(super) const QUEUE_ID: u16 = 42;
    pub(super) const SQSIZE: u16 = 44;
    pub(super) const HOST_ID: u16 = 0;
    pub(super) const CONTROLLER_ID: u16 = 16;
    pub(super) const SUBSYSTEM_NQN: u16 = 256;
    pub(super) const HOST_NQN: u16 = 512;
}

/// The outcome of an admin command.
enum Outcome {
    /// An answer: dword 0 and 1, and data.
    Answer(u64, Vec<u8>),
    /// A page of which less is there than was asked for: data, and how many zeroes follow it.
    Page(Vec<u8>, usize),
    /// The embedder answers.
    Embedder,
    /// The answer comes later.
    Later(Stage),
}

impl Connection {
    /// Carries out a command whose data is complete.
    pub(super) fn execute(&mut self, now: Instant, slot: u32, buffers: &mut impl Buffers) {
        self.slots.get_mut(slot).stage = Stage::WithEmbedder;
        match &self.slots.get(slot).command {
            Command::Io(_) => self.execute_io(slot, buffers),
            Command::Admin(admin) => {
                let admin = admin.clone();
                self.execute_admin(now, slot, &admin);
            }
            Command::Reservation(reservation) => {
                let reservation = *reservation;
                self.execute_reservation(now, slot, reservation);
            }
            Command::Other { nsid, medium, admin } => {
                let (nsid, medium, admin) = (*nsid, *medium, *admin);
                match self.check_other(nsid, admin) {
                    Ok(()) => self.hand_over(slot, nsid, medium, admin),
                    Err(status) => {
                        Self::release(std::mem::take(&mut self.slots.get_mut(slot).sink), buffers);
                        self.answer(slot, status, 0);
                    }
                }
            }
            Command::Connect => self.execute_connect(now, slot),
            Command::AuthenticationSend => self.execute_authentication_send(now, slot),
            Command::AuthenticationReceive => self.execute_authentication_receive(now, slot),
            Command::PropertyGet { offset, eight_bytes } => {
                let (offset, eight_bytes) = (*offset, *eight_bytes);
                match self.property(offset, eight_bytes) {
                    Ok(value) => self.answer(slot, Status::SUCCESS, value),
                    Err(status) => self.answer(slot, status, 0),
                }
            }
            Command::PropertySet(PropertySet::Configuration(cc)) => {
                let cc = *cc;
                if let Some(link) = &self.link {
                    link.controller.set_cc(cc);
                }
                if cc.enable() == 0 {
                    self.drop_events();
                }
                self.answer(slot, Status::SUCCESS, 0);
            }
            Command::Disconnect => {
                self.answer(slot, Status::SUCCESS, 0);
                self.end(None, State::Draining);
            }
        }
    }

    fn execute_io(&mut self, slot: u32, buffers: &mut impl Buffers) {
        let Some(link) = &self.link else { return };
        let command = self.slots.get_mut(slot);
        let sink = std::mem::take(&mut command.sink);
        let data = match &sink {
            Sink::Buffer(buffer) => Some(BufferSlice::new(*buffer, command.len)),
            Sink::None | Sink::Memory(_) => None,
        };
        let parameters = match &sink {
            Sink::Memory(memory) => memory.as_slice(),
            Sink::None | Sink::Buffer(_) => &[],
        };
        let Command::Io(io) = &command.command else { return };
        let host_behavior = matches!(io, Io::Copy { .. }).then(|| link.controller.host_behavior());
        let write_cache = link.controller.write_cache();
        let context = Context { namespaces: &link.namespaces, write_cache, host_behavior };
        match io::request(&command.sqe, io, command.len, data, parameters, &context) {
            Ok(Some((medium, operation))) => {
                let nsid = command.sqe.nsid();
                let tag = self.slots.tag(slot);
                self.requests.push_back(Request { tag, nsid, medium, operation });
            }
            Ok(None) => self.answer(slot, Status::SUCCESS, 0),
            Err(status) => {
                let nsid = command.sqe.nsid();
                self.note_denial(nsid, status);
                Self::release(sink, buffers);
                self.answer(slot, status, 0);
            }
        }
    }

    /// A reservation may have been made while the data of a command of the embedder's was on its way.
    fn check_other(&self, nsid: u32, admin: bool) -> Result<(), Status> {
        match &self.link {
            Some(link) if !admin => io::check_other(&link.namespaces, nsid),
            _ => Ok(()),
        }
    }

    /// A command whose meaning is the embedder's.
    fn hand_over(&mut self, slot: u32, nsid: u32, medium: MediumId, admin: bool) {
        let command = self.slots.get_mut(slot);
        let data = match std::mem::take(&mut command.sink) {
            Sink::Buffer(buffer) => Some(BufferSlice::new(buffer, command.len)),
            Sink::None | Sink::Memory(_) => None,
        };
        if data.is_some() {
            command.len = 0;
        }
        let answer_len_max = command.len;
        let other = OtherCommand { sqe: Box::new(command.sqe), admin, data, answer_len_max };
        let tag = self.slots.tag(slot);
        self.requests.push_back(Request { tag, nsid, medium, operation: Operation::Other(other) });
    }

    // -- admin --------------------------------------------------------------------------------------------------------

    fn execute_admin(&mut self, now: Instant, slot: u32, admin: &Admin) {
        let parameters = match std::mem::take(&mut self.slots.get_mut(slot).sink) {
            Sink::Memory(memory) => memory,
            Sink::None | Sink::Buffer(_) => Vec::new(),
        };
        match self.admin_outcome(now, slot, admin, &parameters) {
            Ok(Outcome::Answer(result, data)) => self.answer_bytes(slot, &data, result),
            Ok(Outcome::Page(data, zeroes)) => self.answer_padded(slot, &data, zeroes, 0),
            Ok(Outcome::Embedder) => {
                let nsid = self.slots.get(slot).sqe.nsid();
                let namespace = self.link.as_ref().and_then(|link| link.namespaces.get(nsid));
                let medium = namespace.map_or(MediumId(u64::MAX), |namespace| namespace.medium);
                self.slots.get_mut(slot).command = Command::Other { nsid, medium, admin: true };
                self.hand_over(slot, nsid, medium, true);
            }
            Ok(Outcome::Later(stage)) => self.slots.get_mut(slot).stage = stage,
            Err(status) => self.answer(slot, status, 0),
        }
        if matches!(admin, Admin::AsyncEventRequest | Admin::GetLogPage { .. } | Admin::SetFeatures { .. }) {
            self.tell_events();
        }
        self.note_activity(now, matches!(admin, Admin::KeepAlive | Admin::SetFeatures { .. }));
    }

    fn admin_outcome(&mut self, now: Instant, slot: u32, admin: &Admin, parameters: &[u8]) -> Result<Outcome, Status> {
        let Some(link) = &self.link else { return Err(Status::COMMAND_SEQUENCE_ERROR.dnr()) };
        let controller = &link.controller;
        let all_command_sets = controller.cc().css() == CSS_ALL;
        match *admin {
            Admin::Identify { cns, nsid, controller: first, csi } => {
                let question = Question { cns, nsid, controller: first, csi };
                Ok(match identify::answer(controller, &link.namespaces, all_command_sets, question)? {
                    identify::Answer::Ours(bytes) => Outcome::Answer(0, bytes),
                    identify::Answer::Embedder => Outcome::Embedder,
                })
            }
            Admin::GetLogPage { lid, offset, len, csi, groups_only, retain_event } => {
                let by_index = self.slots.get(slot).sqe.log_offset_is_index();
                if len > u64::from(controller.subsystem.config.transfer_len_max) || by_index {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                let clear = !retain_event;
                let wanted = logs::Wanted { lid, csi, groups_only, taken: clear.then_some(offset) };
                match logs::page(&self.subsystems, controller, wanted, self.config.local_address)? {
                    logs::Answer::Embedder => Ok(Outcome::Embedder),
                    logs::Answer::Ours(page) => {
                        let (bytes, zeroes) = logs::part(&page, offset, len as usize)?;
                        if clear {
                            controller.unmask(lid);
                        }
                        Ok(Outcome::Page(bytes.to_vec(), zeroes))
                    }
                }
            }
            Admin::GetFeatures { fid, nsid, select, value } => {
                let answer = features::get(controller, now, (fid, nsid), select, value)?;
                Ok(Outcome::Answer(answer.value.into(), answer.data))
            }
            Admin::SetFeatures { fid, nsid, value } => {
                let save = self.slots.get(slot).sqe.feature_save();
                let answer = features::set(controller, now, (fid, nsid), value, save, parameters)?;
                Ok(Outcome::Answer(answer.value.into(), Vec::new()))
            }
            Admin::Abort { queue_id, cid } => self.abort(slot, queue_id, cid),
            Admin::AsyncEventRequest => {
                if self.events.len() >= ASYNC_EVENTS_MAX.into() {
                    return Err(Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED.dnr());
                }
                self.events.push_back(self.slots.tag(slot));
                Ok(Outcome::Later(Stage::AwaitsEvent))
            }
            Admin::KeepAlive => Ok(Outcome::Answer(0, Vec::new())),
        }
    }

    /// Restarts the timer of Keep Alive. Discovery controllers without a timeout count every command.
    fn note_activity(&mut self, now: Instant, restarts: bool) {
        self.was_late = false;
        let Some(link) = &self.link else { return };
        if restarts || link.controller.subsystem.is_discovery() && link.controller.features().keep_alive_ms == 0 {
            self.deadline = Some(now + self.keep_alive(link));
        }
    }

    // -- events -------------------------------------------------------------------------------------------------------

    /// Answers requests for events with what there is to tell.
    pub(super) fn tell_events(&mut self) {
        while let Some(tag) = self.events.front().copied() {
            let Some(slot) = self.slots.tagged(tag) else {
                self.events.pop_front();
                continue;
            };
            let Some(result) = self.link.as_ref().and_then(|link| link.controller.next_event()) else { return };
            self.events.pop_front();
            self.answer(slot, Status::SUCCESS, result);
        }
    }

    /// A reset ends the requests for events without an answer (Base 5.1.2).
    fn drop_events(&mut self) {
        for tag in std::mem::take(&mut self.events) {
            if let Some(slot) = self.slots.tagged(tag) {
                self.slots.remove(slot);
            }
        }
    }

    // -- abort --------------------------------------------------------------------------------------------------------

    fn abort(&mut self, slot: u32, queue_id: u16, cid: u16) -> Result<Outcome, Status> {
        let outstanding = self.slots.indices().filter(|slot| self.slots.get(*slot).stage == Stage::AwaitsAbort);
        if outstanding.count() >= ABORTS_MAX.into() {
            return Err(Status::ABORT_COMMAND_LIMIT_EXCEEDED.dnr());
        }
        if queue_id == 0 {
            let own = self.slots.get(slot).sqe.cid() == cid;
            let aborted = !own && self.abort_here(cid);
            return Ok(Outcome::Answer(abort_result(aborted), Vec::new()));
        }
        let order = AbortOrder { cid, abort: self.slots.tag(slot) };
        let ordered = self.link.as_ref().is_some_and(|link| link.controller.order_abort(queue_id, order));
        if ordered {
            Ok(Outcome::Later(Stage::AwaitsAbort))
        } else {
            Ok(Outcome::Answer(abort_result(false), Vec::new()))
        }
    }

    /// Ends a command of this queue if it has not begun; asks the embedder to, if it has. Returns whether it ended.
    fn abort_here(&mut self, cid: u16) -> bool {
        let Some(slot) = self.slots.find(cid) else { return false };
        match self.slots.get(slot).stage {
            // Before its data was asked for: afterwards the data that is on its way would find no command.
            Stage::AwaitsBuffer | Stage::AwaitsEvent => {
                self.answer(slot, Status::COMMAND_ABORT_REQUESTED, 0);
                true
            }
            Stage::WithEmbedder => {
                let nsid = self.slots.get(slot).sqe.nsid();
                if !std::mem::replace(&mut self.slots.get_mut(slot).is_cancelled, true) {
                    self.requests.push_back(Request::cancel(self.slots.tag(slot), nsid));
                }
                false
            }
            Stage::InCapsule | Stage::AwaitsData | Stage::AwaitsAbort | Stage::AwaitsOthers | Stage::Free => false,
        }
    }

    /// An I/O queue does what the admin queue asked for.
    pub(super) fn obey_aborts(&mut self) {
        let Some(link) = &self.link else { return };
        let controller = link.controller.clone();
        for order in controller.take_abort_orders(link.queue_id) {
            let aborted = self.abort_here(order.cid);
            controller.answer_abort(order.abort, aborted);
        }
    }

    /// The admin queue passes on what I/O queues said.
    pub(super) fn finish_aborts(&mut self) {
        let Some(link) = &self.link else { return };
        for (tag, aborted) in link.controller.take_abort_answers() {
            let waits = |slot: &u32| self.slots.get(*slot).stage == Stage::AwaitsAbort;
            if let Some(slot) = self.slots.tagged(tag).filter(waits) {
                self.answer(slot, Status::SUCCESS, abort_result(aborted));
            }
        }
    }

    // -- fabrics ------------------------------------------------------------------------------------------------------

    fn property(&self, offset: u32, eight_bytes: bool) -> Result<u64, Status> {
        let link = self.link.as_ref().ok_or(Status::COMMAND_SEQUENCE_ERROR.dnr())?;
        let controller = &link.controller;
        match (offset, eight_bytes) {
            (property::CAP, true) => Ok(capabilities(controller).0),
            (property::VS, false) => Ok(VERSION.0.into()),
            (property::CC, false) => Ok(controller.cc().0.into()),
            (property::CSTS, false) => Ok(controller.csts().0.into()),
            (property::CRTO, false) => Ok(READY_TIMEOUT_500MS.into()),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    fn execute_connect(&mut self, now: Instant, slot: u32) {
        let Sink::Memory(data) = std::mem::take(&mut self.slots.get_mut(slot).sink) else { return };
        let sqe = self.slots.get(slot).sqe;
        match self.connect(&sqe, &data) {
            Err((status, error)) => {
                if status == Status::CONNECT_INVALID_HOST {
                    let named = ConnectData::ref_from_bytes(&data).ok();
                    self.refused = named.and_then(|data| Nqn::from_field(&data.host_nqn).ok());
                }
                // A host that lost its connections connects again before they have ended here.
                let status = if status == Status::CONNECT_CONTROLLER_BUSY { status } else { status.dnr() };
                self.answer(slot, status, error.map_or(0, ConnectError::to_result));
            }
            Ok(link) => {
                let asks = match link.authenticated {
                    true => 0,
                    false if link.must_concatenate => AUTHENTICATION_REQUIRED | CONCATENATION_REQUIRED,
                    false => AUTHENTICATION_REQUIRED,
                };
                let result = u64::from(link.controller.cntlid) | asks;
                self.slots.expect(link.entries);
                self.deadline = None;
                if !link.authenticated {
                    self.authentication_deadline = Some(now + self.config.authentication_timeout);
                } else if link.queue_id == 0 {
                    self.deadline = Some(now + self.keep_alive(&link));
                }
                let flow_control = link.flow_control;
                self.link = Some(link);
                self.state = State::Live;
                if flow_control {
                    self.answer(slot, Status::SUCCESS, result);
                } else {
                    // A queue head of FFFFh says that flow control is off (Base 6.3).
                    self.slots.remove(slot);
                    let cqe = Cqe::new(sqe.cid(), Status::SUCCESS, result);
                    self.respond_raw(cqe.with_sqhd(0xffff));
                }
            }
        }
    }

    fn connect(&self, sqe: &Sqe, data: &[u8]) -> Result<Link, (Status, Option<ConnectError>)> {
        let in_command = |offset| (Status::CONNECT_INVALID_PARAMETERS, Some(ConnectError::InCommand(offset)));
        let in_data = |offset| (Status::CONNECT_INVALID_PARAMETERS, Some(ConnectError::InData(offset)));
        if sqe.connect_record_format() != 0 {
            return Err((Status::CONNECT_INCOMPATIBLE_FORMAT, None));
        }
        let data = ConnectData::ref_from_bytes(data).map_err(|_| (Status::INTERNAL_ERROR, None))?;
        let subsystem_nqn = Nqn::from_field(&data.subsystem_nqn).map_err(|_| in_data(at::SUBSYSTEM_NQN))?;
        let host = match data.host_nqn[0] {
            // SPDK's programs send this unless they are given a name, though the specification asks for one.
            0 => Nqn::anonymous(&data.host_id),
            _ => Nqn::from_field(&data.host_nqn).map_err(|_| in_data(at::HOST_NQN))?,
        };
        let subsystem = self.subsystems.get(&subsystem_nqn).ok_or(in_data(at::SUBSYSTEM_NQN))?;
        let arrival = match &self.channel {
            _ if self.config.trusted => Arrival::Embedded,
            Some((names, ChannelKind::Known)) => Arrival::Channel(names),
            Some((names, ChannelKind::Generated)) => Arrival::Concatenated(names),
            None => Arrival::Plain,
        };
        // With what it authenticates, and whether it must before anything else.
        let (keys, must_prove) = match subsystem.admission(&host, arrival) {
            Admission::Refused => return Err((Status::CONNECT_INVALID_HOST, None)),
            Admission::Open => (None, false),
            Admission::WithKey(keys, accepted, concatenation) => (Some((keys, accepted, concatenation)), true),
            Admission::Proved(keys, accepted) => (Some((keys, accepted, Concatenation::Replace)), false),
        };
        let must_concatenate = matches!(keys, Some((.., Concatenation::Required)));
        // A host that still has to prove its identity takes no place of the host it claims to be.
        let place = match must_prove {
            false => Some(subsystem.place(&host).ok_or((Status::CONNECT_CONTROLLER_BUSY, None))?),
            true => None,
        };
        let queue_id = sqe.connect_queue_id();
        let most = if queue_id == 0 { ADMIN_ENTRIES_MAX } else { subsystem.config.queue_entries_max };
        let sqsize = sqe.connect_sqsize();
        if sqsize == 0 || sqsize >= most {
            return Err(in_command(at::SQSIZE));
        }
        let close = Arc::new(AtomicBool::new(false));
        let (controller, all_command_sets) = if queue_id == 0 {
            if data.controller_id.get() != CONTROLLER_ID_DYNAMIC {
                return Err(in_data(at::CONTROLLER_ID));
            }
            if self.subsystems.is_shutting_down() {
                return Err((Status::CONNECT_CONTROLLER_BUSY, None));
            }
            let keep_alive_ms = sqe.connect_keep_alive_ms();
            let (of, waker) = (subsystem.clone(), self.waker.clone());
            let standing = match must_prove {
                true => Standing::Unproved,
                false if self.config.trusted => Standing::Trusted,
                false => Standing::Named,
            };
            let make = |cntlid| {
                let made = Controller::new(cntlid, host, data.host_id, of, keep_alive_ms, waker, standing);
                made.through(self.config.listener)
            };
            (subsystem.attach(make).ok_or((Status::CONNECT_CONTROLLER_BUSY, None))?, false)
        } else {
            if subsystem.is_discovery() || queue_id > subsystem.config.io_queues_max {
                return Err(in_command(at::QUEUE_ID));
            }
            let claim = Claim { cntlid: data.controller_id.get(), host: &host, host_id: &data.host_id };
            let (of, waker) = (subsystem.clone(), self.waker.clone());
            if !must_prove {
                let controller = self.controller_of(&subsystem, claim)?;
                if !controller.add_queue(queue_id, waker, close.clone()) {
                    return Err((Status::INVALID_QUEUE_IDENTIFIER, None));
                }
                let all_command_sets = controller.cc().css() == CSS_ALL;
                (controller, all_command_sets)
            } else if must_concatenate {
                // I/O queues come over the channel that the admin queue's authentication made the key of.
                return Err((Status::AUTHENTICATION_REQUIRED, None));
            } else {
                // Any answer about the controller would be one to anybody who knows the host's name: until it has
                // proved that it is this host, the queue is one of a controller that nobody else knows.
                let cntlid = claim.cntlid;
                let stand_in = Controller::new(cntlid, host, data.host_id, of, 0, waker, Standing::Unproved);
                (Arc::new(stand_in), false)
            }
        };
        let authentication = keys.map(|(keys, accepted, concatenation)| {
            let names = auth::Names { host: controller.host.clone(), subsystem: subsystem_nqn };
            let concatenation = if queue_id == 0 { concatenation } else { Concatenation::Never };
            Box::new(auth::Controller::new(names, keys, accepted).concatenating(concatenation))
        });
        let is_io = queue_id != 0 && !must_prove;
        let inboxes = &subsystem.reservations.inboxes;
        let fence_inbox = is_io.then(|| inboxes.add(controller.host_id, None, self.waker.clone()));
        Ok(Link {
            queue_id,
            entries: sqsize + 1,
            flow_control: !sqe.connect_disables_flow_control(),
            sqhd: 0,
            namespaces: subsystem.snapshot_for(&controller),
            all_command_sets,
            counters: controller.add_counters(),
            controller,
            close,
            authenticated: !must_prove,
            must_concatenate,
            authentication,
            place,
            fence_inbox,
        })
    }

    /// The controller of which an I/O queue wants to be, if it may.
    pub(super) fn controller_of(
        &self,
        subsystem: &Subsystem,
        claim: Claim<'_>,
    ) -> Result<Arc<Controller>, (Status, Option<ConnectError>)> {
        let in_data = |offset| (Status::CONNECT_INVALID_PARAMETERS, Some(ConnectError::InData(offset)));
        let found = subsystem.controller(claim.cntlid).filter(|found| !found.is_closed());
        // A controller of this process's own host has no bounds, so no connection from outside is one of its queues.
        let found = found.filter(|found| found.trusted == self.config.trusted);
        let controller = found.ok_or(in_data(at::CONTROLLER_ID))?;
        // The name of a host that gave none is made of its identifier.
        if controller.host_id != *claim.host_id {
            return Err(in_data(at::HOST_ID));
        }
        if controller.host != *claim.host {
            return Err(in_data(at::HOST_NQN));
        }
        if !controller.is_authenticated() || controller.awaits_channel() {
            return Err((Status::AUTHENTICATION_REQUIRED, None));
        }
        if !controller.is_ready() {
            return Err((Status::COMMAND_SEQUENCE_ERROR, None));
        }
        Ok(controller)
    }
}

/// What an I/O queue says of the controller that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) cntlid: u16,
    pub(super) host: &'a Nqn,
    pub(super) host_id: &'a [u8; 16],
}

/// Dword 0 of the answer to Abort: bit 0 is set if the command was not aborted (Base 5.1.1).
fn abort_result(aborted: bool) -> u64 {
    u64::from(!aborted)
}

fn capabilities(controller: &Controller) -> Cap {
    let subsystem = &controller.subsystem;
    let most = if subsystem.is_discovery() { ADMIN_ENTRIES_MAX } else { subsystem.config.queue_entries_max };
    Cap::default()
        .with_mqes(u64::from(most) - 1)
        .with_cqr(1)
        .with_to(READY_TIMEOUT_500MS.into())
        .with_css_nvm(1)
        .with_css_multiple(u64::from(!subsystem.is_discovery()))
        .with_crms_with_media(1)
}
