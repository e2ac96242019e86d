//! Numbers that are computed of columns: exactly, or as floating-point numbers.

use crate::columns::{Class, Kind};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Decimal64Type, Float32Type, Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use diskside_scan::Arithmetic;
use std::cell::{OnceCell, RefCell};

/// How a number of each row is computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A column, by its slot.
    Column(usize),
    Exact(i128),
    Float(f64),
    /// An exact value as a floating-point number; so many digits are behind the point.
    ToFloat(Box<Self>, u8),
    /// An exact value with more digits behind the point: multiplied by this.
    Rescaled(Box<Self>, i128),
    Computed(Arithmetic, Box<Self>, Box<Self>),
}

/// A value with its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Number {
    pub(crate) value: Value,
    pub(crate) class: Class,
    /// Values fit so many bits and a sign; beyond 126 each step is checked.
    bits: u32,
}

/// Rows of a batch: the arrays of their columns by slot, and what is computed of them once.
pub(crate) struct Rows<'a> {
    columns: &'a [ArrayRef],
    len: usize,
    narrow: Vec<OnceCell<Option<Narrow>>>,
    /// Results of computing, for others that need the same. Few are, so they are compared with all.
    computed: RefCell<Vec<(Value, Numbers)>>,
}

/// Whole numbers that fit so many bits and a sign.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    pub(crate) values: ScalarBuffer<i64>,
    pub(crate) bits: u32,
}

/// Values of some rows.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) values: Digits,
    pub(crate) nulls: Option<NullBuffer>,
}

#[derive(Clone, Debug)]
pub(crate) enum Digits {
    /// The same in all rows.
    Same(i128),
    Narrow(Narrow),
    Exact(Vec<i128>),
    Float(Vec<f64>),
}

/// A result has more digits than there is room for.
#[derive(Debug)]
pub(crate) struct Overflow;

/// No number has more digits than a decimal of 128 bits.
const SCALE_MAX: u8 = 37;
const UNCHECKED_BITS: u32 = 126;
/// Values with so many bits are computed as 64-bit numbers, four times as fast.
const NARROW_BITS: u32 = 63;

/// Calls `$work` with the values of an exact column as a slice of its own type.
macro_rules! with_exact {
    ($array:expr, $values:ident => $work:expr, $other:expr) => {{
        use arrow_array::cast::AsArray as _;
        use arrow_array::types::*;
        use arrow_schema::{DataType, TimeUnit};
        macro_rules! of {
            ($kind:ty) => {{
                let $values: &[_] = $array.as_primitive::<$kind>().values();
                $work
            }};
        }
        match $array.data_type() {
            DataType::Int8 => of!(Int8Type),
            DataType::Int16 => of!(Int16Type),
            DataType::Int32 => of!(Int32Type),
            DataType::Int64 => of!(Int64Type),
            DataType::UInt8 => of!(UInt8Type),
            DataType::UInt16 => of!(UInt16Type),
            DataType::UInt32 => of!(UInt32Type),
            DataType::UInt64 => of!(UInt64Type),
            DataType::Date32 => of!(Date32Type),
            DataType::Decimal32(..) => of!(Decimal32Type),
            DataType::Decimal64(..) => of!(Decimal64Type),
            DataType::Decimal128(..) => of!(Decimal128Type),
            DataType::Timestamp(TimeUnit::Second, _) => of!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => of!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => of!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => of!(TimestampNanosecondType),
            _ => $other,
        }
    }};
}
pub(crate) use with_exact;

impl Number {
    /// A column.
    pub(crate) fn column(slot: usize, class: Class, data_type: &DataType) -> Self {
        // The values in a file may exceed the precision of its decimals.
        let bits = match data_type {
            DataType::Decimal128(..) => 127,
            DataType::UInt64 => 64,
            _ => 63,
        };
        Self { value: Value::Column(slot), class, bits }
    }

    pub(crate) fn exact(digits: i128, scale: u8) -> Self {
        let kind = if scale == 0 { Kind::Integer } else { Kind::Decimal };
        let bits = 128 - digits.unsigned_abs().leading_zeros();
        Self { value: Value::Exact(digits), class: Class::Exact(kind, scale), bits }
    }

    pub(crate) fn float(value: f64) -> Self {
        Self { value: Value::Float(value), class: Class::Float, bits: 0 }
    }

    /// Two with one scale, or both floating-point. `None`: they have too many digits together.
    pub(crate) fn alike(self, other: Self) -> Option<(Self, Self)> {
        match (self.class, other.class) {
            (Class::Exact(_, left), Class::Exact(_, right)) => {
                let scale = left.max(right);
                Some((self.rescaled(scale)?, other.rescaled(scale)?))
            }
            _ => Some((self.floats(), other.floats())),
        }
    }

    /// The result for two values. `None`: it has too many digits behind the point.
    pub(crate) fn computed(how: Arithmetic, left: Self, right: Self) -> Option<Self> {
        let is_exact = matches!((left.class, right.class), (Class::Exact(..), Class::Exact(..)));
        let (left, right) = match how {
            Arithmetic::Multiply if is_exact => (left, right),
            _ => left.alike(right)?,
        };
        let (class, bits) = match (left.class, right.class, how) {
            (Class::Exact(a, left_scale), Class::Exact(b, right_scale), Arithmetic::Multiply) => {
                let scale = left_scale.checked_add(right_scale).filter(|scale| *scale <= SCALE_MAX)?;
                (Class::Exact(wider(a, b), scale), left.bits + right.bits)
            }
            (Class::Exact(a, scale), Class::Exact(b, _), _) => {
                (Class::Exact(wider(a, b), scale), left.bits.max(right.bits) + 1)
            }
            _ => (Class::Float, left.bits.max(right.bits)),
        };
        Some(Self { value: Value::Computed(how, Box::new(left.value), Box::new(right.value)), class, bits })
    }

    fn rescaled(self, scale: u8) -> Option<Self> {
        let Class::Exact(kind, own) = self.class else { return Some(self) };
        if own == scale {
            return Some(self);
        }
        let factor = 10_i128.checked_pow(u32::from(scale.checked_sub(own)?))?;
        let bits = self.bits + 128 - factor.leading_zeros();
        let value = match self.value {
            Value::Exact(digits) => Value::Exact(digits.checked_mul(factor)?),
            value => Value::Rescaled(Box::new(value), factor),
        };
        Some(Self { value, class: Class::Exact(kind, scale), bits })
    }

    fn floats(self) -> Self {
        let Class::Exact(_, scale) = self.class else { return self };
        // Inside it is as exact as before, and each step is checked where it was.
        Self { value: Value::ToFloat(Box::new(self.value), scale), class: Class::Float, bits: self.bits }
    }

    /// The values of these rows.
    pub(crate) fn numbers(&self, rows: &Rows<'_>) -> Result<Numbers, Overflow> {
        self.value.numbers(rows, self.bits > UNCHECKED_BITS)
    }
}

fn wider(left: Kind, right: Kind) -> Kind {
    if left == Kind::Integer && right == Kind::Integer { Kind::Integer } else { Kind::Decimal }
}

impl<'a> Rows<'a> {
    pub(crate) fn new(columns: &'a [ArrayRef], len: usize) -> Self {
        Self { columns, len, narrow: vec![OnceCell::new(); columns.len()], computed: RefCell::default() }
    }

    pub(crate) fn columns(&self) -> &'a [ArrayRef] {
        self.columns
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn computed(&self, value: &Value) -> Option<Numbers> {
        let computed = self.computed.borrow();
        computed.iter().find(|(known, _)| known == value).map(|(_, numbers)| numbers.clone())
    }

    /// Keeps a result, unless it takes long to copy.
    fn keep(&self, value: &Value, numbers: &Numbers) {
        if matches!(numbers.values, Digits::Narrow(_)) {
            self.computed.borrow_mut().push((value.clone(), numbers.clone()));
        }
    }

    fn digits(&self, slot: usize) -> Digits {
        let array = &self.columns[slot];
        let narrow = self.narrow[slot].get_or_init(|| values_of(array).map(Narrow::new));
        narrow.clone().map_or_else(|| digits(array), Digits::Narrow)
    }
}

impl Narrow {
    fn new(values: ScalarBuffer<i64>) -> Self {
        // The complement of a negative number has as many bits.
        let all = values.iter().fold(0, |all, value| all | (value ^ (value >> 63)));
        Self { bits: 64 - all.leading_zeros(), values }
    }
}

impl Digits {
    /// The bits of a value of them at most, if it is known to be narrow.
    fn bits(&self) -> Option<u32> {
        match self {
            Self::Same(value) => {
                Some(128 - (value ^ (value >> 127)).leading_zeros()).filter(|bits| *bits <= NARROW_BITS)
            }
            Self::Narrow(narrow) => Some(narrow.bits),
            Self::Exact(_) | Self::Float(_) => None,
        }
    }

    /// All values; they are exact.
    pub(crate) fn into_exact(self, rows: usize) -> Vec<i128> {
        match self {
            Self::Same(value) => vec![value; rows],
            Self::Narrow(narrow) => narrow.values.iter().map(|value| i128::from(*value)).collect(),
            Self::Exact(values) => values,
            Self::Float(_) => unreachable!("both sides were made alike"),
        }
    }
}

impl Value {
    fn numbers(&self, rows: &Rows<'_>, checked: bool) -> Result<Numbers, Overflow> {
        let of = |value: &Self| value.numbers(rows, checked);
        Ok(match self {
            Self::Column(slot) => Numbers { values: rows.digits(*slot), nulls: rows.columns[*slot].nulls().cloned() },
            Self::Exact(value) => Numbers { values: Digits::Same(*value), nulls: None },
            Self::Float(value) => Numbers { values: Digits::Float(vec![*value; rows.len]), nulls: None },
            Self::ToFloat(value, scale) => {
                let Numbers { values, nulls } = of(value)?;
                let divisor = 10_f64.powi((*scale).into());
                let values = match values {
                    Digits::Float(values) => values,
                    Digits::Narrow(narrow) => narrow.values.iter().map(|value| *value as f64 / divisor).collect(),
                    exact => exact.into_exact(rows.len).iter().map(|value| *value as f64 / divisor).collect(),
                };
                Numbers { values: Digits::Float(values), nulls }
            }
            Self::Rescaled(value, factor) => {
                let Numbers { values, nulls } = of(value)?;
                let factor = Digits::Same(*factor);
                Numbers {
                    values: compute(Arithmetic::Multiply, values, factor, rows.len, nulls.as_ref(), checked)?,
                    nulls,
                }
            }
            Self::Computed(how, left, right) => {
                if let Some(known) = rows.computed(self) {
                    return Ok(known);
                }
                let (left, right) = (of(left)?, of(right)?);
                let nulls = NullBuffer::union(left.nulls.as_ref(), right.nulls.as_ref());
                let values = compute(*how, left.values, right.values, rows.len, nulls.as_ref(), checked)?;
                let numbers = Numbers { values, nulls };
                rows.keep(self, &numbers);
                numbers
            }
        })
    }
}

fn compute(
    how: Arithmetic,
    left: Digits,
    right: Digits,
    rows: usize,
    nulls: Option<&NullBuffer>,
    checked: bool,
) -> Result<Digits, Overflow> {
    if let (Some(a), Some(b)) = (left.bits(), right.bits()) {
        // The product of the two least numbers has one more.
        let bits = if how == Arithmetic::Multiply { a + b + 1 } else { a.max(b) + 1 };
        if bits <= NARROW_BITS {
            let values = ScalarBuffer::from(compute_narrow(how, &left, &right, rows));
            return Ok(Digits::Narrow(Narrow { values, bits }));
        }
    }
    match (left, right) {
        (Digits::Float(mut left), Digits::Float(right)) => {
            let all = left.iter_mut().zip(right);
            match how {
                Arithmetic::Add => all.for_each(|(a, b)| *a += b),
                Arithmetic::Subtract => all.for_each(|(a, b)| *a -= b),
                Arithmetic::Multiply => all.for_each(|(a, b)| *a *= b),
            }
            Ok(Digits::Float(left))
        }
        (left, right) => {
            let (mut left, right) = (left.into_exact(rows), right.into_exact(rows));
            for (row, (a, b)) in left.iter_mut().zip(&right).enumerate() {
                let value = match (how, checked) {
                    (Arithmetic::Add, true) => a.checked_add(*b),
                    (Arithmetic::Subtract, true) => a.checked_sub(*b),
                    (Arithmetic::Multiply, true) => a.checked_mul(*b),
                    (Arithmetic::Add, false) => Some(a.wrapping_add(*b)),
                    (Arithmetic::Subtract, false) => Some(a.wrapping_sub(*b)),
                    (Arithmetic::Multiply, false) => Some(a.wrapping_mul(*b)),
                };
                // Where there is NULL, anything may be.
                let is_null = || nulls.is_some_and(|nulls| nulls.is_null(row));
                *a = value.or_else(|| is_null().then_some(0)).ok_or(Overflow)?;
            }
            Ok(Digits::Exact(left))
        }
    }
}

/// Of values whose result has room in 64 bits, so nothing wraps.
fn compute_narrow(how: Arithmetic, left: &Digits, right: &Digits, rows: usize) -> Vec<i64> {
    match how {
        Arithmetic::Add => each(left, right, rows, i64::wrapping_add),
        Arithmetic::Subtract => each(left, right, rows, i64::wrapping_sub),
        Arithmetic::Multiply => each(left, right, rows, i64::wrapping_mul),
    }
}

/// A loop for each pair of shapes: they are vectorised.
fn each(left: &Digits, right: &Digits, rows: usize, of: impl Fn(i64, i64) -> i64) -> Vec<i64> {
    match (left, right) {
        (Digits::Narrow(left), Digits::Narrow(right)) => {
            left.values.iter().zip(right.values.iter()).map(|(a, b)| of(*a, *b)).collect()
        }
        (Digits::Same(a), Digits::Narrow(right)) => right.values.iter().map(|b| of(*a as i64, *b)).collect(),
        (Digits::Narrow(left), Digits::Same(b)) => left.values.iter().map(|a| of(*a, *b as i64)).collect(),
        (Digits::Same(a), Digits::Same(b)) => vec![of(*a as i64, *b as i64); rows],
        _ => unreachable!("both sides are narrow"),
    }
}

/// A column of whole numbers that have 64 bits at most, and a sign.
fn values_of(array: &ArrayRef) -> Option<ScalarBuffer<i64>> {
    Some(match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().values().clone(),
        DataType::Decimal64(..) => array.as_primitive::<Decimal64Type>().values().clone(),
        DataType::UInt64 | DataType::Decimal128(..) | DataType::Float32 | DataType::Float64 => return None,
        _ => with_exact!(array, values => values.iter().map(|value| i128::from(*value) as i64).collect(), {
            unreachable!("only numbers are computed with")
        }),
    })
}

/// The values of a column of numbers.
fn digits(array: &ArrayRef) -> Digits {
    match array.data_type() {
        DataType::Float64 => Digits::Float(array.as_primitive::<Float64Type>().values().to_vec()),
        DataType::Float32 => {
            Digits::Float(array.as_primitive::<Float32Type>().values().iter().map(|value| (*value).into()).collect())
        }
        _ => Digits::Exact(exact_digits(array)),
    }
}

/// The values of an exact column.
pub(crate) fn exact_digits(array: &ArrayRef) -> Vec<i128> {
    with_exact!(array, values => values.iter().map(|value| i128::from(*value)).collect(), {
        unreachable!("the column is exact")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use std::sync::Arc;

    /// Values whose results have 63, 64 and 65 bits, where 64 of them end.
    const EDGES: [i64; 11] =
        [i64::MIN, i64::MIN + 1, -(1 << 32), -(1 << 31), -1, 0, 1, 1 << 31, (1 << 32) - 1, i64::MAX - 1, i64::MAX];

    #[test]
    fn narrow_numbers_are_computed_as_wide_ones_are() {
        let pairs = || EDGES.iter().flat_map(|a| EDGES.iter().map(move |b| (*a, *b)));
        for how in [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply] {
            for (a, b) in pairs() {
                let columns: [ArrayRef; 2] = [a, b].map(|value| Arc::new(Int64Array::from(vec![value, 1])) as ArrayRef);
                let (left, right) = (Box::new(Value::Column(0)), Box::new(Value::Column(1)));
                let numbers = Value::Computed(how, left, right).numbers(&Rows::new(&columns, 2), true);
                let (wide_a, wide_b) = (i128::from(a), i128::from(b));
                let wanted = match how {
                    Arithmetic::Add => wide_a + wide_b,
                    Arithmetic::Subtract => wide_a - wide_b,
                    Arithmetic::Multiply => wide_a * wide_b,
                };
                assert_eq!(numbers.unwrap().values.into_exact(2)[0], wanted, "{a} {how:?} {b}");
            }
        }
    }

    /// A product of whole numbers that was multiplied by a floating-point number wrapped around, and its sum was any number.
    #[test]
    fn a_product_without_room_is_an_error_also_where_it_becomes_a_floating_point_number() {
        let columns: [ArrayRef; 1] = [Arc::new(Int64Array::from(vec![1 << 43]))];
        let column = || Number::column(0, Class::Exact(Kind::Integer, 0), &DataType::Int64);
        let times = |left, right| Number::computed(Arithmetic::Multiply, left, right).unwrap();
        let square = || times(times(column(), column()), Number::float(1.5));
        let Digits::Float(values) = square().numbers(&Rows::new(&columns, 1)).unwrap().values else { panic!() };
        assert_eq!(values, [1.5 * 86_f64.exp2()]);
        let cube = times(times(times(column(), column()), column()), Number::float(1.5));
        assert!(cube.numbers(&Rows::new(&columns, 1)).is_err());
    }
}
