//! Programs of hosts: loaded, verified, active, and what of them runs.

pub(crate) mod credentials;
pub(crate) mod loaded;
pub(crate) mod programs;
pub(crate) mod slot;
pub(crate) mod usage;
