//! Requests that were sent before: one command runs them.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use diskside_io::buffer::Buffer;
use diskside_io::request::RequestFuture;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    CALL_ARGS_LEN_MAX, ClearSelect, FunctionCommand, FunctionKind, Outcome, ReceiveAnswer, TRAILER_LEN, Trailer,
};

use super::compute::Compute;
use super::error::FunctionError;
use super::stream::CallOutcome;
use crate::inline::InlineVolume;
use crate::job::{Command, CommandData, CommandOutcome};
use crate::task::drive;

/// A request that the target keeps. Each call of it is one command, with up to 16 bytes of argument that take
/// the place of the first bytes of the request's. Clones refer to the same one; the last gives it up.
#[derive(Clone, Debug)]
pub struct Prepared {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    compute: Compute,
    handle: u32,
}

impl Prepared {
    pub(super) async fn new(compute: &Compute, request: &[u8]) -> Result<Self, FunctionError> {
        let tag = compute.next_tag();
        let sqe = Sqe::function_send(compute.nsid(), FunctionKind::Prepare, tag, 0, request.len() as u32)
            .with_first()
            .with_last();
        let command = compute.command(sqe, CommandData::Send(Buffer::copy_of(request)));
        match compute.connection().command_on(compute.connection().lane(), command).await.result {
            Ok(answer) => {
                Ok(Self { inner: Arc::new(Inner { compute: compute.clone(), handle: answer.result as u32 }) })
            }
            Err(failure) => Err(compute.explain(FunctionError::command("preparing a request", failure), tag).await),
        }
    }

    /// Runs it. `result_len` is the length of the result if it is known, else the most that it may have: a result
    /// of exactly this length costs the least.
    ///
    /// # Panics
    /// If `args` are longer than 16 bytes.
    pub fn call(&self, args: &[u8], result_len: u32) -> RequestFuture<Result<CallOutcome, FunctionError>> {
        let connection = self.inner.compute.connection();
        let call = self.begin(args, result_len);
        let done = connection.command_on(connection.lane(), self.command(&call));
        drive(call.finish(done))
    }

    /// As [`call`](Self::call), on the queue of this volume, which its owner turns. The request was prepared on the
    /// same connection. It leaves with the volume's next turn, and the thread that polls it takes its outcome in.
    ///
    /// # Panics
    /// If `args` are longer than 16 bytes.
    pub fn call_inline(
        &self,
        volume: &mut InlineVolume,
        args: &[u8],
        result_len: u32,
    ) -> impl Future<Output = Result<CallOutcome, FunctionError>> + Send + use<> {
        let call = self.begin(args, result_len);
        let done = volume.command(self.command(&call));
        call.finish(done)
    }

    fn begin(&self, args: &[u8], result_len: u32) -> Call {
        assert!(args.len() <= CALL_ARGS_LEN_MAX, "longer arguments belong into the prepared request");
        let mut call = Call {
            prepared: Arc::clone(&self.inner),
            args: [0; CALL_ARGS_LEN_MAX],
            args_len: args.len(),
            // A buffer of exactly the result's length lets the completion ride on the data.
            buffer_len: if result_len == 0 { TRAILER_LEN as u32 } else { result_len },
            started: Instant::now(),
        };
        call.args[..args.len()].copy_from_slice(args);
        call
    }

    fn command(&self, call: &Call) -> Command {
        let Inner { compute, handle } = &*self.inner;
        let timeout_ms = compute.wait_ms(10_000) as u16;
        let args = &call.args[..call.args_len];
        let sqe = Sqe::function_call(compute.nsid(), *handle, args, call.buffer_len, timeout_ms);
        // Not aligned: nothing but the socket fills it, and most are short.
        let buffer = Buffer::from(vec![0; call.buffer_len as usize]);
        compute.command(sqe, CommandData::Receive(buffer))
    }
}

/// A call of a prepared request.
struct Call {
    prepared: Arc<Inner>,
    args: [u8; CALL_ARGS_LEN_MAX],
    args_len: usize,
    buffer_len: u32,
    started: Instant,
}

impl Call {
    async fn finish(self, done: RequestFuture<CommandOutcome>) -> Result<CallOutcome, FunctionError> {
        match finish(done.await, self.buffer_len) {
            Ok((result, trailer)) => {
                let wire_bytes = (self.args_len as u64, result.len() as u64);
                Ok(CallOutcome { result, trailer, total: self.started.elapsed(), wire_bytes })
            }
            Err(error) => {
                let Inner { compute, handle } = &*self.prepared;
                Err(compute.explain(error, (*handle).into()).await)
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let sqe = Sqe::function_clear(self.compute.nsid(), ClearSelect::Prepared, self.handle.into(), 0..0);
        let connection = self.compute.connection();
        drop(connection.command_on(connection.lane(), self.compute.command(sqe, CommandData::None)));
    }
}

fn finish(outcome: CommandOutcome, buffer_len: u32) -> Result<(Vec<u8>, Trailer), FunctionError> {
    let answer = outcome.result.map_err(|failure| FunctionError::command("a prepared call", failure))?;
    let malformed = || FunctionError::Malformed {
        what: "answer to a Call",
        problem: "more bytes than the buffer of the Call holds".into(),
    };
    let got = ReceiveAnswer::from_call_result(answer.result, buffer_len).ok_or_else(malformed)?;
    let buffer = outcome.buffer.ok_or_else(malformed)?;
    let end = got.result_len as usize;
    if buffer.len() < end {
        return Err(malformed());
    }
    let mut trailer = Trailer::new(Outcome::Ok);
    if got.trailer_len > 0 {
        let bytes = buffer.get(end..end + usize::from(got.trailer_len)).ok_or_else(malformed)?;
        trailer = Trailer::decode(bytes).map_err(|e| FunctionError::malformed("trailer", e))?;
    }
    if trailer.outcome != Outcome::Ok {
        return Err(FunctionError::Failed(Box::new(trailer)));
    }
    let mut result = buffer.into_vec();
    result.truncate(end);
    Ok((result, trailer))
}
