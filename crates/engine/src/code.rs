//! Tiers: which code runs a program, and what is compiled already.
//!
//! Cranelift compiles at once. LLVM, where the engine was given its compiler, takes its time on a
//! thread of its own; calls that run meanwhile take its code at their next chunk. It is asked only for
//! programs that have seen much input ([`LlvmOptions::input_len_min`]), or whose code lies in the store
//! of an earlier process. When it fails, Cranelift goes on, and [`CodeStats`] says so. It also says when Cranelift
//! would take more than a load may: then a program runs in a plainer form, at last interpreted.

mod llvm;
mod store;

pub use llvm::{CodeStats, LlvmOptions};

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
    /// Its compiler is not there.
    #[error(
        "the LLVM tier's compiler is not here: put diskside-llvm beside diskside or into PATH, or name it in DISKSIDE_LLVM; \
         without it, --tier cranelift runs the same functions"
    )]
    Absent,
}

/// Runs the work of a compiler, to its end: it takes milliseconds, and others may have to go first.
pub type Aside = fn(Compiler, &mut (dyn FnMut() + Send));

/// Whose work it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// Cranelift's: milliseconds of the thread's own.
    Quick,
    /// LLVM's: a program that is waited for, some hundred milliseconds.
    Thorough,
}

/// Compiled code by content, so that each program is compiled once. What nobody has loaded any more is kept for a while.
#[derive(Default)]
pub struct CodeCache {
    compiled: Mutex<Compiled>,
    aside: Option<Aside>,
    /// Why the last program that runs in a plainer form does.
    plainer: Mutex<Option<String>>,
    llvm: Option<Llvm>,
}

/// Content hash of the object, the program in it, its kind, and the tier.
type Key = (u64, usize, Kind, Tier);

type Compiled = HashMap<Key, Made>;

/// Code with what it was made from. The hash can be made to collide, so that is compared.
struct Made {
    /// Of whoever asked last: nobody has loaded it any more when nobody else holds it.
    module: Arc<Module>,
    code: Result<Arc<dyn Code>, CompileError>,
    number: u64,
}

impl CodeCache {
    /// One that compiles with LLVM as well.
    #[must_use]
    pub fn with_llvm(options: LlvmOptions) -> Self {
        Self { llvm: Some(Llvm::new(options)), ..Self::default() }
    }

    /// The same, where compilers run in this way.
    #[must_use]
    pub fn compiling_aside(mut self, aside: Aside) -> Self {
        self.aside = Some(aside);
        self.llvm = self.llvm.map(|llvm| llvm.compiling_aside(aside));
        self
    }

    /// Whether it compiles with LLVM as well.
    #[must_use]
    pub fn has_llvm(&self) -> bool {
        self.llvm.is_some()
    }

    /// The code of a program in the wanted tier, compiled now if need be.
    ///
    /// # Errors
    /// Why that tier cannot run it. `Best` never fails: the interpreter runs everything.
    pub fn get(&self, program: &Program, choice: TierChoice) -> Result<Arc<dyn Code>, TierError> {
        match choice {
            TierChoice::Best => {
                if let Some(code) = self.llvm.as_ref().and_then(|llvm| llvm.ready(program)) {
                    return Ok(code);
                }
                self.get_tier(program, Tier::Cranelift).or_else(|_| self.get_tier(program, Tier::Interpreter))
            }
            TierChoice::Only(tier) => self.get_tier(program, tier),
        }
    }

    /// Tells that a program has run over so many bytes of input in this tier. Gives better code when
    /// there is some by now; asks for it when it is worth while.
    pub fn ran(&self, program: &Program, tier: Tier, input_len: u64) -> Option<Arc<dyn Code>> {
        let llvm = self.llvm.as_ref().filter(|_| tier != Tier::Llvm)?;
        llvm.ran(program, input_len)
    }

    /// What became of programs.
    #[must_use]
    pub fn stats(&self) -> CodeStats {
        let plainer = self.plainer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        CodeStats { plainer, ..self.llvm.as_ref().map(Llvm::stats).unwrap_or_default() }
    }

    fn get_tier(&self, program: &Program, tier: Tier) -> Result<Arc<dyn Code>, TierError> {
        let failed =
            |reason: String| TierError::Compile { tier: tier.name(), program: program.entry().section.clone(), reason };
        match tier {
            Tier::Interpreter => Ok(Arc::new(program.interpreter())),
            Tier::Cranelift => self.cranelift(program).map_err(|e| failed(e.to_string())),
            Tier::Llvm => self.llvm.as_ref().ok_or(TierError::Absent)?.wait_for(program).map_err(failed),
        }
    }

    fn cranelift(&self, program: &Program) -> Result<Arc<dyn Code>, CompileError> {
        let (key, module) = (key(program, Tier::Cranelift), program.optimised());
        if let Some(made) = self.compiled().get_mut(&key)
            && is_same(&made.module, module)
        {
            made.module = Arc::clone(module);
            return made.code.clone();
        }
        let options = diskside_sbpf_cranelift::Options::default();
        let (code, with_fast_loops) = run_aside(self.aside, Compiler::Quick, || {
            let fast = diskside_sbpf_cranelift::compile(module, &options);
            let with_fast_loops = fast.is_ok();
            // Without fast forms of its loops there is less to compile.
            let code = match fast {
                Err(CompileError::TooLarge { .. }) => diskside_sbpf_cranelift::compile(program.plain(), &options),
                other => other,
            };
            (code, with_fast_loops)
        });
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
        code
    }

    fn compiled(&self) -> MutexGuard<'_, Compiled> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(program: &Program, tier: Tier) -> Key {
    (program.image().content_hash, program.verified().program, program.entry().kind, tier)
}

/// Runs a compiler in the way that was asked for.
fn run_aside<T: Send>(aside: Option<Aside>, compiler: Compiler, work: impl FnOnce() -> T + Send) -> T {
    let Some(aside) = aside else { return work() };
    let (mut work, mut result) = (Some(work), None);
    aside(compiler, &mut || result = work.take().map(|work| work()));
    result.expect("it was run to its end")
}

/// Takes those programs out of a table that nobody has loaded any more, but for the latest: whoever loads, runs and unloads one
/// program after the other fills no memory, and who comes back finds its own compiled. `about` says of a program whether it is
/// unused, and its number.
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

    fn function(number: u64) -> Function {
        let helpers = Arc::new(standard());
        let assembly = assemble(&format!("mov r0, {number}\nexit")).expect("it assembles");
        let mut image = assembly.into_image(Kind::Exec, &helpers).expect("it links");
        image.content_hash = number;
        Function::any_from_image(&Arc::new(image), None, &helpers).expect("it verifies")
    }

    /// A host that loaded, ran and unloaded one program after the other, each a little different, filled the server's memory with
    /// their code.
    #[test]
    fn programs_that_nobody_has_loaded_any_more_are_forgotten_but_for_the_latest() {
        static ASIDE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let compiled = || ASIDE.load(std::sync::atomic::Ordering::Relaxed);
        let code = CodeCache::default().compiling_aside(|compiler, work| {
            assert_eq!(compiler, Compiler::Quick);
            ASIDE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            work();
        });
        let get = |function: &Function| drop(code.get(function.main(), TierChoice::Best).expect("it compiles"));
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
            drop(code.get(function.main(), TierChoice::Best).expect("it compiles"));
            assert!(code.ran(function.main(), Tier::Cranelift, 1).is_none());
        };
        let loaded: Vec<Function> = (1000..1010).map(function).collect();
        loaded.iter().for_each(run);
        (0..4 * UNUSED_MAX as u64).for_each(|number| run(&function(number)));
        assert_eq!(code.compiled().len(), loaded.len() + UNUSED_MAX + 1);
        let (of_llvm, most) = (code.llvm.as_ref().unwrap().modules().len(), loaded.len() + 2 * UNUSED_MAX + 2);
        assert!((loaded.len()..=most).contains(&of_llvm), "{of_llvm} of {most}");
        // Whoever loads a program again holds it as well as who did first.
        let again: Vec<Function> = (1000..1010).map(function).collect();
        again.iter().for_each(run);
        drop(loaded);
        (0..2 * UNUSED_MAX as u64).for_each(|number| run(&function(2000 + number)));
        assert!((1000..1010).map(function).all(|f| code.compiled().contains_key(&key(f.main(), Tier::Cranelift))));
    }
}
