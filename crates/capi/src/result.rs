//! What came of a function, and how.

use crate::error::{Failure, guard_int};
use crate::memory::{self, Growing, object, sized_out};
use crate::options::ds_place;
use rust::sandbox::activation::Tier;
use rust::session::{Followed, KernelRan, Ran, RanPart, Side};
use std::ffi::{CString, c_char, c_int, c_void};
use std::time::Duration;

/// A result, and how it came to be.
pub struct ds_result {
    bytes: Vec<u8>,
    stats: ds_stats,
    parts: Vec<Part>,
    log: Vec<CString>,
    /// The mask of a kernel's result of which blocks were held back.
    blocks: Vec<u8>,
}

/// A part, and the words that it points to.
struct Part {
    part: ds_part,
    _words: [CString; 4],
}

/// The statistics of a request. Times are sums over its parts, which may have run at the same time; total_ns is from
/// the request to the result. Set `size` before the call: later versions add fields at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ds_stats {
    /// sizeof(ds_stats).
    pub size: usize,
    /// Bytes that the function was given.
    pub input_bytes: u64,
    /// Bytes that it gave back, before its results were combined.
    pub output_bytes: u64,
    /// Bytes of output that were written to a file.
    pub written_bytes: u64,
    /// Bytes that were sent to targets, without the protocol's headers.
    pub sent_bytes: u64,
    /// Bytes that came from targets.
    pub received_bytes: u64,
    /// Loop iterations.
    pub iterations: u64,
    /// Waiting for an engine.
    pub queue_ns: u64,
    /// Waiting for input.
    pub wait_ns: u64,
    /// In the function.
    pub run_ns: u64,
    /// From the request to the result.
    pub total_ns: u64,
    /// Steps of a function that follows pointers.
    pub hops: u64,
    /// Lines that the function logged beyond those that are kept.
    pub log_dropped: u64,
    /// The return value of a function of kind `delilah` over its last chunk; 0 for others.
    pub returned: u64,
    /// Folding results with the function's `combine`, here and at targets that tell.
    pub fold_ns: u64,
}

/// A part of a request, which ran on one side. Texts live as long as the result. Set `size` before the call: later
/// versions add fields at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ds_part {
    /// sizeof(ds_part).
    pub size: usize,
    /// Which file, or which files with commas between them.
    pub name: *const c_char,
    /// First byte of its range.
    pub from: u64,
    /// End of its range.
    pub to: u64,
    /// Why it ran there, in a word: "told", "effects", "link_lost", "no_compute", "in_place", "many_files", "unmeasured",
    /// "hinted", "profiling", "faster", "tie", "faster_together", "tried"; "here" if the data is here, so that there is no choice;
    /// "refused" if it could not run at the target of a mounted volume.
    pub reason: *const c_char,
    /// The same in a sentence, with what was expected of each side.
    pub why: *const c_char,
    /// The tier that ran it: "interp", "cranelift" or "llvm"; "" if a device does not say.
    pub tier: *const c_char,
    /// DS_HOST or DS_DEVICE.
    pub place: i32,
    /// Always 0.
    pub reserved: u32,
    /// Bytes that the function was given.
    pub input_bytes: u64,
    /// Bytes that it gave back.
    pub output_bytes: u64,
    /// Loop iterations.
    pub iterations: u64,
    /// Waiting for an engine.
    pub queue_ns: u64,
    /// Waiting for input.
    pub wait_ns: u64,
    /// In the function.
    pub run_ns: u64,
    /// In all.
    pub total_ns: u64,
    /// Folding the results of its pieces with the function's `combine`; 0 if a device does not tell.
    pub fold_ns: u64,
}

// SAFETY: `size` is the first field of both.
unsafe impl Growing for ds_stats {}
// SAFETY: as above.
unsafe impl Growing for ds_part {}

/// The result's bytes, valid until it is freed; none if the output was written to a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_bytes(result: *const ds_result) -> *const c_void {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { result.as_ref() }.map_or(std::ptr::null(), |result| result.bytes.as_ptr().cast())
}

/// How many bytes that are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_len(result: *const ds_result) -> usize {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { result.as_ref() }.map_or(0, |result| result.bytes.len())
}

/// Fills in what the request took.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_stats(result: *const ds_result, stats: *mut ds_stats) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let result = unsafe { object(result)? };
        // SAFETY: as above.
        unsafe { sized_out(&result.stats, stats, "ds_stats")? };
        Ok(0)
    }) as c_int
}

/// How many parts there are: one or more for each file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_parts(result: *const ds_result) -> usize {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { result.as_ref() }.map_or(0, |result| result.parts.len())
}

/// Fills in where a part ran, why, and what it took. Parts are counted from 0, in the order of the input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_part(result: *const ds_result, index: usize, part: *mut ds_part) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let result = unsafe { object(result)? };
        let count = result.parts.len();
        let none = || Failure::invalid(format!("the result has {count} parts, so none at {index}"));
        let kept = result.parts.get(index).ok_or_else(none)?;
        // SAFETY: as above.
        unsafe { sized_out(&kept.part, part, "ds_part")? };
        Ok(0)
    }) as c_int
}

/// A line that the function logged, counted from 0; NULL beyond the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_log(result: *const ds_result, index: usize) -> *const c_char {
    // SAFETY: the caller keeps the crate's contract.
    let line = unsafe { result.as_ref() }.and_then(|result| result.log.get(index));
    line.map_or(std::ptr::null(), |line| line.as_ptr())
}

/// Frees a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_free(result: *mut ds_result) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(result) };
}

impl ds_result {
    pub(crate) fn new(ran: Ran) -> Self {
        let stats = ds_stats::of(&ran);
        let parts = ran.parts.iter().map(|part| Part::of(&ran, part)).collect();
        let log = ran.log.0.iter().map(|line| text(line)).collect();
        Self { bytes: ran.result, stats, parts, log, blocks: Vec::new() }
    }

    /// What followed pointers is one part.
    pub(crate) fn of_traversal(followed: Followed) -> Self {
        let (hops, input_bytes, iterations) = (followed.hops.into(), followed.read_bytes, followed.back_edges);
        let (output_bytes, total_ns) = (followed.result.len() as u64, ns(followed.total));
        let refused = followed.refused.as_ref().map(|why| format!("host, read by read: {why}"));
        let (reason, why) = match (followed.side, &refused) {
            (_, Some(why)) => ("refused", why.as_str()),
            (Side::Host, None) => ("here", "host: read by read"),
            (Side::Device, None) => ("in_place", "device: it has all of the files"),
        };
        let known = ds_part { input_bytes, output_bytes, iterations, total_ns, ..ds_part::at(followed.side) };
        let parts = vec![Part::told(known, ["", reason, why, ""].map(text))];
        let stats = ds_stats { input_bytes, output_bytes, iterations, total_ns, hops, ..ds_stats::of(&Ran::default()) };
        Self { bytes: followed.result, stats, parts, log: Vec::new(), blocks: Vec::new() }
    }

    /// So is a kernel.
    pub(crate) fn of_launch(ran: KernelRan) -> Self {
        let (input_bytes, output_bytes, iterations) = (ran.read_bytes, ran.result.len() as u64, ran.back_edges);
        let (queue_ns, wait_ns) = (ns(ran.queue), ns(ran.wait));
        let (run_ns, total_ns) = (ns(ran.run), ns(ran.total));
        let (reason, why) = match ran.side {
            Side::Host => ("here", "host: no one target has all of its files"),
            Side::Device => ("in_place", "device: it has all of the files"),
        };
        let known = ds_part {
            input_bytes,
            output_bytes,
            iterations,
            queue_ns,
            wait_ns,
            run_ns,
            total_ns,
            ..ds_part::at(ran.side)
        };
        let parts = vec![Part::told(known, ["", reason, why, ""].map(text))];
        let stats = ds_stats {
            input_bytes,
            output_bytes,
            written_bytes: ran.written_bytes,
            iterations,
            queue_ns,
            wait_ns,
            run_ns,
            total_ns,
            ..ds_stats::of(&Ran::default())
        };
        let blocks = ran.blocks.map_or_else(Vec::new, |blocks| blocks.bits().to_vec());
        let log = ran.log.iter().map(|line| text(line)).collect();
        Self { bytes: ran.result, stats, parts, log, blocks }
    }

    /// The mask of a kernel's result; none: it was given back whole.
    pub(crate) fn blocks(&self) -> &[u8] {
        &self.blocks
    }
}

impl Part {
    fn of(ran: &Ran, part: &RanPart) -> Self {
        let refused = ran.refusals.iter().find(|(name, _)| *name == part.name);
        let decided = ran.decisions.iter().find(|(name, _)| *name == part.name);
        let (reason, why) = match (refused, decided) {
            (Some((_, why)), _) => ("refused", format!("host, through the file system: {why}")),
            (None, Some((_, decision))) => (decision.reason.name(), decision.to_string()),
            (None, None) => ("here", "host: the data is here".to_owned()),
        };
        let known = ds_part {
            from: part.range.start,
            to: part.range.end,
            input_bytes: part.input_bytes,
            output_bytes: part.output_bytes,
            iterations: part.back_edges,
            queue_ns: ns(part.queue),
            wait_ns: ns(part.wait),
            run_ns: ns(part.run),
            total_ns: ns(part.total),
            fold_ns: part.fold.map_or(0, ns),
            ..ds_part::at(part.side)
        };
        Self::told(known, [part.name.as_str(), reason, &why, part.tier.map_or("", Tier::name)].map(text))
    }

    /// Bytes of strings stay where they are when their owner moves.
    fn told(part: ds_part, words: [CString; 4]) -> Self {
        let [name, reason, why, tier] = words.each_ref().map(|word| word.as_ptr());
        Self { part: ds_part { name, reason, why, tier, ..part }, _words: words }
    }
}

impl ds_stats {
    fn of(ran: &Ran) -> Self {
        let sum = |of: fn(&RanPart) -> u64| ran.parts.iter().map(of).sum();
        Self {
            size: size_of::<Self>(),
            input_bytes: ran.input_bytes,
            output_bytes: sum(|part| part.output_bytes),
            written_bytes: ran.written_bytes,
            sent_bytes: ran.sent_bytes,
            received_bytes: ran.received_bytes,
            iterations: sum(|part| part.back_edges),
            queue_ns: sum(|part| ns(part.queue)),
            wait_ns: sum(|part| ns(part.wait)),
            run_ns: sum(|part| ns(part.run)),
            total_ns: ns(ran.total),
            hops: 0,
            log_dropped: ran.log.1,
            returned: ran.returned().unwrap_or(0),
            fold_ns: sum(|part| part.fold.map_or(0, ns)).saturating_add(ns(ran.fold)),
        }
    }
}

impl ds_part {
    /// Nothing is known but where it ran.
    fn at(side: Side) -> Self {
        let place = match side {
            Side::Host => ds_place::DS_HOST,
            Side::Device => ds_place::DS_DEVICE,
        };
        Self {
            size: size_of::<Self>(),
            name: std::ptr::null(),
            from: 0,
            to: 0,
            reason: std::ptr::null(),
            why: std::ptr::null(),
            tier: std::ptr::null(),
            place: place as i32,
            reserved: 0,
            input_bytes: 0,
            output_bytes: 0,
            iterations: 0,
            queue_ns: 0,
            wait_ns: 0,
            run_ns: 0,
            total_ns: 0,
            fold_ns: 0,
        }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Text for C, which ends at a NUL.
fn text(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}
