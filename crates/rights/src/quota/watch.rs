//! The observer of hosts that wanted more than they may have.

use std::fmt;

/// Learns when a host wanted more than its quota, or something to which it has no right. It must not wait.
pub trait QuotaWatch: fmt::Debug + Send + Sync {
    /// Which host, and of what it has all that it may.
    fn refused(&self, nqn: &str, what: &str);

    /// Which host, and what it tried to do without the right to it.
    fn denied(&self, nqn: &str, what: &str);
}

/// Nobody hears of it.
#[derive(Debug)]
pub(super) struct Unwatched;

impl QuotaWatch for Unwatched {
    fn refused(&self, _nqn: &str, _what: &str) {}

    fn denied(&self, _nqn: &str, _what: &str) {}
}
