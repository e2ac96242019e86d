//! Handles: numbers of objects, which are never used twice.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Greater than any descriptor, and no address of anything: a handle is not mistaken for either.
const FIRST: usize = 1 << 40;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// The objects of one kind. A handle of another kind is none of these.
#[derive(Debug)]
pub(crate) struct Table<T>(RwLock<BTreeMap<usize, Arc<T>>>);

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Gives an object its handle.
    pub(crate) fn insert(&self, object: Arc<T>) -> *mut c_void {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.write().insert(handle, object);
        std::ptr::without_provenance_mut(handle)
    }

    /// The object of a handle.
    pub(crate) fn get(&self, handle: *const c_void) -> Option<Arc<T>> {
        self.read().get(&handle.addr()).cloned()
    }

    /// What `with` makes of the object, while nobody removes it.
    pub(crate) fn with<R>(&self, handle: *const c_void, with: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        self.read().get(&handle.addr()).map(with)
    }

    /// Takes an object away if nothing speaks against it, which `check` says.
    pub(crate) fn remove_if<E>(
        &self,
        handle: *const c_void,
        check: impl FnOnce(&Arc<T>) -> Result<(), E>,
    ) -> Option<Result<Arc<T>, E>> {
        let mut table = self.write();
        let object = Arc::clone(table.get(&handle.addr())?);
        if let Err(why) = check(&object) {
            return Some(Err(why));
        }
        table.remove(&handle.addr());
        Some(Ok(object))
    }

    /// Takes an object away.
    pub(crate) fn remove(&self, handle: *const c_void) -> Option<Arc<T>> {
        self.write().remove(&handle.addr())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    /// All objects with their handles.
    pub(crate) fn list(&self) -> Vec<(*mut c_void, Arc<T>)> {
        let listed =
            |(handle, object): (&usize, &Arc<T>)| (std::ptr::without_provenance_mut(*handle), Arc::clone(object));
        self.read().iter().map(listed).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_was_removed_is_never_one_again() {
        let (numbers, texts) = (Table::new(), Table::new());
        let first = numbers.insert(Arc::new(1));
        assert!(texts.insert(Arc::new("a")).addr() > first.addr());
        assert_eq!(texts.get(first), None, "it is of another kind");
        assert_eq!(numbers.remove_if(first, |_| Err("in use")), Some(Err("in use")));
        assert_eq!(numbers.remove(first).as_deref(), Some(&1));
        assert_eq!(numbers.remove(first), None);
        assert_ne!(numbers.insert(Arc::new(2)), first);
        assert_eq!(numbers.get(std::ptr::null()), None);
    }
}
