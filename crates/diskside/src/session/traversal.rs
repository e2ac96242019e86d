//! Functions that follow pointers: at the target that has the files, or here, read by read.

use super::error::{FailureKind, SessionError, kind_of_trap};
use super::file::File;
use super::link::Link;
use super::patience::Patience;
use super::pending::Pending;
use super::place::{Place, is_lost_program, is_stale_handle};
use super::run::{RunOptions, Where};
use super::{Session, Side};
use crate::library::{self, ResolveError};
use diskside_engine::traverse::{TraverseError, TraverseFault, TraverseRead, TraverseRequest, TraverseSource};
use diskside_engine::{TierChoice, TraverseFunction, TraverseLimits};
use diskside_host::function::{CallOutcome, FunctionError, FunctionKind, FunctionRequest, Outcome};
use diskside_host::own_thread;
use diskside_io::buffer::Buffer;
use diskside_nvme::Status;
use diskside_sbpf::activation::Tier;
use diskside_wire::function::{Class, TierHint};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A function of kind `traverse` or `xrp` with its object, so that targets can have it too. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct SessionTraversal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    function: TraverseFunction,
    object: Vec<u8>,
    /// The target that refused it last.
    refusal: Mutex<Option<Refusal>>,
}

#[derive(Debug)]
struct Refusal {
    by: Weak<Link>,
    at: Instant,
    why: String,
}

/// So long a target that refused a function is not asked for it again: its answer may take several round trips.
const REFUSAL_HOLDS: Duration = Duration::from_secs(10);

/// What a function that follows pointers found, and how.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Its result.
    pub result: Vec<u8>,
    /// Where it ran.
    pub side: Side,
    /// Why the target did not run it, if it has all of the files and was asked: then it ran here.
    pub refused: Option<String>,
    /// Steps.
    pub hops: u32,
    /// Bytes that were asked for.
    pub read_bytes: u64,
    /// Loop iterations.
    pub back_edges: u64,
    /// From the request to the result.
    pub total: Duration,
}

impl SessionTraversal {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.function.name()
    }

    /// Why this target will not run it, as it said not long ago.
    fn refusal(&self, link: &Arc<Link>) -> Option<String> {
        let refusal = self.inner.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = refusal.as_ref().filter(|refusal| refusal.at.elapsed() < REFUSAL_HOLDS)?;
        std::ptr::eq(refusal.by.as_ptr(), Arc::as_ptr(link)).then(|| refusal.why.clone())
    }

    fn note_refusal(&self, link: &Arc<Link>, why: &str) {
        let refusal = Refusal { by: Arc::downgrade(link), at: Instant::now(), why: why.to_owned() };
        *self.inner.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
    }

    fn hash(&self) -> u64 {
        self.inner.function.program().image().content_hash
    }

    /// SHA-256 of its object, by which targets know it.
    fn sha256(&self) -> [u8; 32] {
        self.inner.function.program().image().sha256
    }
}

impl Session {
    /// Finds a function that follows pointers, as [`function`](Self::function) finds others.
    pub fn traversal(&self, what: &str) -> Result<SessionTraversal, ResolveError> {
        let object = library::object(what)?;
        let function = self.engine().load_traversal(&object.bytes, object.function.as_deref());
        let function = function.map_err(|source| ResolveError::Load { what: object.what, source })?;
        Ok(SessionTraversal { inner: Arc::new(Inner { function, object: object.bytes, refusal: Mutex::default() }) })
    }

    /// Follows pointers over files, which the function knows by their place in this list. `input` is what scratch begins
    /// with; of scratch, as long as is said, the function makes its result.
    ///
    /// It runs at the target that has all of the files, in one round trip. Files of this machine, files of several targets,
    /// and [`Where::Host`] are followed here, where each read waits for the one before. So are, unless it is to be
    /// [`Where::Device`], files whose target refuses the function: because it is older and lacks a helper, or this host may load
    /// no programs there, or no more of them.
    pub fn traverse(
        &self,
        files: &[File],
        function: &SessionTraversal,
        input: &[u8],
        scratch_len: u32,
        options: &RunOptions,
    ) -> Pending<Followed> {
        let request = Request {
            session: self.clone(),
            files: files.to_vec(),
            function: function.clone(),
            input: input.to_vec(),
            scratch_len,
        };
        Pending::run(options, move |options| async move {
            let (mut span, options) = options.begin_span("traverse", request.function.name());
            request.run_over_copies(&options).await.inspect_err(|error| span.fail(error))
        })
    }
}

struct Request {
    session: Session,
    files: Vec<File>,
    function: SessionTraversal,
    input: Vec<u8>,
    scratch_len: u32,
}

impl Request {
    /// It begins again at another server when one of several vanishes.
    async fn run_over_copies(mut self, options: &RunOptions) -> Result<Followed, SessionError> {
        let (files, mut tries) = (std::mem::take(&mut self.files), options.tries());
        loop {
            self.files = tries.files(&files).await?;
            match self.run(&options.left(&tries)).await {
                Ok(followed) => return Ok(followed),
                Err(error) => tries.go_on(&self.files, error)?,
            }
        }
    }

    async fn run(&self, options: &RunOptions) -> Result<Followed, SessionError> {
        let started = Instant::now();
        let followed = match self.target(options)? {
            Some(link) if options.place == Where::Auto => match self.try_at_target(link, options).await? {
                Ok(followed) => followed,
                Err(why) => {
                    own_thread().await;
                    Followed { refused: Some(why), ..self.here(options)? }
                }
            },
            Some(link) => self.at_target(link, options).await?,
            None => {
                own_thread().await;
                self.here(options)?
            }
        };
        Ok(Followed { total: started.elapsed(), ..followed })
    }

    /// What errors call its files.
    fn name(&self) -> String {
        let names: Vec<&str> = self.files.iter().map(|file| file.inner.name.as_str()).collect();
        names.join(", ")
    }

    /// The target that has all files; `None`: it runs here.
    fn target(&self, options: &RunOptions) -> Result<Option<&Arc<Link>>, SessionError> {
        let Some(first) = self.files.first() else {
            let why = "a function that follows pointers needs a file";
            return Err(SessionError::Unsupported { name: self.function.name().to_owned(), why });
        };
        if options.place == Where::Host {
            return Ok(None);
        }
        let link = first.inner.place.link();
        let link = link.filter(|link| {
            self.files.iter().all(|file| file.inner.place.link().is_some_and(|other| Arc::ptr_eq(link, other)))
        });
        match (link, options.place) {
            (Some(link), Where::Device) => link.compute().map(|_| Some(link)),
            (Some(link), _) => Ok(Some(link).filter(|link| link.compute().is_ok())),
            (None, Where::Device) => {
                let why =
                    "no one target serves all of these files, so there is no device to follow pointers at: choose \
                           auto or host"
                        .to_owned();
                Err(SessionError::NoDevice { name: self.name(), why })
            }
            (None, _) => Ok(None),
        }
    }

    /// `Err` within: why the target refuses it.
    async fn try_at_target(
        &self,
        link: &Arc<Link>,
        options: &RunOptions,
    ) -> Result<Result<Followed, String>, SessionError> {
        if let Some(why) = self.function.refusal(link) {
            return Ok(Err(why));
        }
        match self.at_target(link, options).await {
            Err(error) if error.function().is_some_and(is_refused) => {
                let why = error.to_string();
                self.function.note_refusal(link, &why);
                Ok(Err(why))
            }
            followed => followed.map(Ok),
        }
    }

    async fn at_target(&self, link: &Arc<Link>, options: &RunOptions) -> Result<Followed, SessionError> {
        let mut outcome = self.call(link, options).await?;
        if let Err(error) = &outcome
            && self.can_repeat(link, error).await?
        {
            // It has no effects, so it may run again.
            outcome = self.call(link, options).await?;
        }
        let CallOutcome { result, trailer, total, .. } = outcome.map_err(|error| self.failed_there(error))?;
        let (hops, read_bytes, back_edges) = (trailer.hop, trailer.media_read, trailer.back_edges);
        Ok(Followed { result, side: Side::Device, refused: None, hops, read_bytes, back_edges, total })
    }

    async fn call(
        &self,
        link: &Arc<Link>,
        options: &RunOptions,
    ) -> Result<Result<CallOutcome, FunctionError>, SessionError> {
        let program = link.program_of(self.function.sha256(), &self.function.inner.object).await?;
        let mut request = FunctionRequest::new(FunctionKind::Traverse, program.index);
        request.program_id = self.function.hash();
        request.function = Some(self.function.name().to_owned());
        for file in &self.files {
            request.sources.extend(file.inner.place.endpoint(0, u64::MAX).await);
        }
        request.args.clone_from(&self.input);
        request.trace = options.trace;
        request.result_len_max = self.scratch_len.into();
        request.budget = options.limits.budget_or(0);
        let saturated = |limit: Duration| u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1);
        request.deadline_ms = options.limits.deadline.map_or(0, saturated);
        request.class = if options.background { Class::Background } else { Class::Normal };
        request.tier = match options.tier {
            TierChoice::Only(Tier::Interpreter) => TierHint::Interpreter,
            TierChoice::Only(Tier::Cranelift) => TierHint::Cranelift,
            _ => TierHint::Best,
        };
        let _running = link.begin();
        let call = link.compute()?.call(&request);
        let _watch = call.handle().and_then(|call| options.watch(call));
        let outcome = Patience::new(options.limits.cancel.as_ref()).answer(call).await;
        outcome.ok_or_else(|| SessionError::Cancelled(self.name()))
    }

    /// Whether a request that failed so may succeed now. Gets again what the target has forgotten.
    async fn can_repeat(&self, link: &Arc<Link>, error: &FunctionError) -> Result<bool, SessionError> {
        if is_lost_program(error) || error.is_loss() {
            link.forget_programs();
            return Ok(true);
        }
        if !is_stale_handle(error) {
            return Ok(false);
        }
        for file in &self.files {
            if let Place::Export(remote) = &file.inner.place {
                remote.reopen().await.map_err(|error| SessionError::device(&file.inner.name, error))?;
            }
        }
        Ok(true)
    }

    fn here(&self, options: &RunOptions) -> Result<Followed, SessionError> {
        let lens = self.files.iter().map(File::len_bytes).collect::<Result<Vec<_>, _>>()?;
        let mut limits = TraverseLimits::default();
        limits.edges_max = options.limits.budget_or(limits.edges_max);
        // A step has no loop to make vectors of.
        let tier = match options.tier {
            TierChoice::Only(Tier::Interpreter) => options.tier,
            _ => TierChoice::Only(Tier::Cranelift),
        };
        let traversal = self.session.engine().traversal(&self.function.inner.function, tier, limits);
        let mut traversal = traversal.map_err(diskside_engine::CallError::Tier)?;
        let request = TraverseRequest {
            first: &[],
            files: &lens,
            input: &self.input,
            scratch_cap: self.scratch_len as usize,
            deadline: options.limits.deadline.and_then(|limit| Instant::now().checked_add(limit)),
        };
        let mut source = Reader { files: &self.files, options, buffer: Buffer::zeroed(0) };
        let result = traversal.run(&request, &mut source).map(<[u8]>::to_vec);
        let result = result.map_err(|error| match options.is_cancelled() {
            true => SessionError::Cancelled(self.name()),
            false => self.failed_here(&error),
        })?;
        let (hops, read_bytes, back_edges) = (traversal.hops(), traversal.read_bytes(), traversal.edges());
        let total = Duration::ZERO;
        Ok(Followed { result, side: Side::Host, refused: None, hops, read_bytes, back_edges, total })
    }

    /// The same as a target says it.
    fn failed_here(&self, error: &TraverseError) -> SessionError {
        let (kind, errno) = match &error.fault {
            TraverseFault::Trapped { trap, .. } => (kind_of_trap(trap.kind), None),
            TraverseFault::Errno { code } => {
                (FailureKind::Returned, code.checked_neg().and_then(|errno| i32::try_from(errno).ok()))
            }
            TraverseFault::ResultTooLong { .. } => (FailureKind::OutputFull, None),
            TraverseFault::Read { errno, .. } => (FailureKind::Environment, Some(*errno)),
            TraverseFault::Deadline => (FailureKind::Deadline, None),
            TraverseFault::Cancelled => (FailureKind::Cancelled, None),
            TraverseFault::TooManyHops(_) | TraverseFault::TooManyBytes(_) | TraverseFault::TooManyReads(_) => {
                (FailureKind::Budget, None)
            }
            // What a step asked for and cannot be.
            _ => (FailureKind::Returned, Some(diskside_io::Errno::INVAL.raw_os_error())),
        };
        SessionError::Traversal { name: self.name(), kind, errno, why: error.to_string() }
    }

    fn failed_there(&self, error: FunctionError) -> SessionError {
        let errno = error.errno();
        match error {
            // For a function that was begun, not for a file that could not be used.
            FunctionError::Failed(trailer) if trailer.outcome == Outcome::Errno => {
                let (name, why) = (self.name(), trailer.message);
                SessionError::Traversal { name, kind: FailureKind::Returned, errno, why }
            }
            error => SessionError::device(&self.name(), error),
        }
    }
}

/// Whether a target does not take a program, or does not begin a call of it: what it would do here is not known from that.
fn is_refused(error: &FunctionError) -> bool {
    let refusals = [
        Status::INVALID_PROGRAM_DATA,
        Status::INVALID_PROGRAM_TYPE,
        Status::INSUFFICIENT_PROGRAM_RESOURCES,
        Status::MAXIMUM_PROGRAMS_ACTIVATED,
        Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED,
        Status::PROGRAM_TOO_BIG,
        Status::FUNCTION_KIND_NOT_SUPPORTED,
        Status::OPERATION_DENIED,
    ];
    matches!(error, FunctionError::NoIndex { .. })
        || error.trailer().is_some_and(|trailer| trailer.outcome == Outcome::Refused)
        || refusals.iter().any(|status| error.is_status(*status))
}

/// Reads of the files, wherever each is.
struct Reader<'a> {
    files: &'a [File],
    options: &'a RunOptions,
    buffer: Buffer,
}

impl TraverseSource for Reader<'_> {
    fn read(&mut self, read: &TraverseRead) -> io::Result<&[u8]> {
        if self.options.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let file = self.files.get(read.file as usize).ok_or(io::ErrorKind::NotFound)?;
        let len = usize::try_from(read.len).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.buffer = file.pread(read.offset, len).wait()?;
        if self.buffer.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&self.buffer[..len])
    }
}
