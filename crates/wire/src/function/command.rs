//! The six commands: which dword holds what. Dwords 4 and 5 stay unused, since Linux does not pass them on.

use std::borrow::Borrow;

use diskside_nvme::wire::Sqe;

/// The version of the commands, requests and trailers that this crate knows.
pub const FUNCTION_VERSION: u8 = 1;

/// The most bytes of argument that fit in a Function Call.
pub const CALL_ARGS_LEN_MAX: usize = 16;

/// The shortest buffer of a Receive: a trailer without its message fits.
pub const RECEIVE_LEN_MIN: u32 = 128;

/// The longest that a command stays open, in milliseconds; a longer timeout is cut to it. Hosts reset a controller that
/// leaves a command open for some 30 s.
pub const WAIT_MAX_MS: u32 = 10_000;

/// I/O commands. Their low two bits say which way the data goes.
pub mod function_opcode {
    /// Function Send: a request, or input of a call, to the controller.
    pub const SEND: u8 = 0x81;
    /// Function Receive: bytes of a result, and the trailer, to the host.
    pub const RECEIVE: u8 = 0x82;
    /// Function Cancel: stops a call; complete when it has stopped.
    pub const CANCEL: u8 = 0x84;
    /// Layout Send: where a file's bytes are.
    pub const LAYOUT_SEND: u8 = 0x85;
    /// Function Call: runs a prepared request.
    pub const CALL: u8 = 0x86;
    /// Function Clear: drops cached data, state, or a prepared request.
    pub const CLEAR: u8 = 0x88;
    /// All of them.
    pub const ALL: [u8; 6] = [SEND, RECEIVE, CANCEL, LAYOUT_SEND, CALL, CLEAR];
}

/// The kind of a request (KIND).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FunctionKind {
    /// Run a function over sources; its output is the result.
    Read = 1,
    /// Run a function over sources; its output goes to sinks.
    Write = 2,
    /// A chain of dependent reads.
    Traverse = 3,
    /// A function that does its own I/O.
    Launch = 4,
    /// Keep the request, whose header has the kind of its calls, for Function Calls.
    Prepare = 5,
    /// An operation on a file of an export.
    File = 6,
}

impl FunctionKind {
    /// The kind of this number.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Traverse,
            4 => Self::Launch,
            5 => Self::Prepare,
            6 => Self::File,
            _ => return None,
        })
    }
}

/// The objects that Function Clear drops (SEL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ClearSelect {
    /// Data kept for later calls: of the namespace in the ID, or all if the ID is 0.
    Cache = 0,
    /// Bytes of a named state: the ID is the hash of its name.
    State = 1,
    /// The prepared request whose handle is the ID.
    Prepared = 2,
}

impl ClearSelect {
    /// The selection of this number.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        Some(match bits {
            0 => Self::Cache,
            1 => Self::State,
            2 => Self::Prepared,
            _ => return None,
        })
    }
}

/// Reads an entry that is one of the six commands, and makes such entries.
pub trait FunctionCommand: Borrow<Sqe> {
    /// Function Send of `len` bytes: those from `offset` on of the tag's request and input. `first` and `last` are to be
    /// set by [`with_first`](Self::with_first) and [`with_last`](Self::with_last).
    fn function_send(nsid: u32, kind: FunctionKind, tag: u64, offset: u64, len: u32) -> Sqe {
        Sqe::new(function_opcode::SEND, nsid)
            .with_qword(2, tag)
            .with_dword(10, len)
            .with_bits(11, 0, 8, FUNCTION_VERSION.into())
            .with_bits(11, 8, 8, kind as u32)
            .with_qword(12, offset)
    }

    /// Function Receive into `len` bytes: those from `offset` on of the tag's result.
    fn function_receive(nsid: u32, tag: u64, offset: u64, len: u32, timeout_ms: u32) -> Sqe {
        Sqe::new(function_opcode::RECEIVE, nsid)
            .with_qword(2, tag)
            .with_dword(10, len)
            .with_qword(12, offset)
            .with_dword(14, timeout_ms)
    }

    /// Function Call of a prepared request, with at most [`CALL_ARGS_LEN_MAX`] bytes that take the place of the first
    /// bytes of its arguments, and a buffer of `len` bytes.
    fn function_call(nsid: u32, handle: u32, args: &[u8], len: u32, timeout_ms: u16) -> Sqe {
        debug_assert!(args.len() <= CALL_ARGS_LEN_MAX, "longer arguments belong into the prepared request");
        let mut inline = [0; CALL_ARGS_LEN_MAX];
        let args_len = args.len().min(CALL_ARGS_LEN_MAX);
        inline[..args_len].copy_from_slice(&args[..args_len]);
        let word = |at: usize| u32::from_le_bytes([inline[at], inline[at + 1], inline[at + 2], inline[at + 3]]);
        Sqe::new(function_opcode::CALL, nsid)
            .with_dword(2, handle)
            .with_bits(3, 0, 5, args_len as u32)
            .with_dword(10, len)
            .with_bits(11, 0, 16, timeout_ms.into())
            .with_dword(12, word(0))
            .with_dword(13, word(4))
            .with_dword(14, word(8))
            .with_dword(15, word(12))
    }

    /// Function Cancel. With `wait` it completes once the call has stopped and nothing of it is in flight any more.
    fn function_cancel(nsid: u32, tag: u64, wait: bool, timeout_ms: u32) -> Sqe {
        Sqe::new(function_opcode::CANCEL, nsid)
            .with_qword(2, tag)
            .with_bits(11, 0, 1, wait.into())
            .with_dword(14, timeout_ms)
    }

    /// Layout Send of `len` bytes.
    fn layout_send(nsid: u32, len: u32) -> Sqe {
        Sqe::new(function_opcode::LAYOUT_SEND, nsid).with_dword(10, len).with_bits(11, 0, 8, FUNCTION_VERSION.into())
    }

    /// Function Clear of what `id` names; `range` is used for a state.
    fn function_clear(nsid: u32, select: ClearSelect, id: u64, range: std::ops::Range<u64>) -> Sqe {
        Sqe::new(function_opcode::CLEAR, nsid)
            .with_qword(2, id)
            .with_bits(10, 0, 4, select as u32)
            .with_qword(12, range.start)
            .with_qword(14, range.end.saturating_sub(range.start))
    }

    /// Sets FIRST: this Send begins a request (dword 11 bit 16).
    #[must_use]
    fn with_first(&self) -> Sqe {
        self.borrow().with_bits(11, 16, 1, 1)
    }

    /// Sets LAST: no Send of this tag follows (dword 11 bit 17).
    #[must_use]
    fn with_last(&self) -> Sqe {
        self.borrow().with_bits(11, 17, 1, 1)
    }

    /// Sets FILL: the Receive waits until its buffer is full or the result ends (dword 11 bit 0).
    #[must_use]
    fn with_fill(&self) -> Sqe {
        self.borrow().with_bits(11, 0, 1, 1)
    }

    /// Sets PAD: the Receive's data is padded with zeroes to its full length (dword 11 bit 1).
    #[must_use]
    fn with_pad(&self) -> Sqe {
        self.borrow().with_bits(11, 1, 1, 1)
    }

    /// Sets the timeout of a Send, Receive or Cancel (dword 14).
    #[must_use]
    fn with_function_timeout_ms(&self, timeout_ms: u32) -> Sqe {
        self.borrow().with_dword(14, timeout_ms)
    }

    /// TAG (dwords 2 and 3) of Send, Receive and Cancel; ID of Clear.
    fn function_tag(&self) -> u64 {
        self.borrow().qword(2)
    }

    /// LEN (dword 10): bytes of a Send, buffer of a Receive or Call.
    fn function_len(&self) -> u32 {
        self.borrow().dword(10)
    }

    /// VER of a Send (dword 11 bits 7:0).
    fn function_version(&self) -> u8 {
        self.borrow().bits(11, 0, 8) as u8
    }

    /// KIND of a Send (dword 11 bits 15:8).
    fn function_kind(&self) -> u8 {
        self.borrow().bits(11, 8, 8) as u8
    }

    /// FIRST of a Send.
    fn is_first(&self) -> bool {
        self.borrow().bits(11, 16, 1) != 0
    }

    /// LAST of a Send.
    fn is_last(&self) -> bool {
        self.borrow().bits(11, 17, 1) != 0
    }

    /// FILL of a Receive.
    fn fills(&self) -> bool {
        self.borrow().bits(11, 0, 1) != 0
    }

    /// PAD of a Receive.
    fn pads(&self) -> bool {
        self.borrow().bits(11, 1, 1) != 0
    }

    /// OFFSET of a Send or Receive (dwords 12 and 13).
    fn function_offset(&self) -> u64 {
        self.borrow().qword(12)
    }

    /// TMO of a Send, Receive or Cancel in milliseconds, as it was sent (dword 14).
    fn function_timeout_ms(&self) -> u32 {
        self.borrow().dword(14)
    }

    /// WAIT of a Cancel (dword 11 bit 0).
    fn cancel_waits(&self) -> bool {
        self.borrow().bits(11, 0, 1) != 0
    }

    /// HANDLE of a Call (dword 2).
    fn call_handle(&self) -> u32 {
        self.borrow().dword(2)
    }

    /// TMO of a Call in milliseconds (dword 11 bits 15:0).
    fn call_timeout_ms(&self) -> u32 {
        self.borrow().bits(11, 0, 16)
    }

    /// Inline argument of a Call, and how many of its bytes count (ARGLEN, dword 3 bits 4:0: 17 to 31 are not valid).
    fn call_args(&self) -> ([u8; CALL_ARGS_LEN_MAX], usize) {
        let mut args = [0; CALL_ARGS_LEN_MAX];
        for (n, bytes) in (12..).zip(args.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&self.borrow().dword(n).to_le_bytes());
        }
        (args, self.borrow().bits(3, 0, 5) as usize)
    }

    /// SEL of Clear (dword 10 bits 3:0).
    fn clear_select(&self) -> u32 {
        self.borrow().bits(10, 0, 4)
    }

    /// First byte (dwords 12 and 13) and length (dwords 14 and 15) of Clear.
    fn clear_range(&self) -> (u64, u64) {
        (self.borrow().qword(12), self.borrow().qword(14))
    }
}

impl FunctionCommand for Sqe {}

/// The completion of a Receive: dword 0 the bytes of result that came, dword 1 bit 0 END, bit 1 PENDING, bits
/// 31:16 the length of the trailer that follows these bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveAnswer {
    /// Bytes of the result at the start of the data.
    pub result_len: u32,
    /// Bytes of the trailer behind them; 0: none.
    pub trailer_len: u16,
    /// The call has ended. Without a trailer: another Receive brought it.
    pub end: bool,
    /// The timeout passed first; the call continues.
    pub pending: bool,
}

impl ReceiveAnswer {
    /// As dwords 0 (low half) and 1 of the completion. Dword 0 counts all bytes that are valid, the trailer's too.
    pub const fn to_result(self) -> u64 {
        let valid = self.result_len as u64 + self.trailer_len as u64;
        valid | (self.end as u64) << 32 | (self.pending as u64) << 33 | (self.trailer_len as u64) << 48
    }

    /// From dwords 0 and 1. `None`: the trailer is longer than what came.
    pub const fn from_result(result: u64) -> Option<Self> {
        let (valid, trailer_len) = (result as u32, (result >> 48) as u16);
        let Some(result_len) = valid.checked_sub(trailer_len as u32) else { return None };
        Some(Self { result_len, trailer_len, end: result >> 32 & 1 != 0, pending: result >> 33 & 1 != 0 })
    }

    /// From dwords 0 and 1 of a Call's completion, whose buffer has `len` bytes: all zeroes mean that the function ended
    /// well and its result fills the buffer.
    pub const fn from_call_result(result: u64, len: u32) -> Option<Self> {
        if result == 0 {
            return Some(Self { result_len: len, trailer_len: 0, end: true, pending: false });
        }
        Self::from_result(result)
    }
}
