//! Device memory of callers: where it lies, and how processes of one machine keep away from each other's.
//!
//! A server's memory is one for all who may use it. Each allocation is a memory range set of its own there: each
//! process of this machine sees the sets of all others, and they go with the machine's last connection. An allocation
//! makes a set where none is, looks again, and gives way if somebody else made one over it meanwhile.

use crate::device::{Counted, Device, InUse, Opened};
use crate::handle::Table;
use crate::status::{CS_NOT_ENOUGH_MEMORY, CS_UNKNOWN_MEMORY, Done, Failure};
use crate::types::{CS_DEV_HANDLE, CsDevAFDM};
use diskside::host::function::{DeviceMemory, MEMORY_GRANULARITY};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where allocations begin: lines of a processor's cache.
const ALIGNMENT: u64 = 64;
/// How often one gives way.
const TRIES: u32 = 100;

/// Memory that a caller has.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) device: Arc<Device>,
    /// Whose it is: it goes with this handle.
    pub(crate) owner: CsxHandle,
    /// First byte.
    start: u64,
    /// Bytes that were asked for.
    len: u64,
    /// Requests that use it.
    uses: AtomicUsize,
    rsid: u16,
    /// Held while words are written of which only some bytes are meant.
    edges: Mutex<()>,
}

/// A handle as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CsxHandle(pub(crate) usize);

/// All that callers have.
pub(crate) static ALLOCATIONS: Table<Allocation> = Table::new();

impl Counted for Allocation {
    fn uses(&self) -> &AtomicUsize {
        &self.uses
    }
}

impl Allocation {
    pub(crate) fn new(owner: CS_DEV_HANDLE, opened: &Opened, len: u64) -> Done<Self> {
        let device = Arc::clone(&opened.device);
        let memory = device.memory()?;
        let allocating = device.allocating();
        let (start, rsid) = reserve(memory, device.window(), len.next_multiple_of(ALIGNMENT))?;
        device.moved.allocations.fetch_add(1, Ordering::Relaxed);
        let owner = CsxHandle(owner.addr());
        let (uses, edges) = Default::default();
        drop(allocating);
        Ok(Self { device, owner, start, len, uses, rsid, edges })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Gives the memory back. If the server is gone, so is the memory.
    pub(crate) fn free(&self) -> Done<()> {
        self.device.moved.frees.fetch_add(1, Ordering::Relaxed);
        match self.device.memory()?.delete_set(self.rsid) {
            Err(error) if self.device.is_up() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Where in the server's memory a part of it lies; an error unless the part is in it.
    pub(crate) fn place(&self, offset: u64, len: u64) -> Done<Range<u64>> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.start + offset..self.start + end),
            _ => {
                let has = self.len;
                Err(Failure::argument(format!(
                    "{len} bytes from byte {offset} on are not in the memory, which has {has}"
                )))
            }
        }
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Done<()> {
        let place = self.place(offset, buffer.len() as u64)?;
        let memory = self.device.memory()?;
        let whole = words(&place);
        if whole == place {
            memory.read(place.start, buffer)?;
        } else {
            let mut bytes = vec![0; (whole.end - whole.start) as usize];
            memory.read(whole.start, &mut bytes)?;
            buffer.copy_from_slice(&bytes[(place.start - whole.start) as usize..][..buffer.len()]);
        }
        self.device.moved.to_host_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Done<()> {
        let place = self.place(offset, bytes.len() as u64)?;
        let memory = self.device.memory()?;
        let whole = words(&place);
        if whole == place {
            memory.write(place.start, bytes)?;
        } else {
            let _edges = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
            let mut words = vec![0; (whole.end - whole.start) as usize];
            let word = MEMORY_GRANULARITY as usize;
            let last = words.len() - word;
            memory.read(whole.start, &mut words[..word])?;
            memory.read(whole.end - MEMORY_GRANULARITY, &mut words[last..])?;
            words[(place.start - whole.start) as usize..][..bytes.len()].copy_from_slice(bytes);
            memory.write(whole.start, &words)?;
        }
        self.device.moved.from_host_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a word again and again; the last one may be cut.
    pub(crate) fn fill(&self, offset: u64, len: u64, word: u32) -> Done<()> {
        let place = self.place(offset, len)?;
        if word == 0 && words(&place) == place {
            return Ok(self.device.memory()?.clear(place)?);
        }
        let pattern = word.to_le_bytes().repeat(FILL_LEN.min(len as usize).div_ceil(size_of::<u32>()));
        for start in (0..len).step_by(FILL_LEN) {
            let part = FILL_LEN.min((len - start) as usize);
            self.write(offset + start, &pattern[..part])?;
        }
        Ok(())
    }
}

/// Bytes that are filled at once.
const FILL_LEN: usize = 1 << 20;

/// The whole words that a range is in.
fn words(place: &Range<u64>) -> Range<u64> {
    place.start / MEMORY_GRANULARITY * MEMORY_GRANULARITY..place.end.next_multiple_of(MEMORY_GRANULARITY)
}

/// The memory that a request means, and where in it.
pub(crate) fn memory_of(place: &CsDevAFDM) -> Done<(InUse<Allocation>, u64)> {
    let handle = place.MemHandle;
    let found = ALLOCATIONS.with(handle, InUse::new);
    let number = handle.addr();
    let unknown = || Failure::new(CS_UNKNOWN_MEMORY, format!("{number:#x} is no memory, or was freed"));
    Ok((found.ok_or_else(unknown)?, place.ByteOffset))
}

/// Makes a set for so many bytes where there is none.
fn reserve(memory: &DeviceMemory, window: Range<u64>, len: u64) -> Done<(u64, u16)> {
    for attempt in 0..TRIES {
        let taken = memory.sets()?.into_iter().map(|(_, range)| range).collect();
        let Some(start) = gap(&window, taken, len) else {
            let room = window.end.saturating_sub(window.start);
            let why = format!("{len} bytes in one piece are not free; there are {room} in all");
            return Err(Failure::new(CS_NOT_ENOUGH_MEMORY, why));
        };
        let rsid = memory.create_set(start, len as u32)?;
        let others = memory.sets()?.into_iter().filter(|(other, _)| *other != rsid);
        if others.into_iter().all(|(_, range)| range.end <= start || start + len <= range.start) {
            return Ok((start, rsid));
        }
        memory.delete_set(rsid)?;
        std::thread::sleep(Duration::from_micros(fastrand::u64(..1000 << attempt.min(6))));
    }
    Err(Failure::new(CS_NOT_ENOUGH_MEMORY, "other processes of this machine were always faster to allocate"))
}

/// The first place in the window with so many bytes that none of the ranges has.
fn gap(window: &Range<u64>, mut taken: Vec<Range<u64>>, len: u64) -> Option<u64> {
    taken.sort_by_key(|range| range.start);
    let mut start = window.start.next_multiple_of(ALIGNMENT);
    for range in taken {
        if range.end <= start {
            continue;
        }
        if start.checked_add(len)? <= range.start {
            break;
        }
        start = range.end.next_multiple_of(ALIGNMENT);
    }
    (start.checked_add(len)? <= window.end).then_some(start)
}

/// The longest allocation that there is room for.
pub(crate) fn largest_gap(window: &Range<u64>, mut taken: Vec<Range<u64>>) -> u64 {
    taken.push(window.end..window.end);
    taken.sort_by_key(|range| range.start);
    let mut start = window.start.next_multiple_of(ALIGNMENT);
    let mut largest = 0;
    for range in taken {
        let end = range.start.min(window.end) / ALIGNMENT * ALIGNMENT;
        largest = largest.max(end.saturating_sub(start));
        start = start.max(range.end.next_multiple_of(ALIGNMENT));
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_where_none_is_taken() {
        let taken = |ranges: &[(u64, u64)]| ranges.iter().map(|(start, end)| *start..*end).collect();
        let gap = |window: Range<u64>, ranges: &[(u64, u64)], len| gap(&window, taken(ranges), len);
        assert_eq!(gap(0..256, &[], 256), Some(0));
        assert_eq!(gap(0..256, &[], 320), None);
        assert_eq!(gap(8..256, &[], 64), Some(64), "it begins at a line");
        assert_eq!(gap(0..256, &[(64, 128), (0, 64)], 64), Some(128));
        assert_eq!(gap(0..256, &[(0, 60), (130, 140)], 64), Some(64));
        assert_eq!(gap(0..256, &[(0, 256), (0, 8)], 64), None);
        assert_eq!(gap(64..256, &[(0, 32)], 192), Some(64), "what lies before the window is no matter");
        assert_eq!(gap(0..u64::MAX, &[(0, u64::MAX - 70)], 64), None);
        assert_eq!(largest_gap(&(0..256), taken(&[])), 256);
        assert_eq!(largest_gap(&(0..256), taken(&[(64, 70)])), 128);
        assert_eq!(largest_gap(&(0..256), taken(&[(0, 300)])), 0);
    }
}
