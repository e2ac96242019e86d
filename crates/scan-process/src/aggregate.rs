//! Sums and the like, of all rows or of groups.

use crate::bind::Binder;
use crate::columns::{Class, Kind, outgoing};
use crate::evaluate::Texts;
use crate::result::exact_array;
use crate::value::{Digits, Number, Numbers, Overflow, digits};
use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use diskside_scan::{AggregateKind, Failure, Plan};
use std::collections::HashMap;
use std::sync::Arc;

/// Few values are found faster by looking at all.
const FEW: usize = 16;
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
}

enum Input {
    Rows,
    Number(Number),
    /// A column of texts, or one that is only counted.
    Column(usize),
}

enum State {
    None,
    Exact(Vec<i128>),
    Float(Vec<f64>),
    Text(Vec<Box<str>>),
}

/// Why the aggregates cannot be had.
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
            Ok(Sum { kind: aggregate.kind, name, input, data_type, counts: Vec::new(), state })
        });
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let mut this = Self { keys, groups: Vec::new(), known: HashMap::new(), sums, len_max, len: 0 };
        if this.keys.is_empty() {
            // All rows are one group, also when there are none.
            this.group(&[])?;
        }
        Ok(this)
    }

    /// Adds rows; `columns` are those that were selected, by slot.
    pub(crate) fn add(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), Problem> {
        let groups = if self.keys.is_empty() { None } else { Some(self.groups_of(columns, rows)?) };
        for sum in &mut self.sums {
            sum.add(columns, rows, groups.as_deref())?;
        }
        Ok(())
    }

    fn groups_of(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>, Problem> {
        let mut codes = Vec::with_capacity(self.keys.len());
        for key in &mut self.keys {
            codes.push(key.codes_of(&columns[key.slot], rows, &mut self.len));
        }
        let mut of_row = vec![0; self.keys.len()];
        let mut groups = Vec::with_capacity(rows);
        for row in 0..rows {
            for (code, column) in of_row.iter_mut().zip(&codes) {
                *code = column[row];
            }
            groups.push(self.group(&of_row).map_err(|_| Problem::TooManyGroups(self.groups.len()))?);
        }
        Ok(groups)
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
    pub(crate) fn finish(self) -> Result<RecordBatch, Problem> {
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
                let Digits::Exact(values) = digits(array) else { unreachable!("keys are exact") };
                let value = |row: usize| if is_null(row) { KeyValue::Null } else { KeyValue::Exact(values[row]) };
                let code = |row| self.code(|known| *known == value(row), || value(row), len);
                (0..rows).map(code).collect()
            }
        }
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

impl Sum {
    fn add(&mut self, columns: &[ArrayRef], rows: usize, groups: Option<&[u32]>) -> Result<(), Problem> {
        let group = |row: usize| groups.map_or(0, |groups| groups[row] as usize);
        match &self.input {
            Input::Rows if groups.is_none() => self.counts[0] += rows as u64,
            Input::Rows => (0..rows).for_each(|row| self.counts[group(row)] += 1),
            Input::Column(slot) => {
                let array = &columns[*slot];
                let nulls = array.logical_nulls();
                let known = (0..rows).filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)));
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
                let Numbers { values, nulls } = number.numbers(columns, rows)?;
                let known = (0..rows).filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)));
                match (&mut self.state, values) {
                    (State::Exact(of), Digits::Exact(values)) => {
                        for row in known {
                            let (at, value) = (group(row), values[row]);
                            let is_first = self.counts[at] == 0;
                            let to = &mut of[at];
                            match self.kind {
                                AggregateKind::Min if is_first || value < *to => *to = value,
                                AggregateKind::Max if is_first || value > *to => *to = value,
                                AggregateKind::Min | AggregateKind::Max => {}
                                _ => *to = to.checked_add(value).ok_or(Problem::Overflow)?,
                            }
                            self.counts[at] += 1;
                        }
                    }
                    (State::Float(of), Digits::Float(values)) => {
                        for row in known {
                            let (at, value) = (group(row), values[row]);
                            let is_first = self.counts[at] == 0;
                            let to = &mut of[at];
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
                    _ => known.for_each(|row| self.counts[group(row)] += 1),
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
                let divisor = 10_f64.powi(scale.into());
                let of = |(index, value): (usize, &i128)| *value as f64 / divisor / counts[index] as f64;
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
