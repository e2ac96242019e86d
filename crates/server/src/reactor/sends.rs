//! The turns in which connections send, where several hosts are at work at a time.
//!
//! A turn of a reactor lasts as long as sealing and copying what it sends. So it hands some hundred microseconds' worth
//! of bytes to sockets, a part of each connection's, and the rest goes with the next turns. A connection with little to
//! say does not wait for one with much. A host that is at work alone sends as much at a time as it can.

use std::time::{Duration, Instant};

/// The sends of a reactor's connections.
#[derive(Debug, Default)]
pub(super) struct Sends {
    /// Bytes of this turn's.
    turn_bytes: usize,
    /// Connections whose sends go with the next turn.
    put_off: Vec<usize>,
    /// The host that was heard last, and when it was another than the one before.
    latest: Option<usize>,
    changed: Option<Instant>,
}

impl Sends {
    /// Gives the connections whose sends were put off: they come first now.
    pub(super) fn begin_turn(&mut self) -> Vec<usize> {
        self.turn_bytes = 0;
        std::mem::take(&mut self.put_off)
    }

    pub(super) fn are_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Something of this host happened.
    pub(super) fn hear(&mut self, host: usize, now: Instant) {
        if self.latest.replace(host).is_some_and(|before| before != host) {
            self.changed = Some(now);
        }
    }

    /// Whether a connection that has so many bytes to send is to wait for the next turn. Then it is noted for that.
    pub(super) fn put_off(&mut self, connection: usize, len: usize, now: Instant) -> bool {
        let waits = len > LITTLE_BYTES && self.turn_bytes >= TURN_BYTES && self.is_shared(now);
        if waits {
            self.put_off.push(connection);
        }
        waits
    }

    /// The most bytes of one send.
    pub(super) fn len_max(&self, now: Instant) -> usize {
        if self.is_shared(now) { LEN_MAX } else { usize::MAX }
    }

    /// A connection sends so many bytes.
    pub(super) fn sent(&mut self, len: usize) {
        self.turn_bytes = self.turn_bytes.saturating_add(len);
    }

    /// Whether several hosts are at work.
    fn is_shared(&self, now: Instant) -> bool {
        self.changed.is_some_and(|changed| now.saturating_duration_since(changed) < SHARED)
    }
}

/// How long after one host was heard and then another the reactor is shared.
const SHARED: Duration = Duration::from_millis(10);
/// Bytes of one send while it is.
const LEN_MAX: usize = 64 << 10;
/// Bytes of a turn after which only those send that have little to say, and the others with the next.
const TURN_BYTES: usize = 256 << 10;
const LITTLE_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Sends of a turn: connections in this order, each of which has so many bytes to send. Gives those that went.
    fn turn(sends: &mut Sends, wanted: &mut [(usize, usize)], now: Instant) -> Vec<(usize, usize)> {
        let first = sends.begin_turn();
        let order = |connection: &usize| first.iter().position(|it| it == connection).unwrap_or(usize::MAX);
        wanted.sort_by_key(|(connection, _)| order(connection));
        let mut went = Vec::new();
        for (connection, left) in wanted.iter_mut().filter(|(_, left)| *left > 0) {
            if !sends.put_off(*connection, *left, now) {
                let len = sends.len_max(now).min(*left);
                sends.sent(len);
                *left -= len;
                went.push((*connection, len));
            }
        }
        went
    }

    /// Sixty hosts asked for 16 MiB each, and a turn sealed and copied some of that for each of them: a host that read a block
    /// waited for milliseconds.
    #[test]
    fn who_says_little_does_not_wait_for_who_says_much() {
        let (mut sends, mut now) = (Sends::default(), Instant::now());
        (0..3).for_each(|host| sends.hear(host, now));
        let mut greedy: Vec<_> = (0..60).map(|connection| (connection, 1 << 20)).collect();
        for turns in 0.. {
            assert!(turns < 500, "it ends");
            sends.hear(turns % 60, now);
            let went = turn(&mut sends, &mut greedy, now);
            let bytes: usize = went.iter().map(|(_, len)| len).sum();
            assert!(bytes < TURN_BYTES + LEN_MAX, "turn {turns} carries {bytes}");
            // A connection that comes in between with a block is answered in this very turn.
            assert!(!sends.put_off(99, 4096 + 64, now));
            if went.is_empty() {
                break;
            }
            now += 200 * US;
        }
        assert!(greedy.iter().all(|(_, left)| *left == 0), "all were served");
    }

    #[test]
    fn those_that_were_put_off_come_first_and_each_once() {
        let (mut sends, now) = (Sends::default(), Instant::now());
        sends.hear(1, now);
        sends.hear(2, now);
        let mut wanted: Vec<_> = (0..6).map(|connection| (connection, 1 << 20)).collect();
        let ids = |went: Vec<(usize, usize)>| went.into_iter().map(|(connection, _)| connection).collect::<Vec<_>>();
        assert_eq!(ids(turn(&mut sends, &mut wanted, now)), [0, 1, 2, 3]);
        assert!(sends.are_put_off());
        assert_eq!(ids(turn(&mut sends, &mut wanted, now)), [4, 5, 0, 1]);
        assert_eq!(ids(turn(&mut sends, &mut wanted, now)), [2, 3, 4, 5]);
    }

    #[test]
    fn a_host_that_is_at_work_alone_sends_all_at_once() {
        let (mut sends, now) = (Sends::default(), Instant::now());
        for _ in 0..100 {
            sends.hear(7, now);
            assert!(!sends.put_off(1, 1 << 20, now));
            assert_eq!(sends.len_max(now), usize::MAX);
            sends.sent(1 << 20);
        }
        sends.hear(8, now);
        assert!(sends.put_off(1, 1 << 20, now) && sends.len_max(now) == LEN_MAX);
        // The other one says nothing more, and what it said of late is over.
        sends.hear(7, now);
        let later = now + SHARED;
        sends.hear(7, later);
        assert!(!sends.put_off(1, 1 << 20, later) && sends.len_max(later) == usize::MAX);
    }
}
