//! A launch of a kernel: its files, and its result.

use std::io::Write as _;
use std::sync::Arc;

use diskside_engine::kernel::{KERNEL_DEPTH_MAX, KERNEL_FILES_MAX, KERNEL_RESULT_LEN, RESULT_BLOCK_LEN, ResultBlocks};
use diskside_engine::{CallLimits, DirectPolicy, Launch, Launched};
use diskside_export::FileError;
use diskside_io::Errno;
use diskside_io::bytefile::{ByteFile, Direction};
use diskside_rights::Access;
use diskside_volume::{Volume, VolumeFile};
use diskside_wire::function::{
    DirectAccess, Endpoint, EndpointKind, FunctionRequest, Placement, RecordSplit, ResultMask, Times, Trailer,
};

use super::{Job, Report};
use crate::call::answer::Problem;
use crate::call::context::CallContext;
use crate::call::plan::{PlannedSink, PlannedSource, tier_of};
use crate::call::trailer::{self, micros};
use crate::schedule::permits::Waited;
use diskside_wire::function::Outcome;

// Both sides mean the same blocks.
const _: () = assert!(RESULT_BLOCK_LEN as u64 == diskside_wire::function::RESULT_BLOCK_LEN);

/// A kernel has no use for options of functions over bytes, and each of its files is a whole file or a whole volume.
pub(in crate::call) fn check(request: &FunctionRequest) -> Result<(), Problem> {
    let wrong = |at, told: &str| Err(Problem::in_data_at(at, told));
    if request.sources.len() + request.sinks.len() > KERNEL_FILES_MAX {
        return wrong(10, "a kernel has at most 16 files");
    }
    if !request.sources.iter().chain(&request.sinks).all(is_whole_file) {
        return wrong(
            10,
            "the files of a kernel are files of exports, or volumes: entries of type 2 or 1, offset 0, to the end",
        );
    }
    if !request.sinks.iter().all(is_in_place) {
        return wrong(12, "a kernel writes its files in place, and makes them durable itself");
    }
    let is_over_bytes = request.frames
        || request.split != RecordSplit::Program
        || request.part.is_some()
        || request.source_len.is_some()
        || request.state.is_some()
        || request.decompression.is_some()
        || request.chunks.is_some();
    if is_over_bytes {
        return wrong(6, "records, parts, frames, states, chunks and decompression are for functions over bytes");
    }
    if request.depth.is_some_and(|depth| depth == 0 || depth as usize > KERNEL_DEPTH_MAX) {
        return wrong(60, "1 to 64 accesses of a kernel may be under way at a time");
    }
    let blocks_max = result_room(request).div_ceil(RESULT_BLOCK_LEN as u64);
    if host_blocks(request).is_some_and(|blocks| blocks.end() as u64 > blocks_max) {
        return wrong(32, "the mask has blocks behind the room for the result");
    }
    Ok(())
}

/// Whether it can be a file of a kernel.
pub(crate) fn is_whole_file(endpoint: &Endpoint) -> bool {
    let is_file = matches!(endpoint.kind, EndpointKind::File(_) | EndpointKind::Volume(_));
    is_file && (endpoint.offset, endpoint.len) == (0, Endpoint::TO_END)
}

/// Whether a kernel can write it.
pub(crate) fn is_in_place(sink: &Endpoint) -> bool {
    sink.placement == Placement::InPlace && !sink.durable
}

/// Room for the result of a launch.
pub(in crate::call) fn result_room(request: &FunctionRequest) -> u64 {
    if request.result_len_max == 0 { KERNEL_RESULT_LEN as u64 } else { request.result_len_max }
}

/// The blocks of the result that the host says that it wants.
fn host_blocks(request: &FunctionRequest) -> Option<ResultBlocks> {
    match &request.result_mask {
        ResultMask::Host(bits) => Some(ResultBlocks::of_bits(bits.clone())),
        ResultMask::Unknown | ResultMask::Kernel => None,
    }
}

impl Job {
    /// Runs the kernel, and gives its result to the host.
    pub(super) fn launch(&self, report: &mut Report) -> Trailer {
        let opened = open_files(&self.context, &self.plan.sources, &self.plan.sinks);
        let (files, writable) = match opened {
            Ok(opened) => opened,
            Err(error) => return trailer::of_file(&error),
        };
        let (request, limits) = (&self.plan.request, self.plan.limits);
        let waited = Arc::new(Waited::default());
        let launch = Launch {
            files,
            writable,
            result_len_max: usize::try_from(limits.result_len_max).unwrap_or(usize::MAX),
            blocks: host_blocks(request),
            direct: match request.direct {
                DirectAccess::Possible => DirectPolicy::Possible,
                DirectAccess::Off => DirectPolicy::Off,
                DirectAccess::All => DirectPolicy::All,
            },
            slice_len: limits.window_len,
            depth: limits.depth,
            tier: tier_of(request.tier),
            limits: CallLimits {
                budget: (request.budget != 0).then_some(request.budget),
                deadline: Some(limits.deadline.saturating_sub(self.queued.elapsed())),
                cancel: Some(self.control.cancel.clone()),
                heap_quota_bytes: limits.heap_bytes,
                ..CallLimits::default()
            },
            turns: Some(self.turns(&waited)),
            ..Launch::new(&self.plan.function, request.args.clone())
        };
        let launched = self.engine().launch(launch);
        report.queued += waited.total();
        let Launched { result, blocks, stats, log } = match launched {
            Ok(launched) => launched,
            Err(error) => return trailer::of_call(&error),
        };
        let mut told = Trailer::new(Outcome::Ok);
        told.returned = i64::try_from(result.len()).unwrap_or(i64::MAX);
        told.back_edges = stats.edges;
        told.output_bytes = Some(result.len() as u64);
        told.depth = u32::try_from(limits.depth).ok();
        // The time that it waited for its turn and the time that it waited for its files are reported apart.
        let (within, io) = (waited.within(), stats.io.waited);
        let run = stats.total.saturating_sub(io).saturating_sub(waited.total().saturating_sub(within));
        let wait = io.saturating_sub(within);
        told.times = Times { read_us: micros(wait), run_us: micros(run), ..Times::default() };
        told.log = log.0;
        report.reads.media_bytes.store(stats.io.read_bytes, std::sync::atomic::Ordering::Relaxed);
        report.written.written = stats.io.written_bytes;
        let seat = self.context.seat();
        let mut writer = self.result_writer(&seat);
        let sent = match blocks.filter(|_| request.result_mask != ResultMask::Unknown) {
            None => writer.write_all(&result),
            Some(blocks) => {
                told.hop = blocks.bits().len() as u32;
                let ranges = blocks.bytes(result.len()).into_iter();
                let mut parts = std::iter::once(blocks.bits()).chain(ranges.map(|range| &result[range]));
                parts.try_for_each(|part| writer.write_all(part))
            }
        };
        (report.result_len, report.sending) = (writer.sent, writer.sending);
        match (sent, writer.failure) {
            (Err(_), Some(failure)) => failure,
            _ => told,
        }
    }
}

/// The files of a kernel: those that it may read, and those that it may write as well.
pub(crate) type OpenFiles = (Vec<Arc<dyn ByteFile>>, Vec<Arc<dyn ByteFile>>);

/// Opens the files of a kernel.
pub(crate) fn open_files(
    context: &Arc<CallContext>,
    sources: &[PlannedSource],
    sinks: &[PlannedSink],
) -> Result<OpenFiles, FileError> {
    let files = &context.files;
    let mut readable: Vec<Arc<dyn ByteFile>> = Vec::with_capacity(sources.len());
    for source in sources {
        readable.push(match source {
            PlannedSource::File(handle, _) => Arc::new(files.kernel_file(*handle, false)?),
            PlannedSource::Volume(volume, _) => volume_file(context, volume),
            _ => return Err(no_file()),
        });
    }
    let mut writable: Vec<Arc<dyn ByteFile>> = Vec::with_capacity(sinks.len());
    for sink in sinks {
        writable.push(match sink {
            PlannedSink::File(handle, _) => Arc::new(files.kernel_file(*handle, true)?),
            PlannedSink::Volume(volume, ..) => volume_file(context, volume),
            _ => return Err(no_file()),
        });
    }
    Ok((readable, writable))
}

/// A volume, as long as the host may use it.
fn volume_file(context: &Arc<CallContext>, volume: &Arc<Volume>) -> Arc<dyn ByteFile> {
    let (context, used) = (Arc::clone(context), Arc::clone(volume));
    let may = move |direction| {
        let wanted = if direction == Direction::Write { Access::Write } else { Access::Read };
        if context.right_to(&used, wanted) < wanted || context.reserved(&used, wanted).is_some() {
            return Err(Errno::ACCESS);
        }
        let write = (wanted == Access::Write).then(|| context.reservations.begin_write(used.nsid).ok_or(Errno::ACCESS));
        Ok(write.transpose()?.map(|write| Box::new(write) as _))
    };
    Arc::new(VolumeFile::new(Arc::clone(volume), Box::new(may)))
}

/// [`check`] has let no other through.
fn no_file() -> FileError {
    FileError { errno: Errno::INVAL, changed: false, message: "this is no file of a kernel".to_owned() }
}
