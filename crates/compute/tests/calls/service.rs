//! The target of a world: programs, tags, and calls that engines work on when chance says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use diskside_engine::{Engine, ReadStream as _};
use diskside_nvme::controller::{Completion, Operation, OtherCommand, Tag};
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::program_opcode;
use diskside_nvme::{BufferSlice, Buffers as _, Status};
use diskside_rights::HostQuota;
use diskside_wire::function::{
    ClearSelect, FunctionCommand, FunctionKind, FunctionRequest, Outcome, Trailer, function_opcode,
};

use super::support::rng::Rng;
use super::{World, pattern, take};
use diskside_compute::internal::Control;
use diskside_compute::internal::InputQueue;
use diskside_compute::internal::call_answer;
use diskside_compute::internal::{Answer, Piece, Problem};
use diskside_compute::internal::{Effect, Limits, Start, Tags, Waiter};
use diskside_compute::internal::{ProgramLimits, Programs};

/// The most of a result that is made before it is asked for.
const RESULT_AHEAD: u64 = 4096;

/// What all worlds compute with.
pub(super) struct Engines {
    engine: Engine,
    pub(super) programs: Programs,
    shipped: usize,
}

/// A command's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Name {
    serial: u64,
    tag: Tag,
}

/// One controller, as far as it computes.
pub(super) struct Service {
    tags: Tags<Name>,
    /// Requests that are being looked at.
    starting: Vec<Start<Name>>,
    jobs: BTreeMap<u64, Job>,
    prepared: BTreeMap<u32, FunctionRequest>,
    last_handle: u32,
    /// Function Calls that an engine has, and those that it has run.
    calls: Vec<Call>,
    ran: Vec<Call>,
    /// What calls wrote, by tag.
    media: BTreeMap<u64, Vec<u8>>,
    /// Calls that must write nothing any more: their host is gone, or heard that they were stopped.
    fenced: BTreeSet<u64>,
}

/// A Function Call.
struct Call {
    name: Name,
    result: Vec<u8>,
    /// Bytes of its buffer.
    len: u32,
    stopped: bool,
}

/// A call at work: it reads all of its input, then makes its result, or writes it.
struct Job {
    writes: bool,
    input: Arc<InputQueue>,
    control: Arc<Control>,
    input_len: u64,
    consumed: u64,
    sum: u64,
    seed: u64,
    result_len: u64,
    result: Vec<u8>,
    made: usize,
}

/// The arguments of a request in these worlds: its result's and its input's length, and a seed.
pub(super) fn args(result_len: u64, input_len: u64, seed: u64) -> Vec<u8> {
    [result_len, input_len, seed].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn parse(args: &[u8]) -> (u64, u64, u64) {
    let word = |at: usize| u64::from_le_bytes(args[at..at + 8].try_into().expect("eight bytes"));
    (word(0), word(8), word(16))
}

/// The result of a call over this input.
pub(super) fn result_of(result_len: u64, seed: u64, sum: u64) -> Vec<u8> {
    pattern(seed.wrapping_add(sum), result_len)
}

impl Engines {
    pub(super) fn new() -> Self {
        let engine = Engine::new(diskside_sbpf::helpers::standard());
        let limits = ProgramLimits {
            indexes: 64,
            len_max: 1 << 20,
            total_len_max: 1 << 20,
            host_programs_max: 4,
            active_max: 64,
        };
        let programs = Programs::new(&engine, limits).expect("the shipped functions are good");
        let shipped = programs.directory("", |_| true).1.len();
        Self { engine, programs, shipped }
    }

    /// The first index that no shipped function has.
    pub(super) fn free(&self) -> u16 {
        self.shipped as u16
    }

    pub(super) fn check_empty(&self) {
        assert_eq!(self.programs.directory("", |_| true).1.len(), self.shipped, "a host's programs go with it");
    }

    fn admin(&self, sqe: &Sqe, data: &[u8]) -> Answer {
        let host = super::host::NQN;
        let done = match sqe.opcode() {
            program_opcode::ACTIVATION => self.programs.activation(host, sqe),
            _ => match self.programs.load((host, &HostQuota::unlimited()), 0, sqe, data) {
                Ok(None) => Ok(()),
                Ok(Some(unverified)) => self.programs.verify(&self.engine, unverified),
                Err(problem) => Err(problem),
            },
        };
        done.map_or_else(Into::into, |()| Answer::success())
    }
}

impl Service {
    fn new() -> Self {
        Self {
            tags: Tags::new(Limits { tags_max: 6, send_bytes_max: 24 << 10 }),
            starting: Vec::new(),
            jobs: BTreeMap::new(),
            prepared: BTreeMap::new(),
            last_handle: 0,
            calls: Vec::new(),
            ran: Vec::new(),
            media: BTreeMap::new(),
            fenced: BTreeSet::new(),
        }
    }

    /// Whether an engine can do something.
    pub(super) fn has_work(&self) -> bool {
        let ready = |(tag, job): (&u64, &Job)| job.is_ready(self.tags.unclaimed(*tag));
        !self.starting.is_empty() || !self.calls.is_empty() || self.jobs.iter().any(ready)
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.tags.next_timeout()
    }

    /// Lets time pass for a host that is gone.
    pub(super) fn time_out(&mut self, now: Instant) {
        self.tags.handle_timeout(now);
        assert!(self.tags.take_effects().is_empty(), "nobody is there to be answered");
    }

    pub(super) fn runs(&self, tag: u64) -> bool {
        self.jobs.contains_key(&tag)
    }

    pub(super) fn lost(&mut self, now: Instant, serial: u64) {
        self.tags.lost(now, |name| name.serial == serial);
        self.calls.retain(|call| call.name.serial != serial);
        self.fenced.extend(self.jobs.keys());
    }

    /// The host gave up on a command.
    fn abort(&mut self, name: Name) {
        self.tags.abort(name);
        self.calls.iter_mut().filter(|call| call.name == name).for_each(|call| call.stopped = true);
    }

    /// A cancel said that nothing of a call is being written any more.
    pub(super) fn fence(&mut self, tag: u64) {
        self.fenced.insert(tag);
    }

    /// What a call wrote.
    pub(super) fn written(&self, tag: u64) -> Option<&[u8]> {
        self.media.get(&tag).map(Vec::as_slice)
    }

    /// Nothing of its host is left.
    pub(super) fn check_empty(&self, association: u64) {
        let tags = &self.tags;
        assert!(self.jobs.is_empty() && self.starting.is_empty(), "association {association} still computes");
        assert!(tags.is_empty(), "association {association}: {tags:#?}");
        assert!(tags.waiting.values().all(|waiting| *waiting == 0) && tags.send_bytes == 0, "{tags:#?}");
        assert!(tags.effects.is_empty());
    }

    /// An engine does a bit.
    pub(super) fn work(&mut self, now: Instant, rng: &mut Rng, engines: &Engines) {
        if !self.calls.is_empty() && rng.chance(5) {
            let call = self.calls.swap_remove(rng.below(self.calls.len() as u64) as usize);
            return self.ran.push(call);
        }
        let ready: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(tag, job)| job.is_ready(self.tags.unclaimed(**tag)))
            .map(|(tag, _)| *tag)
            .collect();
        if !ready.is_empty() && (self.starting.is_empty() || rng.chance(60)) {
            let tag = *rng.pick(&ready);
            return self.run(now, tag, rng);
        }
        if self.starting.is_empty() {
            return;
        }
        let start = self.starting.swap_remove(rng.below(self.starting.len() as u64) as usize);
        let Start { tag, kind, request, waiter, send_len, input, control, .. } = start;
        if let Err(status) = engines.programs.active(crate::host::NQN, request.pind) {
            return self.tags.refused(tag, waiter, status.into());
        }
        if kind == FunctionKind::Prepare {
            self.last_handle += 1;
            self.prepared.insert(self.last_handle, request);
            let answer = Answer::success().with_result(self.last_handle.into());
            return self.tags.done_at_once(tag, waiter, answer);
        }
        let (result_len, input_len, seed) = parse(&request.args);
        let (consumed, sum, made, result) = Default::default();
        let writes = kind == FunctionKind::Write;
        let job = Job { writes, input, control, input_len, consumed, sum, seed, result_len, result, made };
        self.tags.accepted(tag, waiter, send_len);
        assert!(self.jobs.insert(tag, job).is_none(), "tags are used once");
    }

    fn run(&mut self, now: Instant, tag: u64, rng: &mut Rng) {
        let Some(job) = self.jobs.get_mut(&tag) else { return };
        if job.control.cancel.is_cancelled() {
            self.jobs.remove(&tag);
            return self.tags.ended(now, tag, Trailer::new(Outcome::Cancelled));
        }
        if job.consumed < job.input_len {
            let mut bytes = vec![0; rng.between(1, 3000) as usize];
            let len = job.input.read(&mut bytes).expect("it is open and has bytes");
            job.consumed += len as u64;
            job.sum += bytes[..len].iter().map(|byte| u64::from(*byte)).sum::<u64>();
            return self.tags.consumed(now, tag);
        }
        if job.result.is_empty() {
            job.result = result_of(job.result_len, job.seed, job.sum);
        }
        let left = job.result.len() - job.made;
        if left == 0 {
            let mut trailer = Trailer::new(Outcome::Ok);
            *if job.writes { &mut trailer.media_written } else { &mut trailer.result_len } = job.result_len;
            self.jobs.remove(&tag);
            return self.tags.ended(now, tag, trailer);
        }
        let len = rng.between(1, left.min(5000) as u64) as usize;
        let piece = &job.result[job.made..job.made + len];
        job.made += len;
        if job.writes {
            assert!(!self.fenced.contains(&tag), "written behind a fence");
            return self.media.entry(tag).or_default().extend_from_slice(piece);
        }
        self.tags.produced(tag, Piece::of(piece.to_vec()));
    }
}

impl Job {
    /// Whether it would not wait.
    fn is_ready(&self, unclaimed: u64) -> bool {
        self.control.cancel.is_cancelled()
            || if self.consumed < self.input_len {
                self.input.received_bytes() > self.consumed
            } else {
                self.writes || self.made as u64 == self.result_len || unclaimed < RESULT_AHEAD
            }
    }
}

impl World {
    /// Hands over what a controller asks for.
    pub(super) fn take_requests(&mut self, index: usize, engines: &Engines) {
        while let Some(request) = self.links[index].controller.poll_request() {
            let machine = &self.links[index].controller;
            let association = machine.association().expect("commands come over associations");
            let (entries, queue_id) = (machine.queue_entries(), machine.queue_id().unwrap_or(0));
            let name = Name { serial: self.serials[index], tag: request.tag };
            let service = self.services.entry(association).or_insert_with(Service::new);
            match request.operation {
                Operation::Cancel => service.abort(name),
                Operation::GiveBack(data) => self.target.memory.release(data.buffer),
                Operation::Other(OtherCommand { sqe, admin, data, .. }) => {
                    let range = |slice: BufferSlice| slice.offset as usize..(slice.offset + slice.len) as usize;
                    let data = data.map(|slice| take(&mut self.target.memory, slice.buffer, range(slice)));
                    let data = data.unwrap_or_default();
                    if admin {
                        let answer = engines.admin(&sqe, &data);
                        self.answer(name, answer);
                    } else {
                        let waiter = Waiter { queue_id, entries, name };
                        let answer = service.command(self.now, waiter, &sqe, data);
                        if let Some(answer) = answer {
                            self.answer(name, answer);
                        }
                    }
                }
                other => panic!("no host asks for this: {other:?}"),
            }
            self.carry_out(association);
        }
    }

    /// Does what the tags say.
    pub(super) fn carry_out(&mut self, association: u64) {
        let Some(service) = self.services.get_mut(&association) else { return };
        if service.next_timeout().is_some_and(|at| at <= self.now) {
            service.tags.handle_timeout(self.now);
        }
        let mut answers = Vec::new();
        for effect in service.tags.take_effects() {
            match effect {
                Effect::Answer(name, answer) => answers.push((name, answer)),
                Effect::Start(start) => service.starting.push(*start),
            }
        }
        for Call { name, result, len, stopped } in service.ran.drain(..) {
            let outcome = if stopped { Outcome::Cancelled } else { Outcome::Ok };
            answers.push((name, call_answer(&result, Trailer::new(outcome), len)));
        }
        for (name, answer) in answers {
            self.answer(name, answer);
        }
    }

    fn answer(&mut self, name: Name, answer: Answer) {
        let Some(index) = self.serials.iter().position(|serial| *serial == name.serial) else { return };
        let link = &mut self.links[index];
        if link.dead {
            return;
        }
        let mut pieces = answer.pieces;
        if !answer.short.is_empty() {
            pieces.push(Piece::of(answer.short));
        }
        let len: usize = pieces.iter().map(Piece::len).sum();
        let memory = &mut self.target.memory;
        if !answer.status.is_success() || len == 0 {
            let completion = Completion::from(answer.status).with_result(answer.result);
            return link.controller.complete(self.now, name.tag, completion, memory);
        }
        let last = pieces.len() - 1;
        for (at, piece) in pieces.iter().enumerate() {
            let buffer = memory.insert(piece.bytes().to_vec());
            let slice = BufferSlice::new(buffer, piece.len() as u32);
            if at < last {
                link.controller.push_data(name.tag, slice, memory);
            } else {
                let completion = Completion::data(slice).with_result(answer.result);
                link.controller.complete(self.now, name.tag, completion, memory);
            }
        }
    }
}

impl Service {
    /// A command; its answer, if the tags do not answer it.
    fn command(&mut self, now: Instant, waiter: Waiter<Name>, sqe: &Sqe, data: Vec<u8>) -> Option<Answer> {
        match sqe.opcode() {
            function_opcode::SEND => self.tags.send(now, waiter, sqe, data),
            function_opcode::RECEIVE => self.tags.receive(now, waiter, sqe),
            function_opcode::CANCEL => self.tags.cancel(now, waiter, sqe),
            function_opcode::CALL => {
                let Some(request) = self.prepared.get(&sqe.call_handle()) else {
                    return Some(Status::UNKNOWN_HANDLE.dnr().into());
                };
                let (result_len, _, _) = parse(&request.args);
                let (args, _) = sqe.call_args();
                let seed = u64::from_le_bytes(args[..8].try_into().expect("eight bytes"));
                let (name, len) = (waiter.name, sqe.sgl().len());
                self.calls.push(Call { name, result: result_of(result_len, seed, 0), len, stopped: false });
            }
            function_opcode::CLEAR if sqe.clear_select() == ClearSelect::Prepared as u32 => {
                let known = self.prepared.remove(&(sqe.function_tag() as u32));
                let unknown = || Answer::from(Problem::from(Status::UNKNOWN_HANDLE.dnr()));
                return Some(known.map_or_else(unknown, |_| Answer::success()));
            }
            other => panic!("no host sends {other:#x}"),
        }
        None
    }
}
