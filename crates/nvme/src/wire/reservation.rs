//! Reservations: how their commands, their report and their log page are laid out (Base 2.0, 7.2 to 7.5 and 8.19).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::Sqe;

/// Opcodes of reservation commands, which are I/O commands of every command set.
pub mod reservation_opcode {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const REGISTER: u8 = 0x0d;
    pub const REPORT: u8 = 0x0e;
    pub const ACQUIRE: u8 = 0x11;
    pub const RELEASE: u8 = 0x15;
}

/// Types of reservations (RTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 2,
    /// Only registrants write.
    WriteExclusiveRegistrantsOnly = 3,
    /// Only registrants read and write.
    ExclusiveAccessRegistrantsOnly = 4,
    /// Only registrants write, and all of them hold the reservation.
    WriteExclusiveAllRegistrants = 5,
    /// Only registrants read and write, and all of them hold the reservation.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// All types.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The type of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether every registrant holds it.
    pub const fn is_of_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Whether reads are excluded, too.
    pub const fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess | Self::ExclusiveAccessRegistrantsOnly | Self::ExclusiveAccessAllRegistrants
        )
    }

    /// Whether registrants that do not hold it are excluded.
    pub const fn excludes_registrants(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }
}

/// Actions of Reservation Register (RREGA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RegisterAction {
    /// Register a key.
    Register = 0,
    /// Give the registration up.
    Unregister = 1,
    /// Register another key instead.
    Replace = 2,
}

/// Actions of Reservation Acquire (RACQA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AcquireAction {
    /// Acquire a reservation.
    Acquire = 0,
    /// Take away the registrations of a key, and the reservation if its holder has that key.
    Preempt = 1,
    /// The same, and end commands of those hosts.
    PreemptAndAbort = 2,
}

/// Actions of Reservation Release (RRELA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReleaseAction {
    /// Give the reservation up.
    Release = 0,
    /// Take away all registrations, and the reservation.
    Clear = 1,
}

/// Change of what persists through power loss (CPTPL of Reservation Register).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PersistChange {
    /// As it is.
    Keep = 0,
    /// Nothing persists.
    Clear = 2,
    /// Registrations and reservations persist.
    Persist = 3,
}

/// The bits of RESCAP in Identify: all types, and IEKEY as defined since 1.3; nothing persists through power loss.
pub const RESERVATION_CAPABILITIES: u8 = 0xfe;

impl Sqe {
    /// Reservation Register; its data is [`RegisterData`].
    pub fn reservation_register(nsid: u32, action: RegisterAction, ignore_key: bool, change: PersistChange) -> Self {
        Self::new(reservation_opcode::REGISTER, nsid)
            .with_bits(10, 0, 3, action as u32)
            .with_bits(10, 3, 1, ignore_key.into())
            .with_bits(10, 30, 2, change as u32)
    }

    /// Reservation Acquire; its data is [`AcquireData`].
    pub fn reservation_acquire(nsid: u32, action: AcquireAction, kind: ReservationType) -> Self {
        Self::new(reservation_opcode::ACQUIRE, nsid).with_bits(10, 0, 3, action as u32).with_bits(10, 8, 8, kind as u32)
    }

    /// Reservation Release; its data is the host's key.
    pub fn reservation_release(nsid: u32, action: ReleaseAction, kind: ReservationType) -> Self {
        Self::new(reservation_opcode::RELEASE, nsid).with_bits(10, 0, 3, action as u32).with_bits(10, 8, 8, kind as u32)
    }

    /// Reservation Report of `len` bytes (a multiple of 4) with host identifiers of 128 bits.
    pub fn reservation_report(nsid: u32, len: u32) -> Self {
        debug_assert!(len >= 4 && len.is_multiple_of(4), "whole dwords");
        Self::new(reservation_opcode::REPORT, nsid).with_dword(10, len / 4 - 1).with_bits(11, 0, 1, 1)
    }

    /// Action of Register, Acquire and Release (dword 10 bits 2:0).
    pub const fn reservation_action(&self) -> u8 {
        self.bits(10, 0, 3) as u8
    }

    /// IEKEY of Register, Acquire and Release (dword 10 bit 3).
    pub const fn ignores_existing_key(&self) -> bool {
        self.bits(10, 3, 1) != 0
    }

    /// RTYPE of Acquire and Release (dword 10 bits 15:8).
    pub const fn reservation_type(&self) -> u8 {
        self.bits(10, 8, 8) as u8
    }

    /// CPTPL of Register (dword 10 bits 31:30).
    pub const fn persist_change(&self) -> u8 {
        self.bits(10, 30, 2) as u8
    }

    /// Length in bytes of a Report: NUMD (dword 10), 0's based dwords.
    pub const fn report_len(&self) -> u64 {
        (self.dword(10) as u64 + 1) * 4
    }

    /// EDS of Report: host identifiers have 128 bits (dword 11 bit 0).
    pub const fn report_is_extended(&self) -> bool {
        self.bits(11, 0, 1) != 0
    }
}

/// Data of Reservation Register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RegisterData {
    /// CRKEY: the key that the host has.
    pub current_key: U64,
    /// NRKEY: the key that it is to have.
    pub new_key: U64,
}
const _: () = assert!(size_of::<RegisterData>() == 16);

/// Data of Reservation Acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AcquireData {
    /// CRKEY: the key that the host has.
    pub current_key: U64,
    /// PRKEY: the key that is preempted.
    pub preempted_key: U64,
}
const _: () = assert!(size_of::<AcquireData>() == 16);

/// Reservation Status, extended: the head of a Report.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReservationStatus {
    /// GEN.
    pub generation: U32,
    /// RTYPE; 0: no reservation is held.
    pub kind: u8,
    /// REGSTRNT: how many registrants there are, whatever the length of the report.
    pub registrants: U16,
    reserved7: [u8; 2],
    /// PTPLS: registrations persist through power loss.
    pub persists: u8,
    reserved10: [u8; 54],
}
const _: () = assert!(size_of::<ReservationStatus>() == 64);

impl ReservationStatus {
    /// Nobody is registered.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

/// Registrant, extended: an entry of a Report.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReservationRegistrant {
    /// CNTLID: FFFFh where hosts get controllers as they connect.
    pub controller_id: U16,
    /// RCSTS: bit 0 it holds the reservation.
    pub status: u8,
    reserved3: [u8; 5],
    /// RKEY.
    pub key: U64,
    /// HOSTID.
    pub host_id: [u8; 16],
    reserved32: [u8; 32],
}
const _: () = assert!(size_of::<ReservationRegistrant>() == 64);

impl ReservationRegistrant {
    /// An entry of a host.
    pub fn new(host_id: [u8; 16], key: u64, holds: bool) -> Self {
        let mut entry = Self::new_zeroed();
        entry.controller_id.set(super::CONTROLLER_ID_DYNAMIC);
        entry.status = holds.into();
        entry.key.set(key);
        entry.host_id = host_id;
        entry
    }
}

/// Something about reservations that a host is told: the type of a page of the log, and its bit in the notification mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationNotice {
    /// The host's registration was taken away by a Preempt.
    RegistrationPreempted = 1,
    /// A reservation was released, or became one of another type.
    ReservationReleased = 2,
    /// The host's registration and the reservation were taken away by a Clear.
    ReservationPreempted = 3,
}

impl ReservationNotice {
    /// The mask of all notices: feature 82h.
    pub const MASK_ALL: u32 = 0b1110;

    /// Whether this mask keeps it from the host.
    pub const fn is_masked(self, mask: u32) -> bool {
        mask & 1 << self as u8 != 0
    }
}

/// Reservation Notification, LID 80h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReservationPage {
    /// Counts pages of this controller; a gap means that some were lost.
    pub count: U64,
    /// Type: see [`ReservationNotice`]; 0: there is no page.
    pub kind: u8,
    /// How many more pages there are.
    pub more: u8,
    reserved10: [u8; 2],
    /// Namespace.
    pub nsid: U32,
    reserved16: [u8; 48],
}
const _: () = assert!(size_of::<ReservationPage>() == 64);

impl ReservationPage {
    /// A page about a namespace.
    pub fn new(count: u64, notice: ReservationNotice, nsid: u32) -> Self {
        let mut page = Self::empty();
        page.count.set(count);
        page.kind = notice as u8;
        page.nsid.set(nsid);
        page
    }

    /// No page.
    pub fn empty() -> Self {
        Self::new_zeroed()
    }
}
