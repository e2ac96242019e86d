//! A scan from its plan to its report: what the crew makes of groups is put together in the order of the file.

use crate::aggregate::Aggregation;
use crate::bind::Binder;
use crate::crew::{Crew, Group, Groups};
use crate::formats;
use crate::function::{self, Function};
use crate::groups::Choice;
use crate::input::{Computes, Fetching, Input, Unread};
use crate::merge::{Merge, selects_all};
use crate::outcome::Outcome;
use crate::table::Table;
use crate::work::{Goal, Made, Work};
use diskside_child::MayMakeCode;
use diskside_scan::{Failure, FailureKind, Frame, Plan, Report, Start};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Row groups that are on their way may have so many bytes of needed columns for each byte of memory: what they decode to needs
/// room as well.
const FETCHED_PART: u64 = 3;
/// Threads may have so many bytes of batches for each byte of memory, and each has so many at a time: one that is decoded, what is
/// made of it, and what the leader has.
const BATCHES_PART: u64 = 4;
const BATCHES: u64 = 3;
/// Parts may have so many bytes for each byte of memory while those before them are put together.
const WAITING_PART: u64 = 8;
/// Rows that are counted at a time where nothing of them is needed.
const COUNTED_ROWS: u64 = 1 << 20;
/// Whether to continue is asked again after so long.
const TURN: Duration = Duration::from_millis(1);

/// Where a scan is, for messages about what it fell over.
#[derive(Debug, Default)]
pub(crate) struct Place(Cell<Option<(&'static str, usize)>>);

impl Place {
    pub(crate) fn set(&self, what: &'static str, index: usize) {
        self.0.set(Some((what, index)));
    }

    pub(crate) fn leave(&self) {
        self.0.set(None);
    }

    /// Which group, or file.
    pub(crate) fn index(&self) -> u64 {
        self.0.get().map_or(0, |(_, index)| index as u64)
    }

    pub(crate) fn told(&self) -> String {
        self.0.get().map_or("the footer".into(), |(what, index)| format!("{what} {index}"))
    }
}

/// Carries a plan out.
pub(crate) fn run(start: Start, crew: Crew, may_make_code: MayMakeCode, place: &Place) -> Result<Report, Failure> {
    let mut input = Input::new(&start);
    let plan = Plan::from_bytes(&start.plan)
        .map_err(|error| Failure { kind: FailureKind::Plan, message: error.to_string() })?;
    let function = function::prepare(&plan, may_make_code, input.name())?;
    let file = formats::open(&mut input, &plan)?;
    let Bound { work, function, needed } = bind(file, plan, function, &start)?;
    let (work, mut report) = (Arc::new(work), Report::default());
    let choice = Choice { work: &work, needed: &needed, place };
    let wanted = choice.wanted(&mut input, &mut report)?;
    let threads_max = work.threads_max(&wanted);
    let groups = Groups::new(crew, start.memory_len / WAITING_PART);
    let mut scan = Scan { start: &start, work: &work, needed, input, place, report, groups, threads_max, asked: None };
    let mut merge = Merge::new(&work, place, function)?;
    scan.run(&wanted, &mut merge)?;
    scan.report.read_len = scan.input.read_len();
    merge.finish()?;
    Ok(scan.report)
}

/// What a plan comes to on a file.
struct Bound {
    work: Work,
    /// The function, and the slots of its columns.
    function: Option<(Function, Vec<usize>)>,
    /// Columns of the file that are needed, by slots.
    needed: Vec<usize>,
}

fn bind(mut file: Box<dyn Table>, plan: Plan, function: Option<Function>, start: &Start) -> Result<Bound, Failure> {
    let (schema, name, memory_len) = (&Arc::clone(file.schema()), &start.name, start.memory_len);
    let mut binder = Binder::new(name, schema);
    let filter = match plan.conjuncts() {
        [] => None,
        _ => plan.filter.as_ref().map(|filter| binder.condition(filter)).transpose()?,
    };
    let groups_len = Outcome { name, plan: &plan, memory_len }.groups_len();
    let aggregation =
        plan.aggregates().then(|| Aggregation::new(&plan, &mut binder, schema, groups_len)).transpose()?;
    let function = function.map(|function| function.bind(&mut binder, schema).map(|slots| (function, slots)));
    let function = function.transpose()?;
    let out = if aggregation.is_some() || plan.gives_result() {
        Vec::new()
    } else if plan.columns.is_empty() {
        (0..schema.fields().len()).map(|index| binder.slot_of(index)).collect()
    } else {
        plan.columns.iter().map(|name| binder.slot(name)).collect::<Result<_, _>>()?
    };
    let needed = binder.needed();
    if function.is_none() {
        let only_keys = plan.only_keys();
        let is_key = |column: &usize| only_keys.contains(&schema.field(*column).name().as_str());
        let keys: Vec<usize> = needed.iter().copied().filter(is_key).collect();
        file.keep_dictionaries(&keys);
    }
    let mut order = needed.clone();
    order.sort_unstable();
    let at = needed.iter().filter_map(|column| order.binary_search(column).ok()).collect();
    let goal = match aggregation {
        Some(aggregation) => Goal::Groups(Box::new(aggregation)),
        None => Goal::Rows(out),
    };
    let has_function = function.is_some();
    let work = Work { name: start.name.clone(), memory_len, plan, file, filter, order, at, goal, has_function };
    Ok(Bound { work, function, needed })
}

impl Work {
    /// How many threads there is memory for.
    fn threads_max(&self, wanted: &[usize]) -> usize {
        let of_group = |group: &usize| self.file.batch_len(*group, &self.order);
        let of_thread = wanted.iter().map(of_group).max().unwrap_or(0).saturating_mul(BATCHES).max(1);
        usize::try_from(self.memory_len / BATCHES_PART / of_thread).unwrap_or(usize::MAX).max(1)
    }
}

struct Scan<'a> {
    start: &'a Start,
    work: &'a Arc<Work>,
    needed: Vec<usize>,
    input: Input,
    place: &'a Place,
    report: Report,
    groups: Groups<Made, Failure>,
    /// How many threads there is memory for.
    threads_max: usize,
    /// When it was last asked whether to continue.
    asked: Option<Instant>,
}

/// A group that is read.
struct Begun {
    group: usize,
    len: u64,
    fetching: Fetching,
}

impl Scan<'_> {
    fn run(&mut self, wanted: &[usize], merge: &mut Merge<'_>) -> Result<(), Failure> {
        if self.needed.is_empty() && wanted.iter().all(|group| self.work.file.rows(*group).is_some()) {
            return self.count(wanted, merge);
        }
        if let Some(threads) = self.start.threads {
            self.let_work(threads);
        }
        let mut left = wanted.iter().copied().peekable();
        let (mut begun, mut given): (VecDeque<Begun>, VecDeque<(usize, u64)>) = Default::default();
        while merge.wants_more() {
            // Of groups behind the first ones some are made before their turn has come, and while all are decoded, the next one
            // is on its way.
            let at_once = if merge.may_end_early() { 1 } else { 2 * self.groups.threads() };
            let ahead = if merge.may_end_early() { 1 } else { at_once + 1 };
            while begun.len() + given.len() < ahead
                && let Some(group) = left.peek()
            {
                let of_others: u64 = begun.iter().map(|of| of.len).chain(given.iter().map(|of| of.1)).sum();
                let Some(next) = self.begin(*group, of_others)? else { break };
                begun.push_back(next);
                left.next();
            }
            if given.len() < at_once
                && (given.is_empty() || self.input.has_come())
                && let Some(Begun { group, len, fetching }) = begun.pop_front()
            {
                let computes = if given.is_empty() { Computes::Nothing } else { Computes::Something };
                self.place.set(self.work.file.group_name(), group);
                let input = &mut self.input;
                let unread = self.groups.while_leader_waits(|| input.wait(fetching, computes))?;
                self.turn(group)?;
                self.give(group, unread);
                given.push_back((group, len));
                continue;
            }
            let Some((group, _)) = given.front() else { break };
            self.place.set(self.work.file.group_name(), *group);
            match self.groups.take() {
                Some(made) => {
                    let made = made?;
                    self.turn(*group)?;
                    merge.add(made, &mut self.report)?;
                }
                None => drop(given.pop_front()),
            }
        }
        self.place.leave();
        Ok(())
    }

    /// Begins to read a group; `None`: there is no room for it beside others that have so many bytes.
    fn begin(&mut self, group: usize, of_others: u64) -> Result<Option<Begun>, Failure> {
        let ranges = self.work.file.ranges(group, &self.needed);
        let len: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let len_max = self.start.memory_len / FETCHED_PART;
        if len > len_max {
            self.place.set(self.work.file.group_name(), group);
            let told = format!(
                "{} has {len} bytes of the needed columns, and a scan here has room for {len_max}; scan it on the host, or \
                 write the file with smaller ones",
                self.place.told()
            );
            return Err(self.input.failure(FailureKind::Memory, told));
        }
        if of_others + len > len_max {
            return Ok(None);
        }
        Ok(Some(Begun { group, len, fetching: self.input.begin(ranges)? }))
    }

    fn give(&mut self, group: usize, unread: Unread) {
        let work = Arc::clone(self.work);
        let (name, place) = (self.start.name.clone(), self.place.told());
        let make = move |at: &Group, hand: &mut dyn FnMut(Made, u64) -> bool| work.group(at, group, unread, hand);
        self.groups.give(make, move |told| Work::panicked(&name, &place, &told));
    }

    /// No column is needed: rows are counted, and nothing of them is looked at.
    fn count(&mut self, wanted: &[usize], merge: &mut Merge<'_>) -> Result<(), Failure> {
        let is_selected = selects_all(self.work)?;
        for group in wanted {
            let mut left = self.work.file.rows(*group).unwrap_or_default();
            self.report.rows_read += left;
            self.report.rows_selected += if is_selected { left } else { 0 };
            while is_selected && left > 0 {
                self.turn(*group)?;
                let rows = left.min(COUNTED_ROWS);
                left -= rows;
                merge.add_uncolumned(rows as usize)?;
            }
        }
        Ok(())
    }

    /// Asks whether to continue, unless that was asked just now, and with how many threads.
    fn turn(&mut self, group: usize) -> Result<(), Failure> {
        let has_waited = self.input.has_waited();
        if self.start.threads.is_some() || !has_waited && self.asked.is_some_and(|asked| asked.elapsed() < TURN) {
            return Ok(());
        }
        let frame = Frame::Turn { row_group: u32::try_from(group).unwrap_or(u32::MAX) };
        let mut out = std::io::stdout().lock();
        let asked = frame.write(&mut out).and_then(|()| out.flush());
        asked.map_err(|error| self.input.failure(FailureKind::Reading, error))?;
        let threads = self.input.granted()?;
        self.let_work(threads);
        self.asked = Some(Instant::now());
        Ok(())
    }

    fn let_work(&self, threads: u32) {
        self.groups.let_work(usize::try_from(threads).unwrap_or(usize::MAX).clamp(1, self.threads_max));
    }
}
