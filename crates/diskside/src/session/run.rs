//! Running functions over files: choose, cut, run on both sides, put together.

mod chunks;
mod compressed;
mod content;
mod copy;
mod decide;
mod device;
mod group;
mod host;
mod job;
mod local;
mod many;
mod measuring;
mod output;
mod part;
mod prepared;
mod ran;
mod resumed;
mod retry;
mod together;
mod transform;
mod write;

pub use chunks::{ChunkRange, Chunks};
use compressed::Compressed;
use content::Content;
pub(super) use copy::read_copy;
use job::{Done, Input, Job};
pub use local::LocalBytes;
use part::Grid;
pub(super) use part::InputPart;
pub use prepared::Prepared;
pub use ran::{Decompress, Header, Ran, RanPart, RunOptions, Where};
pub use resumed::Resumed;
use retry::{Again, Try, has_anew, is_change};
pub(super) use write::write;

use super::error::SessionError;
use super::file::File;
use super::function::SessionFunction;
use super::mounted::{Mounted, is_telling};
use super::patience::Patience;
use super::place::{Now, Place};
use super::segments::{cut, probe_range};
use diskside_dispatch::{Direction, Request};
use diskside_engine::{CallError, Pieces};
use diskside_host::own_thread;
use std::io::Write;
use std::ops::Range;
use std::time::Instant;

/// Runs a function over a range; with `out` its output is written there as it comes.
async fn read(
    input: &Input,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
) -> Result<Ran, SessionError> {
    group::check_no_chunks(&input.file, options)?;
    let started = Instant::now();
    let mut again = Again::new(&input.file, function, options, out)?;
    loop {
        let (options, out, this) = again.parts();
        let ran = read_once(input, function, args, options, out, this).await;
        match again.or_another(ran).await {
            Ok(None) => {}
            Ok(Some(ran)) => return Ok(Ran { total: started.elapsed(), ..ran }),
            Err(error) if is_change(&error) => return Err(SessionError::Changed(input.file.inner.name.clone())),
            Err(error) => return Err(error),
        }
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

async fn read_once(
    input: &Input,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
    out: Option<&mut (dyn Write + Send)>,
    this: &mut Try,
) -> Result<Ran, SessionError> {
    let file = &input.file;
    if let Place::Local { .. } = &file.inner.place {
        own_thread().await;
    }
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
        None => {
            let now = file.inner.place.now(&file.inner.session, &file.inner.name);
            let now = Patience::none(options.limits.cancel.as_ref()).answer(now).await;
            now.ok_or_else(|| SessionError::Cancelled(file.inner.name.clone()))??
        }
    };
    this.is_over(file, now.version)?;
    let name = &file.inner.name;
    let content = Content::of(file, &now, options).await?;
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
        part_len_bytes: 0,
        hints: job.hints(),
        told: options.place.told(),
    };
    let decision = job.decide(&request).await?;
    let segments = cut(&range, &cached, &pieces, decision.plan);
    // Nothing can be measured with a part of compressed data.
    let probe = decision.probe.filter(|probe| compressed.is_none() && !probe.instead);
    let probe = probe.map(|probe| (probe_range(&range, &cached, split, probe.len_bytes), probe.side));
    match out {
        Some(out) if !folds => {
            own_thread().await;
            let done = job.run_in_order(&segments, probe.as_ref(), out)?;
            job.gather(done, Some(decision), true)
        }
        out => {
            // Parts that are folded apart would be folded in another order.
            job.frames |= folds && (options.fold_here || function.folds_in_order() && segments.len() > 1);
            let is_cut = segments.len() > 1;
            let done = match job.run_together(segments, probe, decision.plan).await {
                // Parts fail in whatever order they ran in: one call tells the failure that comes first in the file.
                Err(error) if is_cut && error.is_of_function() => {
                    let options = RunOptions { place: Where::Device, ..options.clone() };
                    return Box::pin(read_once(input, function, args, &options, out, this)).await;
                }
                done => done?,
            };
            if done.len() > 1 || job.frames && !job.hands_on || out.is_some() {
                // Folding computes, and writing may wait.
                own_thread().await;
            }
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
