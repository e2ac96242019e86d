//! A submission queue entry, once it is understood: parsed once, then a type.

use crate::auth::message::MESSAGE_LEN_MAX;
use crate::status::Status;
use crate::wire::{
    AcquireAction, AsyncEventConfig, Cc, Direction, FabricsType, RegisterAction, ReleaseAction, ReservationType, Sqe,
    admin_opcode, direction, nvm_opcode, property,
};

use super::request::MediumId;

/// A command, with what matters of its fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Connect,
    PropertyGet {
        offset: u32,
        eight_bytes: bool,
    },
    PropertySet(PropertySet),
    Disconnect,
    AuthenticationSend,
    AuthenticationReceive,
    Admin(Admin),
    Io(Io),
    Reservation(Reservation),
    /// A command of a command set that the embedder declared.
    Other {
        nsid: u32,
        medium: MediumId,
        admin: bool,
    },
}

/// The values that a Property Set may set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PropertySet {
    Configuration(Cc),
}

/// Admin commands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Admin {
    Identify { cns: u8, nsid: u32, controller: u16, csi: u8 },
    GetLogPage { lid: u8, offset: u64, len: u64, csi: u8, groups_only: bool, retain_event: bool },
    GetFeatures { fid: u8, nsid: u32, select: u8, value: u32 },
    SetFeatures { fid: u8, nsid: u32, value: u32 },
    Abort { queue_id: u16, cid: u16 },
    AsyncEventRequest,
    KeepAlive,
}

/// Commands of the NVM command set, checked against their namespace: in bytes, inside it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Io {
    Read { medium: MediumId, offset: u64, fua: bool },
    Write { medium: MediumId, offset: u64, fua: bool },
    WriteDelta { medium: MediumId, offset: u64, len: u32 },
    Compare { medium: MediumId, offset: u64 },
    Flush { medium: MediumId },
    WriteZeroes { medium: MediumId, offset: u64, len: u64, fua: bool, deallocate: bool },
    Verify { medium: MediumId, offset: u64, len: u64 },
    DatasetManagement { deallocate: bool },
    Copy { offset: u64, format: u8, fua: bool },
}

/// Commands about reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    Register { action: RegisterAction, ignore_key: bool },
    Acquire { action: AcquireAction, kind: ReservationType },
    Release { action: ReleaseAction, kind: Option<ReservationType> },
    Report,
}

/// Data that a command needs moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// None.
    None,
    /// So many bytes from the host into a buffer of the pool.
    ToPool(u32),
    /// So many bytes from the host, for ourselves to read.
    ToUs(u32),
    /// At least (and usually exactly) so many bytes to the host.
    ToHost(u32),
}

/// Which queue a command came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    Admin,
    Io,
}

/// Parses what is common to all commands: fused operations are not supported, and data pointers are SGLs (Base 3.3.3.1).
pub(super) fn check_flags(sqe: &Sqe) -> Result<(), Status> {
    if sqe.fuse() != 0 || sqe.psdt() == 0 || sqe.psdt() == 3 { Err(Status::INVALID_FIELD.dnr()) } else { Ok(()) }
}

/// Parses a Fabrics command (Base 6).
pub(super) fn parse_fabrics(sqe: &Sqe, queue: QueueKind) -> Result<(Command, Transfer), Status> {
    let kind = sqe.fabrics_type();
    let is = |wanted: FabricsType| kind == wanted as u8;
    let on_admin = queue == QueueKind::Admin;
    if is(FabricsType::Connect) {
        Ok((Command::Connect, Transfer::ToUs(size_of::<crate::wire::ConnectData>() as u32)))
    } else if is(FabricsType::PropertyGet) && on_admin {
        let eight_bytes = parse_property_size(sqe)?;
        Ok((Command::PropertyGet { offset: sqe.property_offset(), eight_bytes }, Transfer::None))
    } else if is(FabricsType::PropertySet) && on_admin {
        let eight_bytes = parse_property_size(sqe)?;
        // Only CC can be written, and it has four bytes. NSSR is for subsystems that can be reset.
        if sqe.property_offset() != property::CC || eight_bytes {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let cc = Cc(sqe.property_value() as u32);
        Ok((Command::PropertySet(PropertySet::Configuration(cc)), Transfer::None))
    } else if is(FabricsType::Disconnect) {
        if on_admin { Err(Status::INVALID_QUEUE_TYPE.dnr()) } else { Ok((Command::Disconnect, Transfer::None)) }
    } else if is(FabricsType::AuthenticationSend) {
        let len = parse_authentication(sqe)?;
        if len as usize > MESSAGE_LEN_MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        Ok((Command::AuthenticationSend, Transfer::ToUs(len)))
    } else if is(FabricsType::AuthenticationReceive) {
        Ok((Command::AuthenticationReceive, Transfer::ToHost(parse_authentication(sqe)?)))
    } else {
        Err(Status::INVALID_OPCODE.dnr())
    }
}

/// Bytes of a message of in-band authentication; no other security protocol is known.
fn parse_authentication(sqe: &Sqe) -> Result<u32, Status> {
    let len = sqe.authentication_len();
    if sqe.is_in_band_authentication() && len > 0 { Ok(len) } else { Err(Status::INVALID_FIELD.dnr()) }
}

fn parse_property_size(sqe: &Sqe) -> Result<bool, Status> {
    match sqe.property_size() {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// Parses an admin command other than those of Fabrics. `None`: an opcode that is not known here.
pub(super) fn parse_admin(sqe: &Sqe) -> Option<(Admin, Transfer)> {
    use crate::wire::feature;
    Some(match sqe.opcode() {
        admin_opcode::IDENTIFY => {
            let admin = Admin::Identify {
                cns: sqe.identify_cns(),
                nsid: sqe.nsid(),
                controller: sqe.identify_controller(),
                csi: sqe.identify_csi(),
            };
            (admin, Transfer::ToHost(4096))
        }
        admin_opcode::GET_LOG_PAGE => {
            let len = sqe.log_len();
            let admin = Admin::GetLogPage {
                lid: sqe.log_page(),
                offset: sqe.log_offset(),
                len,
                csi: sqe.log_csi(),
                groups_only: sqe.ana_groups_only(),
                retain_event: sqe.log_retains_event(),
            };
            // A length above 4 GiB is refused as too long whatever it is exactly.
            (admin, Transfer::ToHost(u32::try_from(len).unwrap_or(u32::MAX)))
        }
        admin_opcode::SET_FEATURES => {
            let admin = Admin::SetFeatures { fid: sqe.feature_id(), nsid: sqe.nsid(), value: sqe.dword(11) };
            let transfer = match sqe.feature_id() {
                feature::TIMESTAMP => Transfer::ToUs(8),
                feature::HOST_BEHAVIOR => Transfer::ToUs(512),
                _ => Transfer::None,
            };
            (admin, transfer)
        }
        admin_opcode::GET_FEATURES => {
            let (fid, select) = (sqe.feature_id(), sqe.feature_select());
            let transfer = match fid {
                // Select 3 asks for capabilities, which are not data.
                _ if select == 3 => Transfer::None,
                feature::TIMESTAMP => Transfer::ToHost(8),
                feature::HOST_BEHAVIOR => Transfer::ToHost(512),
                feature::HOST_IDENTIFIER => Transfer::ToHost(16),
                _ => Transfer::None,
            };
            (Admin::GetFeatures { fid, nsid: sqe.nsid(), select, value: sqe.dword(11) }, transfer)
        }
        admin_opcode::ABORT => (Admin::Abort { queue_id: sqe.abort_queue(), cid: sqe.abort_cid() }, Transfer::None),
        admin_opcode::ASYNC_EVENT_REQUEST => (Admin::AsyncEventRequest, Transfer::None),
        admin_opcode::KEEP_ALIVE => (Admin::KeepAlive, Transfer::None),
        _ => return None,
    })
}

/// The data of a command that only the embedder knows: its direction is in its opcode, its length in its SGL.
pub(super) fn other_transfer(sqe: &Sqe) -> Result<Transfer, Status> {
    Ok(match direction(sqe.opcode()) {
        Direction::None => Transfer::None,
        Direction::ToController if sqe.sgl().is_empty() => Transfer::None,
        Direction::ToController => Transfer::ToPool(sqe.sgl().len()),
        Direction::ToHost => Transfer::ToHost(sqe.sgl().len()),
        Direction::Both => return Err(Status::INVALID_OPCODE.dnr()),
    })
}

/// Whether this is a command of the NVM command set that is supported here.
pub(super) const fn is_nvm(opcode: u8) -> bool {
    use nvm_opcode::{COMPARE, COPY, DATASET_MANAGEMENT, FLUSH, READ, VERIFY, WRITE, WRITE_DELTA, WRITE_ZEROES};
    matches!(opcode, FLUSH | WRITE | READ | COMPARE | WRITE_ZEROES | DATASET_MANAGEMENT | VERIFY | COPY | WRITE_DELTA)
}

/// Events that an I/O controller, or a discovery controller, can tell (OAES).
pub(super) const fn events_of(discovery: bool) -> u32 {
    match discovery {
        true => AsyncEventConfig::DISCOVERY_LOG,
        false => AsyncEventConfig::NAMESPACE_ATTRIBUTE | AsyncEventConfig::ASYMMETRIC_ACCESS,
    }
}
