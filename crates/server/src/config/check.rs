//! The checks of a configuration: everything that can be checked without opening anything.

use std::collections::BTreeSet;

use diskside_nvme::DISCOVERY_NQN;
use diskside_rights::{FunctionRule, Grants, Quotas};

use super::error::ConfigError;
use super::nqn::check_nqn;
use super::quota::QuotaSpec;
use super::{EXPORTS_MAX, ServeConfig, VOLUMES_MAX};

const REACTORS_MAX: usize = 256;

impl ServeConfig {
    /// Checks every field; a target that is only reached in memory may listen nowhere.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field: &str, what: String| Err(ConfigError::Value { field: field.to_owned(), what });
        if let Err(what) = check_nqn(&self.nqn) {
            return wrong("nqn", what);
        }
        if self.nqn == DISCOVERY_NQN {
            return wrong("nqn", "this is the discovery service's own name; choose another".into());
        }
        for host in &self.hosts {
            if let Err(what) = check_nqn(host) {
                return wrong("hosts", what);
            }
        }
        self.check_reach()?;
        if self.reactors == 0 || self.reactors > REACTORS_MAX {
            return wrong("reactors", format!("{} is not between 1 and {REACTORS_MAX}", self.reactors));
        }
        if !self.cores.is_empty() && self.cores.len() != self.reactors {
            let what = format!("{} cores for {} reactors; write one each", self.cores.len(), self.reactors);
            return wrong("cores", what);
        }
        if let Err((field, what)) = self.security.check(&self.known_hosts, &self.hosts) {
            return wrong(&field, what);
        }
        self.rights()?;
        self.quotas()?;
        self.limits.check(self.reactors)?;
        self.compute.check(|nsid| self.volumes.iter().any(|volume| volume.nsid == Some(nsid))).map_err(|problem| {
            ConfigError::Value { field: format!("compute.{}", problem.field), what: problem.what }
        })?;
        self.check_volumes()?;
        self.check_exports()
    }

    /// What hosts may use.
    pub(crate) fn rights(&self) -> Result<Grants, ConfigError> {
        for (index, grant) in self.grants.iter().enumerate() {
            let wrong = |what| ConfigError::Value { field: nth("grant", index, self.grants.len()), what };
            if let Some(nqn) = grant.to.iter().find(|to| to.starts_with("nqn.")) {
                check_nqn(nqn).map_err(wrong)?;
            }
            Grants::new(std::slice::from_ref(grant), self.names_of_hosts()).map_err(wrong)?;
        }
        let grants = Grants::new(&self.grants, self.names_of_hosts())
            .map_err(|what| ConfigError::Value { field: "grant".into(), what })?;
        let signers = self
            .security
            .signers()
            .map_err(|what| ConfigError::Value { field: "security.require_signed_by".into(), what })?;
        Ok(if signers.is_empty() { grants } else { grants.requiring_signature(signers) })
    }

    /// How much hosts may take.
    pub(crate) fn quotas(&self) -> Result<Quotas, ConfigError> {
        for (index, quota) in self.quotas.iter().enumerate() {
            let wrong = |what| ConfigError::Value { field: nth("quota", index, self.quotas.len()), what };
            quota.check(&self.limits, &self.compute).map_err(|(field, what)| wrong(format!("{field}: {what}")))?;
            for nqn in quota.of.iter().filter(|of| of.starts_with("nqn.")) {
                check_nqn(nqn).map_err(wrong)?;
            }
            Quotas::new(&[quota.rule()], self.names_of_hosts()).map_err(wrong)?;
        }
        let rules: Vec<_> = self.quotas.iter().map(QuotaSpec::rule).collect();
        Quotas::new(&rules, self.names_of_hosts()).map_err(|what| ConfigError::Value { field: "quota".into(), what })
    }

    /// Names, NQNs and groups of the hosts that are known.
    fn names_of_hosts(&self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.known_hosts.iter().map(|host| (&*host.name, &*host.nqn, &*host.groups))
    }

    /// A name that is misspelt grants nothing, and nobody would know why.
    pub(super) fn check_granted_names(&self) -> Result<(), ConfigError> {
        let volume = |name: &str| self.volumes.iter().any(|volume| volume.name == name);
        let export = |name: &str| self.exports.iter().any(|export| export.name == name);
        for (index, grant) in self.grants.iter().enumerate() {
            let wrong = |what| Err(ConfigError::Value { field: nth("grant", index, self.grants.len()), what });
            let missing = |name: &&String, there: &dyn Fn(&str) -> bool| *name != "*" && !there(name);
            let volumes = grant.volumes.keys().find(|name| missing(name, &volume)).map(|name| ("volume", name));
            let exports = grant.exports.keys().find(|name| missing(name, &export)).map(|name| ("export", name));
            if let Some((kind, name)) = volumes.or(exports) {
                return wrong(format!("there is no {kind} `{name}`; name one that is served, or \"*\" for all"));
            }
            let shipped = |name: &str| {
                name == diskside_scan::SCAN_NAME || diskside_functions::shipped().iter().any(|known| known.name == name)
            };
            let unknown = grant.functions.iter().find_map(|rule| match rule {
                FunctionRule::ShippedNamed(name) if !shipped(name) => Some(name),
                _ => None,
            });
            if let Some(name) = unknown {
                return wrong(format!(
                    "no function `{name}` comes with the server; `diskside functions` lists those that do"
                ));
            }
        }
        Ok(())
    }

    fn check_exports(&self) -> Result<(), ConfigError> {
        let wrong = |name: &str, what: String| Err(ConfigError::Value { field: format!("export `{name}`"), what });
        let mut names = BTreeSet::new();
        for export in &self.exports {
            if let Err(what) = export.check() {
                return wrong(&export.name, what);
            }
            if !names.insert(&export.name) {
                return wrong(&export.name, "there are two of this name".into());
            }
        }
        if self.exports.len() > EXPORTS_MAX {
            let what = format!("{} exports; at most {EXPORTS_MAX}", self.exports.len());
            return Err(ConfigError::Value { field: "export".into(), what });
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), ConfigError> {
        let wrong = |name: &str, what: String| Err(ConfigError::Value { field: format!("volume `{name}`"), what });
        let (mut names, mut nsids) = (BTreeSet::new(), BTreeSet::new());
        for volume in &self.volumes {
            if let Err(what) = volume.check() {
                return wrong(&volume.name, what);
            }
            if !names.insert(&volume.name) {
                return wrong(&volume.name, "there are two of this name".into());
            }
            if let Some(nsid) = volume.nsid
                && !nsids.insert(nsid)
            {
                return wrong(&volume.name, format!("namespace ID {nsid} is taken by another volume"));
            }
        }
        if self.volumes.len() > VOLUMES_MAX {
            let what = format!("{} volumes; at most {VOLUMES_MAX}", self.volumes.len());
            return Err(ConfigError::Value { field: "volume".into(), what });
        }
        Ok(())
    }
}

/// How errors call one of several tables of a kind.
fn nth(kind: &str, index: usize, of: usize) -> String {
    if of > 1 { format!("{kind} {}", index + 1) } else { kind.to_owned() }
}
