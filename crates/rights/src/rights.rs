//! What one host may use.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::spec::{FunctionRule, GrantSpec, Mode};

/// How something may be used; what is greater includes what is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Not at all: as if it were not there.
    #[default]
    None,
    /// Read.
    Read,
    /// Read and written.
    Write,
}

/// Which device memory a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryRight {
    /// One of its own, that no other host sees.
    Own,
    /// The one that all who have this share.
    Shared,
}

/// What one host may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Nobody wrote a grant, or the host is a part of this process.
    everything: bool,
    volumes: Names,
    exports: Names,
    functions: Functions,
    /// Names of states that are shared, and beginnings of them.
    states: BTreeSet<String>,
    state_prefixes: BTreeSet<String>,
    memory: Option<MemoryRight>,
    statistics: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    all: Access,
    named: BTreeMap<String, Access>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Functions {
    any: bool,
    all_shipped: bool,
    shipped: BTreeSet<String>,
    objects: BTreeSet<[u8; 32]>,
}

impl Rights {
    /// Of who may use everything that is served.
    pub fn everything() -> Self {
        Self { everything: true, memory: Some(MemoryRight::Shared), statistics: true, ..Self::default() }
    }

    /// How a volume may be used.
    pub fn volume(&self, name: &str) -> Access {
        if self.everything { Access::Write } else { self.volumes.of(name) }
    }

    /// How an export may be used.
    pub fn export(&self, name: &str) -> Access {
        if self.everything { Access::Write } else { self.exports.of(name) }
    }

    /// Whether a program may be run: one that comes with the server, under this name, or one that a host loaded.
    pub fn may_run(&self, shipped: Option<&str>, sha256: &[u8; 32]) -> bool {
        let functions = &self.functions;
        let granted = match shipped {
            Some(name) => functions.all_shipped || functions.shipped.contains(name),
            None => functions.objects.contains(sha256),
        };
        self.everything || functions.any || granted
    }

    /// Whether a program may be loaded that is not known yet.
    pub fn may_load(&self) -> bool {
        self.everything || self.functions.any || !self.functions.objects.is_empty()
    }

    /// Whether it computes, or uses files: then there is a compute namespace for it.
    pub fn has_compute(&self) -> bool {
        let functions = &self.functions;
        self.may_load()
            || functions.all_shipped
            || !functions.shipped.is_empty()
            || self.exports.any()
            || self.statistics
    }

    /// Whether a state of this name is the one of all who share it, and not the host's own.
    pub fn shares_state(&self, name: &str) -> bool {
        // In the order of names, what `name` begins with stands before it.
        self.states.contains(name) || self.state_prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Which device memory there is for it.
    pub fn memory(&self) -> Option<MemoryRight> {
        self.memory
    }

    /// Whether it may read the counters of others.
    pub fn sees_all_counters(&self) -> bool {
        self.statistics
    }

    /// These, and what the grant gives.
    pub(crate) fn add(&mut self, grant: &GrantSpec) {
        self.volumes.add(&grant.volumes);
        self.exports.add(&grant.exports);
        for rule in &grant.functions {
            match rule {
                FunctionRule::Any => self.functions.any = true,
                FunctionRule::Shipped => self.functions.all_shipped = true,
                FunctionRule::ShippedNamed(name) => drop(self.functions.shipped.insert(name.clone())),
                FunctionRule::Object(hash) => drop(self.functions.objects.insert(*hash)),
            }
        }
        for pattern in &grant.state {
            match pattern.strip_suffix('*') {
                Some(prefix) => self.state_prefixes.insert(prefix.to_owned()),
                None => self.states.insert(pattern.clone()),
            };
        }
        self.memory = self.memory.max(grant.memory);
        self.statistics |= grant.statistics;
    }
}

impl Names {
    fn of(&self, name: &str) -> Access {
        self.named.get(name).copied().unwrap_or_default().max(self.all)
    }

    fn any(&self) -> bool {
        self.all > Access::None || !self.named.is_empty()
    }

    fn add(&mut self, granted: &BTreeMap<String, Mode>) {
        for (name, mode) in granted {
            let access = if name == "*" { &mut self.all } else { self.named.entry(name.clone()).or_default() };
            *access = mode.access().max(*access);
        }
    }
}
