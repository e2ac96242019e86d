//! The open calls of one controller, by tag: which Sends and Receives came, what waits, and what each is answered.
//!
//! No I/O and no clock: commands, bytes of results and the time come in; answers, and requests to start, come out. Any queue of the controller may bring any half of a call, in any order.
//!
//! # What holds
//!
//! * Every command is answered exactly once: now, or by an [`Effect::Answer`] later, at the latest when its time is up.
//! * Bytes of a result are handed out once, in order. The trailer is handed out once, behind the last of them.
//! * Commands that wait are at most half of their queue's entries; open tags at most [`Limits::tags_max`].
//! * A cancel that waits is answered only after the call's job has ended: nothing of it is in flight then.

mod end;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::buffer::Buffer;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{FunctionCommand, FunctionKind, FunctionRequest, RECEIVE_LEN_MIN, Trailer, WAIT_MAX_MS};

use self::send::check_send;
use crate::call::answer::{Answer, Piece, Problem};
use crate::call::control::Control;
use crate::call::input::InputQueue;
use crate::schedule::quota::{Holding, HostBytes};

/// Bounds of one controller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tags open at a time.
    pub tags_max: usize,
    /// Bytes of Sends that wait for their turn.
    pub send_bytes_max: usize,
}

/// A command that waits for its answer: which queue it came on, and the embedder's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter<W> {
    /// Its queue.
    pub queue_id: u16,
    /// Entries of that queue.
    pub entries: u16,
    /// What the answer is addressed to.
    pub name: W,
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect<W> {
    /// Answer a command.
    Answer(W, Answer),
    /// A request is complete: start it. The Send's waiter waits for [`Tags::accepted`] or [`Tags::refused`].
    Start(Box<Start<W>>),
}

/// A request to start.
#[derive(Debug)]
pub struct Start<W> {
    /// The host's tag.
    pub tag: u64,
    /// What the Send said.
    pub kind: FunctionKind,
    /// What to run.
    pub request: FunctionRequest,
    /// Who waits to hear that it was accepted.
    pub waiter: Waiter<W>,
    /// Bytes of the Send that completed the request.
    pub send_len: u32,
    /// Where the host's stream arrives.
    pub input: Arc<InputQueue>,
    /// Stops the call, and hears that bytes of its result were taken.
    pub control: Arc<Control>,
    /// What the request is charged to.
    pub holding: Option<Holding>,
}

/// The calls of one controller.
#[derive(Debug)]
pub struct Tags<W> {
    limits: Limits,
    pub(crate) open: BTreeMap<u64, Open<W>>,
    /// Commands of tags that no Send has opened yet.
    pub(crate) early: BTreeMap<u64, Early<W>>,
    /// Tags that ended lately, the newest last.
    closed: VecDeque<(u64, Ending)>,
    /// Commands that wait, by queue.
    pub waiting: HashMap<u16, usize>,
    /// Bytes of Sends that wait.
    pub send_bytes: usize,
    /// No wait ends before this.
    earliest: Option<Instant>,
    /// What is to be done.
    pub effects: Vec<Effect<W>>,
}

#[derive(Debug)]
pub(crate) struct Early<W> {
    sends: Vec<SendPart<W>>,
    receives: Vec<Receive<W>>,
}

impl<W> Default for Early<W> {
    fn default() -> Self {
        Self { sends: Vec::new(), receives: Vec::new() }
    }
}

/// How a tag ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its trailer was handed out.
    Told,
    /// Its Send was refused.
    Refused,
}

/// A tag that is open.
#[derive(Debug)]
pub(crate) struct Open<W> {
    phase: Phase,
    kind: FunctionKind,
    /// Bytes of the request, until it is complete.
    request: HostBytes,
    /// What the tag itself is charged to.
    #[expect(dead_code, reason = "kept until the tag closes")]
    holding: Option<Holding>,
    /// Where in the stream of Sends the next part belongs.
    next_part: u64,
    last_seen: bool,
    /// Whether its request has a host stream; until it is complete, nobody knows.
    takes_input: bool,
    parts: Vec<SendPart<W>>,
    input: Arc<InputQueue>,
    control: Arc<Control>,
    receives: Vec<Receive<W>>,
    result: VecDeque<Piece>,
    /// Offset of the first byte in `result`, and behind the last.
    result_start: u64,
    result_end: u64,
    /// Nobody takes the result: what is still made of it is not kept.
    dropped: bool,
    /// The call has ended, and said this.
    trailer: Option<Box<Trailer>>,
    cancels: Vec<(Waiter<W>, Instant)>,
    /// When somebody last asked for something.
    touched: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The request is not complete.
    Gathering,
    /// It is being checked.
    Starting,
    /// Its job exists.
    Running,
    /// The job has ended.
    Ended,
}

#[derive(Debug)]
pub(crate) struct SendPart<W> {
    waiter: Waiter<W>,
    offset: u64,
    data: HostBytes,
    last: bool,
    until: Instant,
}

#[derive(Debug)]
pub(crate) struct Receive<W> {
    waiter: Waiter<W>,
    offset: u64,
    len: u32,
    fill: bool,
    pad: bool,
    until: Instant,
}

/// Tags that ended and are still known.
const CLOSED_MAX: usize = 256;
/// How long a result waits for somebody to ask for it.
pub(crate) const ABANDONED: Duration = Duration::from_secs(60);

impl<W: Copy + PartialEq> Tags<W> {
    /// A table without tags.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: BTreeMap::new(),
            early: BTreeMap::new(),
            closed: VecDeque::new(),
            waiting: HashMap::new(),
            send_bytes: 0,
            earliest: None,
            effects: Vec::new(),
        }
    }

    /// What is to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect<W>> {
        std::mem::take(&mut self.effects)
    }

    /// Tags that are open.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether it holds nothing: no tag, and no command that came too early.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.early.is_empty()
    }

    // -- commands -----------------------------------------------------------------------------------------------------

    /// A Function Send with its data.
    pub fn send(&mut self, now: Instant, waiter: Waiter<W>, sqe: &Sqe, data: impl Into<HostBytes>) {
        let tag = sqe.function_tag();
        let part = SendPart {
            waiter,
            offset: sqe.function_offset(),
            last: sqe.is_last(),
            until: now + wait_of(sqe.function_timeout_ms()),
            data: data.into(),
        };
        if let Err(problem) = check_send(sqe, &part) {
            if sqe.is_first() {
                self.refuse(tag);
            }
            return self.answer(waiter, problem.into());
        }
        if sqe.is_first() {
            let kind = FunctionKind::from_byte(sqe.function_kind());
            let Some(kind) = kind else {
                self.refuse(tag);
                return self.answer(waiter, Problem::from(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr()).into());
            };
            return self.open(now, tag, kind, part);
        }
        match self.open.get_mut(&tag) {
            Some(open) => {
                open.touched = now;
                if part.offset < open.next_part || open.last_seen && part.offset == open.next_part {
                    let told = "a part begins before the end of those that came";
                    return self.answer(waiter, Problem::in_command(48, told).into());
                }
                if open.phase == Phase::Ended {
                    // Its call ended before it needed this part. How it ended, the trailer tells.
                    return self.answer(waiter, Answer::success());
                }
                if self.send_may_wait(&part) {
                    self.open_mut(tag).parts.push(part);
                    self.gather(now, tag);
                }
            }
            None => match self.ending(tag) {
                // Its call ended before it needed this part.
                Some(Ending::Told) => self.answer(waiter, Answer::success()),
                Some(Ending::Refused) => self.answer(waiter, Status::REQUEST_REFUSED.dnr().into()),
                None => {
                    if self.send_may_wait(&part) {
                        self.early.entry(tag).or_default().sends.push(part);
                    }
                }
            },
        }
    }

    /// A Function Receive.
    pub fn receive(&mut self, now: Instant, waiter: Waiter<W>, sqe: &Sqe) {
        let tag = sqe.function_tag();
        let receive = Receive {
            waiter,
            offset: sqe.function_offset(),
            len: sqe.function_len(),
            fill: sqe.fills(),
            pad: sqe.pads(),
            until: now + wait_of(sqe.function_timeout_ms()),
        };
        if receive.len < RECEIVE_LEN_MIN || receive.len != sqe.sgl().len() {
            let told = "LEN is at least 128, and the length of the buffer";
            return self.answer(waiter, Problem::in_command(40, told).into());
        }
        match self.open.get_mut(&tag) {
            Some(open) => {
                open.touched = now;
                if self.may_wait(waiter, receive.until) {
                    let open = self.open_mut(tag);
                    let at = open.receives.partition_point(|other| other.offset <= receive.offset);
                    open.receives.insert(at, receive);
                    open.control.taken();
                    self.serve(tag);
                }
            }
            None => match self.ending(tag) {
                Some(Ending::Told) => self.answer(waiter, Answer::ended()),
                Some(Ending::Refused) => self.answer(waiter, Status::REQUEST_REFUSED.dnr().into()),
                None => {
                    if self.may_wait(waiter, receive.until) {
                        self.early.entry(tag).or_default().receives.push(receive);
                    }
                }
            },
        }
    }

    /// A Function Cancel.
    pub fn cancel(&mut self, now: Instant, waiter: Waiter<W>, sqe: &Sqe) {
        let tag = sqe.function_tag();
        if !self.open.contains_key(&tag) {
            let known = self.ending(tag).is_some();
            let answer = if known { Answer::success() } else { Status::UNKNOWN_TAG.dnr().into() };
            return self.answer(waiter, answer);
        }
        self.stop(tag);
        // The trailer ends the tag, but a cancel is done when the job is.
        let ended = self.open.get(&tag).is_none_or(|open| open.phase == Phase::Ended);
        if ended || !sqe.cancel_waits() {
            return self.answer(waiter, Answer::success());
        }
        let until = now + wait_of(sqe.function_timeout_ms());
        if self.may_wait(waiter, until) {
            self.open_mut(tag).cancels.push((waiter, until));
        }
    }

    /// The host aborted a command: the command ends, and its call continues.
    pub fn abort(&mut self, name: W) {
        let aborted = |waiter: &Waiter<W>| waiter.name == name;
        self.end_waits(&|waiter, _| aborted(waiter), &|_| Status::COMMAND_ABORT_REQUESTED.into());
    }

    // -- what the job says ----------------------------------------------------------------------------------------------

    /// The request of `start` was found good and its job made.
    pub fn accepted(&mut self, tag: u64, waiter: Waiter<W>, send_len: u32) {
        self.answer_waiting(waiter, Answer::success().with_result(send_len.into()));
        // A file operation, which has no job of its own, may have ended already.
        let Some(open) = self.open.get_mut(&tag).filter(|open| open.phase == Phase::Starting) else { return };
        open.phase = Phase::Running;
        // Input that came before.
        let touched = open.touched;
        self.gather(touched, tag);
    }

    /// The request of `start` cannot be: the tag is closed.
    pub fn refused(&mut self, tag: u64, waiter: Waiter<W>, problem: Problem) {
        self.answer_waiting(waiter, problem.into());
        if let Some(open) = self.open.remove(&tag) {
            self.end_open(open, &|_| Status::REQUEST_REFUSED.dnr().into());
        }
        self.refuse(tag);
    }

    /// The request of `start` was done at once, with this answer to its Send: a prepare.
    pub fn done_at_once(&mut self, tag: u64, waiter: Waiter<W>, answer: Answer) {
        self.answer_waiting(waiter, answer);
        if let Some(open) = self.open.remove(&tag) {
            self.end_open(open, &|_| Answer::ended());
        }
        self.close(tag, Ending::Told);
    }

    /// The call produced bytes of its result.
    pub fn produced(&mut self, tag: u64, piece: Piece) {
        let Some(open) = self.open.get_mut(&tag).filter(|open| open.trailer.is_none() && !open.dropped) else { return };
        open.result_end += piece.len() as u64;
        open.result.push_back(piece);
        self.serve(tag);
    }

    /// Bytes of the result that nobody asked for yet.
    pub fn unclaimed(&self, tag: u64) -> u64 {
        self.open.get(&tag).map_or(0, |open| open.result_end - open.result_start)
    }

    /// Whether a Receive waits to be filled, and there is not enough for it: only more of the result can end that.
    pub(crate) fn is_short(&self, tag: u64) -> bool {
        let Some(open) = self.open.get(&tag) else { return false };
        let available = open.result_end - open.result_start;
        open.receives.first().is_some_and(|first| first.offset <= open.result_start && available < first.len.into())
    }

    /// Whether a Receive waits for bytes of the result.
    pub(crate) fn is_asked_for(&self, tag: u64) -> bool {
        self.open.get(&tag).is_some_and(|open| !open.receives.is_empty())
    }

    /// Whether the call waits for input.
    pub(crate) fn is_waited_for(&self, tag: u64) -> bool {
        self.open.get(&tag).is_some_and(|open| open.input.is_waited_for())
    }

    /// The call consumed input: parts that wait may continue.
    pub fn consumed(&mut self, now: Instant, tag: u64) {
        if self.open.contains_key(&tag) {
            self.gather(now, tag);
        }
    }

    /// The call has ended: nothing of it is in flight any more.
    pub fn ended(&mut self, now: Instant, tag: u64, mut trailer: Trailer) {
        let Some(open) = self.open.get_mut(&tag) else { return };
        open.touched = now;
        open.tell_lost(&mut trailer);
        open.phase = Phase::Ended;
        open.trailer = Some(Box::new(trailer));
        open.input.close();
        let (parts, cancels) = (std::mem::take(&mut open.parts), std::mem::take(&mut open.cancels));
        for part in parts {
            self.send_bytes -= part.data.len();
            self.answer_waiting(part.waiter, Answer::success());
        }
        for (waiter, _) in cancels {
            self.answer_waiting(waiter, Answer::success());
        }
        self.serve(tag);
    }

    // -- small things -------------------------------------------------------------------------------------------------

    fn open_mut(&mut self, tag: u64) -> &mut Open<W> {
        match self.open.get_mut(&tag) {
            Some(open) => open,
            None => unreachable!("the caller has just seen this tag"),
        }
    }

    /// Counts a command that begins to wait; answers it if its queue has too many of them.
    fn may_wait(&mut self, waiter: Waiter<W>, until: Instant) -> bool {
        let waiting = self.waiting.entry(waiter.queue_id).or_default();
        if *waiting >= usize::from((waiter.entries / 2).max(1)) {
            self.answer(waiter, Status::FUNCTION_BUSY.into());
            return false;
        }
        *waiting += 1;
        self.note(until);
        true
    }

    /// The same for a Send, whose bytes are kept meanwhile.
    fn send_may_wait(&mut self, part: &SendPart<W>) -> bool {
        if self.send_bytes + part.data.len() > self.limits.send_bytes_max {
            self.answer(part.waiter, Status::FUNCTION_BUSY.into());
            return false;
        }
        if !self.may_wait(part.waiter, part.until) {
            return false;
        }
        self.send_bytes += part.data.len();
        true
    }

    fn note(&mut self, until: Instant) {
        self.earliest = Some(self.earliest.map_or(until, |earliest| earliest.min(until)));
    }

    /// Answers a command that never waited.
    fn answer(&mut self, waiter: Waiter<W>, answer: Answer) {
        self.effects.push(Effect::Answer(waiter.name, answer));
    }

    /// Answers a command that was counted as waiting.
    fn answer_waiting(&mut self, waiter: Waiter<W>, answer: Answer) {
        if let Some(waiting) = self.waiting.get_mut(&waiter.queue_id) {
            debug_assert!(*waiting > 0, "only who waits stops waiting");
            *waiting -= 1;
        }
        self.answer(waiter, answer);
    }
}

fn wait_of(timeout_ms: u32) -> Duration {
    let timeout_ms = if timeout_ms == 0 { WAIT_MAX_MS } else { timeout_ms.min(WAIT_MAX_MS) };
    Duration::from_millis(timeout_ms.into())
}

impl Piece {
    /// A piece of bytes that belong to nobody else.
    pub fn of(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self::new(Arc::new(Buffer::from(bytes)), 0..len)
    }
}
