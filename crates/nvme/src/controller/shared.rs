//! One controller, shared by the connections of its admin queue and its I/O queues, which may live on different threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use crate::nqn::Nqn;
use crate::status::Status;
use crate::wire::{
    AsyncEventConfig, Cc, Csts, ErrorEntry, HostBehavior, ReservationNotice, ReservationPage, Sqe, log_page,
};

use super::config::{Access, ControllerInfo, Namespace, Visibility};
use super::features::Features;
use super::lock::lock;
use super::request::Tag;
use super::subsystem::Subsystem;

/// Entries that the error log keeps.
pub(super) const ERROR_LOG_ENTRIES: usize = 64;

/// The most namespaces that the log of changed namespaces names (Base 5.1.12.1.5).
const CHANGED_MAX: usize = 1024;

/// The most pages of the log of reservations that wait for the host; the oldest are lost first.
const RESERVATION_PAGES_MAX: usize = 64;

/// A controller. Its connections hold it; the subsystem lists it while its admin queue lives.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) cntlid: u16,
    pub(super) host: Nqn,
    pub(super) host_id: [u8; 16],
    /// Unlike the identifier, no other controller of this process ever has it.
    pub(super) association: u64,
    /// That through which its admin queue came: I/O queues have the same path, however they came.
    pub(super) listener: Option<u16>,
    pub(super) subsystem: Arc<Subsystem>,
    /// The volatile write cache is on: writes need not be durable before they are answered.
    write_cache: AtomicBool,
    /// All its connections must end.
    closed: AtomicBool,
    /// A command came on one of its queues since somebody asked.
    heard: AtomicBool,
    /// Its host is part of this process, and need not be known.
    pub(super) trusted: bool,
    /// Its host need not, or need no longer, prove who it is.
    authenticated: AtomicBool,
    /// Its host authenticated to make the key of a secure channel, over which it comes next: it can be used for nothing else.
    awaits_channel: AtomicBool,
    state: Mutex<Shared>,
}

/// How a host is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// As a part of this process.
    Trusted,
    /// By its name.
    Named,
    /// Once it has proved who it is.
    Unproved,
}

#[derive(Debug)]
struct Shared {
    cc: Cc,
    csts: Csts,
    admin: Waker,
    queues: BTreeMap<u16, Queue>,
    features: Features,
    /// Aborts that were answered by an I/O queue: the Abort command's tag on the admin queue, and whether it worked.
    abort_answers: Vec<(Tag, bool)>,
    namespace_notice: NoticeState,
    discovery_notice: NoticeState,
    changed: BTreeSet<u32>,
    ana_notice: NoticeState,
    /// CHGCNT of the log of Asymmetric Namespace Access.
    ana_changes: u64,
    reservation_notice: NoticeState,
    reservation_pages: VecDeque<ReservationPage>,
    /// Pages that there ever were.
    reservation_count: u64,
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
    counters: Vec<Arc<Counters>>,
}

/// An I/O queue, as the admin queue sees it.
#[derive(Debug)]
struct Queue {
    waker: Waker,
    close: Arc<AtomicBool>,
    aborts: Vec<AbortOrder>,
}

/// The admin queue asks an I/O queue to end a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct AbortOrder {
    /// The command.
    pub(super) cid: u16,
    /// The Abort command on the admin queue.
    pub(super) abort: Tag,
}

/// Something that a host may want to hear of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notice {
    /// A namespace came, went or changed.
    Namespace(u32),
    /// The discovery log changed.
    DiscoveryLog,
    /// The state of the path changed.
    Path,
    /// A namespace came or went: the log of paths is another, but the host hears of it as of a namespace.
    Members,
}

/// An event that is to be reported, or was reported and not yet looked at (Base 5.1.2: it stays masked until its log is
/// read).
#[derive(Clone, Copy, Debug, Default)]
struct NoticeState {
    pending: bool,
    masked: bool,
}

/// The counters of one connection. Only that connection writes.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
}

impl Counters {
    /// Adds to a counter that only the caller's thread writes.
    pub(super) fn add(counter: &AtomicU64, value: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }
}

/// Sums of counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) errors: u64,
}

impl Controller {
    pub(super) fn new(
        cntlid: u16,
        host: Nqn,
        host_id: [u8; 16],
        subsystem: Arc<Subsystem>,
        keep_alive_ms: u32,
        admin: Waker,
        standing: Standing,
    ) -> Self {
        static ASSOCIATIONS: AtomicU64 = AtomicU64::new(1);
        let association = ASSOCIATIONS.fetch_add(1, Ordering::Relaxed);
        let write_cache = subsystem.config.write_cache;
        let shared = Shared {
            cc: Cc::default(),
            csts: Csts::default(),
            admin,
            queues: BTreeMap::new(),
            features: Features::new(keep_alive_ms),
            abort_answers: Vec::new(),
            namespace_notice: NoticeState::default(),
            discovery_notice: NoticeState::default(),
            changed: BTreeSet::new(),
            ana_notice: NoticeState::default(),
            ana_changes: 0,
            reservation_notice: NoticeState::default(),
            reservation_pages: VecDeque::new(),
            reservation_count: 0,
            errors: VecDeque::new(),
            error_count: 0,
            counters: Vec::new(),
        };
        Self {
            cntlid,
            host,
            host_id,
            association,
            listener: None,
            subsystem,
            write_cache: AtomicBool::new(write_cache),
            closed: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            trusted: standing == Standing::Trusted,
            authenticated: AtomicBool::new(standing != Standing::Unproved),
            awaits_channel: AtomicBool::new(false),
            state: Mutex::new(shared),
        }
    }

    /// The same, which a host made through a listener.
    pub(super) fn through(self, listener: Option<u16>) -> Self {
        Self { listener, ..self }
    }

    pub(super) fn info(&self) -> ControllerInfo {
        let io_queues = lock(&self.state).queues.keys().copied().collect();
        ControllerInfo { cntlid: self.cntlid, host: self.host.clone(), io_queues }
    }

    /// How its host may use a namespace.
    pub(super) fn access(&self, visibility: &dyn Visibility, namespace: &Namespace) -> Access {
        if self.trusted { Access::Write } else { visibility.access(&self.host, namespace) }
    }

    // -- life ---------------------------------------------------------------------------------------------------------

    /// A command came.
    pub(super) fn note_command(&self) {
        // Queues of other threads say so, too; who finds it said writes nothing.
        if !self.heard.load(Ordering::Relaxed) {
            self.heard.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a command came since the last time this was asked.
    pub(super) fn take_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether its host need not, or need no longer, prove who it is.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Acquire)
    }

    /// Whether its host is to come again, over a secure channel.
    pub(super) fn awaits_channel(&self) -> bool {
        self.awaits_channel.load(Ordering::Acquire)
    }

    pub(super) fn set_awaits_channel(&self) {
        self.awaits_channel.store(true, Ordering::Release);
    }

    pub(super) fn set_authenticated(&self) {
        self.authenticated.store(true, Ordering::Release);
    }

    /// Ends all connections of the controller.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake_all();
    }

    pub(super) fn wake_all(&self) {
        let state = lock(&self.state);
        state.admin.wake_by_ref();
        for queue in state.queues.values() {
            queue.waker.wake_by_ref();
        }
    }

    /// Whether the controller takes commands other than those of Fabrics.
    pub(super) fn is_ready(&self) -> bool {
        lock(&self.state).csts.ready() == 1
    }

    pub(super) fn cc(&self) -> Cc {
        lock(&self.state).cc
    }

    pub(super) fn csts(&self) -> Csts {
        lock(&self.state).csts
    }

    /// The host writes CC (Base 3.1.4.5).
    pub(super) fn set_cc(&self, new: Cc) {
        let mut state = lock(&self.state);
        let old = state.cc;
        state.cc = new;
        if new.enable() == 1 && old.enable() == 0 {
            let discovery = self.subsystem.is_discovery();
            let sizes = discovery || (new.iosqes() == 6 && new.iocqes() == 4);
            let valid = sizes && matches!(new.css(), 0 | 6 | 7) && new.mps() == 0 && new.ams() == 0;
            state.csts = if valid { Csts::default().with_ready(1) } else { Csts::default().with_fatal(1) };
        } else if new.enable() == 0 && old.enable() == 1 {
            self.reset(&mut state);
        }
        if new.shutdown() != 0 && old.shutdown() == 0 {
            state.csts = state.csts.with_shutdown(0b10);
            close_queues(&mut state);
        } else if new.shutdown() == 0 && old.shutdown() != 0 {
            state.csts = state.csts.with_shutdown(0);
        }
    }

    /// Controller Level Reset: I/O queues go, features and notices return to their defaults.
    fn reset(&self, state: &mut Shared) {
        state.csts = Csts::default();
        let keep_alive_ms = state.features.keep_alive_ms;
        state.features = Features::new(keep_alive_ms);
        self.write_cache.store(self.subsystem.config.write_cache, Ordering::Release);
        state.namespace_notice = NoticeState::default();
        state.discovery_notice = NoticeState::default();
        state.changed.clear();
        state.ana_notice = NoticeState::default();
        state.ana_changes = 0;
        state.reservation_notice = NoticeState::default();
        state.reservation_pages.clear();
        state.reservation_count = 0;
        close_queues(state);
    }

    // -- I/O queues ---------------------------------------------------------------------------------------------------

    /// An I/O queue connected; `false` if the identifier is in use. `close` is set when it must end.
    pub(super) fn add_queue(&self, qid: u16, waker: Waker, close: Arc<AtomicBool>) -> bool {
        let mut state = lock(&self.state);
        if state.queues.contains_key(&qid) {
            return false;
        }
        state.queues.insert(qid, Queue { waker, close, aborts: Vec::new() });
        true
    }

    /// Whether any I/O queue is connected.
    pub(super) fn has_queues(&self) -> bool {
        !lock(&self.state).queues.is_empty()
    }

    /// An I/O queue is gone. Aborts that it did not answer have not worked.
    pub(super) fn remove_queue(&self, qid: u16, close: &Arc<AtomicBool>) {
        let mut state = lock(&self.state);
        // After a reset the host may have connected a queue of the same identifier: that one stays.
        if state.queues.get(&qid).is_some_and(|queue| Arc::ptr_eq(&queue.close, close)) {
            let queue = state.queues.remove(&qid).expect("it was just found");
            state.abort_answers.extend(queue.aborts.iter().map(|order| (order.abort, false)));
            state.admin.wake_by_ref();
        }
    }

    /// Asks queue `qid` to end a command. `false` if there is no such queue.
    pub(super) fn order_abort(&self, qid: u16, order: AbortOrder) -> bool {
        let mut state = lock(&self.state);
        let Some(queue) = state.queues.get_mut(&qid) else { return false };
        queue.aborts.push(order);
        queue.waker.wake_by_ref();
        true
    }

    /// The orders for queue `qid`.
    pub(super) fn take_abort_orders(&self, qid: u16) -> Vec<AbortOrder> {
        lock(&self.state).queues.get_mut(&qid).map(|queue| std::mem::take(&mut queue.aborts)).unwrap_or_default()
    }

    pub(super) fn answer_abort(&self, abort: Tag, aborted: bool) {
        let mut state = lock(&self.state);
        state.abort_answers.push((abort, aborted));
        state.admin.wake_by_ref();
    }

    pub(super) fn take_abort_answers(&self) -> Vec<(Tag, bool)> {
        std::mem::take(&mut lock(&self.state).abort_answers)
    }

    // -- features -----------------------------------------------------------------------------------------------------

    pub(super) fn write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Acquire)
    }

    pub(super) fn set_write_cache(&self, on: bool) {
        self.write_cache.store(on, Ordering::Release);
    }

    pub(super) fn features(&self) -> Features {
        lock(&self.state).features.clone()
    }

    pub(super) fn change_features(&self, change: impl FnOnce(&mut Features)) {
        change(&mut lock(&self.state).features);
    }

    pub(super) fn host_behavior(&self) -> HostBehavior {
        lock(&self.state).features.host_behavior
    }

    // -- events -------------------------------------------------------------------------------------------------------

    /// Something happened that the host may want to hear of.
    pub(super) fn notify(&self, notice: Notice) {
        let mut state = lock(&self.state);
        match notice {
            Notice::Namespace(nsid) => {
                state.changed.insert(nsid);
                state.namespace_notice.pending = true;
                // I/O queues take the new snapshot by themselves; this one may have to answer a request for events.
            }
            Notice::DiscoveryLog => state.discovery_notice.pending = true,
            Notice::Path | Notice::Members => {
                state.ana_changes = state.ana_changes.checked_add(1).unwrap_or(1);
                state.ana_notice.pending |= matches!(notice, Notice::Path);
            }
        }
        state.admin.wake_by_ref();
    }

    /// The next event that the host wants and has not been told: dword 0 of the answer to its request.
    pub(super) fn next_event(&self) -> Option<u64> {
        const NOTICE: u64 = 2;
        const COMMAND_SET: u64 = 6;
        let mut state = lock(&self.state);
        let wanted = AsyncEventConfig(state.features.async_event_config);
        let tell = |state: &mut NoticeState, wanted: bool, info: u64, lid: u8| {
            if !wanted || !state.pending || state.masked {
                return None;
            }
            *state = NoticeState { pending: false, masked: true };
            Some(NOTICE | info << 8 | u64::from(lid) << 16)
        };
        // Of reservations there is no bit: what the host does not want never became a page.
        if state.reservation_notice.pending && !state.reservation_notice.masked {
            state.reservation_notice = NoticeState { pending: false, masked: true };
            return Some(COMMAND_SET | u64::from(log_page::RESERVATION) << 16);
        }
        let Shared { namespace_notice, discovery_notice, ana_notice, .. } = &mut *state;
        tell(namespace_notice, wanted.namespace_attribute(), 0x00, log_page::CHANGED_NAMESPACES)
            .or_else(|| tell(ana_notice, wanted.asymmetric_access(), 0x03, log_page::ANA))
            .or_else(|| tell(discovery_notice, wanted.discovery_log(), 0xf0, log_page::DISCOVERY))
    }

    /// The host has read the log of an event: it may be told again.
    pub(super) fn unmask(&self, lid: u8) {
        let mut state = lock(&self.state);
        match lid {
            log_page::CHANGED_NAMESPACES => state.namespace_notice.masked = false,
            log_page::DISCOVERY => state.discovery_notice.masked = false,
            log_page::ANA => state.ana_notice.masked = false,
            log_page::RESERVATION => {
                state.reservation_notice = NoticeState { pending: !state.reservation_pages.is_empty(), masked: false };
            }
            _ => {}
        }
    }

    /// The log of changed namespaces; it is emptied if `clear`.
    pub(super) fn changed_namespaces(&self, clear: bool) -> Vec<u32> {
        let mut state = lock(&self.state);
        let list =
            if state.changed.len() > CHANGED_MAX { vec![u32::MAX] } else { state.changed.iter().copied().collect() };
        if clear {
            state.changed.clear();
            state.namespace_notice.pending = false;
        }
        list
    }

    /// Counts changes of the log of Asymmetric Namespace Access.
    pub(super) fn ana_changes(&self) -> u64 {
        lock(&self.state).ana_changes
    }

    /// The host reads that log as it was after so many changes: of those it need not be told.
    pub(super) fn forget_ana_notice(&self, changes: u64) {
        let mut state = lock(&self.state);
        state.ana_notice.pending &= state.ana_changes != changes;
    }

    /// Something happened to a reservation of a namespace.
    pub(super) fn tell_reservation(&self, nsid: u32, notice: ReservationNotice) {
        let mut state = lock(&self.state);
        if notice.is_masked(state.features.reservation_masks.get(&nsid).copied().unwrap_or(0)) {
            return;
        }
        state.reservation_count += 1;
        let page = ReservationPage::new(state.reservation_count, notice, nsid);
        if state.reservation_pages.len() == RESERVATION_PAGES_MAX {
            state.reservation_pages.pop_front();
        }
        state.reservation_pages.push_back(page);
        state.reservation_notice.pending = true;
        state.admin.wake_by_ref();
    }

    /// The oldest page of the log of reservations; it is taken away if `clear`.
    pub(super) fn reservation_page(&self, clear: bool) -> ReservationPage {
        let mut state = lock(&self.state);
        let Some(mut page) = state.reservation_pages.front().copied() else { return ReservationPage::empty() };
        if clear {
            state.reservation_pages.pop_front();
        }
        page.more = (state.reservation_pages.len() - usize::from(!clear)) as u8;
        page
    }

    // -- error log and counters ---------------------------------------------------------------------------------------

    /// Notes a command that failed.
    pub(super) fn log_error(&self, qid: u16, sqe: &Sqe, csi: u8, lba: u64, status: Status) {
        let mut state = lock(&self.state);
        state.error_count += 1;
        let mut entry = ErrorEntry::new(state.error_count, qid, sqe.cid(), status);
        entry.nsid.set(sqe.nsid());
        entry.opcode = sqe.opcode();
        entry.csi = csi;
        entry.lba.set(lba);
        state.errors.truncate(ERROR_LOG_ENTRIES - 1);
        state.errors.push_front(entry);
    }

    /// The error log, newest first.
    pub(super) fn errors(&self) -> Vec<ErrorEntry> {
        lock(&self.state).errors.iter().copied().collect()
    }

    /// Counters for a new connection.
    pub(super) fn add_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut state = lock(&self.state);
        // Those of connections that have ended become one, so that the list stays as short as the queues are many.
        let (live, ended): (Vec<_>, Vec<_>) =
            state.counters.drain(..).partition(|counters| Arc::strong_count(counters) > 1);
        let sum = Counters::default();
        for old in &ended {
            Counters::add(&sum.reads, old.reads.load(Ordering::Relaxed));
            Counters::add(&sum.writes, old.writes.load(Ordering::Relaxed));
            Counters::add(&sum.read_bytes, old.read_bytes.load(Ordering::Relaxed));
            Counters::add(&sum.written_bytes, old.written_bytes.load(Ordering::Relaxed));
        }
        state.counters = live;
        state.counters.push(Arc::new(sum));
        state.counters.push(counters.clone());
        counters
    }

    pub(super) fn totals(&self) -> Totals {
        let state = lock(&self.state);
        let mut totals = Totals { errors: state.error_count, ..Totals::default() };
        for counters in &state.counters {
            totals.reads += counters.reads.load(Ordering::Relaxed);
            totals.writes += counters.writes.load(Ordering::Relaxed);
            totals.read_bytes += counters.read_bytes.load(Ordering::Relaxed);
            totals.written_bytes += counters.written_bytes.load(Ordering::Relaxed);
        }
        totals
    }
}

fn close_queues(state: &mut Shared) {
    for queue in std::mem::take(&mut state.queues).into_values() {
        queue.close.store(true, Ordering::Release);
        queue.waker.wake_by_ref();
        state.abort_answers.extend(queue.aborts.iter().map(|order| (order.abort, false)));
    }
}
