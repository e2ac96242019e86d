//! Functions that read and write files themselves: at the target that has the files, or here.
//!
//! A kernel has effects: a launch whose end is not known is not repeated.

use super::error::SessionError;
use super::file::File;
use super::link::Link;
use super::pending::Pending;
use super::place::{Place, is_lost_program, is_stale_handle};
use super::run::{RunOptions, Where};
use super::{Session, Side};
use crate::library::{self, ResolveError};
use diskside_engine::kernel::{KERNEL_DEPTH, RESULT_BLOCK_LEN, ResultBlocks, SLICE_LEN};
use diskside_engine::{DirectPolicy, Function, Launch, TierChoice};
use diskside_host::function::{CallOutcome, FunctionError, FunctionKind, FunctionRequest};
use diskside_host::own_thread;
use diskside_io::Errno;
use diskside_io::bytefile::{Access, Begun, ByteFile, Direction, LocalBytes};
use diskside_io::request::{AsyncIo, Request as IoRequest, block_on};
use diskside_sbpf::activation::Tier;
use diskside_wire::function::{Class, DirectAccess, ResultMask, TierHint, Trailer};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A function of kind `kernel` with its object, so that targets can have it too. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct SessionKernel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    function: Function,
    object: Vec<u8>,
}

/// What a kernel gave, and what it took.
#[derive(Clone, Debug)]
pub struct KernelRan {
    /// Its result; blocks that were held back are zeroes.
    pub result: Vec<u8>,
    /// The blocks of the result that were not held back, if some were.
    pub blocks: Option<ResultBlocks>,
    /// Where it ran.
    pub side: Side,
    /// Bytes that it read from its files.
    pub read_bytes: u64,
    /// Bytes that it wrote to them.
    pub written_bytes: u64,
    /// Loop iterations.
    pub back_edges: u64,
    /// Time in which it waited for a thread, or for its turn.
    pub queue: Duration,
    /// Time in which it waited for its files.
    pub wait: Duration,
    /// Time in which it computed.
    pub run: Duration,
    /// From the request to the result.
    pub total: Duration,
    /// Lines that it logged.
    pub log: Vec<String>,
}

impl SessionKernel {
    /// SHA-256 of its object, by which targets know it.
    fn sha256(&self) -> [u8; 32] {
        self.inner.function.main().image().sha256
    }
}

impl Deref for SessionKernel {
    type Target = Function;

    fn deref(&self) -> &Function {
        &self.inner.function
    }
}

impl Session {
    /// Finds a kernel, as [`function`](Self::function) finds functions.
    pub fn kernel(&self, what: &str) -> Result<SessionKernel, ResolveError> {
        let object = library::object(what)?;
        let function = self.engine().load_kernel(&object.bytes, object.function.as_deref());
        let function = function.map_err(|source| ResolveError::Load { what: object.what, source })?;
        Ok(SessionKernel { inner: Arc::new(Inner { function, object: object.bytes }) })
    }

    /// Launches a kernel with its arguments. It knows its files by numbers from 0: `files`, which it may read, and behind
    /// them those of `writable`, which were opened to be written.
    ///
    /// It runs at the target that has all of the files, or here. Of `options` count: where, tier, limits, background,
    /// [`direct`](RunOptions::direct), [`result_blocks`](RunOptions::result_blocks), `depth` (accesses that may be under way) and
    /// `chunk_len` (bytes of a slice).
    pub fn launch(
        &self,
        files: &[File],
        writable: &[File],
        kernel: &SessionKernel,
        args: &[u8],
        options: &RunOptions,
    ) -> Pending<KernelRan> {
        let request = KernelRequest {
            session: self.clone(),
            files: files.to_vec(),
            writable: writable.to_vec(),
            kernel: kernel.clone(),
            args: args.to_vec(),
        };
        Pending::run(options, move |options| async move {
            let (mut span, options) = options.begin_span("launch", request.kernel.name());
            request.run_over_copies(&options).await.inspect_err(|error| span.fail(error))
        })
    }
}

struct KernelRequest {
    session: Session,
    files: Vec<File>,
    writable: Vec<File>,
    kernel: SessionKernel,
    args: Vec<u8>,
}

impl KernelRequest {
    /// A kernel that changes no file is launched again at another server when one of several vanishes.
    async fn run_over_copies(mut self, options: &RunOptions) -> Result<KernelRan, SessionError> {
        self.writable.iter().try_for_each(File::check_writable)?;
        self.check_mask(options)?;
        let (files, mut tries) = (std::mem::take(&mut self.files), options.tries());
        loop {
            self.files = tries.files(&files).await?;
            match self.run(&options.left(&tries)).await {
                Ok(ran) => return Ok(ran),
                Err(error) if !self.writable.is_empty() => return Err(error),
                Err(error) => tries.go_on(&self.files, error)?,
            }
        }
    }

    fn check_mask(&self, options: &RunOptions) -> Result<(), SessionError> {
        let room = options.limits.result_len_max.div_ceil(RESULT_BLOCK_LEN);
        match &options.result_blocks {
            Some(blocks) if blocks.end() > room => {
                let last = blocks.end() - 1;
                let why = format!("block {last} is not in its result, which has room for {room} blocks of 4 KiB");
                Err(SessionError::Input { name: self.kernel.name().to_owned(), why })
            }
            _ => Ok(()),
        }
    }

    async fn run(&self, options: &RunOptions) -> Result<KernelRan, SessionError> {
        let started = Instant::now();
        let ran = match self.target(options)? {
            Some(link) => self.at_target(link, options).await?,
            None => {
                own_thread().await;
                self.here(options)?
            }
        };
        Ok(KernelRan { total: started.elapsed(), ..ran })
    }

    fn all(&self) -> impl Iterator<Item = &File> {
        self.files.iter().chain(&self.writable)
    }

    /// What errors call its files.
    fn name(&self) -> String {
        let names: Vec<&str> = self.all().map(|file| file.inner.name.as_str()).collect();
        if names.is_empty() { self.kernel.name().to_owned() } else { names.join(", ") }
    }

    /// The target that has all files; `None`: it runs here.
    fn target(&self, options: &RunOptions) -> Result<Option<&Arc<Link>>, SessionError> {
        if options.place == Where::Host {
            return Ok(None);
        }
        let link = self.all().next().and_then(|first| first.inner.place.link());
        let has = |link: &Arc<Link>| {
            self.all().all(|file| file.inner.place.link().is_some_and(|other| Arc::ptr_eq(link, other)))
        };
        match (link.filter(|link| has(link)), options.place) {
            (Some(link), Where::Device) => link.compute().map(|_| Some(link)),
            (Some(link), _) => Ok(Some(link).filter(|link| link.compute().is_ok())),
            (None, Where::Device) => {
                let why = "no one target serves all of these files, so there is no device to launch it at: choose auto or host";
                Err(SessionError::NoDevice { name: self.name(), why: why.to_owned() })
            }
            (None, _) => Ok(None),
        }
    }

    async fn at_target(&self, link: &Arc<Link>, options: &RunOptions) -> Result<KernelRan, SessionError> {
        let mut outcome = self.call(link, options).await?;
        if let Err(error) = &outcome
            && self.can_repeat(link, error).await?
        {
            outcome = self.call(link, options).await?;
        }
        let CallOutcome { result, trailer, total, .. } =
            outcome.map_err(|error| SessionError::device(&self.name(), error))?;
        let (result, blocks) = whole_result(result, &trailer, options.limits.result_len_max)
            .map_err(|error| SessionError::device(&self.name(), error))?;
        let us = |us: u32| Duration::from_micros(us.into());
        Ok(KernelRan {
            result,
            blocks,
            side: Side::Device,
            read_bytes: trailer.media_read,
            written_bytes: trailer.media_written,
            back_edges: trailer.back_edges,
            queue: us(trailer.times.queue_us),
            wait: us(trailer.times.read_us),
            run: us(trailer.times.run_us),
            total,
            log: trailer.log,
        })
    }

    async fn call(
        &self,
        link: &Arc<Link>,
        options: &RunOptions,
    ) -> Result<Result<CallOutcome, FunctionError>, SessionError> {
        let program = link.program_of(self.kernel.sha256(), &self.kernel.inner.object).await?;
        let mut request = FunctionRequest::new(FunctionKind::Launch, program.index);
        request.program_id = self.kernel.main().image().content_hash;
        request.function = Some(self.kernel.name().to_owned());
        for (files, endpoints) in [(&self.files, &mut request.sources), (&self.writable, &mut request.sinks)] {
            for file in files {
                endpoints.push(file.endpoint(0, u64::MAX).await?);
            }
        }
        request.args.clone_from(&self.args);
        request.trace = options.trace;
        request.result_len_max = options.limits.result_len_max as u64;
        request.heap_len = Some(options.limits.heap_quota_bytes);
        request.budget = options.limits.budget_or(0);
        let saturated = |limit: Duration| u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1);
        request.deadline_ms = options.limits.deadline.map_or(0, saturated);
        request.class = if options.background { Class::Background } else { Class::Normal };
        request.depth = options.depth.map(|depth| u32::try_from(depth).unwrap_or(u32::MAX));
        request.chunk_len = options.chunk_len.map_or(0, |len| u32::try_from(len).unwrap_or(u32::MAX));
        request.direct = match options.direct {
            DirectPolicy::Off => DirectAccess::Off,
            DirectPolicy::Possible => DirectAccess::Possible,
            DirectPolicy::All => DirectAccess::All,
        };
        request.result_mask = match &options.result_blocks {
            None => ResultMask::Kernel,
            Some(blocks) => ResultMask::Host(blocks.within(options.limits.result_len_max).bits().to_vec()),
        };
        request.tier = match options.tier {
            TierChoice::Only(Tier::Interpreter) => TierHint::Interpreter,
            TierChoice::Only(Tier::Cranelift) => TierHint::Cranelift,
            TierChoice::Only(Tier::Llvm) => TierHint::Llvm,
            TierChoice::Best => TierHint::Best,
        };
        let _running = link.begin();
        let call = link.compute()?.call(&request);
        let _watch = call.handle().and_then(|call| options.watch(call));
        Ok(call.await)
    }

    /// Whether the target has said that it did not begin, because it has forgotten something. Gets that again.
    async fn can_repeat(&self, link: &Arc<Link>, error: &FunctionError) -> Result<bool, SessionError> {
        if is_lost_program(error) {
            link.forget_programs();
            return Ok(true);
        }
        // What the kernel itself returns has a place.
        let is_before = error.trailer().is_some_and(|trailer| trailer.place.is_none() && trailer.media_read == 0);
        if !is_stale_handle(error) || !is_before {
            return Ok(false);
        }
        for file in self.all() {
            if let Place::Export(remote) = &file.inner.place {
                remote.reopen().await.map_err(|error| SessionError::device(&file.inner.name, error))?;
            }
        }
        Ok(true)
    }

    fn here(&self, options: &RunOptions) -> Result<KernelRan, SessionError> {
        let started = Instant::now();
        let open = |file: &File, writable| byte_file(file, writable);
        let launch = Launch {
            files: self.files.iter().map(|file| open(file, false)).collect::<Result<_, _>>()?,
            writable: self.writable.iter().map(|file| open(file, true)).collect::<Result<_, _>>()?,
            result_len_max: options.limits.result_len_max,
            blocks: options.result_blocks.clone(),
            direct: options.direct,
            slice_len: options.chunk_len.unwrap_or(SLICE_LEN),
            depth: options.depth.unwrap_or(KERNEL_DEPTH),
            tier: options.tier,
            limits: options.limits.clone(),
            ..Launch::new(&self.kernel, self.args.clone())
        };
        let launched = self.session.engine().launch(launch)?;
        let io = launched.stats.io;
        Ok(KernelRan {
            result: launched.result.to_vec(),
            blocks: launched.blocks,
            side: Side::Host,
            read_bytes: io.read_bytes,
            written_bytes: io.written_bytes,
            back_edges: launched.stats.edges,
            queue: Duration::ZERO,
            wait: io.waited,
            run: launched.stats.total.saturating_sub(io.waited),
            total: started.elapsed(),
            log: launched.log.0,
        })
    }
}

/// A result as the kernel made it, from what came of it: the blocks that were not held back, with their mask before them.
fn whole_result(
    sent: Vec<u8>,
    trailer: &Trailer,
    len_max: usize,
) -> Result<(Vec<u8>, Option<ResultBlocks>), FunctionError> {
    let mask_len = trailer.hop as usize;
    if mask_len == 0 {
        return Ok((sent, None));
    }
    let whole = || {
        let result_len = usize::try_from(trailer.returned).ok().filter(|len| *len <= len_max)?;
        let (bits, blocks) = sent.split_at_checked(mask_len)?;
        let is_fitting = mask_len == result_len.div_ceil(RESULT_BLOCK_LEN).div_ceil(8);
        let mask = is_fitting.then(|| ResultBlocks::of_bits(bits.to_vec()))?;
        Some((mask.spread(blocks, result_len)?, Some(mask)))
    };
    whole().ok_or_else(|| {
        let problem = format!("a mask of {mask_len} bytes, and blocks that are not those that it names");
        FunctionError::Malformed { what: "result of a kernel", problem }
    })
}

/// A file as a kernel here reads and writes it.
fn byte_file(file: &File, writable: bool) -> Result<Arc<dyn ByteFile>, SessionError> {
    let name = file.inner.name.clone();
    let failed = |source| SessionError::Open { name: name.clone(), source };
    let Place::Local { path, descriptor, .. } = &file.inner.place else {
        return Ok(Arc::new(RemoteBytes { io: file.io()?, name }));
    };
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && !std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
        let why = "a kernel reads and writes at positions: regular files and block devices";
        return Err(SessionError::Unsupported { name, why });
    }
    let bytes = match descriptor {
        Some(descriptor) => descriptor.duplicate().map(|open| LocalBytes::of(name.clone(), open.into(), writable)),
        None => LocalBytes::open(path, writable),
    };
    Ok(Arc::new(bytes.map_err(failed)?))
}

/// A file of a target, whose bytes travel.
struct RemoteBytes {
    io: Arc<dyn AsyncIo>,
    name: String,
}

impl ByteFile for RemoteBytes {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> Result<u64, Errno> {
        self.io.len_bytes().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn begin(&self, access: Access) -> Begun {
        let Access { direction, offset, mut buffer, .. } = access;
        let align = u64::from(self.io.alignment_bytes().max(1));
        if direction == Direction::Read && align > 1 {
            // A volume has an end, and no bytes behind it.
            let len = self.io.len_bytes().map_or(0, |len| len.saturating_sub(offset)).min(buffer.len() as u64);
            buffer.set_len(len as usize);
        }
        if buffer.is_empty() {
            return Begun::at_once(Ok(0), buffer);
        }
        if !offset.is_multiple_of(align) || !(buffer.len() as u64).is_multiple_of(align) {
            // Nobody here keeps others from what is around them meanwhile.
            return Begun::at_once(Err(Errno::INVAL), buffer);
        }
        let future = self.io.submit(match direction {
            Direction::Read => IoRequest::Read { offset, buffer },
            Direction::Write => IoRequest::Write { offset, buffer, durable: false },
        });
        Begun::Elsewhere { future, buffer: None, hold: None }
    }

    fn version(&self) -> Option<u64> {
        None
    }

    fn sync(&self) -> Result<(), Errno> {
        let synced = block_on(self.io.submit(IoRequest::Flush)).into_result();
        synced.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl std::fmt::Debug for RemoteBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteBytes").field("name", &self.name).finish_non_exhaustive()
    }
}
