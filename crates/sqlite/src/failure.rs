//! Failures, in words that SQLite has no place for: it tells programs only a number.

use std::cell::RefCell;

/// Why a database could not be opened or read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(String);

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl Failure {
    /// A message that begins with the file that it is about.
    pub(crate) fn of(name: &str, why: &dyn std::fmt::Display) -> Self {
        let told = why.to_string();
        Self(if told.contains(name) { told } else { format!("{name}: {told}") })
    }

    /// Keeps it as the last one of this thread, on which SQLite returns the error to the program.
    pub(crate) fn note(&self) {
        LAST.with_borrow_mut(|last| *last = Some(self.0.clone()));
    }
}

/// The last failure of this thread.
pub(crate) fn last() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_its_file_once_and_is_kept_for_its_thread() {
        assert_eq!(Failure::of("a.db", &"it is gone").to_string(), "a.db: it is gone");
        assert_eq!(Failure::of("a.db", &"a.db is gone").to_string(), "a.db is gone");
        Failure::of("b.db", &"it is gone").note();
        assert_eq!(last().as_deref(), Some("b.db: it is gone"));
        assert_eq!(std::thread::spawn(last).join().expect("it ends"), None);
    }
}
