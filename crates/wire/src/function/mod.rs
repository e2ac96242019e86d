//! Function commands: running a function at the target's side.
//!
//! They are a vendor's I/O commands of the compute namespace (CSI 04h); `docs/wire.md` is their specification. One
//! command moves data one way. A call is a Send, which carries a [`FunctionRequest`], and Receives, which bring its
//! result and at the end a [`Trailer`]; the host chooses a 64-bit tag that joins them. A request that was prepared once
//! runs by one Call. The status of a command says whether the command was sound; the trailer's [`Outcome`] says how the
//! function ended.

mod chunks;
mod command;
mod decompression;
mod endpoint;
mod field;
mod helpers;
mod layout;
mod log;
mod request;
mod tlv;
mod trace;
mod trailer;

pub use chunks::{ChunkCodec, ChunkInput};
pub use command::{
    CALL_ARGS_LEN_MAX, ClearSelect, FUNCTION_VERSION, FunctionCommand, FunctionKind, RECEIVE_LEN_MIN, ReceiveAnswer,
    WAIT_MAX_MS, function_opcode,
};
pub use decompression::{CompressedBy, Decompression};
pub use endpoint::{Endpoint, EndpointKind, Placement};
pub use field::FieldError;
pub use helpers::HelperEntry;
pub use layout::{LAYOUT_RUNS_MAX, LayoutAction, LayoutRequest, LayoutRun};
pub use log::{
    CapabilityPage, ErrorRecord, ErrorRecordsPage, ProgramDirectory, ProgramEntry, ProgramImageHeader, StatisticsEntry,
    StatisticsPage, function_log, opcode_bit, program_state, quota_limit, statistics_kind, target_io,
};
pub use request::{
    Class, DirectAccess, FunctionRequest, REQUEST_LEN_MAX, RESULT_BLOCK_LEN, RecordSplit, RequestHeader, RequestPart,
    ResultMask, StateName, TierHint,
};
pub use trace::TraceContext;
pub use trailer::{
    Called, MESSAGE_LEN_MAX, MissingRange, Outcome, PlaceInSource, TRAILER_LEN, Times, Trailer, TrailerHeader,
};

#[cfg(test)]
mod tests;
