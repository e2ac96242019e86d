//! Aggregates, of all rows or of groups.

use crate::bind::Binder;
use crate::columns::{Class, Kind, outgoing};
use crate::evaluate::Texts;
use crate::result::exact_array;
use crate::value::{Digits, Narrow, Number, Numbers, Overflow, Rows, exact_digits};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use diskside_scan::{AggregateKind, Failure, Plan};
use std::collections::HashMap;
use std::sync::Arc;

/// Few values are found faster by looking at all.
const FEW: usize = 16;
/// Views of texts whose codes are kept at hand, and the odd number (2^64 by the golden ratio) that spreads them.
const VIEWS: usize = 64;
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// So many pairs of keys' codes have their group in a table.
const TABLE_LEN: usize = 4096;
/// Sums of so few groups are kept apart for every fourth row: then a row need not wait for the one before.
const LANES: usize = 4;
const LANES_GROUPS: usize = 256;
/// What a group takes, about, besides its texts.
const GROUP_LEN: usize = 64;

/// All aggregates of a scan.
pub(crate) struct Aggregation {
    keys: Vec<Key>,
    /// The codes of each group's keys.
    groups: Vec<Box<[u32]>>,
    known: HashMap<Box<[u32]>, u32>,
    sums: Vec<Sum>,
    /// The most bytes that groups may take, and those that they do.
    len_max: usize,
    len: usize,
}

/// A column that rows are grouped by, and its values so far; their numbers are their codes.
struct Key {
    slot: usize,
    name: String,
    data_type: DataType,
    values: Vec<KeyValue>,
    codes: HashMap<KeyValue, u32>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum KeyValue {
    Null,
    Exact(i128),
    Text(Box<str>),
    Boolean(bool),
}

/// One aggregate, with a value for each group.
struct Sum {
    kind: AggregateKind,
    name: String,
    input: Input,
    data_type: DataType,
    counts: Vec<u64>,
    state: State,
    /// Where rows are results of several: the slot with the number of values in each.
    counted: Option<usize>,
    /// An aggregate before this one that adds up the same values.
    same_as: Option<usize>,
}

#[derive(PartialEq)]
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

impl Aggregation {
    pub(crate) fn new(plan: &Plan, binder: &mut Binder<'_>, schema: &Schema, len_max: usize) -> Result<Self, Failure> {
        let mut keys = Vec::new();
        for name in &plan.by {
            let slot = binder.slot(name)?;
            if !matches!(binder.class(slot), Class::Exact(..) | Class::Text | Class::Boolean) {
                return Err(binder.wrong(format!(
                    "rows are not grouped by `{name}`: only by whole numbers, decimals, dates, timestamps, texts and \
                     truth values"
                )));
            }
            let data_type = data_type_of(schema, name);
            keys.push(Key { slot, name: name.clone(), data_type, values: Vec::new(), codes: HashMap::new() });
        }
        let sums = plan.aggregates.iter().map(|aggregate| {
            let input = match &aggregate.input {
                None => Input::Rows,
                Some(input) => binder.input(input)?.map_or_else(Input::Column, Input::Number),
            };
            let column = match &aggregate.input {
                Some(diskside_scan::Expression::Column(name)) => Some(data_type_of(schema, name)),
                _ => None,
            };
            let Some((data_type, state)) = type_of(aggregate.kind, &input, column, |slot| binder.class(slot)) else {
                return Err(binder.wrong(format!("`{}` is not of numbers", aggregate.name)));
            };
            let name = aggregate.name.clone();
            Ok(Sum {
                kind: aggregate.kind,
                name,
                input,
                data_type,
                counts: Vec::new(),
                state,
                counted: None,
                same_as: None,
            })
        });
        let mut sums = sums.collect::<Result<Vec<_>, _>>()?;
        for index in 0..sums.len() {
            sums[index].same_as = (0..index).find(|before| sums[*before].adds_as(&sums[index]));
        }
        let mut this = Self { keys, groups: Vec::new(), known: HashMap::new(), sums, len_max, len: 0 };
        if this.keys.is_empty() {
            // All rows are one group, also when there are none.
            this.group(&[])?;
        }
        Ok(this)
    }

    /// The keys and aggregates that come out, with their types.
    pub(crate) fn schema(&self) -> Schema {
        let keys = self.keys.iter().map(|key| Field::new(&key.name, key.data_type.clone(), true));
        let sums = self.sums.iter().map(|sum| Field::new(&sum.name, sum.data_type.clone(), true));
        Schema::new(keys.chain(sums).collect::<Vec<_>>())
    }

    /// Says that the values of an aggregate are results of several, and where it stands of how many.
    pub(crate) fn count_by(&mut self, aggregate: usize, slot: usize) {
        self.sums[aggregate].counted = Some(slot);
        // Those that are the same count by different slots.
        self.sums.iter_mut().for_each(|sum| sum.same_as = None);
    }

    /// Adds rows; `columns` are those that were selected, by slot.
    pub(crate) fn add(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), Problem> {
        let groups = if self.keys.is_empty() { None } else { Some(self.groups_of(columns, rows)?) };
        let mut counts = vec![0; self.groups.len()];
        match &groups {
            None => counts[0] = rows as u64,
            Some(groups) => groups.iter().for_each(|group| counts[*group as usize] += 1),
        }
        let rows = Rows::new(columns, rows);
        let of = Grouped { groups: groups.as_deref(), counts: &counts };
        for sum in self.sums.iter_mut().filter(|sum| sum.same_as.is_none()) {
            sum.add(&rows, &of)?;
        }
        Ok(())
    }

    /// The group of each row.
    fn groups_of(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>, Problem> {
        let mut codes = Vec::with_capacity(self.keys.len());
        for key in &mut self.keys {
            codes.push(key.codes_of(&columns[key.slot], rows, &mut self.len));
        }
        let widths = self.keys.iter().map(|key| key.values.len());
        let table_len = widths.clone().try_fold(1_usize, usize::checked_mul).filter(|len| *len <= TABLE_LEN);
        let Some(table_len) = table_len else {
            return (0..rows).map(|row| self.group_at(&codes, row)).collect();
        };
        let widths: Vec<usize> = widths.collect();
        let mut table: Vec<Option<u32>> = vec![None; table_len];
        let mut groups = Vec::with_capacity(rows);
        for row in 0..rows {
            let at = codes.iter().zip(&widths).fold(0, |at, (codes, width)| at * width + codes[row] as usize);
            groups.push(match table[at] {
                Some(group) => group,
                None => *table[at].insert(self.group_at(&codes, row)?),
            });
        }
        Ok(groups)
    }

    fn group_at(&mut self, codes: &[Vec<u32>], row: usize) -> Result<u32, Problem> {
        let of_row: Vec<u32> = codes.iter().map(|codes| codes[row]).collect();
        self.group(&of_row).map_err(|_| Problem::TooManyGroups(self.groups.len()))
    }

    /// The group with these keys.
    fn group(&mut self, codes: &[u32]) -> Result<u32, Failure> {
        let found = match self.groups.len() <= FEW {
            true => self.groups.iter().position(|group| **group == *codes).map(|index| index as u32),
            false => self.known.get(codes).copied(),
        };
        if let Some(found) = found {
            return Ok(found);
        }
        self.len += GROUP_LEN + 8 * codes.len() + 32 * self.sums.len();
        if self.len > self.len_max {
            let message = String::new();
            return Err(Failure { kind: diskside_scan::FailureKind::Memory, message });
        }
        let index = self.groups.len() as u32;
        self.groups.push(codes.into());
        self.known.insert(codes.into(), index);
        for sum in &mut self.sums {
            sum.counts.push(0);
            match &mut sum.state {
                State::None => {}
                State::Exact(values) => values.push(0),
                State::Float(values) => values.push(0.0),
                State::Text(values) => values.push("".into()),
            }
        }
        Ok(index)
    }

    /// The result: keys, then aggregates, a row for each group in the order in which they were met.
    pub(crate) fn finish(mut self) -> Result<RecordBatch, Problem> {
        for index in 0..self.sums.len() {
            if let Some(same) = self.sums[index].same_as {
                let of = &self.sums[same];
                (self.sums[index].counts, self.sums[index].state) = (of.counts.clone(), of.state.clone());
            }
        }
        let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        for (index, key) in self.keys.iter().enumerate() {
            let values = self.groups.iter().map(|group| &key.values[group[index] as usize]);
            arrays.push(key_array(&key.data_type, values));
            fields.push(Field::new(&key.name, key.data_type.clone(), true));
        }
        for sum in self.sums {
            let name = sum.name.clone();
            let array = sum.finish()?;
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(batch.expect("each column has a value for each group"))
    }
}

fn data_type_of(schema: &Schema, name: &str) -> DataType {
    schema.field_with_name(name).map_or(DataType::Null, |field| outgoing(field.data_type()))
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

/// What holds sums.
fn wide(kind: Kind, scale: u8) -> DataType {
    match kind {
        Kind::Integer => DataType::Int64,
        _ => DataType::Decimal128(38, scale.cast_signed()),
    }
}

impl Key {
    fn codes_of(&mut self, array: &ArrayRef, rows: usize, len: &mut usize) -> Vec<u32> {
        let nulls = array.nulls();
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        match Class::of(array.data_type()) {
            Class::Text if nulls.is_none() && *array.data_type() == DataType::Utf8View => {
                self.codes_of_views(array.as_string_view(), len)
            }
            Class::Text => {
                let texts = Texts::of(array);
                let code = |row: usize| match is_null(row) {
                    true => self.code(|known| *known == KeyValue::Null, || KeyValue::Null, len),
                    false => {
                        let text = texts.get(row);
                        let is = |known: &KeyValue| matches!(known, KeyValue::Text(known) if **known == *text);
                        self.code(is, || KeyValue::Text(text.into()), len)
                    }
                };
                (0..rows).map(code).collect()
            }
            Class::Boolean => {
                let values = array.as_boolean();
                let value = |row| if is_null(row) { KeyValue::Null } else { KeyValue::Boolean(values.value(row)) };
                let code = |row| self.code(|known| *known == value(row), || value(row), len);
                (0..rows).map(code).collect()
            }
            _ => {
                let values = exact_digits(array);
                let value = |row: usize| if is_null(row) { KeyValue::Null } else { KeyValue::Exact(values[row]) };
                let code = |row| self.code(|known| *known == value(row), || value(row), len);
                (0..rows).map(code).collect()
            }
        }
    }

    /// Equal views are equal texts, and most rows have one of a few: what a view's code is, is kept where its hash says.
    fn codes_of_views(&mut self, array: &StringViewArray, len: &mut usize) -> Vec<u32> {
        let mut seen = [(0_u128, None::<u32>); VIEWS];
        let code = |(row, view): (usize, &u128)| {
            let folded = (view ^ (view >> 64)) as u64;
            let (known, code) = &mut seen[(folded.wrapping_mul(HASH) >> 32) as usize % VIEWS];
            if let (true, Some(code)) = (known == view, *code) {
                return code;
            }
            let text = array.value(row);
            let is = |known: &KeyValue| matches!(known, KeyValue::Text(known) if **known == *text);
            let found = self.code(is, || KeyValue::Text(text.into()), len);
            (*known, *code) = (*view, Some(found));
            found
        };
        array.views().iter().enumerate().map(code).collect()
    }

    fn code(&mut self, is: impl Fn(&KeyValue) -> bool, value: impl FnOnce() -> KeyValue, len: &mut usize) -> u32 {
        if self.values.len() <= FEW
            && let Some(found) = self.values.iter().position(is)
        {
            return found as u32;
        }
        let value = value();
        if let Some(code) = self.codes.get(&value) {
            return *code;
        }
        *len += GROUP_LEN + if let KeyValue::Text(text) = &value { 2 * text.len() } else { 0 };
        let code = self.values.len() as u32;
        self.values.push(value.clone());
        self.codes.insert(value, code);
        code
    }
}

fn key_array<'a>(data_type: &DataType, values: impl Iterator<Item = &'a KeyValue>) -> ArrayRef {
    match Class::of(data_type) {
        Class::Text => Arc::new(StringArray::from_iter(values.map(|value| match value {
            KeyValue::Text(text) => Some(text.as_ref()),
            _ => None,
        }))),
        Class::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            KeyValue::Boolean(value) => Some(*value),
            _ => None,
        }))),
        _ => exact_array(
            data_type,
            values.map(|value| match value {
                KeyValue::Exact(value) => Some(*value),
                _ => None,
            }),
        ),
    }
}

/// The group of each row; without keys there is one.
struct Grouped<'a> {
    groups: Option<&'a [u32]>,
    /// Rows of each group.
    counts: &'a [u64],
}

impl Sum {
    /// Whether another one adds up the same values: a sum and a mean.
    fn adds_as(&self, other: &Self) -> bool {
        let adds = |sum: &Self| matches!(sum.kind, AggregateKind::Sum | AggregateKind::Avg);
        adds(self) && adds(other) && matches!(self.input, Input::Number(_)) && self.input == other.input
    }

    fn add(&mut self, rows: &Rows<'_>, of: &Grouped<'_>) -> Result<(), Problem> {
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
                    let is_better =
                        if self.kind == AggregateKind::Min { *text < *values[at] } else { *text > *values[at] };
                    if is_first || is_better {
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
                            let to = &mut to[at];
                            match self.kind {
                                AggregateKind::Min if is_first || value < *to => *to = value,
                                AggregateKind::Max if is_first || value > *to => *to = value,
                                AggregateKind::Min | AggregateKind::Max => {}
                                _ => *to = to.checked_add(value).ok_or(Problem::Overflow)?,
                            }
                            self.counts[at] += 1;
                        }
                    }
                    (State::Float(to), Digits::Float(values)) => {
                        for row in known {
                            let (at, value) = (group(row), values[row]);
                            let is_first = self.counts[at] == 0;
                            let to = &mut to[at];
                            match self.kind {
                                // NaN is the smallest and the greatest only where there is nothing else.
                                AggregateKind::Min if is_first || value < *to || to.is_nan() => *to = value,
                                AggregateKind::Max if is_first || value > *to || to.is_nan() => *to = value,
                                AggregateKind::Min | AggregateKind::Max => {}
                                _ => *to += value,
                            }
                            self.counts[at] += 1;
                        }
                    }
                    _ => unreachable!("sums have the type of what is added"),
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<ArrayRef, Problem> {
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
