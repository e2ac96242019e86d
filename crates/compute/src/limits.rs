//! What is answered, and bounds that several parts of it share.

use diskside_nvme::wire::CommandEffects;
use diskside_wire::function::function_opcode;

use crate::call::tags::Limits;

/// The function commands that are answered, and their entries of the effects log.
pub(crate) const COMMANDS: &[(u8, u32)] = &[
    (function_opcode::SEND, CommandEffects::CHANGES_BLOCKS),
    (function_opcode::RECEIVE, 0),
    (function_opcode::CANCEL, 0),
    (function_opcode::CALL, CommandEffects::CHANGES_BLOCKS),
    (function_opcode::CLEAR, 0),
    (function_opcode::LAYOUT_SEND, 0),
];
/// Bounds of one controller's tags.
pub(crate) const TAG_LIMITS: Limits = Limits { tags_max: 256, send_bytes_max: 16 << 20 };
/// The most bytes of a program.
pub(crate) const PROGRAM_LEN_MAX: usize = 4 << 20;
/// Prepared requests of one controller.
pub(crate) const PREPARED_MAX: usize = 1024;
