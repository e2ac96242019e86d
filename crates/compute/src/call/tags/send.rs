//! Sends: parts that may come in any order become a request, then the input of its call.

use std::sync::Arc;
use std::time::Instant;

use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{FUNCTION_VERSION, FunctionCommand, FunctionKind, FunctionRequest, RequestHeader};

use super::{ABANDONED, Effect, InputQueue, Open, Phase, SendPart, Start, Tags, VecDeque};
use crate::call::answer::{Answer, Problem};
use crate::schedule::quota::{HostBytes, TAG_BYTES};

/// The answer to a Send whose bytes nobody takes.
const BEYOND_REQUEST: &str = "the request ends before this, and has no host stream as a source";

impl<W: Copy + PartialEq> Tags<W> {
    pub(crate) fn open(&mut self, now: Instant, tag: u64, kind: FunctionKind, mut part: SendPart<W>) {
        let waiter = part.waiter;
        if self.open.contains_key(&tag) {
            return self.answer(waiter, Status::TAG_IN_USE.dnr().into());
        }
        if self.open.len() >= self.limits.tags_max {
            return self.answer(waiter, Status::TAG_LIMIT_EXCEEDED.into());
        }
        if !self.send_may_wait(&part) {
            return;
        }
        self.note(now + ABANDONED);
        self.closed.retain(|(closed, _)| *closed != tag);
        let early = self.early.remove(&tag).unwrap_or_default();
        let mut receives = early.receives;
        receives.sort_by_key(|receive| receive.offset);
        let holding = part.data.split_charge(TAG_BYTES);
        let mut parts = early.sends;
        parts.push(part);
        let open = Open {
            phase: Phase::Gathering,
            kind,
            request: HostBytes::default(),
            holding,
            next_part: 0,
            last_seen: false,
            takes_input: false,
            parts,
            input: Arc::new(InputQueue::new()),
            control: Arc::default(),
            receives,
            result: VecDeque::new(),
            result_start: 0,
            result_end: 0,
            dropped: false,
            trailer: None,
            cancels: Vec::new(),
            touched: now,
        };
        self.open.insert(tag, open);
        self.gather(now, tag);
    }

    /// Takes the parts that are next: into the request, then into the input.
    pub(crate) fn gather(&mut self, now: Instant, tag: u64) {
        loop {
            let Some(open) = self.open.get_mut(&tag) else { return };
            let next = open.parts.iter().position(|part| part.offset == open.next_part);
            let Some(at) = next else { return };
            let is_full = || !open.input.has_room(&open.parts[at].data);
            if open.phase == Phase::Starting || open.phase == Phase::Running && is_full() {
                return;
            }
            let part = open.parts.swap_remove(at);
            self.send_bytes -= part.data.len();
            if open.phase == Phase::Running && !open.takes_input && !part.data.is_empty() {
                self.answer_waiting(part.waiter, Problem::in_command(48, BEYOND_REQUEST).into());
                continue;
            }
            open.next_part += part.data.len() as u64;
            open.last_seen |= part.last;
            open.touched = now;
            let (waiter, len) = (part.waiter, part.data.len() as u32);
            if open.phase == Phase::Running {
                open.input.push(part.data, part.last);
                self.answer_waiting(waiter, Answer::success().with_result(len.into()));
                continue;
            }
            if let Err(problem) = self.gather_request(tag, part) {
                return self.refused(tag, waiter, problem);
            }
        }
    }

    pub(crate) fn gather_request(&mut self, tag: u64, part: SendPart<W>) -> Result<(), Problem> {
        let open = self.open_mut(tag);
        let (waiter, last, len) = (part.waiter, part.last, part.data.len() as u32);
        open.request.append(part.data);
        let whole = RequestHeader::request_len(&open.request).map_err(Problem::in_data)?;
        match whole.filter(|whole| *whole <= open.request.len()) {
            None if last => Err(Problem::in_data_at(open.request.len(), "the request ends before its end")),
            None => {
                self.answer_waiting(waiter, Answer::success().with_result(len.into()));
                Ok(())
            }
            Some(whole) => {
                let request = FunctionRequest::decode(&open.request[..whole]).map_err(Problem::in_data)?;
                open.takes_input = request.sources.iter().any(|source| source.kind.takes_input());
                if !open.takes_input && whole < open.request.len() {
                    return Err(Problem::in_data_at(whole, BEYOND_REQUEST));
                }
                let input = open.request.split_off(whole);
                open.input.push(input, last);
                let holding = std::mem::take(&mut open.request).into_holding();
                open.phase = Phase::Starting;
                let (kind, input, control) = (open.kind, Arc::clone(&open.input), Arc::clone(&open.control));
                let start = Start { tag, kind, request, waiter, send_len: len, input, control, holding };
                self.effects.push(Effect::Start(Box::new(start)));
                Ok(())
            }
        }
    }
}

/// What must hold for any Send.
pub(crate) fn check_send<W>(sqe: &Sqe, part: &SendPart<W>) -> Result<(), Problem> {
    if sqe.function_version() != FUNCTION_VERSION {
        return Err(Problem::in_command(44, "the version is not 1"));
    }
    if sqe.function_len() as usize != part.data.len() {
        return Err(Problem::in_command(40, "LEN is not the length of the data"));
    }
    if sqe.is_first() && part.offset != 0 {
        return Err(Problem::in_command(48, "the first part begins at offset 0"));
    }
    if part.data.is_empty() && !part.last {
        return Err(Problem::in_command(40, "a part without data ends the stream, or is none"));
    }
    if part.offset.checked_add(part.data.len() as u64).is_none() {
        return Err(Problem::in_command(48, "the part ends behind 2^64"));
    }
    Ok(())
}
