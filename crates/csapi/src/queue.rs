//! Queueing requests: done at once, or told by a callback or an event.

use crate::device::no_handle;
use crate::event::{self, Completion, Event, ValuePlace};
use crate::functions::Csf;
use crate::handle::Table;
use crate::raw::{CallerPointer, put};
use crate::request::{Abort, Described, Work};
use crate::status::{
    CS_INVALID_HANDLE, CS_INVALID_OPTION, CS_QUEUED, CS_STATUS, CS_SUCCESS, Done, Failure, caught, guard,
};
use crate::types::{
    CS_32BIT_VALUE_TYPE, CS_64BIT_VALUE_TYPE, CS_AFDM_TYPE, CS_COMPUTE_ARG_TYPE, CS_EVT_HANDLE, CS_REQ_HANDLE,
    CsComputeArg, CsComputeArgValue, CsComputeRequest, CsCopyMemRequest, CsDevAFDM, CsStorageRequest,
    csQueueCallbackFn,
};
use crate::worker;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// What one request, or a batch of them, does.
pub(crate) trait Task: Send + Sync {
    fn run(&self, abort: &Abort) -> Done<u64>;

    /// Whether it is for this CSx.
    fn is_of(&self, csx: &str) -> bool;

    /// Whether it runs this function.
    fn runs(&self, csf: &Arc<Csf>) -> bool;
}

impl Task for Work {
    fn run(&self, abort: &Abort) -> Done<u64> {
        Self::run(self, abort)
    }

    fn is_of(&self, csx: &str) -> bool {
        self.csx() == csx
    }

    fn runs(&self, csf: &Arc<Csf>) -> bool {
        self.csf().is_some_and(|mine| Arc::ptr_eq(mine, csf))
    }
}

/// A request that has not completed.
struct Request {
    abort: Abort,
    /// Taken when it is done, so that its resources are free before its caller hears of it.
    task: Mutex<Option<Arc<dyn Task>>>,
    teller: Teller,
    context: CallerPointer,
    value_to: ValuePlace,
}

// SAFETY: its pointers are the caller's, who keeps them valid until it has completed; they are used by one thread.
unsafe impl Sync for Request {}

enum Teller {
    /// Its caller waits.
    Caller,
    Callback(unsafe extern "C" fn(*mut c_void, CS_STATUS, u64)),
    Event(Arc<Event>),
}

static REQUESTS: Table<Request> = Table::new();

/// How a caller wants to be told.
pub(crate) struct Mode {
    pub(crate) context: *mut c_void,
    pub(crate) callback: csQueueCallbackFn,
    pub(crate) event: CS_EVT_HANDLE,
    pub(crate) request: *mut CS_REQ_HANDLE,
    pub(crate) value: *mut u64,
}

/// Carries a task out, now or later.
///
/// # Safety
/// The crate's contract.
pub(crate) unsafe fn queue(mode: &Mode, make: impl FnOnce() -> Done<Box<dyn Task>>) -> Done<CS_STATUS> {
    let teller = match (mode.callback, mode.event.is_null()) {
        (Some(_), false) => {
            return Err(Failure::new(CS_INVALID_OPTION, "a request has a callback or an event, not both"));
        }
        (Some(callback), true) => Teller::Callback(callback),
        (None, true) => Teller::Caller,
        (None, false) => {
            let number = mode.event.addr();
            let no_event = || Failure::new(CS_INVALID_HANDLE, format!("{number:#x} is no event, or was deleted"));
            Teller::Event(event::find(mode.event).ok_or_else(no_event)?)
        }
    };
    let task = match make() {
        Ok(task) => task,
        Err(failure) => {
            teller.give_up();
            return Err(failure);
        }
    };
    let waits = matches!(teller, Teller::Caller);
    let request = Arc::new(Request {
        abort: Abort::default(),
        task: Mutex::new(Some(task.into())),
        teller,
        context: CallerPointer(mode.context),
        value_to: ValuePlace(mode.value),
    });
    let handle = REQUESTS.insert(Arc::clone(&request));
    let number = handle.addr();
    if waits {
        let value = request.carry_out(number)?;
        // SAFETY: the caller's promise.
        unsafe {
            put(mode.request, std::ptr::null_mut());
            put(mode.value, value);
        }
        return Ok(CS_SUCCESS);
    }
    // SAFETY: the caller's promise. Before a thread has it: it may complete at once.
    unsafe { put(mode.request, handle) };
    let run = Arc::clone(&request);
    if let Err(failure) = worker::run(Box::new(move || run.complete(number))) {
        REQUESTS.remove(handle);
        request.teller.give_up();
        return Err(failure);
    }
    Ok(CS_QUEUED)
}

impl Teller {
    /// There is nothing to tell.
    fn give_up(&self) {
        if let Self::Event(event) = self {
            event.give_up();
        }
    }
}

impl Request {
    /// Does it. Its resources are free, and its handle is invalid, when this returns.
    fn carry_out(&self, number: usize) -> Done<u64> {
        let lock = || self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let task = lock().clone();
        let outcome = caught(|| task.as_ref().expect("it is done once").run(&self.abort));
        lock().take();
        drop(task);
        REQUESTS.remove(std::ptr::without_provenance(number));
        outcome
    }

    fn complete(&self, number: usize) {
        let outcome = self.carry_out(number);
        match &self.teller {
            Teller::Caller => unreachable!("a caller that waits carries it out"),
            Teller::Callback(callback) => {
                let status = outcome.as_ref().map_or_else(|failure| failure.status, |_| CS_SUCCESS);
                // SAFETY: the caller gave it to be called so.
                unsafe { callback(self.context.0, status, outcome.unwrap_or(0)) };
            }
            Teller::Event(event) => {
                event.complete(Completion { context: self.context, value_to: self.value_to, outcome });
            }
        }
    }
}

/// Gives up requests that have not completed.
pub(crate) fn abort_where(which: impl Fn(&dyn Task) -> bool) {
    for (_, request) in REQUESTS.list() {
        let is_meant = match &*request.task.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(task) => which(&**task),
            None => false,
        };
        if is_meant {
            request.abort.ask();
        }
    }
}

/// Loads from storage to device memory, or stores from there. The value is the number of bytes; fewer than were asked for if
/// a file that is loaded ends before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueueStorageRequest(
    Req: *const CsStorageRequest,
    Context: *mut c_void,
    CallbackFn: csQueueCallbackFn,
    EventHandle: CS_EVT_HANDLE,
    ReqHandle: *mut CS_REQ_HANDLE,
    CompValue: *mut u64,
) -> CS_STATUS {
    let mode =
        Mode { context: Context, callback: CallbackFn, event: EventHandle, request: ReqHandle, value: CompValue };
    // SAFETY: the caller keeps the crate's contract.
    guard(|| unsafe { queue(&mode, || Ok(Box::new(Described::storage(Req)?.resolve()?))) })
}

/// Copies between this process and device memory. The value is the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueueCopyMemRequest(
    CopyReq: *const CsCopyMemRequest,
    Context: *mut c_void,
    CallbackFn: csQueueCallbackFn,
    EventHandle: CS_EVT_HANDLE,
    ReqHandle: *mut CS_REQ_HANDLE,
    CompValue: *mut u64,
) -> CS_STATUS {
    let mode =
        Mode { context: Context, callback: CallbackFn, event: EventHandle, request: ReqHandle, value: CompValue };
    // SAFETY: the caller keeps the crate's contract.
    guard(|| unsafe { queue(&mode, || Ok(Box::new(Described::copy(CopyReq)?.resolve()?))) })
}

/// Runs a function over device memory. The value is what a function of kind exec returned, else the length of the output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csQueueComputeRequest(
    Req: *const CsComputeRequest,
    Context: *mut c_void,
    CallbackFn: csQueueCallbackFn,
    EventHandle: CS_EVT_HANDLE,
    ReqHandle: *mut CS_REQ_HANDLE,
    CompValue: *mut u64,
) -> CS_STATUS {
    let mode =
        Mode { context: Context, callback: CallbackFn, event: EventHandle, request: ReqHandle, value: CompValue };
    // SAFETY: the caller keeps the crate's contract.
    guard(|| unsafe { queue(&mode, || Ok(Box::new(Described::compute(Req)?.resolve()?))) })
}

/// Gives a request up that was queued: it completes with CS_ERROR_IN_EXECUTION, or, if it was too late, as it would have.
#[unsafe(no_mangle)]
pub extern "C" fn csAbortRequest(ReqHandle: CS_REQ_HANDLE) -> CS_STATUS {
    guard(|| {
        let request = REQUESTS.get(ReqHandle).ok_or_else(|| no_handle(ReqHandle))?;
        request.abort.ask();
        Ok(CS_SUCCESS)
    })
}

/// The function behind csHelperSetComputeArg, with its values as numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csHelperSetComputeArgValues(
    ArgPtr: *mut CsComputeArg,
    Type: CS_COMPUTE_ARG_TYPE,
    First: u64,
    Second: u64,
) {
    let u = match Type {
        CS_AFDM_TYPE => {
            let memory = std::ptr::without_provenance_mut(First as usize);
            CsComputeArgValue { DevMem: CsDevAFDM { MemHandle: memory, ByteOffset: Second } }
        }
        CS_32BIT_VALUE_TYPE => CsComputeArgValue { Value32: First as u32 },
        CS_64BIT_VALUE_TYPE => CsComputeArgValue { Value64: First },
        // The request is refused.
        _ => CsComputeArgValue { StreamHandle: std::ptr::null_mut() },
    };
    // SAFETY: the caller keeps the crate's contract.
    unsafe { put(ArgPtr, CsComputeArg { Type, u }) };
}
