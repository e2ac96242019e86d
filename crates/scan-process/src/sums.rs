//! Aggregates, each with a value for every group.

use crate::bind::Binder;
use crate::columns::{Class, Kind, outgoing};
use crate::evaluate::Texts;
use crate::lines::type_name;
use crate::result::exact_array;
use crate::value::{Digits, Narrow, Number, Numbers, Overflow, Rows};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use diskside_scan::{Aggregate, AggregateKind, Expression, Failure};
use std::sync::Arc;

/// Sums of so few groups are kept apart for every fourth row: then a row need not wait for the one before.
const LANES: usize = 4;
const LANES_GROUPS: usize = 256;

/// One aggregate, with a value for each group.
#[derive(Clone)]
pub(crate) struct Sum {
    kind: AggregateKind,
    name: String,
    input: Input,
    data_type: DataType,
    counts: Vec<u64>,
    state: State,
    /// Where rows are results of several: the slot with the number of values in each.
    counted: Option<usize>,
}

#[derive(Clone, PartialEq)]
enum Input {
    Rows,
    Number(Number),
    /// A column of texts, or one that is only counted.
    Column(usize),
}

#[derive(Clone)]
enum State {
    None,
    Exact(Vec<i128>),
    Float(Vec<f64>),
    Text(Vec<Box<str>>),
}

impl State {
    fn fresh(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Exact(_) => Self::Exact(Vec::new()),
            Self::Float(_) => Self::Float(Vec::new()),
            Self::Text(_) => Self::Text(Vec::new()),
        }
    }
}

/// Why the aggregates cannot be computed.
#[derive(Debug)]
pub(crate) enum Problem {
    Overflow,
    /// So many groups do not fit.
    TooManyGroups(usize),
}

impl From<Overflow> for Problem {
    fn from(_: Overflow) -> Self {
        Self::Overflow
    }
}

/// The type of an aggregate and where its values are; `None`: there is no such aggregate.
fn type_of(
    kind: AggregateKind,
    input: &Input,
    column: Option<DataType>,
    class: impl Fn(usize) -> Class,
) -> Option<(DataType, State)> {
    let exact = || State::Exact(Vec::new());
    let float = || State::Float(Vec::new());
    Some(match (kind, input) {
        (AggregateKind::Count, _) => (DataType::Int64, State::None),
        (_, Input::Rows) => return None,
        (AggregateKind::Min | AggregateKind::Max, Input::Column(slot)) => match class(*slot) {
            Class::Text => (DataType::Utf8, State::Text(Vec::new())),
            _ => return None,
        },
        (_, Input::Column(_)) => return None,
        (_, Input::Number(number)) => match (kind, number.class) {
            (AggregateKind::Min | AggregateKind::Max, Class::Exact(kind, scale)) => {
                (column.unwrap_or_else(|| wide(kind, scale)), exact())
            }
            (_, Class::Exact(Kind::Day | Kind::Time, _)) => return None,
            (AggregateKind::Avg, Class::Exact(..)) => (DataType::Float64, exact()),
            (_, Class::Exact(kind, scale)) => (wide(kind, scale), exact()),
            _ => (DataType::Float64, float()),
        },
    })
}

fn not_aggregated(aggregate: &Aggregate, schema: &Schema) -> String {
    let of = match aggregate.kind {
        AggregateKind::Min | AggregateKind::Max => "numbers, dates, timestamps and texts",
        _ => "numbers",
    };
    let found = match &aggregate.input {
        Some(Expression::Column(name)) => {
            format!(": column `{name}` is of type {}", type_name(&type_of_column(schema, name)))
        }
        _ => String::new(),
    };
    format!("`{}` is not of {of}{found}", aggregate.name)
}

/// The type of a column in a result.
pub(crate) fn type_of_column(schema: &Schema, name: &str) -> DataType {
    schema.field_with_name(name).map_or(DataType::Null, |field| outgoing(field.data_type()))
}

/// What holds sums.
fn wide(kind: Kind, scale: u8) -> DataType {
    match kind {
        Kind::Integer => DataType::Int64,
        _ => DataType::Decimal128(38, scale.cast_signed()),
    }
}

/// The group of each row; without keys there is one.
pub(crate) struct Grouped<'a> {
    pub(crate) groups: Option<&'a [u32]>,
    /// Rows of each group.
    pub(crate) counts: &'a [u64],
}

impl Sum {
    pub(crate) fn new(aggregate: &Aggregate, binder: &mut Binder<'_>, schema: &Schema) -> Result<Self, Failure> {
        let input = match &aggregate.input {
            None => Input::Rows,
            Some(input) => binder.input(input)?.map_or_else(Input::Column, Input::Number),
        };
        let column = match &aggregate.input {
            Some(Expression::Column(name)) => Some(type_of_column(schema, name)),
            _ => None,
        };
        let Some((data_type, state)) = type_of(aggregate.kind, &input, column, |slot| binder.class(slot)) else {
            return Err(binder.wrong(not_aggregated(aggregate, schema)));
        };
        let name = aggregate.name.clone();
        Ok(Self { kind: aggregate.kind, name, input, data_type, counts: Vec::new(), state, counted: None })
    }

    /// The same aggregate, of no group.
    pub(crate) fn fresh(&self) -> Self {
        Self { counts: Vec::new(), state: self.state.fresh(), ..self.clone() }
    }

    /// As a column of a result.
    pub(crate) fn field(&self) -> Field {
        Field::new(&self.name, self.data_type.clone(), true)
    }

    /// Says that its values are results of several, and where it stands of how many.
    pub(crate) fn count_by(&mut self, slot: usize) {
        self.counted = Some(slot);
    }

    pub(crate) fn add_group(&mut self) {
        self.counts.push(0);
        match &mut self.state {
            State::None => {}
            State::Exact(values) => values.push(0),
            State::Float(values) => values.push(0.0),
            State::Text(values) => values.push("".into()),
        }
    }

    /// Takes the values of another one that adds up the same.
    pub(crate) fn copy(&mut self, other: &Self) {
        (self.counts, self.state) = (other.counts.clone(), other.state.clone());
    }

    /// Adds another one of the same aggregate, whose groups are these here.
    pub(crate) fn fold(&mut self, other: Self, groups: &[u32]) -> Result<(), Problem> {
        let kind = self.kind;
        let mut each = |count_of: &mut dyn FnMut(usize, usize, bool) -> Result<(), Problem>| {
            for (from, (group, count)) in groups.iter().zip(&other.counts).enumerate() {
                let at = *group as usize;
                if *count > 0 {
                    count_of(at, from, self.counts[at] == 0)?;
                    self.counts[at] += count;
                }
            }
            Ok(())
        };
        match (&mut self.state, other.state) {
            (State::Exact(to), State::Exact(from)) => {
                each(&mut |at, index, is_first| put_exact(kind, &mut to[at], from[index], is_first))
            }
            (State::Float(to), State::Float(from)) => each(&mut |at, index, is_first| {
                put_float(kind, &mut to[at], from[index], is_first);
                Ok(())
            }),
            (State::Text(to), State::Text(mut from)) => each(&mut |at, index, is_first| {
                let text = std::mem::take(&mut from[index]);
                if is_first || is_better(kind, &text, &to[at]) {
                    to[at] = text;
                }
                Ok(())
            }),
            _ => each(&mut |_, _, _| Ok(())),
        }
    }

    /// Whether another one adds up the same values: a sum and a mean.
    pub(crate) fn adds_as(&self, other: &Self) -> bool {
        let adds = |sum: &Self| matches!(sum.kind, AggregateKind::Sum | AggregateKind::Avg);
        adds(self) && adds(other) && matches!(self.input, Input::Number(_)) && self.input == other.input
    }

    pub(crate) fn add(&mut self, rows: &Rows<'_>, of: &Grouped<'_>) -> Result<(), Problem> {
        self.add_values(rows, of)?;
        let Some(slot) = self.counted else { return Ok(()) };
        let counted = rows.columns()[slot].as_primitive::<arrow_array::types::Int64Type>().values();
        for (row, counted) in counted.iter().enumerate() {
            let at = of.groups.map_or(0, |groups| groups[row] as usize);
            // The mean of nothing is NULL, which was not counted.
            if self.kind == AggregateKind::Count || *counted > 0 {
                self.counts[at] =
                    self.counts[at].saturating_sub(1).saturating_add(u64::try_from(*counted).unwrap_or(0));
            }
        }
        Ok(())
    }

    fn add_values(&mut self, rows: &Rows<'_>, of: &Grouped<'_>) -> Result<(), Problem> {
        let columns = rows.columns();
        let group = |row: usize| of.groups.map_or(0, |groups| groups[row] as usize);
        let rows_len = rows.len();
        match &self.input {
            Input::Rows => add_each(&mut self.counts, of.counts),
            Input::Column(slot) => {
                let array = &columns[*slot];
                let nulls = array.logical_nulls();
                let known = (0..rows_len).filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)));
                let State::Text(values) = &mut self.state else {
                    known.for_each(|row| self.counts[group(row)] += 1);
                    return Ok(());
                };
                let texts = Texts::of(array);
                for row in known {
                    let (at, text) = (group(row), texts.get(row));
                    let is_first = self.counts[at] == 0;
                    if is_first || is_better(self.kind, text, &values[at]) {
                        values[at] = text.into();
                    }
                    self.counts[at] += 1;
                }
            }
            Input::Number(number) => {
                let Numbers { values, nulls } = number.numbers(rows)?;
                let is_summed = matches!(self.kind, AggregateKind::Sum | AggregateKind::Avg);
                let known = (0..rows_len).filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)));
                match (&mut self.state, values) {
                    (State::None, _) if nulls.is_none() => add_each(&mut self.counts, of.counts),
                    (State::None, _) => known.for_each(|row| self.counts[group(row)] += 1),
                    (State::Exact(to), Digits::Narrow(narrow))
                        if is_summed && nulls.is_none() && has_room(narrow.bits, rows_len) =>
                    {
                        add_each(&mut self.counts, of.counts);
                        for (to, sum) in to.iter_mut().zip(sums(&narrow, of)) {
                            *to = to.checked_add(sum.into()).ok_or(Problem::Overflow)?;
                        }
                    }
                    (State::Exact(to), values @ (Digits::Same(_) | Digits::Narrow(_) | Digits::Exact(_))) => {
                        let values = values.into_exact(rows_len);
                        for row in known {
                            let (at, value) = (group(row), values[row]);
                            let is_first = self.counts[at] == 0;
                            put_exact(self.kind, &mut to[at], value, is_first)?;
                            self.counts[at] += 1;
                        }
                    }
                    (State::Float(to), Digits::Float(values)) => {
                        for row in known {
                            let (at, value) = (group(row), values[row]);
                            let is_first = self.counts[at] == 0;
                            put_float(self.kind, &mut to[at], value, is_first);
                            self.counts[at] += 1;
                        }
                    }
                    _ => unreachable!("sums have the type of what is added"),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<ArrayRef, Problem> {
        let Self { kind, counts, state, data_type, input, .. } = self;
        let known = |index: usize| counts[index] > 0;
        Ok(match state {
            State::None => {
                let counts = counts.iter().map(|count| i64::try_from(*count).map_err(|_| Problem::Overflow));
                Arc::new(Int64Array::from(counts.collect::<Result<Vec<_>, _>>()?))
            }
            State::Text(values) => Arc::new(StringArray::from_iter(
                values.iter().enumerate().map(|(index, text)| known(index).then_some(text.as_ref())),
            )),
            State::Float(values) => {
                let of = |(index, value): (usize, &f64)| match kind {
                    AggregateKind::Avg => *value / counts[index] as f64,
                    _ => *value,
                };
                let all = values.iter().enumerate().map(|value| known(value.0).then(|| of(value)));
                Arc::new(Float64Array::from_iter(all))
            }
            State::Exact(values) if kind == AggregateKind::Avg => {
                let scale = match &input {
                    Input::Number(Number { class: Class::Exact(_, scale), .. }) => *scale,
                    _ => 0,
                };
                let of = |(index, value): (usize, &i128)| {
                    // The same sum with zeros behind its point is the same mean, to the last bit.
                    let (mut value, mut scale) = (*value, scale);
                    while scale > 0 && value % 10 == 0 {
                        (value, scale) = (value / 10, scale - 1);
                    }
                    value as f64 / 10_f64.powi(scale.into()) / counts[index] as f64
                };
                let all = values.iter().enumerate().map(|value| known(value.0).then(|| of(value)));
                Arc::new(Float64Array::from_iter(all))
            }
            State::Exact(values) => {
                let fits = |value: &i128| match data_type {
                    DataType::Int64 => i64::try_from(*value).is_ok(),
                    _ => value.unsigned_abs() < 10_u128.pow(38),
                };
                if !values.iter().all(fits) {
                    return Err(Problem::Overflow);
                }
                exact_array(&data_type, values.iter().enumerate().map(|(index, value)| known(index).then_some(*value)))
            }
        })
    }
}

/// Adds a value to an aggregate.
fn put_exact(kind: AggregateKind, to: &mut i128, value: i128, is_first: bool) -> Result<(), Problem> {
    match kind {
        AggregateKind::Min if is_first || value < *to => *to = value,
        AggregateKind::Max if is_first || value > *to => *to = value,
        AggregateKind::Min | AggregateKind::Max => {}
        _ => *to = to.checked_add(value).ok_or(Problem::Overflow)?,
    }
    Ok(())
}

/// The same of floating-point numbers.
fn put_float(kind: AggregateKind, to: &mut f64, value: f64, is_first: bool) {
    match kind {
        // NaN is the smallest and the greatest only where there is nothing else.
        AggregateKind::Min if is_first || value < *to || to.is_nan() => *to = value,
        AggregateKind::Max if is_first || value > *to || to.is_nan() => *to = value,
        AggregateKind::Min | AggregateKind::Max => {}
        _ => *to += value,
    }
}

fn is_better(kind: AggregateKind, text: &str, than: &str) -> bool {
    if kind == AggregateKind::Min { text < than } else { text > than }
}

fn add_each(to: &mut [u64], counts: &[u64]) {
    to.iter_mut().zip(counts).for_each(|(to, count)| *to += count);
}

/// Whether the sum of so many values fits 64 bits, whatever they are.
fn has_room(bits: u32, rows: usize) -> bool {
    bits + (usize::BITS - rows.leading_zeros()) < i64::BITS
}

/// The sum of each group's values, which [`has_room`].
fn sums(narrow: &Narrow, of: &Grouped<'_>) -> Vec<i64> {
    let values = &narrow.values;
    let Some(groups) = of.groups else { return vec![values.iter().sum()] };
    let mut sums = vec![0; of.counts.len()];
    if sums.len() > LANES_GROUPS {
        groups.iter().zip(values.iter()).for_each(|(group, value)| sums[*group as usize] += value);
        return sums;
    }
    let mut lanes = vec![0; sums.len() * LANES];
    let ((groups, groups_rest), (values, values_rest)) = (groups.as_chunks::<LANES>(), values.as_chunks::<LANES>());
    for (groups, values) in groups.iter().zip(values) {
        for lane in 0..LANES {
            lanes[groups[lane] as usize * LANES + lane] += values[lane];
        }
    }
    groups_rest.iter().zip(values_rest).for_each(|(group, value)| lanes[*group as usize * LANES] += value);
    sums.iter_mut().zip(lanes.as_chunks::<LANES>().0).for_each(|(sum, lanes)| *sum = lanes.iter().sum());
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_same_however_many_groups_there_are() {
        let rows = 1003;
        let values: Vec<i64> = (0..rows).map(|row| (row * row) % 1009 - 500).collect();
        for groups_len in [1, 3, LANES_GROUPS, LANES_GROUPS + 1] {
            let groups: Vec<u32> = (0..rows).map(|row| (row as usize * 7 % groups_len) as u32).collect();
            let mut wanted = vec![0; groups_len];
            groups.iter().zip(&values).for_each(|(group, value)| wanted[*group as usize] += value);
            let narrow = Narrow { values: values.clone().into(), bits: 10 };
            let of = Grouped { groups: Some(&groups), counts: &vec![0; groups_len] };
            assert_eq!(sums(&narrow, &of), wanted, "{groups_len} groups");
        }
        let one = Grouped { groups: None, counts: &[0] };
        assert_eq!(sums(&Narrow { values: values.clone().into(), bits: 10 }, &one), [values.iter().sum::<i64>()]);
    }

    #[test]
    fn a_sum_has_room_if_its_greatest_value_has() {
        assert!(has_room(50, (1 << 13) - 1) && !has_room(50, 1 << 13), "50 bits and 13 are 63");
        assert!(has_room(62, 1) && !has_room(63, 1));
    }
}
