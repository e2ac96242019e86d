//! Events: where requests tell that they have completed.

use crate::handle::Table;
use crate::raw::{CallerPointer, put};
use crate::status::{
    CS_HANDLE_IN_USE, CS_INVALID_EVENT, CS_NOT_DONE, CS_OUT_OF_RESOURCES, CS_STATUS, CS_SUCCESS, Done, Failure, guard,
    tell,
};
use crate::types::CS_EVT_HANDLE;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events that there can be.
const EVENTS_MAX: usize = 65_536;

/// An event. Several requests may tell it.
#[derive(Debug, Default)]
pub(crate) struct Event(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    outstanding: usize,
    done: VecDeque<Completion>,
}

/// A request that has completed.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) context: CallerPointer,
    /// Where its caller wants its value: written when the event is polled, since the caller is there then.
    pub(crate) value_to: ValuePlace,
    pub(crate) outcome: Done<u64>,
}

/// Where a caller wants a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValuePlace(pub(crate) *mut u64);

// SAFETY: it is written only in calls whose caller keeps it valid.
unsafe impl Send for ValuePlace {}

static EVENTS: Table<Event> = Table::new();

/// The event of a handle.
pub(crate) fn find(handle: CS_EVT_HANDLE) -> Option<Arc<Event>> {
    EVENTS.with(handle, |event| {
        // While the table is held: nobody deletes it meanwhile.
        event.lock().outstanding += 1;
        Arc::clone(event)
    })
}

impl Event {
    /// One of its requests will tell nothing.
    pub(crate) fn give_up(&self) {
        self.lock().outstanding -= 1;
    }

    pub(crate) fn complete(&self, completion: Completion) {
        let mut state = self.lock();
        state.outstanding -= 1;
        state.done.push_back(completion);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csCreateEvent(EventHandle: *mut CS_EVT_HANDLE) -> CS_STATUS {
    guard(|| {
        if EventHandle.is_null() {
            return Err(Failure::null("EventHandle"));
        }
        if EVENTS.len() >= EVENTS_MAX {
            return Err(Failure::new(CS_OUT_OF_RESOURCES, format!("{EVENTS_MAX} events are all that there can be")));
        }
        // SAFETY: the caller keeps the crate's contract.
        unsafe { put(EventHandle, EVENTS.insert(Arc::default())) };
        Ok(CS_SUCCESS)
    })
}

/// Deletes an event that no outstanding request tells.
#[unsafe(no_mangle)]
pub extern "C" fn csDeleteEvent(EventHandle: CS_EVT_HANDLE) -> CS_STATUS {
    guard(|| {
        let idle = |event: &Arc<Event>| match event.lock().outstanding {
            0 => Ok(()),
            count => Err(Failure::new(CS_HANDLE_IN_USE, format!("{count} requests have not completed"))),
        };
        EVENTS.remove_if(EventHandle, idle).ok_or_else(|| no_event(EventHandle))?.map(|_| CS_SUCCESS)
    })
}

/// Takes a request that has completed: returns its status, and stores its context where Context points to, a void *, unless
/// that is NULL. CS_NOT_DONE: none has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csPollEvent(EventHandle: CS_EVT_HANDLE, Context: *mut c_void) -> CS_STATUS {
    let polled = EVENTS.with(EventHandle, |event| event.lock().done.pop_front());
    match polled {
        None => tell(&no_event(EventHandle)),
        Some(None) => CS_NOT_DONE,
        Some(Some(completion)) => guard(|| {
            // SAFETY: the caller keeps the crate's contract, also that of the request.
            unsafe {
                put(Context.cast::<*mut c_void>(), completion.context.0);
                if let Ok(value) = &completion.outcome {
                    put(completion.value_to.0, *value);
                }
            }
            completion.outcome.map(|_| CS_SUCCESS)
        }),
    }
}

fn no_event(handle: CS_EVT_HANDLE) -> Failure {
    let number = handle.addr();
    Failure::new(CS_INVALID_EVENT, format!("{number:#x} is no event, or was deleted"))
}
