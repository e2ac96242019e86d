//! Running functions over files: choose, cut, run on both sides, put together.

mod device;
mod host;
mod many;
mod measuring;
mod output;
mod prepared;
mod ran;
mod transform;
mod write;

use measuring::Measuring;
pub use prepared::Prepared;
pub use ran::{Ran, RanPart, RunOptions, Where};
pub(super) use write::write;

use super::cache::BLOCK_LEN;
use super::error::SessionError;
use super::file::File;
use super::function::SessionFunction;
use super::learnt::Subject;
use super::link::Link;
use super::mounted::{Mounted, is_telling};
use super::place::{Now, Place, is_lost_program, is_stale_handle};
use super::segments::{Segment, cut, probe_range};
use diskside_dispatch::{Conditions, Decision, Direction, Link as LinkState, Observation, PairId, Plan, Request, Side};
use diskside_engine::split::Split;
use diskside_engine::{Call, CallError};
use diskside_io::readahead::ReadError;
use diskside_io::request::run_here;
use diskside_nvme::wire::function::Outcome as DeviceOutcome;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A range of a file.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) file: File,
    pub(super) start: u64,
    pub(super) end: Option<u64>,
}

/// What all parts of a request share.
struct Job<'a> {
    file: &'a File,
    now: Now,
    function: &'a SessionFunction,
    args: &'a [u8],
    options: &'a RunOptions,
    /// The mounted volume that the file is on, if it may run there.
    mounted: Option<&'a Mounted>,
    /// Its index at the device, if that has it.
    program: Option<u16>,
    /// The device cannot be reached, and this session holds what it needs of the file.
    held: bool,
}

/// What became of a part.
struct Done {
    result: Vec<u8>,
    part: RanPart,
    observation: Observation,
    /// Bytes sent and received.
    moved: (u64, u64),
    log: (Vec<String>, u64),
    /// Why it did not run at the mounted volume.
    refused: Option<String>,
}

/// Runs a function over a range; with `out` its output is written there as it comes.
pub(super) fn read(
    input: &Input,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Ran, SessionError> {
    let started = Instant::now();
    options.check_cancelled(&input.file)?;
    // With its output on the way, nothing can be tried again.
    let again = out.is_none();
    let ran = match read_once(input, function, args, options, out) {
        Err(error) if again && can_repeat(&input.file, function, &error)? => {
            options.check_cancelled(&input.file)?;
            read_once(input, function, args, options, None)
        }
        ran => ran,
    };
    match ran {
        Ok(ran) => Ok(Ran { total: started.elapsed(), ..ran }),
        Err(error) if is_change(&error) => Err(SessionError::Changed(input.file.inner.name.clone())),
        Err(error) => Err(error),
    }
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
fn has_anew(file: &File, error: &SessionError) -> Result<bool, SessionError> {
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
fn is_change(error: &SessionError) -> bool {
    match error {
        SessionError::Changed(_) => true,
        SessionError::Call(CallError::Read { error: ReadError::Changed { .. } | ReadError::Shrunk { .. }, .. }) => true,
        SessionError::Device { source, .. } => {
            source.trailer().is_some_and(|trailer| trailer.outcome == DeviceOutcome::Stale)
        }
        _ => false,
    }
}

/// The mounted volume that a local file is on, if a function may run over it there; else why not, if that is of interest.
///
/// # Errors
/// The caller insists on a device, and there is none.
fn mounted<'f>(
    file: &'f File,
    function: &SessionFunction,
    options: &RunOptions,
) -> Result<(Option<&'f Mounted>, Option<String>), SessionError> {
    if options.place == Where::Host {
        return Ok((None, None));
    }
    let why = match file.inner.place.mounted(&file.inner.session) {
        None => return Ok((None, None)),
        Some(Ok(mounted)) if function.is_pure() => return Ok((Some(mounted), None)),
        // What is not proved runs once more.
        Some(Ok(_)) => Some(format!("{} has effects besides its result, so it must not run twice", function.name())),
        Some(Err(refusal)) => is_telling(refusal).then(|| refusal.to_string()),
    };
    if options.place != Where::Device {
        return Ok((None, why));
    }
    let why = why.unwrap_or_else(|| NO_DEVICE.to_owned());
    Err(SessionError::NoDevice { name: file.inner.name.clone(), why })
}

/// A file of this machine has no device but this machine: whoever insists on one is told so.
const NO_DEVICE: &str = "it is on this machine, and no target serves it, so there is no device to run at: choose auto or \
    host, or serve its directory (diskside serve --export NAME=DIRECTORY) and name it by diskside://HOST/NAME/PATH";

/// The file as it was when its target could be reached, if that is all that is needed: this session holds the whole range,
/// and the function may run here.
fn held_since_loss(input: &Input, function: &SessionFunction, options: &RunOptions) -> Option<Now> {
    let inner = &input.file.inner;
    let seen = inner.place.seen_before_loss().filter(|seen| seen.keep)?;
    let range = input.start..input.end.unwrap_or(seen.len_bytes);
    if options.place != Where::Auto || !function.is_pure() || range.end > seen.len_bytes || range.is_empty() {
        return None;
    }
    let held = inner.session.cache().ranges(inner.id, seen.version?, &range);
    (held == [range]).then_some(seen)
}

fn read_once(
    input: &Input,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Ran, SessionError> {
    let file = &input.file;
    let held = held_since_loss(input, function, options);
    let now = match held {
        Some(now) => now,
        None => file.inner.place.now(&file.inner.session, &file.inner.name)?,
    };
    let range = input.start..input.end.unwrap_or(now.len_bytes).max(input.start);
    if range.end > now.len_bytes {
        let (name, len) = (file.inner.name.clone(), now.len_bytes);
        return Err(SessionError::OutOfRange { name, start: range.start, end: range.end, len });
    }
    let (mounted, refused) = mounted(file, function, options)?;
    let mut job = Job { file, now, function, args, options, mounted, program: None, held: held.is_some() };
    if let (Place::Local { .. }, None) = (&file.inner.place, mounted) {
        let written = out.is_some();
        let done = Done { refused, ..host::run(&job, &range, out)? };
        return job.gather(vec![done], None, written);
    }
    let cached = job.cached(&range);
    let split = options.split.unwrap_or(function.note().split);
    let cached_bytes: u64 = cached.iter().map(|held| held.end - held.start).sum();
    let cached_bytes = cached_bytes.saturating_sub(job.fetched_behind(&range, split));
    let request = Request {
        direction: Direction::Read,
        len_bytes: range.end - range.start,
        cached_bytes,
        effect_free: function.is_pure(),
        divisible: function.is_pure() && out.is_none(),
        told: options.place.told(),
    };
    let decision = job.decide(&request)?;
    match out {
        Some(out) if !(options.fold && function.combine().is_some()) => {
            let done = job.run_in_order(&cut(&range, &cached, split, &decision), out)?;
            job.gather(done, Some(decision), true)
        }
        out => {
            let beside = decision.probe.filter(|probe| !probe.instead);
            let beside = beside.map(|probe| (probe_range(&range, &cached, split, probe.len_bytes), probe.side));
            let done = job.run_together(cut(&range, &cached, split, &decision), beside, decision.plan)?;
            let mut ran = job.gather(done, Some(decision), false)?;
            if let Some(out) = out {
                out.write_all(&ran.result).map_err(CallError::Write)?;
                ran.result = Vec::new();
            }
            Ok(ran)
        }
    }
}

impl Job<'_> {
    fn name(&self) -> &str {
        &self.file.inner.name
    }

    /// The target, if there is one.
    fn link(&self) -> Option<&Arc<Link>> {
        self.mounted.map(|mounted| &mounted.link).or_else(|| self.file.inner.place.link())
    }

    fn cached(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        if let Some(mounted) = self.mounted {
            return mounted.cached(range);
        }
        let inner = &self.file.inner;
        match self.now.version.filter(|_| self.now.keep) {
            Some(version) => inner.session.cache().ranges(inner.id, version, range),
            None => Vec::new(),
        }
    }

    /// What the host would fetch behind a range for the end of its last record, however much of the range it holds.
    fn fetched_behind(&self, range: &Range<u64>, split: Split) -> u64 {
        let goes_on = range.end < self.now.len_bytes && matches!(split, Split::Delimiter(_));
        // The kernel fetches less of a mounted file.
        let is_held = self.mounted.is_some() || !self.cached(&(range.end..range.end + 1)).is_empty();
        if goes_on && !is_held { BLOCK_LEN } else { 0 }
    }

    /// Asks the dispatcher. Makes sure that the device has the function if it is to run there.
    fn decide(&mut self, request: &Request) -> Result<Decision, SessionError> {
        // Who needs nothing of the device does not wait until it has the function.
        let needs_none = request.told.is_none() && request.effect_free && request.cached_bytes == request.len_bytes;
        let is_lost = request.told.is_none() && self.is_cut_off();
        let state = if is_lost { Some(LinkState::Lost) } else { needs_none.then_some(LinkState::Up) };
        let decision = state.map(|state| self.ask(request, state));
        let is_here = |decision: &Decision| decision.plan == Plan::Host && !decision.probe.is_some_and(|p| p.instead);
        if let Some(decision) = decision.filter(is_here) {
            return Ok(decision);
        }
        if request.told == Some(Side::Host) {
            return Ok(self.ask(request, LinkState::Up));
        }
        match self.load() {
            Ok(()) => Ok(decision.unwrap_or_else(|| self.ask(request, LinkState::Up))),
            Err(error) if request.told.is_some() || error.function().is_some_and(|e| e.is_loss()) => Err(error),
            // The host can still run it.
            Err(_) => Ok(self.ask(request, LinkState::NoCompute)),
        }
    }

    /// Whether the host has what it needs without the device, which cannot be reached. What is held since then was not
    /// compared with the file: that is said also if the device is back by now.
    fn is_cut_off(&self) -> bool {
        self.held || self.mounted.is_some_and(|mounted| mounted.link.is_lost())
    }

    /// Whether the host can do without the device: the kernel has a way of its own to a mounted volume.
    fn host_reads(&self) -> bool {
        self.held || self.mounted.is_some()
    }

    /// Makes sure that the device has the function.
    fn load(&mut self) -> Result<(), SessionError> {
        let link = self.link().expect("a file that is only here has no device");
        self.program = Some(link.program(self.function)?);
        Ok(())
    }

    fn ask(&self, request: &Request, state: LinkState) -> Decision {
        let inner = &self.file.inner;
        let link = self.link().expect("a file that is only here has no choice");
        let conditions = Conditions {
            link: state,
            host_reads: self.host_reads(),
            round_trip_s: link.round_trip_s(),
            device_waiting: link.waiting(),
            host_waiting: inner.session.host_waiting(),
            device_turn_s: if state == LinkState::Up { link.turn_s() } else { 0.0 },
            turn_len_bytes: self.options.chunk_len as u64,
        };
        let pair = self.file.pair(self.function);
        self.recall(pair, &link.name);
        inner.session.lock_dispatcher().decide(pair, request, &conditions)
    }

    /// Begins a pair that is new to this session with what earlier ones learnt of the function at this target.
    fn recall(&self, pair: PairId, target: &str) {
        let session = &self.file.inner.session;
        let Some(files) = session.learnt() else { return };
        let function = self.function.name().to_owned();
        let subject = Subject { target: target.to_owned(), program: self.function.hash(), function };
        if session.lock_dispatcher().view(pair).is_none()
            && let Some(learnt) = files.load(&subject)
        {
            session.lock_dispatcher().recall(pair, &learnt);
        }
        files.note(subject, pair);
    }

    fn observe(&self, done: &Done) {
        self.learn(&done.observation);
        self.advance(done);
    }

    fn learn(&self, observation: &Observation) {
        self.file.inner.session.lock_dispatcher().observe(self.file.pair(self.function), observation);
    }

    fn advance(&self, done: &Done) {
        if let Some(progress) = &self.options.progress {
            progress.fetch_add(done.part.input_bytes, Ordering::Relaxed);
        }
    }

    /// The device's parts go out first; the host's run here meanwhile.
    fn run_together(
        &self,
        segments: Vec<Segment>,
        beside: Option<(Range<u64>, Side)>,
        plan: Plan,
    ) -> Result<Vec<Done>, SessionError> {
        let at_device = |range: &Range<u64>| device::start(self, range);
        let mut calls = Vec::new();
        for segment in &segments {
            let call = segment.side == Side::Device;
            calls.push(if call { Some(at_device(&segment.range)?) } else { None });
        }
        let measuring = match &beside {
            Some((range, Side::Device)) => Measuring::start(self, range.clone()),
            _ => None,
        };
        let extra = match (&beside, plan) {
            (None, Plan::Both) => segments.first().map(|all| at_device(&all.range)).transpose()?,
            _ => None,
        };
        let mut done: Vec<Option<Done>> = segments.iter().map(|_| None).collect();
        for (slot, segment) in done.iter_mut().zip(&segments).filter(|(_, segment)| segment.side == Side::Host) {
            *slot = Some(host::run(self, &segment.range, None)?);
        }
        if let Some((range, Side::Host)) = &beside {
            // The request does not depend on it.
            if let Ok(probe) = host::run(self, range, None) {
                self.observe(&probe);
            }
        }
        for (slot, call) in done.iter_mut().zip(calls) {
            if let Some(call) = call {
                *slot = Some(device::finish(self, call)?);
            }
        }
        let done: Vec<Done> = done.into_iter().flatten().collect();
        done.iter().for_each(|done| self.advance(done));
        let (here, there): (Vec<_>, Vec<_>) =
            done.iter().map(|done| done.observation).partition(|part| part.side == Side::Host);
        here.iter().for_each(|part| self.learn(part));
        // They ran at once, and each had to share the device with the others.
        if let Some(there) = Observation::together(&there) {
            self.learn(&there);
        }
        if let Some(Ok(probe)) = extra.map(|call| device::finish(self, call)) {
            self.observe(&probe);
        }
        // Nobody waits for its end.
        if let Some(measuring) = measuring {
            measuring.leave();
        }
        Ok(done)
    }

    /// One part after another, their output written as it comes.
    fn run_in_order(&self, segments: &[Segment], out: &mut (dyn Write + Send)) -> Result<Vec<Done>, SessionError> {
        let mut all = Vec::new();
        for segment in segments {
            let done = match segment.side {
                Side::Host => host::run(self, &segment.range, Some(&mut *out))?,
                Side::Device => device::stream(self, &segment.range, out)?,
            };
            self.observe(&done);
            all.push(done);
        }
        Ok(all)
    }

    /// One result of all parts.
    fn gather(&self, mut done: Vec<Done>, decision: Option<Decision>, written: bool) -> Result<Ran, SessionError> {
        let mut ran = Ran::default();
        if !written {
            ran.result = match &mut done[..] {
                [only] => std::mem::take(&mut only.result),
                all => {
                    let name =
                        |part: &RanPart| format!("bytes {}..{} of {}", part.range.start, part.range.end, part.name);
                    let names: Vec<String> = all.iter().map(|done| name(&done.part)).collect();
                    let results = all.iter().map(|done| &done.result[..]);
                    let named: Vec<_> = names.iter().map(String::as_str).zip(results).collect();
                    self.file.inner.session.engine().fold(&self.call(Vec::new()), &named)?
                }
            };
        }
        for done in done {
            ran.refusals.extend(done.refused.map(|why| (self.name().to_owned(), why)));
            ran.input_bytes += done.part.input_bytes;
            ran.sent_bytes += done.moved.0;
            ran.received_bytes += done.moved.1;
            ran.log.0.extend(done.log.0);
            ran.log.1 += done.log.1;
            ran.parts.push(done.part);
        }
        ran.decisions.extend(decision.map(|decision| (self.name().to_owned(), decision)));
        Ok(ran)
    }

    /// As the engine of this side runs it.
    fn call(&self, sources: Vec<diskside_engine::Source>) -> Call<'_> {
        let options = self.options;
        Call {
            chunk_len: options.chunk_len,
            split: options.split,
            threads: options.threads,
            tier: options.tier,
            fold: options.fold,
            limits: options.limits.clone(),
            ..Call::new(self.function, sources, self.args.to_vec())
        }
    }
}
