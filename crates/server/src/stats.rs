//! Counters per volume, host and reactor.

use std::collections::BTreeMap;

use serde::Serialize;

use diskside_volume::health::HealthStats;
use diskside_volume::stats::Counter;
pub use diskside_volume::stats::IoStats;

/// What a reactor has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReactorStats {
    /// Connections that it has.
    pub connections: u64,
    /// Connections that it ever had.
    pub connections_total: u64,
    /// Rounds of its loop.
    pub turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// System calls into its ring.
    pub enters: u64,
    /// Bytes of command data in flight.
    pub memory_in_flight_bytes: u64,
    /// Bytes of memory for command data, in flight or kept for the next command.
    pub memory_held_bytes: u64,
    /// Bytes that came and that are not taken, as of hosts that do not read their answers; outside of the memory. Most that there were.
    pub input_kept_max_bytes: u64,
    /// Bytes of memory that it has registered with its ring, for files and block devices.
    pub memory_registered_bytes: u64,
    /// Bytes of write data that were received right into their place.
    pub placed_bytes: u64,
    /// Commands that waited for memory.
    pub memory_waits: u64,
    /// Commands that waited because a block was being written.
    pub block_waits: u64,
    /// Reads whose peer took too long, so that their blocks were copied and given free.
    pub stalled_reads: u64,
    /// Times that the traversals of a connection went on in the next turn, because their host had had its share of one.
    pub traversals_put_off: u64,
    /// The most work that traversals took of one turn, in units of a step, a KiB or 256 loop iterations.
    pub traversal_work_turn_max: u64,
}

/// All counters of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// By volume name.
    pub volumes: BTreeMap<String, IoStats>,
    /// By host NQN.
    pub hosts: BTreeMap<String, IoStats>,
    /// In order.
    pub reactors: Vec<ReactorStats>,
    /// Connections that were closed because there were too many.
    pub connections_refused: u64,
    /// Connections that were closed before their hosts were let in, because others came.
    pub connections_given_up: u64,
    /// Connections whose hosts are not let in yet.
    pub connections_half_open: u64,
    /// Lines about peers that were left out of the log, because there had been enough.
    pub log_lines_left_out: u64,
    /// Lines that were left out of the audit file, because there had been enough or the disk was behind.
    pub audit_lines_left_out: u64,
    /// How the disks below volumes and exports are; volumes in memory have none.
    pub disks: Vec<HealthStats>,
    /// Commands that reservations kept from each volume.
    pub reservation_conflicts: BTreeMap<String, u64>,
    /// Addresses of listeners, and the states of these paths.
    pub paths: Vec<(String, String)>,
    /// Whether it reads and writes by io_uring; else by epoll and threads.
    pub io_uring: bool,
}

/// One reactor's [`ReactorStats`].
#[derive(Debug, Default)]
pub(crate) struct ReactorCounters {
    pub(crate) connections: Counter,
    pub(crate) connections_total: Counter,
    pub(crate) turns: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) enters: Counter,
    pub(crate) memory_in_flight_bytes: Counter,
    pub(crate) memory_held_bytes: Counter,
    pub(crate) input_kept_max_bytes: Counter,
    pub(crate) memory_registered_bytes: Counter,
    pub(crate) placed_bytes: Counter,
    pub(crate) memory_waits: Counter,
    pub(crate) block_waits: Counter,
    pub(crate) stalled_reads: Counter,
    pub(crate) traversals_put_off: Counter,
    pub(crate) traversal_work_turn_max: Counter,
}

impl ReactorCounters {
    pub(crate) fn stats(&self) -> ReactorStats {
        ReactorStats {
            connections: self.connections.get(),
            connections_total: self.connections_total.get(),
            turns: self.turns.get(),
            sleeps: self.sleeps.get(),
            enters: self.enters.get(),
            memory_in_flight_bytes: self.memory_in_flight_bytes.get(),
            memory_held_bytes: self.memory_held_bytes.get(),
            input_kept_max_bytes: self.input_kept_max_bytes.get(),
            memory_registered_bytes: self.memory_registered_bytes.get(),
            placed_bytes: self.placed_bytes.get(),
            memory_waits: self.memory_waits.get(),
            block_waits: self.block_waits.get(),
            stalled_reads: self.stalled_reads.get(),
            traversals_put_off: self.traversals_put_off.get(),
            traversal_work_turn_max: self.traversal_work_turn_max.get(),
        }
    }
}
