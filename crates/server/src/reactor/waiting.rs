//! Tasks that wait for a block that others hold, for the rate of a medium, or for a worker of the kernel.

use std::rc::Rc;
use std::time::{Duration, Instant};

use diskside_io::ring::Op;
use diskside_volume::guard::releases;

use super::Reactor;
use super::core::Core;
use super::local::LocalVolume;
use super::steps::STEPS_TIME;
use super::token::Token;

/// How often a block is asked for although nobody has released one that others wait for: a turn may come with time alone.
const BLOCK_ASK: Duration = Duration::from_millis(2);
/// Operations of one volume that may have a worker at a time. The kernel has few for each ring; without a bound a disk that hangs took
/// them all, and Flushes of every other volume waited for it.
const WORKERS_OF_VOLUME: usize = 2;
/// The same where reads and writes need one, too.
const WORKERS_OF_REMOTE: usize = 16;

impl Reactor {
    /// Tasks that wait for a block ask for it again, the hosts in turns.
    pub(super) fn retry_blocks(&mut self) {
        let (seen, core) = (releases(), &mut self.core);
        if core.block_waiters.is_empty() || (seen == core.releases_seen && core.now < core.blocks_asked + BLOCK_ASK) {
            return;
        }
        (core.releases_seen, core.blocks_asked) = (seen, core.now);
        let began = Instant::now();
        for _ in 0..self.core.block_waiters.len() {
            if began.elapsed() >= STEPS_TIME {
                // The others ask in the next turn.
                self.core.releases_seen = seen.wrapping_sub(1);
                break;
            }
            if let Some(key) = self.core.block_waiters.pop() {
                self.resume(key);
            }
        }
    }

    /// Tasks that wait for a medium's rate begin, the hosts in turns, until it has enough to do again.
    pub(super) fn retry_rates(&mut self) {
        if self.core.rate_at.is_none_or(|at| self.core.now < at) {
            return;
        }
        self.core.rate_at = None;
        let began = Instant::now();
        for _ in 0..self.core.rate_waiters.len() {
            if began.elapsed() >= STEPS_TIME {
                self.core.rate_at = Some(self.core.now);
                break;
            }
            if let Some(key) = self.core.rate_waiters.pop() {
                self.resume(key);
            }
        }
    }
}

impl Core {
    /// A task waits until its medium takes something more.
    pub(super) fn wait_for_rate(&mut self, key: usize, wait: Duration) {
        let at = self.now + wait;
        self.rate_at = Some(self.rate_at.map_or(at, |earlier| earlier.min(at)));
        self.rate_waiters.push(self.tasks[key].host, key);
    }

    /// Hands a task's operation to the ring, or keeps it until the volume has a worker for it.
    pub(super) fn submit(&mut self, key: usize, op: Op) {
        self.tasks[key].ask(self.now);
        let volume = Rc::clone(&self.tasks[key].volume);
        let takes_worker = self.tasks[key].takes_worker() || volume.is_remote;
        if takes_worker {
            let mut workers = volume.workers.borrow_mut();
            let max = if volume.is_remote { WORKERS_OF_REMOTE } else { WORKERS_OF_VOLUME };
            if workers.busy >= max {
                workers.waiting.push_back((key, op));
                return;
            }
            workers.busy += 1;
        }
        self.push_op(key, op, takes_worker);
    }

    /// A task's operation has ended.
    pub(super) fn op_ended(&mut self, key: usize) {
        self.media_in_flight -= 1;
        self.media_ended = true;
        let task = &mut self.tasks[key];
        self.fetches_in_flight -= usize::from(task.is_fetch());
        if std::mem::take(&mut task.has_worker) {
            let volume = Rc::clone(&task.volume);
            self.worker_is_free(&volume);
        }
    }

    /// An operation that had a worker has ended: the next one has it.
    fn worker_is_free(&mut self, volume: &LocalVolume) {
        let next = {
            let mut workers = volume.workers.borrow_mut();
            let next = workers.waiting.pop_front();
            workers.busy -= usize::from(next.is_none());
            next
        };
        if let Some((key, op)) = next {
            self.push_op(key, op, true);
        }
    }

    fn push_op(&mut self, key: usize, op: Op, has_worker: bool) {
        self.register_file_of(&op);
        self.tasks[key].has_worker = has_worker;
        if self.tasks[key].volume.is_remote {
            self.ring.push_to_worker(Token::Task(key).bits(), op);
        } else {
            self.ring.push(Token::Task(key).bits(), op);
        }
        self.media_in_flight += 1;
        self.fetches_in_flight += usize::from(self.tasks[key].is_fetch());
        self.media_waits = true;
    }
}
