//! How much hosts may take, as an operator writes it.

use diskside_compute::{ComputeConfig, STATE_BYTES_MAX};
use diskside_rights::{HostLimits, QuotaRule};
use diskside_volume::Size;
use serde::{Deserialize, Serialize};

use super::Limits;

/// The limits of some hosts: a `[[quota]]`. Absent ones are as for every host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaSpec {
    /// Names of hosts and of their groups, NQNs, or `*` for every host that is let in.
    pub of: Vec<String>,
    /// Commands a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes of data a second, in both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<Size>,
    /// Its weight where functions of several hosts want to compute; a host without one has 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<u64>,
    /// Bytes of its calls, and of what waits or is kept for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Programs that it has loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<u16>,
    /// Connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// Bytes of its named states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Size>,
    /// Bytes of its files, in each export: their lengths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Size>,
    /// Its files and directories, in each export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

/// A command of the most that a target takes, 16 MiB, is over in minutes.
const BYTES_PER_S_MIN: Size = Size::from_bytes(64 << 10);
const CPU_SHARE_MAX: u64 = 10_000;
/// What one call may need.
const MEMORY_MIN: Size = Size::from_mib(128);
/// An admin queue, and one to read with.
const CONNECTIONS_MIN: usize = 2;
const NOTHING: &str = "0 lets a host write nothing; a [[grant]] says that better, with exports = { NAME = \"r\" }";

impl QuotaSpec {
    /// Checks every number: it must leave a host able to work, and be less than what every host may have.
    pub(super) fn check(&self, limits: &Limits, compute: &ComputeConfig) -> Result<(), (&'static str, String)> {
        let wrong = |field: &'static str, what: String| Err((field, what));
        let more = |value: &dyn std::fmt::Display, all: &dyn std::fmt::Display, field: &str| {
            format!("{value} is more than the {all} that every host may have ({field})")
        };
        if self.iops == Some(0) {
            return wrong("iops", "0 lets nobody do anything".into());
        }
        if let Some(rate) = self.bytes_per_s.filter(|rate| *rate < BYTES_PER_S_MIN) {
            return wrong("bytes_per_s", format!("{rate} is less than {BYTES_PER_S_MIN}"));
        }
        if let Some(share) = self.cpu_share.filter(|share| !(1..=CPU_SHARE_MAX).contains(share)) {
            return wrong("cpu_share", format!("{share} is not between 1 and {CPU_SHARE_MAX}"));
        }
        if let Some(memory) = self.memory.filter(|memory| *memory < MEMORY_MIN) {
            return wrong("memory", format!("{memory} is less than the {MEMORY_MIN} that one call may need"));
        }
        if let Some(memory) = self.memory.filter(|memory| *memory > compute.host_memory) {
            return wrong("memory", more(&memory, &compute.host_memory, "compute.host_memory"));
        }
        if let Some(programs) = self.programs.filter(|programs| *programs > compute.host_programs) {
            return wrong("programs", more(&programs, &compute.host_programs, "compute.host_programs"));
        }
        if let Some(connections) = self.connections.filter(|connections| *connections < CONNECTIONS_MIN) {
            return wrong(
                "connections",
                format!("{connections} is less than {CONNECTIONS_MIN}: an admin queue and one more"),
            );
        }
        if let Some(connections) = self.connections.filter(|connections| *connections > limits.connections) {
            return wrong("connections", more(&connections, &limits.connections, "limits.connections"));
        }
        if let Some(state) = self.state.filter(|state| state.bytes() > STATE_BYTES_MAX) {
            return wrong("state", more(&state, &Size::from_bytes(STATE_BYTES_MAX), "named states"));
        }
        if self.space == Some(Size::from_bytes(0)) {
            return wrong("space", NOTHING.into());
        }
        if self.files == Some(0) {
            return wrong("files", NOTHING.into());
        }
        Ok(())
    }

    /// Whose it is, and what it says.
    pub(super) fn rule(&self) -> QuotaRule {
        let limits = HostLimits {
            iops: self.iops,
            bytes_per_s: self.bytes_per_s.map(Size::bytes),
            cpu_share: self.cpu_share,
            memory_bytes: self.memory.map(Size::bytes),
            programs: self.programs.map(u64::from),
            connections: self.connections.map(|connections| connections as u64),
            state_bytes: self.state.map(Size::bytes),
            space_bytes: self.space.map(Size::bytes),
            files: self.files,
        };
        QuotaRule { of: self.of.clone(), limits }
    }
}
