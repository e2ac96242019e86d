//! Conditions whose columns are known, with their types.

use crate::value::Number;
use diskside_scan::Comparison;
use diskside_scan::Pattern;

/// Something that is true, false or NULL in each row. Columns are named by their slots.
#[derive(Debug)]
pub(crate) enum Condition {
    /// In all rows; `None` is NULL.
    Constant(Option<bool>),
    /// A column of truth values.
    Boolean(usize),
    /// Exact values, and numbers of the same scale.
    Exact(usize, Test<i128>),
    Float(usize, Test<f64>),
    Text(usize, TextTest),
    Numbers(Comparison, Number, Number),
    Texts(Comparison, usize, usize),
    IsNull(usize),
    NumberIsNull(Number),
    IsUnknown(Box<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
}

/// What a value is compared with.
#[derive(Debug)]
pub(crate) enum Test<T> {
    Compare(Comparison, T),
    /// One of these, in order.
    In(Vec<T>),
}

/// What a text is compared with.
#[derive(Debug)]
pub(crate) enum TextTest {
    Compare(Comparison, String),
    In(Vec<String>),
    Like(Pattern),
}

impl Condition {
    /// How dear it is: of several that must all be true the cheapest come first.
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Self::Constant(_) => 0,
            Self::Boolean(_) | Self::IsNull(_) | Self::Exact(_, Test::Compare(..)) => 1,
            Self::Float(_, Test::Compare(..)) => 2,
            Self::Exact(_, Test::In(_)) | Self::Float(_, Test::In(_)) => 6,
            Self::Text(_, TextTest::Compare(..)) => 8,
            Self::NumberIsNull(_) | Self::Numbers(..) => 12,
            Self::Text(..) | Self::Texts(..) => 20,
            Self::And(all) | Self::Or(all) => all.iter().map(Self::cost).sum(),
            Self::Not(one) | Self::IsUnknown(one) => one.cost(),
        }
    }
}

/// Whether an order between two values is the wanted one.
pub(crate) fn holds(how: Comparison, order: std::cmp::Ordering) -> bool {
    match how {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}
