//! Tables at a server, and lookups in them.

use crate::plan::{Plan, TableFile};
use crate::table::{self, Answer, TABLES_MAX, TableFacts, Unsupported};
use diskside::host::function::{
    CallOutcome, Compute, Endpoint, Files, FunctionError, FunctionKind, FunctionRequest, Outcome, Program, RemoteCall,
    RemoteFile,
};
use diskside::host::mounted::{
    Counters, MountedCalls, MountedFile, MountedOptions, Reason, Refusal, place_of, volume_urls,
};
use diskside::host::{ConnectOptions, Connection, Url, Volume};
use diskside::session::{Session, SessionError, SessionOptions};
use diskside::wire::file::FileFlags;
use diskside::{ExportUrl, library};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The object with both functions.
const FUNCTIONS: &str = "sst_get";
/// Room for a value, until a longer one is met.
const VALUE_ROOM: usize = 8 << 10;
/// Most bytes of scratch of a traversal.
const SCRATCH_LEN_MAX: usize = 1 << 20;

/// The directory of a database, as a server has it. Any number of threads look up in it at a time.
#[derive(Debug)]
pub struct Store {
    compute: Compute,
    program: Program,
    place: Place,
    /// Those that were opened, by number. `None` in a table's place is not kept: it is tried again.
    tables: Mutex<HashMap<u64, Arc<Table>>>,
    value_room: AtomicUsize,
}

/// How tables are reached.
#[derive(Debug)]
enum Place {
    /// A directory of this machine, in a file system that is mounted from a volume.
    Mounted { volume: Box<Volume>, directory: PathBuf, options: MountedOptions },
    /// A directory of an export: its path from the export's name on.
    Exported { files: Files, directory: Vec<u8> },
}

/// A table that is open.
#[derive(Debug)]
struct Table {
    bytes: Bytes,
    facts: TableFacts,
}

#[derive(Debug)]
enum Bytes {
    Mounted(MountedCalls),
    Exported(RemoteFile),
}

/// Why a lookup has to be made in another way. None of these says anything about the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// More tables may have the key than a lookup can visit.
    #[error("more than {TABLES_MAX} tables may have the key")]
    TooManyTables,
    /// A table, or a record in it.
    #[error("a table cannot be searched at the server: {}", .0.name())]
    Unsupported(Unsupported),
    /// The bytes of a table on a mounted volume cannot be proved to be its own.
    #[error(transparent)]
    Mounted(#[from] Refusal),
    /// The server, or the way to it.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The function gave something else than an answer.
    #[error("the function's answer has another form")]
    Form,
}

impl Refused {
    /// A short name for counters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooManyTables => "too-many-tables",
            Self::Unsupported(reason) => reason.name(),
            Self::Mounted(refusal) => refusal.reason.name(),
            Self::Function(_) => "server",
            Self::Form => "form",
        }
    }
}

/// Why the tables of a directory cannot be searched at a server at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory is not on a volume that is mounted here.
    #[error("{directory}: {refusal}")]
    Mounted {
        /// The directory.
        directory: PathBuf,
        /// Why it is not.
        refusal: Refusal,
    },
    /// The server cannot be reached.
    #[error(transparent)]
    Host(#[from] diskside::host::HostError),
    /// The server of an export cannot be reached, or runs no functions.
    #[error(transparent)]
    Session(#[from] Box<SessionError>),
    /// It does not run the functions.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The functions are not in this build.
    #[error(transparent)]
    Library(#[from] diskside::ResolveError),
}

impl Store {
    /// A directory of this machine, in a file system that is mounted from a volume: by `nvme connect` or `diskside attach`.
    ///
    /// # Errors
    /// Why its files cannot be read at the volume.
    pub fn mounted(directory: &Path, connect: &ConnectOptions) -> Result<Self, OpenError> {
        let failed = |refusal| OpenError::Mounted { directory: directory.to_owned(), refusal };
        let open = File::open(directory).map_err(|e| failed(Refusal::failed("opening it", e)))?;
        // Files that a volume's file system keeps of a directory cannot be read at it; where the directory is can be
        // reported.
        let urls = place_of(&probe(directory).unwrap_or(open)).and_then(|place| volume_urls(&place)).map_err(failed)?;
        let mut why = failed(Refusal::from(Reason::UnknownDisk));
        for url in urls {
            match Self::on_volume(directory, &url, connect) {
                Ok(store) => return Ok(store),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The same, on the volume at this URL.
    ///
    /// # Errors
    /// Why its files cannot be read there.
    pub fn on_volume(directory: &Path, url: &Url, connect: &ConnectOptions) -> Result<Self, OpenError> {
        let volume = Box::new(Volume::connect(url, connect)?);
        let compute = Compute::new(volume.connection())?;
        let (directory, options) = (directory.to_owned(), MountedOptions::default());
        Self::new(compute, Place::Mounted { volume, directory, options })
    }

    /// A directory of an export: `diskside://SERVER/EXPORT/DIRECTORY`.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub fn exported(url: &ExportUrl, connect: &ConnectOptions) -> Result<Self, OpenError> {
        let options = SessionOptions { connect: connect.clone(), ..SessionOptions::default() };
        // It finds the subsystem, which such a URL does not name.
        let target = url.one_target().map_err(|error| Box::new(error.into()))?;
        let compute = Session::new(options).compute(&target).map_err(Box::new)?;
        Self::of_export(compute, url.path.clone())
    }

    /// A directory of an export of a server that is connected: its path from the export's name on.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub fn over(connection: &Connection, directory: Vec<u8>) -> Result<Self, OpenError> {
        Self::of_export(Compute::new(connection)?, directory)
    }

    fn of_export(compute: Compute, directory: Vec<u8>) -> Result<Self, OpenError> {
        let files = Files::of(&compute);
        Self::new(compute, Place::Exported { files, directory })
    }

    fn new(compute: Compute, place: Place) -> Result<Self, OpenError> {
        let object = library::object(FUNCTIONS)?;
        let program = compute.load(&object.bytes)?;
        let value_room = AtomicUsize::new(VALUE_ROOM);
        Ok(Self { compute, program, place, tables: Mutex::default(), value_room })
    }

    /// What became of the proofs of mounted files.
    #[must_use]
    pub fn mounted_counters(&self) -> Option<&Arc<Counters>> {
        match &self.place {
            Place::Mounted { options, .. } => Some(&options.counters),
            Place::Exported { .. } => None,
        }
    }

    /// Looks a key up in these tables, the newest first.
    ///
    /// # Errors
    /// Why it has to be looked up in another way.
    pub fn get(&self, tables: &[&TableFile], snapshot: u64, key: &[u8]) -> Result<Answer, Refused> {
        self.begin(tables, snapshot, key)?.wait()
    }

    /// The same, and does not wait: many lookups are under way at a time.
    ///
    /// # Errors
    /// Why it has to be looked up in another way.
    pub fn begin<'a>(&'a self, tables: &[&TableFile], snapshot: u64, key: &[u8]) -> Result<Lookup<'a>, Refused> {
        if tables.len() > TABLES_MAX {
            return Err(Refused::TooManyTables);
        }
        let open = tables.iter().map(|table| self.table(table)).collect::<Result<Vec<_>, _>>()?;
        let facts_of = |(file, table): (&&TableFile, &Arc<Table>)| table.facts.of_last_key(file.largest == key);
        let facts: Vec<TableFacts> = tables.iter().zip(&open).map(facts_of).collect();
        let request = table::get_request(snapshot, &facts, key);
        let numbers = tables.iter().map(|table| table.number).collect();
        let mut lookup = Lookup { store: self, numbers, open, request, started: None };
        lookup.started = Some(lookup.start()?);
        Ok(lookup)
    }

    /// Forgets all tables but those of these plans: also one that a read opened which began before a plan was replaced.
    pub fn keep<'a>(&self, plans: impl IntoIterator<Item = &'a Plan>) {
        let numbers: HashSet<u64> = plans.into_iter().flat_map(Plan::tables).map(|table| table.number).collect();
        let gone: Vec<(u64, Arc<Table>)> = self.lock().extract_if(|number, _| !numbers.contains(number)).collect();
        if !gone.is_empty() {
            // The server hears of it, which takes a round trip for each. Without a thread that happens here.
            let _ = std::thread::Builder::new().name("diskside".into()).spawn(move || drop(gone));
        }
    }

    /// How many tables are open at the server.
    #[must_use]
    pub fn open_tables(&self) -> usize {
        self.lock().len()
    }

    fn table(&self, file: &TableFile) -> Result<Arc<Table>, Refused> {
        if let Some(table) = self.lock().get(&file.number) {
            return Ok(Arc::clone(table));
        }
        // Outside of the lock: two threads may open the same one, and one of them is kept.
        let bytes = self.open(&file.name)?;
        let unknown = [TableFacts::unknown(file.len_bytes)];
        let request = table::facts_request(&unknown);
        let scratch_len = table::scratch_len(&request, 0);
        let result = run(self.start("sst_facts", &[&bytes], &request, scratch_len)?)?;
        let facts = table::facts(&result, 1).ok_or(Refused::Form)?[0];
        let table = Arc::new(Table { bytes, facts });
        Ok(Arc::clone(self.lock().entry(file.number).or_insert(table)))
    }

    fn open(&self, name: &str) -> Result<Bytes, Refused> {
        let name = name.trim_start_matches('/');
        match &self.place {
            Place::Mounted { volume, directory, options } => {
                let file = MountedFile::open(&directory.join(name), volume, options)?;
                Ok(Bytes::Mounted(MountedCalls::new(&Arc::new(file), &self.compute)?))
            }
            Place::Exported { files, directory } => {
                let path = [directory.as_slice(), b"/", name.as_bytes()].concat();
                Ok(Bytes::Exported(files.open(&path, FileFlags::READ)?))
            }
        }
    }

    /// Sends a request over these tables.
    fn start(&self, function: &str, tables: &[&Bytes], input: &[u8], scratch_len: usize) -> Result<Started, Refused> {
        let mut request = FunctionRequest::new(FunctionKind::Traverse, self.program.index);
        request.program_id = self.program.hash;
        request.function = Some(function.to_owned());
        request.args = input.to_vec();
        request.result_len_max = scratch_len as u64;
        let mut tickets: Vec<Proof> = Vec::new();
        for bytes in tables {
            request.sources.push(match bytes {
                Bytes::Mounted(calls) => {
                    let (ticket, endpoint) = calls.begin()?;
                    let file = Arc::clone(calls.file());
                    tickets.push(Box::new(move || file.guard().finish(ticket)));
                    endpoint
                }
                Bytes::Exported(file) => file.endpoint(0, Endpoint::TO_END),
            });
        }
        Ok(Started { call: self.compute.call(&request), tickets })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Table>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Proves, when the answer is there, that a table's bytes were its own all the time.
type Proof = Box<dyn FnOnce() -> Result<(), Refusal> + Send>;

/// A request that is under way.
struct Started {
    call: RemoteCall,
    tickets: Vec<Proof>,
}

/// A lookup that is under way.
pub struct Lookup<'a> {
    store: &'a Store,
    numbers: Vec<u64>,
    open: Vec<Arc<Table>>,
    request: Vec<u8>,
    started: Option<Started>,
}

impl Lookup<'_> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// Why it has to be looked up in another way.
    pub fn wait(mut self) -> Result<Answer, Refused> {
        let mut outcome = self.outcome();
        // The bytes of a table may have moved: then it is asked again where they are.
        if matches!(&outcome, Err(Refused::Mounted(refusal)) if refusal.reason.passes()) {
            outcome = self.again();
        }
        // One that is longer than those before: from now on there is room for it.
        if let Ok(Answer::Unsupported(Unsupported::LongValue(len))) = outcome {
            let room = (len as usize).next_multiple_of(VALUE_ROOM);
            if room <= SCRATCH_LEN_MAX - 2 * VALUE_ROOM {
                self.store.value_room.fetch_max(room, Ordering::Relaxed);
                outcome = self.again();
            }
        }
        match outcome {
            Ok(Answer::Unsupported(reason)) => Err(Refused::Unsupported(reason)),
            Err(error) => {
                // A handle or a program that the server has forgotten: the tables are opened again by the next one.
                let mut tables = self.store.lock();
                self.numbers.iter().for_each(|number| drop(tables.remove(number)));
                Err(error)
            }
            answer => answer,
        }
    }

    fn again(&mut self) -> Result<Answer, Refused> {
        self.started = Some(self.start()?);
        self.outcome()
    }

    fn outcome(&mut self) -> Result<Answer, Refused> {
        let result = run(self.started.take().expect("it was started"))?;
        table::answer(&result).ok_or(Refused::Form)
    }

    fn start(&self) -> Result<Started, Refused> {
        let tables: Vec<&Bytes> = self.open.iter().map(|table| &table.bytes).collect();
        let scratch_len = table::scratch_len(&self.request, self.store.value_room.load(Ordering::Relaxed));
        self.store.start("sst_get", &tables, &self.request, scratch_len)
    }
}

impl std::fmt::Debug for Lookup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

/// Waits for a request. A result, like a failure, counts only if the bytes were the tables'.
fn run(started: Started) -> Result<Vec<u8>, Refused> {
    let Started { call, tickets } = started;
    let outcome = match call.wait() {
        Err(FunctionError::Failed(trailer)) if trailer.outcome == Outcome::Stale && !tickets.is_empty() => {
            return Err(Refusal::new(Reason::Changed, trailer.message.clone()).into());
        }
        outcome => outcome,
    };
    for finish in tickets {
        finish()?;
    }
    let CallOutcome { result, .. } = outcome?;
    Ok(result)
}

/// A file of the directory: every database has one that says which its manifest is.
fn probe(directory: &Path) -> Option<File> {
    File::open(directory.join("CURRENT")).ok()
}
