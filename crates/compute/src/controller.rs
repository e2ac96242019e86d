//! One controller, as far as it computes: its tags, its prepared requests, its files, and what went wrong on it.
//!
//! It lives as long as a connection of the controller that has used it.

mod calls;
mod clear;
mod files;
mod scans;
mod standard;
mod traversals;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_nvme::Status;
use diskside_nvme::controller::Tag;
use diskside_nvme::wire::program_opcode;
use diskside_nvme::wire::{Sqe, admin_opcode};
use diskside_rights::{Access, HostRights, Program, Rights, Scarce};
use diskside_scan::SCAN_PIND;
use diskside_wire::function::{
    ErrorRecord, FUNCTION_VERSION, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest,
    Outcome, Trailer, WAIT_MAX_MS, function_opcode,
};

use self::standard::Stops;
use crate::Compute;
use crate::call::answer::{Answer, Piece, Problem, SHORT_LEN_MAX};
use crate::call::context::{CallContext, CallEvents};
use crate::call::control::Control;
use crate::call::job::Job;
use crate::call::plan::Plan;
use crate::call::prepared::Prepared;
use crate::call::tags::{Effect, Start, Tags, Waiter};
use crate::call::traverse::{AwaitedRead, Lanes, ReadId, Share, TraversePlan, WaitingCall};
use crate::environment::Environment;
use crate::host::Host;
use crate::limits::{PREPARED_MAX, TAG_LIMITS};
use crate::program::programs::Unverified;
use crate::reactors::Name;
use crate::schedule::aside::verify_aside;
use crate::schedule::clock::Timed;
use crate::schedule::pool::WorkClass;
use crate::schedule::quota::{ENDPOINT_BYTES, Holding, HostBytes, PART_BYTES, TAG_BYTES};
use crate::statistics::log_pages;

/// A command as it came.
#[derive(Debug)]
pub struct Command {
    /// Where its answer goes.
    pub name: Name,
    /// Entries of its queue.
    pub entries: u16,
    /// Its entry.
    pub sqe: Box<Sqe>,
    /// Whether it came on the admin queue.
    pub admin: bool,
    /// Data from the host.
    pub data: Vec<u8>,
}

/// Answers for the connection that is being served right now; those of others go through their reactors' mailboxes.
#[derive(Debug, Default)]
pub struct Answers {
    /// That connection; `None`: there is none.
    serial: Option<u64>,
    list: Vec<(Tag, Answer)>,
    /// Its calls of traversals that wait, no more than its queue has entries, and those that have begun:
    /// [`Association::run_calls`] goes on with them.
    waiting: VecDeque<WaitingCall>,
    lanes: Lanes,
    /// How many such calls have ended since this was last set to zero.
    pub calls: u32,
    /// What traversals may take of the reactor's turn; nothing on other threads. Those under way count as begun.
    pub share: Share,
}

impl Answers {
    /// For the connection with this serial number.
    pub fn of(serial: u64) -> Self {
        Self { serial: Some(serial), ..Self::default() }
    }

    /// Takes those that came, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = (Tag, Answer)> {
        self.list.drain(..)
    }

    /// Calls that have begun and wait for no read.
    pub fn calls_begun(&self) -> usize {
        self.lanes.ready()
    }

    /// Whether there are calls to go on with.
    pub fn has_calls(&self) -> bool {
        self.lanes.ready() > 0 || !self.waiting.is_empty()
    }

    /// The next read that a call waits for. It is answered by [`arrived`](Self::arrived).
    pub fn next_read(&mut self) -> Option<AwaitedRead> {
        self.lanes.next_read()
    }

    /// A read has ended: with all bytes of its range, or with what was wrong.
    pub fn arrived(&mut self, id: ReadId, read: Result<&[u8], Errno>) {
        self.lanes.arrived(id, read);
    }

    /// When [`Association::end_late_calls`] is to be called, at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lanes.next_deadline()
    }
}

/// A controller.
#[derive(Debug)]
pub struct Association {
    pub(crate) id: u64,
    pub(crate) context: Arc<CallContext>,
    owner: Arc<Compute>,
    calls: Mutex<Calls>,
    prepared: Mutex<PreparedTable>,
    errors: Mutex<Errors>,
    stops: Stops,
    me: Weak<Self>,
}

#[derive(Debug)]
struct Calls {
    tags: Tags<Name>,
    /// Function Calls that a thread has, or will.
    pending: Vec<Pending>,
    /// When the clock will come.
    armed: Option<Instant>,
}

/// A Function Call that is not answered yet.
#[derive(Debug)]
struct Pending {
    name: Name,
    /// When the clock answers it; `None`: it is waited for.
    until: Option<Instant>,
    begun: bool,
    writes: bool,
    /// Bytes of its buffer.
    len: u32,
    control: Arc<Control>,
}

/// What a handle names.
#[derive(Clone, Debug)]
enum Kept {
    Call(Arc<Prepared>),
    Traverse(Arc<TraversePlan>),
}

#[derive(Debug, Default)]
struct PreparedTable {
    last: u32,
    all: BTreeMap<u32, Kept>,
}

#[derive(Debug, Default)]
struct Errors {
    count: u64,
    records: VecDeque<ErrorRecord>,
}

/// Error records kept of one controller.
const ERRORS_MAX: usize = 16;
/// How much later than its deadline a Call is answered at the latest.
const PENDING_GRACE: Duration = Duration::from_secs(1);

impl Association {
    /// Its host, among all that there are.
    pub fn host_id(&self) -> u64 {
        self.context.host.id
    }

    pub(crate) fn new(
        id: u64,
        host: Arc<Host>,
        rights: HostRights,
        environment: Arc<Environment>,
        owner: Arc<Compute>,
    ) -> Arc<Self> {
        let files = environment.exports.session_with(rights.clone(), Arc::clone(host.quota()));
        let context = Arc::new(CallContext { host, environment, rights, files });
        Arc::new_cyclic(|me| Self {
            id,
            calls: Mutex::new(Calls { tags: Tags::new(TAG_LIMITS), pending: Vec::new(), armed: None }),
            prepared: Mutex::default(),
            errors: Mutex::default(),
            stops: Stops::default(),
            me: me.clone(),
            context,
            owner,
        })
    }

    // -- commands -----------------------------------------------------------------------------------------------------

    /// Takes a command. What is answered at once on the caller's connection is put into `here`.
    pub fn command(self: &Arc<Self>, now: Instant, command: Command, here: &mut Answers) {
        if self.context.memory().is_some_and(|standard| standard.takes(&command.sqe, command.admin)) {
            return self.standard(command, here);
        }
        if command.admin {
            return self.admin(command, here);
        }
        let Command { name, entries, sqe, data, .. } = command;
        let waiter = Waiter { queue_id: name.queue_id, entries, name };
        match sqe.opcode() {
            function_opcode::SEND => {
                let beside = if sqe.is_first() { TAG_BYTES } else { PART_BYTES };
                let account = &self.context.host.account;
                let held = account.hold(data.len() + beside).or_else(|no_room| {
                    let is_waited_for = self.lock().tags.is_waited_for(sqe.function_tag());
                    if is_waited_for { account.hold_urgent(data.len() + beside) } else { Err(no_room) }
                });
                match held {
                    Ok(holding) => {
                        self.with_tags(here, |tags| tags.send(now, waiter, &sqe, HostBytes::new(data, holding)));
                    }
                    Err(no_room) => self.answer(name, Problem::busy(no_room).into(), here),
                }
            }
            function_opcode::RECEIVE => self.with_tags(here, |tags| tags.receive(now, waiter, &sqe)),
            function_opcode::CANCEL => self.with_tags(here, |tags| tags.cancel(now, waiter, &sqe)),
            function_opcode::CALL => self.call(now, name, &sqe, here),
            function_opcode::CLEAR => {
                if let Some(cleared) = self.clear(name, &sqe) {
                    self.answer(name, cleared.map_or_else(Into::into, |()| Answer::success()), here);
                }
            }
            function_opcode::LAYOUT_SEND => self.layout(name, &sqe, &data, here),
            _ => self.answer(name, Status::INVALID_OPCODE.dnr().into(), here),
        }
    }

    /// The host gave up on a command.
    pub fn abort(self: &Arc<Self>, name: Name, here: &mut Answers) {
        self.stops.stop(name);
        self.abort_pending(name);
        self.abort_call(name, here);
        self.with_tags(here, |tags| tags.abort(name));
    }

    /// A connection of the controller is gone, and with it all that the controller has under way.
    pub fn lost(self: &Arc<Self>, now: Instant, serial: u64) {
        self.stops.stop_all();
        self.stop_pending(serial);
        self.with_tags(&mut Answers::default(), |tags| tags.lost(now, |name| name.serial == serial));
    }

    /// Does something with the tags and carries out what follows from it.
    fn with_tags(self: &Arc<Self>, here: &mut Answers, act: impl FnOnce(&mut Tags<Name>)) {
        let mut effects = {
            let mut calls = self.lock();
            act(&mut calls.tags);
            self.arm(&mut calls);
            calls.tags.take_effects()
        };
        while !effects.is_empty() {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Answer(name, answer) => self.answer(name, answer, here),
                    Effect::Start(start) => effects.extend(self.start(*start, &mut here.share)),
                }
            }
        }
    }

    fn arm(&self, calls: &mut Calls) {
        let pending = calls.pending.iter().filter_map(|pending| pending.until).min();
        let queued = self.stops.next_timeout();
        if let Some(at) = calls.tags.next_timeout().into_iter().chain(pending).chain(queued).min()
            && calls.armed.is_none_or(|armed| at < armed)
        {
            calls.armed = Some(at);
            let me: Weak<dyn Timed> = self.me.clone();
            self.context.environment.clock.arm(at, self.id, me);
        }
    }

    /// Hands an answer over: here if its connection is the one being served, else through its reactor's mailbox. What is
    /// long is charged to the host from here on. If there is no room for that it can be asked for again: a result was
    /// charged when it was made.
    fn answer(&self, name: Name, mut answer: Answer, here: &mut Answers) {
        let uncharged_len = answer.uncharged_len();
        if uncharged_len > SHORT_LEN_MAX && name.opcode != function_opcode::RECEIVE {
            match self.context.host.account.hold(uncharged_len + PART_BYTES) {
                Ok(holding) => answer.charge(holding),
                Err(no_room) => answer = Problem::busy(no_room).into(),
            }
        }
        if !answer.status.is_success() {
            self.record(name, &answer);
        }
        let len = answer.data_len() as u64;
        self.context.add(|statistics| &statistics.sent, len);
        if here.serial == Some(name.serial) {
            here.list.push((name.tag, answer));
        } else {
            self.context.environment.reactors.deliver(name, answer);
        }
    }

    fn record(&self, name: Name, answer: &Answer) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.count += 1;
        if errors.records.len() == ERRORS_MAX {
            errors.records.pop_back();
        }
        let record = answer.record.as_ref();
        let record = ErrorRecord {
            count: errors.count,
            id: name.id,
            queue_id: name.queue_id,
            cid: name.cid,
            status: answer.status,
            opcode: name.opcode,
            location: record.and_then(|record| record.location),
            message: record.map_or_else(|| answer.status.to_string(), |record| record.message.clone()),
        };
        errors.records.push_front(record);
    }

    /// The error records, the newest first.
    pub(crate) fn errors(&self) -> Vec<ErrorRecord> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).records.iter().cloned().collect()
    }

    // -- calls --------------------------------------------------------------------------------------------------------

    /// Starts a request; gives what follows for the tags.
    fn start(self: &Arc<Self>, start: Start<Name>, share: &mut Share) -> Vec<Effect<Name>> {
        let Start { tag, kind, request, waiter, send_len, input, control, holding: of_bytes } = start;
        let endpoints = request.sources.len() + request.sinks.len();
        let mut holding = match self.context.host.account.hold(endpoints * ENDPOINT_BYTES) {
            Ok(holding) => holding,
            Err(no_room) => return self.effects_of(|tags| tags.refused(tag, waiter, Problem::busy(no_room))),
        };
        if let Some(of_bytes) = of_bytes {
            holding.join(of_bytes);
        }
        if kind != FunctionKind::Prepare && request.kind != kind {
            let problem = Problem::in_data_at(4, "the kind is not the command's");
            return self.effects_of(|tags| tags.refused(tag, waiter, problem));
        }
        match kind {
            FunctionKind::Prepare => return self.prepare(tag, waiter, request, holding),
            FunctionKind::Traverse => {
                return self.traverse(tag, waiter, send_len, (request, holding), &control, share);
            }
            FunctionKind::File => return self.file_operation(tag, waiter, send_len, (request, holding), control),
            _ => {}
        }
        if request.pind == SCAN_PIND {
            return self.scan(tag, waiter, send_len, (request, holding), control);
        }
        let planned = Plan::new(&self.context, kind, request);
        let begun = planned.and_then(|plan| plan.usage.begin().map(|in_use| (plan, in_use)).map_err(Problem::from));
        let (plan, in_use) = match begun {
            Ok(begun) => begun,
            Err(problem) => return self.effects_of(|tags| tags.refused(tag, waiter, problem)),
        };
        let (class, memory) = (plan.request.class, plan.memory());
        let mut effects = self.effects_of(|tags| tags.accepted(tag, waiter, send_len));
        if let Some(told) = plan.refusal() {
            self.context.host.quota().refuse(Scarce::Memory);
            let trailer = crate::call::trailer::simple(Outcome::Refused, &told);
            effects.extend(self.effects_of(|tags| tags.ended(Instant::now(), tag, trailer)));
            return effects;
        }
        let (context, events, queued) =
            (Arc::clone(&self.context), Arc::clone(self) as Arc<dyn CallEvents>, Instant::now());
        let job = Job { tag, plan, context, events, control, input, queued, in_use, holding: Some(holding) };
        self.context.add(|statistics| &statistics.started, 1);
        let me = Arc::clone(self);
        let run = Box::new(move || {
            if catch_unwind(AssertUnwindSafe(|| job.run())).is_err() {
                me.ended(Instant::now(), tag, crate::call::trailer::bug());
            }
        });
        if !self.context.submit(class.into(), memory, run) {
            let told = "this host has too many calls waiting for an engine";
            self.ended(Instant::now(), tag, crate::call::trailer::simple(Outcome::Refused, told));
        }
        effects
    }

    fn prepare(
        self: &Arc<Self>,
        tag: u64,
        waiter: Waiter<Name>,
        request: FunctionRequest,
        holding: Holding,
    ) -> Vec<Effect<Name>> {
        if request.kind == FunctionKind::Traverse {
            return self.prepare_traversal(tag, waiter, request, holding);
        }
        if request.kind == FunctionKind::Launch {
            let problem = Problem::in_data_at(4, "a launch is not prepared: each opens its files anew");
            return self.effects_of(|tags| tags.refused(tag, waiter, problem));
        }
        let plan = match Plan::new(&self.context, request.kind, request) {
            Ok(plan) if plan.sources.iter().any(crate::call::plan::PlannedSource::is_stream) => {
                let problem = Problem::in_data_at(64, "a prepared request has no host stream");
                return self.effects_of(|tags| tags.refused(tag, waiter, problem));
            }
            Ok(plan) => plan,
            Err(problem) => return self.effects_of(|tags| tags.refused(tag, waiter, problem)),
        };
        if let Some(told) = plan.refusal() {
            self.context.host.quota().refuse(Scarce::Memory);
            let problem = Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), told);
            return self.effects_of(|tags| tags.refused(tag, waiter, problem));
        }
        let me = Arc::clone(self);
        let run = Box::new(move || {
            let made = guarded(|| match Prepared::new(&me.context, plan, holding) {
                Ok(prepared) => Ok(me.keep(Kept::Call(Arc::new(prepared)))),
                Err(error) => Err(Problem::new(Status::INVALID_PROGRAM_DATA.dnr(), error.to_string())),
            });
            me.prepared(tag, waiter, made.flatten());
        });
        self.submit_or_refuse(tag, waiter, run)
    }

    /// Ends a prepare: with the handle, without room for one, or with what is wrong.
    fn prepared(self: &Arc<Self>, tag: u64, waiter: Waiter<Name>, made: Result<Option<u32>, Problem>) {
        self.with_tags(&mut Answers::default(), |tags| match made {
            Ok(Some(handle)) => tags.done_at_once(tag, waiter, Answer::success().with_result(handle.into())),
            Ok(None) => tags.refused(tag, waiter, Status::FUNCTION_BUSY.into()),
            Err(problem) => tags.refused(tag, waiter, problem),
        });
    }

    fn submit_or_refuse(&self, tag: u64, waiter: Waiter<Name>, run: Box<dyn FnOnce() + Send>) -> Vec<Effect<Name>> {
        if self.context.submit(WorkClass::Prompt, 0, run) {
            return Vec::new();
        }
        self.effects_of(|tags| tags.refused(tag, waiter, Status::FUNCTION_BUSY.into()))
    }

    fn keep(&self, prepared: Kept) -> Option<u32> {
        let mut table = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if table.all.len() >= PREPARED_MAX {
            return None;
        }
        loop {
            table.last = table.last.wrapping_add(1).max(1);
            let handle = table.last;
            if let Entry::Vacant(free) = table.all.entry(handle) {
                free.insert(prepared);
                return Some(handle);
            }
        }
    }

    fn effects_of(&self, act: impl FnOnce(&mut Tags<Name>)) -> Vec<Effect<Name>> {
        let mut calls = self.lock();
        act(&mut calls.tags);
        calls.tags.take_effects()
    }

    /// Layout Send. A Revoke waits for calls, so a thread of the pool has it.
    fn layout(self: &Arc<Self>, name: Name, sqe: &Sqe, data: &[u8], here: &mut Answers) {
        if sqe.function_version() != FUNCTION_VERSION {
            return self.answer(name, Problem::in_command(44, "the version is not 1").into(), here);
        }
        if sqe.function_len() as usize != data.len() {
            return self.answer(name, Problem::in_command(40, "LEN is not the length of the data").into(), here);
        }
        let request = match LayoutRequest::decode(data) {
            Ok(request) => request,
            Err(error) => return self.answer(name, Problem::in_data(error).into(), here),
        };
        if request.action != LayoutAction::Revoke {
            let kept = self
                .context
                .volume(request.nsid, Access::Read)
                .and_then(|volume| self.context.host.layouts.keep(volume, &self.context.host.account, request));
            return self.answer(name, kept.map_or_else(Into::into, |()| Answer::success()), here);
        }
        let wait_ms = match sqe.function_timeout_ms() {
            0 => WAIT_MAX_MS,
            asked => asked.min(WAIT_MAX_MS),
        };
        let until = Instant::now() + Duration::from_millis(wait_ms.into());
        let me = Arc::clone(self);
        let run = Box::new(move || {
            let over = guarded(|| me.context.host.layouts.revoke(request.id, request.generation, until));
            let answer = over.map(|over| Answer::success().with_result(u64::from(!over)));
            me.answer(name, answer.unwrap_or_else(Into::into), &mut Answers::default());
        });
        if !self.context.submit(WorkClass::Prompt, 0, run) {
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }

    // -- admin --------------------------------------------------------------------------------------------------------

    fn admin(self: &Arc<Self>, command: Command, here: &mut Answers) {
        let Command { name, sqe, data, .. } = command;
        let answer = match sqe.opcode() {
            program_opcode::LOAD | program_opcode::ACTIVATION => match self.program_command(&sqe, &data) {
                Ok(None) => Answer::success(),
                Ok(Some(unverified)) => return self.verify(name, unverified, here),
                Err(problem) => problem.into(),
            },
            // Of the memory namespace and of what goes with it, which this host does not have.
            admin_opcode::IDENTIFY => Answer::bytes(vec![0; 4096]),
            _ => self.log_page(&sqe),
        };
        self.answer(name, answer, here);
    }

    /// The answer to an admin command that reads.
    pub(crate) fn log_page(&self, sqe: &Sqe) -> Answer {
        log_pages::answer(&self.context, sqe, || self.errors(), |host| self.owner.tags_open(host))
    }

    /// Load Program, or Program Activation Management. Gives what is to be verified before it is answered.
    pub(crate) fn program_command(&self, sqe: &Sqe, data: &[u8]) -> Result<Option<Unverified>, Problem> {
        let (host, programs) = (&self.context.host, &self.context.environment.programs);
        if sqe.nsid() != self.context.environment.config.nsid {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr().into());
        }
        if sqe.opcode() == program_opcode::ACTIVATION {
            return programs.activation(&host.nqn, sqe).map(|()| None);
        }
        if sqe.unloads_program() {
            let unloaded = programs.unload(&host.nqn, sqe.program_index())?;
            // It may be large: to free it takes longer than others shall wait. Where there is too much to do already it goes here.
            let free = Box::new(move || drop(unloaded));
            self.context.submit(WorkClass::Prompt, 0, free);
            return Ok(None);
        }
        let rights = self.context.rights.now();
        let refuse = |problem: Problem| {
            self.context.tell_loaded(None, sqe.program_len() as usize, Some(problem.told()));
            problem
        };
        if !rights.may_load() {
            return Err(refuse(Problem::new(Status::OPERATION_DENIED.dnr(), "this host may load no programs")));
        }
        let loaded = programs.load((&host.nqn, host.quota()), self.id, sqe, data).map_err(refuse)?;
        // Before anything of it is read.
        match loaded.as_ref().and_then(|unverified| why_refused(unverified, &rights)) {
            Some(told) => {
                let refused = loaded.expect("it was just looked at");
                self.context.tell_loaded(Some(refused.sha256()), refused.len_bytes(), Some(told));
                programs.give_up(refused.place());
                Err(Problem::new(Status::OPERATION_DENIED.dnr(), told))
            }
            None => Ok(loaded),
        }
    }

    /// Verifies a program on a thread of the pool.
    fn verify(self: &Arc<Self>, name: Name, unverified: Unverified, here: &mut Answers) {
        let me = Arc::clone(self);
        let (memory, place) = (unverified.len_bytes() as u64 * 16, unverified.place());
        let run = Box::new(move || {
            let programs = &me.context.environment.programs;
            let (sha256, len) = (unverified.sha256(), unverified.len_bytes());
            let verify = || verify_aside(|| programs.verify(&me.context.environment.engine, unverified));
            let verify = AssertUnwindSafe(verify);
            let verified = catch_unwind(verify).unwrap_or_else(|_| {
                programs.give_up(place);
                Err(Problem::new(Status::INTERNAL_ERROR, "the verifier failed: a bug"))
            });
            me.context.tell_loaded(Some(sha256), len, verified.as_ref().err().map(Problem::told));
            me.answer(name, verified.map_or_else(Into::into, |()| Answer::success()), &mut Answers::default());
        });
        if !self.context.submit(WorkClass::Prompt, memory, run) {
            self.context.environment.programs.give_up(place);
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }

    /// As [`with_tags`](Self::with_tags), on a thread that serves no connection.
    fn with_tags_apart(&self, act: impl FnOnce(&mut Tags<Name>)) {
        // Who calls has it: it is still there.
        if let Some(me) = self.me.upgrade() {
            me.with_tags(&mut Answers::default(), act);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tags that are open.
    pub(crate) fn tags_open(&self) -> usize {
        self.lock().tags.len()
    }
}

/// What `work` gives. A bug of ours in it is an answer, too: it must not leave a host waiting for ever.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Problem> {
    let bug = |_| Problem::new(Status::INTERNAL_ERROR, "the target failed: a bug; see its log");
    catch_unwind(AssertUnwindSafe(work)).map_err(bug)
}

impl CallEvents for Association {
    fn unclaimed(&self, tag: u64) -> u64 {
        self.lock().tags.unclaimed(tag)
    }

    fn is_short(&self, tag: u64) -> bool {
        self.lock().tags.is_short(tag)
    }

    fn is_asked_for(&self, tag: u64) -> bool {
        self.lock().tags.is_asked_for(tag)
    }

    fn produced(&self, tag: u64, piece: Piece) {
        self.with_tags_apart(|tags| tags.produced(tag, piece));
    }

    fn consumed(&self, now: Instant, tag: u64) {
        self.with_tags_apart(|tags| tags.consumed(now, tag));
    }

    fn ended(&self, now: Instant, tag: u64, trailer: Trailer) {
        self.with_tags_apart(|tags| tags.ended(now, tag, trailer));
    }
}

impl Timed for Association {
    fn timed_out(self: Arc<Self>, now: Instant) {
        self.lock().armed = None;
        self.end_pending(now);
        for name in self.stops.expired(now) {
            let told = "no thread was free for this command: all have calls of this host";
            let problem = Problem::new(Status::COMMAND_INTERRUPTED, told);
            self.answer(name, problem.into(), &mut Answers::default());
        }
        self.with_tags(&mut Answers::default(), |tags| {
            if tags.next_timeout().is_some_and(|at| at <= now) {
                tags.handle_timeout(now);
            }
        });
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.owner.forget(self.id, &self.context.host.nqn);
    }
}

impl std::fmt::Display for Association {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.context.host.nqn, self.id)
    }
}

/// Why this host may not have this program; `None`: it may.
fn why_refused(program: &Unverified, rights: &Rights) -> Option<&'static str> {
    let Ok(signer) = program.signer() else {
        return Some("the program was changed after it was signed: sign it again (diskside sign)");
    };
    let (sha256, signer) = (program.sha256(), signer.map(|signer| signer.0));
    let credentials = Program { shipped: None, sha256: &sha256, signer: signer.as_ref() };
    match rights.lacks_signature(&credentials) {
        true if signer.is_none() => {
            Some("this target takes signed programs alone, and nobody signed this one (diskside sign)")
        }
        true => Some(
            "this target does not know who signed this program: its operator names signers (security.require_signed_by)",
        ),
        false => (!rights.may_run(&credentials)).then_some("this host may not run this program"),
    }
}
