//! The namespaces and subsystems that a target serves, shared by all its connections.

mod paths;
mod reserved;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::auth::{Accepted, Concatenation, HostKeys, Names, Policy};
use crate::nqn::Nqn;
use crate::wire::{DiscoveryEntry, subsystem_type, transport_type};

use super::ana::{PathState, Paths};
use super::config::{
    Access, AllVisible, AllowedHosts, ConfigError, ControllerInfo, Listener, Namespace, Place, SubsystemConfig,
    Visibility,
};
use super::lock::lock;
use super::namespaces::Namespaces;
use super::reservations::Reservations;
use super::shared::{Controller, Notice};

/// All that a target serves.
///
/// Its methods, and those of [`Subsystem`], may be called at any time, on any thread; connections that a change concerns
/// are woken through the [`Waker`](std::task::Waker) they were made with. The hot path of a connection takes no lock: it
/// works on a snapshot of the namespaces and notices a newer one by one atomic load per batch of input.
#[derive(Debug)]
pub struct Subsystems {
    /// For the subsystems, whose changes the discovery log tells.
    me: Weak<Subsystems>,
    state: Mutex<Served>,
    discovery: Arc<Subsystem>,
    shutting_down: AtomicBool,
}

#[derive(Debug, Default)]
struct Served {
    subsystems: BTreeMap<Nqn, Arc<Subsystem>>,
    listeners: Vec<Listener>,
    /// GENCTR of the discovery log.
    generation: u64,
}

/// The most entries of a queue of the discovery controller, and of any admin queue.
pub(super) const ADMIN_ENTRIES_MAX: u16 = 128;

impl Subsystems {
    /// Serves nothing yet, besides discovery.
    pub fn new() -> Arc<Self> {
        let config = SubsystemConfig {
            queue_entries_max: ADMIN_ENTRIES_MAX,
            write_cache: false,
            ..SubsystemConfig::new(Nqn::discovery(), "discovery")
        };
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            state: Mutex::default(),
            discovery: Arc::new(Subsystem::new(config, me.clone())),
            shutting_down: AtomicBool::new(false),
        })
    }

    /// Adds a subsystem, and notifies hosts of the discovery service that may use it.
    pub fn add(&self, config: SubsystemConfig) -> Result<Arc<Subsystem>, ConfigError> {
        config.check()?;
        let nqn = config.nqn.clone();
        let mut state = lock(&self.state);
        if nqn.is_discovery() || state.subsystems.contains_key(&nqn) {
            return Err(ConfigError::NameTaken(nqn));
        }
        let subsystem = Arc::new(Subsystem::new(config, self.me.clone()));
        state.subsystems.insert(nqn, subsystem.clone());
        self.change_discovery(state);
        Ok(subsystem)
    }

    /// Removes a subsystem. Its connections close. Returns whether it existed.
    pub fn remove(&self, nqn: &Nqn) -> bool {
        let mut state = lock(&self.state);
        let Some(subsystem) = state.subsystems.remove(nqn) else { return false };
        self.change_discovery(state);
        subsystem.close_controllers(|_| true);
        true
    }

    /// The subsystem of this name.
    pub fn get(&self, nqn: &Nqn) -> Option<Arc<Subsystem>> {
        if nqn.is_discovery() {
            return Some(self.discovery.clone());
        }
        lock(&self.state).subsystems.get(nqn).cloned()
    }

    /// Sets the addresses that the discovery log tells.
    pub fn set_listeners(&self, listeners: Vec<Listener>) {
        let mut state = lock(&self.state);
        state.listeners = listeners;
        self.change_discovery(state);
    }

    /// Ends every connection once the commands that the embedder has are answered, for a graceful stop: woken
    /// connections finish; a connection that no Connect has reached yet closes at its next
    /// [`handle_wake`](super::Connection::handle_wake).
    pub fn shutdown(&self) {
        self.shutting_down.store(true, Ordering::Release);
        let state = lock(&self.state);
        for subsystem in state.subsystems.values().chain([&self.discovery]) {
            subsystem.wake_all();
        }
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }

    /// The discovery log for `host`, which connected to the address `local`: its generation and entries.
    pub(super) fn discovery_log(&self, host: &Nqn, local: Option<IpAddr>) -> (u64, Vec<DiscoveryEntry>) {
        let state = lock(&self.state);
        let mut entries = Vec::new();
        for subsystem in state.subsystems.values().filter(|subsystem| !subsystem.refuses(host)) {
            for (index, listener) in state.listeners.iter().enumerate() {
                let reached = local.filter(|local| listener.any && local.is_ipv4() == listener.address.is_ipv4());
                let address = reached.unwrap_or(listener.address);
                entries.push(discovery_entry(subsystem, index, Listener { address, ..*listener }));
            }
        }
        (state.generation, entries)
    }

    /// Ends a change of what the discovery log tells.
    fn change_discovery(&self, mut state: MutexGuard<'_, Served>) {
        state.generation += 1;
        drop(state);
        for controller in self.discovery.controllers_now() {
            controller.notify(Notice::DiscoveryLog);
        }
    }
}

fn discovery_entry(subsystem: &Subsystem, port: usize, listener: Listener) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::zeroed();
    entry.transport = transport_type::TCP;
    entry.address_family = if listener.address.is_ipv4() { DiscoveryEntry::IPV4 } else { DiscoveryEntry::IPV6 };
    entry.kind = subsystem_type::NVM;
    entry.requirements = DiscoveryEntry::FLOW_CONTROL_OPTIONAL;
    entry.port_id.set(port as u16);
    entry.controller_id.set(crate::wire::CONTROLLER_ID_DYNAMIC);
    entry.admin_entries.set(ADMIN_ENTRIES_MAX);
    pad(&mut entry.service, &listener.port.to_string());
    pad(&mut entry.address, &listener.address.to_string());
    entry.nqn = subsystem.config.nqn.to_field();
    entry
}

/// Fills a field with `text` and spaces.
pub(super) fn pad(field: &mut [u8], text: &str) {
    field.fill(b' ');
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// One subsystem.
#[derive(Debug)]
pub struct Subsystem {
    pub(super) config: SubsystemConfig,
    parent: Weak<Subsystems>,
    state: Mutex<SubsystemState>,
    /// Changes with the namespaces, and with what hosts may do with them.
    epoch: AtomicU64,
    /// Locked behind the state, if both are.
    pub(super) reservations: Arc<Reservations>,
}

#[derive(Debug)]
struct SubsystemState {
    namespaces: Arc<Namespaces>,
    allowed_hosts: AllowedHosts,
    authentication: Policy,
    visibility: Arc<dyn Visibility>,
    paths: Paths,
    controllers: BTreeMap<u16, Arc<Controller>>,
    /// Namespaces that are gone, by NSID.
    retired: BTreeMap<u32, Retired>,
    /// Controller identifiers are given in turn, so that a late connection of a controller that is gone finds none.
    last_cntlid: u16,
}

/// A namespace that was removed. Commands name a namespace by its number alone, and hosts hear of changes later than they
/// happen: so while a host is connected that knew it, nothing else can have its number.
#[derive(Debug)]
struct Retired {
    uuid: [u8; 16],
    known_to: Vec<Weak<Controller>>,
}

impl SubsystemState {
    /// Whether a host of this name may try. One without a name is let in only where names decide nothing.
    fn knows(&self, host: &Nqn) -> bool {
        self.allowed_hosts.contains(host) && !(host.is_anonymous() && self.names_decide())
    }

    fn names_decide(&self) -> bool {
        let policy = &self.authentication;
        policy.required || policy.channel_required || !policy.hosts.is_empty()
    }

    /// Whether a host needs a key here.
    fn must_be_known(&self) -> bool {
        self.authentication.required || self.authentication.channel_required
    }

    /// All that decides to which hosts the discovery log shows the subsystem.
    fn shown_to(&self) -> (AllowedHosts, bool, Option<BTreeSet<Nqn>>) {
        let with_keys = || self.authentication.hosts.keys().cloned().collect();
        (self.allowed_hosts.clone(), self.names_decide(), self.must_be_known().then(with_keys))
    }

    fn check_nsid(&self, nsid: u32, uuid: &[u8; 16]) -> Result<(), ConfigError> {
        if self.namespaces.get(nsid).is_some() {
            return Err(ConfigError::NsidTaken(nsid));
        }
        let is_known = self.retired.get(&nsid).filter(|retired| retired.uuid != *uuid).is_some_and(|retired| {
            let mut controllers = retired.known_to.iter().filter_map(Weak::upgrade);
            controllers.any(|controller| !controller.is_closed())
        });
        if is_known { Err(ConfigError::NsidKnown(nsid)) } else { Ok(()) }
    }
}

/// How a connection came.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival<'a> {
    /// From this process.
    Embedded,
    /// As anybody can.
    Plain,
    /// Over a secure channel, whose key is that of these two.
    Channel(&'a Names),
    /// Over one whose key an authentication of these two made.
    Concatenated(&'a Names),
}

/// How a host gets in.
pub(super) enum Admission {
    /// By its name.
    Open,
    /// With one of these keys.
    WithKey(HostKeys, Accepted, Concatenation),
    /// It proved that it has one when its channel's key was made, and may do so again.
    Proved(HostKeys, Accepted),
    /// Not at all.
    Refused,
}

/// The largest controller identifier that may be given (Base 4.6: FFF0h and above are reserved).
const CNTLID_MAX: u16 = 0xffef;

impl Subsystem {
    fn new(config: SubsystemConfig, parent: Weak<Subsystems>) -> Self {
        let state = SubsystemState {
            namespaces: Arc::default(),
            allowed_hosts: config.allowed_hosts.clone(),
            authentication: config.authentication.clone(),
            visibility: Arc::new(AllVisible),
            paths: Paths::default(),
            controllers: BTreeMap::new(),
            retired: BTreeMap::new(),
            last_cntlid: config.last_controller_id,
        };
        Self { config, parent, state: Mutex::new(state), epoch: AtomicU64::new(0), reservations: Arc::default() }
    }

    /// Its name.
    pub fn nqn(&self) -> &Nqn {
        &self.config.nqn
    }

    /// Whether a namespace with this UUID could be added under this number now.
    pub fn check_nsid(&self, nsid: u32, uuid: &[u8; 16]) -> Result<(), ConfigError> {
        lock(&self.state).check_nsid(nsid, uuid)
    }

    /// Adds a namespace, and notifies hosts. A number that was another namespace's, with another UUID, is refused as
    /// long as a controller exists that knew that one: a late command of its host would change the wrong volume.
    pub fn add_namespace(&self, namespace: Namespace) -> Result<(), ConfigError> {
        self.config.check_namespace(&namespace)?;
        let nsid = namespace.nsid;
        self.change_namespaces(nsid, |state, slot| {
            state.check_nsid(nsid, &namespace.uuid)?;
            state.retired.remove(&nsid);
            *slot = Some(namespace);
            Ok(())
        })
    }

    /// Replaces the description of a namespace (its size or whether it is read-only changed; not its UUID), and
    /// notifies hosts.
    pub fn update_namespace(&self, namespace: Namespace) -> Result<(), ConfigError> {
        self.config.check_namespace(&namespace)?;
        let nsid = namespace.nsid;
        self.change_namespaces(nsid, |_, slot| match slot {
            None => Err(ConfigError::NoSuchNamespace(nsid)),
            Some(old) if old.uuid != namespace.uuid => Err(ConfigError::NsidTaken(nsid)),
            Some(old) => {
                *old = namespace;
                Ok(())
            }
        })
    }

    /// Removes a namespace, and notifies hosts. Commands that the embedder already has must still be completed.
    pub fn remove_namespace(&self, nsid: u32) -> Option<Namespace> {
        let removed = self.change_namespaces(nsid, |state, slot| {
            let namespace = slot.take().ok_or(ConfigError::NoSuchNamespace(nsid))?;
            let known_to = state.controllers.values().map(Arc::downgrade).collect();
            state.retired.insert(nsid, Retired { uuid: namespace.uuid, known_to });
            self.reservations.remove(nsid);
            Ok(namespace)
        });
        removed.ok()
    }

    /// The namespaces, by NSID.
    pub fn namespaces(&self) -> Vec<Namespace> {
        self.snapshot().iter().cloned().collect()
    }

    /// The controllers that hosts have made.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.controllers_now().iter().map(|controller| controller.info()).collect()
    }

    /// Changes who may connect, closes controllers of hosts that no longer may, and notifies hosts of the discovery
    /// service if it shows the subsystem to others than before.
    pub fn set_allowed_hosts(&self, hosts: AllowedHosts) {
        let is_shown_to_others = self.change_hosts(|state| state.allowed_hosts = hosts.clone());
        self.close_controllers(|controller| !controller.trusted && !hosts.contains(&controller.host));
        self.tell_discovery(is_shown_to_others);
    }

    /// Changes who must authenticate, and with which keys. Hosts that are connected stay, unless they may no longer
    /// connect at all; the others need one of the new keys when they connect again.
    pub fn set_authentication(&self, policy: Policy) {
        let is_shown_to_others = self.change_hosts(|state| state.authentication = policy);
        self.close_controllers(|controller| !controller.trusted && self.refuses(&controller.host));
        self.tell_discovery(is_shown_to_others);
    }

    /// Changes who is let in. True: the discovery log shows the subsystem to others than before.
    fn change_hosts(&self, change: impl FnOnce(&mut SubsystemState)) -> bool {
        let mut state = lock(&self.state);
        let before = state.shown_to();
        change(&mut state);
        state.shown_to() != before
    }

    /// A log that has not changed keeps its generation: hosts that ask twice to be sure would never be.
    fn tell_discovery(&self, has_changed: bool) {
        if let Some(parent) = self.parent.upgrade().filter(|_| has_changed) {
            parent.change_discovery(lock(&parent.state));
        }
    }

    /// Changes which namespaces hosts see, and notifies those that see others than before.
    pub fn set_visibility(&self, visibility: Arc<dyn Visibility>) {
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut state.visibility, Arc::clone(&visibility));
        let all = Arc::clone(&state.namespaces);
        self.renew(&mut state, all.by_nsid.clone());
        drop(state);
        for controller in self.controllers_now() {
            let differs = |namespace: &&Namespace| {
                controller.access(&*before, namespace) != controller.access(&*visibility, namespace)
            };
            for namespace in all.iter().filter(differs) {
                controller.notify(Notice::Namespace(namespace.nsid));
                let is_seen = |by: &dyn Visibility| controller.access(by, namespace) != Access::None;
                if is_seen(&*before) != is_seen(&*visibility) {
                    controller.notify(Notice::Members);
                }
            }
        }
    }

    fn change_namespaces<T>(
        &self,
        nsid: u32,
        change: impl FnOnce(&mut SubsystemState, &mut Option<Namespace>) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let mut state = lock(&self.state);
        let mut by_nsid = state.namespaces.by_nsid.clone();
        let index = nsid.checked_sub(1).ok_or(ConfigError::NoSuchNamespace(nsid))? as usize;
        if index >= self.config.namespaces_max as usize {
            return Err(ConfigError::NoSuchNamespace(nsid));
        }
        if by_nsid.len() <= index {
            by_nsid.resize(index + 1, None);
        }
        let before = by_nsid[index].clone();
        let done = change(&mut state, &mut by_nsid[index])?;
        let (after, visibility) = (by_nsid[index].clone(), Arc::clone(&state.visibility));
        self.renew(&mut state, by_nsid);
        drop(state);
        for controller in self.controllers_now() {
            let sees = |namespace: &Namespace| controller.access(&*visibility, namespace) != Access::None;
            let (saw, sees) = (before.as_ref().is_some_and(sees), after.as_ref().is_some_and(sees));
            if saw || sees {
                controller.notify(Notice::Namespace(nsid));
            }
            if saw != sees {
                controller.notify(Notice::Members);
            }
        }
        Ok(done)
    }

    /// Lets connections notice that there is something new.
    fn renew(&self, state: &mut SubsystemState, by_nsid: Vec<Option<Namespace>>) {
        let epoch = state.namespaces.epoch + 1;
        state.namespaces = Namespaces::of(epoch, by_nsid);
        self.epoch.store(epoch, Ordering::Release);
    }

    // -- for connections ----------------------------------------------------------------------------------------------

    /// The namespaces as they are now.
    fn snapshot(&self) -> Arc<Namespaces> {
        lock(&self.state).namespaces.clone()
    }

    /// The namespaces as they are now to the host of this controller.
    pub(super) fn snapshot_for(&self, controller: &Controller) -> Arc<Namespaces> {
        let (all, visibility, path) = {
            let state = lock(&self.state);
            (Arc::clone(&state.namespaces), Arc::clone(&state.visibility), state.paths.of(controller.listener))
        };
        let access = |namespace: &Namespace| controller.access(&*visibility, namespace);
        // Behind the state, whose epoch rises after a change of these: a snapshot that misses one is old.
        let excluded = self.reservations.exclusions(&controller.host_id);
        let is_as_it_is = path == PathState::Optimized && excluded.is_empty();
        if is_as_it_is && all.iter().all(|namespace| access(namespace) == Access::Write) {
            return all;
        }
        let seen = |namespace: &Option<Namespace>| {
            let namespace = namespace.as_ref()?;
            match access(namespace) {
                Access::None => None,
                Access::Read => Some(Namespace { read_only: true, ..namespace.clone() }),
                Access::Write => Some(namespace.clone()),
            }
        };
        Arc::new(Namespaces { epoch: all.epoch, by_nsid: all.by_nsid.iter().map(seen).collect(), excluded, path })
    }

    /// A command of this controller's host was refused: the embedder hears of it if a reservation kept the host from it, or the host has no
    /// right to it.
    pub(super) fn note_denial(&self, controller: &Controller, nsid: u32, is_conflict: bool) {
        let (all, visibility) = {
            let state = lock(&self.state);
            (Arc::clone(&state.namespaces), Arc::clone(&state.visibility))
        };
        let Some(namespace) = all.get(nsid) else { return };
        if is_conflict {
            visibility.conflicted(&controller.host, namespace);
        } else if !namespace.read_only && controller.access(&*visibility, namespace) != Access::Write {
            visibility.denied(&controller.host, namespace);
        }
    }

    /// This controller's host has changed a reservation.
    pub(super) fn tell_reserved(&self, controller: &Controller, namespace: &Namespace, action: &'static str) {
        let visibility = Arc::clone(&lock(&self.state).visibility);
        visibility.reserved(&controller.host, namespace, action);
    }

    /// Changes when a new snapshot differs.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn is_discovery(&self) -> bool {
        self.config.nqn.is_discovery()
    }

    /// How `host` gets in. One that is part of this process need not be known; one that comes over a channel is who the
    /// channel's key says, and nobody else.
    pub(super) fn admission(&self, host: &Nqn, arrival: Arrival<'_>) -> Admission {
        let state = lock(&self.state);
        let policy = &state.authentication;
        let with_key =
            |keys: &HostKeys, concatenation| Admission::WithKey(keys.clone(), policy.accepted.clone(), concatenation);
        let known = policy.hosts.get(host);
        match (arrival, known) {
            (Arrival::Embedded, _) => Admission::Open,
            _ if !state.knows(host) => Admission::Refused,
            (Arrival::Channel(names) | Arrival::Concatenated(names), _)
                if names.host != *host || names.subsystem != self.config.nqn =>
            {
                Admission::Refused
            }
            // A host that discovers learns nothing that the others do not.
            _ if self.is_discovery() => Admission::Open,
            (Arrival::Channel(_), Some(keys)) if policy.both_required => with_key(keys, Concatenation::Never),
            (Arrival::Channel(_), Some(keys)) if keys.has_channel_key => Admission::Open,
            (Arrival::Concatenated(_), Some(keys)) if policy.concatenates(keys) => {
                Admission::Proved(keys.clone(), policy.accepted.clone())
            }
            (Arrival::Channel(_) | Arrival::Concatenated(_), _) => Admission::Refused,
            (Arrival::Plain, Some(keys)) if policy.concatenates(keys) => {
                let is_due = policy.channel_required;
                with_key(keys, if is_due { Concatenation::Required } else { Concatenation::IfAsked })
            }
            (Arrival::Plain, Some(keys)) if policy.channel_required || keys.has_channel_key => Admission::Refused,
            (Arrival::Plain, Some(keys)) => with_key(keys, Concatenation::Never),
            (Arrival::Plain, None) if policy.required || policy.channel_required => Admission::Refused,
            (Arrival::Plain, None) => Admission::Open,
        }
    }

    /// A place for one more connection of a host that is let in, if it may have one now.
    pub(super) fn place(&self, host: &Nqn) -> Option<Place> {
        let visibility = Arc::clone(&lock(&self.state).visibility);
        visibility.admit(host)
    }

    /// Whether this host may connect, if need be with a key.
    pub fn lets_in(&self, host: &Nqn) -> bool {
        !self.refuses(host)
    }

    /// The keys of a host now, none if there are none, what is accepted of it, and whether it may make the key of a secure channel
    /// with them.
    pub(super) fn keys_of(&self, host: &Nqn) -> (HostKeys, Accepted, bool) {
        let state = lock(&self.state);
        let policy = &state.authentication;
        let keys = policy.hosts.get(host).cloned().unwrap_or_default();
        let concatenates = policy.concatenates(&keys);
        (keys, policy.accepted.clone(), concatenates)
    }

    /// Whether a key is kept of this host.
    pub fn has_key_of(&self, host: &Nqn) -> bool {
        lock(&self.state).authentication.hosts.contains_key(host)
    }

    /// Whether `host` cannot get in at all.
    fn refuses(&self, host: &Nqn) -> bool {
        let state = lock(&self.state);
        !state.knows(host) || state.must_be_known() && !state.authentication.hosts.contains_key(host)
    }

    /// Makes a controller with an identifier that is free. `None` if all 65,519 are in use.
    pub(super) fn attach(&self, make: impl FnOnce(u16) -> Controller) -> Option<Arc<Controller>> {
        let mut state = lock(&self.state);
        let after = (state.last_cntlid..CNTLID_MAX).map(|id| id + 1);
        let before = 1..=state.last_cntlid;
        let cntlid = after.chain(before).find(|id| !state.controllers.contains_key(id))?;
        let controller = Arc::new(make(cntlid));
        state.controllers.insert(cntlid, controller.clone());
        state.last_cntlid = cntlid;
        Some(controller)
    }

    /// The admin queue of a controller is gone.
    pub(super) fn detach(&self, cntlid: u16) {
        lock(&self.state).controllers.remove(&cntlid);
    }

    pub(super) fn controller(&self, cntlid: u16) -> Option<Arc<Controller>> {
        lock(&self.state).controllers.get(&cntlid).cloned()
    }

    /// Identifiers of controllers, ascending.
    pub(super) fn controller_ids(&self) -> BTreeSet<u16> {
        lock(&self.state).controllers.keys().copied().collect()
    }

    fn controllers_now(&self) -> Vec<Arc<Controller>> {
        lock(&self.state).controllers.values().cloned().collect()
    }

    fn close_controllers(&self, which: impl Fn(&Controller) -> bool) {
        for controller in self.controllers_now().into_iter().filter(|controller| which(controller)) {
            controller.close();
        }
    }

    fn wake_all(&self) {
        for controller in self.controllers_now() {
            controller.wake_all();
        }
    }
}
