//! Fabrics commands (Base 3.3.3.3, 6): opcode 7Fh, told apart by FCTYPE in byte 4, where other commands have their NSID.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{Sqe, admin_opcode};

/// The controller identifier with which a host asks for any controller.
pub const CONTROLLER_ID_DYNAMIC: u16 = 0xffff;

/// Fabrics command types (Base 6, figure "Fabrics Command Type").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FabricsType {
    /// Property Set.
    PropertySet = 0x00,
    /// Connect.
    Connect = 0x01,
    /// Property Get.
    PropertyGet = 0x04,
    /// Authentication Send.
    AuthenticationSend = 0x05,
    /// Authentication Receive.
    AuthenticationReceive = 0x06,
    /// Disconnect.
    Disconnect = 0x08,
}

/// SPSP0 1, SPSP1 1, SECP E9h: NVMe's in-band authentication.
const DHCHAP_SECURITY: u32 = 0xe9_0101;

/// AUTHREQ.ATR of the answer to Connect: the host must authenticate (Base 6.3, dword 0).
pub const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

/// AUTHREQ.ASCR: it must authenticate so that a secure channel can follow (concatenation).
pub const CONCATENATION_REQUIRED: u64 = 1 << 18;

impl Sqe {
    /// Fabrics Connect (Base 6.3). `entries` is the queue's size; `keep_alive_ms` is for admin queues.
    pub fn connect(queue_id: u16, entries: u16, disable_flow_control: bool, keep_alive_ms: u32) -> Self {
        debug_assert!(entries >= 2, "a queue has at least two entries");
        Self::fabrics(FabricsType::Connect)
            .with_bits(10, 16, 16, queue_id.into())
            .with_bits(11, 0, 16, u32::from(entries) - 1)
            .with_bits(11, 16 + 2, 1, disable_flow_control as u32)
            .with_dword(12, keep_alive_ms)
    }

    /// Fabrics Property Get (Base 6.4) of a property of 4 or 8 bytes.
    pub fn property_get(offset: u32, eight_bytes: bool) -> Self {
        Self::fabrics(FabricsType::PropertyGet).with_bits(10, 0, 3, eight_bytes as u32).with_dword(11, offset)
    }

    /// Fabrics Property Set (Base 6.5) of a property of 4 or 8 bytes.
    pub fn property_set(offset: u32, eight_bytes: bool, value: u64) -> Self {
        Self::fabrics(FabricsType::PropertySet)
            .with_bits(10, 0, 3, eight_bytes as u32)
            .with_dword(11, offset)
            .with_qword(12, value)
    }

    /// Fabrics Authentication Send of a DH-HMAC-CHAP message of `len` bytes.
    pub fn authentication_send(len: u32) -> Self {
        Self::fabrics(FabricsType::AuthenticationSend).with_bits(10, 8, 24, DHCHAP_SECURITY).with_dword(11, len)
    }

    /// Fabrics Authentication Receive of at most `len` bytes.
    pub fn authentication_receive(len: u32) -> Self {
        Self::fabrics(FabricsType::AuthenticationReceive).with_bits(10, 8, 24, DHCHAP_SECURITY).with_dword(11, len)
    }

    /// Fabrics Disconnect (Base 6.2).
    pub fn disconnect() -> Self {
        Self::fabrics(FabricsType::Disconnect)
    }

    fn fabrics(kind: FabricsType) -> Self {
        Self::new(admin_opcode::FABRICS, kind as u32)
    }

    /// FCTYPE of a Fabrics command (byte 4).
    pub const fn fabrics_type(&self) -> u8 {
        self.nsid() as u8
    }

    /// Connect: RECFMT, the format of its data (bytes 41:40).
    pub const fn connect_record_format(&self) -> u16 {
        self.bits(10, 0, 16) as u16
    }

    /// Connect: QID (bytes 43:42).
    pub const fn connect_queue_id(&self) -> u16 {
        self.bits(10, 16, 16) as u16
    }

    /// Connect: SQSIZE, the queue's entries, 0's based (bytes 45:44).
    pub const fn connect_sqsize(&self) -> u16 {
        self.bits(11, 0, 16) as u16
    }

    /// Connect: the host does not want SQ flow control (CATTR bit 2, byte 46).
    pub const fn connect_disables_flow_control(&self) -> bool {
        self.bits(11, 16 + 2, 1) != 0
    }

    /// Connect: KATO in milliseconds (bytes 51:48).
    pub const fn connect_keep_alive_ms(&self) -> u32 {
        self.dword(12)
    }

    /// Authentication Send and Receive: whether they carry messages of NVMe's in-band authentication (SPSP0, SPSP1 and
    /// SECP, bytes 43:41).
    pub const fn is_in_band_authentication(&self) -> bool {
        self.bits(10, 8, 24) == DHCHAP_SECURITY
    }

    /// Authentication Send and Receive: TL or AL, bytes of data (bytes 47:44).
    pub const fn authentication_len(&self) -> u32 {
        self.dword(11)
    }

    /// Property Get and Set: ATTRIB.SIZE, 0 for 4 bytes and 1 for 8 (byte 40 bits 2:0).
    pub const fn property_size(&self) -> u8 {
        self.bits(10, 0, 3) as u8
    }

    /// Property Get and Set: OFST (bytes 47:44).
    pub const fn property_offset(&self) -> u32 {
        self.dword(11)
    }

    /// Property Set: VALUE (bytes 55:48).
    pub const fn property_value(&self) -> u64 {
        self.qword(12)
    }
}

/// Data of a Connect command (Base 6.3, figure "Connect Command – Data").
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier.
    pub host_id: [u8; 16],
    /// Controller identifier; [`CONTROLLER_ID_DYNAMIC`] on an admin queue.
    pub controller_id: U16,
    reserved18: [u8; 238],
    /// Subsystem's name, NUL-padded.
    pub subsystem_nqn: [u8; 256],
    /// Host's name, NUL-padded.
    pub host_nqn: [u8; 256],
    reserved768: [u8; 256],
}
const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Data with the given fields.
    pub const fn new(host_id: [u8; 16], controller_id: u16, subsystem_nqn: [u8; 256], host_nqn: [u8; 256]) -> Self {
        Self {
            host_id,
            controller_id: U16::new(controller_id),
            reserved18: [0; 238],
            subsystem_nqn,
            host_nqn,
            reserved768: [0; 256],
        }
    }
}

/// Which parameter of a Connect command was invalid: dword 0 of the answer to Connect Invalid Parameters (Base 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// Byte offset in the submission queue entry.
    InCommand(u16),
    /// Byte offset in the data.
    InData(u16),
}

impl ConnectError {
    /// Dword 0: IPO in bits 15:0, IATTR in bits 23:16.
    pub const fn to_result(self) -> u64 {
        match self {
            Self::InCommand(offset) => offset as u64,
            Self::InData(offset) => offset as u64 | 1 << 16,
        }
    }

    /// Reads dword 0.
    pub const fn from_result(result: u64) -> Self {
        let offset = result as u16;
        if result & 1 << 16 == 0 { Self::InCommand(offset) } else { Self::InData(offset) }
    }
}
