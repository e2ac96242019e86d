//! What steers a target, from any thread.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use diskside_io::ring::Interface;
use diskside_nvme::controller::{AllowedHosts, ControllerInfo, Listener};

use super::visible::Granted;
use super::{TargetError, allowed_hosts, identity};
use crate::audit::AuditFile;
use crate::config::{HostSpec, ListenSpec, ServeConfig, VOLUMES_MAX, VolumeSpec};
use crate::keyring::{Changed, KeyRing};
use crate::link::{LoopEnd, loop_pair};
use crate::shared::{Mailbox, Message, Shared};
use crate::stats::Stats;
use diskside_compute::Compute;
use diskside_export::Exports;
use diskside_rights::{Grants, Quotas};
use diskside_volume::Volume;
use diskside_volume::health::Health;
use diskside_volume::media;
use diskside_volume::medium::Medium;

/// Steers a target: stops it, adds and removes volumes, reads its counters. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    /// The addresses by which a configuration names the listeners, and the states of these paths.
    paths: Mutex<Vec<ListenSpec>>,
    stopping: AtomicBool,
    /// The configuration that holds now.
    pub(super) now: Mutex<ServeConfig>,
    /// The hosts that are known now.
    known_hosts: Mutex<Vec<HostSpec>>,
    /// Their keys.
    keys: Mutex<KeyRing>,
    /// Whether a thread looks when keys end.
    watches_keys: AtomicBool,
    /// One change of the volumes at a time.
    changing: Mutex<()>,
}

/// The security of a configuration, ready to hold from now on.
pub(super) struct PreparedHosts {
    keys: KeyRing,
    allowed: AllowedHosts,
    rights: Grants,
    quotas: Quotas,
    audit: AuditFile,
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>, addresses: Vec<SocketAddr>, paths: Vec<ListenSpec>, keys: KeyRing) -> Self {
        let advertised = if shared.config.advertise.is_empty() { &addresses } else { &shared.config.advertise };
        let listeners = advertised.iter().map(|address| Listener {
            address: reachable(*address),
            any: address.ip().is_unspecified(),
            port: address.port(),
        });
        shared.subsystems.set_listeners(listeners.collect());
        let known_hosts = Mutex::new(shared.config.known_hosts.clone());
        let now = Mutex::new(shared.config.clone());
        let handle = Self {
            inner: Arc::new(Inner {
                shared,
                addresses,
                paths: Mutex::new(paths),
                stopping: AtomicBool::new(false),
                now,
                known_hosts,
                keys: Mutex::new(keys),
                watches_keys: AtomicBool::new(false),
                changing: Mutex::new(()),
            }),
        };
        handle.watch_keys();
        handle
    }

    /// The addresses listened on, in the order of the configuration; a port that was 0 is the one that was found.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.inner.addresses
    }

    /// The subsystem's name.
    pub fn nqn(&self) -> &str {
        &self.shared().config.nqn
    }

    /// Takes no more connections, calls and commands, finishes what is in flight (at most `limits.stop_ms`), sends the
    /// answers, closes the connections and ends the reactors. Returns at once.
    pub fn stop(&self) {
        let until = Instant::now() + Duration::from_millis(u64::from(self.shared().config.limits.stop_ms));
        let Some(compute) = self.shared().compute.clone().filter(|compute| compute.working() > 0) else {
            return self.stop_by(until);
        };
        // Hosts ask for results in commands of their own, so that connections have to stay until their calls have ended.
        compute.take_no_more();
        self.end(&|| Message::StopListening);
        let handle = self.clone();
        let wait = move || {
            let pause = || std::thread::sleep(CALLS_POLL);
            while compute.working() > 0 && Instant::now() < until {
                pause();
            }
            let fetched = until.min(Instant::now() + FETCHED_MAX);
            while compute.calls_open() > 0 && Instant::now() < fetched {
                pause();
            }
            handle.stop_by(until);
        };
        if std::thread::Builder::new().name("stop".into()).spawn(wait).is_err() {
            self.stop_by(until);
        }
    }

    /// What is in flight ends until then, or with the connections.
    fn stop_by(&self, until: Instant) {
        self.shared().subsystems.shutdown();
        self.end(&|| Message::Stop(until));
    }

    /// Like [`stop`](Self::stop), without waiting for anything in flight.
    pub fn stop_now(&self) {
        self.end(&|| Message::StopNow);
    }

    /// The counters of now.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        Stats {
            volumes: shared.volume_stats.stats(),
            hosts: shared.host_stats.stats(),
            reactors: shared.reactor_stats.iter().map(crate::stats::ReactorCounters::stats).collect(),
            connections_refused: shared.connections_refused.load(Ordering::Relaxed) as u64,
            connections_given_up: shared.connections_given_up.load(Ordering::Relaxed) as u64,
            connections_half_open: shared.half_open.count() as u64,
            log_lines_left_out: shared.notices.left_out(),
            audit_lines_left_out: shared.audit.left_out(),
            disks: shared.disks(Health::stats),
            reservation_conflicts: self.volumes().iter().map(|volume| volume.conflicts()).collect(),
            paths: self.path_states(),
            io_uring: matches!(diskside_io::ring::interface(), Ok(Interface::IoUring)),
        }
    }

    /// The controllers that hosts have made.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.shared().subsystem.controllers()
    }

    /// The volumes, in the order in which they were added.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.shared().volumes.snapshot().into_iter().flatten().collect()
    }

    /// The exported directories.
    pub fn exports(&self) -> &Arc<Exports> {
        &self.shared().exports
    }

    /// Opens a volume and adds it; connected hosts are told. It cannot have the number (`nsid`) of another volume that was
    /// removed, as long as hosts are connected that know that one.
    pub fn add_volume(&self, spec: &VolumeSpec) -> Result<Arc<Volume>, TargetError> {
        self.add_medium(spec, open(spec)?)
    }

    /// Adds a volume on a medium of the embedder's own; connected hosts are told. The path in `spec` only names it.
    pub fn add_medium(&self, spec: &VolumeSpec, medium: Arc<dyn Medium>) -> Result<Arc<Volume>, TargetError> {
        let _one_at_a_time = self.inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Before functions can find it by a number that it cannot have.
        let (nsid, uuid) = self.check_addable(spec)?;
        let volume = Volume::new(&spec.name, nsid, uuid, spec.block, medium);
        let volume = Arc::new(if spec.rw { volume } else { volume.protected() });
        let shared = self.shared();
        let medium = shared.volumes.add(Arc::clone(&volume));
        if let Err(error) = shared.subsystem.add_namespace(volume.namespace(medium)) {
            shared.volumes.remove(&spec.name);
            return Err(error.into());
        }
        let properties = volume.medium.properties();
        let len_bytes = properties.len_bytes;
        tracing::info!(
            volume = spec.name,
            path = spec.path,
            nsid,
            len_bytes,
            direct = properties.direct,
            rw = !volume.read_only,
            "volume added"
        );
        Ok(volume)
    }

    /// The number and the UUID that a volume gets if it is added now.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn check_addable(&self, spec: &VolumeSpec) -> Result<(u32, [u8; 16]), TargetError> {
        check(spec)?;
        let volumes = self.volumes();
        if volumes.iter().any(|volume| volume.name == spec.name) {
            return Err(TargetError::VolumeExists(spec.name.clone()));
        }
        let uuid = spec.uuid_bytes().ok().flatten();
        let uuid = uuid.unwrap_or_else(|| identity::volume_uuid(self.nqn(), spec));
        let nsid = spec.nsid.unwrap_or_else(|| self.free_nsid(&volumes, &uuid));
        self.shared().subsystem.check_nsid(nsid, &uuid)?;
        Ok((nsid, uuid))
    }

    /// Removes a volume; connected hosts are told. Commands that are at work on it end first.
    pub fn remove_volume(&self, name: &str) -> Result<(), TargetError> {
        let _one_at_a_time = self.inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let volume = self.volumes().into_iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| TargetError::NoSuchVolume(name.to_owned()))?;
        let shared = self.shared();
        shared.subsystem.remove_namespace(volume.nsid);
        shared.volumes.remove(name);
        // A reactor that sleeps would keep the volume open until it is woken by something else.
        for mailbox in shared.mailboxes.get().into_iter().flatten() {
            mailbox.send(Message::VolumesChanged);
        }
        tracing::info!(volume = name, "volume removed");
        Ok(())
    }

    /// How the configuration calls a host, if it knows it.
    pub fn name_of(&self, nqn: &str) -> Option<String> {
        self.shared().names.name_of(nqn)
    }

    /// Changes who may connect by name, besides the hosts that are known; none of either: any host. Controllers of hosts
    /// that no longer may are closed.
    pub fn set_hosts(&self, hosts: &[String]) -> Result<(), TargetError> {
        let known = self.inner.known_hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.shared().subsystem.set_allowed_hosts(allowed_hosts(hosts, &known)?);
        Ok(())
    }

    /// Takes the security of `config`: who may connect, how hosts prove who they are, what they may use, how much of
    /// it, and the audit file. Reads the keys again, and leaves the rest as it is. Hosts that are connected stay,
    /// unless they may no longer connect at all.
    pub fn reload_hosts(&self, config: &ServeConfig) -> Result<(), TargetError> {
        self.apply_hosts(self.prepare_hosts(config)?, config)
    }

    /// All of that which can fail, without a change.
    pub(super) fn prepare_hosts(&self, config: &ServeConfig) -> Result<PreparedHosts, TargetError> {
        let shared = self.shared();
        // It listens where it did, whatever the file says by now.
        config.check_listened(self.local_addresses().iter())?;
        let keys = KeyRing::read(config, shared.subsystem.nqn())?;
        let allowed = allowed_hosts(&config.hosts, &config.known_hosts)?;
        let (rights, quotas) = (config.rights()?, config.quotas()?);
        if quotas.limits_space() {
            shared.exports.check_accounts()?;
        }
        let audit = AuditFile::open(config.security.audit.as_deref(), None)
            .map_err(|error| TargetError::audit(&config.security, error))?;
        Ok(PreparedHosts { keys, allowed, rights, quotas, audit })
    }

    pub(super) fn apply_hosts(&self, prepared: PreparedHosts, config: &ServeConfig) -> Result<(), TargetError> {
        let (shared, PreparedHosts { keys, allowed, rights, quotas, audit }) = (self.shared(), prepared);
        *self.inner.known_hosts.lock().unwrap_or_else(PoisonError::into_inner) = config.known_hosts.clone();
        let mut ring = lock(&self.inner.keys);
        *ring = keys;
        let (policy, tls) = ring.at(SystemTime::now());
        shared.authenticates.store(config.authenticates_hosts(), Ordering::Relaxed);
        shared.channels.store(config.begins_with_tls(), Ordering::Relaxed);
        shared.authenticators.set_tls(tls);
        // In this order nobody gets in meanwhile whom neither lets in, or has more than is granted.
        self.set_rights(rights);
        self.set_quotas(quotas);
        shared.subsystem.set_authentication(policy);
        shared.subsystem.set_allowed_hosts(allowed);
        drop(ring);
        self.watch_keys();
        shared.names.set(&config.known_hosts);
        shared.audit.reload(audit).map_err(|error| TargetError::audit(&config.security, error))
    }

    /// Looks whether keys have ended, as long as there are some that have an end. The clock of the calendar says when, and people set it,
    /// forwards and backwards: so the thread asks it again and again.
    fn watch_keys(&self) {
        if !lock(&self.inner.keys).has_endings() || self.inner.watches_keys.swap(true, Ordering::SeqCst) {
            return;
        }
        let inner = Arc::downgrade(&self.inner);
        let watch = move || {
            while let Some(inner) = inner.upgrade() {
                let mut ring = lock(&inner.keys);
                inner.go_by(&mut ring, SystemTime::now());
                if !ring.has_endings() {
                    inner.watches_keys.store(false, Ordering::SeqCst);
                    return;
                }
                drop(ring);
                drop(inner);
                std::thread::sleep(KEYS_POLL);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("diskside-keys".into()).spawn(watch) {
            tracing::error!(%error, "keys of hosts do not end before hosts are read anew: no thread can be started");
            self.inner.watches_keys.store(false, Ordering::SeqCst);
        }
    }

    /// The listeners' addresses, and the states of the paths that they are.
    fn path_states(&self) -> Vec<(String, String)> {
        let paths = self.inner.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.inner.addresses.iter().zip(&*paths);
        all.map(|(address, listen)| (address.to_string(), listen.path.to_string())).collect()
    }

    /// Gives the paths the states that a configuration has for them, and returns those that have another one than before.
    pub(super) fn set_paths(&self, listen: &[ListenSpec]) -> Vec<String> {
        let mut paths = self.inner.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let before = paths.clone();
        ListenSpec::renew(&mut paths, listen);
        if *paths != before {
            self.shared().subsystem.set_path_states(paths.iter().map(|listen| listen.path).collect());
        }
        let all = before.iter().zip(&*paths).zip(&self.inner.addresses);
        let changed = all.filter(|((before, now), _)| before != now);
        changed.map(|((_, now), address)| format!("{address} {}", now.path)).collect()
    }

    /// Replaces what hosts may use. They stay connected; those that see other volumes than before are told.
    pub(super) fn set_rights(&self, grants: Grants) {
        let shared = self.shared();
        shared.rights.set(grants);
        let (grants, volumes, quotas) = (shared.rights.now(), Arc::clone(&shared.volumes), Arc::clone(&shared.quotas));
        let audit = Arc::clone(&shared.audit);
        shared.subsystem.set_visibility(Arc::new(Granted { grants, volumes, quotas, audit }));
        // Exports that are not served any more were withdrawn before.
        if let Some(compute) = &shared.compute {
            compute.rights_changed();
        }
    }

    /// Replaces how much hosts may take, also those that are connected: what they have they keep.
    pub(super) fn set_quotas(&self, quotas: Quotas) {
        let limits_space = quotas.limits_space();
        self.shared().quotas.set(quotas);
        if limits_space {
            self.shared().exports.keep_accounts();
        }
        for mailbox in self.shared().mailboxes.get().into_iter().flatten() {
            mailbox.send(Message::QuotasChanged);
        }
    }

    /// Says that the process reaches only what it served at its start ([`confine`](crate::confine)): a reload tells what is not
    /// among it, instead of an error of each access.
    pub fn is_confined(&self) {
        let config = self.shared().config.clone();
        self.shared().confined_to.get_or_init(|| config);
    }

    /// A connection to the target in memory: the host's end. `None` where the target does not run, or has too many.
    pub fn connect_loop(&self) -> Option<LoopEnd> {
        if self.inner.stopping.load(Ordering::SeqCst) {
            return None;
        }
        let shared = self.shared();
        shared.mailboxes.get()?;
        let reactor = shared.place_connection()?;
        let (host, target) = loop_pair();
        shared.send(reactor, Message::Loop(target));
        Some(host)
    }

    /// What computes, if there is a compute namespace.
    #[doc(hidden)]
    pub fn compute(&self) -> Option<&Arc<Compute>> {
        self.shared().compute.as_ref()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    pub(super) fn set_mailboxes(&self, mailboxes: Vec<Arc<Mailbox>>) {
        if !self.shared().mailboxes.set(mailboxes) {
            unreachable!("a target is started once, because that consumes it");
        }
        if self.inner.stopping.load(Ordering::SeqCst) {
            self.stop();
        }
    }

    fn end(&self, message: &dyn Fn() -> Message) {
        self.inner.stopping.store(true, Ordering::SeqCst);
        for mailbox in self.shared().mailboxes.get().into_iter().flatten() {
            mailbox.send(message());
        }
    }

    /// The first namespace ID that neither a volume has nor the configuration keeps for one, and by which no host that is
    /// connected knows another volume.
    fn free_nsid(&self, volumes: &[Arc<Volume>], uuid: &[u8; 16]) -> u32 {
        let kept = |nsid: u32| self.shared().config.volumes.iter().any(|spec| spec.nsid == Some(nsid));
        let computes = |nsid: u32| self.shared().compute.as_ref().is_some_and(|compute| compute.has_nsid(nsid));
        let known = |nsid: u32| self.shared().subsystem.check_nsid(nsid, uuid).is_err();
        let has = |nsid: u32| volumes.iter().any(|volume| volume.nsid == nsid);
        let taken = |nsid: u32| kept(nsid) || computes(nsid) || has(nsid) || known(nsid);
        (1..).find(|&nsid| !taken(nsid)).unwrap_or(VOLUMES_MAX as u32 + 1)
    }
}

impl Inner {
    /// Lets in whom the keys let in when the clock shows this, and tells of hosts of which that has changed.
    fn go_by(&self, ring: &mut KeyRing, clock: SystemTime) {
        let Some(Changed { policy, tls, hosts }) = ring.changed(clock) else { return };
        self.shared.authenticators.set_tls(tls);
        self.shared.subsystem.set_authentication(policy);
        for (host, good) in hosts {
            self.shared.audit.tell_of_keys(&host, good);
            tracing::info!(%host, good, "keys of a host have ended, or are good again because the clock was set back");
        }
    }
}

/// How often it is looked whether calls have ended, and how long hosts have to fetch the last results.
const CALLS_POLL: Duration = Duration::from_millis(5);
const FETCHED_MAX: Duration = Duration::from_secs(1);
/// How often it is looked whether a key has ended.
const KEYS_POLL: Duration = Duration::from_millis(500);

fn lock(keys: &Mutex<KeyRing>) -> MutexGuard<'_, KeyRing> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens what is behind a volume.
pub(super) fn open(spec: &VolumeSpec) -> Result<Arc<dyn Medium>, TargetError> {
    check(spec)?;
    media::open(spec).map_err(|error| TargetError::Volume { name: spec.name.clone(), error })
}

fn check(spec: &VolumeSpec) -> Result<(), TargetError> {
    let error = |what| crate::config::ConfigError::Value { field: format!("volume `{}`", spec.name), what };
    spec.check().map_err(|what| error(what).into())
}

/// An address that hosts can use, for one that means "all of this machine's": the one it reaches others from.
fn reachable(address: SocketAddr) -> IpAddr {
    let ip = address.ip();
    if !ip.is_unspecified() {
        return ip;
    }
    let (own, far, fallback): (IpAddr, IpAddr, IpAddr) = if ip.is_ipv4() {
        (ip, Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::LOCALHOST.into())
    } else {
        (ip, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::LOCALHOST.into())
    };
    // Connecting a datagram socket sends nothing: it only asks the routing table.
    let routed = UdpSocket::bind((own, 0)).and_then(|socket| {
        socket.connect((far, 9))?;
        socket.local_addr()
    });
    routed.map_or(fallback, |address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KeyFile;

    /// No test looked at these lines, by which an operator finds out why a host was let in no longer.
    #[test]
    fn the_audit_tells_of_keys_that_have_ended_and_of_those_that_are_good_again() {
        let directory = tempfile::tempdir().unwrap();
        let (key, audit) = (directory.path().join("ann"), directory.path().join("audit.jsonl"));
        diskside_keys::write_secret(&key, &diskside_keys::new_secret()).unwrap();
        let until = Some("2099-12-31".parse().unwrap());
        let ann = HostSpec {
            name: "ann".into(),
            nqn: "nqn.2026-11.org.example:ann".into(),
            dhchap_keys: vec![KeyFile { path: key, until }],
            ..HostSpec::default()
        };
        let builder = crate::Target::builder().nqn("nqn.2026-11.org.example:target").host(ann);
        let builder = builder.listen(["127.0.0.1:0".parse().unwrap()]);
        let running =
            builder.security(|security| security.audit = Some(audit.clone())).build().unwrap().start().unwrap();
        let told = || {
            let text = std::fs::read_to_string(&audit).unwrap();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let lines = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            lines.filter(|line| line["event"] == "key").collect::<Vec<_>>()
        };
        assert!(told().is_empty());
        // A clock that is wrong for a moment: the thread that looks at it sees that it is right again.
        let inner = &running.handle().inner;
        inner.go_by(&mut lock(&inner.keys), SystemTime::UNIX_EPOCH + Duration::from_secs(5_000_000_000));
        let end = Instant::now() + Duration::from_secs(20);
        while told().len() < 2 {
            assert!(Instant::now() < end, "{:?}", told());
            std::thread::sleep(Duration::from_millis(5));
        }
        let lines = told();
        for (line, good) in lines.iter().zip([0, 1]) {
            assert_eq!((&line["host"], &line["principal"]), (&"nqn.2026-11.org.example:ann".into(), &"ann".into()));
            assert_eq!(line["reason"], format!("keys of this host with an end: {good} are good"));
        }
        assert_eq!(lines.len(), 2);
    }
}
