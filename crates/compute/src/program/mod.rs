//! Programs of hosts: loaded, verified, active, and what of them runs.

pub(crate) mod programs;
pub(crate) mod usage;
