//! Tiers: which code runs a program, and what is compiled already.

use diskside_sbpf::activation::{Code, Program, Tier};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Not built in.
    #[error("the {0} tier is not part of this build")]
    Absent(&'static str),
}

/// Compiled code by content, so that each program is compiled once.
#[derive(Default)]
pub struct CodeCache {
    compiled: Mutex<HashMap<Key, Arc<dyn Code>>>,
}

/// Content hash of the object, its length, the program in it, and the tier.
type Key = (u64, usize, usize, Tier);

impl CodeCache {
    /// The code of a program in the wanted tier, compiled now if need be.
    ///
    /// # Errors
    /// Why that tier cannot run it. `Best` never fails: the interpreter runs everything.
    pub fn get(&self, program: &Program, choice: TierChoice) -> Result<Arc<dyn Code>, TierError> {
        match choice {
            TierChoice::Best => self
                .get(program, TierChoice::Only(Tier::Cranelift))
                .or_else(|_| self.get(program, TierChoice::Only(Tier::Interpreter))),
            TierChoice::Only(tier) => self.get_tier(program, tier),
        }
    }

    fn get_tier(&self, program: &Program, tier: Tier) -> Result<Arc<dyn Code>, TierError> {
        if tier == Tier::Interpreter {
            return Ok(Arc::new(program.interpreter()));
        }
        let image = program.image();
        let key = (image.content_hash, image.code.len(), program.verified().program, tier);
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = compiled.get(&key).filter(|_| image.content_hash != 0) {
            return Ok(Arc::clone(code));
        }
        let code = compile(program, tier)?;
        compiled.insert(key, Arc::clone(&code));
        Ok(code)
    }
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("CodeCache").field("programs", &compiled.len()).finish()
    }
}

fn compile(program: &Program, tier: Tier) -> Result<Arc<dyn Code>, TierError> {
    match tier {
        Tier::Interpreter => Ok(Arc::new(program.interpreter())),
        Tier::Cranelift => {
            let options = diskside_sbpf_cranelift::Options::default();
            match diskside_sbpf_cranelift::compile(program.optimised(), &options) {
                Ok(code) => Ok(Arc::new(code)),
                Err(e) => Err(TierError::Compile {
                    tier: tier.name(),
                    program: program.entry().section.clone(),
                    reason: e.to_string(),
                }),
            }
        }
        Tier::Llvm => Err(TierError::Absent(tier.name())),
    }
}
