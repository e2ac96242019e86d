//! The data that arrives at a host, and the PDUs that it sends.

use zerocopy::IntoBytes;

use crate::buffer::{BufferSlice, Buffers};
use crate::pdu::{BufferAfter, Digests, Encoder, Header, Payload};
use crate::status::Status;
use crate::transmit::After;
use crate::wire::{ConnectData, Cqe, FatalError, H2cData, IcResp, Sgl, Sqe, pdu_flags};

use super::commands::{Kind, Moved};
use super::connection::{Connection, ConnectionConfig, ConnectionError, Event, Inbound, State};
use super::submission::{Answer, CommandError, Completed, Data};

/// The least MAXH2CDATA that a controller may grant (TCP 3.6.2.3).
const H2C_DATA_MAX_LEAST: u32 = 4096;

/// Byte offsets in PDUs, for Fatal Error Information.
mod at {
    pub(super) const FLAGS: u32 = 1;
    pub(super) const VERSION: u32 = 8;
    pub(super) const CCCID: u32 = 8;
    pub(super) const ALIGNMENT: u32 = 10;
    pub(super) const DIGESTS: u32 = 11;
    pub(super) const H2C_DATA_MAX: u32 = 12;
    pub(super) const R2T_LEN: u32 = 16;
    pub(super) const RESPONSE_CID: u32 = 8 + 12;
}

/// The largest CPDA: 128 bytes (TCP 3.6.2.3).
const ALIGNMENT_MAX: u8 = 31;

impl Connection {
    pub(super) fn on_header(&mut self, header: Header, buffers: &mut impl Buffers) {
        match header {
            Header::IcResp(response) => self.on_ic_resp(&response, buffers),
            Header::Response(cqe) => self.on_response(cqe),
            Header::C2hData { cccid, offset, len, success, .. } => self.on_c2h_data(cccid, offset, len, success),
            Header::R2t { cccid, ttag, offset, len } => self.on_r2t(cccid, ttag, offset, len, buffers),
            Header::TermReq(error) => self.end(ConnectionError::Terminated(error), State::Closed),
            // The decoder lets nothing else through to a host.
            Header::IcReq(_) | Header::Command { .. } | Header::H2cData { .. } => {
                self.terminate(FatalError::PduSequence);
            }
        }
    }

    fn on_ic_resp(&mut self, response: &IcResp, buffers: &mut impl Buffers) {
        let invalid = FatalError::InvalidHeaderField;
        if response.version.get() != 0 {
            return self.terminate(invalid(at::VERSION));
        }
        if response.alignment > ALIGNMENT_MAX {
            return self.terminate(invalid(at::ALIGNMENT));
        }
        let digests = Digests { header: response.header_digest(), data: response.data_digest() };
        let ConnectionConfig { header_digest, data_digest, .. } = self.config;
        if digests.header && !header_digest || digests.data && !data_digest {
            return self.terminate(invalid(at::DIGESTS));
        }
        let most = response.h2c_data_max.get();
        if most < H2C_DATA_MAX_LEAST || !most.is_multiple_of(4) {
            return self.terminate(invalid(at::H2C_DATA_MAX));
        }
        if (digests.header, digests.data) != (header_digest, data_digest) {
            return self.end(ConnectionError::DigestsRefused, State::Draining);
        }
        self.h2c_data_max = most;
        self.decoder.negotiated(digests);
        self.encoder = Encoder::new(digests, response.alignment);
        self.state = State::Connecting;
        let ConnectionConfig { host, subsystem, queue_id, controller_id, entries, keep_alive_ms, .. } = &self.config;
        let data = ConnectData::new(host.id, *controller_id, subsystem.to_field(), host.nqn.to_field());
        let sqe = Sqe::connect(*queue_id, *entries, true, *keep_alive_ms);
        self.begin(Kind::Connect, sqe, Data::SendBytes(data.as_bytes().to_vec()), buffers);
    }

    /// Writes a command capsule and takes a slot for the command.
    pub(super) fn begin(&mut self, kind: Kind, mut sqe: Sqe, data: Data, buffers: &mut impl Buffers) -> u16 {
        let index = self.commands.insert();
        sqe.set_cid(self.commands.cid(index));
        let len = data.len();
        let to_controller = matches!(data, Data::Send(_) | Data::SendBytes(_));
        let in_capsule = to_controller && len > 0 && len <= self.config.in_capsule_len;
        sqe.set_sgl(if in_capsule { Sgl::in_capsule(len) } else { Sgl::transport(len) });
        let command = self.commands.get_mut(index);
        (command.kind, command.len) = (kind, len);
        if !in_capsule {
            command.data = Moved::new(data);
            self.encoder.command(&mut self.out, sqe, Payload::None);
            return index;
        }
        command.data = Moved::InCapsule;
        match data {
            Data::Send(slice) => {
                command.references += 1;
                let payload = self.borrowed(index, slice, buffers);
                self.encoder.command(&mut self.out, sqe, payload);
            }
            Data::SendBytes(bytes) => self.encoder.command(&mut self.out, sqe, Payload::Bytes(&bytes)),
            Data::None | Data::Receive(_) | Data::ReceiveBytes(_) => {}
        }
        index
    }

    fn borrowed(&self, index: u16, slice: BufferSlice, buffers: &mut impl Buffers) -> Payload<'static> {
        let digest = if self.encoder.data_digest() { buffers.digest(slice) } else { 0 };
        Payload::Buffer { slice, digest, after: BufferAfter(After::Keep { slot: index.into() }) }
    }

    fn on_r2t(&mut self, cccid: u16, ttag: u16, offset: u32, len: u32, buffers: &mut impl Buffers) {
        let Some(index) = self.commands.find(cccid) else {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        };
        let command = self.commands.get_mut(index);
        if !matches!(command.data, Moved::Send(_) | Moved::SendBytes(_)) {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        }
        if len == 0 {
            return self.terminate(FatalError::InvalidHeaderField(at::R2T_LEN));
        }
        let end = u64::from(offset) + u64::from(len);
        if offset != command.done || end > command.len.into() {
            return self.terminate(FatalError::DataTransferOutOfRange);
        }
        command.done += len;
        self.send_data(index, cccid, ttag, offset, len, buffers);
    }

    /// Answers an R2T with H2CData PDUs, each as long as the controller takes.
    fn send_data(&mut self, index: u16, cccid: u16, ttag: u16, offset: u32, len: u32, buffers: &mut impl Buffers) {
        let end = offset + len;
        let mut from = offset;
        while from < end {
            let part = (end - from).min(self.h2c_data_max);
            let flags = if from + part == end { pdu_flags::LAST } else { 0 };
            let header = H2cData::new(cccid, ttag, from, part);
            let command = self.commands.get_mut(index);
            match &command.data {
                Moved::Send(slice) => {
                    let slice = slice.part(from, part);
                    command.references += 1;
                    let payload = self.borrowed(index, slice, buffers);
                    self.encoder.put(&mut self.out, &header, flags, payload);
                }
                Moved::SendBytes(bytes) => {
                    let bytes = &bytes[from as usize..(from + part) as usize];
                    self.encoder.put(&mut self.out, &header, flags, Payload::Bytes(bytes));
                }
                Moved::None | Moved::InCapsule | Moved::Receive(_) | Moved::ReceiveBytes(_) => return,
            }
            from += part;
        }
    }

    fn on_c2h_data(&mut self, cccid: u16, offset: u32, len: u32, success: bool) {
        let Some(index) = self.commands.find(cccid) else {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        };
        let command = self.commands.get(index);
        if !matches!(command.data, Moved::Receive(_) | Moved::ReceiveBytes(_)) {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        }
        let end = u64::from(offset) + u64::from(len);
        if offset != command.done || end > command.len.into() {
            return self.terminate(FatalError::DataTransferOutOfRange);
        }
        if success && command.kind == Kind::Connect {
            return self.terminate(FatalError::InvalidHeaderField(at::FLAGS));
        }
        self.inbound = Some(Inbound { index, at: offset, success });
    }

    pub(super) fn on_data(&mut self, data: &[u8], buffers: &mut impl Buffers) {
        let Some(inbound) = &mut self.inbound else { return };
        let command = self.commands.get_mut(inbound.index);
        match &mut command.data {
            Moved::Receive(slice) if !self.placed => {
                buffers.write(slice.buffer, slice.offset + inbound.at, data);
            }
            Moved::ReceiveBytes(bytes) => bytes[inbound.at as usize..][..data.len()].copy_from_slice(data),
            _ => {}
        }
        inbound.at += data.len() as u32;
    }

    pub(super) fn on_end(&mut self, intact: bool) {
        let Some(Inbound { index, at, success }) = self.inbound.take() else { return };
        let command = self.commands.get_mut(index);
        command.done = at;
        command.damaged |= !intact;
        if success {
            self.finish(index, Cqe::new(0, Status::SUCCESS, 0));
        }
    }

    fn on_response(&mut self, cqe: Cqe) {
        let Some(index) = self.commands.find(cqe.cid()) else {
            return self.terminate(FatalError::InvalidHeaderField(at::RESPONSE_CID));
        };
        if self.commands.get(index).kind == Kind::Connect {
            return self.on_connected(index, cqe);
        }
        self.finish(index, cqe);
    }

    fn on_connected(&mut self, index: u16, cqe: Cqe) {
        self.commands.remove(index);
        let status = cqe.status();
        if !status.is_success() {
            let name = status.name_for(true).unwrap_or("Unknown status");
            let about_parameter = status.is(Status::CONNECT_INVALID_PARAMETERS);
            let parameter = about_parameter.then(|| crate::wire::ConnectError::from_result(cqe.result()));
            return self.end(ConnectionError::Refused { status, name, parameter }, State::Draining);
        }
        if cqe.sqhd() != 0xffff {
            // The controller insists on flow control: a queue is full with one entry less.
            self.commands.limit(u32::from(self.config.entries) - 1);
        }
        // AUTHREQ, bits 31:16 (Base 6.3).
        let asks = cqe.result() >> 16 & 0xffff != 0;
        let wants_channel = cqe.result() & crate::wire::CONCATENATION_REQUIRED != 0;
        self.log_in(cqe.result() as u16, asks, wants_channel);
    }

    /// The queue takes commands.
    pub(super) fn go_live(&mut self, controller_id: u16) {
        self.connect_deadline = None;
        self.state = State::Live;
        self.events.push_back(Event::Connected { controller_id });
    }

    /// A command has ended, as far as the controller is concerned.
    fn finish(&mut self, index: u16, cqe: Cqe) {
        let command = self.commands.get_mut(index);
        let (status, result) = (cqe.status(), cqe.result());
        let receives = matches!(command.data, Moved::Receive(_) | Moved::ReceiveBytes(_));
        let outcome = if !status.is_success() {
            Err(CommandError::Status { status, result })
        } else if command.damaged {
            Err(CommandError::DataDigest)
        } else if receives && command.whole && command.done < command.len {
            Err(CommandError::ShortTransfer { got: command.done, want: command.len })
        } else {
            let received_len = if receives { command.done } else { 0 };
            let mut bytes = match &mut command.data {
                Moved::ReceiveBytes(bytes) => std::mem::take(bytes),
                _ => Vec::new(),
            };
            bytes.truncate(received_len as usize);
            Ok(Answer { result, received_len, bytes })
        };
        command.outcome = Some(outcome);
        if command.references == 0 {
            self.report(index);
        }
    }

    /// Tells the caller, and frees the slot.
    pub(super) fn report(&mut self, index: u16) {
        let command = self.commands.remove(index);
        let Some(outcome) = command.outcome else { return };
        if command.kind == Kind::Authentication {
            self.on_authentication(outcome);
        } else {
            self.events.push_back(Event::Completed(Completed { user_data: command.user_data, outcome }));
        }
    }
}
