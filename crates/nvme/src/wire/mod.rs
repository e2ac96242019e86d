//! The structures of the wire, little endian, with named fields.
//!
//! Each structure is laid out as its figure in the specification, byte for byte; its size is checked when the crate is
//! compiled and the place of each field by a table in its test. Numbers that share a word have accessors and no public
//! raw field. "Base" is the NVM Express Base Specification 2.x, "NVM" the NVM Command Set Specification 1.x, "TCP" the
//! NVMe/TCP Transport Specification 1.x.

mod ana;
mod bits;
mod command;
mod discovery;
mod fabrics;
mod features;
mod identify;
mod log;
pub mod memory;
mod nvm;
mod pdu;
mod program;
mod properties;
mod reservation;

pub use ana::{AnaGroup, AnaHeader};
pub use command::{
    CSI_COMPUTE, CSI_NVM, CSI_SLM, Cqe, Direction, NSID_ALL, Sgl, SglKind, Sqe, admin_opcode, direction, nvm_opcode,
};
pub use discovery::{DiscoveryEntry, DiscoveryHeader, subsystem_type, transport_type};
pub use fabrics::{
    AUTHENTICATION_REQUIRED, CONCATENATION_REQUIRED, CONTROLLER_ID_DYNAMIC, ConnectData, ConnectError, FabricsType,
};
pub use features::{AsyncEventConfig, HostBehavior, feature};
pub use identify::{
    ControllerList, CopyFormats, DeltaSupport, IdentifyController, IdentifyNamespace, IndependentNamespace, LbaFormat,
    NvmControllerLimits, cns, descriptor_type,
};
pub use log::{
    CommandEffects, EffectsLog, ErrorEntry, FirmwareSlotLog, LID_FEATURES, LID_MI_COMMANDS, SmartLog, log_page,
};
pub use nvm::{CopySourceEntry, DsmRange};
pub use pdu::{
    C2hData, CommonHeader, FatalError, H2cData, IcReq, IcResp, PduKind, R2t, TERM_REQ_DATA_MAX, TermReq, pdu_flags,
};
pub use program::{PROGRAM_TYPE_EBPF, ProgramIdType, program_opcode};
pub use properties::{Cap, Cc, Csts, Version, property};
pub use reservation::{
    AcquireAction, AcquireData, PersistChange, RESERVATION_CAPABILITIES, RegisterAction, RegisterData, ReleaseAction,
    ReservationNotice, ReservationPage, ReservationRegistrant, ReservationStatus, ReservationType, reservation_opcode,
};

#[cfg(test)]
mod layout_tests;
