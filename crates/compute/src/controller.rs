//! One controller, as far as it computes: its tags, its prepared requests, its files, and what went wrong on it.
//!
//! It lives as long as a connection of the controller that has used it.

mod answers;
mod calls;
mod clear;
mod file_read;
mod files;
mod program;
mod scans;
mod standard;
mod traversals;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use diskside_nvme::Status;
use diskside_nvme::controller::HostReservations;
use diskside_nvme::wire::program_opcode;
use diskside_nvme::wire::{Sqe, admin_opcode};
use diskside_rights::{HostRights, Scarce};
use diskside_scan::SCAN_PIND;
use diskside_wire::function::{ErrorRecord, FunctionCommand, FunctionKind, Outcome, Trailer, function_opcode};

use self::standard::Stops;
use crate::Compute;
use crate::call::answer::{Answer, Piece, Problem, SHORT_LEN_MAX};
use crate::call::context::{CallContext, CallEvents};
use crate::call::control::Control;
use crate::call::job::Job;
use crate::call::plan::Plan;
use crate::call::prepared::Prepared;
use crate::call::tags::{Effect, Start, Tags, Waiter};
use crate::call::traverse::TraversePlan;
use crate::environment::Environment;
use crate::host::Host;
use crate::limits::TAG_LIMITS;
use crate::reactors::Name;
use crate::schedule::clock::Timed;
use crate::schedule::pool::WorkClass;
use crate::schedule::quota::{ENDPOINT_BYTES, HostBytes, PART_BYTES, TAG_BYTES};
use crate::statistics::log_pages;
pub use answers::{Answers, Command};
pub use file_read::FileRead;

/// A controller.
#[derive(Debug)]
pub struct Association {
    pub(crate) id: u64,
    pub(crate) context: Arc<CallContext>,
    owner: Arc<Compute>,
    /// The version of the reservations at which the results of calls were last looked at.
    reservations_seen: AtomicU64,
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
        (rights, reservations): (HostRights, HostReservations),
        environment: Arc<Environment>,
        owner: Arc<Compute>,
    ) -> Arc<Self> {
        let files = environment.exports.session_with(rights.clone(), Arc::clone(host.quota()));
        let calls = environment.calls_by_host.of(&host.nqn);
        let context = Arc::new(CallContext { host, environment, rights, reservations, files, calls });
        Arc::new_cyclic(|me| Self {
            id,
            reservations_seen: AtomicU64::new(0),
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

    /// Takes a command. Answers that are ready at once on the caller's connection are put into `here`.
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
            function_opcode::RECEIVE => {
                self.drop_reserved(here);
                self.with_tags(here, |tags| tags.receive(now, waiter, &sqe));
            }
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

    /// Rights have changed: what uses something that the host may not use any more ends, and nothing more of its result is sent.
    pub(crate) fn rights_changed(self: &Arc<Self>) {
        let is_lost = |control: &Control| control.check_rights(&self.context).is_some();
        self.with_tags(&mut Answers::default(), |tags| tags.drop_lost(is_lost));
        self.end_lost();
        self.stops.stop_lost(&self.context);
    }

    /// The clock looks at all calls when reservations change. Before a host gets more of a result, its own are looked at here.
    fn drop_reserved(self: &Arc<Self>, here: &mut Answers) {
        let version = self.context.reservations.version();
        if self.reservations_seen.swap(version, Ordering::Relaxed) != version {
            let is_lost = |control: &Control| control.check_rights(&self.context).is_some();
            self.with_tags(here, |tags| tags.drop_lost(is_lost));
        }
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
                    Effect::Start(start) => effects.extend(self.start(*start, here)),
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

    /// Hands an answer over: here if its connection is the one being served, else through its reactor's mailbox. A long
    /// one is charged to the host from here on. If there is no room, the host can ask for it again; a result was
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
        if let Some(record) = record {
            self.context.environment.failures.add(&self.context.host.nqn, None, &record.message);
        }
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
    fn start(self: &Arc<Self>, start: Start<Name>, here: &mut Answers) -> Vec<Effect<Name>> {
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
        if let Some(reason) = &request.reason {
            self.context.environment.reasons.count(reason);
        }
        // Files are read and written until connections end; whatever computes would begin again elsewhere.
        if kind != FunctionKind::File && self.context.environment.is_ending.load(Ordering::Relaxed) {
            return self.effects_of(|tags| tags.refused(tag, waiter, Status::FUNCTION_BUSY.into()));
        }
        match kind {
            FunctionKind::Prepare => return self.prepare(tag, waiter, request, holding),
            FunctionKind::Traverse => {
                return self.traverse(tag, waiter, send_len, (request, holding), &control, &mut here.share);
            }
            FunctionKind::File => {
                return self.file_operation(tag, waiter, send_len, (request, holding), control, here);
            }
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
        let cancel = control.cancel.clone();
        let job = Job { tag, plan, context, events, control, input, queued, in_use, holding: Some(holding) };
        self.context.add(|statistics| &statistics.started, 1);
        let me = Arc::clone(self);
        let run = Box::new(move || {
            if catch_unwind(AssertUnwindSafe(|| job.run())).is_err() {
                me.ended(Instant::now(), tag, crate::call::trailer::bug());
            }
        });
        if !self.context.submit_call(class.into(), memory, cancel, run) {
            let told = "this host has too many calls waiting for an engine";
            self.ended(Instant::now(), tag, crate::call::trailer::simple(Outcome::Refused, told));
        }
        effects
    }

    fn submit_or_refuse(&self, tag: u64, waiter: Waiter<Name>, run: Box<dyn FnOnce() + Send>) -> Vec<Effect<Name>> {
        if self.context.submit(WorkClass::Prompt, 0, run) {
            return Vec::new();
        }
        self.effects_of(|tags| tags.refused(tag, waiter, Status::FUNCTION_BUSY.into()))
    }

    fn effects_of(&self, act: impl FnOnce(&mut Tags<Name>)) -> Vec<Effect<Name>> {
        let mut calls = self.lock();
        act(&mut calls.tags);
        calls.tags.take_effects()
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
            // The memory namespace and its log pages, which this host does not have.
            admin_opcode::IDENTIFY => Answer::bytes(vec![0; 4096]),
            _ => self.log_page(&sqe),
        };
        self.answer(name, answer, here);
    }

    /// The answer to an admin command that reads.
    pub(crate) fn log_page(&self, sqe: &Sqe) -> Answer {
        log_pages::answer(&self.context, sqe, || self.errors(), &self.owner)
    }

    /// As [`with_tags`](Self::with_tags), on a thread that serves no connection.
    fn with_tags_apart(&self, act: impl FnOnce(&mut Tags<Name>)) {
        // The caller holds it, so it is still there.
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

/// The result of `work`. A bug of the server in it is an answer, too: it must not leave a host waiting for ever.
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
