//! Numbers that are computed of columns: exactly, or as floating-point numbers.

use crate::columns::{Class, Kind};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array as _, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use diskside_scan::Arithmetic;

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

/// Values of some rows.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) values: Digits,
    pub(crate) nulls: Option<NullBuffer>,
}

#[derive(Clone, Debug)]
pub(crate) enum Digits {
    Exact(Vec<i128>),
    Float(Vec<f64>),
}

/// A result has more digits than there is room for.
#[derive(Debug)]
pub(crate) struct Overflow;

/// No number has more digits than a decimal of 128 bits.
const SCALE_MAX: u8 = 37;
const UNCHECKED_BITS: u32 = 126;

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
        // What a file holds may be more than its decimals' precision says.
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

    /// What becomes of two. `None`: it has too many digits behind the point.
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
            _ => (Class::Float, 0),
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
        Self { value: Value::ToFloat(Box::new(self.value), scale), class: Class::Float, bits: 0 }
    }

    /// The values of these rows; `columns` are the arrays by slot.
    pub(crate) fn numbers(&self, columns: &[ArrayRef], rows: usize) -> Result<Numbers, Overflow> {
        self.value.numbers(columns, rows, self.bits > UNCHECKED_BITS)
    }
}

fn wider(left: Kind, right: Kind) -> Kind {
    if left == Kind::Integer && right == Kind::Integer { Kind::Integer } else { Kind::Decimal }
}

impl Value {
    fn numbers(&self, columns: &[ArrayRef], rows: usize, checked: bool) -> Result<Numbers, Overflow> {
        let of = |value: &Self| value.numbers(columns, rows, checked);
        Ok(match self {
            Self::Column(slot) => {
                let array = &columns[*slot];
                Numbers { values: digits(array), nulls: array.nulls().cloned() }
            }
            Self::Exact(value) => Numbers { values: Digits::Exact(vec![*value; rows]), nulls: None },
            Self::Float(value) => Numbers { values: Digits::Float(vec![*value; rows]), nulls: None },
            Self::ToFloat(value, scale) => {
                let Numbers { values, nulls } = of(value)?;
                let divisor = 10_f64.powi((*scale).into());
                let values = match values {
                    Digits::Exact(values) => values.iter().map(|value| *value as f64 / divisor).collect(),
                    Digits::Float(values) => values,
                };
                Numbers { values: Digits::Float(values), nulls }
            }
            Self::Rescaled(value, factor) => {
                let Numbers { values, nulls } = of(value)?;
                let factors = Digits::Exact(vec![*factor; rows]);
                Numbers { values: compute(Arithmetic::Multiply, values, &factors, nulls.as_ref(), checked)?, nulls }
            }
            Self::Computed(how, left, right) => {
                let (left, right) = (of(left)?, of(right)?);
                let nulls = NullBuffer::union(left.nulls.as_ref(), right.nulls.as_ref());
                Numbers { values: compute(*how, left.values, &right.values, nulls.as_ref(), checked)?, nulls }
            }
        })
    }
}

fn compute(
    how: Arithmetic,
    left: Digits,
    right: &Digits,
    nulls: Option<&NullBuffer>,
    checked: bool,
) -> Result<Digits, Overflow> {
    match (left, right) {
        (Digits::Exact(mut left), Digits::Exact(right)) if checked => {
            for (row, (a, b)) in left.iter_mut().zip(right).enumerate() {
                let value = match how {
                    Arithmetic::Add => a.checked_add(*b),
                    Arithmetic::Subtract => a.checked_sub(*b),
                    Arithmetic::Multiply => a.checked_mul(*b),
                };
                // Where there is NULL, anything may be.
                let is_null = || nulls.is_some_and(|nulls| nulls.is_null(row));
                *a = value.or_else(|| is_null().then_some(0)).ok_or(Overflow)?;
            }
            Ok(Digits::Exact(left))
        }
        (Digits::Exact(mut left), Digits::Exact(right)) => {
            let all = left.iter_mut().zip(right);
            match how {
                Arithmetic::Add => all.for_each(|(a, b)| *a = a.wrapping_add(*b)),
                Arithmetic::Subtract => all.for_each(|(a, b)| *a = a.wrapping_sub(*b)),
                Arithmetic::Multiply => all.for_each(|(a, b)| *a = a.wrapping_mul(*b)),
            }
            Ok(Digits::Exact(left))
        }
        (Digits::Float(mut left), Digits::Float(right)) => {
            let all = left.iter_mut().zip(right);
            match how {
                Arithmetic::Add => all.for_each(|(a, b)| *a += b),
                Arithmetic::Subtract => all.for_each(|(a, b)| *a -= b),
                Arithmetic::Multiply => all.for_each(|(a, b)| *a *= b),
            }
            Ok(Digits::Float(left))
        }
        _ => unreachable!("both sides were made alike"),
    }
}

/// The values of a column of numbers.
pub(crate) fn digits(array: &ArrayRef) -> Digits {
    match array.data_type() {
        DataType::Float64 => Digits::Float(array.as_primitive::<Float64Type>().values().to_vec()),
        DataType::Float32 => {
            Digits::Float(array.as_primitive::<Float32Type>().values().iter().map(|value| (*value).into()).collect())
        }
        _ => Digits::Exact(with_exact!(array, values => values.iter().map(|value| i128::from(*value)).collect(), {
            unreachable!("only numbers are computed with")
        })),
    }
}
