//! Expressions where the values of some columns are known before a file is read: its path says them, or the file lacks the column
//! and each is NULL.

use crate::like::Pattern;
use crate::plan::{Arithmetic, Comparison, Expression, Literal};
use std::cmp::Ordering;

/// Digits of a number, and so many of them behind its point, that a plan has room for.
const DIGITS_END: u128 = 10_u128.pow(38);
const SCALE_MAX: u8 = 37;

impl Expression {
    /// The same for rows in which columns have these values, computed as far as it can be without a row. Two values that cannot
    /// be compared stay as they are, so that the scan refuses them.
    #[must_use]
    pub fn given(&self, value: &dyn Fn(&str) -> Option<Literal>) -> Self {
        let of = |one: &Self| one.given(value);
        let boxed = |one: &Self| Box::new(of(one));
        match self {
            Self::Column(name) => value(name).map_or_else(|| self.clone(), Self::Literal),
            Self::Literal(_) => self.clone(),
            Self::Compare(how, left, right) => compare(*how, of(left), of(right)),
            Self::And(all) => joined(all.iter().map(of).collect(), true),
            Self::Or(any) => joined(any.iter().map(of).collect(), false),
            Self::Not(one) => match of(one) {
                Self::Literal(Literal::Boolean(value)) => truth(Some(!value)),
                Self::Literal(Literal::Null) => truth(None),
                one => Self::Not(Box::new(one)),
            },
            Self::In(one, among) => match of(one) {
                Self::Literal(literal) => is_among(&literal, among)
                    .map_or_else(|| Self::In(Box::new(Self::Literal(literal)), among.clone()), truth),
                one => Self::In(Box::new(one), among.clone()),
            },
            Self::IsNull(one) => match of(one) {
                Self::Literal(literal) => truth(Some(literal == Literal::Null)),
                one => Self::IsNull(Box::new(one)),
            },
            Self::Like(one, pattern) => match (of(one), Pattern::new(pattern)) {
                (Self::Literal(Literal::Null), Some(_)) => truth(None),
                (Self::Literal(Literal::Text(text)), Some(like)) => truth(Some(like.matches(&text))),
                (one, _) => Self::Like(Box::new(one), pattern.clone()),
            },
            Self::Arithmetic(how, left, right) => match (of(left), of(right)) {
                (Self::Literal(Literal::Null), _) | (_, Self::Literal(Literal::Null)) => truth(None),
                (Self::Literal(a), Self::Literal(b)) => computed(*how, &a, &b)
                    .map_or_else(|| Self::Arithmetic(*how, boxed(left), boxed(right)), Self::Literal),
                (left, right) => Self::Arithmetic(*how, Box::new(left), Box::new(right)),
            },
        }
    }

    /// Whether a row may fulfil it; `false` only where that is known.
    #[must_use]
    pub fn may_be_true(&self) -> bool {
        match self {
            Self::Literal(Literal::Null | Literal::Boolean(false)) => false,
            Self::And(all) => all.iter().all(Self::may_be_true),
            Self::Or(any) => any.iter().any(Self::may_be_true),
            _ => true,
        }
    }

    /// Whether all rows fulfil it, whatever they are.
    #[must_use]
    pub fn is_true(&self) -> bool {
        *self == truth(Some(true))
    }
}

fn truth(known: Option<bool>) -> Expression {
    Expression::Literal(known.map_or(Literal::Null, Literal::Boolean))
}

/// Conditions joined by AND (`neutral` true) or OR, without those that change nothing.
fn joined(all: Vec<Expression>, neutral: bool) -> Expression {
    let decided = truth(Some(!neutral));
    // The scan refuses anything that is not a condition, also beside one that decides.
    let is_condition = |one: &Expression| {
        !matches!(one, Expression::Arithmetic(..))
            && !matches!(one, Expression::Literal(literal) if !matches!(literal, Literal::Null | Literal::Boolean(_)))
    };
    if all.contains(&decided) && all.iter().all(is_condition) {
        return decided;
    }
    let mut left: Vec<_> = all.into_iter().filter(|one| *one != truth(Some(neutral))).collect();
    match left.len() {
        0 => truth(Some(neutral)),
        1 => left.remove(0),
        _ if left.iter().all(|one| *one == truth(None)) => truth(None),
        _ if neutral => Expression::And(left),
        _ => Expression::Or(left),
    }
}

fn compare(how: Comparison, left: Expression, right: Expression) -> Expression {
    match (&left, &right) {
        (Expression::Literal(Literal::Null), _) | (_, Expression::Literal(Literal::Null)) => truth(None),
        (Expression::Literal(a), Expression::Literal(b)) if is_comparable(a, b) => truth(Some(holds(how, order(a, b)))),
        _ => Expression::Compare(how, Box::new(left), Box::new(right)),
    }
}

/// NaN, which has no order, differs from everything.
fn holds(how: Comparison, order: Option<Ordering>) -> bool {
    match how {
        Comparison::Equal => order.is_some_and(Ordering::is_eq),
        Comparison::NotEqual => order.is_none_or(Ordering::is_ne),
        Comparison::Less => order.is_some_and(Ordering::is_lt),
        Comparison::LessOrEqual => order.is_some_and(Ordering::is_le),
        Comparison::Greater => order.is_some_and(Ordering::is_gt),
        Comparison::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
    }
}

/// Whether a value is one of these; the outer `None`: one of them cannot be compared with it.
fn is_among(literal: &Literal, among: &[Literal]) -> Option<Option<bool>> {
    if *literal == Literal::Null {
        return Some(None);
    }
    let mut known = among.iter().filter(|one| **one != Literal::Null);
    if !known.clone().all(|one| is_comparable(literal, one)) {
        return None;
    }
    let is_found = known.any(|one| holds(Comparison::Equal, order(literal, one)));
    Some(if is_found { Some(true) } else { (!among.contains(&Literal::Null)).then_some(false) })
}

fn is_comparable(left: &Literal, right: &Literal) -> bool {
    use Literal::{Boolean, Date, Float, Number, Text, Timestamp};
    matches!(
        (left, right),
        (Number { .. } | Float(_), Number { .. } | Float(_))
            | (Date(_) | Timestamp(_), Date(_) | Timestamp(_))
            | (Text(_), Text(_))
            | (Boolean(_), Boolean(_))
    )
}

fn order(left: &Literal, right: &Literal) -> Option<Ordering> {
    match (left, right) {
        (Literal::Text(a), Literal::Text(b)) => Some(a.cmp(b)),
        (Literal::Boolean(a), Literal::Boolean(b)) => Some(a.cmp(b)),
        (Literal::Number { digits: a, scale: of_a }, Literal::Number { digits: b, scale: of_b }) => {
            // One with more digits than there is room for is farther from 0 than the other.
            let grown = |digits: &i128, from: u8, to: u8| {
                let factor = 10_i128.pow(u32::from(to.saturating_sub(from)));
                digits.checked_mul(factor).unwrap_or(if *digits < 0 { i128::MIN } else { i128::MAX })
            };
            Some(grown(a, *of_a, *of_b).cmp(&grown(b, *of_b, *of_a)))
        }
        _ => match (micros(left), micros(right)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => float(left)?.partial_cmp(&float(right)?),
        },
    }
}

fn micros(of: &Literal) -> Option<i64> {
    match of {
        Literal::Date(days) => Some(i64::from(*days) * 86_400_000_000),
        Literal::Timestamp(micros) => Some(*micros),
        _ => None,
    }
}

fn float(of: &Literal) -> Option<f64> {
    match of {
        Literal::Float(value) => Some(*value),
        Literal::Number { digits, scale } => format!("{digits}e-{scale}").parse().ok(),
        _ => None,
    }
}

/// Two numbers computed; `None`: they are not numbers, or the result has too many digits.
fn computed(how: Arithmetic, left: &Literal, right: &Literal) -> Option<Literal> {
    if let (Literal::Number { digits: a, scale: of_a }, Literal::Number { digits: b, scale: of_b }) = (left, right) {
        let scale = if how == Arithmetic::Multiply { of_a + of_b } else { *of_a.max(of_b) };
        let grown = |digits: &i128, from: u8| digits.checked_mul(10_i128.checked_pow(u32::from(scale - from))?);
        let digits = match how {
            Arithmetic::Add => grown(a, *of_a)?.checked_add(grown(b, *of_b)?)?,
            Arithmetic::Subtract => grown(a, *of_a)?.checked_sub(grown(b, *of_b)?)?,
            Arithmetic::Multiply => a.checked_mul(*b)?,
        };
        return (scale <= SCALE_MAX && digits.unsigned_abs() < DIGITS_END).then_some(Literal::Number { digits, scale });
    }
    let (a, b) = (float(left)?, float(right)?);
    Some(Literal::Float(match how {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_filter;

    /// `year` is 2024, `day` a date, `kind` a text and `none` NULL; of all else nothing is known.
    fn given(text: &str) -> Expression {
        let known = |name: &str| match name {
            "year" => Some(Literal::Number { digits: 2024, scale: 0 }),
            "day" => Some(Literal::Date(8766)),
            "kind" => Some(Literal::Text("a b".into())),
            "none" => Some(Literal::Null),
            _ => None,
        };
        parse_filter(text).unwrap().given(&known)
    }

    #[test]
    fn known_values_decide_conditions() {
        for text in [
            "year = 2024",
            "year between 2023.5 and 2.0241e3",
            "year in (1, 2024, null)",
            "year + 1 = 2025.0",
            "year * 0.5 = 1012",
            "kind like 'a%'",
            "kind > 'a'",
            "not (kind in ('x', 'y'))",
            "day = date '1994-01-01'",
            "day < timestamp '1994-01-01 00:00:01'",
            "none is null",
            "x < 1 or year = 2024",
            "year is not null",
        ] {
            assert!(given(text).is_true(), "{text}: {:?}", given(text));
        }
        for text in ["year <> 2024", "none = 1", "not (none = 1)", "none + x > 1", "none not in (1)", "none like '%'"] {
            assert!(!given(text).may_be_true(), "{text}: {:?}", given(text));
        }
        for text in ["x < 1 and year = 1", "x < 1 and none = 1", "year in (1, null)", "none in (1) or year < 3"] {
            assert!(!given(text).may_be_true(), "{text}: {:?}", given(text));
        }
    }

    #[test]
    fn what_rows_decide_is_left() {
        let same = |text: &str, left: &str| assert_eq!(given(text), parse_filter(left).unwrap(), "{text}");
        same("x < 1 and year = 2024", "x < 1");
        same("x < year", "x < 2024");
        same("x < 1 or none = 1 or year = 1", "x < 1 or null");
        same("not (x < 1 and none = 1)", "not (x < 1 and null)");
        // The scan says what is wrong with these.
        same("year = 'a'", "2024 = 'a'");
        same("kind in (1)", "'a b' in (1)");
        assert!(given("year = 'a'").may_be_true() && given("kind + 1 = 2").may_be_true());
    }
}
