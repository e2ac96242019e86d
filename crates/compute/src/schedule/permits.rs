//! Permits to compute: as many runs of functions at a time as there are engines, shared fairly among hosts.
//!
//! A thread holds a permit only while a function runs over a chunk, not while it waits for a disk or a host. A free
//! permit goes to the waiting host that has used the least time for its share; background calls get one when nobody else wants it. A
//! function that runs for long passes its permit on when its turn is over, and continues when it has one again.
//!
//! A host that has used less time than those that compute, by more than a turn, does not wait: there is one permit more, for one
//! thread of such a host and for a turn. Where that is taken it comes in before the end of a turn of others. A host has that
//! advantage for a few turns of its own: time in which it wanted nothing is not saved up.
//!
//! A thread that has others at hand, a scan, may let them compute on permits that nobody wants. It asks for these again and again, and
//! a newcomer does not wait for them: for some milliseconds more threads compute than there are permits.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use diskside_engine::{Compiler, Turns};
use diskside_rights::CPU_SHARE;
use diskside_sbpf::machine::CancelToken;
use diskside_wire::function::Class;

use crate::schedule::compilers::Compilers;
use crate::schedule::yield_to_reactor::Way;

/// How long a function computes before others that wait are asked whether it is their turn.
const TURN: Duration = Duration::from_millis(2);
/// How long it computes at least before a host comes in that has used less by more than a turn.
const TURN_MIN: Duration = Duration::from_micros(200);
/// How much less time than the others a host has used at most when it comes back: for so long it goes first.
const ADVANTAGE_MAX: Duration = Duration::from_millis(10);
/// Hosts whose time is remembered while nobody computes.
const HOSTS_KEPT: usize = 1024;

/// Permits to compute.
#[derive(Debug)]
pub(crate) struct Gate {
    permits: usize,
    state: Mutex<State>,
    /// Those in [`State::waiting`], to be looked at without the lock.
    waiting: AtomicUsize,
    /// Whether more threads compute than there are permits; to be looked at without the lock.
    is_overdrawn: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<ThreadId, Held>,
    waiting: Vec<Arc<Waiting>>,
    /// Permits that were given to somebody who has not yet taken theirs.
    given: usize,
    /// Time that hosts have used, for a share of 100, as far as somebody of them computes or waits. A newcomer begins with the least.
    used: HashMap<u64, Share>,
    /// The host that asked for a permit last, and the last one before it that was another; when.
    asked: [Option<(u64, Instant)>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Held {
    host: u64,
    cpu_share: u64,
    class: Class,
    /// Threads besides that compute in its turn.
    helpers: usize,
    /// When the turn began.
    since: Instant,
    /// Until when its time is counted.
    counted_to: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    used: Duration,
    /// Threads that compute or wait.
    present: usize,
}

#[derive(Debug)]
struct Waiting {
    host: u64,
    cpu_share: u64,
    class: Class,
    granted: Mutex<bool>,
    woken: Condvar,
}

impl Held {
    fn counted(&self, ran: Duration) -> Duration {
        counted(ran, self.cpu_share) * u32::try_from(1 + self.helpers).unwrap_or(u32::MAX)
    }

    /// Whether its turn is over.
    fn is_over(&self) -> bool {
        self.counted_to.saturating_duration_since(self.since) >= TURN
    }
}

/// How much a time counts: the less, the larger the host's share.
fn counted(ran: Duration, cpu_share: u64) -> Duration {
    let ns = ran.as_nanos().saturating_mul(CPU_SHARE.into()) / u128::from(cpu_share.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

impl Waiting {
    /// Has it look whether it still waits.
    fn wake(&self) {
        let _granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        self.woken.notify_one();
    }
}

impl Gate {
    pub(crate) fn new(permits: usize) -> Self {
        Self {
            permits: permits.max(1),
            state: Mutex::default(),
            waiting: AtomicUsize::new(0),
            is_overdrawn: AtomicBool::new(false),
        }
    }

    /// Threads that compute now.
    pub(crate) fn busy(&self) -> usize {
        let state = self.lock();
        state.busy() + state.helpers()
    }

    /// Threads of a host that compute now, and that wait for it.
    pub(crate) fn of_host(&self, host: u64) -> (usize, usize) {
        let state = self.lock();
        let busy = state.held.values().filter(|held| held.host == host).map(|held| 1 + held.helpers).sum();
        (busy, state.waiting.iter().filter(|waiting| waiting.host == host).count())
    }

    /// Threads that wait for a permit.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a permit and keeps it until the guard is dropped, on this thread. `None`: it is not wanted any more.
    pub(crate) fn enter(&self, turn: &Turn) -> Option<Permit<'_>> {
        self.enter_or(turn, &mut || {})
    }

    /// The same; calls `waits` before it waits.
    fn enter_or(&self, turn: &Turn, waits: &mut dyn FnMut()) -> Option<Permit<'_>> {
        let waiting = {
            let mut state = self.lock();
            state.arrive(turn.host);
            state.note_asked(turn.host);
            let is_free = state.busy() < self.permits && state.waiting.is_empty();
            if is_free || state.busy() == self.permits && state.is_ahead(turn) {
                state.hold(turn.host, turn.cpu_share, turn.class);
                self.is_overdrawn.store(state.busy() > self.permits, Ordering::Relaxed);
                return Some(Permit { gate: self, this_thread: PhantomData });
            }
            self.queue(&mut state, turn.host, turn.cpu_share, turn.class)
        };
        waits();
        self.wait(&waiting, turn).then(|| Permit { gate: self, this_thread: PhantomData })
    }

    /// Permits that nobody wants, which others may use in the turn of the calling thread until it asks again.
    fn idle(&self) -> usize {
        let mut state = self.lock();
        state.count_helped();
        let Some(mut held) = state.held.remove(&std::thread::current().id()) else { return 0 };
        let others = 1 + state.busy() + state.helpers() + state.waiting.len();
        held.helpers = self.permits.saturating_sub(others);
        state.held.insert(std::thread::current().id(), held);
        held.helpers
    }

    /// Whether somebody may have to go before a thread that has a permit.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.is_overdrawn.load(Ordering::Relaxed)
    }

    /// If the turn of the calling thread is over and it is somebody else's, gives its permit away and waits for another;
    /// says whether it did. Without a permit it does nothing, nor is one waited for that is not wanted any more.
    pub(crate) fn pass_on(&self, turn: &Turn) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let (waiting, helpers) = {
            let mut state = self.lock();
            let Some(held) = state.count_turn() else { return false };
            if state.busy() > self.permits {
                if !held.is_over() {
                    return false;
                }
                state.held.remove(&std::thread::current().id());
                self.is_overdrawn.store(false, Ordering::Relaxed);
            } else {
                let Some(next) = state.next(Some(held)) else {
                    state.begin_turn_again();
                    return false;
                };
                state.held.remove(&std::thread::current().id());
                self.grant(&mut state, &next);
            }
            (self.queue(&mut state, held.host, held.cpu_share, held.class), held.helpers)
        };
        if self.wait(&waiting, turn)
            && let Some(held) = self.lock().held.get_mut(&std::thread::current().id())
        {
            // They compute again, too, until it asks for others, and are counted.
            held.helpers = helpers;
        }
        true
    }

    /// Gives the permit of the calling thread away, if it has one; says whether it did. The holder of its guard enters
    /// again before it drops the guard.
    fn step_aside(&self) -> bool {
        let had = self.lock().held.contains_key(&std::thread::current().id());
        if had {
            self.leave();
        }
        had
    }

    /// Waits for a permit as the thread had one before.
    fn step_back(&self, turn: &Turn) {
        // The guard of the first permit releases this one, too.
        std::mem::forget(self.enter(turn));
    }

    /// Whether another host has asked for a permit since then.
    pub(crate) fn others_asked_since(&self, host: u64, since: Instant) -> bool {
        let state = self.lock();
        let is_other = |other: u64| other != host;
        state.held.values().any(|held| is_other(held.host))
            || state.asked.iter().flatten().any(|(other, at)| is_other(*other) && *at >= since)
    }

    /// Charges a host for time that it has computed without a permit.
    pub(crate) fn charge(&self, turn: &Turn, took: Duration) {
        let mut state = self.lock();
        state.arrive(turn.host);
        if let Some(share) = state.used.get_mut(&turn.host) {
            share.used += counted(took, turn.cpu_share);
        }
        state.absent(turn.host);
    }

    /// The time that a host has used for its share, while hosts compete.
    #[cfg(test)]
    pub(crate) fn used(&self, host: u64) -> Option<Duration> {
        self.lock().used.get(&host).map(|share| share.used)
    }

    fn leave(&self) {
        let mut state = self.lock();
        state.depart();
        self.is_overdrawn.store(state.busy() > self.permits, Ordering::Relaxed);
        while state.busy() < self.permits
            && let Some(next) = state.next(None)
        {
            self.grant(&mut state, &next);
        }
    }

    fn queue(&self, state: &mut State, host: u64, cpu_share: u64, class: Class) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting { host, cpu_share, class, granted: Mutex::new(false), woken: Condvar::new() });
        state.waiting.push(Arc::clone(&waiting));
        self.waiting.store(state.waiting.len(), Ordering::Relaxed);
        waiting
    }

    fn grant(&self, state: &mut State, next: &Waiting) {
        self.waiting.store(state.waiting.len(), Ordering::Relaxed);
        state.given += 1;
        *next.granted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        next.woken.notify_one();
    }

    /// Whether there is a permit; false: it is not wanted any more.
    fn wait(&self, waiting: &Arc<Waiting>, turn: &Turn) -> bool {
        let woken = Arc::clone(waiting);
        let _watch = turn.cancel.when_cancelled(move || woken.wake());
        let granted = waiting.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let left = turn.until.saturating_duration_since(Instant::now());
        let waits = |granted: &mut bool| !*granted && !turn.cancel.is_cancelled();
        drop(waiting.woken.wait_timeout_while(granted, left, waits).unwrap_or_else(PoisonError::into_inner));
        let mut state = self.lock();
        // It may have been granted just now.
        if let Some(at) = state.waiting.iter().position(|other| Arc::ptr_eq(other, waiting)) {
            state.waiting.remove(at);
            self.waiting.store(state.waiting.len(), Ordering::Relaxed);
            state.absent(waiting.host);
            return false;
        }
        state.given -= 1;
        state.hold(waiting.host, waiting.cpu_share, waiting.class);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn busy(&self) -> usize {
        self.held.len() + self.given
    }

    /// Threads that compute in the turns of others.
    fn helpers(&self) -> usize {
        self.held.values().map(|held| held.helpers).sum()
    }

    /// Counts the time of the calling thread before it has another number of helpers.
    fn count_helped(&mut self) {
        let Some(held) = self.held.get_mut(&std::thread::current().id()) else { return };
        let ran = held.counted_to.elapsed();
        held.counted_to += ran;
        let (host, counted) = (held.host, held.counted(ran));
        if let Some(share) = self.used.get_mut(&host) {
            share.used += counted;
        }
    }

    fn arrive(&mut self, host: u64) {
        let others = self.used.iter().filter(|(other, share)| **other != host && share.present > 0);
        let least = others.map(|(_, share)| share.used).min().unwrap_or_default();
        // Names cost a peer nothing: one that is new is ahead of nobody.
        let share = self.used.entry(host).or_insert(Share { used: least, present: 0 });
        if share.present == 0 {
            share.used = share.used.max(least.saturating_sub(ADVANTAGE_MAX));
        }
        share.present += 1;
    }

    /// Whether the host has used less time than each that computes, by more than a turn.
    fn is_ahead(&self, turn: &Turn) -> bool {
        let used = |host| self.used.get(&host).map_or(Duration::ZERO, |it| it.used);
        turn.class != Class::Background && self.held.values().all(|held| used(turn.host) + TURN < used(held.host))
    }

    fn note_asked(&mut self, host: u64) {
        if self.asked[0].is_some_and(|(last, _)| last != host) {
            self.asked[1] = self.asked[0];
        }
        self.asked[0] = Some((host, Instant::now()));
    }

    fn hold(&mut self, host: u64, cpu_share: u64, class: Class) {
        let now = Instant::now();
        let held = Held { host, cpu_share, class, helpers: 0, since: now, counted_to: now };
        let before = self.held.insert(std::thread::current().id(), held);
        debug_assert!(before.is_none(), "a thread holds one permit at a time");
    }

    /// Counts the time of the calling thread, if it has a permit and somebody else may come in by now.
    fn count_turn(&mut self) -> Option<Held> {
        let held = self.held.get_mut(&std::thread::current().id())?;
        if held.counted_to.elapsed() < TURN_MIN {
            return None;
        }
        let ran = held.counted_to.elapsed();
        held.counted_to += ran;
        let held = *held;
        if let Some(share) = self.used.get_mut(&held.host) {
            share.used += held.counted(ran);
        }
        Some(held)
    }

    /// The turn of the calling thread was over, and nobody else was next.
    fn begin_turn_again(&mut self) {
        if let Some(held) = self.held.get_mut(&std::thread::current().id())
            && held.is_over()
        {
            held.since = held.counted_to;
        }
    }

    /// The calling thread needs its permit no more.
    fn depart(&mut self) {
        let Some(held) = self.held.remove(&std::thread::current().id()) else { return };
        if let Some(share) = self.used.get_mut(&held.host) {
            share.used += held.counted(held.counted_to.elapsed());
        }
        self.absent(held.host);
    }

    /// A thread of the host neither computes nor waits any more.
    fn absent(&mut self, host: u64) {
        let Some(share) = self.used.get_mut(&host) else { return };
        share.present -= 1;
        // Kept while others are there: a thread that leaves for a moment, to read on, keeps its host's time.
        if self.used.values().all(|share| share.present == 0) && self.used.len() == 1 {
            self.used.clear();
        } else if self.used.len() > HOSTS_KEPT {
            self.used.retain(|_, share| share.present > 0);
        }
    }

    /// Takes out who is next: normal before background, then the host that used least, then who came first. A thread that has a
    /// permit keeps it if it would be next among them; but calls of one host take turns. Before the end of its turn it keeps the
    /// permit unless the next one is ahead by more than a turn.
    fn next(&mut self, holder: Option<Held>) -> Option<Arc<Waiting>> {
        let used = |host| self.used.get(&host).map_or(Duration::ZERO, |it| it.used);
        let key = |host, class| (class == Class::Background, used(host));
        let places = self.waiting.iter().enumerate();
        let (at, next) = places.min_by_key(|(at, waiting)| (key(waiting.host, waiting.class), *at))?;
        let stays = holder.is_some_and(|holder| {
            let (first, second) = (key(next.host, next.class), key(holder.host, holder.class));
            if holder.is_over() { second < first } else { second <= (first.0, first.1 + TURN) }
        });
        (!stays).then(|| self.waiting.remove(at))
    }
}

/// Leave to compute, of the thread that entered.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    gate: &'a Gate,
    this_thread: PhantomData<*const ()>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.gate.leave();
    }
}

/// The turns of one host's call.
#[derive(Debug)]
pub(crate) struct HostTurns {
    gate: Arc<Gate>,
    way: Arc<Way>,
    compilers: Arc<Compilers>,
    turn: Turn,
    waited: Arc<Waited>,
}

/// Whose turns they are, and until when they are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) host: u64,
    pub(crate) cpu_share: u64,
    pub(crate) class: Class,
    pub(crate) cancel: CancelToken,
    pub(crate) until: Instant,
}

/// How long the threads of a call waited for their turns, and for reactors.
#[derive(Debug, Default)]
pub(crate) struct Waited {
    before_ns: AtomicU64,
    within_ns: AtomicU64,
}

impl Waited {
    /// In all.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.before_ns.load(Ordering::Relaxed)) + self.within()
    }

    /// While the function was in the middle of a chunk.
    pub(crate) fn within(&self) -> Duration {
        Duration::from_nanos(self.within_ns.load(Ordering::Relaxed))
    }
}

impl HostTurns {
    pub(crate) fn of(
        (gate, compilers): (&Arc<Gate>, &Arc<Compilers>),
        way: &Arc<Way>,
        turn: Turn,
        waited: &Arc<Waited>,
    ) -> Arc<dyn Turns> {
        let (gate, compilers, way) = (Arc::clone(gate), Arc::clone(compilers), Arc::clone(way));
        Arc::new(Self { gate, way, compilers, turn, waited: Arc::clone(waited) })
    }
}

fn add_since(waited_ns: &AtomicU64, since: Instant) {
    waited_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
}

impl Turns for HostTurns {
    fn take(&self, work: &mut dyn FnMut()) {
        self.take_or(&mut || {}, work);
    }

    fn take_or(&self, waits: &mut dyn FnMut(), work: &mut dyn FnMut()) {
        let asked = Instant::now();
        // Without one the work sees that it is not wanted, and ends at once.
        let _permit = self.gate.enter_or(&self.turn, waits);
        add_since(&self.waited.before_ns, asked);
        work();
    }

    fn idle(&self) -> usize {
        self.gate.idle()
    }

    fn pause(&self) {
        let asked = Instant::now();
        if self.way.give(asked) | self.gate.pass_on(&self.turn) {
            add_since(&self.waited.within_ns, asked);
        }
    }

    fn away(&self, wait: &mut dyn FnMut()) {
        let had = self.gate.step_aside();
        wait();
        if had {
            let asked = Instant::now();
            self.gate.step_back(&self.turn);
            add_since(&self.waited.within_ns, asked);
        }
    }

    fn compile(&self, compiler: Compiler, work: &mut (dyn FnMut() + Send)) -> bool {
        self.compilers.run(&self.turn, compiler, work)
    }
}
