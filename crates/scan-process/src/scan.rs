//! A scan from its plan to its report.

use crate::aggregate::{Aggregation, Problem};
use crate::bind::Binder;
use crate::condition::Condition;
use crate::evaluate::selected;
use crate::formats;
use crate::function::{self, Function, Wrong};
use crate::input::{Fetching, Input};
use crate::outcome::Outcome;
use crate::result::ResultStream;
use crate::structures::{self, Structures};
use crate::table::Table;
use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::Schema;
use arrow_select::filter::FilterBuilder;
use diskside_child::MayMakeCode;
use diskside_engine::columns::Outputs;
use diskside_scan::{Failure, FailureKind, Frame, Gives, Plan, Report, Start};
use std::cell::Cell;
use std::io::Write as _;

/// A row group may have so many bytes of needed columns for each byte of memory: what they decode to needs room as well.
const FETCHED_PART: u64 = 3;
/// So much of the memory is for indexes of pages, which take some times as much once they are decoded.
const INDEXES_PART: u64 = 64;
/// Rows that are counted at a time where nothing of them is needed.
const COUNTED_ROWS: u64 = 1 << 20;
/// Rows that are added to aggregates at a time.
const ADDED_ROWS: usize = 4 << 10;

/// Where a scan is, for messages about what it fell over.
#[derive(Debug, Default)]
pub(crate) struct Place(Cell<Option<(&'static str, usize)>>);

impl Place {
    pub(crate) fn set(&self, what: &'static str, index: usize) {
        self.0.set(Some((what, index)));
    }

    pub(crate) fn told(&self) -> String {
        self.0.get().map_or("the footer".into(), |(what, index)| format!("{what} {index}"))
    }
}

/// What a plan comes to on a file.
struct Bound {
    filter: Option<Condition>,
    /// The function, and the slots of its columns.
    function: Option<(Function, Vec<usize>)>,
    aggregation: Option<Aggregation>,
    /// Slots of the columns that go out.
    out: Vec<usize>,
    /// Columns of the file that are needed, by slots.
    needed: Vec<usize>,
}

/// Carries a plan out.
pub(crate) fn run(start: Start, may_make_code: MayMakeCode, place: &Place) -> Result<Report, Failure> {
    let mut input = Input::new(&start);
    let plan = Plan::from_bytes(&start.plan)
        .map_err(|error| Failure { kind: FailureKind::Plan, message: error.to_string() })?;
    let function = function::prepare(&plan, may_make_code, input.name())?;
    let file = formats::open(&mut input, &plan)?;
    let outcome = Outcome { name: input.name(), plan: &plan, memory_len: start.memory_len };
    let bound = bind(&*file, function, outcome)?;
    let mut scan = Scan { start: &start, plan: &plan, file: &*file, input, place, report: Report::default() };
    scan.run(bound)?;
    Ok(scan.report)
}

fn bind(file: &dyn Table, function: Option<Function>, outcome: Outcome<'_>) -> Result<Bound, Failure> {
    let (schema, plan) = (file.schema(), outcome.plan);
    let mut binder = Binder::new(outcome.name, schema);
    let filter = match plan.conjuncts() {
        [] => None,
        _ => plan.filter.as_ref().map(|filter| binder.condition(filter)).transpose()?,
    };
    let groups_len = outcome.groups_len();
    let aggregation = plan.aggregates().then(|| Aggregation::new(plan, &mut binder, schema, groups_len)).transpose()?;
    let function = function.map(|function| function.bind(&mut binder, schema).map(|slots| (function, slots)));
    let function = function.transpose()?;
    let out = if aggregation.is_some() || outcome.plan.gives_result() {
        Vec::new()
    } else if plan.columns.is_empty() {
        (0..schema.fields().len()).map(|index| binder.slot_of(index)).collect()
    } else {
        plan.columns.iter().map(|name| binder.slot(name)).collect::<Result<_, _>>()?
    };
    Ok(Bound { filter, function, aggregation, out, needed: binder.needed() })
}

/// The result of a function, as it goes out.
struct Output {
    /// `None`: it goes out as it is.
    structures: Option<Structures>,
    result: ResultStream,
}

struct Scan<'a> {
    start: &'a Start,
    plan: &'a Plan,
    file: &'a dyn Table,
    input: Input,
    place: &'a Place,
    report: Report,
}

impl Scan<'_> {
    fn run(&mut self, bound: Bound) -> Result<(), Failure> {
        let Bound { filter, mut function, mut aggregation, out, needed } = bound;
        let schema = self.file.schema();
        let wanted = self.wanted(filter.as_ref(), &needed)?;
        let fields: Vec<_> = out.iter().map(|slot| schema.fields()[needed[*slot]].clone()).collect();
        let fields = Schema::new(fields);
        let mut output = match &mut function {
            Some((function, _)) if self.plan.gives_result() => Some(self.output_of(function)?),
            _ => None,
        };
        let mut result = match (&aggregation, &output) {
            (None, None) => Some(self.arrow(ResultStream::new(&fields, self.plan.compression))?),
            _ => None,
        };
        let mut order = needed.clone();
        order.sort_unstable();
        // Where each slot is in a batch, which has the order of the file.
        let at: Vec<usize> = needed.iter().filter_map(|column| order.binary_search(column).ok()).collect();
        let mut top = match (&aggregation, self.plan.order.is_empty()) {
            (None, false) => Some(self.outcome().top(&fields)?),
            _ => None,
        };
        let mut rows_left = self.plan.limit.unwrap_or(u64::MAX);
        let mut next: Option<Fetching> = None;
        for (index, group) in wanted.iter().copied().enumerate() {
            if rows_left == 0 && aggregation.is_none() {
                break;
            }
            self.place.0.set(Some((self.file.group_name(), group)));
            if let (true, Some(rows)) = (needed.is_empty(), self.file.rows(group)) {
                self.count_alone(group, rows, filter.as_ref(), aggregation.as_mut())?;
                continue;
            }
            let fetching = match next.take() {
                Some(fetching) => fetching,
                None => self.begin(group, &needed)?,
            };
            // While this one is decoded, the next one is on its way.
            if let Some(following) = wanted.get(index + 1)
                && (self.plan.limit.is_none() || top.is_some())
            {
                next = Some(self.begin(*following, &needed)?);
            }
            let fetched = self.input.finish(fetching)?;
            let is_before = (group as u64) < u64::from(self.plan.part.first);
            for batch in self.file.decode(fetched, group, &order).map_err(|error| self.damaged(group, &error))? {
                let batch = batch.map_err(|error| self.damaged(group, &error))?;
                self.turn(group)?;
                if is_before {
                    continue;
                }
                let rows = batch.num_rows();
                self.report.rows_read += rows as u64;
                let columns: Vec<ArrayRef> = at.iter().map(|index| batch.column(*index).clone()).collect();
                let (filter, columns, rows) = match &mut function {
                    None => (filter.as_ref(), columns, rows),
                    Some((function, slots)) => {
                        let (columns, rows) = self.filter(filter.as_ref(), columns, rows)?;
                        if rows == 0 {
                            continue;
                        }
                        if let Some(output) = &mut output {
                            self.report.rows_selected += rows as u64;
                            self.call(function, slots, &columns, rows, output)?;
                            continue;
                        }
                        let selected = function.select(slots, &columns, rows);
                        let (columns, rows) =
                            self.taken(columns, rows, selected.map_err(|wrong| self.wrong(wrong))?)?;
                        (None, columns, rows)
                    }
                };
                if let Some(aggregation) = &mut aggregation {
                    self.add(filter, &columns, rows, aggregation)?;
                    continue;
                }
                let (columns, rows) = self.filter(filter, columns, rows)?;
                self.report.rows_selected += rows as u64;
                if let Some(top) = &mut top {
                    let out = out.iter().map(|slot| columns[*slot].clone()).collect();
                    let added = top.add(out, rows);
                    self.arrow(added)?;
                } else if let Some(result) = &mut result {
                    let rows = usize::try_from(rows_left).map_or(rows, |left| rows.min(left));
                    rows_left -= rows as u64;
                    let out: Vec<ArrayRef> = out.iter().map(|slot| columns[*slot].slice(0, rows)).collect();
                    let added = result.add(&out, rows);
                    self.arrow(added)?;
                    if rows_left == 0 {
                        break;
                    }
                }
            }
        }
        self.place.0.set(None);
        if let (Some(top), Some(result)) = (top, &mut result) {
            let batch = self.arrow(top.finish())?;
            self.arrow(result.add(batch.columns(), batch.num_rows()))?;
        }
        let result = match (result, output, aggregation) {
            (Some(result), ..) => result,
            (None, Some(output), _) => self.finished(function.map(|(function, _)| function), output)?,
            (None, None, Some(aggregation)) => {
                let groups = self.outcome().finished(aggregation)?;
                self.outcome().groups(groups)?
            }
            (None, None, None) => unreachable!("rows, aggregates or what a function gives go out"),
        };
        self.report.read_len = self.input.read_len();
        self.arrow(result.finish())
    }

    /// Where the output of a function goes.
    fn output_of(&self, function: &mut Function) -> Result<Output, Failure> {
        let (name, outcome) = (function.name().to_owned(), self.outcome());
        let structures = match self.plan.function.as_ref().is_some_and(|function| function.gives == Gives::Partial) {
            true => Ok(None),
            false => function.calls().result_schema().map(Structures::of).transpose(),
        };
        let structures =
            structures.map_err(|what| outcome.failure(FailureKind::Plan, format_args!("{name}: {what}")))?;
        let schema = structures.as_ref().map_or_else(|| structures::partial(&[]).0, |of| of.schema().clone());
        let result = self.arrow(ResultStream::new(&schema, self.plan.compression))?;
        Ok(Output { structures, result })
    }

    /// Calls a function that gives a result for rows.
    fn call(
        &self,
        function: &mut Function,
        slots: &[usize],
        columns: &[ArrayRef],
        rows: usize,
        output: &mut Output,
    ) -> Result<(), Failure> {
        if function.outputs() == Outputs::Folded {
            return function.add(slots, columns, rows).map_err(|wrong| self.wrong(wrong));
        }
        let bytes = function.output(slots, columns, rows).map_err(|wrong| self.wrong(wrong))?;
        self.add_structures(function, &bytes, output)
    }

    fn add_structures(&self, function: &Function, bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
        let Some(structures) = &output.structures else {
            let (_, folded) = structures::partial(bytes);
            return self.arrow(output.result.add(&[folded], 1));
        };
        let rows = structures.rows(bytes);
        let (columns, rows) =
            rows.map_err(|what| self.input.failure(FailureKind::Function, format_args!("{} {what}", function.name())))?;
        self.arrow(output.result.add(&columns, rows))
    }

    fn finished(&self, function: Option<Function>, mut output: Output) -> Result<ResultStream, Failure> {
        if let Some(mut function) = function.filter(|function| function.outputs() == Outputs::Folded) {
            let folded = function.calls().folded().to_vec();
            self.add_structures(&function, &folded, &mut output)?;
        }
        Ok(output.result)
    }

    fn wrong(&self, wrong: Wrong) -> Failure {
        self.input.failure(wrong.kind, format_args!("{}: {}", self.place.told(), wrong.what))
    }

    /// Adds rows to aggregates, so few at a time that what is computed of them stays in the processor's cache.
    fn add(
        &mut self,
        filter: Option<&Condition>,
        columns: &[ArrayRef],
        rows: usize,
        aggregation: &mut Aggregation,
    ) -> Result<(), Failure> {
        for first in (0..rows).step_by(ADDED_ROWS) {
            let count = ADDED_ROWS.min(rows - first);
            let part = columns.iter().map(|column| column.slice(first, count)).collect();
            let (part, count) = self.filter(filter, part, count)?;
            self.report.rows_selected += count as u64;
            aggregation.add(&part, count).map_err(|problem| self.problem(problem))?;
        }
        Ok(())
    }

    /// The row groups of the part that may have rows that are wanted; counts all that the report says of row groups.
    fn wanted(&mut self, filter: Option<&Condition>, needed: &[usize]) -> Result<Vec<usize>, Failure> {
        let (file, part) = (self.file, self.plan.part);
        let last = u64::from(part.first) + u64::from(part.count);
        let mut wanted = Vec::new();
        (self.report.row_groups, self.report.file_len) = (file.groups() as u64, self.input.len());
        for (group, is_ruled_out) in self.ruled_out(filter, needed)?.into_iter().enumerate() {
            self.place.0.set(Some((file.group_name(), group)));
            let is_in_part = (u64::from(part.first)..last).contains(&(group as u64));
            if is_ruled_out || file.rows(group) == Some(0) {
                self.report.pruned += u64::from(is_in_part);
                continue;
            }
            let len: u64 = file.ranges(group, needed).iter().map(|range| range.end - range.start).sum();
            self.report.needed_len_of_all += len;
            self.report.needed_len += if is_in_part { len } else { 0 };
            if is_in_part || (file.is_sequential() && (group as u64) < last) {
                wanted.push(group);
            }
        }
        self.place.0.set(None);
        Ok(wanted)
    }

    /// For each group whether it is known to have no row that is wanted. Filters of those of the part are read, all at one time.
    fn ruled_out(&mut self, filter: Option<&Condition>, needed: &[usize]) -> Result<Vec<bool>, Failure> {
        let (file, part) = (self.file, self.plan.part);
        let Some(filter) = filter else { return Ok(vec![false; file.groups()]) };
        let mut ruled_out = Vec::with_capacity(file.groups());
        let mut reading = Vec::new();
        for group in 0..file.groups() {
            self.place.0.set(Some((file.group_name(), group)));
            ruled_out.push(!file.may_fulfil(group, needed, filter));
            if !ruled_out[group]
                && (group as u64).checked_sub(part.first.into()).is_some_and(|at| at < part.count.into())
            {
                for lookup in file.lookups(group, needed, filter) {
                    let fetching = self.input.begin(vec![lookup.range.clone()])?;
                    reading.push((group, lookup, fetching));
                }
            }
        }
        for (group, lookup, fetching) in reading {
            self.place.0.set(Some((file.group_name(), group)));
            let filter = self.input.finish(fetching)?.first();
            ruled_out[group] |= !lookup.may_have(&filter);
        }
        for group in self.left_out(filter, needed, &ruled_out)? {
            ruled_out[group] = true;
        }
        Ok(ruled_out)
    }

    /// Leaves out pages of the groups of the part that are left, by their indexes; returns groups of which nothing is wanted.
    fn left_out(&mut self, filter: &Condition, needed: &[usize], ruled_out: &[bool]) -> Result<Vec<usize>, Failure> {
        let (file, part) = (self.file, self.plan.part);
        let (mut reading, mut len) = (Vec::new(), 0);
        let of_part = (0..file.groups()).skip(part.first as usize).take(part.count as usize);
        for group in of_part.filter(|group| !ruled_out[*group]) {
            self.place.0.set(Some((file.group_name(), group)));
            let ranges = file.indexes(group, needed, filter);
            len += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            if len > self.start.memory_len / INDEXES_PART {
                break;
            }
            if !ranges.is_empty() {
                reading.push((group, self.input.begin(ranges)?));
            }
        }
        let mut indexes = Vec::with_capacity(reading.len());
        for (group, fetching) in reading {
            indexes.push((group, self.input.finish(fetching)?));
        }
        Ok(file.leave_out(indexes, needed, filter))
    }

    fn begin(&mut self, group: usize, needed: &[usize]) -> Result<Fetching, Failure> {
        let ranges = self.file.ranges(group, needed);
        let len: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let len_max = self.start.memory_len / FETCHED_PART;
        if len > len_max {
            let told = format!(
                "{what} {group} has {len} bytes of the needed columns, and a scan here has room for {len_max}; scan it on \
                 the host, or write the file with smaller ones",
                what = self.file.group_name()
            );
            return Err(self.input.failure(FailureKind::Memory, told));
        }
        self.input.begin(ranges)
    }

    /// No column is needed: rows are counted, and nothing of them is looked at.
    fn count_alone(
        &mut self,
        row_group: usize,
        all: u64,
        filter: Option<&Condition>,
        aggregation: Option<&mut Aggregation>,
    ) -> Result<(), Failure> {
        self.report.rows_read += all;
        if self.filter(filter, Vec::new(), 1)?.1 == 0 {
            return Ok(());
        }
        self.report.rows_selected += all;
        let Some(aggregation) = aggregation else { return Ok(()) };
        let mut left = all;
        while left > 0 {
            self.turn(row_group)?;
            let rows = left.min(COUNTED_ROWS);
            left -= rows;
            aggregation.add(&[], rows as usize).map_err(|problem| self.problem(problem))?;
        }
        Ok(())
    }

    fn filter(
        &self,
        filter: Option<&Condition>,
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<(Vec<ArrayRef>, usize), Failure> {
        let Some(filter) = filter else { return Ok((columns, rows)) };
        let selected = selected(filter, &columns, rows).map_err(|_| self.problem(Problem::Overflow))?;
        self.taken(columns, rows, BooleanArray::new(selected, None))
    }

    /// The rows that are selected.
    fn taken(
        &self,
        columns: Vec<ArrayRef>,
        rows: usize,
        mask: BooleanArray,
    ) -> Result<(Vec<ArrayRef>, usize), Failure> {
        let count = mask.true_count();
        if count == rows {
            return Ok((columns, rows));
        }
        let filter = FilterBuilder::new(&mask).optimize().build();
        let columns = columns.iter().map(|column| filter.filter(column.as_ref())).collect::<Result<_, _>>();
        Ok((self.arrow(columns)?, count))
    }

    /// Asks whether to continue.
    fn turn(&self, row_group: usize) -> Result<(), Failure> {
        if !self.start.takes_turns {
            return Ok(());
        }
        let frame = Frame::Turn { row_group: u32::try_from(row_group).unwrap_or(u32::MAX) };
        let mut out = std::io::stdout().lock();
        let asked = frame.write(&mut out).and_then(|()| out.flush());
        asked.map_err(|error| self.input.failure(FailureKind::Reading, error))?;
        self.input.granted()
    }

    fn damaged(&self, group: usize, error: &str) -> Failure {
        // The line that a text names says more than the piece that it is in.
        if error.starts_with("line ") {
            return self.input.failure(FailureKind::File, error);
        }
        let what = self.file.group_name();
        self.input.failure(FailureKind::File, format!("{what} {group} cannot be decoded: {error}"))
    }

    fn arrow<T>(&self, done: Result<T, arrow_schema::ArrowError>) -> Result<T, Failure> {
        self.outcome().arrow(done)
    }

    fn problem(&self, problem: Problem) -> Failure {
        self.outcome().problem(problem)
    }

    fn outcome(&self) -> Outcome<'_> {
        Outcome { name: self.input.name(), plan: self.plan, memory_len: self.start.memory_len }
    }
}
