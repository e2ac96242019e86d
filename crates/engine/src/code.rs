//! Tiers: which code runs a program, and what is compiled already.
//!
//! Cranelift compiles at once. LLVM, where the engine was given its compiler, takes its time on a thread of its own;
//! calls that run meanwhile take its code at their next chunk. It is asked only for programs that have seen much input
//! ([`LlvmOptions::input_len_min`]), or whose code lies in the store of an earlier process. When it fails, Cranelift
//! continues, and [`CodeStats`] says so. It also says when Cranelift would take more than a load may: then a program
//! runs in a plainer form, at last interpreted.

mod llvm;
mod store;

pub use llvm::{CodeStats, LlvmOptions};

use crate::turns::{Compiler, Turns};
use diskside_sbpf::activation::{Code, Program, Tier};
use diskside_sbpf::image::Kind;
use diskside_sbpf::ir::Module;
use diskside_sbpf_cranelift::CompileError;
use llvm::Llvm;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which tier a call wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TierChoice {
    /// The best that is ready.
    #[default]
    Best,
    /// This one, or an error.
    Only(Tier),
}

/// Why a tier cannot run a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TierError {
    /// The compiler gave up.
    #[error("{tier} cannot compile `{program}`: {reason}")]
    Compile {
        /// Which tier.
        tier: &'static str,
        /// Which program.
        program: String,
        /// What it said.
        reason: String,
    },
    /// It is not compiled yet, and was not to be compiled.
    #[error("it is not compiled yet")]
    NotReady,
    /// The call ended before its program was compiled.
    #[error("the call ended before its program was compiled")]
    CallEnded,
    /// Its compiler is not there.
    #[error(
        "the LLVM tier's compiler is not here: put diskside-llvm beside diskside or into PATH, or name it in DISKSIDE_LLVM; \
         without it, --tier cranelift runs the same functions"
    )]
    Absent,
}

/// Who compiles a program that is not compiled yet.
#[derive(Clone, Copy, Debug)]
pub enum OnMiss<'a> {
    /// The calling thread, at once.
    CallingThread,
    /// The giver of the call's turns: others may have to go first.
    Turns(&'a Arc<dyn Turns>),
    /// Nobody: the answer is [`TierError::NotReady`].
    Fail,
}

impl<'a> OnMiss<'a> {
    /// The turns of a call, if it has any.
    #[must_use]
    pub fn of(turns: Option<&'a Arc<dyn Turns>>) -> Self {
        turns.map_or(Self::CallingThread, Self::Turns)
    }

    /// Runs a compiler. `None`: it was not run, because nobody waits for the call any more.
    fn run<T: Send>(self, compiler: Compiler, work: impl FnOnce() -> T + Send) -> Option<T> {
        let Self::Turns(turns) = self else { return Some(work()) };
        let (mut work, mut result) = (Some(work), None);
        turns.compile(compiler, &mut || result = work.take().map(|work| work()));
        result
    }
}

/// Compiled code by content, so that each program is compiled once. What nobody has loaded any more is kept for a while.
#[derive(Default)]
pub struct CodeCache {
    compiled: Mutex<Compiled>,
    /// Why the last program that runs in a plainer form does.
    plainer: Mutex<Option<String>>,
    llvm: Option<Llvm>,
}

/// Content hash of the object, the program in it, its kind, and the tier.
type Key = (u64, usize, Kind, Tier);

type Compiled = HashMap<Key, Made>;

/// Code, or why its compiler failed.
type CompiledOrNot = Result<Arc<dyn Code>, CompileError>;

/// Code with what it was made from. The hash can be made to collide, so that is compared.
struct Made {
    /// The module of the last caller: it is not loaded any more when nobody else holds it.
    module: Arc<Module>,
    code: CompiledOrNot,
    number: u64,
}

impl CodeCache {
    /// One that compiles with LLVM as well.
    #[must_use]
    pub fn with_llvm(options: LlvmOptions) -> Self {
        Self { llvm: Some(Llvm::new(options)), ..Self::default() }
    }

    /// Whether it compiles with LLVM as well.
    #[must_use]
    pub fn has_llvm(&self) -> bool {
        self.llvm.is_some()
    }

    /// The code of a program in the wanted tier, compiled now if need be.
    ///
    /// # Errors
    /// Why that tier cannot run it: of `Best` only that it is not compiled, because the interpreter runs everything.
    pub fn get(&self, program: &Program, choice: TierChoice, on_miss: OnMiss<'_>) -> Result<Arc<dyn Code>, TierError> {
        match choice {
            TierChoice::Best => {
                if let Some(code) = self.llvm.as_ref().and_then(|llvm| llvm.ready(program)) {
                    return Ok(code);
                }
                match self.get_tier(program, Tier::Cranelift, on_miss) {
                    Err(TierError::Compile { .. }) => self.get_tier(program, Tier::Interpreter, on_miss),
                    other => other,
                }
            }
            TierChoice::Only(tier) => self.get_tier(program, tier, on_miss),
        }
    }

    /// Tells that a program has run over so many bytes of input in this tier. Gives better code when
    /// there is some by now; asks for it when it is worth while.
    pub fn ran(
        &self,
        program: &Program,
        tier: Tier,
        input_len: u64,
        turns: Option<&Arc<dyn Turns>>,
    ) -> Option<Arc<dyn Code>> {
        let llvm = self.llvm.as_ref().filter(|_| tier != Tier::Llvm)?;
        llvm.ran(program, input_len, turns)
    }

    /// What became of programs.
    #[must_use]
    pub fn stats(&self) -> CodeStats {
        let plainer = self.plainer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        CodeStats { plainer, ..self.llvm.as_ref().map(Llvm::stats).unwrap_or_default() }
    }

    fn get_tier(&self, program: &Program, tier: Tier, on_miss: OnMiss<'_>) -> Result<Arc<dyn Code>, TierError> {
        let failed =
            |reason: String| TierError::Compile { tier: tier.name(), program: program.entry().section.clone(), reason };
        match tier {
            Tier::Interpreter => Ok(Arc::new(program.interpreter())),
            Tier::Cranelift => self.cranelift(program, on_miss)?.map_err(|e| failed(e.to_string())),
            Tier::Llvm => self.llvm.as_ref().ok_or(TierError::Absent)?.wait_for(program, on_miss)?.map_err(failed),
        }
    }

    fn cranelift(&self, program: &Program, on_miss: OnMiss<'_>) -> Result<CompiledOrNot, TierError> {
        let (key, module) = (key(program, Tier::Cranelift), program.plain());
        if let Some(made) = self.compiled().get_mut(&key)
            && is_same(&made.module, module)
        {
            made.module = Arc::clone(module);
            return Ok(made.code.clone());
        }
        if matches!(on_miss, OnMiss::Fail) {
            return Err(TierError::NotReady);
        }
        let options = diskside_sbpf_cranelift::Options::default();
        let compile = || {
            let fast = diskside_sbpf_cranelift::compile(program.optimised(), &options);
            let with_fast_loops = fast.is_ok();
            // Without fast forms of its loops there is less to compile.
            let code = match fast {
                Err(CompileError::TooLarge { .. }) => diskside_sbpf_cranelift::compile(module, &options),
                other => other,
            };
            (code, with_fast_loops)
        };
        let (code, with_fast_loops) = on_miss.run(Compiler::Quick, compile).ok_or(TierError::CallEnded)?;
        let code = code.map(|code| Arc::new(code) as Arc<dyn Code>);
        let why = match &code {
            Err(e) => Some(format!("{e}; it is interpreted")),
            Ok(_) if !with_fast_loops => Some("it is long: every access in its loops is checked".to_owned()),
            Ok(code) => code.plainer().map(str::to_owned),
        };
        if let Some(why) = why {
            let why = format!("{}: {why}", program.entry().section);
            tracing::warn!("{why}");
            *self.plainer.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        let mut compiled = self.compiled();
        let number = compiled.values().map(|made| made.number + 1).max().unwrap_or_default();
        compiled.insert(key, Made { module: Arc::clone(module), code: code.clone(), number });
        let of_llvm = self.llvm.as_ref().map(Llvm::modules).unwrap_or_default();
        let is_unused =
            |module: &_| Arc::strong_count(module) == 1 + usize::from(of_llvm.contains(&Arc::as_ptr(module)));
        let forgotten = forget_unused(&mut compiled, |made| (is_unused(&made.module), made.number));
        drop(compiled);
        drop(forgotten);
        Ok(code)
    }

    fn compiled(&self) -> MutexGuard<'_, Compiled> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(program: &Program, tier: Tier) -> Key {
    (program.image().content_hash, program.verified().program, program.entry().kind, tier)
}

/// Takes programs out of a table that nobody has loaded any more, except the latest: a host that loads, runs and
/// unloads one program after the other fills no memory, and one that comes back finds its own compiled. `about` says of
/// a program whether it is unused, and its number.
fn forget_unused<E>(programs: &mut HashMap<Key, E>, about: impl Fn(&E) -> (bool, u64)) -> Vec<E> {
    let mut unused: Vec<u64> =
        programs.values().map(&about).filter_map(|(unused, number)| unused.then_some(number)).collect();
    if unused.len() <= UNUSED_MAX {
        return Vec::new();
    }
    unused.sort_unstable();
    let oldest = unused[unused.len() - UNUSED_MAX];
    let forgotten = |program: &E| matches!(about(program), (true, number) if number < oldest);
    programs.extract_if(|_, program| forgotten(program)).map(|(_, program)| program).collect()
}

/// Programs that are kept though nobody has loaded them any more.
const UNUSED_MAX: usize = 64;

/// Whether code of one is code of the other.
fn is_same(a: &Arc<Module>, b: &Arc<Module>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeCache").field("programs", &self.compiled().len()).field("llvm", &self.stats()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Function;
    use diskside_sbpf::asm::assemble;
    use diskside_sbpf::helpers::standard;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    fn function(number: u64) -> Function {
        let helpers = Arc::new(standard());
        let assembly = assemble(&format!("mov r0, {number}\nexit")).expect("it assembles");
        let mut image = assembly.into_image(Kind::Exec, &helpers).expect("it links");
        image.content_hash = number;
        Function::any_from_image(&Arc::new(image), None, &helpers).expect("it verifies")
    }

    /// Turns that count what is compiled in them, until nobody waits for the call any more.
    #[derive(Debug, Default)]
    struct Counted {
        compiled: AtomicUsize,
        is_over: AtomicBool,
    }

    impl Turns for Counted {
        fn take(&self, work: &mut dyn FnMut()) {
            work();
        }

        fn compile(&self, compiler: Compiler, work: &mut (dyn FnMut() + Send)) -> bool {
            assert_eq!(compiler, Compiler::Quick);
            let is_wanted = !self.is_over.load(Ordering::Relaxed);
            if is_wanted {
                self.compiled.fetch_add(1, Ordering::Relaxed);
                work();
            }
            is_wanted
        }
    }

    /// A thread that answers everybody compiled the program of one host.
    #[test]
    fn a_thread_that_must_not_compile_gets_only_code_that_is_there() {
        let (code, function) = (CodeCache::default(), function(7));
        for choice in [TierChoice::Best, TierChoice::Only(Tier::Cranelift)] {
            let tried = code.get(function.main(), choice, OnMiss::Fail).map(|code| code.tier());
            assert_eq!(tried, Err(TierError::NotReady));
        }
        assert!(code.get(function.main(), TierChoice::Only(Tier::Interpreter), OnMiss::Fail).is_ok());
        drop(code.get(function.main(), TierChoice::Best, OnMiss::CallingThread).expect("it compiles"));
        let tried = code.get(function.main(), TierChoice::Best, OnMiss::Fail).map(|code| code.tier());
        assert_eq!(tried, Ok(Tier::Cranelift));
    }

    #[test]
    fn nothing_is_compiled_for_a_call_that_has_ended() {
        let (code, function) = (CodeCache::default(), function(7));
        let counted = Arc::new(Counted { is_over: true.into(), ..Counted::default() });
        let turns = Arc::clone(&counted) as Arc<dyn Turns>;
        let tried = code.get(function.main(), TierChoice::Best, OnMiss::Turns(&turns)).map(|code| code.tier());
        assert_eq!(tried, Err(TierError::CallEnded));
        counted.is_over.store(false, Ordering::Relaxed);
        let tried = code.get(function.main(), TierChoice::Best, OnMiss::Turns(&turns)).map(|code| code.tier());
        assert_eq!((tried, counted.compiled.load(Ordering::Relaxed)), (Ok(Tier::Cranelift), 1));
    }

    /// A host that loaded, ran and unloaded one program after the other, each a little different, filled the server's memory with
    /// their code.
    #[test]
    fn programs_that_nobody_has_loaded_any_more_are_forgotten_but_for_the_latest() {
        let counted = Arc::new(Counted::default());
        let compiled = || counted.compiled.load(Ordering::Relaxed);
        let (code, turns) = (CodeCache::default(), Arc::clone(&counted) as Arc<dyn Turns>);
        let get = |function: &Function| {
            drop(code.get(function.main(), TierChoice::Best, OnMiss::Turns(&turns)).expect("it compiles"));
        };
        let loaded: Vec<Function> = (1000..1010).map(function).collect();
        loaded.iter().for_each(get);
        (0..3 * UNUSED_MAX as u64).for_each(|number| get(&function(number)));
        assert_eq!(compiled(), loaded.len() + 3 * UNUSED_MAX);
        // The last one was still loaded when it was compiled.
        assert_eq!(code.compiled().len(), loaded.len() + UNUSED_MAX + 1);
        loaded.iter().for_each(get);
        get(&function(3 * UNUSED_MAX as u64 - 5));
        assert_eq!(compiled(), loaded.len() + 3 * UNUSED_MAX, "what is loaded, and what was lately, is there");
        get(&function(0));
        assert_eq!(compiled(), loaded.len() + 3 * UNUSED_MAX + 1);
    }

    /// Where there is LLVM each program is in two tables, and neither may take the other for somebody who has loaded it.
    #[test]
    fn they_are_forgotten_where_llvm_is_as_well() {
        let compiler = diskside_sbpf_llvm::Compiler::at("/none");
        let code = CodeCache::with_llvm(LlvmOptions { compiler, store: None, input_len_min: u64::MAX });
        let run = |function: &Function| {
            drop(code.get(function.main(), TierChoice::Best, OnMiss::CallingThread).expect("it compiles"));
            assert!(code.ran(function.main(), Tier::Cranelift, 1, None).is_none());
        };
        let loaded: Vec<Function> = (1000..1010).map(function).collect();
        loaded.iter().for_each(run);
        (0..4 * UNUSED_MAX as u64).for_each(|number| run(&function(number)));
        assert_eq!(code.compiled().len(), loaded.len() + UNUSED_MAX + 1);
        let (of_llvm, most) = (code.llvm.as_ref().unwrap().modules().len(), loaded.len() + 2 * UNUSED_MAX + 2);
        assert!((loaded.len()..=most).contains(&of_llvm), "{of_llvm} of {most}");
        // The second load of a program holds it as well as the first did.
        let again: Vec<Function> = (1000..1010).map(function).collect();
        again.iter().for_each(run);
        drop(loaded);
        (0..2 * UNUSED_MAX as u64).for_each(|number| run(&function(2000 + number)));
        assert!((1000..1010).map(function).all(|f| code.compiled().contains_key(&key(f.main(), Tier::Cranelift))));
    }
}
