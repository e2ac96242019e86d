//! Sets of conditions that something depends on.

use std::collections::BTreeSet;
use std::rc::Rc;

/// Indices into the list of [`Condition`](super::linear::Condition)s; shared by its copies, of which there are many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Conditions(Option<Rc<BTreeSet<usize>>>);

impl Conditions {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|all| all.is_empty())
    }

    pub(super) fn is_subset(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(all), Some(others)) => Rc::ptr_eq(all, others) || all.is_subset(others),
            _ => self.is_empty(),
        }
    }

    /// Whether it was not there.
    pub(super) fn insert(&mut self, condition: usize) -> bool {
        Rc::make_mut(self.0.get_or_insert_default()).insert(condition)
    }

    pub(super) fn extend(&mut self, other: &Self) {
        if other.is_subset(self) {
            return;
        }
        match (&mut self.0, &other.0) {
            (Some(all), Some(others)) => Rc::make_mut(all).extend(&**others),
            (none, others) => none.clone_from(others),
        }
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&usize) -> bool) {
        if let Some(all) = &mut self.0 {
            Rc::make_mut(all).retain(keep);
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<usize> {
        self.0.as_mut().and_then(|all| Rc::make_mut(all).pop_first())
    }
}
