//! The result of a scan as far as it is there: parts of groups are added in the order of the file.

use crate::aggregate::Aggregation;
use crate::function::{Function, Wrong};
use crate::result::ResultStream;
use crate::scan::Place;
use crate::structures::{self, Structures};
use crate::top::Top;
use crate::work::{Goal, Made, What, Work};
use arrow_array::ArrayRef;
use arrow_schema::Schema;
use diskside_engine::columns::Outputs;
use diskside_scan::{Failure, FailureKind, Gives, Report, Stop};

/// The result, as far as it is there.
pub(crate) struct Merge<'a> {
    work: &'a Work,
    place: &'a Place,
    /// The function, and the slots of its columns.
    function: Option<(Function, Vec<usize>)>,
    to: To,
    /// Rows that are still wanted.
    rows_left: u64,
}

enum To {
    Groups(Box<Aggregation>),
    Rows(ResultStream),
    Top(Box<Top>, ResultStream),
    /// Output of the function; without structures it goes out as it is.
    Output(ResultStream, Option<Structures>),
}

impl<'a> Merge<'a> {
    pub(crate) fn new(
        work: &'a Work,
        place: &'a Place,
        mut function: Option<(Function, Vec<usize>)>,
    ) -> Result<Self, Failure> {
        let (plan, outcome) = (&work.plan, work.outcome());
        let to = match (&work.goal, &mut function) {
            (Goal::Groups(of), _) => To::Groups(Box::new(of.fresh())),
            (Goal::Rows(_), Some((function, _))) if plan.gives_result() => {
                let (name, gives) = (function.name().to_owned(), plan.function.as_ref().map(|function| function.gives));
                let structures = match gives {
                    Some(Gives::Partial) => Ok(None),
                    _ => function.calls().result_schema().map(Structures::of).transpose(),
                };
                let structures =
                    structures.map_err(|what| outcome.failure(FailureKind::Plan, format_args!("{name}: {what}")))?;
                let schema = structures.as_ref().map_or_else(|| structures::partial(&[]).0, |of| of.schema().clone());
                To::Output(outcome.arrow(ResultStream::new(&schema, plan.compression))?, structures)
            }
            (Goal::Rows(slots), _) => {
                let fields = work.file.schema().fields();
                let fields = slots.iter().map(|slot| fields[work.order[work.at[*slot]]].clone());
                let fields = Schema::new(fields.collect::<Vec<_>>());
                let result = outcome.arrow(ResultStream::new(&fields, plan.compression))?;
                match plan.order.is_empty() {
                    true => To::Rows(result),
                    false => To::Top(Box::new(outcome.top(&fields)?), result),
                }
            }
        };
        Ok(Self { work, place, function, to, rows_left: plan.limit.unwrap_or(u64::MAX) })
    }

    /// Whether it is known before the last group that nothing more is wanted: then groups are read one after another.
    pub(crate) fn may_end_early(&self) -> bool {
        matches!(self.to, To::Rows(_)) && self.work.plan.limit.is_some()
    }

    /// Whether more rows are wanted.
    pub(crate) fn wants_more(&self) -> bool {
        self.rows_left > 0 || matches!(self.to, To::Groups(_))
    }

    /// Adds a part.
    pub(crate) fn add(&mut self, made: Made, report: &mut Report) -> Result<(), Failure> {
        report.rows_read += made.rows_read;
        report.rows_selected += made.rows_selected;
        let (work, outcome) = (self.work, self.work.outcome());
        let (columns, rows) = match (made.what, &mut self.to) {
            (What::Groups(other), To::Groups(groups)) => {
                return groups.fold(*other).map_err(|problem| outcome.problem(problem));
            }
            (What::Rows(_, 0), _) => return Ok(()),
            (What::Rows(columns, rows), To::Output(..)) => {
                report.rows_selected += rows as u64;
                return self.call(&columns, rows);
            }
            (What::Rows(columns, rows), _) => self.selected(columns, rows)?,
            (What::Groups(_), _) => unreachable!("groups are made where groups are wanted"),
        };
        if self.function.is_some() {
            report.rows_selected += rows as u64;
        }
        match &mut self.to {
            To::Groups(groups) => work.add(None, &columns, rows, groups).map(|_| ()),
            To::Top(top, _) => outcome.arrow(top.add(columns, rows)),
            To::Rows(result) => {
                let rows = usize::try_from(self.rows_left).map_or(rows, |left| rows.min(left));
                self.rows_left -= rows as u64;
                let columns: Vec<ArrayRef> = columns.iter().map(|column| column.slice(0, rows)).collect();
                outcome.arrow(result.add(&columns, rows))
            }
            To::Output(..) => unreachable!("it was called"),
        }
    }

    /// Adds rows of which no column is needed.
    pub(crate) fn add_uncolumned(&mut self, rows: usize) -> Result<(), Failure> {
        let To::Groups(groups) = &mut self.to else { return Ok(()) };
        groups.add(&[], rows).map_err(|problem| self.work.outcome().problem(problem))
    }

    /// The rows that the function selects, if there is one, with the columns that are wanted of them.
    fn selected(&mut self, columns: Vec<ArrayRef>, rows: usize) -> Result<(Vec<ArrayRef>, usize), Failure> {
        let Some((function, slots)) = &mut self.function else { return Ok((columns, rows)) };
        let mask = function.select(slots, &columns, rows).map_err(|wrong| failure(self.work, self.place, wrong))?;
        let wanted = match &self.work.goal {
            Goal::Groups(_) => columns,
            Goal::Rows(slots) => slots.iter().map(|slot| columns[*slot].clone()).collect(),
        };
        self.work.outcome().taken(wanted, rows, &mask)
    }

    /// Calls a function that gives a result for rows.
    fn call(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), Failure> {
        let (work, place) = (self.work, self.place);
        let failed = |wrong| failure(work, place, wrong);
        let Some((function, slots)) = &mut self.function else { return Ok(()) };
        if function.outputs() == Outputs::Folded {
            return function.add(slots, columns, rows).map_err(failed);
        }
        let bytes = function.output(slots, columns, rows).map_err(failed)?;
        let name = function.name().to_owned();
        self.add_output(&name, &bytes)
    }

    fn add_output(&mut self, function: &str, bytes: &[u8]) -> Result<(), Failure> {
        let outcome = self.work.outcome();
        let To::Output(result, structures) = &mut self.to else { return Ok(()) };
        let Some(structures) = structures else {
            let (_, folded) = structures::partial(bytes);
            return outcome.arrow(result.add(&[folded], 1));
        };
        let rows = structures.rows(bytes);
        let wrong = |what| outcome.failure(FailureKind::Function(Stop::default()), format_args!("{function} {what}"));
        let (columns, rows) = rows.map_err(wrong)?;
        outcome.arrow(result.add(&columns, rows))
    }

    /// Sends what is left of the result.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if let (To::Output(..), Some((function, _))) = (&self.to, &mut self.function)
            && function.outputs() == Outputs::Folded
        {
            let (name, folded) = (function.name().to_owned(), function.calls().folded().to_vec());
            self.add_output(&name, &folded)?;
        }
        let outcome = self.work.outcome();
        let result = match self.to {
            To::Rows(result) | To::Output(result, _) => result,
            To::Top(top, mut result) => {
                let batch = outcome.arrow(top.finish())?;
                outcome.arrow(result.add(batch.columns(), batch.num_rows()))?;
                result
            }
            To::Groups(groups) => outcome.groups(outcome.finished(*groups)?)?,
        };
        outcome.arrow(result.finish())
    }
}

fn failure(work: &Work, place: &Place, wrong: Wrong) -> Failure {
    let kind = match wrong.kind {
        FailureKind::Function(stop) => FailureKind::Function(Stop { row_group: Some(place.index()), ..stop }),
        other => other,
    };
    work.outcome().failure(kind, format_args!("{}: {}", place.told(), wrong.what))
}

/// Whether the filter of a scan that needs no column selects rows.
pub(crate) fn selects_all(work: &Work) -> Result<bool, Failure> {
    Ok(work.filtered(work.filter.as_ref(), Vec::new(), 1)?.1 > 0)
}
