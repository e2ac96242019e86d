//! The rights of one host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

/// The rights of one host.
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
    /// The signers, one of which must have signed what it loads, whatever it was granted; `None`: nobody.
    signers: Option<Arc<BTreeSet<[u8; 32]>>>,
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
    signed_by: BTreeSet<[u8; 32]>,
}

/// The facts that decide whether a program may be run.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The name under which it comes with the server, if it does.
    pub shipped: Option<&'a str>,
    /// SHA-256 of its object.
    pub sha256: &'a [u8; 32],
    /// The key of who signed it.
    pub signer: Option<&'a [u8; 32]>,
}

impl Rights {
    /// Of who may use everything that is served.
    pub fn everything() -> Self {
        Self { everything: true, memory: Some(MemoryRight::Own), statistics: true, ..Self::default() }
    }

    /// How a volume may be used.
    pub fn volume(&self, name: &str) -> Access {
        if self.everything { Access::Write } else { self.volumes.of(name) }
    }

    /// How an export may be used.
    pub fn export(&self, name: &str) -> Access {
        if self.everything { Access::Write } else { self.exports.of(name) }
    }

    /// Whether a program may be run.
    pub fn may_run(&self, program: &Program<'_>) -> bool {
        let functions = &self.functions;
        let signed_by = |keys: &BTreeSet<_>| program.signer.is_some_and(|signer| keys.contains(signer));
        let granted = match program.shipped {
            Some(name) => functions.all_shipped || functions.shipped.contains(name),
            None => functions.objects.contains(program.sha256) || signed_by(&functions.signed_by),
        };
        (self.everything || functions.any || granted) && !self.lacks_signature(program)
    }

    /// Whether a program is refused because nobody signed it whose signature is wanted.
    pub fn lacks_signature(&self, program: &Program<'_>) -> bool {
        let wanted = self.signers.as_ref().filter(|_| program.shipped.is_none());
        wanted.is_some_and(|wanted| !program.signer.is_some_and(|signer| wanted.contains(signer)))
    }

    /// Whether a program may be loaded that is not known yet.
    pub fn may_load(&self) -> bool {
        let Functions { any, objects, signed_by, .. } = &self.functions;
        self.everything || *any || !objects.is_empty() || !signed_by.is_empty()
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

    /// These, of programs that one of these signed.
    pub(crate) fn require_signature(&mut self, signers: &Arc<BTreeSet<[u8; 32]>>) {
        self.signers = Some(Arc::clone(signers));
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
                FunctionRule::Signed(key) => drop(self.functions.signed_by.insert(*key)),
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
