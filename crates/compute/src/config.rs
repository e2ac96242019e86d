//! What the target computes, and how much of it.

use std::time::Duration;

use diskside_engine::{DEPTH, DEPTH_MAX};
use diskside_wire::function::WAIT_MAX_MS;
use serde::{Deserialize, Serialize};

use diskside_volume::Size;

use crate::schedule::quota::{Bounds, KEPT_PART};

/// [`ComputeConfig`] as a user wrote it: the table `compute`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeSettings {
    /// See [`ComputeConfig::enabled`].
    pub enabled: Option<bool>,
    /// See [`ComputeConfig::nsid`].
    pub nsid: Option<u32>,
    /// See [`ComputeConfig::engines`].
    pub engines: Option<usize>,
    /// See [`ComputeConfig::depth`].
    pub depth: Option<usize>,
    /// See [`ComputeConfig::programs`].
    pub programs: Option<u16>,
    /// See [`ComputeConfig::program_memory`].
    pub program_memory: Option<Size>,
    /// See [`ComputeConfig::host_programs`].
    pub host_programs: Option<u16>,
    /// See [`ComputeConfig::host_calls`].
    pub host_calls: Option<usize>,
    /// See [`ComputeConfig::host_memory`].
    pub host_memory: Option<Size>,
    /// See [`ComputeConfig::hosts_memory`].
    pub hosts_memory: Option<Size>,
    /// See [`ComputeConfig::cache`].
    pub cache: Option<Size>,
    /// See [`ComputeConfig::memory`].
    pub memory: Option<Size>,
    /// See [`ComputeConfig::memory_nsid`].
    pub memory_nsid: Option<u32>,
    /// See [`ComputeConfig::call_ms`].
    pub call_ms: Option<u32>,
    /// See [`ComputeConfig::memory_wait_ms`].
    pub memory_wait_ms: Option<u32>,
    /// See [`ComputeConfig::execution_ms`].
    pub execution_ms: Option<u32>,
    /// See [`ComputeConfig::active_programs`].
    pub active_programs: Option<u16>,
}

/// The limits of the functions that a target computes. Hosts differ by their NQN, which is a name and does not prove
/// anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComputeConfig {
    /// Whether there is a compute namespace.
    pub enabled: bool,
    /// Its namespace ID.
    pub nsid: u32,
    /// Functions that compute at a time.
    pub engines: usize,
    /// Windows of its input that are read ahead for a call that does not say how many, besides one for each thread.
    pub depth: usize,
    /// Program indexes, the shipped functions' among them.
    pub programs: u16,
    /// Bytes of all programs that hosts loaded.
    pub program_memory: Size,
    /// Programs that one host may have loaded.
    pub host_programs: u16,
    /// Calls of one host that run at a time; more wait.
    pub host_calls: usize,
    /// Bytes that one host may make the target hold: three quarters for its calls while they run; the rest for what waits
    /// for them or is kept, such as requests, prepared ones too, input, results, layouts and named states.
    pub host_memory: Size,
    /// The same of all hosts together.
    pub hosts_memory: Size,
    /// Bytes of volumes that are kept for later calls, together; 0: none. Only of volumes that are read with
    /// `O_DIRECT`: what goes through the page cache the kernel keeps.
    pub cache: Size,
    /// Bytes of the memory namespace, which the standard commands work on; 0: there is none, nor these commands.
    pub memory: Size,
    /// Its namespace ID.
    pub memory_nsid: u32,
    /// How long a call may take from its request to its end, in milliseconds, its waits for its host among that. Longer deadlines
    /// of requests are cut to it.
    pub call_ms: u32,
    /// How long a standard command waits for memory that others have, and for a thread, in milliseconds.
    pub memory_wait_ms: u32,
    /// How long an Execute Program may run, in milliseconds. A Linux host resets the controller when a command takes longer
    /// than its `nvme_core.io_timeout`, 30 seconds unless it was changed.
    pub execution_ms: u32,
    /// Programs that hosts may have active at a time, together; the shipped functions, always active, do not count.
    pub active_programs: u16,
}

/// A value of the configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The field of the table `compute`.
    pub field: &'static str,
    /// What is wrong with it.
    pub what: String,
}

impl ComputeSettings {
    /// The settings of `flags`, and where they say nothing those of this configuration.
    pub fn overridden_by(self, flags: Self) -> Self {
        Self {
            enabled: flags.enabled.or(self.enabled),
            nsid: flags.nsid.or(self.nsid),
            engines: flags.engines.or(self.engines),
            depth: flags.depth.or(self.depth),
            programs: flags.programs.or(self.programs),
            program_memory: flags.program_memory.or(self.program_memory),
            host_programs: flags.host_programs.or(self.host_programs),
            host_calls: flags.host_calls.or(self.host_calls),
            host_memory: flags.host_memory.or(self.host_memory),
            hosts_memory: flags.hosts_memory.or(self.hosts_memory),
            cache: flags.cache.or(self.cache),
            memory: flags.memory.or(self.memory),
            memory_nsid: flags.memory_nsid.or(self.memory_nsid),
            call_ms: flags.call_ms.or(self.call_ms),
            memory_wait_ms: flags.memory_wait_ms.or(self.memory_wait_ms),
            execution_ms: flags.execution_ms.or(self.execution_ms),
            active_programs: flags.active_programs.or(self.active_programs),
        }
    }
}

impl ComputeConfig {
    /// The settings, with defaults for what is absent.
    pub fn resolve(settings: ComputeSettings) -> Self {
        let host_memory = settings.host_memory.unwrap_or(Size::from_mib(512));
        Self {
            enabled: settings.enabled.unwrap_or(true),
            nsid: settings.nsid.unwrap_or(NSID),
            engines: settings.engines.unwrap_or_else(|| {
                std::thread::available_parallelism().map_or(1, |cores| cores.get().min(ENGINES_MAX))
            }),
            depth: settings.depth.unwrap_or(DEPTH),
            programs: settings.programs.unwrap_or(256),
            program_memory: settings.program_memory.unwrap_or(Size::from_mib(64)),
            host_programs: settings.host_programs.unwrap_or(32),
            host_calls: settings.host_calls.unwrap_or(16),
            host_memory,
            hosts_memory: settings.hosts_memory.unwrap_or(Size::from_bytes(host_memory.bytes().saturating_mul(4))),
            cache: settings.cache.unwrap_or(Size::from_mib(256)),
            memory: settings.memory.unwrap_or(Size::from_mib(64)),
            memory_nsid: settings.memory_nsid.unwrap_or(NSID - 1),
            call_ms: settings.call_ms.unwrap_or(CALL_MS),
            memory_wait_ms: settings.memory_wait_ms.unwrap_or(WAIT_MAX_MS),
            execution_ms: settings.execution_ms.unwrap_or(WAIT_MAX_MS),
            active_programs: settings.active_programs.or(settings.programs).unwrap_or(256),
        }
    }

    /// Checks every field; `nsids` says whether a volume has a namespace ID.
    pub fn check(&self, nsids: impl Fn(u32) -> bool) -> Result<(), ConfigProblem> {
        let wrong = |field: &'static str, what: String| Err(ConfigProblem { field, what });
        if !self.enabled {
            return Ok(());
        }
        if self.nsid == 0 || self.nsid > NSID {
            return wrong("nsid", format!("{} is not between 1 and {NSID}", self.nsid));
        }
        if nsids(self.nsid) {
            return wrong("nsid", format!("namespace ID {} is taken by a volume", self.nsid));
        }
        if self.memory.bytes() > 0 {
            let nsid = self.memory_nsid;
            if nsid == 0 || nsid > NSID {
                return wrong("memory_nsid", format!("{nsid} is not between 1 and {NSID}"));
            }
            if nsid == self.nsid || nsids(nsid) {
                return wrong("memory_nsid", format!("namespace ID {nsid} is taken by another namespace"));
            }
            if self.memory.bytes() > MEMORY_MAX || !self.memory.bytes().is_multiple_of(4096) {
                return wrong("memory", format!("{} is not a multiple of 4KiB up to 1TiB, less 64KiB", self.memory));
            }
        }
        for (field, bound_ms) in [("memory_wait_ms", self.memory_wait_ms), ("execution_ms", self.execution_ms)] {
            if bound_ms == 0 || bound_ms > BOUND_MAX_MS {
                return wrong(field, format!("{bound_ms} is not between 1 and {BOUND_MAX_MS}, an hour"));
            }
        }
        if self.call_ms == 0 {
            return wrong("call_ms", "0 lets nobody compute; write enabled = false".into());
        }
        if self.active_programs == 0 {
            return wrong("active_programs", "0 lets nobody run a program of their own".into());
        }
        if self.engines == 0 || self.engines > ENGINES_MAX {
            return wrong("engines", format!("{} is not between 1 and {ENGINES_MAX}", self.engines));
        }
        if self.depth > DEPTH_MAX {
            return wrong("depth", format!("{} is not between 0 and {DEPTH_MAX}", self.depth));
        }
        if self.host_calls == 0 {
            return wrong("host_calls", "0 lets nobody compute; write enabled = false".into());
        }
        if self.host_memory < Size::from_mib(64) {
            return wrong("host_memory", format!("{} is less than the 64MiB that one call may need", self.host_memory));
        }
        if self.hosts_memory < self.host_memory {
            let what = format!("{} is less than one host's {}, host_memory", self.hosts_memory, self.host_memory);
            return wrong("hosts_memory", what);
        }
        Ok(())
    }

    /// How long a call may take whose request asks for so many milliseconds; 0: for nothing in particular.
    pub(crate) fn deadline(&self, asked_ms: u32) -> Duration {
        let asked = if asked_ms == 0 { DEADLINE_MS } else { asked_ms };
        Duration::from_millis(asked.min(self.call_ms).into())
    }

    /// What calls may use while they run.
    pub(crate) fn calls_memory(&self) -> Bounds {
        let (all, kept) = (self.bounds(), self.kept_memory());
        Bounds { host_max: all.host_max - kept.host_max, total_max: all.total_max - kept.total_max }
    }

    /// What may wait for calls, or be kept for hosts.
    pub(crate) fn kept_memory(&self) -> Bounds {
        let all = self.bounds();
        Bounds { host_max: all.host_max / KEPT_PART, total_max: all.total_max / KEPT_PART }
    }

    /// How much of their own memory namespaces hosts may touch, all of them together: as much as they may hold otherwise, or, if
    /// that is more, the whole namespaces of as many hosts as `hosts_memory` has room for.
    pub(crate) fn device_memory(&self) -> u64 {
        let (host, all) = (u128::from(self.host_memory.bytes().max(1)), u128::from(self.hosts_memory.bytes()));
        let namespaces = u128::from(self.memory.bytes()) * all / host;
        u64::try_from(namespaces.max(all)).unwrap_or(u64::MAX)
    }

    fn bounds(&self) -> Bounds {
        Bounds { host_max: self.host_memory.bytes(), total_max: self.hosts_memory.bytes() }
    }
}

/// The namespace ID of the compute namespace: far from those that volumes are given.
const NSID: u32 = 1024;
/// A program sees at most so many bytes of one memory range.
const MEMORY_MAX: u64 = (1 << 40) - (64 << 10);
/// The longest that a standard command may be made to take.
const BOUND_MAX_MS: u32 = 3_600_000;
/// The time of a call that does not say how long it may take, and the most unless the operator says otherwise: a day.
const DEADLINE_MS: u32 = 3_600_000;
const CALL_MS: u32 = 24 * 3_600_000;
const ENGINES_MAX: usize = 256;
