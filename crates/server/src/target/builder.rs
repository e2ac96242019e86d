//! How a target is built: what needs rights first, then the rest.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::available_parallelism;
use std::time::SystemTime;

use diskside_compute::{Compute, Reactors, Surroundings, Watch};
use diskside_export::Exports;
use diskside_nvme::Nqn;
use diskside_nvme::controller::{AllowedHosts, SubsystemConfig, Subsystems};
use diskside_rights::{Grants, QuotaTable, QuotaWatch, RightsTable};
use diskside_volume::VolumeTable;
use diskside_volume::medium::Medium;
use diskside_volume::stats::Registry;

use super::listeners::{Listeners, bind_all, take_all};
use super::{Handle, Target, TargetError, handle, identity};
use crate::audit::{Audit, AuditFile, KnownNames};
use crate::authenticate::Authenticators;
use crate::config::{
    ComputeConfig, ConfigError, ExportSpec, GrantSpec, HostSpec, Limits, ListenSpec, QuotaSpec, Requirement, Security,
    ServeConfig, Settings, VolumeSpec,
};
use crate::confine::user_to_be;
use crate::descriptors::connections_max;
use crate::half_open::HalfOpen;
use crate::keyring::KeyRing;
use crate::shared::{Mailboxes, Shared};
use crate::stats::ReactorCounters;

/// What a target is made of.
#[derive(Debug)]
pub struct TargetBuilder {
    config: ServeConfig,
    media: Vec<(VolumeSpec, Arc<dyn Medium>)>,
    inherited: Vec<TcpListener>,
}

/// A target that has what it needs rights for: [`build`](Self::build) makes the rest.
#[derive(Debug)]
pub struct Opened {
    config: ServeConfig,
    keys: KeyRing,
    audit: AuditFile,
    media: Vec<(VolumeSpec, Arc<dyn Medium>)>,
    listeners: Listeners,
}

impl TargetBuilder {
    pub(super) fn new() -> Self {
        Self { config: ServeConfig::listening_nowhere(Settings::default()), media: Vec::new(), inherited: Vec::new() }
    }

    /// Replaces the whole configuration.
    #[must_use]
    pub fn config(mut self, config: ServeConfig) -> Self {
        self.config = config;
        self
    }

    /// Listens on these addresses too; port 0 takes a free one.
    #[must_use]
    pub fn listen(self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.listen_as(addresses.into_iter().map(ListenSpec::from))
    }

    /// Listens on these addresses too, each a path of a state.
    #[must_use]
    pub fn listen_as(mut self, paths: impl IntoIterator<Item = ListenSpec>) -> Self {
        self.config.listen.extend(paths);
        self
    }

    /// Listens beyond this machine although hosts are not authenticated.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.config.insecure = true;
        self
    }

    /// Names the subsystem.
    #[must_use]
    pub fn nqn(mut self, nqn: impl Into<String>) -> Self {
        self.config.nqn = nqn.into();
        self
    }

    /// Sets the number of reactors.
    #[must_use]
    pub fn reactors(mut self, reactors: usize) -> Self {
        self.config.reactors = reactors;
        self
    }

    /// Changes the bounds of what peers can take.
    #[must_use]
    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.config.limits);
        self
    }

    /// Changes how functions run.
    #[must_use]
    pub fn compute(mut self, change: impl FnOnce(&mut ComputeConfig)) -> Self {
        change(&mut self.config.compute);
        self
    }

    /// Adds a volume.
    #[must_use]
    pub fn volume(mut self, spec: VolumeSpec) -> Self {
        self.config.volumes.push(spec);
        self
    }

    /// Lets a host in. If it has keys, every host must authenticate.
    #[must_use]
    pub fn host(mut self, spec: HostSpec) -> Self {
        if spec.has_keys() && self.config.security.require == Requirement::None {
            self.config.security.require = Requirement::Auth;
        }
        self.config.known_hosts.push(spec);
        self
    }

    /// Grants hosts what they may use; without any grant each may use all that is served.
    #[must_use]
    pub fn grant(mut self, grant: GrantSpec) -> Self {
        self.config.grants.push(grant);
        self
    }

    /// Bounds how much hosts may take.
    #[must_use]
    pub fn quota(mut self, quota: QuotaSpec) -> Self {
        self.config.quotas.push(quota);
        self
    }

    /// Changes what is demanded of hosts.
    #[must_use]
    pub fn security(mut self, change: impl FnOnce(&mut Security)) -> Self {
        change(&mut self.config.security);
        self
    }

    /// Exports a directory.
    #[must_use]
    pub fn export(mut self, spec: ExportSpec) -> Self {
        self.config.exports.push(spec);
        self
    }

    /// Adds a volume on a medium of the embedder's own. The path in `spec` only names it.
    #[must_use]
    pub fn medium(mut self, spec: VolumeSpec, medium: Arc<dyn Medium>) -> Self {
        self.media.push((spec, medium));
        self
    }

    /// Takes connections from these sockets, which are bound already, and from no other address. None: as configured.
    #[must_use]
    pub fn inherited(mut self, listeners: Vec<TcpListener>) -> Self {
        self.inherited = listeners;
        self
    }

    /// Opens the volumes and exports, and binds the addresses.
    pub fn build(self) -> Result<Target, TargetError> {
        self.open()?.build()
    }

    /// The first half of [`build`](Self::build): reads the keys, opens the volumes and the audit file, and binds the addresses,
    /// all of which may take rights that the target does not need later. No thread is started.
    pub fn open(self) -> Result<Opened, TargetError> {
        let Self { config, media, inherited } = self;
        config.check()?;
        config.check_exposed()?;
        let keys = KeyRing::read(&config, &nqn(&config.nqn)?)?;
        let audit = AuditFile::open(config.security.audit.as_deref(), user_to_be(&config))
            .map_err(|error| TargetError::audit(&config.security, error))?;
        let own = config.volumes.iter().map(|spec| Ok((spec.clone(), handle::open(spec)?)));
        let own = own.collect::<Result<Vec<_>, TargetError>>()?;
        let media = own.into_iter().chain(media).collect();
        let listeners = if inherited.is_empty() { bind_all(&config)? } else { take_all(&config, inherited)? };
        Ok(Opened { config, keys, audit, media, listeners })
    }
}

impl Opened {
    /// The second half of [`TargetBuilder::build`]: opens the exports, and starts the threads of all but the reactors.
    pub fn build(self) -> Result<Target, TargetError> {
        let Self { config, mut keys, audit, media, listeners } = self;
        let (policy, tls) = keys.at(SystemTime::now());
        let subsystems = Subsystems::new();
        let computes = config.compute.enabled;
        let subsystem = subsystems.add(SubsystemConfig {
            command_sets: if computes { Compute::command_sets(&config.compute) } else { Vec::new() },
            allowed_hosts: allowed_hosts(&config.hosts, &config.known_hosts)?,
            authentication: policy,
            io_queues_max: config.limits.queues,
            queue_entries_max: config.limits.queue_entries,
            transfer_len_max: config.limits.transfer.bytes() as u32,
            last_controller_id: identity::last_controller_id(),
            ..SubsystemConfig::new(nqn(&config.nqn)?, identity::serial(&config.nqn))
        })?;
        subsystem.set_path_states(listeners.paths.iter().map(|listen| listen.path).collect());
        let reactors = config.reactors;
        let exports = Exports::open(&config.exports)?;
        if config.quotas()?.limits_space() {
            exports.check_accounts()?;
        }
        let (volumes, volume_stats) = (Arc::new(VolumeTable::default()), Arc::new(Registry::default()));
        let mailboxes = Arc::new(Mailboxes::default());
        let names = Arc::new(KnownNames::default());
        let audit =
            Audit::start(audit, Arc::clone(&names)).map_err(|error| TargetError::audit(&config.security, error))?;
        let audit = Arc::new(audit);
        let quotas = QuotaTable::new(Arc::clone(&audit) as Arc<dyn QuotaWatch>);
        let connections_max = connections_max(&config);
        quotas.bound_connections(connections_max as u64);
        let compute = if computes {
            let surroundings = Surroundings {
                volumes: Arc::clone(&volumes),
                volume_stats: Arc::clone(&volume_stats),
                exports: Arc::clone(&exports),
                quotas: Arc::clone(&quotas),
                reactors: Arc::clone(&mailboxes) as Arc<dyn Reactors>,
                watch: Arc::clone(&audit) as Arc<dyn Watch>,
                reactor_cores: config.cores.clone(),
                has_spare_processors: available_parallelism()
                    .is_ok_and(|processors| processors.get() > config.reactors),
            };
            let compute = Compute::start(config.compute.clone(), surroundings).map_err(TargetError::Compute)?;
            for namespace in compute.namespaces(|name| identity::namespace_uuid(&config.nqn, name)) {
                subsystem.add_namespace(namespace)?;
            }
            let watches = Arc::downgrade(&compute);
            subsystem.watch_reservations(move || {
                if let Some(compute) = watches.upgrade() {
                    compute.reservations_changed();
                }
            });
            Some(compute)
        } else {
            None
        };
        let functions = compute.clone();
        let functions_run = move || functions.as_ref().is_some_and(|compute: &Arc<Compute>| compute.working() > 0);
        let shared = Arc::new(Shared {
            subsystems,
            subsystem,
            volumes,
            compute,
            exports,
            audit,
            names,
            rights: RightsTable::new(Grants::default()),
            quotas,
            volume_stats,
            host_stats: Registry::default(),
            reactor_stats: (0..reactors).map(|_| ReactorCounters::default()).collect(),
            connections_max,
            connections: (0..reactors).map(|_| AtomicUsize::new(0)).collect(),
            connections_refused: AtomicUsize::new(0),
            connections_given_up: AtomicUsize::new(0),
            notices: Default::default(),
            authenticates: AtomicBool::new(config.authenticates_hosts()),
            channels: AtomicBool::new(config.begins_with_tls()),
            authenticators: Authenticators::new(Arc::clone(&mailboxes), tls, Box::new(functions_run)),
            half_open: HalfOpen::default(),
            processors: available_parallelism().map_or(1, usize::from),
            crowded: Mutex::default(),
            mailboxes,
            confined_to: OnceLock::new(),
            ended: AtomicBool::new(false),
            config,
        });
        let handle = Handle::new(shared, listeners.addresses, listeners.paths, keys);
        handle.set_rights(handle.shared().config.rights()?);
        handle.set_quotas(handle.shared().config.quotas()?);
        handle.shared().names.set(&handle.shared().config.known_hosts);
        for (spec, medium) in media {
            handle.add_medium(&spec, medium)?;
        }
        Ok(Target { handle, listeners: listeners.sockets })
    }
}

pub(super) fn nqn(text: &str) -> Result<Nqn, ConfigError> {
    Nqn::new(text).map_err(|error| ConfigError::Value { field: "nqn".into(), what: error.to_string() })
}

/// Hosts that are let in by name, and those that are known; all, if there are none of either.
pub(crate) fn allowed_hosts(hosts: &[String], known: &[HostSpec]) -> Result<AllowedHosts, ConfigError> {
    if hosts.is_empty() && known.is_empty() {
        return Ok(AllowedHosts::Any);
    }
    let names = hosts.iter().chain(known.iter().map(|host| &host.nqn)).map(|host| {
        Nqn::new(host).map_err(|error| ConfigError::Value { field: "hosts".into(), what: error.to_string() })
    });
    names.collect::<Result<_, _>>().map(AllowedHosts::Only)
}
