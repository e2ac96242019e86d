//! The data that arrives: PDUs, the data of commands, and the buffers it goes to.

use std::time::Instant;

use crate::buffer::{BufferPool, Buffers};
use crate::pdu::{Digests, Encoder, Header, Payload};
use crate::status::Status;
use crate::wire::{FabricsType, FatalError, IcReq, IcResp, R2t, SglKind, Sqe, admin_opcode};

use super::command::{
    Admin, Command, Io, QueueKind, Transfer, check_flags, other_transfer, parse_admin, parse_fabrics,
};
use super::connection::{Connection, ConnectionError, Inbound, State};
use super::io;
use super::request::MediumId;
use super::reservations::CONFLICT;
use super::slots::{Sink, Stage};

/// How the data of a command comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// It has none from the host.
    None,
    /// In its capsule.
    InCapsule,
    /// When it is asked for.
    ByR2t,
}

/// Byte offsets in PDUs, for Fatal Error Information.
mod at {
    pub(super) const FLAGS: u32 = 1;
    pub(super) const CCCID: u32 = 8;
    pub(super) const VERSION: u32 = 8;
    pub(super) const TTAG: u32 = 10;
    pub(super) const ALIGNMENT: u32 = 10;
}

/// The largest HPDA: 128 bytes (TCP 3.6.2.2).
const ALIGNMENT_MAX: u8 = 31;

impl Connection {
    pub(super) fn on_header(&mut self, now: Instant, header: Header, pool: &mut impl BufferPool) {
        match header {
            Header::IcReq(request) => self.on_ic_req(&request),
            Header::Command { sqe, data_len } => self.on_command(now, sqe, data_len, pool),
            Header::H2cData { cccid, ttag, offset, len, last } => self.on_h2c_data(cccid, ttag, offset, len, last),
            Header::TermReq(error) => self.end(Some(ConnectionError::Terminated(error)), State::Closed),
            // The decoder lets nothing else through to a controller.
            Header::IcResp(_) | Header::Response(_) | Header::C2hData { .. } | Header::R2t { .. } => {
                self.terminate(FatalError::PduSequence);
            }
        }
    }

    fn on_ic_req(&mut self, request: &IcReq) {
        if request.version.get() != 0 {
            return self.terminate(FatalError::InvalidHeaderField(at::VERSION));
        }
        if request.alignment > ALIGNMENT_MAX {
            return self.terminate(FatalError::InvalidHeaderField(at::ALIGNMENT));
        }
        let digests = Digests {
            header: request.header_digest() && self.config.allow_header_digest,
            data: request.data_digest() && self.config.allow_data_digest,
        };
        let response = IcResp::new(digests.header, digests.data, self.config.h2c_data_len_max);
        self.encoder.initialize(&mut self.out, &response);
        self.decoder.negotiated(digests);
        self.encoder = Encoder::new(digests, request.alignment);
        self.state = State::Connecting;
    }

    pub(super) fn on_command(&mut self, now: Instant, sqe: Sqe, data_len: u32, pool: &mut impl BufferPool) {
        self.inbound = Inbound::Discard;
        let entries = self.link.as_ref().map_or(1, |link| {
            if link.authenticated {
                link.controller.note_command();
            }
            u32::from(link.entries)
        });
        if self.commands_outstanding() >= entries {
            // More commands than the queue has entries: there is no answer that such a host could place.
            return self.terminate(FatalError::PduSequence);
        }
        if let Some(slot) = self.slots.find(sqe.cid())
            && !self.takes_back_event_request(slot, &sqe)
        {
            return self.refuse(&sqe, Status::COMMAND_ID_CONFLICT.dnr());
        }
        let checked = self.parse(&sqe).and_then(|(command, transfer)| {
            let arrival = arrival(&sqe, transfer, data_len)?;
            Ok((command, transfer, arrival))
        });
        let (command, transfer, arrival) = match checked {
            Ok(checked) => checked,
            Err(status) => return self.refuse(&sqe, status),
        };
        match arrival {
            Arrival::None => {
                let len = if let Transfer::ToHost(len) = transfer { len } else { 0 };
                let slot = self.slots.insert(sqe, command, Stage::WithEmbedder, len);
                self.execute(now, slot, pool);
            }
            Arrival::InCapsule => self.begin_in_capsule(sqe, command, transfer, data_len, pool),
            Arrival::ByR2t => self.begin_by_r2t(sqe, command, transfer, pool),
        }
    }

    /// A host that shuts a controller down, or resets it, has given up its requests for events: SPDK then uses their
    /// identifiers for Property Get and Property Set. An answer to such a request would be taken for that of the command, so
    /// it ends without one. Returns whether it did.
    fn takes_back_event_request(&mut self, slot: u32, sqe: &Sqe) -> bool {
        let is_request = self.slots.get(slot).stage == Stage::AwaitsEvent;
        let is_property = sqe.opcode() == admin_opcode::FABRICS
            && [FabricsType::PropertyGet, FabricsType::PropertySet]
                .map(|kind| kind as u8)
                .contains(&sqe.fabrics_type());
        if is_request && is_property {
            let tag = self.slots.tag(slot);
            self.events.retain(|event| *event != tag);
            self.slots.remove(slot);
        }
        is_request && is_property
    }

    fn parse(&self, sqe: &Sqe) -> Result<(Command, Transfer), Status> {
        let fabrics = sqe.opcode() == admin_opcode::FABRICS;
        let Some(link) = &self.link else {
            check_flags(sqe)?;
            // Connect comes first (Base 3.3.2.2).
            return match parse_fabrics(sqe, QueueKind::Admin) {
                Ok((Command::Connect, transfer)) if fabrics => Ok((Command::Connect, transfer)),
                _ => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            };
        };
        let authenticates = fabrics && is_authentication(sqe);
        if !link.authenticated && !authenticates {
            return Err(Status::AUTHENTICATION_REQUIRED.dnr());
        }
        if authenticates && link.authentication.is_none() {
            return Err(Status::INVALID_OPCODE.dnr());
        }
        let config = &link.controller.subsystem.config;
        if link.queue_id > 0 && !fabrics {
            return io::parse(sqe, config, &link.namespaces, link.all_command_sets);
        }
        check_flags(sqe)?;
        if fabrics {
            let kind = if link.queue_id == 0 { QueueKind::Admin } else { QueueKind::Io };
            return match parse_fabrics(sqe, kind)? {
                (Command::Connect, _) => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
                (Command::AuthenticationSend, _) if self.is_sending_authentication() => {
                    Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
                }
                parsed => Ok(parsed),
            };
        }
        if !link.controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        let standard = parse_admin(sqe);
        // In the clear a host that is to come over a channel gets to know the controller, and no more.
        let is_ours = matches!(standard, None | Some((Admin::GetLogPage { lid: VENDOR_LOG_PAGES.., .. }, _)));
        if is_ours && link.controller.awaits_channel() {
            return Err(Status::AUTHENTICATION_REQUIRED.dnr());
        }
        if let Some((admin, transfer)) = standard {
            return Ok((Command::Admin(admin), transfer));
        }
        let declared = config.command_sets.iter().flat_map(|set| &set.admin_commands);
        if !declared.map(|(opcode, _)| *opcode).any(|opcode| opcode == sqe.opcode()) {
            return Err(Status::INVALID_OPCODE.dnr());
        }
        if link.namespaces.get(sqe.nsid()).is_some() {
            link.namespaces.path.check()?;
        }
        let transfer = other_transfer(sqe)?;
        if let Transfer::ToPool(len) | Transfer::ToHost(len) = transfer
            && len > config.transfer_len_max
        {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let medium = link.namespaces.get(sqe.nsid()).map_or(MediumId(u64::MAX), |namespace| namespace.medium);
        Ok((Command::Other { nsid: sqe.nsid(), medium, admin: true }, transfer))
    }

    /// The data is right behind the command.
    fn begin_in_capsule(
        &mut self,
        sqe: Sqe,
        command: Command,
        transfer: Transfer,
        data_len: u32,
        pool: &mut impl BufferPool,
    ) {
        let (sink, len) = match transfer {
            Transfer::ToPool(len) => match pool.acquire_arriving(len) {
                Some(buffer) => (Sink::Buffer(buffer), len),
                // Data that we asked for may be behind this command in the stream, and the buffers that it fills may be
                // the ones to wait for: then reading continues, as long as what is kept meanwhile is little. Otherwise it stops here.
                None if self.r2ts > 0 && self.unplaced_bytes() + len <= UNPLACED_MAX => {
                    (Sink::Memory(vec![0; len as usize]), len)
                }
                None => {
                    self.held = Some((sqe, data_len));
                    return;
                }
            },
            Transfer::ToUs(len) | Transfer::ToHost(len) => (Sink::Memory(vec![0; len as usize]), len),
            Transfer::None => (Sink::None, 0),
        };
        let slot = self.slots.insert(sqe, command, Stage::InCapsule, len);
        self.slots.get_mut(slot).sink = sink;
        self.inbound = Inbound::Slot { slot, at: 0 };
    }

    /// Bytes of data that came in capsules and wait for a buffer, in memory that no pool bounds.
    fn unplaced_bytes(&self) -> u32 {
        let waiting = self.waiting.iter().filter_map(|tag| self.slots.tagged(*tag));
        let kept = waiting.map(|slot| match &self.slots.get(slot).sink {
            Sink::Memory(data) => data.len() as u32,
            Sink::None | Sink::Buffer(_) => 0,
        });
        kept.sum()
    }

    /// The data must be asked for, once there is a buffer for it.
    fn begin_by_r2t(&mut self, sqe: Sqe, command: Command, transfer: Transfer, pool: &mut impl BufferPool) {
        let (Transfer::ToPool(len) | Transfer::ToUs(len) | Transfer::ToHost(len)) = transfer else { return };
        let slot = self.slots.insert(sqe, command, Stage::AwaitsBuffer, len);
        if let Transfer::ToUs(_) = transfer {
            self.parameters_unasked.push_back(self.slots.tag(slot));
            return self.ask_for_parameters();
        }
        let buffer = if self.waiting.is_empty() { pool.acquire(len) } else { None };
        match buffer {
            Some(buffer) => {
                self.slots.get_mut(slot).sink = Sink::Buffer(buffer);
                self.ask_for_data(slot);
            }
            None => self.waiting.push_back(self.slots.tag(slot)),
        }
    }

    /// Asks for the parameters of commands, oldest first, until there is memory for as many as one queue may have on their
    /// way. A host that never sends them holds that much and no more.
    fn ask_for_parameters(&mut self) {
        while let Some(tag) = self.parameters_unasked.front().copied() {
            if let Some(slot) = self.slots.tagged(tag) {
                let command = self.slots.get_mut(slot);
                if self.parameters_asked > 0 && self.parameters_asked + command.len > PARAMETERS_ASKED_MAX {
                    return;
                }
                self.parameters_asked += command.len;
                command.sink = Sink::Memory(vec![0; command.len as usize]);
                self.ask_for_data(slot);
            }
            self.parameters_unasked.pop_front();
        }
    }

    /// Sends the next R2T of a command.
    fn ask_for_data(&mut self, slot: u32) {
        let most = self.config.r2t_len_max;
        let command = self.slots.get_mut(slot);
        command.stage = Stage::AwaitsData;
        let len = (command.len - command.done).min(most);
        command.r2t_end = command.done + len;
        // The slot is the tag: a command has one R2T outstanding at a time.
        let r2t = R2t::new(command.sqe.cid(), slot as u16, command.done, len);
        self.r2ts += 1;
        self.awaited_bytes += u64::from(len);
        self.encoder.put(&mut self.out, &r2t, 0, Payload::None);
    }

    fn on_h2c_data(&mut self, cccid: u16, ttag: u16, offset: u32, len: u32, last: bool) {
        let Some(command) = self.slots.checked(ttag.into()).filter(|slot| slot.stage == Stage::AwaitsData) else {
            return self.terminate(FatalError::InvalidHeaderField(at::TTAG));
        };
        if command.sqe.cid() != cccid {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        }
        let end = u64::from(offset) + u64::from(len);
        if offset != command.done || end > command.r2t_end.into() {
            return self.terminate(FatalError::DataTransferOutOfRange);
        }
        if last != (end == command.r2t_end.into()) {
            return self.terminate(FatalError::InvalidHeaderField(at::FLAGS));
        }
        self.awaited_bytes -= u64::from(len);
        self.inbound = Inbound::Slot { slot: ttag.into(), at: offset };
    }

    pub(super) fn on_data(&mut self, data: &[u8], pool: &mut impl BufferPool) {
        let Inbound::Slot { slot, at } = self.inbound else { return };
        let command = self.slots.get_mut(slot);
        // A capsule may carry more than the command needs: what is behind its end is dropped.
        let wanted = &data[..data.len().min(command.len.saturating_sub(at) as usize)];
        if !wanted.is_empty() {
            match &mut command.sink {
                Sink::Buffer(buffer) if !self.placed => pool.write(*buffer, at, wanted),
                Sink::Memory(memory) => memory[at as usize..][..wanted.len()].copy_from_slice(wanted),
                Sink::Buffer(_) | Sink::None => {}
            }
        }
        self.inbound = Inbound::Slot { slot, at: at + data.len() as u32 };
    }

    pub(super) fn on_end(&mut self, now: Instant, intact: bool, pool: &mut impl BufferPool) {
        let Inbound::Slot { slot, at } = std::mem::replace(&mut self.inbound, Inbound::Discard) else { return };
        let command = self.slots.get_mut(slot);
        command.damaged |= !intact;
        if command.stage == Stage::AwaitsData {
            command.done = at;
            if command.done < command.r2t_end {
                return;
            }
            let complete = command.done == command.len;
            self.r2ts -= 1;
            if !complete {
                return self.ask_for_data(slot);
            }
        }
        self.on_complete_data(now, slot, pool);
    }

    /// All data of a command came.
    fn on_complete_data(&mut self, now: Instant, slot: u32, pool: &mut impl BufferPool) {
        let command = self.slots.get_mut(slot);
        command.done = 0;
        // Only parameters are asked for into memory.
        if let (Stage::AwaitsData, Sink::Memory(parameters)) = (command.stage, &command.sink) {
            self.parameters_asked -= parameters.len() as u32;
            self.ask_for_parameters();
        }
        let command = self.slots.get_mut(slot);
        if command.damaged {
            if let Sink::Buffer(buffer) = std::mem::take(&mut command.sink) {
                pool.release(buffer);
            }
            // The host's data was fine where it was sent: a retry can help.
            return self.answer(slot, Status::TRANSIENT_TRANSPORT_ERROR, 0);
        }
        let to_pool =
            matches!(command.command, Command::Io(Io::Write { .. } | Io::Compare { .. }) | Command::Other { .. });
        if to_pool && matches!(command.sink, Sink::Memory(_)) {
            command.stage = Stage::AwaitsBuffer;
            let tag = self.slots.tag(slot);
            self.waiting.push_back(tag);
            return self.serve_waiting(now, pool);
        }
        self.execute(now, slot, pool);
    }

    /// Gives buffers to the commands that wait for one, oldest first, as long as there are any.
    pub(super) fn serve_waiting(&mut self, now: Instant, pool: &mut impl BufferPool) {
        while let Some(tag) = self.waiting.front().copied() {
            let Some(slot) = self.slots.tagged(tag) else {
                self.waiting.pop_front();
                continue;
            };
            let command = self.slots.get_mut(slot);
            let buffer = match command.sink {
                // Its data is here, and waits for none that is to come.
                Sink::Memory(_) => pool.acquire_arriving(command.len),
                Sink::None | Sink::Buffer(_) => pool.acquire(command.len),
            };
            let Some(buffer) = buffer else { return };
            self.waiting.pop_front();
            match std::mem::replace(&mut command.sink, Sink::Buffer(buffer)) {
                Sink::Memory(data) => {
                    pool.write(buffer, 0, &data);
                    self.execute(now, slot, pool);
                }
                Sink::None | Sink::Buffer(_) => self.ask_for_data(slot),
            }
        }
    }

    /// Refuses a command before it has a place. Its data, if any, is dropped.
    fn refuse(&mut self, sqe: &Sqe, status: Status) {
        self.log_failure(sqe, status);
        self.note_denial(sqe.nsid(), status);
        self.count_refused();
        self.respond(sqe.cid(), status, 0);
    }

    /// The embedder learns of a command to which the host has no right, or from which a reservation keeps it: such statuses are of other
    /// faults, too.
    pub(super) fn note_denial(&self, nsid: u32, status: Status) {
        let may_be = [CONFLICT, Status::INVALID_NAMESPACE_OR_FORMAT.dnr(), Status::NAMESPACE_WRITE_PROTECTED.dnr()];
        if let Some(link) = self.link.as_ref().filter(|_| may_be.contains(&status)) {
            link.controller.subsystem.note_denial(&link.controller, nsid, status == CONFLICT);
        }
    }

    pub(super) fn release(sink: Sink, buffers: &mut impl Buffers) {
        if let Sink::Buffer(buffer) = sink {
            buffers.release(buffer);
        }
    }
}

/// Bytes of parameters that a queue asks for before some have come: those of six Copies, the longest there are.
const PARAMETERS_ASKED_MAX: u32 = 64 << 10;

/// Bytes of data that a queue keeps without a buffer.
const UNPLACED_MAX: u32 = 64 << 10;

/// Log pages from here on are the vendor's (Base 5.1.12).
const VENDOR_LOG_PAGES: u8 = 0xc0;

/// Whether a Fabrics command is one of authentication, which the gate lets through.
fn is_authentication(sqe: &Sqe) -> bool {
    let kind = sqe.fabrics_type();
    kind == FabricsType::AuthenticationSend as u8 || kind == FabricsType::AuthenticationReceive as u8
}

/// Checks a command's SGL against the data that it needs and the data that came with it (Base 4.3.2, TCP 3.3.2).
fn arrival(sqe: &Sqe, transfer: Transfer, data_len: u32) -> Result<Arrival, Status> {
    let sgl = sqe.sgl();
    let (to_controller, len) = match transfer {
        Transfer::None => {
            return if data_len == 0 { Ok(Arrival::None) } else { Err(Status::INVALID_FIELD.dnr()) };
        }
        Transfer::ToHost(len) => (false, len),
        Transfer::ToPool(len) | Transfer::ToUs(len) => (true, len),
    };
    match sgl.kind() {
        SglKind::InCapsule if to_controller => {
            if sgl.address() != 0 {
                return Err(Status::SGL_OFFSET_INVALID.dnr());
            }
            if sgl.len() < len || data_len < sgl.len() {
                return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
            }
            Ok(Arrival::InCapsule)
        }
        SglKind::Transport => {
            if data_len > 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            if sgl.len() < len {
                return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
            }
            Ok(if to_controller { Arrival::ByR2t } else { Arrival::None })
        }
        SglKind::InCapsule | SglKind::Other(_) => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.dnr()),
    }
}
