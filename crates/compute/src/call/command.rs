//! What a Function Call asks for.

use std::time::Duration;

use diskside_nvme::wire::Sqe;
use diskside_wire::function::{CALL_ARGS_LEN_MAX, FunctionCommand, WAIT_MAX_MS};

use crate::call::answer::Problem;

/// What a Function Call asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallCommand {
    pub(crate) handle: u32,
    args: [u8; CALL_ARGS_LEN_MAX],
    pub(crate) args_len: usize,
    pub(crate) len: u32,
    pub(crate) timeout: Duration,
}

impl CallCommand {
    pub(crate) fn parse(sqe: &Sqe) -> Result<Self, Problem> {
        let (args, args_len) = sqe.call_args();
        if args_len > CALL_ARGS_LEN_MAX {
            return Err(Problem::in_command(12, "at most 16 bytes of argument"));
        }
        if sqe.function_len() != sqe.sgl().len() {
            return Err(Problem::in_command(40, "LEN is not the length of the buffer"));
        }
        let timeout_ms = match sqe.call_timeout_ms() {
            0 => WAIT_MAX_MS,
            asked => asked.min(WAIT_MAX_MS),
        };
        let timeout = Duration::from_millis(timeout_ms.into());
        Ok(Self { handle: sqe.call_handle(), args, args_len, len: sqe.function_len(), timeout })
    }

    /// The arguments of this call: those of the request, the first bytes replaced.
    pub(crate) fn args(&self, prepared: &[u8]) -> Vec<u8> {
        let mut args = Vec::new();
        self.fill_args(prepared, &mut args);
        args
    }

    /// As [`args`](Self::args), into a vector that is empty.
    pub(crate) fn fill_args(&self, prepared: &[u8], args: &mut Vec<u8>) {
        args.extend_from_slice(&self.args[..self.args_len]);
        args.extend_from_slice(prepared.get(self.args_len..).unwrap_or_default());
    }
}
