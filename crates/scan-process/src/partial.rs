//! Aggregates of all files from those of each.
//!
//! A file gives, for each of its groups, the count of its rows and what makes each aggregate: of a mean its sum and its count. They
//! are added up as rows are, by the same code. Sums of whole numbers are asked for as decimals: only the sum of all has to fit.

use crate::aggregate::Aggregation;
use crate::bind::Binder;
use crate::columns::{Class, Kind};
use crate::outcome::Outcome;
use crate::sums::Problem;
use crate::value::exact_digits;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use diskside_scan::{Aggregate, AggregateKind, Arithmetic, Expression, Failure, FailureKind, Literal, Plan};
use std::sync::Arc;

/// Aggregates of single files.
pub(crate) struct Partials {
    /// The aggregates that are asked of each file besides the columns that rows are grouped by. The first one counts rows.
    pub(crate) asked: Vec<Aggregate>,
    /// The types of those columns and of what is asked.
    pub(crate) types: Vec<DataType>,
    aggregation: Aggregation,
    /// For each slot of the aggregation its place in the types.
    slots: Vec<usize>,
    /// The aggregates that are sums of whole numbers, by their places.
    whole_sums: Vec<usize>,
}

impl Partials {
    /// Those of a plan over the columns of all files.
    pub(crate) fn new(schema: &Schema, outcome: Outcome<'_>) -> Result<Self, Failure> {
        let (plan, mut binder) = (outcome.plan, Binder::new(outcome.name, schema));
        let mut asked = vec![Aggregate { kind: AggregateKind::Count, input: None, name: "rows".into() }];
        // Of each aggregate where its value is, and where the count that goes with it.
        let (mut places, mut whole_sums) = (Vec::new(), Vec::new());
        for (place, aggregate) in plan.aggregates.iter().enumerate() {
            let value = plan.by.len() + asked.len();
            match (aggregate.kind, &aggregate.input) {
                // Rows are counted already.
                (AggregateKind::Count, None) => places.push((plan.by.len(), Some(plan.by.len()))),
                (AggregateKind::Count, _) => {
                    asked.push(aggregate.clone());
                    places.push((value, Some(value)));
                }
                (AggregateKind::Avg, Some(input)) => {
                    let sum = wide(input, &mut binder)?.unwrap_or_else(|| input.clone());
                    let of = |kind, input| Aggregate { kind, input: Some(input), name: aggregate.name.clone() };
                    asked.push(of(AggregateKind::Sum, sum));
                    asked.push(of(AggregateKind::Count, input.clone()));
                    places.push((value, Some(value + 1)));
                }
                (AggregateKind::Sum, Some(input)) => {
                    let sum = wide(input, &mut binder)?;
                    whole_sums.extend(sum.is_some().then_some(place));
                    asked.push(Aggregate { input: sum.or_else(|| Some(input.clone())), ..aggregate.clone() });
                    places.push((value, None));
                }
                _ => {
                    asked.push(aggregate.clone());
                    places.push((value, None));
                }
            }
        }
        let of_file = Plan { aggregates: asked.clone(), by: plan.by.clone(), ..Plan::default() };
        let of_file = Aggregation::new(&of_file, &mut binder, schema, outcome.groups_len())?.schema();
        // Named by their places: names of a plan may be any.
        let named = of_file.fields().iter().enumerate();
        let named =
            Schema::new(named.map(|(at, of)| of.as_ref().clone().with_name(at.to_string())).collect::<Vec<_>>());
        let aggregates = plan.aggregates.iter().zip(&places).map(|(aggregate, (value, _))| Aggregate {
            input: Some(Expression::Column(value.to_string())),
            ..aggregate.clone()
        });
        let by = (0..plan.by.len()).map(|key| key.to_string()).collect();
        let of_all = Plan { aggregates: aggregates.collect(), by, ..Plan::default() };
        let mut binder = Binder::new(outcome.name, &named);
        let mut aggregation = Aggregation::new(&of_all, &mut binder, &named, outcome.groups_len())?;
        for (aggregate, (_, count)) in places.iter().enumerate() {
            if let Some(count) = count {
                aggregation.count_by(aggregate, binder.slot_of(*count));
            }
        }
        let types = of_file.fields().iter().map(|field| field.data_type().clone()).collect();
        Ok(Self { asked, types, aggregation, slots: binder.needed(), whole_sums })
    }

    /// Whether the last digits of an aggregate are those of one order in which rows are added.
    pub(crate) fn depend_on_order(&self) -> bool {
        let values = &self.types[self.types.len() - self.asked.len()..];
        let is_sum = |kind| matches!(kind, AggregateKind::Sum | AggregateKind::Avg);
        self.asked.iter().zip(values).any(|(asked, of)| is_sum(asked.kind) && of.is_floating())
    }

    /// Adds groups of a file: columns of the types.
    pub(crate) fn add(&mut self, columns: &[ArrayRef], rows: usize, outcome: Outcome<'_>) -> Result<(), Failure> {
        let columns: Vec<ArrayRef> = self.slots.iter().map(|at| Arc::clone(&columns[*at])).collect();
        self.aggregation.add(&columns, rows).map_err(|problem| outcome.problem(problem))
    }

    /// The groups of all files.
    pub(crate) fn finish(self, outcome: Outcome<'_>) -> Result<RecordBatch, Failure> {
        let (found, plan) = (outcome.finished(self.aggregation)?, outcome.plan);
        let names = plan.by.iter().chain(plan.aggregates.iter().map(|aggregate| &aggregate.name));
        let (schema, mut columns) = (found.schema(), found.columns().to_vec());
        for place in self.whole_sums {
            let column = &mut columns[plan.by.len() + place];
            *column = whole(column).map_err(|problem| outcome.problem(problem))?;
        }
        let fields = schema.fields().iter().zip(names).zip(&columns);
        let fields = fields.map(|((field, name), column)| {
            field.as_ref().clone().with_name(name).with_data_type(column.data_type().clone())
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let named = RecordBatch::try_new(schema, columns);
        named.map_err(|error| outcome.failure(FailureKind::Bug, error))
    }
}

/// Whole numbers as decimals, whose sums have room for more than 64 bits; `None`: they are other numbers.
fn wide(input: &Expression, binder: &mut Binder<'_>) -> Result<Option<Expression>, Failure> {
    let is_whole = matches!(binder.input(input)?, Ok(number) if matches!(number.class, Class::Exact(Kind::Integer, _)));
    let zero = Expression::Literal(Literal::Number { digits: 0, scale: 1 });
    Ok(is_whole.then(|| Expression::Arithmetic(Arithmetic::Add, Box::new(input.clone()), Box::new(zero))))
}

/// The whole numbers of such decimals.
fn whole(sums: &ArrayRef) -> Result<ArrayRef, Problem> {
    let digits = exact_digits(sums).into_iter().enumerate();
    let whole = digits.map(|(row, digits)| match sums.is_valid(row) {
        true => i64::try_from(digits / 10).map(Some).map_err(|_| Problem::Overflow),
        false => Ok(None),
    });
    Ok(Arc::new(Int64Array::from(whole.collect::<Result<Vec<_>, _>>()?)))
}
