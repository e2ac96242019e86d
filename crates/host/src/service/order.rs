//! The order in which servers of a service are tried: RFC 2782, "Usage rules".

use std::hash::{BuildHasher as _, RandomState};

/// An SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) priority: u16,
    pub(super) weight: u16,
    pub(super) port: u16,
    /// Without the dot at its end: empty is the root, which is not a server.
    pub(super) host: String,
}

/// The records by priority, those of one priority by chance and weight. `random` gives a number from 0 to its argument.
pub(super) fn in_turn(mut records: Vec<Record>, mut random: impl FnMut(u32) -> u32) -> Vec<Record> {
    // Those without weight stand first, so that they are taken only where the chance is 0.
    records.sort_by_key(|record| (record.priority, record.weight != 0));
    let mut ordered = Vec::with_capacity(records.len());
    while let Some(first) = records.first() {
        let alike = records.iter().take_while(|record| record.priority == first.priority).count();
        let total = records[..alike].iter().map(|record| u32::from(record.weight)).sum();
        let chance = random(total);
        let mut sum = 0;
        let is_taken = |record: &Record| {
            sum += u32::from(record.weight);
            sum >= chance
        };
        let taken = records[..alike].iter().position(is_taken).unwrap_or(0);
        ordered.push(records.remove(taken));
    }
    ordered
}

/// A number from 0 to `most`, of the system's chance.
pub(super) fn random(most: u32) -> u32 {
    let number = RandomState::new().hash_one(most);
    (number % (u64::from(most) + 1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, host: &str) -> Record {
        Record { priority, weight, port: 4420, host: host.to_owned() }
    }

    fn names(records: Vec<Record>, random: impl FnMut(u32) -> u32) -> String {
        in_turn(records, random).into_iter().map(|record| record.host).collect()
    }

    #[test]
    fn a_lower_priority_comes_first_whatever_the_weights_are() {
        let records = || vec![record(20, 60_000, "c"), record(0, 1, "a"), record(10, 0, "b")];
        for chance in [0, u32::MAX] {
            assert_eq!(names(records(), |most| most.min(chance)), "abc");
        }
    }

    #[test]
    fn one_of_more_weight_comes_first_more_often() {
        let records = || vec![record(0, 30, "a"), record(0, 10, "b"), record(0, 0, "z")];
        // All chances from 0 to 40: z at 0, a at 1 to 30, b at 31 to 40.
        let first = |chance: u32| names(records(), |most| chance.min(most)).remove(0);
        let of = |name| (0..=40).filter(|chance| first(*chance) == name).count();
        assert_eq!((of('z'), of('a'), of('b')), (1, 30, 10));
        assert_eq!(names(records(), |most| most), "baz", "the last one is left");
    }

    #[test]
    fn chance_stays_within_its_bounds() {
        assert_eq!(random(0), 0);
        assert!((0..1000).map(|_| random(3)).all(|number| number <= 3));
        assert!((0..1000).map(|_| random(1)).any(|number| number == 1));
    }
}
