//! LLVM beside running calls: what to compile, when, and what became of it.

use super::store::Store;
use super::{Key, OnMiss, TierError, forget_unused, is_same, key};
use crate::turns::{Compiler as Which, Turns};
use diskside_sbpf::activation::{Code, Forms, Program, Tier};
use diskside_sbpf::ir::Module;
use diskside_sbpf_llvm::{CompiledModule, Compiler, compile, intermediate_code};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How LLVM is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LlvmOptions {
    /// The program that compiles.
    pub compiler: Compiler,
    /// A private directory that keeps compiled code for later processes; `None` for none.
    pub store: Option<PathBuf>,
    /// Input that a program has to have run over, in all its calls, before it is compiled.
    pub input_len_min: u64,
}

impl LlvmOptions {
    /// Compiling takes some 50 to 400 ms of another processor. Cranelift's code runs over 64 MiB in ten
    /// to fifty, so before that the program is likely to have ended when better code comes.
    pub const INPUT_LEN_MIN: u64 = 64 << 20;

    /// Names a baseline to compile for, instead of the processor that this runs on.
    pub const BASELINE_VARIABLE: &str = "DISKSIDE_LLVM_BASELINE";

    /// With the compiler that is found here, and the user's cache directory as store. `None` when there
    /// is no compiler, or [`Self::BASELINE_VARIABLE`] names what this processor is not.
    #[must_use]
    pub fn find() -> Option<Self> {
        let mut compiler = Compiler::find()?;
        if let Some(name) = std::env::var_os(Self::BASELINE_VARIABLE) {
            match compiler.with_baseline(&name.to_string_lossy()) {
                Ok(pinned) => compiler = pinned,
                Err(why) => {
                    tracing::warn!("{}: {why}; LLVM is not used", Self::BASELINE_VARIABLE);
                    return None;
                }
            }
        }
        Some(Self { compiler, store: user_store(), input_len_min: Self::INPUT_LEN_MIN })
    }
}

/// Where systemd has a directory made for a service (`$CACHE_DIRECTORY`), else `$XDG_CACHE_HOME/diskside/code`, by default in
/// `$HOME/.cache`. `None` where that is somebody else's: who became another user still has the former one's variables.
fn user_store() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let of_user = || {
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(cache.join("diskside").join("code"))
    };
    let store = absolute("CACHE_DIRECTORY").map(|cache| cache.join("code")).or_else(of_user)?;
    let there = store.ancestors().find_map(|directory| directory.metadata().ok())?;
    (there.uid() == rustix::process::geteuid().as_raw()).then_some(store)
}

/// Input after which it is worth a look into the store.
const LOOK_INPUT_LEN_MIN: u64 = 1 << 20;

/// The programs that LLVM was asked for, and those that are too long.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeStats {
    /// Which program runs in a plainer form than others, and why: the last one.
    pub plainer: Option<String>,
    /// Compiled by this process.
    pub llvm_compiled: u64,
    /// Taken from the store.
    pub llvm_loaded: u64,
    /// Not compiled: another tier continues.
    pub llvm_failed: u64,
    /// Why the last of these was not.
    pub llvm_last_failure: Option<String>,
    /// Time spent on compiling, failures among it.
    pub llvm_time: Duration,
    /// Why the store is not used, when it should be.
    pub store_failure: Option<String>,
}

/// The service. Dropped, it finishes what it is at and ends.
pub(super) struct Llvm {
    shared: Arc<Shared>,
    jobs: Mutex<Option<Sender<Job>>>,
}

struct Shared {
    options: LlvmOptions,
    store: Option<Store>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    programs: HashMap<Key, Entry>,
    /// Looked for so far.
    entries: u64,
    stats: CodeStats,
}

/// A program, and how far it is.
struct Entry {
    module: Arc<Module>,
    number: u64,
    input_len: u64,
    looked: bool,
    state: State,
}

#[derive(Clone)]
enum State {
    /// Nobody has asked yet.
    Idle,
    /// On its way.
    Waiting,
    Ready(Arc<dyn Code>),
    Failed(String),
}

struct Job {
    key: Key,
    forms: Forms,
    name: String,
    /// Whether to compile what the store has not.
    compile: bool,
    /// The turns of the call that asked first.
    turns: Option<Arc<dyn Turns>>,
}

impl Llvm {
    pub(super) fn new(options: LlvmOptions) -> Self {
        let mut progress = Progress::default();
        let store = options.store.as_ref().and_then(|dir| match Store::open(dir, &options.compiler) {
            Ok(store) => Some(store),
            Err(why) => {
                tracing::warn!("compiled code is not kept: {why}");
                progress.stats.store_failure = Some(why);
                None
            }
        });
        let shared = Shared { options, store, progress: Mutex::new(progress), changed: Condvar::new() };
        Self { shared: Arc::new(shared), jobs: Mutex::new(None) }
    }

    pub(super) fn stats(&self) -> CodeStats {
        self.shared.progress().stats.clone()
    }

    /// The code, when it is there.
    pub(super) fn ready(&self, program: &Program) -> Option<Arc<dyn Code>> {
        let mut progress = self.shared.progress();
        match progress.programs.get_mut(&key(program, Tier::Llvm)) {
            Some(Entry { module, state: State::Ready(code), .. }) if is_same(module, program.plain()) => {
                *module = Arc::clone(program.plain());
                Some(Arc::clone(code))
            }
            _ => None,
        }
    }

    /// What it holds of programs.
    pub(super) fn modules(&self) -> HashSet<*const Module> {
        self.shared.progress().programs.values().map(|entry| Arc::as_ptr(&entry.module)).collect()
    }

    /// Counts input; see [`super::CodeCache::ran`].
    pub(super) fn ran(
        &self,
        program: &Program,
        input_len: u64,
        turns: Option<&Arc<dyn Turns>>,
    ) -> Option<Arc<dyn Code>> {
        let mut progress = self.shared.progress();
        let entry = progress.entry(program)?;
        entry.input_len = entry.input_len.saturating_add(input_len);
        let compile = entry.input_len >= self.shared.options.input_len_min;
        let look = self.shared.store.is_some() && !entry.looked && entry.input_len >= LOOK_INPUT_LEN_MIN;
        match &entry.state {
            State::Ready(code) => return Some(Arc::clone(code)),
            State::Idle if compile || look => {}
            _ => return None,
        }
        entry.looked = true;
        entry.state = State::Waiting;
        drop(progress);
        self.send(Job { turns: turns.cloned(), ..Job::new(program, compile) });
        None
    }

    /// The code, however long it takes.
    pub(super) fn wait_for(
        &self,
        program: &Program,
        on_miss: OnMiss<'_>,
    ) -> Result<Result<Arc<dyn Code>, String>, TierError> {
        let mut progress = self.shared.progress();
        loop {
            let Some(entry) = progress.entry(program) else {
                return Ok(Err("another program with the same content hash is being compiled".into()));
            };
            match entry.state.clone() {
                State::Ready(code) => return Ok(Ok(code)),
                State::Failed(why) => return Ok(Err(why)),
                State::Waiting | State::Idle if matches!(on_miss, OnMiss::Fail) => return Err(TierError::NotReady),
                State::Waiting => {
                    progress = self.shared.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
                }
                State::Idle => {
                    entry.state = State::Waiting;
                    drop(progress);
                    // Here, not on the thread: who waits need not queue.
                    let turns = if let OnMiss::Turns(turns) = on_miss { Some(Arc::clone(turns)) } else { None };
                    self.shared.work(&Job { turns, ..Job::new(program, true) });
                    progress = self.shared.progress();
                }
            }
        }
    }

    fn send(&self, job: Job) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.is_none() {
            let (send, receive) = channel();
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("llvm tier".into());
            match thread.spawn(move || shared.work_all(&receive)) {
                Ok(_) => *jobs = Some(send),
                Err(e) => {
                    return self.shared.finish(&job, Err(format!("no thread for the compiler: {e}")), Duration::ZERO);
                }
            }
        }
        if let Some(send) = jobs.as_ref()
            && let Err(unsent) = send.send(job)
        {
            self.shared.finish(&unsent.0, Err("the compiler's thread has ended".into()), Duration::ZERO);
        }
    }
}

impl Job {
    fn new(program: &Program, compile: bool) -> Self {
        Self {
            key: key(program, Tier::Llvm),
            forms: program.forms().clone(),
            name: program.entry().section.clone(),
            compile,
            turns: None,
        }
    }
}

impl Progress {
    /// The entry of a program, made if need be; `None` while another one with its key is compiled.
    fn entry(&mut self, program: &Program) -> Option<&mut Entry> {
        let module = program.plain();
        let key = key(program, Tier::Llvm);
        if !self.programs.contains_key(&key) {
            drop(forget_unused(&mut self.programs, |entry| (Arc::strong_count(&entry.module) == 1, entry.number)));
        }
        self.entries += 1;
        let number = self.entries;
        let new = || Entry { module: Arc::clone(module), number, input_len: 0, looked: false, state: State::Idle };
        let entry = self.programs.entry(key).or_insert_with(new);
        if !is_same(&entry.module, module) {
            if matches!(entry.state, State::Waiting) {
                return None;
            }
            *entry = new();
        }
        entry.module = Arc::clone(module);
        Some(entry)
    }
}

/// Where code came from.
enum Origin {
    Compiled,
    Loaded,
    /// The store has none, and nothing was to be compiled.
    Nowhere,
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work_all(&self, jobs: &Receiver<Job>) {
        jobs.iter().for_each(|job| self.work(&job));
    }

    fn work(&self, job: &Job) {
        let started = Instant::now();
        let made = OnMiss::of(job.turns.as_ref()).run(Which::Thorough, || self.make(job));
        // Others may wait for it, so it is made although the call that asked first has ended.
        let result = made.unwrap_or_else(|| self.make(job));
        self.finish(job, result, started.elapsed());
    }

    fn make(&self, job: &Job) -> Result<(Origin, Option<CompiledModule>), String> {
        let text = self.store.as_ref().map(|store| (store, intermediate_code(job.forms.optimised())));
        if let Some((store, text)) = &text
            && let Some(object) = store.load(text)
        {
            match CompiledModule::from_object(&object) {
                Ok(code) => return Ok((Origin::Loaded, Some(code))),
                Err(e) => tracing::warn!("{}: code in the store is refused: {e}", job.name),
            }
        }
        if !job.compile {
            return Ok((Origin::Nowhere, None));
        }
        let compiled = compile(job.forms.optimised(), &self.options.compiler).map_err(|e| e.to_string())?;
        if let Some((store, text)) = &text
            && let Err(e) = store.save(text, &compiled.object)
        {
            tracing::warn!("{}: compiled code is not kept: {e}", job.name);
        }
        Ok((Origin::Compiled, Some(compiled.code)))
    }

    fn finish(&self, job: &Job, result: Result<(Origin, Option<CompiledModule>), String>, took: Duration) {
        let mut progress = self.progress();
        let stats = &mut progress.stats;
        stats.llvm_time += took;
        let state = match result {
            Ok((origin, Some(code))) => {
                match origin {
                    Origin::Loaded => stats.llvm_loaded += 1,
                    _ => stats.llvm_compiled += 1,
                }
                tracing::debug!("{}: LLVM's code is ready after {} ms", job.name, took.as_millis());
                State::Ready(Arc::new(code))
            }
            Ok((_, None)) => State::Idle,
            Err(why) => {
                tracing::warn!("{}: LLVM did not compile it, Cranelift goes on: {why}", job.name);
                stats.llvm_failed += 1;
                stats.llvm_last_failure = Some(format!("{}: {why}", job.name));
                State::Failed(why)
            }
        };
        if let Some(entry) = progress.programs.get_mut(&job.key) {
            entry.state = state;
        }
        drop(progress);
        self.changed.notify_all();
    }
}
