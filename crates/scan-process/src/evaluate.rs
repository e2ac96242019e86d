//! Which rows of a batch fulfil a condition.

use crate::condition::{Condition, Test, TextTest, holds};
use crate::contains::contains;
use crate::packed::packed;
use crate::range::{Conjunct, conjuncts};
use crate::value::{Digits, Overflow, Rows, with_exact};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array as _, ArrayRef, LargeStringArray, StringArray, StringViewArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::DataType;
use diskside_scan::Comparison;
use diskside_scan::Pattern;

/// What a condition is in each row.
#[derive(Clone, Debug)]
struct Truth {
    /// True; nowhere else set.
    yes: BooleanBuffer,
    /// Not NULL; `None`: everywhere.
    known: Option<BooleanBuffer>,
}

/// The rows where a condition is true.
pub(crate) fn selected(condition: &Condition, columns: &[ArrayRef], rows: usize) -> Result<BooleanBuffer, Overflow> {
    truth(condition, columns, rows).map(|truth| truth.yes)
}

impl Truth {
    fn new(yes: BooleanBuffer, nulls: Option<&NullBuffer>) -> Self {
        match nulls {
            None => Self { yes, known: None },
            Some(nulls) => Self { yes: &yes & nulls.inner(), known: Some(nulls.inner().clone()) },
        }
    }

    fn constant(value: Option<bool>, rows: usize) -> Self {
        let yes = if value == Some(true) { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) };
        Self { yes, known: value.is_none().then(|| BooleanBuffer::new_unset(rows)) }
    }

    fn no(&self) -> BooleanBuffer {
        match &self.known {
            None => !&self.yes,
            Some(known) => known & &!&self.yes,
        }
    }

    fn not(self) -> Self {
        Self { yes: self.no(), known: self.known }
    }

    fn and(self, other: &Self) -> Self {
        let yes = &self.yes & &other.yes;
        if self.known.is_none() && other.known.is_none() {
            return Self { yes, known: None };
        }
        // False, whatever is not known of the other.
        let no = &self.no() | &other.no();
        Self { known: Some(&yes | &no), yes }
    }

    fn or(self, other: &Self) -> Self {
        let (left, right) = (self.not(), other.clone().not());
        left.and(&right).not()
    }
}

fn truth(condition: &Condition, columns: &[ArrayRef], rows: usize) -> Result<Truth, Overflow> {
    let of = |condition: &Condition| truth(condition, columns, rows);
    Ok(match condition {
        Condition::Constant(value) => Truth::constant(*value, rows),
        Condition::Boolean(slot) => {
            let array = columns[*slot].as_boolean();
            Truth::new(array.values().clone(), array.nulls())
        }
        Condition::Exact(slot, test) => {
            let array = &columns[*slot];
            let yes = with_exact!(array, values => exact(values, test), unreachable!("the column is exact"));
            Truth::new(yes, array.nulls())
        }
        Condition::Float(slot, test) => {
            let array = &columns[*slot];
            let yes = match array.data_type() {
                DataType::Float32 => float(array.as_primitive::<Float32Type>().values(), test),
                _ => float(array.as_primitive::<Float64Type>().values(), test),
            };
            Truth::new(yes, array.nulls())
        }
        Condition::Text(slot, test) => {
            let array = &columns[*slot];
            Truth::new(text(&Texts::of(array), test), array.nulls())
        }
        Condition::Texts(how, left, right) => {
            let (left, right) = (&columns[*left], &columns[*right]);
            let (a, b) = (Texts::of(left), Texts::of(right));
            let yes = BooleanBuffer::collect_bool(rows, |row| holds(*how, a.get(row).cmp(b.get(row))));
            Truth::new(yes, NullBuffer::union(left.nulls(), right.nulls()).as_ref())
        }
        Condition::Numbers(how, left, right) => {
            let of = Rows::new(columns, rows);
            let (left, right) = (left.numbers(&of)?, right.numbers(&of)?);
            let nulls = NullBuffer::union(left.nulls.as_ref(), right.nulls.as_ref());
            let yes = match (left.values, right.values) {
                (Digits::Float(a), Digits::Float(b)) => {
                    BooleanBuffer::collect_bool(rows, |row| float_holds(*how, a[row], b[row]))
                }
                (Digits::Narrow(a), Digits::Narrow(b)) => {
                    BooleanBuffer::collect_bool(rows, |row| holds(*how, a.values[row].cmp(&b.values[row])))
                }
                (a, b) => {
                    let (a, b) = (a.into_exact(rows), b.into_exact(rows));
                    BooleanBuffer::collect_bool(rows, |row| holds(*how, a[row].cmp(&b[row])))
                }
            };
            Truth::new(yes, nulls.as_ref())
        }
        Condition::IsNull(slot) => {
            // Of some types NULL is known only by asking.
            let yes = match columns[*slot].logical_nulls() {
                None => BooleanBuffer::new_unset(rows),
                Some(nulls) => !nulls.inner(),
            };
            Truth { yes, known: None }
        }
        Condition::NumberIsNull(number) => {
            let nulls = number.numbers(&Rows::new(columns, rows))?.nulls;
            let yes = nulls.map_or_else(|| BooleanBuffer::new_unset(rows), |nulls| !nulls.inner());
            Truth { yes, known: None }
        }
        Condition::IsUnknown(inner) => {
            let known = of(inner)?.known;
            Truth { yes: known.map_or_else(|| BooleanBuffer::new_unset(rows), |known| !&known), known: None }
        }
        Condition::And(all) => {
            let mut whole = Truth::constant(Some(true), rows);
            for one in conjuncts(all) {
                whole = whole.and(&match one {
                    Conjunct::Range(range) => {
                        let array = &columns[range.slot];
                        Truth::new(range.holds(array), array.nulls())
                    }
                    Conjunct::Other(one) => of(one)?,
                });
                // All are false, or NULL: a filter takes neither. Under a NOT it matters which.
                if whole.known.is_none() && !whole.yes.has_true() {
                    break;
                }
            }
            whole
        }
        Condition::Or(any) => {
            let mut whole = Truth::constant(Some(false), rows);
            for one in any {
                whole = whole.or(&of(one)?);
            }
            whole
        }
        Condition::Not(inner) => of(inner)?.not(),
    })
}

fn exact<T: Copy + Ord + TryFrom<i128> + Into<i128>>(values: &[T], test: &Test<i128>) -> BooleanBuffer {
    match test {
        Test::Compare(how, with) => match T::try_from(*with) {
            Ok(with) => compare(values, *how, with),
            // It is below, or above, all values of the type.
            Err(_) => {
                let order = if *with < 0 { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less };
                match holds(*how, order) {
                    true => BooleanBuffer::new_set(values.len()),
                    false => BooleanBuffer::new_unset(values.len()),
                }
            }
        },
        Test::In(among) => {
            let among: Vec<T> = among.iter().filter_map(|value| T::try_from(*value).ok()).collect();
            match Bits::of(&among) {
                Some(bits) => BooleanBuffer::collect_bool(values.len(), |row| bits.contains(values[row])),
                None => BooleanBuffer::collect_bool(values.len(), |row| among.binary_search(&values[row]).is_ok()),
            }
        }
    }
}

/// Many values that lie close to each other, as keys of a join do: a bit for each that there could be.
struct Bits {
    first: i128,
    bits: Vec<u64>,
}

impl Bits {
    const VALUES_MIN: usize = 16;
    const BITS_MAX: i128 = 1 << 20;

    /// `values` are in order. `None`: they are few, or far apart.
    fn of<T: Copy + Into<i128>>(values: &[T]) -> Option<Self> {
        let (first, last) = ((*values.first()?).into(), (*values.last()?).into());
        let span = i128::checked_sub(last, first).filter(|span| *span < Self::BITS_MAX)?;
        if values.len() < Self::VALUES_MIN {
            return None;
        }
        let mut bits = vec![0; span as usize / 64 + 1];
        for value in values {
            let at = ((*value).into() - first) as usize;
            bits[at / 64] |= 1 << (at % 64);
        }
        Some(Self { first, bits })
    }

    fn contains(&self, value: impl Into<i128>) -> bool {
        let at = value.into().checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        at.is_some_and(|at| self.bits.get(at / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1))
    }
}

fn compare<T: Copy + PartialOrd>(values: &[T], how: Comparison, with: T) -> BooleanBuffer {
    // One loop for each: they are vectorised.
    match how {
        Comparison::Equal => packed(values, |value| value == with),
        Comparison::NotEqual => packed(values, |value| value != with),
        Comparison::Less => packed(values, |value| value < with),
        Comparison::LessOrEqual => packed(values, |value| value <= with),
        Comparison::Greater => packed(values, |value| value > with),
        Comparison::GreaterOrEqual => packed(values, |value| value >= with),
    }
}

/// A column of 32 bits is compared as one of 64: then both sides are exactly what was written.
fn float<T: Copy + Into<f64>>(values: &[T], test: &Test<f64>) -> BooleanBuffer {
    match test {
        Test::Compare(how, with) => {
            BooleanBuffer::collect_bool(values.len(), |row| float_holds(*how, values[row].into(), *with))
        }
        Test::In(among) => {
            BooleanBuffer::collect_bool(values.len(), |row| among.iter().any(|with| values[row].into() == *with))
        }
    }
}

/// As IEEE 754 compares: NaN is different from all, itself among them.
pub(crate) fn float_holds(how: Comparison, left: f64, right: f64) -> bool {
    match how {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => left < right,
        Comparison::LessOrEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterOrEqual => left >= right,
    }
}

fn text(texts: &Texts<'_>, test: &TextTest) -> BooleanBuffer {
    let len = texts.len();
    match test {
        TextTest::Compare(Comparison::Equal, with) => BooleanBuffer::collect_bool(len, |row| texts.get(row) == with),
        TextTest::Compare(how, with) => {
            BooleanBuffer::collect_bool(len, |row| holds(*how, texts.get(row).cmp(with.as_str())))
        }
        TextTest::In(among) => BooleanBuffer::collect_bool(len, |row| {
            among.binary_search_by(|with| with.as_str().cmp(texts.get(row))).is_ok()
        }),
        TextTest::Like(Pattern::Contains(wanted)) if let Texts::View(array) = texts => contains(array, wanted),
        TextTest::Like(pattern) => BooleanBuffer::collect_bool(len, |row| pattern.matches(texts.get(row))),
    }
}

/// A column of texts.
pub(crate) enum Texts<'a> {
    View(&'a StringViewArray),
    Small(&'a StringArray),
    Large(&'a LargeStringArray),
}

impl<'a> Texts<'a> {
    pub(crate) fn of(array: &'a ArrayRef) -> Self {
        match array.data_type() {
            DataType::Utf8View => Self::View(array.as_string_view()),
            DataType::LargeUtf8 => Self::Large(array.as_string()),
            _ => Self::Small(array.as_string()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::View(array) => array.len(),
            Self::Small(array) => array.len(),
            Self::Large(array) => array.len(),
        }
    }

    pub(crate) fn get(&self, row: usize) -> &'a str {
        match self {
            Self::View(array) => array.value(row),
            Self::Small(array) => array.value(row),
            Self::Large(array) => array.value(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_contain_what_a_search_finds() {
        let mut random = fastrand::Rng::with_seed(1);
        let few = [i128::MIN, -64, -1, 0, 63, 64, i128::MAX];
        for span in [1, 63, 64, 65, 1000, Bits::BITS_MAX - 1] {
            let first = random.i128(-1000..1000);
            let mut wanted: Vec<i128> = (0..40).map(|_| first + random.i128(0..span)).collect();
            wanted.extend([first, first + span]);
            wanted.sort_unstable();
            let near = (-70..70).flat_map(|by| [first + by, first + span + by]);
            let values: Vec<i128> = near.chain(few).chain(wanted.iter().copied()).collect();
            let bits = Bits::of(&wanted).expect("they are close");
            for value in &values {
                assert_eq!(bits.contains(*value), wanted.binary_search(value).is_ok(), "{value} among {wanted:?}");
            }
            assert_eq!(exact(&values, &Test::In(wanted.clone())).count_set_bits(), {
                values.iter().filter(|value| wanted.contains(value)).count()
            });
        }
        let far: Vec<i128> = (0..20).map(|at| i128::MIN + at * (i128::MAX / 20)).collect();
        assert!(Bits::of(&far).is_none() && Bits::of(&[1_i64, 2]).is_none() && Bits::of::<u64>(&[]).is_none());
    }
}
