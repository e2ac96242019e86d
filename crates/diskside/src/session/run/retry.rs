//! Which requests are sent once more, and how.

use super::resumed::Resumed;
use super::{Ran, RunOptions, Where};
use crate::session::alarm::Alarm;
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;
use crate::session::place::{Place, is_lost_program, is_stale_handle};
use diskside_engine::CallError;
use diskside_host::function::FunctionError;
use diskside_io::readahead::ReadError;
use diskside_nvme::Status;
use diskside_wire::function::Outcome as DeviceOutcome;
use std::io::Write;
use std::time::{Duration, Instant};

/// How long to wait before a file that changed is read again. One that is cut changes twice, first its length and then its times,
/// and in between lie the blocks that are given back.
const PAUSES: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// One of the tries of a request over one file.
#[derive(Default)]
pub(super) struct Try {
    /// The version that output was written of.
    wanted: Option<u64>,
    used: Option<u64>,
}

impl Try {
    /// Has the try be over this version of the file.
    ///
    /// # Errors
    /// What was written already is of another.
    pub(super) fn is_over(&mut self, file: &File, version: Option<u64>) -> Result<(), SessionError> {
        self.used = version;
        if self.wanted.is_some() && self.wanted != version {
            return Err(SessionError::Changed(file.inner.name.clone()));
        }
        Ok(())
    }
}

/// A request, sent again if it may succeed then; `file` is what it is over, or the first of several.
///
/// The same function over the same bytes has the same output. So what was written already is left out of the output of another
/// try, which fails if it does not begin so: the files are others by then.
pub(super) struct Again<'a, 'w> {
    file: &'a File,
    function: &'a SessionFunction,
    options: RunOptions,
    out: Option<Resumed<&'w mut (dyn Write + Send)>>,
    this: Try,
    started: Instant,
    deadline: Option<Duration>,
    pauses: std::slice::Iter<'static, Duration>,
}

impl<'a, 'w> Again<'a, 'w> {
    pub(super) fn new(
        file: &'a File,
        function: &'a SessionFunction,
        options: &RunOptions,
        out: Option<&'w mut (dyn Write + Send)>,
    ) -> Result<Self, SessionError> {
        options.check_cancelled(file)?;
        let (options, out, this) = (options.clone(), out.map(Resumed::new), Try::default());
        let (started, deadline, pauses) = (Instant::now(), options.limits.deadline, PAUSES.iter());
        Ok(Self { file, function, options, out, this, started, deadline, pauses })
    }

    /// What the next try is given.
    pub(super) fn parts(&mut self) -> (&RunOptions, Option<&mut (dyn Write + Send)>, &mut Try) {
        (&self.options, self.out.as_mut().map(|out| out as _), &mut self.this)
    }

    /// What came of a try, unless another one is to follow.
    pub(super) async fn or_another(&mut self, ran: Result<Ran, SessionError>) -> Result<Option<Ran>, SessionError> {
        if self.out.as_ref().is_some_and(|out| out.is_of_another(ran.is_ok())) {
            return Err(SessionError::Changed(self.file.inner.name.clone()));
        }
        let error = match ran {
            Ok(ran) => return Ok(Some(ran)),
            Err(error) => error,
        };
        let Some(pause) = self.pauses.next() else { return Err(error) };
        if self.out.as_ref().is_some_and(Resumed::has_written) {
            let can_resume = self.function.is_pure() && !is_change(&error);
            if !can_resume {
                return Err(error);
            }
            self.this.wanted = self.this.used;
        }
        match another_try(self.file, self.function, &self.options, &error).await? {
            Some(again) => self.options = again,
            None => return Err(error),
        }
        if is_change(&error) {
            Alarm::after(*pause).await;
        }
        self.options.check_cancelled(self.file)?;
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                return Err(SessionError::Late(self.file.inner.name.clone()));
            }
            self.options.limits.deadline = Some(left);
        }
        self.out.iter_mut().for_each(Resumed::rewind);
        Ok(None)
    }
}

/// How a request that failed so may succeed now.
async fn another_try(
    file: &File,
    function: &SessionFunction,
    options: &RunOptions,
    error: &SessionError,
) -> Result<Option<RunOptions>, SessionError> {
    // The host may have resources that the device lacks, such as memory.
    if options.place == Where::Auto && function.is_pure() && is_refused(error) {
        return Ok(Some(RunOptions { place: Where::Host, ..options.clone() }));
    }
    // What names a version finds no other one.
    if is_change(error) && options.chunks.as_ref().is_some_and(|chunks| chunks.names_versions()) {
        return Ok(None);
    }
    Ok(can_repeat(file, function, error).await?.then(|| options.clone()))
}

/// Whether a device did not begin, or continue, because of what that would take.
fn is_refused(error: &SessionError) -> bool {
    let trailer = error.function().and_then(|failure| failure.trailer());
    trailer.is_some_and(|trailer| trailer.outcome == DeviceOutcome::Refused)
}

/// Whether a request that failed so may succeed now. Gets again what the target has forgotten. A request that ran in
/// part runs again only if it has no effects.
async fn can_repeat(file: &File, function: &SessionFunction, error: &SessionError) -> Result<bool, SessionError> {
    if is_change(error) {
        return Ok(function.is_pure());
    }
    if has_anew(file, error).await? {
        let may_have_run = matches!(error, SessionError::Call(_));
        return Ok(function.is_pure() || !may_have_run);
    }
    // A target that was restarted does not know the tag of any call.
    let is_lost = |failure: &FunctionError| failure.is_loss() || failure.is_status(Status::UNKNOWN_TAG);
    let is_loss = error.told_by_target().is_some_and(is_lost);
    if let (true, Some(link)) = (is_loss, file.inner.place.link_known()) {
        // Should the target be another one by then, it has none of our programs; else they are found again.
        link.forget_programs();
    }
    Ok(function.is_pure() && is_loss)
}

/// Gets again what the target has forgotten, if it was that: then nothing of the request was carried out.
pub(super) async fn has_anew(file: &File, error: &SessionError) -> Result<bool, SessionError> {
    let (Some(failure), Some(link)) = (error.told_by_target(), file.inner.place.link_known()) else { return Ok(false) };
    if is_lost_program(failure) {
        link.forget_programs();
        return Ok(true);
    }
    if let (true, Place::Export(remote)) = (is_stale_handle(failure), &file.inner.place) {
        remote.reopen().await.map_err(|error| SessionError::device(&file.inner.name, error))?;
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
