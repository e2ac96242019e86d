//! The end of a scan: its groups on their way out, and how its problems are told.

use crate::aggregate::Aggregation;
use crate::result::ResultStream;
use crate::sums::Problem;
use crate::top::Top;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Schema};
use diskside_scan::{Failure, FailureKind, Plan};
use std::fmt::Display;

/// Groups may take this part of the memory.
const GROUPS_PART: u64 = 4;

/// What all scans have, of one file or of several.
#[derive(Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// How messages call the input.
    pub(crate) name: &'a str,
    pub(crate) plan: &'a Plan,
    pub(crate) memory_len: u64,
}

impl Outcome<'_> {
    /// Bytes that groups may take.
    pub(crate) fn groups_len(&self) -> usize {
        usize::try_from(self.memory_len / GROUPS_PART).unwrap_or(usize::MAX)
    }

    pub(crate) fn top(&self, fields: &Schema) -> Result<Top, Failure> {
        Top::new(self.plan, fields).map_err(|what| self.failure(FailureKind::Plan, what))
    }

    /// Writes groups: sorted, and as many as are wanted.
    pub(crate) fn groups(&self, mut groups: RecordBatch) -> Result<ResultStream, Failure> {
        if !self.plan.order.is_empty() {
            let mut top = self.top(&groups.schema())?;
            self.arrow(top.add(groups.columns().to_vec(), groups.num_rows()))?;
            groups = self.arrow(top.finish())?;
        }
        let mut result = self.arrow(ResultStream::new(&groups.schema(), self.plan.compression))?;
        let rows = self.plan.limit.and_then(|limit| usize::try_from(limit).ok());
        let rows = rows.map_or(groups.num_rows(), |limit| limit.min(groups.num_rows()));
        self.arrow(result.add(groups.slice(0, rows).columns(), rows))?;
        Ok(result)
    }

    pub(crate) fn finished(&self, aggregation: Aggregation) -> Result<RecordBatch, Failure> {
        aggregation.finish().map_err(|problem| self.problem(problem))
    }

    pub(crate) fn arrow<T>(&self, done: Result<T, ArrowError>) -> Result<T, Failure> {
        done.map_err(|error| self.failure(FailureKind::File, error))
    }

    pub(crate) fn failure(&self, kind: FailureKind, what: impl Display) -> Failure {
        Failure { kind, message: format!("{}: {what}", self.name) }
    }

    pub(crate) fn problem(&self, problem: Problem) -> Failure {
        match problem {
            Problem::Overflow => {
                let told =
                    "a sum or a product has more digits than a result holds (18 of whole numbers, 38 of decimals)";
                self.failure(FailureKind::Plan, told)
            }
            Problem::TooManyGroups(count) => {
                let told = format!(
                    "the aggregates do not fit: there are more than {count} groups, and they may take {} MiB; scan on the \
                     host, or aggregate there",
                    self.groups_len() >> 20
                );
                self.failure(FailureKind::Memory, told)
            }
        }
    }
}
