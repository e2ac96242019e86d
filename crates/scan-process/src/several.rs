//! A scan of several files: the parent scans each, wherever that is best, and the results are put together in the order of the files.
//!
//! First the files are asked for their columns, until all that the plan names are known; of a plan that names none, all files. Then
//! scans are asked for, some files ahead of the one whose result is read.

use crate::bind::Binder;
use crate::function::{self, Function, Wrong};
use crate::outcome::Outcome;
use crate::partial::Partials;
use crate::requests::{Answer, Requests};
use crate::result::ResultStream;
use crate::scan::Place;
use crate::share::{FileOf, OtherColumns, Share};
use crate::structures::{self, Structures};
use crate::top::Top;
use crate::union::Union;
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema};
use diskside_child::MayMakeCode;
use diskside_engine::columns::Outputs;
use diskside_scan::{Failure, FailureKind, Format, Frame, OneFile, Plan, Report, Several, Stop, To};
use std::collections::VecDeque;

/// Carries a plan out.
pub(crate) fn run(several: Several, may_make_code: MayMakeCode, place: &Place) -> Result<Report, Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure {
        kind: FailureKind::Plan,
        message: format!("{}: {what}", several.name),
    };
    let plan = Plan::from_bytes(&several.plan).map_err(|error| wrong(&error))?;
    let function = function::prepare(&plan, may_make_code, &several.name)?;
    let mut files = Vec::new();
    for _ in 0..several.files {
        match Frame::read(&mut std::io::stdin().lock(), To::Child) {
            Ok(Frame::File(file)) => files.push(file),
            _ => return Err(wrong(&"its files are not told")),
        }
    }
    let outcome = Outcome { name: &several.name, plan: &plan, memory_len: several.memory_len };
    let union = Union::new(&several, &plan);
    let (asked, requests) = Default::default();
    let mut scan = Scan { several: &several, files: &files, outcome, union, place, asked, requests, next: 0 };
    scan.learn_columns()?;
    let goal = match function.filter(|_| plan.gives_result()) {
        Some(function) => scan.goal_of(function)?,
        None => scan.goal()?,
    };
    scan.put_together(goal)?;
    // The parent knows more of all those scans.
    Ok(Report::default())
}

/// A scan that was asked for.
struct Asked {
    file: usize,
    answer: Answer,
    /// `None`: it is asked for its columns.
    share: Option<Share>,
}

struct Scan<'a> {
    several: &'a Several,
    files: &'a [OneFile],
    outcome: Outcome<'a>,
    union: Union,
    place: &'a Place,
    /// Those whose results were not read yet, in the order in which they will be.
    asked: VecDeque<Asked>,
    requests: Requests,
    /// The file that is asked for its columns next.
    next: usize,
}

/// What is put together.
enum Goal {
    Rows {
        names: Vec<String>,
        types: Vec<DataType>,
        top: Option<Top>,
        result: Box<ResultStream>,
    },
    Groups(Partials),
    /// Rows of a function's result, or what they are folded from.
    Function {
        function: Box<Function>,
        structures: Structures,
        result: Box<ResultStream>,
    },
}

impl Scan<'_> {
    fn learn_columns(&mut self) -> Result<(), Failure> {
        // One file says the columns of a table without rows.
        let all = (self.several.scanned as usize).max(1).min(self.files.len());
        loop {
            while self.asked.len() < self.several.at_once as usize
                && self.next < self.files.len()
                && (self.union.is_of_all() && self.next < all || !self.union.has_named())
            {
                self.ask_for_columns()?;
            }
            let Some(asked) = self.asked.pop_front() else { break };
            self.columns_of(asked)?;
        }
        self.union.complete();
        match self.outcome.plan.types.iter().find(|(name, _)| !self.union.has(name)) {
            Some((name, _)) => {
                let told = format!("there is no column `{name}` to have a type");
                Err(self.outcome.failure(FailureKind::Plan, told))
            }
            None => Ok(()),
        }
    }

    fn ask_for_columns(&mut self) -> Result<(), Failure> {
        let Plan { format, types, .. } = self.outcome.plan;
        let is_json = match format {
            Format::Auto => Format::of_text(&self.files[self.next].name) == Some(Format::JsonLines),
            _ => *format == Format::JsonLines,
        };
        // A member that is given a type is a column of each file; of other files only some may have the column.
        let types = if is_json { types.clone() } else { Vec::new() };
        let plan = Plan { format: *format, types, limit: Some(0), ..Plan::default() };
        let answer = self.requests.ask(self.next, &plan)?;
        self.asked.push_back(Asked { file: self.next, answer, share: None });
        self.next = if self.several.are_parts { self.files.len() } else { self.next + 1 };
        Ok(())
    }

    fn columns_of(&mut self, asked: Asked) -> Result<(), Failure> {
        let file = asked.file;
        let schema = self.read(asked, |_, _, _| Ok(()))?;
        let alike = if self.several.are_parts { 0..self.files.len() } else { file..file + 1 };
        alike.into_iter().try_for_each(|file| self.union.add(file, &schema, self.files, self.outcome))
    }

    /// What the plan comes to whose function gives a result.
    fn goal_of(&self, mut function: Function) -> Result<Goal, Failure> {
        let outcome = self.outcome;
        self.check_filter(&mut Binder::new(outcome.name, &self.union.schema()))?;
        let name = function.name().to_owned();
        let structures = function.calls().result_schema().map_or_else(|| Err(String::new()), Structures::of);
        let structures =
            structures.map_err(|what| outcome.failure(FailureKind::Plan, format_args!("{name}: {what}")))?;
        let result = outcome.arrow(ResultStream::new(structures.schema(), outcome.plan.compression))?;
        Ok(Goal::Function { function: Box::new(function), structures, result: Box::new(result) })
    }

    fn check_filter(&self, binder: &mut Binder<'_>) -> Result<(), Failure> {
        if let (Some(filter), false) = (&self.outcome.plan.filter, self.outcome.plan.conjuncts().is_empty()) {
            binder.condition(filter)?;
        }
        Ok(())
    }

    /// What the plan comes to, over the columns of all files.
    fn goal(&self) -> Result<Goal, Failure> {
        let (plan, schema) = (self.outcome.plan, self.union.schema());
        let mut binder = Binder::new(self.outcome.name, &schema);
        self.check_filter(&mut binder)?;
        if plan.aggregates() {
            let partials = Partials::new(&schema, self.outcome)?;
            if self.several.are_parts && partials.depend_on_order() {
                let told = "sums of floating-point numbers depend on where a file is cut";
                return Err(self.outcome.failure(FailureKind::Plan, told));
            }
            return Ok(Goal::Groups(partials));
        }
        let names: Vec<String> = match plan.columns.is_empty() {
            true => schema.fields().iter().map(|field| field.name().clone()).collect(),
            false => plan.columns.clone(),
        };
        let field = |name: &String| {
            binder.slot(name)?;
            let found = schema.field_with_name(name);
            found.cloned().map_err(|error| self.outcome.failure(FailureKind::Plan, error))
        };
        let fields: Vec<Field> = names.iter().map(field).collect::<Result<_, _>>()?;
        let types = fields.iter().map(|field| field.data_type().clone()).collect();
        let fields = Schema::new(fields);
        let top = (!plan.order.is_empty()).then(|| self.outcome.top(&fields)).transpose()?;
        let result = self.outcome.arrow(ResultStream::new(&fields, plan.compression))?;
        Ok(Goal::Rows { names, types, top, result: Box::new(result) })
    }

    fn put_together(&mut self, mut goal: Goal) -> Result<(), Failure> {
        let (plan, outcome, scanned) = (self.outcome.plan, self.outcome, self.several.scanned as usize);
        let is_first_rows = plan.limit.is_some() && matches!(goal, Goal::Rows { top: None, .. });
        // Those behind the one that has the last wanted row would be scanned for nothing.
        let at_once = if is_first_rows { 1 } else { self.several.at_once as usize };
        let mut left = plan.limit.unwrap_or(u64::MAX);
        let mut next = if left == 0 { scanned } else { 0 };
        loop {
            while self.asked.len() < at_once && next < scanned {
                if !self.union.knows(next) {
                    if self.next >= scanned {
                        break;
                    }
                    self.ask_for_columns()?;
                    continue;
                }
                if let Some(mut share) = self.share(next, &goal) {
                    share.plan.limit = share.plan.limit.map(|limit| limit.min(left));
                    let answer = self.requests.ask(next, &share.plan)?;
                    self.asked.push_back(Asked { file: next, answer, share: Some(share) });
                }
                next += 1;
            }
            let Some(asked) = self.asked.pop_front() else { break };
            if asked.share.is_none() {
                self.columns_of(asked)?;
                continue;
            }
            let file = &self.files[asked.file].name;
            self.read(asked, |share, batch, other| {
                let Some(share) = share else { return Ok(()) };
                if let Goal::Function { function, structures, result } = &mut goal {
                    return add_result(function, structures, result, &batch, outcome, file)
                        .map_err(|of| of.unwrap_or_else(other));
                }
                let types = match &goal {
                    Goal::Rows { types, .. } => types.clone(),
                    Goal::Groups(partials) => partials.types.clone(),
                    Goal::Function { .. } => Vec::new(),
                };
                for columns in share.columns(&batch, &types).map_err(|OtherColumns| other())? {
                    let (columns, rows) = columns.map_err(|OtherColumns| other())?;
                    match &mut goal {
                        Goal::Groups(partials) => partials.add(&columns, rows, outcome)?,
                        Goal::Function { .. } => {}
                        Goal::Rows { top: Some(top), .. } => outcome.arrow(top.add(columns, rows))?,
                        Goal::Rows { result, .. } => {
                            let rows = usize::try_from(left).map_or(rows, |left| rows.min(left));
                            left -= rows as u64;
                            let columns: Vec<_> = columns.iter().map(|column| column.slice(0, rows)).collect();
                            outcome.arrow(result.add(&columns, rows))?;
                        }
                    }
                }
                Ok(())
            })?;
            if left == 0 {
                break;
            }
        }
        let result = match goal {
            Goal::Groups(partials) => outcome.groups(partials.finish(outcome)?)?,
            Goal::Function { mut function, structures, mut result } => {
                let folded = function.calls().folded();
                let wrong = |what| outcome.failure(FailureKind::Function(Stop::default()), what);
                let (columns, rows) = structures.rows(folded).map_err(wrong)?;
                outcome.arrow(result.add(&columns, rows))?;
                *result
            }
            Goal::Rows { top, mut result, .. } => {
                if let Some(top) = top {
                    let batch = outcome.arrow(top.finish())?;
                    outcome.arrow(result.add(batch.columns(), batch.num_rows()))?;
                }
                *result
            }
        };
        outcome.arrow(result.finish())
    }

    fn share(&self, index: usize, goal: &Goal) -> Option<Share> {
        let of = FileOf { union: &self.union, index, file: &self.files[index] };
        match goal {
            Goal::Rows { names, .. } => of.rows(self.outcome.plan, names),
            Goal::Groups(partials) => of.groups(self.outcome.plan, partials),
            Goal::Function { function, .. } => of.function(self.outcome.plan, function.outputs() == Outputs::Folded),
        }
    }

    /// Reads a result to its end.
    fn read(
        &mut self,
        asked: Asked,
        mut each: impl FnMut(Option<&Share>, RecordBatch, &dyn Fn() -> Failure) -> Result<(), Failure>,
    ) -> Result<Schema, Failure> {
        let Asked { file, mut answer, share } = asked;
        let name = &self.files[file].name;
        self.place.set("the result of file", file);
        let damaged = |error| Failure { kind: FailureKind::File, message: format!("{name}: its result: {error}") };
        let other = || Failure {
            kind: FailureKind::File,
            message: format!("{name} has other columns than when the scan began: it was replaced meanwhile"),
        };
        let mut batches = match StreamReader::try_new(&mut answer, None) {
            Ok(batches) => batches,
            Err(error) => return Err(answer.failure(damaged(error))),
        };
        let schema = batches.schema();
        loop {
            match batches.next() {
                None => break,
                Some(Ok(batch)) => each(share.as_ref(), batch, &other)?,
                Some(Err(error)) => return Err(answer.failure(damaged(error))),
            }
        }
        answer.finish()?;
        Ok(schema.as_ref().clone())
    }
}

/// Adds the result of a function over a file; `None` as error: it has other columns.
fn add_result(
    function: &mut Function,
    structures: &Structures,
    result: &mut ResultStream,
    batch: &RecordBatch,
    outcome: Outcome<'_>,
    file: &str,
) -> Result<(), Option<Failure>> {
    if function.outputs() == Outputs::Concatenated {
        let types = structures.schema().fields().iter().map(|field| field.data_type());
        if !types.eq(batch.columns().iter().map(|column| column.data_type())) {
            return Err(None);
        }
        return outcome.arrow(result.add(batch.columns(), batch.num_rows())).map_err(Some);
    }
    // A file without a row that is wanted gives nothing to fold.
    for part in structures::partials(batch).ok_or(None)?.iter().flatten().filter(|part| !part.is_empty()) {
        let failed = |error| {
            let Wrong { kind, what } = Wrong::from(error);
            Some(Failure { kind, message: format!("{file}: its result: {what}") })
        };
        function.calls().fold(part).map_err(failed)?;
    }
    Ok(())
}
