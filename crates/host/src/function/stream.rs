//! One call: its Sends, its Receives, its trailer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use diskside_io::buffer::Buffer;
use diskside_io::request::RequestFuture;
use diskside_nvme::wire::Sqe;
use diskside_trace::Span;
use diskside_wire::function::{
    FunctionCommand, FunctionKind, Outcome, RECEIVE_LEN_MIN, ReceiveAnswer, TRAILER_LEN, Trailer,
};

use super::call::CallHandle;
use super::compute::Compute;
use super::error::FunctionError;
use crate::connection::Lane;
use crate::job::{Command, CommandData, CommandFailure, CommandOutcome, WITHDRAWN};

/// The first Receive: what most results fit in.
pub(super) const FIRST_LEN_BYTES: u32 = 32 << 10;
/// Further Receives.
const NEXT_LEN_BYTES: u32 = 512 << 10;
/// Receives that are posted at once, once the result turns out to be long.
const CREDIT: usize = 4;
/// How long a Receive waits at the target before it is posted again.
const WAIT_MS: u32 = 8_000;

/// How a call ended well.
#[derive(Clone, Debug)]
pub struct CallOutcome {
    /// The result.
    pub result: Vec<u8>,
    /// The target's report of the call: times, bytes read and written, log lines.
    pub trailer: Trailer,
    /// From the request to the end of the result.
    pub total: Duration,
    /// Bytes of requests and results that were sent and received, without the protocol's headers.
    pub wire_bytes: (u64, u64),
}

/// The result of a call as it comes, in order. Dropping it before its end cancels the call.
#[derive(Debug)]
pub struct ResultStream {
    compute: Compute,
    tag: u64,
    lane: Lane,
    handle: CallHandle,
    started: Instant,
    sends: VecDeque<RequestFuture<CommandOutcome>>,
    /// Receives that were posted, by ascending offset.
    posted: VecDeque<Posted>,
    /// Offset of the next Receive.
    next_offset: u64,
    /// Length of the next Receive.
    next_len: u32,
    credit: usize,
    sent_bytes: u64,
    received_bytes: u64,
    trailer: Option<Trailer>,
    /// The target said that the call has ended, without its trailer.
    ended: Ended,
    /// The span of the call, until its result ends.
    span: Span,
}

/// What came of an end without a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    NotYet,
    Told,
    /// The trailer was asked for once more: there is none.
    AskedAgain,
}

#[derive(Debug)]
struct Posted {
    offset: u64,
    len: u32,
    future: RequestFuture<CommandOutcome>,
}

impl ResultStream {
    /// Sends a request and the first Receive. `input` is the host stream, in parts.
    pub(super) fn start(
        compute: Compute,
        kind: FunctionKind,
        request: Vec<u8>,
        input: Vec<Buffer>,
        expected_len: u64,
        span: Span,
    ) -> Self {
        let len_max = compute.transfer_len_max();
        let (tag, lane) = (compute.next_tag(), compute.connection().lane());
        let mut this = Self {
            tag,
            lane,
            handle: CallHandle::new(&compute, tag, lane),
            started: Instant::now(),
            sends: VecDeque::new(),
            posted: VecDeque::new(),
            next_offset: 0,
            next_len: len_max,
            credit: 0,
            sent_bytes: 0,
            received_bytes: 0,
            trailer: None,
            ended: Ended::NotYet,
            span,
            compute,
        };
        this.send_all(kind, request, input);
        while this.next_offset < expected_len {
            let len = (expected_len - this.next_offset).clamp(RECEIVE_LEN_MIN.into(), len_max.into()) as u32;
            this.credit += 1;
            this.next_len = len;
            this.post();
        }
        this
    }

    fn send_all(&mut self, kind: FunctionKind, request: Vec<u8>, input: Vec<Buffer>) {
        let len_max = self.compute.transfer_len_max() as usize;
        let request = Buffer::from(request);
        let parts: Vec<Buffer> =
            std::iter::once(request).chain(input).flat_map(|buffer| split(buffer, len_max)).collect();
        let last = parts.len() - 1;
        for (at, part) in parts.into_iter().enumerate() {
            let len = part.len() as u32;
            let mut sqe = Sqe::function_send(self.compute.nsid(), kind, self.tag, self.sent_bytes, len);
            if at == 0 {
                sqe = sqe.with_first();
            }
            if at == last {
                sqe = sqe.with_last();
            }
            self.sent_bytes += u64::from(len);
            let command = self.compute.command(sqe, CommandData::Send(part));
            self.sends.push_back(self.compute.connection().command_on(self.lane, command));
        }
    }

    fn post(&mut self) {
        while self.posted.len() < self.credit {
            let (offset, len) = (self.next_offset, self.next_len);
            self.posted.push_back(self.receive(offset, len));
            self.next_offset += u64::from(len);
        }
    }

    fn receive(&self, offset: u64, len: u32) -> Posted {
        let sqe = Sqe::function_receive(self.compute.nsid(), self.tag, offset, len, self.compute.wait_ms(WAIT_MS));
        let data = CommandData::Receive(Buffer::zeroed(len as usize));
        let command = self.compute.command(sqe.with_fill(), data);
        Posted { offset, len, future: self.compute.connection().command_on(self.lane, command) }
    }

    /// The tag of the call: see [`Compute::cancel`].
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Stops the call, for others than the reader of its result.
    #[must_use]
    pub fn handle(&self) -> CallHandle {
        self.handle.clone()
    }

    /// The next bytes of the result; `None` at its end, when [`trailer`](Self::trailer) is there. An outcome other
    /// than [`Outcome::Ok`] is an error behind the bytes: they are what the function gave before it failed.
    pub async fn next(&mut self) -> Result<Option<Buffer>, FunctionError> {
        while self.trailer.is_none() {
            let Some(Posted { offset, len, future }) = self.posted.pop_front() else {
                // Its end came without its trailer, which may have had no room.
                match self.ended {
                    Ended::NotYet => self.credit = self.credit.max(1),
                    Ended::Told => self.ended = Ended::AskedAgain,
                    Ended::AskedAgain => return Err(FunctionError::Untold),
                }
                self.post();
                continue;
            };
            let outcome = future.await;
            let answer = match outcome.result {
                Ok(answer) => answer,
                Err(failure) => {
                    let error = self.receive_failed(failure).await;
                    self.span.fail(&error);
                    return Err(error);
                }
            };
            let answer = ReceiveAnswer::from_result(answer.result)
                .filter(|answer| u64::from(answer.result_len) + u64::from(answer.trailer_len) <= u64::from(len));
            let (Some(answer), Some(mut buffer)) = (answer, outcome.buffer) else {
                let problem = "more bytes than the buffer of the Receive holds".into();
                return Err(FunctionError::Malformed { what: "answer to a Receive", problem });
            };
            let got = answer.result_len as usize;
            self.received_bytes += (got + usize::from(answer.trailer_len)) as u64;
            if answer.trailer_len == 0 {
                self.handle.cancel_again();
            }
            if answer.trailer_len > 0 {
                self.end(&buffer[got..got + usize::from(answer.trailer_len)])?;
            } else if answer.end {
                // The rest of what was posted brings nothing but, perhaps, the trailer.
                self.next_offset = offset + got as u64;
                self.next_len = FIRST_LEN_BYTES;
                self.credit = 1;
                if self.ended == Ended::NotYet {
                    self.ended = Ended::Told;
                }
            } else if answer.pending {
                let rest = self.receive(offset + got as u64, len - got as u32);
                self.posted.push_front(rest);
            } else if got == len as usize {
                self.credit = CREDIT;
                self.next_len = NEXT_LEN_BYTES.min(self.compute.transfer_len_max());
                self.post();
            } else {
                // The result ends here, and its trailer had no room: the next Receive brings it.
            }
            if got > 0 {
                buffer.set_len(got);
                return Ok(Some(buffer));
            }
        }
        match &self.trailer {
            Some(trailer) if trailer.outcome != Outcome::Ok => Err(FunctionError::Failed(Box::new(trailer.clone()))),
            _ => Ok(None),
        }
    }

    /// What the target said of the call, at its end.
    #[must_use]
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// Bytes that were sent and received so far, without the protocol's headers.
    #[must_use]
    pub fn wire_bytes(&self) -> (u64, u64) {
        (self.sent_bytes, self.received_bytes)
    }

    /// All of the result, if it is not longer than `len_max`.
    pub(super) async fn collect(mut self, len_max: u64) -> Result<CallOutcome, FunctionError> {
        let mut result = Vec::new();
        while let Some(bytes) = self.next().await? {
            if result.len() as u64 + bytes.len() as u64 > len_max {
                return Err(FunctionError::ResultTooLong { len_max });
            }
            result.extend_from_slice(&bytes);
        }
        Ok(CallOutcome {
            result,
            trailer: self.trailer.clone().unwrap_or_default(),
            total: self.started.elapsed(),
            wire_bytes: self.wire_bytes(),
        })
    }

    fn end(&mut self, bytes: &[u8]) -> Result<(), FunctionError> {
        let trailer = Trailer::decode(bytes).map_err(|e| FunctionError::malformed("trailer", e))?;
        self.span.number("diskside.sent_bytes", self.sent_bytes);
        self.span.number("diskside.received_bytes", self.received_bytes);
        if trailer.outcome != Outcome::Ok {
            self.span.fail(&trailer.message);
        }
        self.span = Span::default();
        self.trailer = Some(trailer);
        Ok(())
    }

    /// A Receive that was refused is mostly the consequence of a Send that was.
    async fn receive_failed(&mut self, failure: CommandFailure) -> FunctionError {
        if failure == CommandFailure::NotSent(WITHDRAWN) {
            let trailer = Trailer::new(Outcome::Cancelled);
            self.trailer = Some(trailer.clone());
            return FunctionError::Failed(Box::new(trailer));
        }
        let mut error = FunctionError::command("receiving a result", failure);
        while let Some(send) = self.sends.pop_front() {
            if let Err(failure) = send.await.result {
                error = FunctionError::command("sending a request", failure);
                break;
            }
        }
        // There is no call left to cancel.
        self.trailer = Some(Trailer::new(Outcome::Refused));
        self.compute.explain(error, self.tag).await
    }
}

impl Drop for ResultStream {
    fn drop(&mut self) {
        if self.trailer.is_none() {
            self.handle.cancel();
        }
    }
}

impl Compute {
    /// A command that is not sent again after a loss: its tag is gone then.
    pub(super) fn command(&self, sqe: Sqe, data: CommandData) -> Command {
        Command { sqe, data, timeout: None, repeatable: false }
    }
}

/// Parts of at most `len_max` bytes; the buffer itself if it is not longer.
fn split(buffer: Buffer, len_max: usize) -> Vec<Buffer> {
    if buffer.len() <= len_max {
        return vec![buffer];
    }
    buffer.chunks(len_max).map(Buffer::copy_of).collect()
}

const _: () = assert!(FIRST_LEN_BYTES as usize > TRAILER_LEN);
