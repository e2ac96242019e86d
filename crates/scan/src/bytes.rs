//! A plan as bytes: little endian, canonical. One plan has one form, so equal plans are equal bytes, and what
//! does not have this form is refused: bytes come from anybody.
//!
//! Texts are a u32 length and UTF-8, lists a u32 count and their items, options a byte 0 or 1 before the value. Expressions
//! begin with a byte that says which they are.
//!
//! A plan without a function is of version 1, one with a function of version 2: older servers refuse only the latter.

mod reader;
mod writer;

use crate::plan::{ColumnFunction, Compression, GROUP_KEYS_MAX, ORDERED_ROWS_MAX, Order, Part, Plan};
pub(crate) use reader::Reader;
pub(crate) use writer::Writer;

/// The most bytes of a plan.
pub const PLAN_LEN_MAX: usize = 512 << 10;
/// The most columns, types of columns and aggregates that a plan names.
pub const COLUMNS_MAX: usize = 16 << 10;
const VERSION: u16 = 1;
const VERSION_WITH_FUNCTION: u16 = 2;
/// How a plan is refused that is newer than who reads it.
pub const UNKNOWN_VERSION: &str = "unknown version";

/// Bytes that are not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the plan is not valid at byte {at}: {what}")]
pub struct PlanError {
    /// Where.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl Plan {
    /// As it travels.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        let version = if self.function.is_some() { VERSION_WITH_FUNCTION } else { VERSION };
        to.0.extend_from_slice(&version.to_le_bytes());
        to.format(self.format);
        to.list(&self.types, |to, (column, data_type)| {
            to.text(column);
            to.column_type(*data_type);
        });
        to.u32(self.part.first);
        to.u32(self.part.count);
        to.list(&self.columns, |to, column| to.text(column));
        to.option(self.filter.as_ref(), Writer::expression);
        to.list(&self.aggregates, |to, aggregate| {
            to.u8(aggregate.kind as u8);
            to.option(aggregate.input.as_ref(), Writer::expression);
            to.text(&aggregate.name);
        });
        to.list(&self.by, |to, column| to.text(column));
        to.list(&self.order, |to, order| {
            to.text(&order.column);
            to.u8(order.is_descending.into());
        });
        to.option(self.limit.as_ref(), |to, limit| to.0.extend_from_slice(&limit.to_le_bytes()));
        to.u8(self.compression as u8);
        if let Some(function) = &self.function {
            to.bytes(&function.object);
            to.text(&function.name);
            to.bytes(&function.args);
            to.u8(function.gives as u8);
        }
        to.0
    }

    /// The plan of these bytes.
    ///
    /// # Errors
    /// They are not one, or not in the form that [`to_bytes`](Self::to_bytes) gives it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PlanError> {
        let mut from = Reader::new(bytes);
        if bytes.len() > PLAN_LEN_MAX {
            return Err(from.wrong("it is too long"));
        }
        let version = u16::from_le_bytes(from.take()?);
        if !matches!(version, VERSION | VERSION_WITH_FUNCTION) {
            return Err(from.wrong(UNKNOWN_VERSION));
        }
        let format = from.format()?;
        let types = from.list(COLUMNS_MAX, |from| Ok((from.text()?, from.column_type()?)))?;
        let part = Part { first: from.u32()?, count: from.u32()? };
        let columns = from.list(COLUMNS_MAX, Reader::text)?;
        let filter = from.option(|from| from.expression(0))?;
        let aggregates = from.list(COLUMNS_MAX, Reader::aggregate)?;
        let by = from.list(COLUMNS_MAX, Reader::text)?;
        if by.len() > GROUP_KEYS_MAX {
            return Err(from.wrong("rows are grouped by at most 8 columns"));
        }
        let order = from.list(COLUMNS_MAX, |from| Ok(Order { column: from.text()?, is_descending: from.flag()? }))?;
        if order.len() > GROUP_KEYS_MAX {
            return Err(from.wrong("rows are sorted by at most 8 columns"));
        }
        let limit = from.option(|from| from.take().map(u64::from_le_bytes))?;
        let compression = match from.u8()? {
            0 => Compression::None,
            1 => Compression::Lz4,
            _ => return Err(from.wrong("unknown compression")),
        };
        let function = (version == VERSION_WITH_FUNCTION).then(|| from.function().map(Box::new)).transpose()?;
        if !from.is_at_end() {
            return Err(from.wrong("bytes follow its end"));
        }
        if !order.is_empty() && limit.is_none_or(|limit| limit > ORDERED_ROWS_MAX) {
            return Err(from.wrong("only the first rows are sorted: it needs a limit of at most 65,536"));
        }
        let plan = Self { format, types, part, columns, filter, aggregates, by, order, limit, compression, function };
        if plan.aggregates() && !plan.columns.is_empty() {
            return Err(from.wrong("with aggregates the columns that go out are those that rows are grouped by"));
        }
        Ok(plan)
    }
}

/// The function of a plan that is still bytes, for who has to know whether it may run; `None`: the plan has none.
///
/// # Errors
/// The bytes are not a plan.
pub fn function_of(plan: &[u8]) -> Result<Option<ColumnFunction>, PlanError> {
    if !plan.starts_with(&VERSION_WITH_FUNCTION.to_le_bytes()) {
        return Ok(None);
    }
    Plan::from_bytes(plan).map(|plan| plan.function.map(|function| *function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        ARGS_LEN_MAX, Aggregate, AggregateKind, Arithmetic, ColumnType, Comparison, DEPTH_MAX, Expression, Format,
        Gives, Literal, OBJECT_LEN_MAX,
    };
    use proptest::prelude::*;

    fn literal() -> impl Strategy<Value = Literal> {
        prop_oneof![
            Just(Literal::Null),
            any::<bool>().prop_map(Literal::Boolean),
            (-(10_i128.pow(38) - 1)..10_i128.pow(38), 0_u8..=37)
                .prop_map(|(digits, scale)| Literal::Number { digits, scale }),
            (-1e300..1e300).prop_map(Literal::Float),
            ".*".prop_map(Literal::Text),
            any::<i32>().prop_map(Literal::Date),
            any::<i64>().prop_map(Literal::Timestamp),
        ]
    }

    fn comparison() -> impl Strategy<Value = Comparison> {
        prop_oneof![
            Just(Comparison::Equal),
            Just(Comparison::NotEqual),
            Just(Comparison::Less),
            Just(Comparison::LessOrEqual),
            Just(Comparison::Greater),
            Just(Comparison::GreaterOrEqual),
        ]
    }

    fn expression() -> impl Strategy<Value = Expression> {
        let leaf = prop_oneof![".*".prop_map(Expression::Column), literal().prop_map(Expression::Literal)];
        leaf.prop_recursive(5, 40, 4, |inner| {
            let boxed = || inner.clone().prop_map(Box::new);
            let how = prop_oneof![Just(Arithmetic::Add), Just(Arithmetic::Subtract), Just(Arithmetic::Multiply)];
            prop_oneof![
                (comparison(), boxed(), boxed()).prop_map(|(how, a, b)| Expression::Compare(how, a, b)),
                prop::collection::vec(inner.clone(), 0..4).prop_map(Expression::And),
                prop::collection::vec(inner.clone(), 0..4).prop_map(Expression::Or),
                boxed().prop_map(Expression::Not),
                (boxed(), prop::collection::vec(literal(), 0..4)).prop_map(|(a, among)| Expression::In(a, among)),
                boxed().prop_map(Expression::IsNull),
                (boxed(), ".*").prop_map(|(a, pattern)| Expression::Like(a, pattern)),
                (how, boxed(), boxed()).prop_map(|(how, a, b)| Expression::Arithmetic(how, a, b)),
            ]
        })
    }

    fn format() -> impl Strategy<Value = Format> {
        let csv = (any::<bool>(), prop_oneof![Just(b','), Just(b'\t'), Just(b'|')]);
        prop_oneof![
            Just(Format::Auto),
            Just(Format::Parquet),
            Just(Format::Arrow),
            csv.prop_map(|(has_header, delimiter)| Format::Csv { delimiter, has_header }),
            Just(Format::JsonLines),
        ]
    }

    fn column_type() -> impl Strategy<Value = ColumnType> {
        prop_oneof![
            Just(ColumnType::Boolean),
            Just(ColumnType::Integer),
            Just(ColumnType::Float),
            (1_u8..=38, 0_u8..=38).prop_map(|(a, b)| ColumnType::Decimal { precision: a, scale: b.min(a) }),
            Just(ColumnType::Date),
            Just(ColumnType::Timestamp),
            Just(ColumnType::Text),
        ]
    }

    prop_compose! {
        fn function()(
            object in prop::collection::vec(any::<u8>(), 0..40),
            name in "[a-z_]{0,12}",
            args in prop::collection::vec(any::<u8>(), 0..9),
            gives in prop_oneof![Just(Gives::Rows), Just(Gives::Result), Just(Gives::Partial)],
        ) -> ColumnFunction {
            ColumnFunction { object, name, args, gives }
        }
    }

    prop_compose! {
        fn plan()(
            format in format(),
            types in prop::collection::vec((".*", column_type()), 0..3),
            order in prop::collection::vec((".*", any::<bool>()), 0..3),
            first in any::<u32>(),
            count in any::<u32>(),
            columns in prop::collection::vec(".*", 0..4),
            filter in prop::option::of(expression()),
            unsorted in prop::option::of(any::<u64>()),
            first_rows in 0..=ORDERED_ROWS_MAX,
            sums in prop::option::of(prop::collection::vec((expression(), ".*"), 1..3)),
            function in prop::option::of(function().prop_map(Box::new)),
        ) -> Plan {
            let sum = |(input, name)| Aggregate { kind: AggregateKind::Sum, input: Some(input), name };
            let aggregates: Vec<_> = sums.into_iter().flatten().map(sum).collect();
            let (columns, by) = if aggregates.is_empty() { (columns, Vec::new()) } else { (Vec::new(), columns) };
            let order: Vec<_> = order.into_iter().map(|(column, is_descending)| Order { column, is_descending }).collect();
            let limit = if order.is_empty() { unsorted } else { Some(first_rows) };
            let (part, compression) = (Part { first, count }, Compression::Lz4);
            Plan { format, types, part, columns, filter, aggregates, by, order, limit, compression, function }
        }
    }

    proptest! {
        #[test]
        fn a_plan_is_the_same_after_its_travel(plan in plan()) {
            let bytes = plan.to_bytes();
            prop_assert_eq!(Plan::from_bytes(&bytes), Ok(plan));
        }

        /// Bytes that are read are canonical: they are written as the same bytes. No bytes make it panic.
        #[test]
        fn changed_bytes_are_refused_or_another_plan(plan in plan(), at in any::<prop::sample::Index>(), to: u8, cut: bool) {
            let mut bytes = plan.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] = to;
            if cut {
                bytes.truncate(at);
            }
            if let Ok(read) = Plan::from_bytes(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }

    /// A server from before functions must not take a plan for one without.
    #[test]
    fn a_function_is_bounded_and_of_a_version_that_older_servers_refuse() {
        let read = |object_len, args_len| {
            let (object, args) = (vec![0; object_len], vec![0; args_len]);
            let function = Some(Box::new(ColumnFunction { object, name: "f".into(), args, gives: Gives::Rows }));
            let bytes = Plan { function, ..Plan::default() }.to_bytes();
            assert_eq!(bytes[..2], [2, 0]);
            Plan::from_bytes(&bytes).map(|_| ()).map_err(|error| error.what)
        };
        assert_eq!(Plan::default().to_bytes()[..2], [1, 0]);
        assert_eq!(read(OBJECT_LEN_MAX, ARGS_LEN_MAX), Ok(()));
        assert_eq!(read(OBJECT_LEN_MAX + 1, 0), Err("the object of a function has more than 256 KiB"));
        assert_eq!(read(0, ARGS_LEN_MAX + 1), Err("the arguments of a function have more than 64 KiB"));
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = |depth: usize| {
            let column = Expression::Column("a".into());
            let filter = (1..depth).fold(column, |inner, _| Expression::Not(Box::new(inner)));
            Plan::from_bytes(&Plan { filter: Some(filter), ..Plan::default() }.to_bytes())
        };
        assert!(deep(DEPTH_MAX).is_ok());
        assert_eq!(deep(DEPTH_MAX + 1).map_err(|error| error.what), Err("expressions are nested too deeply"));
    }
}
