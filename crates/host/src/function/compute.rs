//! A controller's compute namespace: what it can do, its programs, its calls.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diskside_io::buffer::Buffer;
use diskside_io::request::{block_on, run_here};
use diskside_nvme::Status;
use diskside_nvme::host::CommandError;
use diskside_nvme::wire::CSI_COMPUTE;
use diskside_nvme::wire::{Sqe, cns};
use diskside_trace::{Side, Span};
use diskside_wire::function::{
    CapabilityPage, ClearSelect, ErrorRecord, ErrorRecordsPage, FunctionCommand, FunctionKind, FunctionRequest,
    HelperEntry, ProgramDirectory, ProgramEntry, ProgramImageHeader, REQUEST_LEN_MAX, StateName, StatisticsEntry,
    StatisticsPage, TRAILER_LEN, function_log, program_state,
};

use sha2::{Digest, Sha256};
use zerocopy::FromBytes as _;

use super::call::RemoteCall;
use super::error::FunctionError;
use super::prepared::Prepared;
use super::stream::{FIRST_LEN_BYTES, ResultStream};
use crate::connection::Connection;
use crate::job::{Command, CommandData, CommandFailure};
use crate::task::drive;

/// Longest part of a log page that is read at once.
const LOG_PART_LEN: u32 = 64 << 10;
/// Longest log page that is read: more than any object.
const LOG_LEN_MAX: usize = 64 << 20;
/// Longest part of a program that is loaded at once.
const LOAD_PART_LEN: u32 = 128 << 10;
/// The most bytes of result that a call collects unless its request says otherwise.
const RESULT_LEN_MAX: u64 = 256 << 20;
/// Records of the error log that are searched for a refused command.
const ERROR_RECORDS: u32 = 8;

/// Room for a trailer with its message, so that one Receive brings it with the result.
const TRAILER_ROOM_BYTES: u64 = TRAILER_LEN as u64 + 1024;
/// Bytes of a log page that are read at once, before its length is known.
const LOG_FIRST_LEN: usize = 4096;
/// How often the list of programs is read again when it changed meanwhile.
const DIRECTORY_TRIES: usize = 100;
/// The answers to a load whose index somebody else was faster to take.
const COLLISIONS: [Status; 3] =
    [Status::PROGRAM_IN_USE, Status::PROGRAM_INDEX_NOT_DOWNLOADABLE, Status::INVALID_PROGRAM_INDEX];

/// The compute namespace of a connected controller. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Compute {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connection: Connection,
    nsid: u32,
    capabilities: CapabilityPage,
    helpers: Vec<String>,
    next_tag: AtomicU64,
}

/// A program that a target has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Program index.
    pub index: u16,
    /// SHA-256 of its object.
    pub sha256: [u8; 32],
    /// The first 64 bits of that.
    pub hash: u64,
    /// Name of its first function.
    pub name: String,
    /// Functions in it.
    pub functions: u16,
    /// Bytes of its object.
    pub len_bytes: u32,
    /// Whether it came with the target.
    pub device_defined: bool,
    /// Whether it is active.
    pub active: bool,
    /// Whether this host loaded it.
    pub own: bool,
}

impl Compute {
    /// Finds the compute namespace of a controller.
    pub fn new(connection: &Connection) -> Result<Self, FunctionError> {
        let nsid = find_nsid(connection)?;
        let (lid, len) = (function_log::CAPABILITIES, CapabilityPage::decode_len);
        let page = run_here(read_log(connection.clone(), nsid, lid, 0, len))?;
        let (capabilities, helpers) =
            CapabilityPage::decode(&page).map_err(|e| FunctionError::malformed("capabilities", e))?;
        // Tags are the host's own: anything that a former connection of this controller did not use.
        let next_tag = AtomicU64::new(RandomState::new().hash_one(nsid) << 20);
        let shared = Shared { connection: connection.clone(), nsid, capabilities, helpers, next_tag };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.shared.connection
    }

    /// Namespace identifier.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        self.shared.nsid
    }

    /// What the target can do.
    #[must_use]
    pub fn capabilities(&self) -> &CapabilityPage {
        &self.shared.capabilities
    }

    /// Helpers that functions can call there.
    #[must_use]
    pub fn helpers(&self) -> &[String] {
        &self.shared.helpers
    }

    /// The same with what the target says of each: version, cost, prototype, and a line of help.
    pub fn described_helpers(&self) -> Result<Vec<HelperEntry>, FunctionError> {
        let len = |bytes: &[u8]| {
            CapabilityPage::read_from_prefix(bytes).ok().map(|(page, _): (CapabilityPage, _)| page.len_described())
        };
        let page = run_here(self.log(function_log::CAPABILITIES, 0, len))?;
        CapabilityPage::decode_described(&page).map_err(|e| FunctionError::malformed("capabilities", e))
    }

    /// Runs a request and collects its result. Dropped before its end, the call is cancelled.
    pub fn call(&self, request: &FunctionRequest) -> RemoteCall {
        self.call_with(request, Vec::new())
    }

    /// Runs a request with a host stream, in parts, and collects its result.
    pub fn call_with(&self, request: &FunctionRequest, input: Vec<Buffer>) -> RemoteCall {
        let len_max = if request.result_len_max == 0 { RESULT_LEN_MAX } else { request.result_len_max };
        let len_max = request.sent_len_max(len_max);
        let stream = self.stream(request, input);
        let handle = stream.as_ref().ok().map(ResultStream::handle);
        RemoteCall::new(drive(async move { stream?.collect(len_max).await }), handle)
    }

    /// As [`call`](Self::call), for a result that may have up to `expected_len` bytes: it travels in one round trip, however long.
    pub fn call_expecting(&self, request: &FunctionRequest, expected_len: u64) -> RemoteCall {
        let len_max = request.sent_len_max(request.result_len_max.max(1));
        let stream = self.stream_expecting(request, Vec::new(), expected_len + TRAILER_ROOM_BYTES);
        let handle = stream.as_ref().ok().map(ResultStream::handle);
        RemoteCall::new(drive(async move { stream?.collect(len_max).await }), handle)
    }

    /// Runs a request whose result is read as it comes.
    pub fn stream(&self, request: &FunctionRequest, input: Vec<Buffer>) -> Result<ResultStream, FunctionError> {
        self.stream_expecting(request, input, FIRST_LEN_BYTES.into())
    }

    /// As [`stream`](Self::stream); Receives for so many bytes, trailer included, leave with the request.
    pub(super) fn stream_expecting(
        &self,
        request: &FunctionRequest,
        input: Vec<Buffer>,
        expected_len: u64,
    ) -> Result<ResultStream, FunctionError> {
        let mut span = match request.kind {
            // There are many, and each is short.
            FunctionKind::File => Span::default(),
            _ => Span::begin("call", Side::Client, request.trace),
        };
        let bytes = if span.is_recorded() {
            span.text("diskside.server", self.connection().address());
            let trace = span.context_or(request.trace);
            self.encode(&FunctionRequest { trace, ..request.clone() })?
        } else {
            self.encode(request)?
        };
        Ok(ResultStream::start(self.clone(), request.kind, bytes, input, expected_len, span))
    }

    /// Sends a request that is to run often.
    pub fn prepare(&self, request: &FunctionRequest) -> Result<Prepared, FunctionError> {
        run_here(self.prepare_soon(request))
    }

    /// As [`prepare`](Self::prepare), without a thread that waits.
    pub async fn prepare_soon(&self, request: &FunctionRequest) -> Result<Prepared, FunctionError> {
        Prepared::new(self, &self.encode(request)?).await
    }

    /// Stops the call of a tag. With `wait` it is over when this ends: nothing of it is written any more. Returns
    /// whether it has stopped.
    pub fn cancel(&self, tag: u64, wait: bool, timeout: Duration) -> Result<bool, FunctionError> {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let sqe = Sqe::function_cancel(self.nsid(), tag, wait, self.wait_ms(timeout_ms.max(1)));
        let command = self.command(sqe, CommandData::None);
        let outcome = block_on(self.connection().command_on(self.connection().lane(), command));
        let answer = outcome.result.map_err(|failure| FunctionError::command("cancelling a call", failure))?;
        Ok(answer.result as u32 == 0)
    }

    /// The programs that came with the target, and those that this host loaded.
    pub fn programs(&self) -> Result<Vec<Program>, FunctionError> {
        run_here(self.list())
    }

    async fn list(&self) -> Result<Vec<Program>, FunctionError> {
        for _ in 0..DIRECTORY_TRIES {
            let page = self.log(function_log::PROGRAMS, 0, ProgramDirectory::decode_len).await?;
            let (directory, entries) =
                ProgramDirectory::decode(&page).map_err(|e| FunctionError::malformed("list of programs", e))?;
            // A long one comes in parts, and others load and unload programs between them.
            if page.len() <= LOG_FIRST_LEN || self.directory_generation().await? == directory.generation.get() {
                return Ok(entries.iter().map(Program::new).collect());
            }
        }
        let problem = "it changes faster than it can be read".into();
        Err(FunctionError::Malformed { what: "list of programs", problem })
    }

    async fn directory_generation(&self) -> Result<u64, FunctionError> {
        let page = self.log(function_log::PROGRAMS, 0, |_| Some(size_of::<ProgramDirectory>())).await?;
        let directory = ProgramDirectory::read_from_bytes(&page).ok();
        let problem = || "it has no header".into();
        directory
            .map(|directory| directory.generation.get())
            .ok_or_else(|| FunctionError::Malformed { what: "list of programs", problem: problem() })
    }

    /// The object of a program.
    pub fn object(&self, index: u16) -> Result<Vec<u8>, FunctionError> {
        let page = run_here(self.log(function_log::PROGRAM_IMAGE, index, ProgramImageHeader::decode_len))?;
        let (_, object) = ProgramImageHeader::decode(&page).map_err(|e| FunctionError::malformed("program", e))?;
        Ok(object.to_vec())
    }

    /// Counters of the target.
    pub fn statistics(&self) -> Result<(StatisticsPage, Vec<StatisticsEntry>), FunctionError> {
        run_here(self.statistics_soon())
    }

    /// As [`statistics`](Self::statistics), without a thread that waits.
    pub async fn statistics_soon(&self) -> Result<(StatisticsPage, Vec<StatisticsEntry>), FunctionError> {
        let page = self.log(function_log::STATISTICS, 0, StatisticsPage::decode_len).await?;
        StatisticsPage::decode(&page).map_err(|e| FunctionError::malformed("statistics", e))
    }

    /// What went wrong last on this controller, the newest first.
    pub fn errors(&self) -> Result<Vec<ErrorRecord>, FunctionError> {
        run_here(read_errors(self, ERROR_RECORDS))
    }

    /// Makes sure that the target has this object, known by its SHA-256, active, and returns its program. One that
    /// this host loaded already, or that came with the target, is not loaded again.
    pub fn load(&self, object: &[u8]) -> Result<Program, FunctionError> {
        run_here(self.load_soon(object))
    }

    /// As [`load`](Self::load), without a thread that waits.
    pub async fn load_soon(&self, object: &[u8]) -> Result<Program, FunctionError> {
        let sha256: [u8; 32] = Sha256::digest(object).into();
        let count = self.capabilities().programs.get().min(u32::from(u16::MAX) + 1);
        // With those that somebody loads at this moment, which are in no list.
        let mut taken = BTreeSet::new();
        loop {
            let programs = self.list().await?;
            if let Some(program) = programs.iter().find(|program| program.sha256 == sha256 && program.active) {
                return Ok(program.clone());
            }
            taken.extend(programs.iter().map(|program| program.index));
            let index = (0..count).map(|index| index as u16).find(|index| !taken.contains(index));
            let index = index.ok_or(FunctionError::NoIndex { programs: count })?;
            match load_at(self, index, object).await {
                Ok(()) => break,
                // Somebody else loads, or has loaded, another program there.
                Err(error) if COLLISIONS.iter().any(|&status| error.is_status(status)) => drop(taken.insert(index)),
                Err(error) => return Err(error),
            }
        }
        let loaded = self.list().await?.into_iter().find(|program| program.sha256 == sha256 && program.active);
        loaded.ok_or_else(|| FunctionError::Malformed {
            what: "list of programs",
            problem: "the program that was loaded is not in it under its SHA-256".into(),
        })
    }

    /// Unloads a program of this host; one whose calls run stays.
    pub fn unload(&self, index: u16) -> Result<(), FunctionError> {
        run_here(self.unload_soon(index))
    }

    /// As [`unload`](Self::unload), without a thread that waits.
    pub async fn unload_soon(&self, index: u16) -> Result<(), FunctionError> {
        let admin = |what, sqe| admin(self.connection().clone(), what, sqe, CommandData::None);
        admin("deactivating a program", Sqe::activate_program(self.nsid(), index, false)).await?;
        let unloaded = admin("unloading a program", Sqe::unload_program(self.nsid(), index)).await;
        let Err(error) = unloaded else { return Ok(()) };
        // Calls of it run: it stays as it was.
        drop(admin("activating a program", Sqe::activate_program(self.nsid(), index, true)).await);
        Err(error)
    }

    /// Has the target drop what it kept in memory of a volume for later calls, and what the page cache holds of it; `None`:
    /// of all volumes.
    pub fn clear_cache(&self, nsid: Option<u32>) -> Result<(), FunctionError> {
        self.clear("dropping what is kept", ClearSelect::Cache, nsid.unwrap_or(0).into(), 0..0)
    }

    /// Zeroes a range of a named state of this host. While a call uses the state, this comes behind it and before the next.
    pub fn clear_state(&self, name: &str, range: std::ops::Range<u64>) -> Result<(), FunctionError> {
        self.clear("clearing a state", ClearSelect::State, StateName::id_of(name), range)
    }

    fn clear(
        &self,
        what: &'static str,
        select: ClearSelect,
        id: u64,
        range: std::ops::Range<u64>,
    ) -> Result<(), FunctionError> {
        let command = self.command(Sqe::function_clear(self.nsid(), select, id, range), CommandData::None);
        let cleared = block_on(self.connection().command_on(self.connection().lane(), command)).result;
        let Err(failure) = cleared else { return Ok(()) };
        let error = FunctionError::command(what, failure);
        Err(run_here(self.explain(error, id)))
    }

    pub(super) fn next_tag(&self) -> u64 {
        self.shared.next_tag.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn transfer_len_max(&self) -> u32 {
        self.connection().transfer_len_max()
    }

    /// A timeout at the target that ends before this side loses its patience with the command.
    pub(crate) fn wait_ms(&self, wanted_ms: u32) -> u32 {
        let patience_ms = self.connection().command_timeout().as_millis() / 2;
        wanted_ms.min(u32::try_from(patience_ms).unwrap_or(u32::MAX)).max(1)
    }

    /// Adds to a refused command what the error log says about it.
    pub(super) async fn explain(&self, error: FunctionError, id: u64) -> FunctionError {
        let FunctionError::Command { what, failure, said: None } = error else { return error };
        let mut said = None;
        if let CommandFailure::Command(CommandError::Status { status, .. }) = &failure
            && let Ok(mut records) = read_errors(self, ERROR_RECORDS).await
        {
            // A Send that is refused fails the Receives of its tag as well, with a status of their own.
            records.retain(|record| record.id == id);
            let same = records.iter().position(|record| record.status == *status).unwrap_or(0);
            said = (same < records.len()).then(|| records.swap_remove(same).message);
        }
        FunctionError::Command { what, failure, said: said.filter(|said| !said.is_empty()) }
    }

    fn encode(&self, request: &FunctionRequest) -> Result<Vec<u8>, FunctionError> {
        let len_max = (self.capabilities().request_len_max.get() as usize).min(REQUEST_LEN_MAX);
        let len = request.len_bytes();
        if len > len_max {
            return Err(FunctionError::RequestTooLong { len, len_max });
        }
        Ok(request.encode())
    }

    async fn log(&self, lid: u8, id: u16, len: fn(&[u8]) -> Option<usize>) -> Result<Vec<u8>, FunctionError> {
        read_log(self.connection().clone(), self.nsid(), lid, id, len).await
    }
}

impl Program {
    /// Whether it is a service of the target, such as `scan`, with no object: functions of programs are not called like it.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.len_bytes == 0
    }

    fn new(entry: &ProgramEntry) -> Self {
        let has = |bit: u8| entry.state & bit != 0;
        Self {
            index: entry.pind.get(),
            sha256: entry.sha256,
            hash: entry.program_id.get(),
            name: entry.name(),
            functions: entry.functions.get(),
            len_bytes: entry.len.get(),
            device_defined: has(program_state::DEVICE_DEFINED),
            active: has(program_state::ACTIVE),
            own: has(program_state::OWN),
        }
    }
}

/// Lengths of pages, from their first bytes.
trait PageLen {
    fn decode_len(bytes: &[u8]) -> Option<usize>;
}

macro_rules! page_len {
    ($($page:ty),*) => {
        $(impl PageLen for $page {
            fn decode_len(bytes: &[u8]) -> Option<usize> {
                zerocopy::FromBytes::read_from_prefix(bytes).ok().map(|(page, _): (Self, _)| page.len())
            }
        })*
    };
}

page_len!(CapabilityPage, StatisticsPage, ProgramDirectory, ProgramImageHeader);

fn find_nsid(connection: &Connection) -> Result<u32, FunctionError> {
    let sqe = Sqe::identify(cns::COMMAND_SET_ACTIVE_NAMESPACES, 0, CSI_COMPUTE);
    let data = CommandData::Receive(Buffer::zeroed(4096));
    let listed = run_here(admin(connection.clone(), "looking for a compute namespace", sqe, data));
    let first = |bytes: &[u8]| bytes.first_chunk().map_or(0, |nsid| u32::from_le_bytes(*nsid));
    match listed {
        Ok((_, Some(buffer))) if first(&buffer) != 0 => Ok(first(&buffer)),
        // A target that knows no such command set may refuse the question.
        Ok(_) | Err(FunctionError::Command { failure: CommandFailure::Command(CommandError::Status { .. }), .. }) => {
            Err(FunctionError::NoCompute { subsystem: connection.controller().subsystem.as_str().to_owned() })
        }
        Err(error) => Err(error),
    }
}

/// An admin command. These may be sent again after a loss: each is idempotent.
async fn admin(
    connection: Connection,
    what: &'static str,
    sqe: Sqe,
    data: CommandData,
) -> Result<(u64, Option<Buffer>), FunctionError> {
    let outcome = connection.command(Command { sqe, data, timeout: None, repeatable: true }).await;
    let answer = outcome.result.map_err(|failure| FunctionError::command(what, failure))?;
    Ok((answer.result, outcome.buffer))
}

/// A whole log page. `len` tells its length from its first bytes.
async fn read_log(
    connection: Connection,
    nsid: u32,
    lid: u8,
    id: u16,
    len: fn(&[u8]) -> Option<usize>,
) -> Result<Vec<u8>, FunctionError> {
    let mut page = Vec::new();
    let mut wanted = LOG_FIRST_LEN;
    while page.len() < wanted {
        let part = (wanted - page.len()).next_multiple_of(4).min(LOG_PART_LEN as usize);
        let sqe = Sqe::get_log_page(lid, page.len() as u64, part as u32, CSI_COMPUTE, true)
            .with_log_specific_id(id)
            .with_nsid(nsid);
        let data = CommandData::Receive(Buffer::zeroed(part));
        let (_, buffer) = admin(connection.clone(), "reading a log page", sqe, data).await?;
        page.extend_from_slice(&buffer.unwrap_or_else(|| Buffer::zeroed(0)));
        wanted = len(&page).filter(|len| *len <= LOG_LEN_MAX).ok_or_else(|| FunctionError::Malformed {
            what: "log page",
            problem: format!("page {lid:#04x} does not tell its length, or one that cannot be"),
        })?;
    }
    page.truncate(wanted);
    Ok(page)
}

async fn read_errors(compute: &Compute, records: u32) -> Result<Vec<ErrorRecord>, FunctionError> {
    let len = 64 + records * ErrorRecord::LEN as u32;
    let sqe = Sqe::get_log_page(function_log::ERRORS, 0, len, CSI_COMPUTE, true).with_nsid(compute.nsid());
    let data = CommandData::Receive(Buffer::zeroed(len as usize));
    let (_, buffer) = admin(compute.connection().clone(), "reading the error log", sqe, data).await?;
    let bytes = buffer.unwrap_or_else(|| Buffer::zeroed(0));
    ErrorRecordsPage::decode(&bytes).map_err(|e| FunctionError::malformed("error log", e))
}

/// Loads an object in parts, and activates it.
async fn load_at(compute: &Compute, index: u16, object: &[u8]) -> Result<(), FunctionError> {
    let (nsid, connection) = (compute.nsid(), compute.connection().clone());
    let part_len = LOAD_PART_LEN.min(compute.transfer_len_max()) as usize;
    for (at, part) in object.chunks(part_len).enumerate() {
        let offset = (at * part_len) as u32;
        let sqe = Sqe::load_program(nsid, index, object.len() as u32, offset, part.len() as u32);
        let data = CommandData::Send(Buffer::copy_of(part));
        if let Err(error) = admin(connection.clone(), "loading a program", sqe, data).await {
            return Err(compute.explain(error, index.into()).await);
        }
    }
    let activate = Sqe::activate_program(nsid, index, true);
    match admin(connection, "activating a program", activate, CommandData::None).await {
        Ok(_) => Ok(()),
        Err(error) => Err(compute.explain(error, index.into()).await),
    }
}
