//! How much each host may take at a time, and who had to wait or was refused.
//!
//! An operator writes [`QuotaRule`]s. [`Quotas`] picks of them what holds for a host, and a [`QuotaTable`] keeps one
//! [`HostQuota`] for each host that is connected, shared by all that serve it. Limits are replaced while hosts are connected:
//! who has a [`HostQuota`] reads them again each time, without a lock. A host without limits costs one such look.

mod host;
mod limits;
mod rules;
mod table;
mod watch;

pub use host::{ConnectionPlace, HostQuota, Pause, QuotaCounters, Scarce, Wait};
pub use limits::{CPU_SHARE, HostLimits, Limit};
pub use rules::{QuotaRule, Quotas};
pub use table::QuotaTable;
pub use watch::QuotaWatch;
