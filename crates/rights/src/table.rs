//! The rights of all hosts, as they are now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::rights::{Access, MemoryRight, Program, Rights};
use crate::spec::GrantSpec;

/// The rights of hosts by NQN.
#[derive(Clone, Debug)]
pub struct Grants {
    /// Nobody wrote one.
    open: bool,
    by_nqn: BTreeMap<String, Arc<Rights>>,
    others: Arc<Rights>,
}

/// A host that grants name: by its own name, by groups, or by its NQN.
#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    name: &'a str,
    groups: &'a [String],
}

impl Default for Grants {
    /// Everybody may use everything.
    fn default() -> Self {
        Self { open: true, by_nqn: BTreeMap::new(), others: Arc::new(Rights::everything()) }
    }
}

impl Grants {
    /// The rights that these grants give, for hosts given as name, NQN and groups.
    ///
    /// # Errors
    /// A grant is to somebody who is not known; or it is none.
    pub fn new<'a>(
        grants: &[GrantSpec],
        hosts: impl IntoIterator<Item = (&'a str, &'a str, &'a [String])>,
    ) -> Result<Self, String> {
        if grants.is_empty() {
            return Ok(Self::default());
        }
        let hosts: BTreeMap<&str, Known<'_>> =
            hosts.into_iter().map(|(name, nqn, groups)| (nqn, Known { name, groups })).collect();
        let names: BTreeSet<&str> =
            hosts.values().flat_map(|host| host.groups.iter().map(String::as_str).chain([host.name])).collect();
        let mut by_nqn: BTreeMap<String, Rights> =
            hosts.keys().map(|nqn| ((*nqn).to_owned(), Rights::default())).collect();
        let mut others = Rights::default();
        for grant in grants {
            grant.check()?;
            for to in &grant.to {
                if to != "*" && !names.contains(to.as_str()) && !to.starts_with("nqn.") {
                    return Err(format!("`{to}` is neither a [[host]] nor a group of one"));
                }
                if to.starts_with("nqn.") {
                    by_nqn.entry(to.clone()).or_default();
                }
            }
            let is_to = |who: &str| grant.to.iter().any(|to| to == who);
            if is_to("*") {
                others.add(grant);
            }
            for (nqn, rights) in &mut by_nqn {
                let known = hosts.get(nqn.as_str());
                let is_named =
                    known.is_some_and(|host| is_to(host.name) || host.groups.iter().any(|group| is_to(group)));
                if is_named || is_to(nqn) {
                    rights.add(grant);
                }
            }
        }
        // Named hosts also have what everybody has; a host may be named after a grant to all.
        for grant in grants.iter().filter(|grant| grant.to.iter().any(|to| to == "*")) {
            by_nqn.values_mut().for_each(|rights| rights.add(grant));
        }
        let by_nqn = by_nqn.into_iter().map(|(nqn, rights)| (nqn, Arc::new(rights))).collect();
        Ok(Self { open: false, by_nqn, others: Arc::new(others) })
    }

    /// The same, of programs that one of these signed.
    #[must_use]
    pub fn requiring_signature(mut self, signers: BTreeSet<[u8; 32]>) -> Self {
        let signers = Arc::new(signers);
        self.open = false;
        for rights in self.by_nqn.values_mut().chain([&mut self.others]) {
            Arc::make_mut(rights).require_signature(&signers);
        }
        self
    }

    /// The rights of a host.
    pub fn of(&self, nqn: &str) -> &Arc<Rights> {
        self.by_nqn.get(nqn).unwrap_or(&self.others)
    }
}

/// The rights of all hosts, as they are now.
#[derive(Debug)]
pub struct RightsTable {
    now: RwLock<Arc<Grants>>,
    /// Whether there are no grants: asked on the path of commands, so without a lock.
    open: AtomicBool,
    version: AtomicU64,
}

impl RightsTable {
    /// Of these grants.
    pub fn new(grants: Grants) -> Arc<Self> {
        let open = AtomicBool::new(grants.open);
        Arc::new(Self { now: RwLock::new(Arc::new(grants)), open, version: AtomicU64::new(0) })
    }

    /// Replaces them.
    pub fn set(&self, grants: Grants) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        self.open.store(grants.open, Ordering::Release);
        *now = Arc::new(grants);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// As they are now.
    pub fn now(&self) -> Arc<Grants> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes when they are replaced.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

/// The rights of one host, as they are whenever somebody asks.
#[derive(Clone, Debug)]
pub struct HostRights {
    /// `None`: it may use everything, for good.
    table: Option<Arc<RightsTable>>,
    nqn: Arc<str>,
}

impl HostRights {
    /// Of this host.
    pub fn of(table: &Arc<RightsTable>, nqn: &str) -> Self {
        Self { table: Some(Arc::clone(table)), nqn: nqn.into() }
    }

    /// Of one that may use everything.
    pub fn everything() -> Self {
        Self { table: None, nqn: "".into() }
    }

    /// Whose they are; empty: of one without a name.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// As they are now.
    pub fn now(&self) -> Arc<Rights> {
        match &self.table {
            Some(table) => Arc::clone(table.now().of(&self.nqn)),
            None => Arc::new(Rights::everything()),
        }
    }

    /// Whether it may use everything.
    pub fn is_everything(&self) -> bool {
        self.table.as_ref().is_none_or(|table| table.open.load(Ordering::Acquire))
    }

    /// How it may use a volume now.
    pub fn volume(&self, name: &str) -> Access {
        if self.is_everything() { Access::Write } else { self.now().volume(name) }
    }

    /// How it may use an export now.
    pub fn export(&self, name: &str) -> Access {
        if self.is_everything() { Access::Write } else { self.now().export(name) }
    }

    /// Whether it may run a program now.
    pub fn may_run(&self, program: &Program<'_>) -> bool {
        self.is_everything() || self.now().may_run(program)
    }

    /// Whether a state of this name is the one of all who share it. Without grants each host has its own.
    pub fn shares_state(&self, name: &str) -> bool {
        !self.is_everything() && self.now().shares_state(name)
    }

    /// Which device memory it has now.
    pub fn memory(&self) -> Option<MemoryRight> {
        match &self.table {
            Some(_) if self.is_everything() => Some(MemoryRight::Own),
            Some(_) => self.now().memory(),
            None => Some(MemoryRight::Shared),
        }
    }

    /// Changes when they may have.
    pub fn version(&self) -> u64 {
        self.table.as_ref().map_or(0, |table| table.version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(text: &str) -> Result<Grants, String> {
        #[derive(serde::Deserialize)]
        struct File {
            grant: Vec<GrantSpec>,
        }
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let readers = ["readers".to_owned()];
        Grants::new(&file.grant, [("ann", "nqn.a", &readers[..]), ("bob", "nqn.b", &[][..])])
    }

    fn loaded(sha256: &[u8; 32]) -> Program<'_> {
        Program { shipped: None, sha256, signer: None }
    }

    fn shipped(name: &str) -> Program<'_> {
        Program { shipped: Some(name), sha256: &[0; 32], signer: None }
    }

    #[test]
    fn without_grants_all_is_open_and_with_one_what_is_not_granted_is_closed() {
        let open = Grants::new(&[], []).unwrap();
        assert_eq!(
            (open.of("nqn.x").volume("data"), open.of("nqn.x").memory()),
            (Access::Write, Some(MemoryRight::Own))
        );
        let some = grants("[[grant]]\nto = ['readers']\nvolumes = { data = 'r' }\nexports = { '*' = 'r', out = 'rw' }")
            .unwrap();
        let (ann, bob) = (some.of("nqn.a"), some.of("nqn.b"));
        assert_eq!((ann.volume("data"), ann.volume("other")), (Access::Read, Access::None));
        assert_eq!((ann.export("logs"), ann.export("out")), (Access::Read, Access::Write));
        assert_eq!(**bob, Rights::default());
        assert_eq!(**some.of("nqn.x"), Rights::default());
        assert!(!ann.may_load() && !ann.may_run(&shipped("grep")) && ann.has_compute() && !bob.has_compute());
        assert_eq!((ann.memory(), ann.sees_all_counters()), (None, false));
    }

    #[test]
    fn a_host_has_what_all_grants_to_it_give_together() {
        let text = format!(
            "[[grant]]\nto = ['*']\nvolumes = {{ data = 'r' }}\nfunctions = ['shipped:grep']\n\
             [[grant]]\nto = ['ann', 'nqn.c']\nvolumes = {{ data = 'rw' }}\nfunctions = ['sha256:{}']\nmemory = 'own'\n\
             state = ['kv/*', 'one']\nstatistics = true\n",
            "AB".repeat(32)
        );
        let some = grants(&text).unwrap();
        for nqn in ["nqn.a", "nqn.c"] {
            let rights = some.of(nqn);
            assert_eq!((rights.volume("data"), rights.memory()), (Access::Write, Some(MemoryRight::Own)));
            assert!(rights.may_run(&loaded(&[0xab; 32])) && !rights.may_run(&loaded(&[0xac; 32])) && rights.may_load());
            assert!(rights.may_run(&shipped("grep")) && !rights.may_run(&shipped("wc")));
            assert!(rights.shares_state("kv/a") && rights.shares_state("one") && !rights.shares_state("one more"));
            assert!(rights.sees_all_counters());
        }
        for nqn in ["nqn.b", "nqn.x"] {
            assert_eq!((some.of(nqn).volume("data"), some.of(nqn).memory()), (Access::Read, None));
            assert!(some.of(nqn).may_run(&shipped("grep")) && !some.of(nqn).shares_state("kv/a"));
        }
    }

    #[test]
    fn a_signature_counts_where_it_is_granted_and_where_it_is_demanded() {
        let (good, bad) = ([1; 32], [2; 32]);
        let signed = |signer| Program { shipped: None, sha256: &[9; 32], signer };
        let text = format!("[[grant]]\nto = ['ann']\nfunctions = ['signed:{}']\n", "01".repeat(32));
        let some = grants(&text).unwrap();
        let ann = some.of("nqn.a");
        assert!(ann.may_load() && ann.has_compute());
        assert!(ann.may_run(&signed(Some(&good))) && !ann.may_run(&signed(Some(&bad))) && !ann.may_run(&signed(None)));
        // Demanded of all, it is demanded of those who may run anything, too; not of what comes with the server.
        for open in [Grants::default(), grants("[[grant]]\nto = ['*']\nfunctions = ['any']").unwrap()] {
            let table = RightsTable::new(open.requiring_signature([good].into()));
            let host = HostRights::of(&table, "nqn.b");
            assert!(host.may_run(&signed(Some(&good))) && host.may_run(&shipped("grep")));
            for signer in [None, Some(&bad)] {
                assert!(!host.may_run(&signed(signer)) && host.now().lacks_signature(&signed(signer)));
            }
        }
        let table = RightsTable::new(Grants::default().requiring_signature([good].into()));
        let host = HostRights::of(&table, "nqn.b");
        assert_eq!((host.volume("data"), host.memory()), (Access::Write, Some(MemoryRight::Own)));
        assert!(!host.shares_state("kv/a") && HostRights::everything().may_run(&signed(None)));
    }

    #[test]
    fn what_is_no_grant_is_refused_with_its_reason() {
        for (text, want) in [
            ("to = []", "`to` is empty"),
            ("to = ['carl']", "`carl` is neither a [[host]] nor a group"),
            ("to = ['*']\nvolumes = { 'da*' = 'r' }", "`da*`: a name, or"),
            ("to = ['*']\nvolumes = { data = 'w' }", "unknown variant `w`"),
            ("to = ['*']\nstate = ['a*b']", "`a*b`: a state's name"),
            ("to = ['*']\nfunctions = ['sha256:12']", "`sha256:12`: write any"),
            ("to = ['*']\nfunctions = ['grep']", "`grep`: write any"),
            ("to = ['*']\nfunction = ['any']", "unknown field `function`"),
        ] {
            let error = grants(&format!("[[grant]]\n{text}\n")).unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn a_host_notices_that_its_rights_were_replaced() {
        let table = RightsTable::new(Grants::default());
        let host = HostRights::of(&table, "nqn.b");
        let before = host.version();
        assert_eq!(host.now().volume("data"), Access::Write);
        table.set(grants("[[grant]]\nto = ['ann']\nvolumes = { data = 'r' }").unwrap());
        assert_ne!(host.version(), before);
        assert_eq!(host.now().volume("data"), Access::None);
        assert_eq!(HostRights::everything().now().volume("data"), Access::Write);
    }
}
