//! From the bytes of a group to what the scan puts together of it, on any thread.

use crate::aggregate::Aggregation;
use crate::condition::Condition;
use crate::crew::Group;
use crate::evaluate::selected;
use crate::input::Unread;
use crate::outcome::Outcome;
use crate::result;
use crate::sums::Problem;
use crate::table::Table;
use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch};
use arrow_select::filter::FilterBuilder;
use diskside_scan::{Failure, FailureKind, Plan};

/// Rows that are added to aggregates at a time.
const ADDED_ROWS: usize = 4 << 10;
/// The same of rows without columns.
const COUNTED_ROWS: usize = 64 << 10;

/// What is the same for all groups of a scan.
pub(crate) struct Work {
    /// How messages call the file.
    pub(crate) name: String,
    pub(crate) memory_len: u64,
    pub(crate) plan: Plan,
    pub(crate) file: Box<dyn Table>,
    pub(crate) filter: Option<Condition>,
    /// The columns that are decoded, in the order of the file.
    pub(crate) order: Vec<usize>,
    /// Where each slot is in a batch.
    pub(crate) at: Vec<usize>,
    pub(crate) goal: Goal,
    /// Whether a function is called with rows before anything else is made of them.
    pub(crate) has_function: bool,
}

/// What is made of rows.
pub(crate) enum Goal {
    /// These aggregates: here of no row.
    Groups(Box<Aggregation>),
    /// Rows with the columns of these slots, as they go out.
    Rows(Vec<usize>),
}

/// A part of a group.
pub(crate) struct Made {
    pub(crate) rows_read: u64,
    /// Rows that are wanted, if that is known by now.
    pub(crate) rows_selected: u64,
    pub(crate) what: What,
}

pub(crate) enum What {
    Groups(Box<Aggregation>),
    /// Rows: for a function, with the columns of all slots.
    Rows(Vec<ArrayRef>, usize),
}

impl Made {
    /// Bytes that it takes.
    fn len(&self) -> u64 {
        match &self.what {
            What::Groups(groups) => groups.len() as u64,
            What::Rows(columns, _) => columns.iter().map(|column| column.get_array_memory_size() as u64).sum(),
        }
    }
}

impl Work {
    /// Decodes a group, and hands on what is made of each batch, until nobody takes it.
    pub(crate) fn group(
        &self,
        at: &Group,
        group: usize,
        unread: Unread,
        hand: &mut dyn FnMut(Made, u64) -> bool,
    ) -> Result<(), Failure> {
        let fetched = unread.read()?;
        let decode = || self.file.decode(fetched, group, &self.order);
        let batches = if self.file.is_sequential() { at.in_order(decode) } else { decode() };
        let batches = batches.map_err(|error| self.damaged(group, &error))?;
        if (group as u64) < u64::from(self.plan.part.first) {
            // It had to be begun for the ones behind it.
            return Ok(());
        }
        for batch in batches {
            let made = self.batch(&batch.map_err(|error| self.damaged(group, &error))?)?;
            let len = made.len();
            if !hand(made, len) {
                break;
            }
        }
        Ok(())
    }

    fn batch(&self, batch: &RecordBatch) -> Result<Made, Failure> {
        let rows = batch.num_rows();
        let columns: Vec<ArrayRef> = self.at.iter().map(|index| batch.column(*index).clone()).collect();
        let (rows_read, filter) = (rows as u64, self.filter.as_ref());
        if self.has_function {
            let (columns, rows) = self.filtered(filter, columns, rows)?;
            return Ok(Made { rows_read, rows_selected: 0, what: What::Rows(columns, rows) });
        }
        let (what, selected) = match &self.goal {
            Goal::Groups(of) => {
                let mut aggregation = of.fresh();
                let selected = self.add(filter, &columns, rows, &mut aggregation)?;
                (What::Groups(Box::new(aggregation)), selected)
            }
            Goal::Rows(slots) => {
                let mask = self.mask(filter, &columns, rows)?;
                let out = slots.iter().map(|slot| columns[*slot].clone()).collect();
                let (out, selected) = match mask {
                    Some(mask) => self.outcome().taken(out, rows, &mask)?,
                    None => (out, rows),
                };
                (What::Rows(out.iter().map(result::out).collect(), selected), selected)
            }
        };
        Ok(Made { rows_read, rows_selected: selected as u64, what })
    }

    /// Adds rows to aggregates, so few at a time that what is computed of them stays in the processor's cache.
    pub(crate) fn add(
        &self,
        filter: Option<&Condition>,
        columns: &[ArrayRef],
        rows: usize,
        aggregation: &mut Aggregation,
    ) -> Result<usize, Failure> {
        let mut selected = 0;
        let step = if columns.is_empty() { COUNTED_ROWS } else { ADDED_ROWS };
        for first in (0..rows).step_by(step) {
            let count = step.min(rows - first);
            let part = columns.iter().map(|column| column.slice(first, count)).collect();
            let (part, count) = self.filtered(filter, part, count)?;
            selected += count;
            aggregation.add(&part, count).map_err(|problem| self.outcome().problem(problem))?;
        }
        Ok(selected)
    }

    pub(crate) fn filtered(
        &self,
        filter: Option<&Condition>,
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<(Vec<ArrayRef>, usize), Failure> {
        match self.mask(filter, &columns, rows)? {
            Some(mask) => self.outcome().taken(columns, rows, &mask),
            None => Ok((columns, rows)),
        }
    }

    fn mask(
        &self,
        filter: Option<&Condition>,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<Option<BooleanArray>, Failure> {
        let Some(filter) = filter else { return Ok(None) };
        let selected = selected(filter, columns, rows).map_err(|_| self.outcome().problem(Problem::Overflow))?;
        Ok(Some(BooleanArray::new(selected, None)))
    }

    pub(crate) fn outcome(&self) -> Outcome<'_> {
        Outcome { name: &self.name, plan: &self.plan, memory_len: self.memory_len }
    }

    /// The failure of a group that made a decoder panic.
    pub(crate) fn panicked(name: &str, place: &str, told: &str) -> Failure {
        let message = format!("{name}: {place} cannot be decoded, most likely because the file is damaged ({told})");
        Failure { kind: FailureKind::File, message }
    }

    fn damaged(&self, group: usize, error: &str) -> Failure {
        // The line that a text names says more than the piece that it is in.
        if error.starts_with("line ") {
            return self.outcome().failure(FailureKind::File, error);
        }
        let what = self.file.group_name();
        self.outcome().failure(FailureKind::File, format_args!("{what} {group} cannot be decoded: {error}"))
    }
}

impl Outcome<'_> {
    /// The rows that are selected.
    pub(crate) fn taken(
        &self,
        columns: Vec<ArrayRef>,
        rows: usize,
        mask: &BooleanArray,
    ) -> Result<(Vec<ArrayRef>, usize), Failure> {
        let count = mask.true_count();
        if count == rows {
            return Ok((columns, rows));
        }
        let filter = FilterBuilder::new(mask).optimize().build();
        let columns = columns.iter().map(|column| filter.filter(column.as_ref())).collect::<Result<_, _>>();
        Ok((self.arrow(columns)?, count))
    }
}
