//! The metrics of reactors: their turns, their memory, and the waits of their commands.

use diskside_server::stats::ReactorStats;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::families::{BYTES, Lines, Value};

impl Lines {
    pub(super) fn reactors(&mut self, reactors: &[ReactorStats]) {
        type Field = fn(&ReactorStats) -> u64;
        let fields: [(&str, &str, Option<&'static Unit>, MetricType, Field); 14] = {
            use MetricType::{Counter, Gauge};
            [
                ("reactor_connections", "Connections that a reactor has", None, Gauge, |r| r.connections),
                ("reactor_connections_accepted", "Connections that a reactor ever had", None, Counter, |r| {
                    r.connections_total
                }),
                ("reactor_turns", "Rounds of a reactor's loop", None, Counter, |r| r.turns),
                ("reactor_sleeps", "Times that a reactor slept, because nothing was to be done", None, Counter, |r| {
                    r.sleeps
                }),
                ("reactor_enters", "System calls of a reactor into its ring", None, Counter, |r| r.enters),
                ("reactor_memory_in_flight", "Bytes of data of commands that a reactor works on", BYTES, Gauge, |r| {
                    r.memory_in_flight_bytes
                }),
                (
                    "reactor_memory_held",
                    "Bytes of memory that a reactor has for data of commands, used or kept for the next one",
                    BYTES,
                    Gauge,
                    |r| r.memory_held_bytes,
                ),
                (
                    "reactor_memory_registered",
                    "Bytes of memory that a reactor has registered with its ring",
                    BYTES,
                    Gauge,
                    |r| r.memory_registered_bytes,
                ),
                (
                    "reactor_placed",
                    "Bytes of writes that a reactor received right into their place",
                    BYTES,
                    Counter,
                    |r| r.placed_bytes,
                ),
                ("reactor_memory_waits", "Commands of a reactor that waited for memory", None, Counter, |r| {
                    r.memory_waits
                }),
                (
                    "reactor_block_waits",
                    "Commands of a reactor that waited because a block was being written",
                    None,
                    Counter,
                    |r| r.block_waits,
                ),
                (
                    "reactor_stalled_reads",
                    "Reads of a reactor whose host took too long, so that their blocks were copied and given free",
                    None,
                    Counter,
                    |r| r.stalled_reads,
                ),
                (
                    "reactor_traversals_put_off",
                    "Times that traversals of a connection went on in a reactor's next turn, because their host had had its share of one",
                    None,
                    Counter,
                    |r| r.traversals_put_off,
                ),
                (
                    "reactor_traversal_work_turn_max",
                    "The most work that traversals took of one turn of a reactor, in units of a step, a KiB or 256 iterations",
                    None,
                    Gauge,
                    |r| r.traversal_work_turn_max,
                ),
            ]
        };
        for (name, help, unit, kind, field) in fields {
            let series = reactors
                .iter()
                .enumerate()
                .map(|(index, reactor)| (vec![("reactor", index.to_string())], Value::Whole(field(reactor))));
            self.family(name, help, unit, kind, series.collect());
        }
    }
}
