//! Programs are verified and compiled aside from calls: that takes milliseconds in which nothing can be asked, and calls of other
//! hosts come first.
//!
//! So each is done on a thread of its own that steps back behind engines, while the call that needs it waits. A few are done at a
//! time, in the order in which they were asked for.

use std::sync::{Condvar, Mutex, PoisonError};

use diskside_engine::Compiler;
use diskside_sys::schedule::{Behind, step_back};

/// Threads that verify and compile at a time.
const AT_ONCE_MAX: usize = 2;

static PLACES: Places = Places { state: Mutex::new(State { next: 0, ended: 0 }), changed: Condvar::new() };

/// Places for what is done at a time. Each number has its place as soon as all but a few before it have ended.
struct Places {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Whoever comes next.
    next: u64,
    ended: u64,
}

impl State {
    fn may_begin(&self, number: u64) -> bool {
        number < self.ended + AT_ONCE_MAX as u64
    }
}

/// A place that is given back.
struct Place<'a>(&'a Places);

impl Places {
    fn take(&self) -> Place<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        drop(self.changed.wait_while(state, |state| !state.may_begin(number)).unwrap_or_else(PoisonError::into_inner));
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ended += 1;
        self.0.changed.notify_all();
    }
}

/// The result of work that verifies a program, done aside.
pub(crate) fn verify_aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let (mut work, mut result) = (Some(work), None);
    compile_aside(Compiler::Quick, &mut || result = work.take().map(|work| work()));
    result.expect("it was run to its end")
}

/// Runs the work of a compiler to its end, aside. One that takes long is a program of its own, and needs no place.
pub(crate) fn compile_aside(compiler: Compiler, work: &mut (dyn FnMut() + Send)) {
    let _place = (compiler == Compiler::Quick).then(|| PLACES.take());
    let run = || {
        if let Err(error) = step_back(Behind::Calls) {
            tracing::debug!(%error, "a thread that prepares programs keeps its scheduling policy and priority");
        }
        work();
    };
    let ended = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("prepare".into()).spawn_scoped(scope, run).ok()?;
        Some(thread.join())
    });
    match ended {
        Some(Ok(())) => {}
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        // No thread more: then by the one that needs it.
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_sys::schedule;
    use std::sync::mpsc;

    #[test]
    fn a_few_at_a_time_and_in_the_order_in_which_they_came() {
        let mut state = State { next: 5, ended: 0 };
        let begun = |state: &State| (0..state.next).filter(|number| state.may_begin(*number)).collect::<Vec<_>>();
        assert_eq!(begun(&state), [0, 1]);
        state.ended = 1;
        assert_eq!(begun(&state), [0, 1, 2]);
        state.ended = 4;
        assert_eq!(begun(&state), [0, 1, 2, 3, 4]);
    }

    /// A host that had one program after the other compiled had half of the processors, in time slices of milliseconds.
    #[test]
    fn what_is_prepared_goes_behind_engines_and_its_panics_come_back() {
        let before = (schedule::policy().unwrap(), schedule::nice());
        let during = verify_aside(|| (schedule::policy().unwrap(), schedule::nice()));
        assert_eq!(during, (Some(schedule::Policy::Batch), Behind::Calls.nice().max(before.1)));
        assert_eq!((schedule::policy().unwrap(), schedule::nice()), before, "who waits keeps its own");
        let panics = std::panic::catch_unwind(|| verify_aside(|| panic!("on purpose")));
        assert_eq!(panics.unwrap_err().downcast_ref(), Some(&"on purpose"));
        // Its place is free again, and those of others with it.
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let sender = sender.clone();
                scope.spawn(move || verify_aside(|| sender.send(number).unwrap()));
            }
        });
        drop(sender);
        assert_eq!(receiver.iter().count(), 8);
    }
}
