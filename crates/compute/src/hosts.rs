//! The hosts that compute, by name, and the controllers of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use diskside_rights::QuotaTable;

use crate::host::Host;
use crate::schedule::quota::{Account, Ledger};

/// The controllers that compute, of type `A`. A host is there as long as it has one.
#[derive(Debug)]
pub struct Peers<A> {
    associations: BTreeMap<u64, Weak<A>>,
    /// Hosts by NQN, and how many controllers each has.
    hosts: BTreeMap<String, (Arc<Host>, usize)>,
    last_host: u64,
    /// What their hosts hold, and may take.
    ledger: Arc<Ledger>,
    quotas: Arc<QuotaTable>,
}

impl<A> Peers<A> {
    /// Nobody yet; hosts are charged to this ledger, within these quotas.
    pub fn new(ledger: Arc<Ledger>, quotas: Arc<QuotaTable>) -> Self {
        Self { associations: BTreeMap::new(), hosts: BTreeMap::new(), last_host: 0, ledger, quotas }
    }

    /// The controller with this number; it is made when it is first asked for.
    pub fn join(&mut self, id: u64, nqn: &str, make: impl FnOnce(Arc<Host>) -> Arc<A>) -> Arc<A> {
        if let Some(known) = self.associations.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        let (host, controllers) = self.hosts.entry(nqn.to_owned()).or_insert_with(|| {
            self.last_host += 1;
            let account = Account::new(&self.ledger, self.last_host, self.quotas.of(nqn));
            (Arc::new(Host::new(self.last_host, nqn.to_owned(), account)), 0)
        });
        *controllers += 1;
        let association = make(Arc::clone(host));
        self.associations.insert(id, Arc::downgrade(&association));
        association
    }

    /// A controller is gone. True: it was the last one of its host, which is gone, too.
    pub fn leave(&mut self, id: u64, nqn: &str) -> bool {
        // It may be there again, if a connection of it came while the last one went.
        if self.associations.get(&id).is_some_and(|known| known.strong_count() == 0) {
            self.associations.remove(&id);
        }
        let Some((_, controllers)) = self.hosts.get_mut(nqn) else { return false };
        *controllers -= 1;
        let last = *controllers == 0;
        if last {
            self.hosts.remove(nqn);
        }
        last
    }

    /// The host of this name, if it is there.
    pub(crate) fn host(&self, nqn: &str) -> Option<Arc<Host>> {
        self.hosts.get(nqn).map(|(host, _)| Arc::clone(host))
    }

    /// The controllers that are there.
    pub fn all(&self) -> Vec<Arc<A>> {
        self.associations.values().filter_map(Weak::upgrade).collect()
    }

    /// Hosts that are there.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.hosts.iter().map(|(nqn, (_, controllers))| (nqn.as_str(), *controllers))
    }
}
