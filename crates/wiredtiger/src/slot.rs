//! Decisions about reads of a table.

use crate::tuner::Tuner;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Decisions about reads of a table, whether its file is open or not.
#[derive(Debug)]
pub(crate) struct Slot {
    policy: AtomicU8,
    pub(crate) sample_percent: AtomicU32,
    pub(crate) truncated: AtomicBool,
    /// Whether paths are worth their time, and whether lookups at the server are.
    pub(crate) tuner: Tuner,
    pub(crate) lookups: Tuner,
    /// Room for values of lookups, and for the blocks of paths.
    pub(crate) value_room: AtomicU32,
    pub(crate) path_room: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Off = 0,
    Path = 1,
    Push = 2,
}

impl Slot {
    pub(crate) fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Acquire) {
            0 => Policy::Off,
            1 => Policy::Path,
            _ => Policy::Push,
        }
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Release);
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            policy: AtomicU8::new(Policy::Path as u8),
            sample_percent: AtomicU32::new(1),
            truncated: AtomicBool::new(false),
            tuner: Tuner::default(),
            lookups: Tuner::default(),
            value_room: AtomicU32::new(2 << 10),
            path_room: AtomicU32::new(8 << 10),
        }
    }
}
