//! The outcome of a command: status code type, status code, and whether a retry can help (NVMe Base 4.2.3).

use std::fmt;

/// The status of a completion queue entry: SC in bits 7:0, SCT in bits 10:8, CRD in 12:11, More in 13 and Do Not Retry in
/// 14. This is the 16-bit field of the entry without its phase tag.
///
/// `Display` gives the specification's name and the numbers:
///
/// ```
/// use diskside_nvme::Status;
/// assert_eq!(
///     Status::LBA_OUT_OF_RANGE.dnr().to_string(),
///     "LBA Out of Range (SCT 0h, SC 80h, do not retry)"
/// );
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// Status code types (NVMe Base 4.2.3, figure "Status Code Type Values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusType {
    /// SCT 0h: applies to any command.
    Generic,
    /// SCT 1h: has its meaning from the command.
    CommandSpecific,
    /// SCT 2h: the medium or the integrity of the data.
    MediaAndDataIntegrity,
    /// SCT 3h: the path to the controller.
    PathRelated,
    /// SCT 7h: the vendor's.
    VendorSpecific,
    /// A reserved type.
    Reserved(u8),
}

const DNR: u16 = 1 << 14;

impl Status {
    /// Makes a status of any type and code. No retry hint is set.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 7) << 8 | sc as u16)
    }

    /// Reads bits 15:1 of the last half dword of a completion queue entry.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The 15 bits as they stand above the phase tag.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// A status of the vendor's own type (SCT 7h).
    pub const fn vendor(sc: u8) -> Self {
        Self::new(7, sc)
    }

    /// The same status with Do Not Retry set: the same command would fail again.
    #[must_use]
    pub const fn dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// Status code.
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// Status code type, as a number.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Status code type.
    pub const fn kind(self) -> StatusType {
        match self.sct() {
            0 => StatusType::Generic,
            1 => StatusType::CommandSpecific,
            2 => StatusType::MediaAndDataIntegrity,
            3 => StatusType::PathRelated,
            7 => StatusType::VendorSpecific,
            other => StatusType::Reserved(other),
        }
    }

    /// Command Retry Delay: which of the controller's three delays to wait before a retry; 0 = none.
    pub const fn retry_delay(self) -> u8 {
        (self.0 >> 11) as u8 & 3
    }

    /// Whether the error log has more about it.
    pub const fn more(self) -> bool {
        self.0 & 1 << 13 != 0
    }

    /// Whether the same command would fail again.
    pub const fn do_not_retry(self) -> bool {
        self.0 & DNR != 0
    }

    /// Whether the command did what it should.
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Whether type and code are those of `other`, whatever the hints.
    pub const fn is(self, other: Status) -> bool {
        self.0 & 0x7ff == other.0 & 0x7ff
    }

    /// The specification's name, if it has one. Codes of type 1h below 80h and from 80h on are named as they are used by
    /// Fabrics, NVM and Computational Programs commands; see [`name_for`](Self::name_for) where a code has two names.
    pub fn name(self) -> Option<&'static str> {
        let key = self.0 & 0x7ff;
        NAMES.binary_search_by_key(&key, |&(bits, _)| bits).ok().map(|index| NAMES[index].1)
    }

    /// The name that this status has as the answer to a Fabrics command (`fabrics`), whose codes from 80h on differ.
    pub fn name_for(self, fabrics: bool) -> Option<&'static str> {
        if fabrics && self.sct() == 1 {
            let code = self.code();
            return FABRICS_NAMES.iter().find(|(c, _)| *c == code).map(|(_, name)| *name).or_else(|| self.name());
        }
        self.name()
    }

    /// The remedy for a status that its name alone does not explain.
    pub fn remedy(self) -> Option<&'static str> {
        if self.is(Self::ANA_INACCESSIBLE) {
            return Some("the server has closed this path; reach it at another of its addresses");
        }
        self.is(Self::RESERVATION_CONFLICT)
            .then_some("another host has reserved the volume; it must release it, or be preempted")
    }

    /// As in `(SCT 1h, SC 82h)`, for messages that name it otherwise.
    #[must_use]
    pub fn numbers(self) -> impl fmt::Display {
        Numbers(self)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.name(), self.kind()) {
            (Some(name), _) => name,
            (None, StatusType::VendorSpecific) => "Vendor Specific",
            (None, _) => "Unknown status",
        };
        write!(f, "{name} {}", self.numbers())
    }
}

/// See [`Status::numbers`].
struct Numbers(Status);

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(SCT {:X}h, SC {:02X}h", self.0.sct(), self.0.code())?;
        if self.0.do_not_retry() {
            f.write_str(", do not retry")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Declares the statuses: a constant, its documentation and a row of the table of names, in ascending order.
macro_rules! statuses {
    ($($ident:ident = $sct:literal, $sc:literal, $name:literal;)*) => {
        impl Status {
            $(#[doc = concat!("SCT ", stringify!($sct), "h, SC ", stringify!($sc), ": ", $name, ".")]
            pub const $ident: Status = Status::new($sct, $sc);)*
        }
        const NAMES: &[(u16, &str)] = &[$(($sct << 8 | $sc, $name)),*];
    };
}

// NVMe Base 4.2.3, figures of generic, command specific, media and path related values; NVM Command Set 3.2. Type 7h is
// ours: statuses of function commands and of deltas (docs/wire.md).
statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    POWER_LOSS_ABORT = 0, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    COMMAND_ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0, 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE_OR_FORMAT = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_NUMBER_OF_SGL_DESCRIPTORS = 0, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = 0, 0x10, "Metadata SGL Length Invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid";
    INVALID_USE_OF_CMB = 0, 0x12, "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = 0, 0x13, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0, 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT_FORMAT = 0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_TIMER_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_TIMEOUT_INVALID = 0, 0x1a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = 0, 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0, 0x1d, "Sanitize In Progress";
    SGL_DATA_BLOCK_GRANULARITY_INVALID = 0, 0x1e, "SGL Data Block Granularity Invalid";
    NOT_SUPPORTED_FOR_QUEUE_IN_CMB = 0, 0x1f, "Command Not Supported for Queue in CMB";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = 0, 0x23, "Command Prohibited by Command and Feature Lockdown";
    ADMIN_MEDIA_NOT_READY = 0, 0x24, "Admin Command Media Not Ready";
    INVALID_KEY_TAG = 0, 0x25, "Invalid Key Tag";
    HOST_DISPERSED_NOT_ENABLED = 0, 0x26, "Host Dispersed Namespace Support Not Enabled";
    HOST_IDENTIFIER_NOT_INITIALIZED = 0, 0x27, "Host Identifier Not Initialized";
    INCORRECT_KEY = 0, 0x28, "Incorrect Key";
    FDP_DISABLED = 0, 0x29, "FDP Disabled";
    INVALID_PLACEMENT_HANDLE_LIST = 0, 0x2a, "Invalid Placement Handle List";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict";
    FORMAT_IN_PROGRESS = 0, 0x84, "Format In Progress";
    INVALID_VALUE_SIZE = 0, 0x85, "Invalid Value Size";
    INVALID_KEY_SIZE = 0, 0x86, "Invalid Key Size";
    KV_KEY_DOES_NOT_EXIST = 0, 0x87, "KV Key Does Not Exist";
    UNRECOVERED_ERROR = 0, 0x88, "Unrecovered Error";
    KEY_EXISTS = 0, 0x89, "Key Exists";
    COMPLETION_QUEUE_INVALID = 1, 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_IDENTIFIER = 1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size";
    ABORT_COMMAND_LIMIT_EXCEEDED = 1, 0x03, "Abort Command Limit Exceeded";
    ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = 1, 0x06, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = 1, 0x07, "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = 1, 0x08, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    INVALID_FORMAT = 1, 0x0a, "Invalid Format";
    FIRMWARE_NEEDS_CONVENTIONAL_RESET = 1, 0x0b, "Firmware Activation Requires Conventional Reset";
    INVALID_QUEUE_DELETION = 1, 0x0c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, "Feature Not Namespace Specific";
    FIRMWARE_NEEDS_SUBSYSTEM_RESET = 1, 0x10, "Firmware Activation Requires NVM Subsystem Reset";
    FIRMWARE_NEEDS_RESET = 1, 0x11, "Firmware Activation Requires Controller Level Reset";
    FIRMWARE_NEEDS_MAX_TIME_VIOLATION = 1, 0x12, "Firmware Activation Requires Maximum Time Violation";
    FIRMWARE_ACTIVATION_PROHIBITED = 1, 0x13, "Firmware Activation Prohibited";
    OVERLAPPING_RANGE = 1, 0x14, "Overlapping Range";
    NAMESPACE_INSUFFICIENT_CAPACITY = 1, 0x15, "Namespace Insufficient Capacity";
    NAMESPACE_IDENTIFIER_UNAVAILABLE = 1, 0x16, "Namespace Identifier Unavailable";
    NAMESPACE_ALREADY_ATTACHED = 1, 0x18, "Namespace Already Attached";
    NAMESPACE_IS_PRIVATE = 1, 0x19, "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = 1, 0x1a, "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = 1, 0x1b, "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = 1, 0x1c, "Controller List Invalid";
    SELF_TEST_IN_PROGRESS = 1, 0x1d, "Device Self-test In Progress";
    BOOT_PARTITION_WRITE_PROHIBITED = 1, 0x1e, "Boot Partition Write Prohibited";
    INVALID_CONTROLLER_IDENTIFIER = 1, 0x1f, "Invalid Controller Identifier";
    INVALID_SECONDARY_CONTROLLER_STATE = 1, 0x20, "Invalid Secondary Controller State";
    INVALID_NUMBER_OF_CONTROLLER_RESOURCES = 1, 0x21, "Invalid Number of Controller Resources";
    INVALID_RESOURCE_IDENTIFIER = 1, 0x22, "Invalid Resource Identifier";
    SANITIZE_PROHIBITED_PMR = 1, 0x23, "Sanitize Prohibited While Persistent Memory Region is Enabled";
    ANA_GROUP_IDENTIFIER_INVALID = 1, 0x24, "ANA Group Identifier Invalid";
    ANA_ATTACH_FAILED = 1, 0x25, "ANA Attach Failed";
    INSUFFICIENT_CAPACITY = 1, 0x26, "Insufficient Capacity";
    NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = 1, 0x27, "Namespace Attachment Limit Exceeded";
    LOCKDOWN_PROHIBITION_NOT_SUPPORTED = 1, 0x28, "Prohibition of Command Execution Not Supported";
    IO_COMMAND_SET_NOT_SUPPORTED = 1, 0x29, "I/O Command Set Not Supported";
    IO_COMMAND_SET_NOT_ENABLED = 1, 0x2a, "I/O Command Set Not Enabled";
    IO_COMMAND_SET_COMBINATION_REJECTED = 1, 0x2b, "I/O Command Set Combination Rejected";
    INVALID_IO_COMMAND_SET = 1, 0x2c, "Invalid I/O Command Set";
    IDENTIFIER_UNAVAILABLE = 1, 0x2d, "Identifier Unavailable";
    CONFLICTING_ATTRIBUTES = 1, 0x80, "Conflicting Attributes";
    INVALID_PROTECTION_INFORMATION = 1, 0x81, "Invalid Protection Information";
    WRITE_TO_READ_ONLY_RANGE = 1, 0x82, "Attempted Write to Read Only Range";
    COMMAND_SIZE_LIMIT_EXCEEDED = 1, 0x83, "Command Size Limit Exceeded";
    INVALID_MEMBER_ID = 1, 0x84, "Invalid Member Identifier";
    INCOMPATIBLE_NAMESPACE_OR_FORMAT = 1, 0x85, "Incompatible Namespace or Format";
    FAST_COPY_NOT_POSSIBLE = 1, 0x86, "Fast Copy Not Possible";
    OVERLAPPING_IO_RANGE = 1, 0x87, "Overlapping I/O Range";
    NAMESPACE_NOT_REACHABLE = 1, 0x88, "Namespace Not Reachable";
    INSUFFICIENT_RESOURCES = 1, 0x89, "Insufficient Resources";
    INSUFFICIENT_PROGRAM_RESOURCES = 1, 0x8a, "Insufficient Program Resources";
    INVALID_MEMORY_NAMESPACE = 1, 0x8b, "Invalid Memory Namespace";
    INVALID_MEMORY_RANGE_SET = 1, 0x8c, "Invalid Memory Range Set";
    INVALID_MEMORY_RANGE_SET_IDENTIFIER = 1, 0x8d, "Invalid Memory Range Set Identifier";
    INVALID_PROGRAM_DATA = 1, 0x8e, "Invalid Program Data";
    INVALID_PROGRAM_INDEX = 1, 0x8f, "Invalid Program Index";
    INVALID_PROGRAM_TYPE = 1, 0x90, "Invalid Program Type";
    MAXIMUM_MEMORY_RANGES_EXCEEDED = 1, 0x91, "Maximum Memory Ranges Exceeded";
    MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED = 1, 0x92, "Maximum Memory Range Sets Exceeded";
    MAXIMUM_PROGRAMS_ACTIVATED = 1, 0x93, "Maximum Programs Activated";
    MAXIMUM_PROGRAM_BYTES_EXCEEDED = 1, 0x94, "Maximum Program Bytes Exceeded";
    MEMORY_RANGE_SET_IN_USE = 1, 0x95, "Memory Range Set In Use";
    NO_PROGRAM = 1, 0x96, "No Program";
    OVERLAPPING_MEMORY_RANGES = 1, 0x97, "Overlapping Memory Ranges";
    PROGRAM_NOT_ACTIVATED = 1, 0x98, "Program Not Activated";
    PROGRAM_IN_USE = 1, 0x99, "Program In Use";
    PROGRAM_INDEX_NOT_DOWNLOADABLE = 1, 0x9a, "Program Index Not Downloadable";
    PROGRAM_TOO_BIG = 1, 0x9b, "Program Too Big";
    SUCCESSFUL_MEDIA_VERIFICATION_READ = 1, 0x9c, "Successful Media Verification Read";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2, 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 2, 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 2, 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
    ACCESS_DENIED = 2, 0x86, "Access Denied";
    DEALLOCATED_OR_UNWRITTEN_BLOCK = 2, 0x87, "Deallocated or Unwritten Logical Block";
    STORAGE_TAG_CHECK_ERROR = 2, 0x88, "End-to-End Storage Tag Check Error";
    INTERNAL_PATH_ERROR = 3, 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = 3, 0x60, "Controller Pathing Error";
    HOST_PATHING_ERROR = 3, 0x70, "Host Pathing Error";
    ABORTED_BY_HOST = 3, 0x71, "Command Aborted By Host";
    UNKNOWN_TAG = 7, 0x01, "Unknown Tag";
    TAG_IN_USE = 7, 0x02, "Tag In Use";
    TAG_LIMIT_EXCEEDED = 7, 0x03, "Tag Limit Exceeded";
    FUNCTION_BUSY = 7, 0x04, "Function Resources Busy";
    UNKNOWN_HANDLE = 7, 0x05, "Unknown Prepared Request Handle";
    RESULT_OFFSET_PASSED = 7, 0x06, "Result Offset Passed";
    FUNCTION_KIND_NOT_SUPPORTED = 7, 0x07, "Function Kind Not Supported";
    PROGRAM_ID_MISMATCH = 7, 0x08, "Program Identifier Mismatch";
    FUNCTION_NOT_FOUND = 7, 0x09, "Function Not Found";
    REQUEST_REFUSED = 7, 0x0a, "Request Refused";
    FUNCTION_FAILED = 7, 0x0b, "Function Failed";
    DELTA_BASE_MISMATCH = 7, 0x0c, "Delta Base Mismatch";
}

/// Statuses of Fabrics commands (NVMe Base 3.3, figure "Fabrics Command Status Codes"): the numbers are shared with the I/O
/// command sets, the meaning is not.
macro_rules! fabrics_statuses {
    ($($ident:ident = $sc:literal, $name:literal;)*) => {
        impl Status {
            $(#[doc = concat!("SCT 1h, SC ", stringify!($sc), " of a Fabrics command: ", $name, ".")]
            pub const $ident: Status = Status::new(1, $sc);)*
        }
        const FABRICS_NAMES: &[(u8, &str)] = &[$(($sc, $name)),*];
    };
}

fabrics_statuses! {
    CONNECT_INCOMPATIBLE_FORMAT = 0x80, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 0x81, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 0x82, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 0x83, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 0x84, "Connect Invalid Host";
    INVALID_QUEUE_TYPE = 0x85, "Invalid Queue Type";
    DISCOVER_RESTART = 0x90, "Discover Restart";
    AUTHENTICATION_REQUIRED = 0x91, "Authentication Required";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_so_that_each_can_be_found() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for &(bits, name) in NAMES {
            assert_eq!(Status::from_bits(bits).name(), Some(name));
        }
    }

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let status = Status::from_bits(0b0110_1001_1000_0101);
        assert_eq!((status.sct(), status.code()), (1, 0x85));
        assert_eq!(status.retry_delay(), 1);
        assert!(status.more() && status.do_not_retry());
        assert_eq!(Status::INVALID_FIELD.dnr().bits(), 0x4002);
        assert!(Status::INVALID_FIELD.dnr().is(Status::INVALID_FIELD));
        assert!(Status::SUCCESS.is_success() && !Status::INVALID_FIELD.is_success());
    }

    #[test]
    fn a_status_says_its_name_and_its_numbers() {
        assert_eq!(Status::COMPARE_FAILURE.to_string(), "Compare Failure (SCT 2h, SC 85h)");
        assert_eq!(Status::vendor(0xee).to_string(), "Vendor Specific (SCT 7h, SC EEh)");
        assert_eq!(Status::new(4, 9).to_string(), "Unknown status (SCT 4h, SC 09h)");
        assert_eq!(Status::CONNECT_INVALID_HOST.name_for(true), Some("Connect Invalid Host"));
        assert_eq!(Status::NO_PROGRAM.name_for(false), Some("No Program"));
    }
}
