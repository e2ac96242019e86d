//! Which hosts may use which volumes, exports, functions, states and memory, and how much they may take.
//!
//! An operator writes [`GrantSpec`]s. They come to the [`Rights`] of each host, which [`Grants`] has by name and a
//! [`RightsTable`] by now: it is replaced while hosts are connected, and who keeps something that a host was allowed looks
//! at its [version](RightsTable::version) before it is used again.
//!
//! Without any grant every host that is let in may use all that is served. With one, a host has what grants give it, and what
//! it has no right to is to it as if it were not there.

#![forbid(unsafe_code)]

mod pace;
mod places;
mod quota;
mod rights;
mod spec;
mod table;

pub use places::{NoPlace, Places};
pub use quota::{
    CPU_SHARE, ConnectionPlace, HostLimits, HostQuota, Limit, Pause, QuotaCounters, QuotaRule, QuotaTable, QuotaWatch,
    Quotas, Scarce, Wait,
};
pub use rights::{Access, MemoryRight, Program, Rights};
pub use spec::{FunctionRule, GrantSpec, Mode};
pub use table::{Grants, HostRights, RightsTable};
