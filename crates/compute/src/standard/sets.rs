//! Memory range sets: ranges that an execution names by a number.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use diskside_engine::EXECUTION_RANGES_MAX;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::MemoryRange;
use zerocopy::FromBytes;

use super::state::Standard;
use crate::call::answer::{Answer, Problem};
use crate::program::programs::is_for_others;

/// Sets that there can be.
pub(crate) const RANGE_SETS_MAX: u16 = 1024;
/// Ranges start and end at multiples of this: programs access them by words.
const RANGE_GRANULARITY: u64 = 8;
pub(crate) const RANGE_GRANULARITY_EXPONENT: u16 = 3;
/// Ranges of one set, or of one execution.
pub(crate) const RANGES_MAX: u8 = EXECUTION_RANGES_MAX as u8;
const _: () = assert!(EXECUTION_RANGES_MAX <= u8::MAX as usize);

/// The sets, by RSID.
#[derive(Debug, Default)]
pub(crate) struct RangeSets {
    by_id: BTreeMap<u16, RangeSet>,
    last: u16,
    /// Several hosts have sets here.
    is_shared: bool,
}

/// A set. An execution that uses it holds its ranges.
#[derive(Debug)]
struct RangeSet {
    /// NQN of the host that made it. For others there is none.
    owner: String,
    ranges: Arc<[MemoryRange]>,
}

impl RangeSets {
    pub(crate) fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    fn create(&mut self, owner: &str, ranges: Arc<[MemoryRange]>) -> Result<u16, Problem> {
        if self.by_id.len() >= RANGE_SETS_MAX.into() {
            return Err(Status::MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED.dnr().into());
        }
        let own = self.of(owner).count();
        // A host whose memory is its own shares the sets with nobody.
        if self.is_shared && is_for_others(RANGE_SETS_MAX.into(), (self.by_id.len(), own), 1) {
            let told = format!(
                "the last eighth of the {RANGE_SETS_MAX} memory range sets is for hosts that have fewer; delete one"
            );
            return Err(Problem::new(Status::MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED.dnr(), told));
        }
        // 0 means no set.
        let next = (1..=RANGE_SETS_MAX).map(|step| (self.last + step - 1) % RANGE_SETS_MAX + 1);
        let free = next.into_iter().find(|rsid| !self.by_id.contains_key(rsid));
        let rsid = free.ok_or(Status::MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED.dnr())?;
        self.last = rsid;
        self.by_id.insert(rsid, RangeSet { owner: owner.to_owned(), ranges });
        Ok(rsid)
    }

    fn delete(&mut self, host: &str, rsid: u16) -> Result<(), Problem> {
        if Arc::strong_count(&self.find(host, rsid)?.ranges) > 1 {
            return Err(Status::MEMORY_RANGE_SET_IN_USE.into());
        }
        self.by_id.remove(&rsid);
        Ok(())
    }

    /// The ranges of a set, which is in use as long as they are held.
    pub(crate) fn get(&self, host: &str, rsid: u16) -> Result<Arc<[MemoryRange]>, Status> {
        self.find(host, rsid).map(|set| Arc::clone(&set.ranges))
    }

    fn find(&self, host: &str, rsid: u16) -> Result<&RangeSet, Status> {
        let set = self.by_id.get(&rsid).filter(|set| set.owner == host);
        set.ok_or(Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER.dnr())
    }

    pub(crate) fn forget_host(&mut self, host: &str) {
        self.by_id.retain(|_, set| set.owner != host);
    }

    /// The sets of a host.
    pub(crate) fn of(&self, host: &str) -> impl Iterator<Item = (u16, &[MemoryRange])> {
        self.by_id.iter().filter(move |(_, set)| set.owner == host).map(|(rsid, set)| (*rsid, &set.ranges[..]))
    }
}

impl Standard {
    /// Memory Range Set Management.
    pub(crate) fn manage_sets(&self, host: &str, sqe: &Sqe, data: &[u8]) -> Result<Answer, Problem> {
        match sqe.range_set_select() {
            0 => {
                let ranges = parse_ranges(data, sqe.range_set_len().into())?;
                if ranges.is_empty() {
                    return Err(Status::MAXIMUM_MEMORY_RANGES_EXCEEDED.dnr().into());
                }
                if data.len() != size_of_val(&*ranges) {
                    return Err(Status::DATA_SGL_LENGTH_INVALID.dnr().into());
                }
                self.check_ranges(&ranges)?;
                let rsid = self.sets().create(host, ranges)?;
                Ok(Answer::success().with_result(rsid.into()))
            }
            1 => self.sets().delete(host, sqe.range_set_id()).map(|()| Answer::success()),
            _ => Err(Problem::in_command(40, "SEL is 0 (create) or 1 (delete)")),
        }
    }

    /// Where the ranges lie in the memory, if they can be a set.
    pub(crate) fn check_ranges(&self, ranges: &[MemoryRange]) -> Result<Vec<Range<usize>>, Problem> {
        let mut places: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
        for (index, range) in ranges.iter().enumerate() {
            let nsid = range.nsid.get();
            if nsid != self.nsid {
                let message = format!("range {}: namespace {nsid} is no memory namespace", index + 1);
                return Err(Problem::new(Status::INVALID_MEMORY_NAMESPACE.dnr(), message));
            }
            let wrong = |why: String| {
                Problem::new(Status::INVALID_MEMORY_RANGE_SET.dnr(), format!("range {}: {why}", index + 1))
            };
            let place = self.range(range.start.get(), range.len.get().into(), RANGE_GRANULARITY).map_err(wrong)?;
            if place.is_empty() {
                return Err(wrong("it has no bytes".into()));
            }
            let overlaps = |other: &Range<usize>| place.start < other.end && other.start < place.end;
            if let Some(other) = places.iter().position(overlaps) {
                let message = format!("ranges {} and {} overlap", other + 1, index + 1);
                return Err(Problem::new(Status::OVERLAPPING_MEMORY_RANGES.dnr(), message));
            }
            places.push(place);
        }
        Ok(places)
    }
}

/// The first `count` ranges of a command's data.
pub(crate) fn parse_ranges(data: &[u8], count: u32) -> Result<Arc<[MemoryRange]>, Problem> {
    if count > RANGES_MAX.into() {
        return Err(Status::MAXIMUM_MEMORY_RANGES_EXCEEDED.dnr().into());
    }
    match <[MemoryRange]>::ref_from_prefix_with_elems(data, count as usize) {
        Ok((ranges, _)) => Ok(ranges.into()),
        Err(_) => Err(Status::DATA_SGL_LENGTH_INVALID.dnr().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One host made all sets of the memory that hosts share, and no other host could make any.
    #[test]
    fn a_host_leaves_the_last_eighth_of_shared_sets_to_others() {
        let ranges: Arc<[MemoryRange]> = Arc::new([]);
        let mut sets = RangeSets::new(true);
        let mut make = |host: &str| sets.create(host, Arc::clone(&ranges)).map_err(|problem| problem.record);
        let greedy = (0..1024).take_while(|_| make("greedy").is_ok()).count();
        assert_eq!(greedy, 896);
        let told = make("greedy").unwrap_err().expect("it says why").message;
        assert_eq!(told, "the last eighth of the 1024 memory range sets is for hosts that have fewer; delete one");
        assert!((0..128).all(|_| make("other").is_ok()));
        assert!(make("third").is_err_and(|record| record.is_none()), "all are taken");
        let mut own = RangeSets::new(false);
        assert!((0..1024).all(|_| own.create("alone", Arc::clone(&ranges)).is_ok()), "nobody else needs any");
    }
}
