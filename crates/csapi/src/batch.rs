//! Batches of requests.

use crate::device::no_handle;
use crate::functions::Csf;
use crate::handle::Table;
use crate::queue::{Mode, Task, queue};
use crate::raw::put;
use crate::request::{Abort, Described, Work};
use crate::status::{
    CS_HANDLE_IN_USE, CS_INVALID_OPTION, CS_OUT_OF_RESOURCES, CS_STATUS, CS_SUCCESS, Done, Failure, guard,
};
use crate::types::{
    CS_BATCH_HANDLE, CS_BATCH_HYBRID, CS_BATCH_INDEX, CS_BATCH_MODE, CS_BATCH_PARALLEL, CS_BATCH_SERIAL, CS_EVT_HANDLE,
    CS_REQ_HANDLE, CsBatchRequest, csQueueCallbackFn,
};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Entries of a batch.
pub(crate) const ENTRIES_MAX: u32 = 4096;
/// Entries of a batch that run at once.
const AT_ONCE: usize = 8;

#[derive(Debug)]
struct Batch {
    order: Order,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serial,
    Parallel,
    Hybrid,
}

#[derive(Debug)]
struct State {
    entries_max: usize,
    /// In the order in which they run, or were added.
    entries: Vec<Entry>,
    last: CS_BATCH_INDEX,
    /// Whether it was queued and has not completed.
    is_queued: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    index: CS_BATCH_INDEX,
    described: Described,
    /// The entries of a hybrid batch that must be done before.
    behind: Vec<CS_BATCH_INDEX>,
}

static BATCHES: Table<Batch> = Table::new();

impl Batch {
    fn find(handle: CS_BATCH_HANDLE) -> Done<Arc<Self>> {
        BATCHES.get(handle).ok_or_else(|| no_handle(handle))
    }

    /// To change it, while it is not queued.
    fn change(&self) -> Done<MutexGuard<'_, State>> {
        let state = self.lock();
        match state.is_queued {
            true => Err(Failure::new(CS_HANDLE_IN_USE, "the batch was queued and has not completed")),
            false => Ok(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn place_of(&self, index: CS_BATCH_INDEX) -> Done<usize> {
        let place = self.entries.iter().position(|entry| entry.index == index);
        place.ok_or_else(|| Failure::argument(format!("the batch has no entry {index}")))
    }

    fn add(
        &mut self,
        order: Order,
        described: Described,
        before: CS_BATCH_INDEX,
        after: CS_BATCH_INDEX,
    ) -> Done<CS_BATCH_INDEX> {
        if self.entries.len() >= self.entries_max {
            let why = format!("the batch has room for {} entries", self.entries_max);
            return Err(Failure::new(CS_OUT_OF_RESOURCES, why));
        }
        let places = [before, after].map(|index| if index == 0 { Ok(None) } else { self.place_of(index).map(Some) });
        let [before_place, after_place] = places;
        let (before_place, after_place) = (before_place?, after_place?);
        let mut entry = Entry { index: self.last + 1, described, behind: Vec::new() };
        match order {
            Order::Serial => {
                let place = match (before_place, after_place) {
                    (None, None) => 0,
                    (Some(before), None) => before,
                    (None, Some(after)) => after + 1,
                    (Some(before), Some(after)) if after < before => after + 1,
                    (Some(_), Some(_)) => {
                        return Err(Failure::argument(format!("entry {before} runs before entry {after}")));
                    }
                };
                self.entries.insert(place, entry);
            }
            Order::Parallel if before != 0 || after != 0 => {
                return Err(Failure::argument("entries of a parallel batch are not ordered: Before and After are 0"));
            }
            Order::Parallel => self.entries.push(entry),
            Order::Hybrid => {
                if before != 0 && after != 0 && (before == after || self.is_behind(after, before)) {
                    return Err(Failure::argument(format!("entry {before} runs before entry {after}")));
                }
                entry.behind.extend((after != 0).then_some(after));
                if let Some(place) = before_place {
                    self.entries[place].behind.push(entry.index);
                }
                self.entries.push(entry);
            }
        }
        self.last += 1;
        Ok(self.last)
    }

    /// Whether one entry waits for another, perhaps through others.
    fn is_behind(&self, index: CS_BATCH_INDEX, other: CS_BATCH_INDEX) -> bool {
        let mut seen = vec![index];
        let mut next = 0;
        while let Some(index) = seen.get(next).copied() {
            next += 1;
            let entry = self.entries.iter().find(|entry| entry.index == index);
            for behind in entry.map_or(&[][..], |entry| &entry.behind) {
                if *behind == other {
                    return true;
                }
                if !seen.contains(behind) {
                    seen.push(*behind);
                }
            }
        }
        false
    }
}

/// A batch that was queued.
struct Queued {
    batch: Arc<Batch>,
    /// What runs, with the places of those before it.
    entries: Vec<(Work, Vec<usize>)>,
}

impl Queued {
    fn new(batch: Arc<Batch>) -> Done<Self> {
        let mut state = batch.change()?;
        if state.entries.is_empty() {
            return Err(Failure::argument("the batch has no entries"));
        }
        let places: BTreeMap<CS_BATCH_INDEX, usize> =
            state.entries.iter().enumerate().map(|(place, entry)| (entry.index, place)).collect();
        let mut entries = Vec::with_capacity(state.entries.len());
        for (place, entry) in state.entries.iter().enumerate() {
            let in_entry =
                |failure: Failure| Failure { text: format!("entry {}: {}", entry.index, failure.text), ..failure };
            let behind = match batch.order {
                Order::Serial => place.checked_sub(1).into_iter().collect(),
                Order::Parallel => Vec::new(),
                Order::Hybrid => entry.behind.iter().map(|index| places[index]).collect(),
            };
            entries.push((entry.described.resolve().map_err(in_entry)?, behind));
        }
        state.is_queued = true;
        drop(state);
        Ok(Self { batch, entries })
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // First what it uses.
        self.entries.clear();
        self.batch.lock().is_queued = false;
    }
}

/// What has become of entries so far.
struct Progress {
    /// By place; `None`: it has not begun.
    begun: Vec<bool>,
    done: Vec<Option<u64>>,
    running: usize,
    failed: Option<(usize, Failure)>,
}

impl Progress {
    /// An entry that can begin.
    fn next(&self, entries: &[(Work, Vec<usize>)]) -> Option<usize> {
        let is_ready =
            |place: &usize| !self.begun[*place] && entries[*place].1.iter().all(|before| self.done[*before].is_some());
        (0..entries.len()).find(is_ready).filter(|_| self.failed.is_none())
    }
}

impl Task for Queued {
    fn run(&self, abort: &Abort) -> Done<u64> {
        let count = self.entries.len();
        let progress = Progress { begun: vec![false; count], done: vec![None; count], running: 0, failed: None };
        let (progress, changed) = (Mutex::new(progress), Condvar::new());
        let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || {
            let mut state = lock();
            loop {
                if let Some(place) = state.next(&self.entries) {
                    state.begun[place] = true;
                    state.running += 1;
                    drop(state);
                    let outcome = crate::status::caught(|| self.entries[place].0.run(abort));
                    state = lock();
                    state.running -= 1;
                    match outcome {
                        Ok(value) => state.done[place] = Some(value),
                        // Of several that failed the first in order counts.
                        Err(failure) if state.failed.as_ref().is_none_or(|(first, _)| place < *first) => {
                            state.failed = Some((place, failure));
                        }
                        Err(_) => {}
                    }
                    changed.notify_all();
                } else if state.running == 0 {
                    return;
                } else {
                    state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        let threads = if self.batch.order == Order::Serial { 1 } else { AT_ONCE.min(count) };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Without a thread the others do it.
                drop(std::thread::Builder::new().name("csapi-batch".into()).spawn_scoped(scope, work));
            }
            work();
        });
        let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        match progress.failed {
            Some((place, failure)) => {
                let index = self.batch.lock().entries.get(place).map_or(0, |entry| entry.index);
                Err(Failure { text: format!("entry {index}: {}", failure.text), ..failure })
            }
            None => Ok(progress.done.last().copied().flatten().unwrap_or(0)),
        }
    }

    fn is_of(&self, csx: &str) -> bool {
        self.entries.iter().any(|(work, _)| work.csx() == csx)
    }

    fn runs(&self, csf: &Arc<Csf>) -> bool {
        self.entries.iter().any(|(work, _)| work.runs(csf))
    }
}

/// Makes a batch for up to MaxReqs requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csAllocBatchRequest(
    Mode: CS_BATCH_MODE,
    MaxReqs: c_int,
    BatchHandle: *mut CS_BATCH_HANDLE,
) -> CS_STATUS {
    guard(|| {
        let order = match Mode {
            CS_BATCH_SERIAL => Order::Serial,
            CS_BATCH_PARALLEL => Order::Parallel,
            CS_BATCH_HYBRID => Order::Hybrid,
            other => return Err(Failure::new(CS_INVALID_OPTION, format!("Mode of a batch is {other}"))),
        };
        let entries_max = entries_max(MaxReqs)?;
        if BatchHandle.is_null() {
            return Err(Failure::null("BatchHandle"));
        }
        let state = Mutex::new(State { entries_max, entries: Vec::new(), last: 0, is_queued: false });
        // SAFETY: the caller keeps the crate's contract.
        unsafe { put(BatchHandle, BATCHES.insert(Arc::new(Batch { order, state }))) };
        Ok(CS_SUCCESS)
    })
}

fn entries_max(given: c_int) -> Done<usize> {
    let valid = u32::try_from(given).ok().filter(|count| (1..=ENTRIES_MAX).contains(count));
    let invalid = || Failure::argument(format!("MaxReqs is {given}, and must be from 1 to {ENTRIES_MAX}"));
    valid.map(|count| count as usize).ok_or_else(invalid)
}

/// Frees a batch that is not queued.
#[unsafe(no_mangle)]
pub extern "C" fn csFreeBatchRequest(BatchHandle: CS_BATCH_HANDLE) -> CS_STATUS {
    guard(|| {
        let idle = |batch: &Arc<Batch>| batch.change().map(drop);
        BATCHES.remove_if(BatchHandle, idle).ok_or_else(|| no_handle(BatchHandle))?.map(|_| CS_SUCCESS)
    })
}

/// Adds a request to a batch. In a serial batch it stands right behind entry After, or right before entry Before, or first if both
/// are 0; in a hybrid batch it waits for After, and Before waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csAddBatchEntry(
    BatchHandle: CS_BATCH_HANDLE,
    Req: *const CsBatchRequest,
    Before: CS_BATCH_INDEX,
    After: CS_BATCH_INDEX,
    Curr: *mut CS_BATCH_INDEX,
) -> CS_STATUS {
    guard(|| {
        let batch = Batch::find(BatchHandle)?;
        // SAFETY: the caller keeps the crate's contract.
        let described = unsafe { Described::entry(Req)? };
        let index = batch.change()?.add(batch.order, described, Before, After)?;
        // SAFETY: as above.
        unsafe { put(Curr, index) };
        Ok(CS_SUCCESS)
    })
}

/// Gives an entry of a batch another request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csHelperReconfigureBatchEntry(
    BatchHandle: CS_BATCH_HANDLE,
    Entry: CS_BATCH_INDEX,
    Req: *const CsBatchRequest,
) -> CS_STATUS {
    guard(|| {
        let batch = Batch::find(BatchHandle)?;
        // SAFETY: the caller keeps the crate's contract.
        let described = unsafe { Described::entry(Req)? };
        let mut state = batch.change()?;
        let place = state.place_of(Entry)?;
        state.entries[place].described = described;
        Ok(CS_SUCCESS)
    })
}

/// Changes how many requests a batch has room for.
#[unsafe(no_mangle)]
pub extern "C" fn csHelperResizeBatchRequest(BatchHandle: CS_BATCH_HANDLE, MaxReqs: c_int) -> CS_STATUS {
    guard(|| {
        let batch = Batch::find(BatchHandle)?;
        let entries_max = entries_max(MaxReqs)?;
        let mut state = batch.change()?;
        if entries_max < state.entries.len() {
            return Err(Failure::argument(format!("the batch has {} entries already", state.entries.len())));
        }
        state.entries_max = entries_max;
        Ok(CS_SUCCESS)
    })
}

/// Carries a batch out. After a failure nothing more of it begins, and its status is that of the first entry that failed. The value
/// is that of the last entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueueBatchRequest(
    BatchHandle: CS_BATCH_HANDLE,
    Context: *mut c_void,
    CallbackFn: csQueueCallbackFn,
    EventHandle: CS_EVT_HANDLE,
    ReqHandle: *mut CS_REQ_HANDLE,
    CompValue: *mut u64,
) -> CS_STATUS {
    let mode =
        Mode { context: Context, callback: CallbackFn, event: EventHandle, request: ReqHandle, value: CompValue };
    // SAFETY: the caller keeps the crate's contract.
    guard(|| unsafe { queue(&mode, || Ok(Box::new(Queued::new(Batch::find(BatchHandle)?)?))) })
}
