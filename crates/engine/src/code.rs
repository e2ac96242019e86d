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

/// Compiled code by content, so that each program is compiled once.
#[derive(Default)]
pub struct CodeCache {
    compiled: Mutex<Compiled>,
    /// Why the last program that runs in a plainer form does.
    plainer: Mutex<Option<String>>,
    llvm: Option<Llvm>,
}

/// Content hash of the object, the program in it, its kind, and the tier.
type Key = (u64, usize, Kind, Tier);

/// Code with what it was made from. The hash can be made to collide, so that is compared.
type Compiled = HashMap<Key, (Arc<Module>, Result<Arc<dyn Code>, CompileError>)>;

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
        if let Some((from, code)) = self.compiled().get(&key)
            && is_same(from, module)
        {
            return code.clone();
        }
        let options = diskside_sbpf_cranelift::Options::default();
        let fast = diskside_sbpf_cranelift::compile(module, &options);
        let with_fast_loops = fast.is_ok();
        // Without fast forms of its loops there is less to compile.
        let code = match fast {
            Err(CompileError::TooLarge { .. }) => diskside_sbpf_cranelift::compile(program.plain(), &options),
            other => other,
        };
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
        self.compiled().insert(key, (Arc::clone(module), code.clone()));
        code
    }

    fn compiled(&self) -> MutexGuard<'_, Compiled> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(program: &Program, tier: Tier) -> Key {
    (program.image().content_hash, program.verified().program, program.entry().kind, tier)
}

/// Whether code of one is code of the other.
fn is_same(a: &Arc<Module>, b: &Arc<Module>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeCache").field("programs", &self.compiled().len()).field("llvm", &self.stats()).finish()
    }
}
