//! Reads the parts of a plan, each with its bound.

use super::{COLUMNS_MAX, PlanError};
use crate::plan::{
    ARGS_LEN_MAX, Aggregate, AggregateKind, Arithmetic, ColumnFunction, ColumnType, Comparison, DEPTH_MAX, Expression,
    Format, Gives, Literal, NAME_LEN_MAX, OBJECT_LEN_MAX,
};

/// The most expressions and values in a plan.
const NODES_MAX: usize = 64 << 10;

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, nodes: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// All that was not read yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(crate) fn wrong(&self, what: &'static str) -> PlanError {
        PlanError { at: self.at, what }
    }

    pub(crate) fn slice(&mut self, len: usize) -> Result<&[u8], PlanError> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.wrong("it ends too early"))?;
        let found = &self.bytes[self.at..end];
        self.at = end;
        Ok(found)
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], PlanError> {
        let mut found = [0; N];
        found.copy_from_slice(self.slice(N)?);
        Ok(found)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, PlanError> {
        self.take::<1>().map(|[value]| value)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, PlanError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, PlanError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("it is neither 0 nor 1")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, PlanError> {
        let len = self.u32()? as usize;
        let at = self.at;
        let bytes = self.slice(len)?.to_vec();
        String::from_utf8(bytes).map_err(|_| PlanError { at, what: "the text is not UTF-8" })
    }

    pub(crate) fn list<T>(
        &mut self,
        count_max: usize,
        read: impl Fn(&mut Self) -> Result<T, PlanError>,
    ) -> Result<Vec<T>, PlanError> {
        let count = self.u32()? as usize;
        if count > count_max {
            return Err(self.wrong(match count_max {
                COLUMNS_MAX => "it names more than 16,384 columns, types or sums",
                _ => "a list has more than 65,536 values",
            }));
        }
        // An item has at least a byte: no list is longer than what is there.
        if count > self.bytes.len() - self.at {
            return Err(self.wrong("it ends too early"));
        }
        (0..count).map(|_| read(self)).collect()
    }

    pub(crate) fn function(&mut self) -> Result<ColumnFunction, PlanError> {
        let object_len = self.u32()? as usize;
        if object_len > OBJECT_LEN_MAX {
            return Err(self.wrong("the object of a function has more than 256 KiB"));
        }
        let object = self.slice(object_len)?.to_vec();
        let name = self.text()?;
        if name.len() > NAME_LEN_MAX {
            return Err(self.wrong("the name of a function is too long"));
        }
        let args_len = self.u32()? as usize;
        if args_len > ARGS_LEN_MAX {
            return Err(self.wrong("the arguments of a function have more than 64 KiB"));
        }
        let args = self.slice(args_len)?.to_vec();
        let gives = match self.u8()? {
            0 => Gives::Rows,
            1 => Gives::Result,
            2 => Gives::Partial,
            _ => return Err(self.wrong("a function gives something unknown")),
        };
        Ok(ColumnFunction { object, name, args, gives })
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, PlanError>,
    ) -> Result<Option<T>, PlanError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn format(&mut self) -> Result<Format, PlanError> {
        Ok(match self.u8()? {
            0 => Format::Auto,
            1 => Format::Parquet,
            2 => Format::Arrow,
            3 => {
                let (delimiter, has_header) = (self.u8()?, self.flag()?);
                if !delimiter.is_ascii() || matches!(delimiter, b'"' | b'\n' | b'\r') {
                    return Err(
                        self.wrong("a delimiter is an ASCII character, and neither a quote nor the end of a line")
                    );
                }
                Format::Csv { delimiter, has_header }
            }
            4 => Format::JsonLines,
            _ => return Err(self.wrong("unknown format")),
        })
    }

    pub(crate) fn column_type(&mut self) -> Result<ColumnType, PlanError> {
        Ok(match self.u8()? {
            0 => ColumnType::Boolean,
            1 => ColumnType::Integer,
            2 => ColumnType::Float,
            3 => {
                let (precision, scale) = (self.u8()?, self.u8()?);
                let decimal = ColumnType::decimal(precision, scale);
                decimal.ok_or_else(|| self.wrong("a decimal has at most 38 digits, and fewer behind the point"))?
            }
            4 => ColumnType::Date,
            5 => ColumnType::Timestamp,
            6 => ColumnType::Text,
            _ => return Err(self.wrong("unknown type of a column")),
        })
    }

    pub(crate) fn aggregate(&mut self) -> Result<Aggregate, PlanError> {
        let kind = match self.u8()? {
            0 => AggregateKind::Count,
            1 => AggregateKind::Sum,
            2 => AggregateKind::Min,
            3 => AggregateKind::Max,
            4 => AggregateKind::Avg,
            _ => return Err(self.wrong("unknown aggregate")),
        };
        let input = self.option(|from| from.expression(0))?;
        if input.is_none() && kind != AggregateKind::Count {
            return Err(self.wrong("only rows are counted without an expression"));
        }
        Ok(Aggregate { kind, input, name: self.text()? })
    }

    pub(crate) fn expression(&mut self, depth: usize) -> Result<Expression, PlanError> {
        if depth == DEPTH_MAX {
            return Err(self.wrong("expressions are nested too deeply"));
        }
        self.node()?;
        let within = |from: &mut Self| from.expression(depth + 1);
        let boxed = |from: &mut Self| within(from).map(Box::new);
        Ok(match self.u8()? {
            0 => Expression::Column(self.text()?),
            1 => Expression::Literal(self.literal()?),
            2 => {
                let how = match self.u8()? {
                    0 => Comparison::Equal,
                    1 => Comparison::NotEqual,
                    2 => Comparison::Less,
                    3 => Comparison::LessOrEqual,
                    4 => Comparison::Greater,
                    5 => Comparison::GreaterOrEqual,
                    _ => return Err(self.wrong("unknown comparison")),
                };
                Expression::Compare(how, boxed(self)?, boxed(self)?)
            }
            3 => Expression::And(self.list(NODES_MAX, within)?),
            4 => Expression::Or(self.list(NODES_MAX, within)?),
            5 => Expression::Not(boxed(self)?),
            6 => Expression::In(boxed(self)?, self.list(NODES_MAX, Self::literal)?),
            7 => Expression::IsNull(boxed(self)?),
            8 => Expression::Like(boxed(self)?, self.text()?),
            9 => {
                let how = match self.u8()? {
                    0 => Arithmetic::Add,
                    1 => Arithmetic::Subtract,
                    2 => Arithmetic::Multiply,
                    _ => return Err(self.wrong("unknown arithmetic")),
                };
                Expression::Arithmetic(how, boxed(self)?, boxed(self)?)
            }
            _ => return Err(self.wrong("unknown expression")),
        })
    }

    pub(crate) fn node(&mut self) -> Result<(), PlanError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX { Err(self.wrong("it has too many expressions")) } else { Ok(()) }
    }

    pub(crate) fn literal(&mut self) -> Result<Literal, PlanError> {
        self.node()?;
        Ok(match self.u8()? {
            0 => Literal::Null,
            1 => Literal::Boolean(self.flag()?),
            2 => {
                let (digits, scale) = (i128::from_le_bytes(self.take()?), self.u8()?);
                if scale > 37 || digits.unsigned_abs() >= 10_u128.pow(38) {
                    return Err(self.wrong("a number has at most 38 digits, 37 of them behind the point"));
                }
                Literal::Number { digits, scale }
            }
            3 => Literal::Float(f64::from_bits(u64::from_le_bytes(self.take()?))),
            4 => Literal::Text(self.text()?),
            5 => Literal::Date(i32::from_le_bytes(self.take()?)),
            6 => Literal::Timestamp(i64::from_le_bytes(self.take()?)),
            _ => return Err(self.wrong("unknown value")),
        })
    }
}
