//! Bytes that wait for a later turn of the reactor: what a host sends may take much longer than its length says, and others wait
//! meanwhile. A record of TLS or a PDU may have one byte of data, and a reactor receives up to 2 MiB in a turn.

use std::time::Duration;

/// Bytes that came to a connection and were not looked at yet.
#[derive(Debug, Default)]
pub(super) struct Late {
    bytes: Vec<u8>,
    /// So many of them are done with.
    pub(super) done: usize,
    /// It is among those whose input continues in the next turn.
    pub(super) is_listed: bool,
}

/// The time that input took in this turn, by host, and connections that have more.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    taken: Vec<(usize, Taken)>,
    pub(super) waiting: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    time: Duration,
    len: usize,
}

/// How long the input of a host may take in a turn, except for its last part, and unless it is bulk of data.
const INPUT_TIME: Duration = Duration::from_micros(250);
/// Input is bulk if it takes less time than this for a byte: its length bounds it well enough.
const BULK_NS: u128 = 4;
/// Bytes between two looks at the time.
const PART_LEN: usize = 4 << 10;

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that are kept, with those that are done with.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The next part of them.
    pub(super) fn part(&self) -> &[u8] {
        let rest = &self.bytes[self.done..];
        &rest[..rest.len().min(PART_LEN)]
    }

    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

impl Inputs {
    pub(super) fn took(&mut self, host: usize, len: usize, time: Duration) {
        let at = self.taken.iter().position(|(known, _)| *known == host).unwrap_or_else(|| {
            self.taken.push((host, Taken::default()));
            self.taken.len() - 1
        });
        let taken = &mut self.taken[at].1;
        (taken.time, taken.len) = (taken.time + time, taken.len + len);
    }

    /// Whether the host has had its time of this turn.
    pub(super) fn are_over(&self, host: usize) -> bool {
        self.taken.iter().any(|(known, Taken { time, len })| {
            *known == host && *time >= INPUT_TIME && time.as_nanos() >= *len as u128 * BULK_NS
        })
    }

    /// Another turn has begun.
    pub(super) fn begin_turn(&mut self) {
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_time_of_a_turn_and_bulk_of_data_has_no_bound() {
        let mut inputs = Inputs::default();
        inputs.took(1, 1000, INPUT_TIME / 2);
        inputs.took(2, 1 << 20, INPUT_TIME * 4);
        assert!(!inputs.are_over(1) && !inputs.are_over(2) && !inputs.are_over(3));
        inputs.took(1, 1000, INPUT_TIME / 2);
        assert!(inputs.are_over(1) && !inputs.are_over(2));
        inputs.begin_turn();
        assert!(!inputs.are_over(1));
    }

    #[test]
    fn all_parts_of_what_waits_come_in_their_order() {
        let mut late = Late::default();
        let bytes: Vec<u8> = (0..3 * PART_LEN + 1).map(|at| at as u8).collect();
        bytes.chunks(1000).for_each(|part| late.keep(part));
        let mut parts = Vec::new();
        while !late.part().is_empty() {
            parts.extend_from_slice(late.part());
            late.done += late.part().len();
        }
        assert_eq!(parts, bytes);
    }
}
