//! Two bounds of a column, looked at in one pass over its values.

use crate::condition::{Condition, Test};
use crate::packed::packed;
use crate::value::with_exact;
use arrow_array::{Array as _, ArrayRef};
use arrow_buffer::BooleanBuffer;
use diskside_scan::Comparison;

/// One of several conditions that must all be true.
pub(crate) enum Conjunct<'a> {
    Range(Range),
    Other(&'a Condition),
}

/// A column is at least `first` and at most `last`: two comparisons in one pass over its values.
pub(crate) struct Range {
    pub(crate) slot: usize,
    first: i128,
    last: i128,
}

/// Bounds of one column are written next to each other. A plan may have thousands, and each batch of rows looks at all.
const NEAR: usize = 4;

/// With each lower bound of a column an upper bound of it that is near, or the other way round.
pub(crate) fn conjuncts(all: &[Condition]) -> Vec<Conjunct<'_>> {
    let mut joint: Vec<Conjunct<'_>> = Vec::with_capacity(all.len());
    for one in all {
        let is_joined = Range::of(one).and_then(|bound| {
            joint.iter_mut().rev().take(NEAR).find_map(|earlier| {
                let Conjunct::Other(other) = earlier else { return None };
                let other = Range::of(other).filter(|other| bound.faces(other))?;
                *earlier = Conjunct::Range(bound.and(&other));
                Some(())
            })
        });
        if is_joined.is_none() {
            joint.push(Conjunct::Other(one));
        }
    }
    joint
}

impl Range {
    /// Open at one end.
    fn of(condition: &Condition) -> Option<Self> {
        let Condition::Exact(slot, Test::Compare(how, with)) = condition else { return None };
        let (first, last) = match how {
            Comparison::Less => (i128::MIN, with.checked_sub(1)?),
            Comparison::LessOrEqual => (i128::MIN, *with),
            Comparison::Greater => (with.checked_add(1)?, i128::MAX),
            Comparison::GreaterOrEqual => (*with, i128::MAX),
            Comparison::Equal | Comparison::NotEqual => return None,
        };
        Some(Self { slot: *slot, first, last })
    }

    /// Whether the other one is of the same column and open at the other end.
    fn faces(&self, other: &Self) -> bool {
        let is_from_below = |range: &Self| range.first == i128::MIN;
        self.slot == other.slot && is_from_below(self) != is_from_below(other)
    }

    fn and(&self, other: &Self) -> Self {
        Self { slot: self.slot, first: self.first.max(other.first), last: self.last.min(other.last) }
    }

    /// The rows whose values lie in it, whatever rows of NULL have for a value.
    pub(crate) fn holds(&self, array: &ArrayRef) -> BooleanBuffer {
        with_exact!(array, values => self.within(values), unreachable!("the column is exact"))
    }

    fn within<T: Copy + Ord + TryFrom<i128> + Into<i128>>(&self, values: &[T]) -> BooleanBuffer {
        match (T::try_from(self.first), T::try_from(self.last)) {
            // Without a jump: the loop is vectorised.
            (Ok(first), Ok(last)) => packed(values, |value| (first <= value) & (value <= last)),
            // A bound that no value of the type reaches.
            _ => packed(values, |value| (self.first..=self.last).contains(&value.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::holds;
    use arrow_array::{Int8Array, Int64Array, UInt64Array};
    use std::sync::Arc;

    const HOW: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    #[test]
    fn two_bounds_at_once_are_as_each_of_them() {
        let bounds = [i128::MIN, -(1 << 64), -129, -3, 0, 2, 127, 128, 1 << 63, u64::MAX.into(), i128::MAX];
        let arrays: [ArrayRef; 3] = [
            Arc::new(Int8Array::from_iter_values(i8::MIN..=i8::MAX)),
            Arc::new(Int64Array::from_iter_values([i64::MIN, -4, -3, 0, 2, 3, 128, i64::MAX])),
            Arc::new(UInt64Array::from_iter_values([0, 1, 2, 127, 128, 1 << 63, u64::MAX])),
        ];
        let mut ranges = 0;
        for (one, other) in HOW.iter().flat_map(|one| HOW.iter().map(move |other| (*one, *other))) {
            for (left, right) in bounds.iter().flat_map(|left| bounds.iter().map(move |right| (*left, *right))) {
                let all = [bound(0, one, left), bound(0, other, right)];
                for array in &arrays {
                    let values: Vec<i128> =
                        with_exact!(array, values => values.iter().map(|v| i128::from(*v)).collect(), unreachable!());
                    let [Conjunct::Range(range)] = &conjuncts(&all)[..] else { continue };
                    ranges += 1;
                    let wanted =
                        values.iter().map(|value| holds(one, value.cmp(&left)) && holds(other, value.cmp(&right)));
                    assert!(range.holds(array).iter().eq(wanted), "{one:?} {left}, {other:?} {right}");
                }
            }
        }
        assert!(ranges > 2000, "{ranges} pairs were ranges");
    }

    #[test]
    fn bounds_of_two_columns_or_of_one_side_stay_apart() {
        let (below, above) = (Comparison::Less, Comparison::Greater);
        for all in [[bound(0, above, 1), bound(1, below, 5)], [bound(0, above, 1), bound(0, above, 5)]] {
            assert!(matches!(conjuncts(&all)[..], [Conjunct::Other(_), Conjunct::Other(_)]));
        }
        let all = [bound(0, above, 1), bound(1, above, 1), bound(0, below, 5), bound(0, below, 4)];
        assert!(matches!(conjuncts(&all)[..], [Conjunct::Range(_), Conjunct::Other(_), Conjunct::Other(_)]));
    }

    fn bound(slot: usize, how: Comparison, with: i128) -> Condition {
        Condition::Exact(slot, Test::Compare(how, with))
    }
}
