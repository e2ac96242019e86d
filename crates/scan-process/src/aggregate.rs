//! Aggregates, of all rows or of groups.

use crate::bind::Binder;
use crate::columns::Class;
use crate::keys::Key;
use crate::sums::{Grouped, Problem, Sum, type_of_column};
use crate::value::Rows;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use diskside_scan::{Failure, Plan};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Few values are found faster by looking at all.
const FEW: usize = 16;
/// So many pairs of keys' codes have their group in a table.
const TABLE_LEN: usize = 4096;
const UNKNOWN: u32 = u32::MAX;
/// What a group takes, about, besides its texts.
const GROUP_LEN: usize = 64;

/// All aggregates of a scan.
pub(crate) struct Aggregation {
    keys: Vec<Key>,
    groups: usize,
    /// The codes of each group's keys, one group behind another.
    codes: Vec<u32>,
    /// Groups by the hashes of their codes.
    known: HashTable<u32>,
    hasher: DefaultHashBuilder,
    sums: Vec<Sum>,
    /// For each of them one before it that adds up the same values: a sum and a mean.
    same_as: Vec<Option<usize>>,
    /// The most bytes that groups may take, and those that they do.
    len_max: usize,
    len: usize,
}

impl Aggregation {
    pub(crate) fn new(plan: &Plan, binder: &mut Binder<'_>, schema: &Schema, len_max: usize) -> Result<Self, Failure> {
        let mut keys = Vec::new();
        for name in &plan.by {
            let slot = binder.slot(name)?;
            if !matches!(binder.class(slot), Class::Exact(..) | Class::Text | Class::Boolean) {
                return Err(binder.wrong(format!(
                    "rows are not grouped by `{name}`: only by whole numbers, decimals, dates, timestamps, texts and \
                     truth values"
                )));
            }
            keys.push(Key::new(slot, name.clone(), type_of_column(schema, name)));
        }
        let sums = plan.aggregates.iter().map(|aggregate| Sum::new(aggregate, binder, schema));
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let same_as = |index: usize| (0..index).find(|before| sums[*before].adds_as(&sums[index]));
        let same_as = (0..sums.len()).map(same_as).collect();
        Ok(Self::begin(keys, sums, same_as, len_max))
    }

    /// The same aggregates, of no row.
    pub(crate) fn fresh(&self) -> Self {
        let (keys, sums) = (self.keys.iter().map(Key::fresh).collect(), self.sums.iter().map(Sum::fresh).collect());
        Self::begin(keys, sums, self.same_as.clone(), self.len_max)
    }

    fn begin(keys: Vec<Key>, sums: Vec<Sum>, same_as: Vec<Option<usize>>, len_max: usize) -> Self {
        let (codes, known, hasher) = Default::default();
        let mut this = Self { keys, groups: 0, codes, known, hasher, sums, same_as, len_max, len: 0 };
        if this.keys.is_empty() {
            // All rows are one group, also when there are none.
            this.add_group(&[]);
        }
        this
    }

    /// Bytes that groups take, about.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The keys and aggregates that come out, with their types.
    pub(crate) fn schema(&self) -> Schema {
        let keys = self.keys.iter().map(Key::field);
        Schema::new(keys.chain(self.sums.iter().map(Sum::field)).collect::<Vec<_>>())
    }

    /// Says that the values of an aggregate are results of several, and where it stands of how many.
    pub(crate) fn count_by(&mut self, aggregate: usize, slot: usize) {
        self.sums[aggregate].count_by(slot);
        // Those that are the same count by different slots.
        self.same_as.fill(None);
    }

    /// Adds rows; `columns` are those that were selected, by slot.
    pub(crate) fn add(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), Problem> {
        let groups = if self.keys.is_empty() { None } else { Some(self.groups_of(columns, rows)?) };
        let mut counts = vec![0; self.groups];
        match &groups {
            None => counts[0] = rows as u64,
            Some(groups) => count(groups, &mut counts),
        }
        let rows = Rows::new(columns, rows);
        let of = Grouped { groups: groups.as_deref(), counts: &counts };
        self.different_sums().try_for_each(|sum| sum.add(&rows, &of))
    }

    /// Adds what the same aggregates are of other rows, which come behind those of this one.
    pub(crate) fn fold(&mut self, other: Self) -> Result<(), Problem> {
        let keys = self.keys.iter_mut().zip(&other.keys);
        let codes: Vec<_> = keys.map(|(key, other)| key.codes_of_key(other, &mut self.len)).collect();
        let (mut groups, mut here) = (Vec::with_capacity(other.groups), Vec::new());
        for group in 0..other.groups {
            here.clear();
            here.extend(other.codes_of(group).iter().zip(&codes).map(|(code, codes)| codes[*code as usize]));
            groups.push(self.group(&here)?);
        }
        let others = other.sums.into_iter().zip(&other.same_as).filter(|(_, same_as)| same_as.is_none());
        self.different_sums().zip(others).try_for_each(|(sum, (other, _))| sum.fold(other, &groups))
    }

    fn different_sums(&mut self) -> impl Iterator<Item = &mut Sum> {
        self.sums.iter_mut().zip(&self.same_as).filter(|(_, same_as)| same_as.is_none()).map(|(sum, _)| sum)
    }

    /// The group of each row.
    fn groups_of(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>, Problem> {
        let mut codes = Vec::with_capacity(self.keys.len());
        for key in &mut self.keys {
            codes.push(key.codes_of(columns, rows, &mut self.len));
        }
        let widths: Vec<usize> = self.keys.iter().map(Key::len).collect();
        let table_len = widths.iter().try_fold(1_usize, |len, width| len.checked_mul(*width));
        let Some(table_len) = table_len.filter(|len| *len <= TABLE_LEN) else {
            return (0..rows).map(|row| self.group_at(&codes, row)).collect();
        };
        // Column by column: such loops are vectorised.
        let mut groups = codes[0].clone();
        for (codes, width) in codes.iter().zip(&widths).skip(1) {
            groups.iter_mut().zip(codes).for_each(|(at, code)| *at = *at * *width as u32 + code);
        }
        let mut table = vec![UNKNOWN; table_len];
        for (row, group) in groups.iter_mut().enumerate() {
            let of_codes = &mut table[*group as usize];
            if *of_codes == UNKNOWN {
                *of_codes = self.group_at(&codes, row)?;
            }
            *group = *of_codes;
        }
        Ok(groups)
    }

    fn group_at(&mut self, codes: &[Vec<u32>], row: usize) -> Result<u32, Problem> {
        let of_row: Vec<u32> = codes.iter().map(|codes| codes[row]).collect();
        self.group(&of_row)
    }

    /// The group with these keys.
    fn group(&mut self, codes: &[u32]) -> Result<u32, Problem> {
        let found = match self.groups <= FEW {
            true => (0..self.groups).find(|group| self.codes_of(*group) == codes).map(|group| group as u32),
            false => {
                let is_it = |group: &u32| self.codes_of(*group as usize) == codes;
                self.known.find(self.hasher.hash_one(codes), is_it).copied()
            }
        };
        if let Some(found) = found {
            return Ok(found);
        }
        self.len += GROUP_LEN + 8 * codes.len() + 32 * self.sums.len();
        if self.len > self.len_max {
            return Err(Problem::TooManyGroups(self.groups));
        }
        Ok(self.add_group(codes))
    }

    fn codes_of(&self, group: usize) -> &[u32] {
        &self.codes[group * self.keys.len()..][..self.keys.len()]
    }

    fn add_group(&mut self, codes: &[u32]) -> u32 {
        let index = self.groups as u32;
        self.codes.extend_from_slice(codes);
        self.groups += 1;
        let (of_all, hasher, width) = (&self.codes, &self.hasher, codes.len());
        let hash = |group: &u32| hasher.hash_one(&of_all[*group as usize * width..][..width]);
        self.known.insert_unique(hasher.hash_one(codes), index, hash);
        self.sums.iter_mut().for_each(Sum::add_group);
        index
    }

    /// The result: keys, then aggregates, a row for each group in the order in which they were met.
    pub(crate) fn finish(mut self) -> Result<RecordBatch, Problem> {
        for (index, same_as) in self.same_as.iter().enumerate() {
            if let Some(same) = same_as {
                let (before, sum) = self.sums.split_at_mut(index);
                sum[0].copy(&before[*same]);
            }
        }
        let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        for (index, key) in self.keys.iter().enumerate() {
            // Large texts of a file go out as texts.
            let array = key.array((0..self.groups).map(|group| self.codes_of(group)[index]));
            fields.push(key.field().with_data_type(array.data_type().clone()));
            arrays.push(array);
        }
        for sum in self.sums {
            let field = sum.field();
            let array = sum.finish()?;
            fields.push(field.with_data_type(array.data_type().clone()));
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(batch.expect("each column has a value for each group"))
    }
}

/// Counts the rows of each group: every other row apart, so that one need not wait for the count of the one before.
fn count(groups: &[u32], counts: &mut [u64]) {
    let mut odd = vec![0; counts.len()];
    let (pairs, rest) = groups.as_chunks::<2>();
    for [first, second] in pairs {
        counts[*first as usize] += 1;
        odd[*second as usize] += 1;
    }
    rest.iter().for_each(|group| counts[*group as usize] += 1);
    counts.iter_mut().zip(odd).for_each(|(count, odd)| *count += odd);
}
