//! The share of one file in a scan of several: the plan for it, and how its result becomes rows like those of the others.

use crate::columns::Class;
use crate::partial::Partials;
use crate::result::exact_array;
use crate::union::{Union, constant};
use crate::value::exact_digits;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use diskside_scan::{Aggregate, AggregateKind, Expression, Gives, Literal, OneFile, Plan};
use std::sync::Arc;

/// Rows of a file that has none of the wanted columns are made so many at a time.
const MADE_ROWS: usize = 64 << 10;

/// What is asked of a file, and what is made of it.
pub(crate) struct Share {
    pub(crate) plan: Plan,
    columns: Vec<From>,
    kind: ShareKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ShareKind {
    Rows,
    /// The file has none of the wanted columns: its rows are only counted.
    Counted,
    /// The column that counts rows.
    Groups(usize),
}

/// Where a column comes from.
enum From {
    /// The file's result.
    Result(usize),
    /// It is the same in all rows.
    Value(Literal),
}

/// A file, and the values that are known of it.
pub(crate) struct FileOf<'a> {
    pub(crate) union: &'a Union,
    pub(crate) index: usize,
    pub(crate) file: &'a OneFile,
}

impl FileOf<'_> {
    fn value(&self, name: &str) -> Option<Literal> {
        self.union.value(self.index, self.file, name)
    }

    /// The plan with what is the same for rows and for groups; `None`: no row is wanted.
    fn plan(&self, plan: &Plan) -> Option<Plan> {
        let filter = plan.filter.as_ref().map(|filter| filter.given(&|name| self.value(name)));
        if filter.as_ref().is_some_and(|filter| !filter.may_be_true()) {
            return None;
        }
        let types = plan.types.iter().filter(|(name, _)| self.value(name).is_none()).cloned().collect();
        let filter = filter.filter(|filter| !filter.is_true());
        Some(Plan {
            format: plan.format,
            types,
            filter,
            compression: plan.compression,
            function: plan.function.clone(),
            ..Plan::default()
        })
    }

    /// Rows with these columns.
    pub(crate) fn rows(&self, plan: &Plan, names: &[String]) -> Option<Share> {
        let mut of_file = self.plan(plan)?;
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            columns.push(self.value(name).map_or(From::Result(of_file.columns.len()), From::Value));
            if let Some(From::Result(_)) = columns.last() {
                of_file.columns.push(name.clone());
            }
        }
        if of_file.columns.is_empty() {
            of_file.aggregates = vec![Aggregate { kind: AggregateKind::Count, input: None, name: "rows".into() }];
            return Some(Share { plan: of_file, columns, kind: ShareKind::Counted });
        }
        // All rows of the file have the same of the other columns.
        of_file.order = plan.order.iter().filter(|order| self.value(&order.column).is_none()).cloned().collect();
        of_file.limit = plan.limit;
        Some(Share { plan: of_file, columns, kind: ShareKind::Rows })
    }

    /// What a function gives, or what that is folded from.
    pub(crate) fn function(&self, plan: &Plan, is_folded: bool) -> Option<Share> {
        let mut of_file = self.plan(plan)?;
        let gives = if is_folded { Gives::Partial } else { Gives::Result };
        of_file.function.iter_mut().for_each(|function| function.gives = gives);
        Some(Share { plan: of_file, columns: Vec::new(), kind: ShareKind::Rows })
    }

    /// Groups.
    pub(crate) fn groups(&self, plan: &Plan, partials: &Partials) -> Option<Share> {
        let mut of_file = self.plan(plan)?;
        let mut columns = Vec::new();
        for name in &plan.by {
            columns.push(self.value(name).map_or(From::Result(of_file.by.len()), From::Value));
            if let Some(From::Result(_)) = columns.last() {
                of_file.by.push(name.clone());
            }
        }
        let rows = of_file.by.len();
        for aggregate in &partials.asked {
            let input = aggregate.input.as_ref().map(|input| input.given(&|name| self.value(name)));
            let known = match (aggregate.kind, &input) {
                (AggregateKind::Count, Some(Expression::Literal(Literal::Null))) => {
                    Some(From::Value(Literal::Number { digits: 0, scale: 0 }))
                }
                (_, Some(Expression::Literal(Literal::Null))) => Some(From::Value(Literal::Null)),
                (AggregateKind::Count, Some(Expression::Literal(_))) => Some(From::Result(rows)),
                (AggregateKind::Min | AggregateKind::Max, Some(Expression::Literal(value))) => {
                    Some(From::Value(value.clone()))
                }
                _ => None,
            };
            columns.push(known.unwrap_or_else(|| {
                of_file.aggregates.push(Aggregate { input, ..aggregate.clone() });
                From::Result(rows + of_file.aggregates.len() - 1)
            }));
        }
        Some(Share { plan: of_file, columns, kind: ShareKind::Groups(rows) })
    }
}

/// The error of a result that has not the columns that the file had when it was asked for them.
pub(crate) struct OtherColumns;

impl Share {
    /// The rows of a batch of the file's result, as columns of these types; several times where they are many.
    pub(crate) fn columns<'a>(
        &'a self,
        batch: &'a RecordBatch,
        types: &'a [DataType],
    ) -> Result<impl Iterator<Item = Result<(Vec<ArrayRef>, usize), OtherColumns>> + 'a, OtherColumns> {
        let rows = match self.kind {
            ShareKind::Rows => batch.num_rows(),
            ShareKind::Counted => counts(batch, 0)?.first().map_or(0, |rows| usize::try_from(*rows).unwrap_or(0)),
            // Without a column to group by, no row at all is a group, too.
            ShareKind::Groups(at) if counts(batch, at)?.iter().all(|rows| *rows == 0) => 0,
            ShareKind::Groups(_) => batch.num_rows(),
        };
        let step = if self.kind == ShareKind::Counted { MADE_ROWS } else { rows.max(1) };
        Ok((0..rows).step_by(step).map(move |first| {
            let rows = step.min(rows - first);
            let columns = self.columns.iter().zip(types).map(|(from, data_type)| match from {
                From::Value(value) => Ok(constant(data_type, value, rows)),
                From::Result(at) => conforming(batch.columns().get(*at).ok_or(OtherColumns)?, data_type),
            });
            Ok((columns.collect::<Result<_, _>>()?, rows))
        }))
    }
}

fn counts(batch: &RecordBatch, at: usize) -> Result<&[i64], OtherColumns> {
    let column = batch.columns().get(at).and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.map(|column| &column.values()[..]).ok_or(OtherColumns)
}

/// A sum of values that are the same in all rows may have another type than one of a column.
fn conforming(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, OtherColumns> {
    if array.data_type() == data_type {
        return Ok(Arc::clone(array));
    }
    match (Class::of(array.data_type()), Class::of(data_type)) {
        (Class::Exact(_, scale), Class::Exact(_, of_all)) if scale == of_all && *data_type != DataType::Int64 => {
            let digits = exact_digits(array).into_iter().enumerate();
            Ok(exact_array(data_type, digits.map(|(row, digits)| array.is_valid(row).then_some(digits))))
        }
        _ => Err(OtherColumns),
    }
}
