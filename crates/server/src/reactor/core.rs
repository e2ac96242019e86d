//! The state that a reactor's connections and tasks share: its ring, its memory, its timers and the volumes as it has
//! them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::ring::{GroupId, Ring, SendBatch};
use diskside_nvme::Transmit;
use slab::Slab;

use super::file_reads::FileReads;
use super::kept::Kept;
use super::late::Inputs;
use super::local::LocalVolumes;
use super::memory::Memory;
use super::sends::Sends;
use super::steps::Steps;
use super::task::{Next, Task};
use crate::shared::{Mailbox, Shared};
use crate::stats::ReactorCounters;
use diskside_compute::{NextTurn, Shares};
use diskside_volume::stats::{HOSTS_MAX, IoCounters, OTHER_HOSTS};

/// What a reactor's connections share.
pub(crate) struct Core {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) ring: Ring,
    /// Where arriving bytes go first; idle connections hold none of it.
    pub(super) group: GroupId,
    pub(super) memory: Memory,
    pub(super) volumes: LocalVolumes,
    pub(super) hosts: HashMap<String, Arc<IoCounters>>,
    pub(super) tasks: Slab<Task>,
    pub(super) files: FileReads,
    /// Tasks that wait for memory, for a block, and for their next turn.
    pub(super) memory_waiters: VecDeque<usize>,
    pub(super) block_waiters: Steps,
    pub(super) yielded: Steps,
    /// The part of this turn that traversals took, and connections whose traversals continue in the next.
    pub(super) shares: Shares,
    pub(super) put_off: NextTurn,
    /// The part of this turn that input took, and connections whose input continues in the next.
    pub(super) inputs: Inputs,
    /// Bytes that came and are not taken.
    pub(super) kept: Kept,
    pub(super) timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    /// Timers of tasks among them.
    pub(super) delayed: usize,
    /// Connections to settle at the end of the turn.
    pub(super) dirty: Vec<usize>,
    /// The sizes of this turn's sends, and which of them go with the next.
    pub(super) sends: Sends,
    /// Connections that do not read, and whose reads are to be copied.
    pub(super) to_detach: VecDeque<usize>,
    /// Connections whose machine waits for memory.
    pub(super) starved: Vec<usize>,
    /// Where records of secure channels are opened.
    pub(super) opened: Vec<u8>,
    /// Where they are sealed.
    pub(super) spare_sealed: Vec<Vec<u8>>,
    pub(super) spare_transmits: Vec<Transmit>,
    #[expect(clippy::vec_box, reason = "batches travel in their boxes, to the ring and back")]
    pub(super) spare_batches: Vec<Box<SendBatch>>,
    pub(super) sends_in_flight: usize,
    /// Operations of media that the ring has not ended, and whether some were not handed to the kernel yet.
    pub(super) media_in_flight: usize,
    /// Reads for traversals among them.
    pub(super) fetches_in_flight: usize,
    pub(super) media_waits: bool,
    /// Whether operations of media ended in this turn.
    pub(super) media_ended: bool,
    /// Tasks that wait until a medium with a rate takes more, and when to look.
    pub(super) rate_waiters: Steps,
    pub(super) rate_at: Option<Instant>,
    /// The releases that were counted when blocks were asked for last, and when that was.
    pub(super) releases_seen: u64,
    pub(super) blocks_asked: Instant,
    /// The files of media's operations, registered with the ring until the volumes change.
    pub(super) media_files: Vec<Arc<OwnedFd>>,
    pub(super) asked_to_register: bool,
    pub(super) stall_check: Instant,
    pub(super) owed_check: Instant,
    pub(super) stop_at: Option<Instant>,
    pub(super) now: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Connection(usize),
    Task(usize),
    Accept(usize),
}

impl Core {
    /// One connection less that was placed here.
    pub(super) fn forget_connection(&self) {
        self.shared.connections[self.index].fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }

    /// Whether a disk has enough to do for traversals, and nothing else: their steps are as fast when some of them are taken
    /// together, and to look out for each alone would take all of a processor.
    pub(super) fn may_rest(&self) -> bool {
        self.fetches_in_flight >= RESTING_FETCHES_MIN && self.fetches_in_flight == self.media_in_flight
    }

    pub(super) fn counters(&self) -> &ReactorCounters {
        &self.shared.reactor_stats[self.index]
    }

    /// Puts a task where it is found again when what it needs has come.
    pub(super) fn park(&mut self, key: usize, next: Next) {
        match next {
            Next::Submit(op) => self.submit(key, op),
            Next::Rate(wait) => self.wait_for_rate(key, wait),
            Next::Memory => self.memory_waiters.push_back(key),
            Next::Block => self.block_waiters.push(self.tasks[key].host, key),
            Next::Delay(delay) => {
                let until = self.now + delay;
                self.tasks[key].delayed_until = Some(until);
                self.delayed += 1;
                self.timers.push(Reverse((until, Timer::Task(key))));
            }
            Next::Elsewhere => {
                self.tasks[key].ask(self.now);
                let waker = self.mailbox.task_waker(key);
                if self.tasks[key].listen(&waker) {
                    self.yielded.push(self.tasks[key].host, key);
                }
            }
            Next::Yield => self.yielded.push(self.tasks[key].host, key),
            Next::End(_) => unreachable!("a task that ended is not parked"),
        }
    }

    /// Cuts the delays of a connection's tasks short: they are resumed in the next turn.
    pub(super) fn end_delays(&mut self, connection: usize) {
        for (key, task) in &mut self.tasks {
            if task.connection == connection && task.delayed_until.take().is_some() {
                self.yielded.push(task.host, key);
            }
        }
    }

    /// This reactor's counters of a host. Names come from peers: past a bound they share one.
    pub(super) fn host_counters(&mut self, host: &str) -> Arc<IoCounters> {
        let host = if self.hosts.len() < HOSTS_MAX || self.hosts.contains_key(host) { host } else { OTHER_HOSTS };
        let registry = &self.shared.host_stats;
        Arc::clone(self.hosts.entry(host.to_owned()).or_insert_with(|| registry.register(host)))
    }
}

/// How long blocks of a memory volume stay held for a peer that does not read.
pub(super) const STALL: Duration = Duration::from_millis(5);

/// Reads of traversals that keep a disk busy for some hundred microseconds.
const RESTING_FETCHES_MIN: usize = 96;
