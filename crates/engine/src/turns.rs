//! When the threads of a call compute, and who compiles its programs: what an engine asks of those who share processors among
//! calls.

/// Gives threads their turn to compute.
pub trait Turns: std::fmt::Debug + Send + Sync {
    /// Runs `work` once, when it is its turn.
    fn take(&self, work: &mut dyn FnMut());

    /// The same; before it waits for its turn, it calls `waits`.
    fn take_or(&self, waits: &mut dyn FnMut(), work: &mut dyn FnMut()) {
        let _ = waits;
        self.take(work);
    }

    /// Called by `work`: how many threads may compute besides its own. Nobody else wants to; it asks again some hundred times a
    /// second, for that may change.
    fn idle(&self) -> usize {
        0
    }

    /// Called by `work` some thousand times a second while the function runs: what waits may go first. It returns when it
    /// is the caller's turn again.
    fn pause(&self) {}

    /// Runs `wait`, which only waits: others may compute meanwhile. It returns when it is the caller's turn again.
    fn away(&self, wait: &mut dyn FnMut()) {
        wait();
    }

    /// Runs a compiler for the call: it takes milliseconds, and others may have to go first. False: it was not run, because
    /// nobody waits for the call any more.
    fn compile(&self, compiler: Compiler, work: &mut (dyn FnMut() + Send)) -> bool {
        let _ = compiler;
        work();
        true
    }
}

/// A compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// Cranelift's: milliseconds of the thread's own.
    Quick,
    /// LLVM's: a program that is waited for, some hundred milliseconds.
    Thorough,
}

/// Runs `work` when it is its turn, if anybody gives turns.
pub(crate) fn in_turn<T>(turns: Option<&dyn Turns>, work: impl FnOnce() -> T) -> T {
    let Some(turns) = turns else { return work() };
    let (mut work, mut result) = (Some(work), None);
    turns.take(&mut || result = work.take().map(|work| work()));
    result.expect("a turn runs its work once")
}

/// Runs `wait`, which only waits, while others may compute, if anybody gives turns.
pub(crate) fn out_of_turn<T>(turns: Option<&dyn Turns>, wait: impl FnOnce() -> T) -> T {
    let Some(turns) = turns else { return wait() };
    let (mut wait, mut result) = (Some(wait), None);
    turns.away(&mut || result = wait.take().map(|wait| wait()));
    result.expect("what is waited for is waited for once")
}
