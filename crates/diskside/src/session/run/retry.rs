//! Which requests are sent once more, and how.

use super::many::Counted;
use super::{Ran, RunOptions, Where};
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::place::{Place, is_lost_program, is_stale_handle};
use diskside_engine::CallError;
use diskside_io::readahead::ReadError;
use diskside_io::request::run_here;
use diskside_wire::function::Outcome as DeviceOutcome;
use std::io::Write;

/// Sends a request, and once more if it may succeed then; `file` is what it is over, or one of them.
pub(super) fn with_another_try(
    file: &File,
    function: &SessionFunction,
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
    mut once: impl FnMut(&RunOptions, Option<&mut (dyn Write + Send)>) -> Result<Ran, SessionError>,
) -> Result<Ran, SessionError> {
    options.check_cancelled(file)?;
    let mut out = out.map(Counted::new);
    let ran = once(options, out.as_mut().map(|out| out as _));
    // With output on the way, nothing can be tried again.
    if let Err(error) = &ran
        && out.as_ref().is_none_or(|out| out.len_bytes == 0)
        && let Some(again) = another_try(file, function, options, error)?
    {
        options.check_cancelled(file)?;
        return once(&again, out.as_mut().map(|out| out as _));
    }
    ran
}

/// How a request that failed so may succeed now.
fn another_try(
    file: &File,
    function: &SessionFunction,
    options: &RunOptions,
    error: &SessionError,
) -> Result<Option<RunOptions>, SessionError> {
    // What the device cannot give, such as memory, the host may have.
    if options.place == Where::Auto && function.is_pure() && is_refused(error) {
        return Ok(Some(RunOptions { place: Where::Host, ..options.clone() }));
    }
    Ok(can_repeat(file, function, error)?.then(|| options.clone()))
}

/// Whether a device did not begin, or go on, because of what that would take.
fn is_refused(error: &SessionError) -> bool {
    let trailer = error.function().and_then(|failure| failure.trailer());
    trailer.is_some_and(|trailer| trailer.outcome == DeviceOutcome::Refused)
}

/// Whether a request that failed so may succeed now. Has anew what the target has forgotten.
fn can_repeat(file: &File, function: &SessionFunction, error: &SessionError) -> Result<bool, SessionError> {
    if is_change(error) || has_anew(file, error)? {
        return Ok(true);
    }
    let is_loss = error.function().is_some_and(|failure| failure.is_loss());
    if let (true, Some(link)) = (is_loss, file.inner.place.link_known()) {
        // Should the target be another one by then, it has none of our programs; else they are found again.
        link.forget_programs();
    }
    Ok(function.is_pure() && is_loss)
}

/// Has anew what the target has forgotten, if it was that: then nothing of the request was carried out.
pub(super) fn has_anew(file: &File, error: &SessionError) -> Result<bool, SessionError> {
    let (Some(failure), Some(link)) = (error.function(), file.inner.place.link_known()) else { return Ok(false) };
    if is_lost_program(failure) {
        link.forget_programs();
        return Ok(true);
    }
    if let (true, Place::Export(remote)) = (is_stale_handle(failure), &file.inner.place) {
        run_here(remote.reopen()).map_err(|error| SessionError::device(&file.inner.name, error))?;
        return Ok(true);
    }
    Ok(false)
}

/// Whether the file changed while it was read, as either side says it.
pub(super) fn is_change(error: &SessionError) -> bool {
    match error {
        SessionError::Changed(_) => true,
        SessionError::Call(CallError::Read { error: ReadError::Changed { .. } | ReadError::Shrunk { .. }, .. }) => true,
        SessionError::Device { source, .. } => {
            source.trailer().is_some_and(|trailer| trailer.outcome == DeviceOutcome::Stale)
        }
        _ => false,
    }
}
