//! Sessions.

use crate::error::{Failure, guard, guard_int};
use crate::memory::{self, object, text_of};
use rust::dispatch::{Plan, Reason};
use rust::session::{Session, SessionOptions};
use std::ffi::c_char;

/// Connections to targets, what was read of their files, and what was measured of functions.
pub struct ds_session(pub(crate) Session);

/// A session that keeps up to cache_len bytes of what it reads of files at targets.
#[unsafe(no_mangle)]
pub extern "C" fn ds_session_new(cache_len: u64) -> *mut ds_session {
    guard(|| Ok(ds_session(Session::new(SessionOptions { cache_len_bytes: cache_len, ..SessionOptions::default() }))))
}

/// How many requests were placed so, or for such a reason: by one of the words that ds_part has in `reason`, by a
/// plan ("host", "device", "split", "both"), or all of them ("all"). Only requests with a choice are counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_count(session: *const ds_session, what: *const c_char) -> i64 {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, what) = unsafe { (object(session)?, text_of(what)?) };
        let counts = session.0.decisions();
        let plans = [Plan::Host, Plan::Device, Plan::Split, Plan::Both];
        let reason = Reason::ALL.into_iter().find(|reason| reason.name() == what);
        let count = match (reason, plans.into_iter().find(|plan| plan.name() == what)) {
            (Some(reason), _) => counts.of(reason),
            (None, Some(plan)) => counts.planned(plan),
            (None, None) if what == "all" => counts.total(),
            (None, None) => return Err(Failure::invalid(format!("`{what}` is neither a reason nor a plan"))),
        };
        Ok(count as isize)
    }) as i64
}

/// Frees a session; what came from it keeps alive what it needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_free(session: *mut ds_session) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(session) };
}
