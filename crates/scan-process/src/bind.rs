//! From the names in a plan to the columns of a file, and from its expressions to ones with types.

use crate::columns::{Class, Kind};
use crate::condition::{Condition, Test, TextTest};
use crate::lines::other_delimiter;
use crate::value::{Number, Value};
use arrow_schema::{Field, Schema};
use diskside_scan::Pattern;
use diskside_scan::{Comparison, Expression, Failure, FailureKind, Format, Literal};
use std::collections::HashMap;

/// Finds columns, and remembers which are needed. A column's slot is its place among those.
pub(crate) struct Binder<'a> {
    file: &'a str,
    schema: &'a Schema,
    /// The first column of each name, and whether there are others: files of anybody have many thousands.
    named: HashMap<&'a str, (usize, bool)>,
    needed: Vec<usize>,
    /// The slots of those that are needed.
    slots: HashMap<usize, usize>,
}

/// What an expression is.
enum Bound {
    Number(Number),
    /// A column of texts.
    Text(usize),
    Condition(Condition),
    Literal(Literal),
    /// A column that is neither computed with nor compared.
    Other(usize),
}

impl<'a> Binder<'a> {
    pub(crate) fn new(file: &'a str, schema: &'a Schema) -> Self {
        let mut named = HashMap::with_capacity(schema.fields().len());
        for (index, field) in schema.fields().iter().enumerate() {
            named
                .entry(field.name().as_str())
                .and_modify(|(_, has_others)| *has_others = true)
                .or_insert((index, false));
        }
        Self { file, schema, named, needed: Vec::new(), slots: HashMap::new() }
    }

    /// The columns that are needed, by their slots.
    pub(crate) fn needed(self) -> Vec<usize> {
        self.needed
    }

    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> Failure {
        Failure { kind: FailureKind::Plan, message: format!("{}: {what}", self.file) }
    }

    /// The slot of a column.
    pub(crate) fn slot(&mut self, name: &str) -> Result<usize, Failure> {
        let Some((index, has_others)) = self.named.get(name).copied() else {
            return Err(self.unknown(name, ""));
        };
        if has_others {
            return Err(self.wrong(format!("several columns are called `{name}`")));
        }
        Ok(self.slot_of(index))
    }

    fn unknown(&self, name: &str, hint: &str) -> Failure {
        let only = if let [only] = &self.schema.fields()[..] { Some(only.name().as_str()) } else { None };
        let remedy = match only.and_then(other_delimiter) {
            Some(remedy) => remedy,
            None if Format::of_text(self.file) == Some(Format::JsonLines) => {
                format!("; a member that the first lines lack is a column if it is given a type: --types '{name} text'")
            }
            None => String::new(),
        };
        let names = self.schema.fields().iter().take(40).map(|field| field.name().as_str()).collect::<Vec<_>>();
        let more = if self.schema.fields().len() > 40 { ", and more" } else { "" };
        self.wrong(format!("no column `{name}`{hint}; it has {}{more}{remedy}", names.join(", ")))
    }

    /// The slot of the column with this number.
    pub(crate) fn slot_of(&mut self, index: usize) -> usize {
        *self.slots.entry(index).or_insert_with(|| {
            self.needed.push(index);
            self.needed.len() - 1
        })
    }

    /// The type of what is in a slot.
    pub(crate) fn class(&self, slot: usize) -> Class {
        Class::of(self.schema.field(self.needed[slot]).data_type())
    }

    /// The column in a slot.
    pub(crate) fn field(&self, slot: usize) -> &Field {
        self.schema.field(self.needed[slot])
    }

    /// A condition.
    pub(crate) fn condition(&mut self, expression: &Expression) -> Result<Condition, Failure> {
        match self.bind(expression)? {
            Bound::Condition(condition) => Ok(condition),
            Bound::Literal(Literal::Boolean(value)) => Ok(Condition::Constant(Some(value))),
            Bound::Literal(Literal::Null) => Ok(Condition::Constant(None)),
            _ => Err(self.wrong("a filter is a condition, such as a < 1")),
        }
    }

    /// A number, or the slot of a text.
    pub(crate) fn input(&mut self, expression: &Expression) -> Result<Result<Number, usize>, Failure> {
        match self.bind(expression)? {
            Bound::Number(number) => Ok(Ok(number)),
            Bound::Text(slot) | Bound::Other(slot) => Ok(Err(slot)),
            Bound::Condition(Condition::Boolean(slot)) => Ok(Err(slot)),
            Bound::Literal(literal) => match number_of(&literal) {
                Some(number) => Ok(Ok(number)),
                None => Err(self.wrong("only numbers and columns are aggregated")),
            },
            Bound::Condition(_) => Err(self.wrong("a condition is not aggregated")),
        }
    }

    fn bind(&mut self, expression: &Expression) -> Result<Bound, Failure> {
        Ok(match expression {
            Expression::Column(name) => {
                let slot = self.slot(name)?;
                match self.class(slot) {
                    class @ (Class::Exact(..) | Class::Float) => {
                        let data_type = self.schema.field(self.needed[slot]).data_type();
                        Bound::Number(Number::column(slot, class, data_type))
                    }
                    Class::Text => Bound::Text(slot),
                    Class::Boolean => Bound::Condition(Condition::Boolean(slot)),
                    Class::Other => Bound::Other(slot),
                }
            }
            Expression::Literal(literal) => Bound::Literal(literal.clone()),
            Expression::And(all) => Bound::Condition(Condition::And(self.conditions(all)?)),
            Expression::Or(all) => Bound::Condition(Condition::Or(self.conditions(all)?)),
            Expression::Not(one) => Bound::Condition(Condition::Not(Box::new(self.condition(one)?))),
            Expression::IsNull(one) => Bound::Condition(match self.bind(one)? {
                Bound::Number(number) => match number.value {
                    Value::Column(slot) => Condition::IsNull(slot),
                    _ => Condition::NumberIsNull(number),
                },
                Bound::Text(slot) | Bound::Other(slot) => Condition::IsNull(slot),
                Bound::Condition(condition) => Condition::IsUnknown(Box::new(condition)),
                Bound::Literal(literal) => Condition::Constant(Some(literal == Literal::Null)),
            }),
            Expression::Like(one, pattern) => {
                let bound = self.bind(one)?;
                let Bound::Text(slot) = bound else {
                    if let Bound::Literal(_) = bound {
                        return Err(self.wrong("LIKE compares a column of texts with a pattern"));
                    }
                    let (column, class) = self.column_and_class(&bound);
                    return Err(self.mismatch_of_like(column, class));
                };
                let pattern = Pattern::new(pattern).ok_or_else(|| self.wrong("a pattern ends with a lone \\"))?;
                Bound::Condition(Condition::Text(slot, TextTest::Like(pattern)))
            }
            Expression::In(one, among) => Bound::Condition(self.among(one, among)?),
            Expression::Compare(how, left, right) => Bound::Condition(self.compare(*how, left, right)?),
            Expression::Arithmetic(how, left, right) => {
                let (left, right) = (self.number(left)?, self.number(right)?);
                let computed = Number::computed(*how, left, right);
                Bound::Number(computed.ok_or_else(|| self.wrong("a product has more than 37 digits behind the point"))?)
            }
        })
    }

    fn conditions(&mut self, all: &[Expression]) -> Result<Vec<Condition>, Failure> {
        let mut all = all.iter().map(|one| self.condition(one)).collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(Condition::cost);
        Ok(all)
    }

    /// The operand of a computation: numbers alone.
    fn number(&mut self, expression: &Expression) -> Result<Number, Failure> {
        let number = match self.bind(expression)? {
            Bound::Number(number) => Some(number),
            Bound::Literal(literal) => number_of(&literal),
            _ => None,
        };
        let is_number = |number: &Number| !matches!(number.class, Class::Exact(Kind::Day | Kind::Time, _));
        number.filter(is_number).ok_or_else(|| self.wrong("only numbers are added and multiplied"))
    }

    fn compare(&mut self, how: Comparison, left: &Expression, right: &Expression) -> Result<Condition, Failure> {
        if let Expression::Column(name) = right
            && !self.named.contains_key(name.as_str())
        {
            return Err(self.unknown(name, ": a text is in 'single quotes'"));
        }
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        Ok(match (left, right) {
            (Bound::Literal(Literal::Null), _) | (_, Bound::Literal(Literal::Null)) => Condition::Constant(None),
            (Bound::Literal(left), Bound::Literal(right)) => {
                let (Some(left), Some(right)) = (number_of(&left), number_of(&right)) else {
                    return Err(self.wrong("two values are compared, and no column"));
                };
                self.numbers(how, left, right)?
            }
            (left, Bound::Literal(literal)) => self.compare_literal(how, left, &literal)?,
            (Bound::Literal(literal), right) => self.compare_literal(how.flipped(), right, &literal)?,
            (Bound::Number(left), Bound::Number(right)) => self.numbers(how, left, right)?,
            (Bound::Text(left), Bound::Text(right)) => Condition::Texts(how, left, right),
            (left, right) => {
                return Err(self.mismatch_of_two(self.column_and_class(&left), self.column_and_class(&right)));
            }
        })
    }

    /// The column that a side of a comparison is, and its class.
    fn column_and_class(&self, bound: &Bound) -> (Option<usize>, Class) {
        match bound {
            Bound::Number(Number { value: Value::Column(slot), class, .. }) => (Some(*slot), *class),
            Bound::Number(number) => (None, number.class),
            Bound::Text(slot) | Bound::Other(slot) | Bound::Condition(Condition::Boolean(slot)) => {
                (Some(*slot), self.class(*slot))
            }
            Bound::Condition(_) | Bound::Literal(_) => (None, Class::Boolean),
        }
    }

    fn numbers(&self, how: Comparison, left: Number, right: Number) -> Result<Condition, Failure> {
        let moment = |number: &Number| match number.class {
            Class::Exact(kind @ (Kind::Day | Kind::Time), _) => Some(kind),
            _ => None,
        };
        if moment(&left) != moment(&right) {
            let side = |number: &Number| match number.value {
                Value::Column(slot) => (Some(slot), number.class),
                _ => (None, number.class),
            };
            return Err(self.mismatch_of_two(side(&left), side(&right)));
        }
        let alike = left.alike(right);
        let (left, right) = alike.ok_or_else(|| self.wrong("two numbers have too many digits to be compared"))?;
        Ok(Condition::Numbers(how, left, right))
    }

    fn compare_literal(&self, how: Comparison, bound: Bound, literal: &Literal) -> Result<Condition, Failure> {
        let (column, class) = self.column_and_class(&bound);
        let mismatch = |literal| self.mismatch(column, class, literal);
        match bound {
            Bound::Text(slot) => match literal {
                Literal::Text(text) => Ok(Condition::Text(slot, TextTest::Compare(how, text.clone()))),
                _ => Err(mismatch(literal)),
            },
            Bound::Condition(condition) => match (literal, how) {
                (Literal::Boolean(true), Comparison::Equal) | (Literal::Boolean(false), Comparison::NotEqual) => {
                    Ok(condition)
                }
                (Literal::Boolean(false), Comparison::Equal) | (Literal::Boolean(true), Comparison::NotEqual) => {
                    Ok(Condition::Not(Box::new(condition)))
                }
                _ => Err(mismatch(literal)),
            },
            Bound::Other(_) => Err(mismatch(literal)),
            Bound::Number(number) => {
                let Some(slot) = column else {
                    let literal = number_of(literal).ok_or_else(|| mismatch(literal))?;
                    return self.numbers(how, number, literal);
                };
                match number.class {
                    Class::Float => {
                        let value = float_of(literal).ok_or_else(|| mismatch(literal))?;
                        Ok(Condition::Float(slot, Test::Compare(how, value)))
                    }
                    Class::Exact(kind, scale) => {
                        if let (Kind::Integer | Kind::Decimal, Literal::Float(value)) = (kind, literal) {
                            return self.numbers(how, number, Number::float(*value));
                        }
                        let digits = digits_of(kind, literal).ok_or_else(|| mismatch(literal))?;
                        Ok(exact(slot, how, digits, scale))
                    }
                    _ => unreachable!("a number is exact or floating-point"),
                }
            }
            Bound::Literal(_) => unreachable!("two literals were compared before"),
        }
    }

    fn among(&mut self, one: &Expression, among: &[Literal]) -> Result<Condition, Failure> {
        let bound = self.bind(one)?;
        let (column, class) = self.column_and_class(&bound);
        let mismatch = |literal: &Literal| self.mismatch(column, class, literal);
        let known = among.iter().filter(|literal| **literal != Literal::Null);
        let condition = match (bound, class) {
            (Bound::Text(slot), _) => {
                let text = |literal: &Literal| match literal {
                    Literal::Text(text) => Ok(text.clone()),
                    other => Err(mismatch(other)),
                };
                let mut texts = known.map(text).collect::<Result<Vec<_>, _>>()?;
                texts.sort_unstable();
                Condition::Text(slot, TextTest::In(texts))
            }
            (Bound::Number(number @ Number { value: Value::Column(slot), .. }), Class::Exact(kind, scale)) => {
                let (mut values, mut others) = (Vec::new(), Vec::new());
                for literal in known {
                    if let (Kind::Integer | Kind::Decimal, Literal::Float(value)) = (kind, literal) {
                        others.push(self.numbers(Comparison::Equal, number.clone(), Number::float(*value))?);
                        continue;
                    }
                    let digits = digits_of(kind, literal).ok_or_else(|| mismatch(literal))?;
                    // One with more digits than the column has is none of its values.
                    values.extend(at_scale(digits, scale).ok());
                }
                values.sort_unstable();
                let exact = Condition::Exact(slot, Test::In(values));
                if others.is_empty() { exact } else { Condition::Or(std::iter::once(exact).chain(others).collect()) }
            }
            (Bound::Number(Number { value: Value::Column(slot), .. }), Class::Float) => {
                let value = |literal| float_of(literal).ok_or_else(|| mismatch(literal));
                Condition::Float(slot, Test::In(known.map(value).collect::<Result<_, _>>()?))
            }
            (Bound::Condition(Condition::Boolean(slot)), _) => {
                if let Some(other) = known.clone().find(|literal| !matches!(literal, Literal::Boolean(_))) {
                    return Err(mismatch(other));
                }
                let values = [false, true].map(Literal::Boolean);
                let listed = values.iter().filter(|value| among.contains(value));
                let equals = |value: &Literal| {
                    let column = Bound::Condition(Condition::Boolean(slot));
                    self.compare_literal(Comparison::Equal, column, value)
                };
                Condition::Or(listed.map(equals).collect::<Result<_, _>>()?)
            }
            (Bound::Number(_), _) => return Err(self.wrong("IN is of a column")),
            _ => return Err(self.wrong("IN is of a column of numbers, dates, texts or booleans")),
        };
        if among.contains(&Literal::Null) {
            return Ok(Condition::Or(vec![condition, Condition::Constant(None)]));
        }
        Ok(condition)
    }
}

fn number_of(literal: &Literal) -> Option<Number> {
    match literal {
        Literal::Number { digits, scale } => Some(Number::exact(*digits, *scale)),
        Literal::Float(value) => Some(Number::float(*value)),
        _ => None,
    }
}

fn float_of(literal: &Literal) -> Option<f64> {
    match literal {
        Literal::Float(value) => Some(*value),
        // As the text of it is read: the nearest one.
        Literal::Number { digits, scale } => format!("{digits}e-{scale}").parse().ok(),
        _ => None,
    }
}

/// Digits and scale of what a column of this kind is compared with.
fn digits_of(kind: Kind, literal: &Literal) -> Option<(i128, u8)> {
    const DAY_MICROS: i128 = 86_400_000_000;
    match (kind, literal) {
        (Kind::Integer | Kind::Decimal, Literal::Number { digits, scale }) => Some((*digits, *scale)),
        (Kind::Day, Literal::Date(days)) => Some(((*days).into(), 0)),
        // Days are whole numbers of it; another one is between two.
        (Kind::Day, Literal::Timestamp(micros)) => {
            let micros = i128::from(*micros);
            let between = i128::from(micros.rem_euclid(DAY_MICROS) != 0);
            Some((micros.div_euclid(DAY_MICROS) * 10 + 5 * between, 1))
        }
        (Kind::Time, Literal::Timestamp(micros)) => Some(((*micros).into(), 6)),
        (Kind::Time, Literal::Date(days)) => Some((i128::from(*days) * 86_400, 0)),
        _ => None,
    }
}

/// The digits at another scale; else the next lower ones.
fn at_scale((digits, from): (i128, u8), to: u8) -> Result<i128, i128> {
    if from <= to {
        let factor = 10_i128.pow(u32::from(to - from));
        // Beyond all values of a column, on the same side.
        return Ok(digits.checked_mul(factor).unwrap_or(if digits < 0 { i128::MIN } else { i128::MAX }));
    }
    let divisor = 10_i128.pow(u32::from(from - to));
    let lower = digits.div_euclid(divisor);
    if digits.rem_euclid(divisor) == 0 { Ok(lower) } else { Err(lower) }
}

/// A column compared with a number that may have more digits behind the point than the column.
fn exact(slot: usize, how: Comparison, digits: (i128, u8), scale: u8) -> Condition {
    let (how, value) = match (at_scale(digits, scale), how) {
        (Ok(value), how) => (how, value),
        // Equal to none of the column's values, and different from all that are known.
        (Err(_), Comparison::Equal) => return Condition::Exact(slot, Test::In(Vec::new())),
        (Err(_), Comparison::NotEqual) => {
            return Condition::Not(Box::new(Condition::Exact(slot, Test::In(Vec::new()))));
        }
        (Err(lower), Comparison::Less | Comparison::LessOrEqual) => (Comparison::LessOrEqual, lower),
        (Err(lower), Comparison::Greater | Comparison::GreaterOrEqual) => (Comparison::Greater, lower),
    };
    Condition::Exact(slot, Test::Compare(how, value))
}
