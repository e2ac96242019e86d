//! Writes the parts of a plan.

use crate::plan::{ColumnType, Expression, Format, Literal};

pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
        items.iter().for_each(|item| write(self, item));
    }

    pub(crate) fn option<T>(&mut self, value: Option<&T>, write: impl Fn(&mut Self, &T)) {
        self.u8(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn format(&mut self, format: Format) {
        match format {
            Format::Auto => self.u8(0),
            Format::Parquet => self.u8(1),
            Format::Arrow => self.u8(2),
            Format::Csv { delimiter, has_header } => {
                self.u8(3);
                self.u8(delimiter);
                self.u8(has_header.into());
            }
            Format::JsonLines => self.u8(4),
        }
    }

    pub(crate) fn column_type(&mut self, data_type: ColumnType) {
        match data_type {
            ColumnType::Boolean => self.u8(0),
            ColumnType::Integer => self.u8(1),
            ColumnType::Float => self.u8(2),
            ColumnType::Decimal { precision, scale } => {
                self.u8(3);
                self.u8(precision);
                self.u8(scale);
            }
            ColumnType::Date => self.u8(4),
            ColumnType::Timestamp => self.u8(5),
            ColumnType::Text => self.u8(6),
        }
    }

    pub(crate) fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Column(name) => {
                self.u8(0);
                self.text(name);
            }
            Expression::Literal(literal) => {
                self.u8(1);
                self.literal(literal);
            }
            Expression::Compare(how, left, right) => {
                self.u8(2);
                self.u8(*how as u8);
                self.expression(left);
                self.expression(right);
            }
            Expression::And(all) => {
                self.u8(3);
                self.list(all, Self::expression);
            }
            Expression::Or(all) => {
                self.u8(4);
                self.list(all, Self::expression);
            }
            Expression::Not(one) => {
                self.u8(5);
                self.expression(one);
            }
            Expression::In(one, among) => {
                self.u8(6);
                self.expression(one);
                self.list(among, Self::literal);
            }
            Expression::IsNull(one) => {
                self.u8(7);
                self.expression(one);
            }
            Expression::Like(one, pattern) => {
                self.u8(8);
                self.expression(one);
                self.text(pattern);
            }
            Expression::Arithmetic(how, left, right) => {
                self.u8(9);
                self.u8(*how as u8);
                self.expression(left);
                self.expression(right);
            }
        }
    }

    pub(crate) fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Null => self.u8(0),
            Literal::Boolean(value) => {
                self.u8(1);
                self.u8((*value).into());
            }
            Literal::Number { digits, scale } => {
                self.u8(2);
                self.0.extend_from_slice(&digits.to_le_bytes());
                self.u8(*scale);
            }
            Literal::Float(value) => {
                self.u8(3);
                self.0.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            Literal::Text(text) => {
                self.u8(4);
                self.text(text);
            }
            Literal::Date(days) => {
                self.u8(5);
                self.0.extend_from_slice(&days.to_le_bytes());
            }
            Literal::Timestamp(micros) => {
                self.u8(6);
                self.0.extend_from_slice(&micros.to_le_bytes());
            }
        }
    }
}
