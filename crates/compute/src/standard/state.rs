//! The memory namespace and what goes with it: its bytes, lent range by range, range sets, and functions of programs.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_io::buffer::{RangeGuard, RangeMemory};
use diskside_nvme::Status;

use super::charge::{Charge, DeviceMemory};
use super::functions::Functions;
use super::sets::RangeSets;
use crate::ComputeConfig;
use crate::call::answer::Problem;

/// The memory namespace and what goes with it.
#[derive(Debug)]
pub(crate) struct Standard {
    pub(crate) nsid: u32,
    pub(crate) memory: RangeMemory,
    pub(crate) sets: Mutex<RangeSets>,
    pub(crate) functions: Functions,
    /// How long a command waits in all.
    pub(crate) wait_max: Duration,
    /// How long a program may run.
    pub(crate) execution_max: Duration,
    /// `None`: hosts share it.
    charge: Option<Charge>,
}

impl Standard {
    /// The memory namespace, if there is one.
    pub(crate) fn new(config: &ComputeConfig) -> Option<Self> {
        let len_bytes = config.memory.bytes();
        (len_bytes > 0).then(|| Self {
            nsid: config.memory_nsid,
            memory: RangeMemory::zeroed(len_bytes as usize),
            sets: Mutex::new(RangeSets::new(true)),
            functions: Functions::default(),
            wait_max: Duration::from_millis(config.memory_wait_ms.into()),
            execution_max: Duration::from_millis(config.execution_ms.into()),
            charge: None,
        })
    }

    /// The memory namespace of one host, which is charged for what it touches.
    pub(crate) fn own(config: &ComputeConfig, host: u64, all: &Arc<DeviceMemory>) -> Option<Self> {
        let made = Self::new(config)?;
        let charge = Some(Charge::new(all, host, made.memory.len()));
        Some(Self { charge, sets: Mutex::new(RangeSets::new(false)), ..made })
    }

    /// These ranges are about to be accessed.
    pub(crate) fn touch(&self, ranges: &[Range<usize>]) -> Result<(), Problem> {
        self.charge.as_ref().map_or(Ok(()), |charge| charge.touch(ranges))
    }

    /// The identifier of the memory namespace.
    pub(crate) fn nsid(&self) -> u32 {
        self.nsid
    }

    /// The host's last controller is gone: its range sets go too.
    pub(crate) fn forget_host(&self, host: &str) {
        self.sets().forget_host(host);
    }

    /// Does something with ranges that nobody else has meanwhile.
    pub(crate) fn with<T>(
        &self,
        ranges: &[Range<usize>],
        until: Instant,
        act: impl FnOnce(&mut [&mut [u8]]) -> T,
    ) -> Result<T, Problem> {
        let mut guard = self.lock(ranges, until)?;
        Ok(act(&mut guard.parts()))
    }

    /// Waits for ranges, until then at the longest.
    pub(crate) fn lock(&self, ranges: &[Range<usize>], until: Instant) -> Result<RangeGuard<'_>, Problem> {
        self.touch(ranges)?;
        // The command that held them ends in time, too: this one can be sent again.
        let busy = || Problem::new(Status::COMMAND_INTERRUPTED, "a program, or another command, has this memory");
        self.memory.lock(ranges, Some(until)).ok_or_else(busy)
    }

    /// A range of the memory, if it is one.
    pub(crate) fn range(&self, start: u64, len: u64, granularity: u64) -> Result<Range<usize>, String> {
        if !start.is_multiple_of(granularity) || !len.is_multiple_of(granularity) {
            return Err(format!("{len} bytes at {start} do not start and end at a multiple of {granularity}"));
        }
        let size = self.memory.len() as u64;
        match start.checked_add(len).filter(|end| *end <= size) {
            Some(end) => Ok(start as usize..end as usize),
            None => Err(format!("{len} bytes at {start} do not lie in the namespace, which has {size} bytes")),
        }
    }

    pub(crate) fn sets(&self) -> MutexGuard<'_, RangeSets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ComputeSettings;

    /// A command waited for a thread, and then as long again for memory. With its own time Linux gave it up, and reset
    /// the controller.
    #[test]
    fn a_command_that_has_waited_for_a_thread_waits_no_longer_for_memory() {
        let settings = ComputeSettings { memory_wait_ms: Some(3_600_000), ..ComputeSettings::default() };
        let config = ComputeConfig::resolve(settings);
        let standard = Standard::new(&config).unwrap();
        let now = |range: Range<usize>| standard.lock(std::slice::from_ref(&range), Instant::now());
        let has = now(0..4096).unwrap();
        let told = now(4000..8000).unwrap_err();
        assert_eq!(told.status, Status::COMMAND_INTERRUPTED);
        assert!(now(8192..8196).is_ok(), "what is free it gets");
        drop(has);
        assert!(now(4000..8000).is_ok());
    }
}
