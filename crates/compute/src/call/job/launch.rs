//! A launch of a kernel: its files, and its result.

use std::io::Write as _;
use std::sync::Arc;

use diskside_engine::kernel::{KERNEL_DEPTH_MAX, KERNEL_FILES_MAX};
use diskside_engine::{CallLimits, DirectPolicy, Launch, Launched};
use diskside_export::FileError;
use diskside_io::Errno;
use diskside_io::bytefile::{ByteFile, Direction};
use diskside_rights::Access;
use diskside_volume::{Volume, VolumeFile};
use diskside_wire::function::{
    DirectAccess, Endpoint, EndpointKind, FunctionRequest, Placement, RecordSplit, Times, Trailer,
};

use super::{Job, Report};
use crate::call::answer::Problem;
use crate::call::plan::{PlannedSink, PlannedSource, tier_of};
use crate::call::trailer::{self, micros};
use crate::schedule::permits::Waited;
use diskside_wire::function::Outcome;

/// A kernel has no use for options of functions over bytes, and each of its files is a whole file or a whole volume.
pub(in crate::call) fn check(request: &FunctionRequest) -> Result<(), Problem> {
    let wrong = |at, told: &str| Err(Problem::in_data_at(at, told));
    if request.sources.len() + request.sinks.len() > KERNEL_FILES_MAX {
        return wrong(10, "a kernel has at most 16 files");
    }
    let is_whole = |endpoint: &Endpoint| (endpoint.offset, endpoint.len) == (0, Endpoint::TO_END);
    let is_file = |endpoint: &Endpoint| matches!(endpoint.kind, EndpointKind::File(_) | EndpointKind::Volume(_));
    let all = || request.sources.iter().chain(&request.sinks);
    if !all().all(|endpoint| is_file(endpoint) && is_whole(endpoint)) {
        return wrong(
            10,
            "the files of a kernel are files of exports, or volumes: entries of type 2 or 1, offset 0, to the end",
        );
    }
    if !request.sinks.iter().all(|sink| sink.placement == Placement::InPlace && !sink.durable) {
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
    Ok(())
}

impl Job {
    /// Runs the kernel, and gives its result to the host.
    pub(super) fn launch(&self, report: &mut Report) -> Trailer {
        let opened = self.open_files();
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
        let Launched { result, stats, log } = match launched {
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
        let sent = writer.write_all(&result);
        (report.result_len, report.sending) = (writer.sent, writer.sending);
        match (sent, writer.failure) {
            (Err(_), Some(failure)) => failure,
            _ => told,
        }
    }

    /// Its files: those that it may read, and those that it may write as well.
    #[expect(clippy::type_complexity, reason = "two lists of the same, to be told apart here only")]
    fn open_files(&self) -> Result<(Vec<Arc<dyn ByteFile>>, Vec<Arc<dyn ByteFile>>), FileError> {
        let (plan, files) = (&self.plan, &self.context.files);
        let mut readable: Vec<Arc<dyn ByteFile>> = Vec::with_capacity(plan.sources.len());
        for source in &plan.sources {
            readable.push(match source {
                PlannedSource::File(handle, _) => Arc::new(files.kernel_file(*handle, false)?),
                PlannedSource::Volume(volume, _) => self.volume_file(volume),
                _ => return Err(no_file()),
            });
        }
        let mut writable: Vec<Arc<dyn ByteFile>> = Vec::with_capacity(plan.sinks.len());
        for sink in &plan.sinks {
            writable.push(match sink {
                PlannedSink::File(handle, _) => Arc::new(files.kernel_file(*handle, true)?),
                PlannedSink::Volume(volume, ..) => self.volume_file(volume),
                _ => return Err(no_file()),
            });
        }
        Ok((readable, writable))
    }

    /// A volume, as long as the host may use it.
    fn volume_file(&self, volume: &Arc<Volume>) -> Arc<dyn ByteFile> {
        let (context, used) = (Arc::clone(&self.context), Arc::clone(volume));
        let may = move |direction| {
            let wanted = if direction == Direction::Write { Access::Write } else { Access::Read };
            if context.right_to(&used, wanted) < wanted || context.reserved(&used, wanted).is_some() {
                return Err(Errno::ACCESS);
            }
            let write =
                (wanted == Access::Write).then(|| context.reservations.begin_write(used.nsid).ok_or(Errno::ACCESS));
            Ok(write.transpose()?.map(|write| Box::new(write) as _))
        };
        Arc::new(VolumeFile::new(Arc::clone(volume), Box::new(may)))
    }
}

/// [`check`] has let no other through.
fn no_file() -> FileError {
    FileError { errno: Errno::INVAL, changed: false, message: "this is no file of a kernel".to_owned() }
}
