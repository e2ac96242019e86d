//! Running functions over files: choose, cut, run on both sides, put together.

mod chunks;
mod compressed;
mod content;
mod copy;
mod device;
mod group;
mod host;
mod local;
mod many;
mod measuring;
mod output;
mod prepared;
mod ran;
mod resumed;
mod retry;
mod transform;
mod write;

pub use chunks::{ChunkRange, Chunks};
use compressed::Compressed;
use content::Content;
pub(super) use copy::read_copy;
pub use local::LocalBytes;
use measuring::Measuring;
pub use prepared::Prepared;
pub use ran::{Decompress, Header, Ran, RanPart, RunOptions, Where};
pub use resumed::Resumed;
use retry::{Try, has_anew, is_change, with_another_try};
pub(super) use write::write;

use super::cache::BLOCK_LEN;
use super::crowd::Present;
use super::error::SessionError;
use super::file::File;
use super::function::SessionFunction;
use super::learnt::Subject;
use super::link::{Link, LoadedProgram};
use super::mounted::{Mounted, is_telling};
use super::place::{Now, Place};
use super::segments::{Segment, cut, probe_range};
use diskside_dispatch::{
    Conditions, Decision, Direction, Link as LinkState, Observation, PairId, Plan, Reason, Request, Side,
};
use diskside_engine::pieces::PIECE_LEN;
use diskside_engine::split::Split;
use diskside_engine::{Call, CallError, Part, Pieces, PutTogether, Source};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A part of a file.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) file: File,
    pub(super) part: InputPart,
    /// Of several that a function runs over: which one it is.
    pub(super) source_index: u32,
    /// Its result is to be folded with those of others, in order: it comes as [frames](diskside_engine::frames).
    pub(super) frames: bool,
}

/// Which bytes of a file, or of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputPart {
    pub(super) start: u64,
    /// `None`: to the end.
    pub(super) end: Option<u64>,
}

/// Where the pieces of a request lie.
#[derive(Clone, Debug)]
struct Grid {
    pieces: Pieces,
    request: Range<u64>,
    /// Where in the file its data begins.
    zero: u64,
}

impl Grid {
    /// The whole of the request, for a call over a part of it.
    fn part(&self, range: &Range<u64>) -> Option<Part> {
        let is_part = self.request != *range || self.zero > 0;
        is_part.then(|| Part { request: self.request.clone(), zero: self.zero })
    }
}

impl InputPart {
    fn is_whole(self) -> bool {
        self == Self::default()
    }

    /// The range of so many bytes.
    ///
    /// # Errors
    /// The range that is not in them.
    fn range_within(self, len: u64) -> Result<Range<u64>, Range<u64>> {
        let range = self.start..self.end.unwrap_or(len).max(self.start);
        if range.end > len { Err(range) } else { Ok(range) }
    }
}

/// What all parts of a request share.
#[derive(Clone)]
struct Job<'a> {
    file: &'a File,
    now: Now,
    function: &'a SessionFunction,
    args: &'a [u8],
    options: &'a RunOptions,
    /// The mounted volume that the file is on, if it may run there.
    mounted: Option<&'a Mounted>,
    /// It at the device, if that has it.
    program: Option<Arc<LoadedProgram>>,
    /// How the file is compressed, if the function is given what it decompresses to.
    compressed: Option<Compressed>,
    /// The device cannot be reached, and this session holds what it needs of the file.
    held: bool,
    /// For a read; `None`: each part is a request of its own.
    grid: Option<Grid>,
    /// Whether the outputs of pieces come as they are, to be folded in order.
    frames: bool,
    /// Whether they are folded with those of other files: then they are handed on.
    hands_on: bool,
    /// Of several files that the function runs over: which one it is.
    source_index: u32,
    /// Why it runs where it does, once that is decided.
    reason: Option<Reason>,
}

/// What became of a part.
struct Done {
    result: Vec<u8>,
    /// Bytes of the result, also where it was written out.
    result_bytes: u64,
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
    group::check_no_chunks(&input.file, options)?;
    let started = Instant::now();
    let ran = with_another_try(&input.file, function, options, out, |options, out, this| {
        read_once(input, function, args, options, out, this)
    });
    match ran {
        Ok(ran) => Ok(Ran { total: started.elapsed(), ..ran }),
        Err(error) if is_change(&error) => Err(SessionError::Changed(input.file.inner.name.clone())),
        Err(error) => Err(error),
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

/// Why a file of this machine has no device but this machine, for a caller that insists on one.
const NO_DEVICE: &str = "it is on this machine, and no target serves it, so there is no device to run at: choose auto or \
    host, or serve its directory (diskside serve --export NAME=DIRECTORY) and name it by diskside://HOST/NAME/PATH";

/// The file as it was when its target could be reached, if that is all that is needed: this session holds the whole range,
/// and the function may run here.
fn held_since_loss(input: &Input, function: &SessionFunction, options: &RunOptions) -> Option<Now> {
    let inner = &input.file.inner;
    let seen = inner.place.seen_before_loss().filter(|seen| seen.keep)?;
    let range = input.part.range_within(seen.len_bytes).ok()?;
    // Where there are other copies, one of them is read instead.
    let has_copies = input.file.copied.is_some();
    if has_copies || options.place != Where::Auto || !function.is_pure() || range.is_empty() {
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
    this: &Try,
) -> Result<Ran, SessionError> {
    let file = &input.file;
    let (mounted, refused) = mounted(file, function, options)?;
    if let (Place::Local { .. }, None) = (&file.inner.place, mounted) {
        let (source, zero) = local::source(file, input.part, function, args, options)?;
        let now = Now { len_bytes: 0, version: None, keep: false };
        let job = Job { mounted, ..Job::of(input, now, function, args, options) };
        let written = out.is_some();
        let done = Done { refused, ..host::run_over_sources(&job, vec![source], zero, out)? };
        return job.gather(vec![done], None, written);
    }
    let held = held_since_loss(input, function, options);
    let now = match held {
        Some(now) => now,
        None => file.inner.place.now(&file.inner.session, &file.inner.name)?,
    };
    this.is_over(file, now.version)?;
    let name = &file.inner.name;
    let content = Content::of(file, &now, options)?;
    content.note_len(file, &now);
    let (range, zero, compressed) = match content {
        Content::Plain => {
            let range = input.part.range_within(now.len_bytes);
            (range.map_err(|range| SessionError::out_of_range(name, range, now.len_bytes))?, 0, None)
        }
        // They are read from their beginning to their end, whatever is wanted of what they decompress to.
        Content::Compressed(codec) => (0..now.len_bytes, 0, Some(Compressed { codec, part: input.part })),
        Content::Array(array) => {
            let delimiter = options.delimiter(function, args);
            (array.range(name, input.part, function, delimiter, now.len_bytes)?, array.data_start, None)
        }
    };
    let pieces = options.pieces(function, args)?;
    // Nobody knows how long it will be when it is decompressed.
    let grid = compressed.is_none().then(|| Grid { pieces, request: range.clone(), zero });
    if grid.is_some() {
        pieces.check_len(function, name, Some(range.end - range.start))?;
    }
    let held = held.is_some();
    let mut job = Job { held, mounted, compressed, grid, ..Job::of(input, now, function, args, options) };
    let cached = job.cached(&range);
    let split = pieces.split;
    let folds = options.fold && function.combine().is_some();
    let cached_bytes: u64 = cached.iter().map(|held| held.end - held.start).sum();
    let cached_bytes = cached_bytes.saturating_sub(job.fetched_behind(&range, split));
    let request = Request {
        direction: Direction::Read,
        len_bytes: range.end - range.start,
        cached_bytes,
        effect_free: function.is_pure(),
        divisible: function.is_pure()
            && pieces.is_divisible()
            && compressed.is_none()
            && (folds || out.is_none())
            && (!function.folds_in_order() || !folds || frames_fit(function, &pieces, &range)),
        told: options.place.told(),
    };
    let decision = job.decide(&request)?;
    let segments = cut(&range, &cached, &pieces, decision.plan);
    // Nothing can be measured with a part of compressed data.
    let probe = decision.probe.filter(|probe| compressed.is_none() && !probe.instead);
    let probe = probe.map(|probe| (probe_range(&range, &cached, split, probe.len_bytes), probe.side));
    match out {
        Some(out) if !folds => {
            let measuring = job.measure_device(probe.as_ref());
            let done = job.run_in_order(&segments, out)?;
            job.measure_host(probe.as_ref());
            measuring.into_iter().for_each(Measuring::leave);
            job.gather(done, Some(decision), true)
        }
        out => {
            // Parts that are folded apart would be folded in another order.
            job.frames |= folds && function.folds_in_order() && segments.len() > 1;
            let is_cut = segments.len() > 1;
            let done = match job.run_together(segments, probe, decision.plan) {
                // Parts fail in whatever order they ran in: one call tells the failure that comes first in the file.
                Err(error) if is_cut && error.is_of_function() => {
                    let options = RunOptions { place: Where::Device, ..options.clone() };
                    return read_once(input, function, args, &options, out, this);
                }
                done => done?,
            };
            let mut ran = job.gather(done, Some(decision), false)?;
            if let Some(out) = out {
                out.write_all(&ran.result).map_err(CallError::Write)?;
                ran.result = Vec::new();
            }
            Ok(ran)
        }
    }
}

/// Whether the unfolded results of a request's pieces may be held until they are folded.
fn frames_fit(function: &SessionFunction, pieces: &Pieces, range: &Range<u64>) -> bool {
    let count = (range.end - range.start).div_ceil(pieces.len_bytes as u64);
    count.saturating_mul(function.output_cap(pieces.len_bytes as u64)) <= FRAMES_LEN_MAX
}

/// Bytes of results that are held to be folded in order.
const FRAMES_LEN_MAX: u64 = 32 << 20;

impl<'a> Job<'a> {
    fn new(file: &'a File, now: Now, function: &'a SessionFunction, args: &'a [u8], options: &'a RunOptions) -> Self {
        let (mounted, program, compressed, grid) = (None, None, None, None);
        let (held, frames, hands_on, source_index) = (false, false, false, 0);
        Self {
            file,
            now,
            function,
            args,
            options,
            mounted,
            program,
            compressed,
            held,
            grid,
            frames,
            hands_on,
            source_index,
            reason: None,
        }
    }

    fn of(input: &'a Input, now: Now, function: &'a SessionFunction, args: &'a [u8], options: &'a RunOptions) -> Self {
        let (frames, source_index) = (input.frames, input.source_index);
        let job = Self::new(&input.file, now, function, args, options);
        Self { frames, hands_on: frames, source_index, ..job }
    }

    fn name(&self) -> &str {
        &self.file.inner.name
    }

    /// The whole of the request, for a call over a part of it.
    fn part(&self, range: &Range<u64>) -> Option<Part> {
        self.grid.as_ref()?.part(range)
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

    /// The bytes that the host would fetch behind a range for the end of its last record, however much of the range it
    /// holds.
    fn fetched_behind(&self, range: &Range<u64>, split: Split) -> u64 {
        let goes_on = range.end < self.now.len_bytes && matches!(split, Split::Delimiter(_));
        // The kernel fetches less of a mounted file.
        let is_held = self.mounted.is_some() || !self.cached(&(range.end..range.end + 1)).is_empty();
        if goes_on && !is_held { BLOCK_LEN } else { 0 }
    }

    /// Asks the dispatcher. Makes sure that the device has the function if it is to run there.
    fn decide(&mut self, request: &Request) -> Result<Decision, SessionError> {
        let decision = self.choose(request)?;
        self.reason = Some(decision.reason);
        Ok(decision)
    }

    fn choose(&mut self, request: &Request) -> Result<Decision, SessionError> {
        // A request that needs nothing of the device does not wait until it has the function.
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

    /// Whether the host has what it needs without the device, which cannot be reached. Bytes that are held since then
    /// were not compared with the file: that is reported also if the device is back by now.
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
            device_running: link.at_once(Side::Device),
            host_running: link.at_once(Side::Host),
            device_turn_s: if state == LinkState::Up { link.turn_s() } else { 0.0 },
            turn_len_bytes: self.turn_len_bytes(),
        };
        let pair = self.file.pair(self.function);
        self.recall(pair, &link.name);
        inner.session.lock_dispatcher().decide(pair, request, &conditions)
    }

    /// Bytes that a device computes at a time.
    fn turn_len_bytes(&self) -> u64 {
        let len = self.grid.as_ref().map(|grid| grid.pieces.len_bytes).or(self.options.chunk_len);
        len.unwrap_or(PIECE_LEN) as u64
    }

    /// Begins a pair that is new to this session with what earlier ones learnt of the function at this target.
    fn recall(&self, pair: PairId, target: &str) {
        let session = &self.file.inner.session;
        let Some(files) = session.learnt() else { return };
        // A byte of a compressed file takes what many bytes of another take.
        let function = match &self.compressed {
            None => self.function.name().to_owned(),
            Some(compressed) => format!("{} of {}", self.function.name(), compressed.codec.name()),
        };
        let subject = Subject { target: target.to_owned(), program: self.function.hash(), function };
        if session.lock_dispatcher().view(pair).is_none()
            && let Some(learnt) = files.load(&subject)
        {
            session.lock_dispatcher().recall(pair, &learnt);
        }
        files.note(subject, pair);
    }

    fn observe(&self, done: &Done) {
        self.learn(&done.observation, None);
        self.advance(done);
    }

    /// Tells the dispatcher what a part took, with how many calls it shared its side.
    fn learn(&self, observation: &Observation, present: Option<&Present>) {
        let at_once = present.map_or(1.0, Present::at_once);
        let pair = self.file.pair(self.function);
        self.file.inner.session.lock_dispatcher().observe_among(pair, observation, at_once);
    }

    fn learn_probe(&self, observation: &Observation, present: Option<&Present>) {
        let at_once = present.map_or(1.0, Present::at_once);
        let pair = self.file.pair(self.function);
        self.file.inner.session.lock_dispatcher().observe_probe(pair, observation, at_once);
    }

    /// Counts a request among those of this session that run on a side, until what it gives is dropped.
    fn enter(&self, side: Side) -> Option<Present> {
        self.link().map(|link| link.enter(side))
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
        probe: Option<(Range<u64>, Side)>,
        plan: Plan,
    ) -> Result<Vec<Done>, SessionError> {
        let at_device = |range: &Range<u64>| device::start(self, range);
        let runs_on = |side: Side| segments.iter().any(|segment| segment.side == side);
        let [here, there] = Side::ALL.map(|side| if runs_on(side) { self.enter(side) } else { None });
        let mut calls = Vec::new();
        for segment in &segments {
            let call = segment.side == Side::Device;
            calls.push(if call { Some(at_device(&segment.range)?) } else { None });
        }
        let measuring = self.measure_device(probe.as_ref());
        let extra = match (&probe, plan) {
            (None, Plan::Both) => segments.first().map(|all| at_device(&all.range)).transpose()?,
            _ => None,
        };
        let mut done: Vec<Option<Done>> = segments.iter().map(|_| None).collect();
        for (slot, segment) in done.iter_mut().zip(&segments).filter(|(_, segment)| segment.side == Side::Host) {
            *slot = Some(host::run(self, &segment.range, None)?);
        }
        self.measure_host(probe.as_ref());
        for (slot, call) in done.iter_mut().zip(calls) {
            if let Some(call) = call {
                *slot = Some(device::finish(self, call)?);
            }
        }
        let done: Vec<Done> = done.into_iter().flatten().collect();
        done.iter().for_each(|done| self.advance(done));
        let (on_host, at_device): (Vec<_>, Vec<_>) =
            done.iter().map(|done| done.observation).partition(|part| part.side == Side::Host);
        on_host.iter().for_each(|part| self.learn(part, here.as_ref()));
        // They ran at once, and each had to share the device with the others.
        if let Some(together) = Observation::together(&at_device) {
            self.learn(&together, there.as_ref());
        }
        if let Some(Ok(probe)) = extra.map(|call| device::finish(self, call)) {
            self.learn_probe(&probe.observation, None);
        }
        // Nobody waits for its end.
        if let Some(measuring) = measuring {
            measuring.leave();
        }
        Ok(done)
    }

    /// Runs a part at the device meanwhile, if that is what is to be measured.
    fn measure_device(&self, probe: Option<&(Range<u64>, Side)>) -> Option<Measuring> {
        let (range, _) = probe.filter(|(_, side)| *side == Side::Device)?;
        Measuring::start(self, range.clone())
    }

    /// Runs a part here, if that is what is to be measured. The request does not depend on it.
    fn measure_host(&self, probe: Option<&(Range<u64>, Side)>) {
        let Some((range, _)) = probe.filter(|(_, side)| *side == Side::Host) else { return };
        let alone = Job { grid: None, frames: false, ..self.clone() };
        let present = self.enter(Side::Host);
        if let Ok(probe) = host::run(&alone, range, None) {
            self.learn_probe(&probe.observation, present.as_ref());
        }
    }

    /// One part after another, their output written as it comes.
    fn run_in_order(&self, segments: &[Segment], out: &mut (dyn Write + Send)) -> Result<Vec<Done>, SessionError> {
        let mut all = Vec::new();
        for segment in segments {
            let present = self.enter(segment.side);
            let done = match segment.side {
                Side::Host => host::run(self, &segment.range, Some(&mut *out))?,
                Side::Device => device::stream(self, &segment.range, out)?,
            };
            self.learn(&done.observation, present.as_ref());
            self.advance(&done);
            all.push(done);
        }
        Ok(all)
    }

    /// The result of all parts, in the order of the input.
    fn put_together(&self, done: &mut [Done]) -> Result<PutTogether, SessionError> {
        let as_it_is = |result| PutTogether { result, fold: Duration::ZERO };
        if let [only] = done {
            return Ok(as_it_is(std::mem::take(&mut only.result)));
        }
        if self.hands_on {
            return Ok(as_it_is(done.iter().map(|done| &done.result[..]).collect::<Vec<_>>().concat()));
        }
        let engine = self.file.inner.session.engine();
        if self.frames {
            let parts: Vec<(&str, &[u8])> = done.iter().map(|done| (self.name(), &done.result[..])).collect();
            return Ok(engine.fold_frames(&self.call(Vec::new()), &parts)?);
        }
        // In a part no record may begin: then there is nothing to fold.
        let has_pieces = |done: &&Done| done.part.chunks != Some(0);
        let name = |part: &RanPart| format!("bytes {}..{} of {}", part.range.start, part.range.end, part.name);
        let named: Vec<(String, &[u8])> =
            done.iter().filter(has_pieces).map(|done| (name(&done.part), &done.result[..])).collect();
        let named: Vec<(&str, &[u8])> = named.iter().map(|(name, result)| (name.as_str(), *result)).collect();
        Ok(engine.fold(&self.call(Vec::new()), &named)?)
    }

    /// One result of all parts.
    fn gather(&self, mut done: Vec<Done>, decision: Option<Decision>, written: bool) -> Result<Ran, SessionError> {
        let mut ran = Ran::default();
        if !written {
            let PutTogether { result, fold } = self.put_together(&mut done)?;
            (ran.result, ran.fold) = (result, fold);
        }
        for done in done {
            ran.refusals.extend(done.refused.map(|why| (self.name().to_owned(), why)));
            ran.input_bytes += done.part.input_bytes;
            ran.sent_bytes += done.moved.0;
            ran.received_bytes += done.moved.1;
            ran.add_log(done.log);
            ran.parts.push(done.part);
        }
        ran.decisions.extend(decision.map(|decision| (self.name().to_owned(), decision)));
        Ok(ran)
    }

    /// As the engine of this side runs it.
    fn call(&self, sources: Vec<Source>) -> Call<'_> {
        let options = self.options;
        Call {
            chunk_len: options.chunk_len,
            split: options.split,
            source_index: self.source_index,
            depth: options.depth,
            threads: options.host_threads(),
            tier: options.tier,
            fold: options.fold,
            limits: options.limits.clone(),
            ..Call::new(self.function, sources, self.args.to_vec())
        }
    }
}
