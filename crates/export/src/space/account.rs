//! How much a host holds in an export, and how much of it is certain while the files are counted.
//!
//! Numbers only: no file is looked at here, so that a model can be compared with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes, and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Lengths of files, added up.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
}

/// The most of each; `None`: as much as the file system has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceMax {
    /// Bytes.
    pub(crate) bytes: Option<u64>,
    /// Files and directories.
    pub(crate) files: Option<u64>,
}

/// Which of the two there is not enough of, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    Bytes { held: u64, more: u64, max: u64 },
    Files { held: u64, max: u64 },
}

/// What one host holds in an export.
#[derive(Debug)]
pub(crate) struct Account {
    nqn: Arc<str>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    space: Space,
    /// The space that was added, given back or moved to another name since the count that runs began: its walk may have
    /// seen it or not.
    moved: Space,
}

impl Space {
    pub(crate) fn file(bytes: u64) -> Self {
        Self { bytes, files: 1 }
    }

    pub(crate) fn bytes(bytes: u64) -> Self {
        Self { bytes, files: 0 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), files: self.files.saturating_sub(other.files) }
    }

    fn clamp(self, least: Self, most: Self) -> Self {
        Self { bytes: self.bytes.clamp(least.bytes, most.bytes), files: self.files.clamp(least.files, most.files) }
    }
}

impl SpaceMax {
    /// Whether it limits anything.
    pub(crate) fn is_some(self) -> bool {
        self.bytes.is_some() || self.files.is_some()
    }
}

impl Account {
    pub(crate) fn new(nqn: Arc<str>) -> Arc<Self> {
        Arc::new(Self { nqn, held: Mutex::default() })
    }

    pub(crate) fn nqn(&self) -> &str {
        &self.nqn
    }

    pub(crate) fn space(&self) -> Space {
        self.held().space
    }

    /// Adds the space that the host is about to use, or nothing of it. A host over its limit can still do what needs no
    /// more.
    pub(crate) fn take(&self, more: Space, max: SpaceMax) -> Result<(), Exceeded> {
        let mut held = self.held();
        let Space { bytes, files } = held.space;
        let lacks = |more: u64, held: u64, max: Option<u64>| {
            max.filter(|max| more > 0 && held.checked_add(more).is_none_or(|sum| sum > *max))
        };
        if let Some(max) = lacks(more.files, files, max.files) {
            return Err(Exceeded::Files { held: files, max });
        }
        if let Some(max) = lacks(more.bytes, bytes, max.bytes) {
            return Err(Exceeded::Bytes { held: bytes, more: more.bytes, max });
        }
        held.add(more);
        Ok(())
    }

    /// Adds what is there already.
    pub(crate) fn add(&self, more: Space) {
        self.held().add(more);
    }

    pub(crate) fn give_back(&self, less: Space) {
        let mut held = self.held();
        held.space = held.space.minus(less);
        held.moved = held.moved.plus(less);
    }

    /// Something of the host gets another name, or loses one: who walks through the directories may miss it, or meet it twice.
    pub(crate) fn disturb(&self, by: Space) {
        let mut held = self.held();
        held.moved = held.moved.plus(by);
    }

    /// A count begins.
    pub(crate) fn begin_count(&self) {
        self.held().moved = Space::default();
    }

    /// A count has found this. It differs from the truth by what moved meanwhile at most; what is known is brought within those
    /// bounds, so each count brings it nearer to the truth, and one in whose time nothing moved makes it exact.
    /// Gives whether anything moved.
    pub(crate) fn end_count(&self, found: Space, is_first: bool) -> bool {
        let mut held = self.held();
        let (least, most) = (found.minus(held.moved), found.plus(held.moved));
        // Before the first one nothing was known: rather too much than too little, until the next one.
        held.space = if is_first { most } else { held.space.clamp(least, most) };
        held.moved != Space::default()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn add(&mut self, more: Space) {
        self.space = self.space.plus(more);
        self.moved = self.moved.plus(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn account() -> Arc<Account> {
        Account::new("nqn.a".into())
    }

    #[test]
    fn what_would_be_too_much_is_refused_whole_and_what_needs_no_more_is_not() {
        let (account, max) = (account(), SpaceMax { bytes: Some(100), files: Some(2) });
        account.take(Space::file(60), max).unwrap();
        assert_eq!(account.take(Space::bytes(41), max), Err(Exceeded::Bytes { held: 60, more: 41, max: 100 }));
        assert_eq!(account.take(Space::file(41), max), Err(Exceeded::Bytes { held: 60, more: 41, max: 100 }));
        assert_eq!(account.space(), Space::file(60));
        account.take(Space::file(40), max).unwrap();
        assert_eq!(account.take(Space::file(0), max), Err(Exceeded::Files { held: 2, max: 2 }));
        let less = SpaceMax { bytes: Some(10), files: Some(1) };
        account.take(Space::default(), less).unwrap();
        assert!(account.take(Space::bytes(u64::MAX), max).is_err(), "a sum beyond all numbers is too much");
        account.take(Space::bytes(u64::MAX), SpaceMax::default()).unwrap();
        assert_eq!(account.space().bytes, u64::MAX);
    }

    #[test]
    fn many_who_take_at_once_never_have_more_than_one_may() {
        let (account, max) = (account(), SpaceMax { bytes: Some(1000), files: Some(1000) });
        let barrier = Barrier::new(16);
        let taken: u64 = std::thread::scope(|scope| {
            let take = || {
                barrier.wait();
                (0..200).filter(|_| account.take(Space::bytes(7), max).is_ok()).count() as u64
            };
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((taken, account.space().bytes), (142, 994));
    }

    #[test]
    fn a_count_corrects_what_did_not_move_meanwhile() {
        let account = account();
        account.add(Space { bytes: 500, files: 9 });
        account.begin_count();
        assert!(!account.end_count(Space { bytes: 300, files: 4 }, false));
        assert_eq!(account.space(), Space { bytes: 300, files: 4 });
        account.begin_count();
        // 50 bytes come: the walk may have seen them or not.
        account.add(Space::bytes(50));
        assert!(account.end_count(Space { bytes: 300, files: 4 }, false));
        assert_eq!(account.space(), Space { bytes: 350, files: 4 }, "it did not");
        account.begin_count();
        account.give_back(Space::file(100));
        assert!(account.end_count(Space { bytes: 200, files: 3 }, false));
        assert_eq!(account.space(), Space { bytes: 250, files: 3 });
        account.begin_count();
        assert!(!account.end_count(Space { bytes: 200, files: 3 }, true));
        assert_eq!(account.space(), Space { bytes: 200, files: 3 });
    }
}
