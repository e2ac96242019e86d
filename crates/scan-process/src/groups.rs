//! Which groups of a file a scan reads: those of its part that neither statistics, nor filters, nor indexes rule out.

use crate::condition::Condition;
use crate::dictionary::Dictionary;
use crate::input::Input;
use crate::scan::Place;
use crate::work::Work;
use diskside_scan::{Failure, FailureKind, Report};

/// So much of the memory is for indexes of pages, which take some times as much once they are decoded.
const INDEXES_PART: u64 = 64;
/// And so much for dictionaries, of which one is decoded at a time.
const DICTIONARIES_PART: u64 = 16;
/// Row groups whose dictionaries show whether those of others are worth it: of a column with few values, all have all.
const SAMPLED: usize = 8;

/// What groups are chosen by.
pub(crate) struct Choice<'a> {
    pub(crate) work: &'a Work,
    /// Columns of the file that are needed, by slots.
    pub(crate) needed: &'a [usize],
    pub(crate) place: &'a Place,
}

impl Choice<'_> {
    /// The groups of the part that may have rows that are wanted; counts all that the report says of groups.
    pub(crate) fn wanted(&self, input: &mut Input, report: &mut Report) -> Result<Vec<usize>, Failure> {
        let (file, part) = (&*self.work.file, self.work.plan.part);
        let last = u64::from(part.first) + u64::from(part.count);
        self.refuse_beyond(last)?;
        let mut wanted = Vec::new();
        (report.row_groups, report.file_len) = (file.groups() as u64, input.len());
        for (group, is_ruled_out) in self.ruled_out(input, report)?.into_iter().enumerate() {
            self.is_at(group);
            let is_in_part = (u64::from(part.first)..last).contains(&(group as u64));
            if is_ruled_out || file.rows(group) == Some(0) {
                report.pruned += u64::from(is_in_part);
                continue;
            }
            let len: u64 = file.ranges(group, self.needed).iter().map(|range| range.end - range.start).sum();
            report.needed_len_of_all += len;
            report.needed_len += if is_in_part { len } else { 0 };
            if is_in_part || (file.is_sequential() && (group as u64) < last) {
                wanted.push(group);
            }
        }
        self.place.leave();
        Ok(wanted)
    }

    /// A part that is said to have an end has all its groups: what was cut in silence was taken for the whole.
    fn refuse_beyond(&self, last: u64) -> Result<(), Failure> {
        let (work, count) = (self.work, self.work.file.groups() as u64);
        // A part of one group is asked of a file without any, too, to learn what its rows are like.
        if work.plan.part.count == u32::MAX || last <= count.max(1) {
            return Ok(());
        }
        let (group, first) = (work.file.group_name(), work.plan.part.first);
        let message =
            format!("{}: {group}s {first}..{last} are not all there: it has {count}, counted from 0", work.name);
        Err(Failure { kind: FailureKind::Plan, message })
    }

    /// For each group whether it is known to have no row that is wanted. Filters of those of the part are read, all at one time.
    fn ruled_out(&self, input: &mut Input, report: &mut Report) -> Result<Vec<bool>, Failure> {
        let (file, part) = (&*self.work.file, self.work.plan.part);
        let Some(filter) = &self.work.filter else { return Ok(vec![false; file.groups()]) };
        let mut ruled_out = Vec::with_capacity(file.groups());
        let mut reading = Vec::new();
        for group in 0..file.groups() {
            self.is_at(group);
            ruled_out.push(!file.may_fulfil(group, self.needed, filter));
            if !ruled_out[group]
                && (group as u64).checked_sub(part.first.into()).is_some_and(|at| at < part.count.into())
            {
                for lookup in file.lookups(group, self.needed, filter) {
                    let fetching = input.begin_metadata(vec![lookup.range.clone()])?;
                    reading.push((group, lookup, fetching));
                }
            }
        }
        for (group, lookup, fetching) in reading {
            self.is_at(group);
            let filter = input.finish(fetching)?.first();
            ruled_out[group] |= !lookup.may_have(&filter);
        }
        report.pruned_by_dictionaries = self.by_dictionaries(input, filter, &mut ruled_out)?;
        for group in self.left_out(input, filter, &ruled_out)? {
            ruled_out[group] = true;
        }
        Ok(ruled_out)
    }

    /// Rules groups of the part out by dictionaries of their columns; returns how many. Where those of some groups rule none of them
    /// out, the others are not read.
    fn by_dictionaries(&self, input: &mut Input, filter: &Condition, ruled_out: &mut [bool]) -> Result<u64, Failure> {
        let (mut found, mut len) = (Vec::new(), 0);
        for group in self.of_part().filter(|group| !ruled_out[*group]) {
            self.is_at(group);
            let dictionaries = self.work.file.dictionaries(group, self.needed, filter);
            len += dictionaries.iter().map(|of| of.range.end - of.range.start).sum::<u64>();
            if len > self.work.memory_len / DICTIONARIES_PART {
                break;
            }
            if !dictionaries.is_empty() {
                found.push((group, dictionaries));
            }
        }
        let apart = found.len().div_ceil(SAMPLED).max(1);
        let (mut some, mut others) = (Vec::new(), Vec::new());
        for (at, one) in found.into_iter().enumerate() {
            if at % apart == 0 { some.push(one) } else { others.push(one) }
        }
        let mut count = 0;
        for part in [some, others] {
            let before = count;
            count += self.look_up(input, filter, part, ruled_out)?;
            if count == before {
                break;
            }
        }
        Ok(count)
    }

    /// Reads dictionaries, all at one time, and rules groups out by them; returns how many.
    fn look_up(
        &self,
        input: &mut Input,
        filter: &Condition,
        dictionaries: Vec<(usize, Vec<Dictionary>)>,
        ruled_out: &mut [bool],
    ) -> Result<u64, Failure> {
        let mut reading = Vec::new();
        for (group, dictionary) in
            dictionaries.into_iter().flat_map(|(group, of)| of.into_iter().map(move |of| (group, of)))
        {
            let fetching = input.begin_metadata(vec![dictionary.range.clone()])?;
            reading.push((group, dictionary, fetching));
        }
        let mut count = 0;
        for (group, dictionary, fetching) in reading {
            self.is_at(group);
            let read = (&dictionary, input.finish(fetching)?);
            if !ruled_out[group] && !self.work.file.dictionary_may_fulfil(group, self.needed, filter, read) {
                ruled_out[group] = true;
                count += 1;
            }
        }
        Ok(count)
    }

    fn of_part(&self) -> impl Iterator<Item = usize> + use<> {
        let part = self.work.plan.part;
        (0..self.work.file.groups()).skip(part.first as usize).take(part.count as usize)
    }

    /// Leaves out pages of the groups of the part that are left, by their indexes; returns groups of which nothing is wanted.
    fn left_out(&self, input: &mut Input, filter: &Condition, ruled_out: &[bool]) -> Result<Vec<usize>, Failure> {
        let file = &*self.work.file;
        let (mut reading, mut len) = (Vec::new(), 0);
        for group in self.of_part().filter(|group| !ruled_out[*group]) {
            self.is_at(group);
            let ranges = file.indexes(group, self.needed, filter);
            len += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            if len > self.work.memory_len / INDEXES_PART {
                break;
            }
            if !ranges.is_empty() {
                reading.push((group, input.begin_metadata(ranges)?));
            }
        }
        let mut indexes = Vec::with_capacity(reading.len());
        for (group, fetching) in reading {
            indexes.push((group, input.finish(fetching)?));
        }
        Ok(file.leave_out(indexes, self.needed, filter))
    }

    fn is_at(&self, group: usize) {
        self.place.set(self.work.file.group_name(), group);
    }
}
