//! The checked IR of a program: as it is, and for compilers.

use crate::ir::Module;
use crate::opt::optimise;
use crate::work::Work;
use std::sync::{Arc, OnceLock};

/// The checked IR of a program. Clones share both forms.
#[derive(Clone, Debug)]
pub struct Forms {
    plain: Arc<Module>,
    optimised: Arc<OnceLock<Arc<Module>>>,
}

impl Forms {
    pub(super) fn new(plain: Module) -> Self {
        Self { plain: Arc::new(plain), optimised: Arc::default() }
    }

    /// With a check at every access.
    #[must_use]
    pub fn plain(&self) -> &Arc<Module> {
        &self.plain
    }

    /// For compilers, checks hoisted. It is made when it is first asked for, which takes longer than verifying the program does: most
    /// programs are never compiled, or were compiled before.
    #[must_use]
    pub fn optimised(&self) -> &Arc<Module> {
        self.optimise(&Work::default())
    }

    /// As [`Self::optimised`], with no more than this work if it was not made before.
    pub(super) fn optimise(&self, work: &Work) -> &Arc<Module> {
        self.optimised.get_or_init(|| Arc::new(optimise(&self.plain, work)))
    }
}

#[cfg(test)]
mod tests {
    use crate::activation::Program;
    use crate::asm::assemble;
    use crate::helpers::standard;
    use crate::image::Kind;
    use std::sync::Arc;

    /// A server optimised all of its functions when it started, four fifths of the time that this took, and used a few of them.
    #[test]
    fn nothing_is_optimised_before_a_compiler_asks() {
        let helpers = Arc::new(standard());
        let assembly = assemble("mov r0, 1\nexit").expect("it assembles");
        let image = Arc::new(assembly.into_image(Kind::Exec, &helpers).expect("it links"));
        let program = Program::new(&image, 0, &helpers).expect("it verifies");
        let other = program.forms().clone();
        assert!(other.optimised.get().is_none());
        drop(program.interpreter());
        assert!(other.optimised.get().is_none());
        assert!(Arc::ptr_eq(program.optimised(), other.optimised()), "made once");
    }
}
