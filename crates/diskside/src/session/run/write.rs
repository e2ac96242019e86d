//! Running a function over bytes, into a file.

use super::super::error::SessionError;
use super::super::file::File;
use super::super::function::SessionFunction;
use super::super::place::{Now, Place};
use super::super::segments::probe_range;
use super::group::check_no_chunks;
use super::job::{Done, Job};
use super::{Ran, RunOptions, device, has_anew, host, mounted};
use diskside_dispatch::{Direction, Request, Side};
use diskside_engine::split::Split;
use diskside_host::own_thread;
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo as _, Request as IoRequest, block_on};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

/// Runs a function over bytes and writes its output to a file.
pub(in super::super) async fn write(
    file: &File,
    offset: u64,
    input: &Buffer,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Result<Ran, SessionError> {
    let started = Instant::now();
    check_no_chunks(file, options)?;
    options.check_cancelled(file)?;
    let mut ran = write_once(file, offset, input, function, args, options).await;
    if let Err(error) = &ran
        && has_anew(file, error).await?
    {
        options.check_cancelled(file)?;
        ran = write_once(file, offset, input, function, args, options).await;
    }
    ran.map(|ran| Ran { total: started.elapsed(), ..ran })
}

async fn write_once(
    file: &File,
    offset: u64,
    input: &Buffer,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Result<Ran, SessionError> {
    let now = Now { len_bytes: input.len() as u64, version: None, keep: false };
    if let Place::Local { .. } = &file.inner.place {
        own_thread().await;
    }
    let (mounted, refused) = mounted(file, function, options)?;
    let mut job = Job { mounted, ..Job::new(file, now, function, args, options) };
    let decision = if let (Place::Local { .. }, None) = (&file.inner.place, mounted) {
        None
    } else {
        let request = Request {
            direction: Direction::Write,
            len_bytes: input.len() as u64,
            cached_bytes: 0,
            effect_free: function.is_pure(),
            divisible: false,
            part_len_bytes: 0,
            hints: None,
            told: options.place.told(),
        };
        Some(job.decide(&request).await?)
    };
    let probe = decision.and_then(|decision| decision.probe);
    let side = match (decision, probe) {
        (None, _) => Side::Host,
        (_, Some(probe)) if probe.instead => probe.side,
        (Some(decision), _) => decision.plan.side().unwrap_or(Side::Device),
    };
    let rehearsed = probe.filter(|probe| !probe.instead);
    if rehearsed.is_some() || side == Side::Host || mounted.is_some() {
        own_thread().await;
    }
    if let Some(probe) = rehearsed {
        job.rehearse(input, probe.len_bytes);
    }
    let mut done = match (side, mounted) {
        (Side::Host, _) => job.write_from_host(offset, input)?,
        (Side::Device, Some(mounted)) => device::write_mounted(&job, mounted, offset, input)?,
        (Side::Device, None) => {
            if let (Place::Export(remote), false) = (&file.inner.place, options.durable) {
                let open = remote.file_soon().await;
                open.map_err(|error| SessionError::device(&file.inner.name, error))?.note_unsynced();
            }
            device::write(&job, offset, input).await?
        }
    };
    done.refused = done.refused.or(refused);
    let written_bytes = done.result_bytes;
    let mut ran = job.gather(vec![done], decision, true)?;
    ran.written_bytes = written_bytes;
    Ok(ran)
}

impl Job<'_> {
    /// Measures what the function takes on the host, over the first bytes of a write; nothing is written.
    fn rehearse(&self, input: &Buffer, len: u64) {
        // Calls of no length that could be cut are refused when they run.
        let split = self.options.pieces(self.function, self.args).map_or(Split::Bytes, |pieces| pieces.split);
        let whole = 0..input.len() as u64;
        let part = probe_range(&whole, &[], split, len);
        let part = Buffer::copy_of(&input[..(part.end - part.start) as usize]);
        // The request does not depend on it.
        if let Ok(done) = host::run_over_bytes(self, &part) {
            let (session, observation) = (&self.file.inner.session, &done.observation);
            let pair = self.file.pair(self.function);
            session.lock_dispatcher().rehearse(pair, Side::Host, observation.len_bytes, observation.run_s);
        }
    }

    pub(super) fn write_from_host(&self, offset: u64, input: &Buffer) -> Result<Done, SessionError> {
        self.options.check_cancelled(self.file)?;
        let mut done = host::run_over_bytes(self, input)?;
        self.options.check_cancelled(self.file)?;
        let output = std::mem::take(&mut done.result);
        let started = Instant::now();
        let failed = |error| SessionError::file(self.name(), error);
        let durable = self.options.durable;
        let written =
            if let (Some(_), Place::Local { path, descriptor: None, .. }) = (self.mounted, &self.file.inner.place) {
                // Closed at once: the volume writes only a file that nobody has open.
                write_and_close(path, offset, &output, durable).map_err(failed)?
            } else {
                let io = self.file.inner.io()?;
                let request = IoRequest::Write { offset, buffer: Buffer::from(output), durable };
                block_on(io.submit(request)).into_result().map_err(failed)?
            };
        let took = started.elapsed();
        done.result_bytes = written;
        done.observation.output_s = took.as_secs_f64();
        done.observation.total_s += took.as_secs_f64();
        done.part.total += took;
        done.part.write += took;
        if self.link().is_some() {
            done.moved.0 += written;
            self.observe(&done);
        }
        Ok(done)
    }
}

fn write_and_close(path: &Path, offset: u64, bytes: &[u8], durable: bool) -> std::io::Result<u64> {
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all_at(bytes, offset)?;
    if durable {
        file.sync_data()?;
    }
    Ok(bytes.len() as u64)
}
