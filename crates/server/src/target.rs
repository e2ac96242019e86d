//! A target: built from a configuration, served by its reactors, steered through a handle.

mod handle;
mod identity;
mod reload;
mod visible;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Once, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diskside_io::ring::{Interface, interface};
use diskside_io::socket::{SocketOptions, listen_at, local_address, tune};
use diskside_keys::KeyFileError;
use diskside_nvme::Nqn;
use diskside_nvme::controller::{self, AllowedHosts, SubsystemConfig, Subsystems};

pub use handle::Handle;
pub use reload::Reloaded;

use crate::audit::{Audit, AuditFile, KnownNames};
use crate::authenticate::Authenticators;
use crate::config::{
    ConfigError, ExportSpec, GrantSpec, HostSpec, QuotaSpec, Requirement, Security, ServeConfig, Settings, VolumeSpec,
};
use crate::half_open::HalfOpen;
use crate::keyring::{KeyRing, KeyRingError};
use crate::reactor::Reactor;
use crate::shared::{Mailbox, Mailboxes, Message, Shared};
use crate::stats::ReactorCounters;
use diskside_compute::{Compute, Reactors, Surroundings, Watch};
use diskside_export::{ExportError, Exports};
use diskside_rights::{Grants, QuotaTable, QuotaWatch, RightsTable};
use diskside_volume::VolumeTable;
use diskside_volume::medium::Medium;
use diskside_volume::stats::Registry;

/// A target that is bound to its addresses and ready to serve.
///
/// ```
/// use diskside_server::{Target, config::VolumeSpec};
///
/// let target = Target::builder()
///     .listen(["127.0.0.1:0".parse()?])
///     .volume(VolumeSpec::new("data", "mem:16MiB").writable())
///     .build()?;
/// let handle = target.handle();
/// let running = target.start()?; // or target.serve(), which returns when the target has stopped
/// println!("{} at {:?}", handle.nqn(), handle.local_addresses());
/// handle.stop();
/// running.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Target {
    handle: Handle,
    listeners: Vec<Arc<OwnedFd>>,
}

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
    listeners: Vec<Arc<OwnedFd>>,
    addresses: Vec<SocketAddr>,
}

/// A target whose reactors run. Dropping it stops them.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    reactors: Vec<JoinHandle<io::Result<()>>>,
}

/// Why a target cannot be built, or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A volume cannot be opened.
    #[error("volume `{name}`: {error}")]
    Volume {
        /// The volume.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// A directory cannot be exported.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A key cannot be read.
    #[error("host `{host}`: the key in {source}")]
    Key {
        /// Whose.
        host: String,
        /// Which file, and why.
        source: KeyFileError,
    },
    /// Hosts have keys of TLS, and there is none here.
    #[error("hosts have keys of TLS (tls_keys): {0}")]
    Tls(diskside_tls::Unavailable),
    /// There is a volume of this name already.
    #[error("there is a volume `{0}` already")]
    VolumeExists(String),
    /// There is no volume of this name.
    #[error("there is no volume `{0}`")]
    NoSuchVolume(String),
    /// The subsystem refused it.
    #[error(transparent)]
    Subsystem(#[from] controller::ConfigError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {}", why_not_listening(*address, error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A socket that the process was given cannot be used.
    #[error("a socket that this process was given: {0}")]
    Inherited(io::Error),
    /// What changed needs a new start.
    #[error("{0}")]
    NeedsRestart(String),
    /// The audit file cannot be opened.
    #[error("the audit file {}: {error}", path.display())]
    Audit {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The compute namespace cannot be set up.
    #[error("compute: {0}")]
    Compute(io::Error),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// A reactor cannot start, or cannot go on.
    #[error("reactor {index}: {error}")]
    Reactor {
        /// Which.
        index: usize,
        /// Why.
        error: io::Error,
    },
}

impl TargetError {
    fn audit(security: &Security, error: io::Error) -> Self {
        Self::Audit { path: security.audit.clone().unwrap_or_default(), error }
    }
}

impl From<KeyRingError> for TargetError {
    fn from(error: KeyRingError) -> Self {
        match error {
            KeyRingError::Config(error) => error.into(),
            KeyRingError::Key { host, source } => Self::Key { host, source },
            KeyRingError::Tls(source) => Self::Tls(source),
        }
    }
}

impl Target {
    /// A target of defaults: one reactor, no volumes, listening nowhere.
    pub fn builder() -> TargetBuilder {
        TargetBuilder {
            config: ServeConfig::listening_nowhere(Settings::default()),
            media: Vec::new(),
            inherited: Vec::new(),
        }
    }

    /// What steers the target, before, while and after it serves.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves on the reactors' threads and returns when the target has stopped: [`Handle::stop`] stops it.
    pub fn serve(self) -> Result<(), TargetError> {
        self.start()?.wait()
    }

    /// Like [`serve`](Self::serve), and stops in good order on SIGTERM or SIGINT; on the second one at once. `started` is
    /// called when hosts are answered.
    pub fn serve_until_signal(self, started: impl FnOnce(&Handle)) -> Result<(), TargetError> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(TargetError::Signals)?;
        let (closer, handle) = (signals.handle(), self.handle());
        let listener = std::thread::spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                tracing::info!(signal, "stopping");
                if count == 0 { handle.stop() } else { handle.stop_now() }
            }
        });
        let handle = self.handle();
        let served = self.start().and_then(|running| {
            started(&handle);
            running.wait()
        });
        closer.close();
        // It ends because its signals were closed, and has nothing that can panic.
        let _ = listener.join();
        served
    }

    /// Starts the reactors' threads.
    pub fn start(self) -> Result<Running, TargetError> {
        let shared = self.handle.shared();
        let mut reactors = Vec::new();
        let mut mailboxes = Vec::new();
        for index in 0..shared.config.reactors {
            let started =
                start_reactor(index, Arc::clone(shared)).map_err(|error| TargetError::Reactor { index, error });
            match started {
                Ok((mailbox, thread)) => {
                    mailboxes.push(mailbox);
                    reactors.push(thread);
                }
                Err(error) => {
                    mailboxes.iter().for_each(|mailbox| mailbox.send(Message::StopNow));
                    reactors.into_iter().for_each(|thread| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        tell_interface();
        let first = Arc::clone(&mailboxes[0]);
        self.handle.set_mailboxes(mailboxes);
        // Only now: connections wait already, and the reactor that lets them in hands them on to the others.
        first.send(Message::Listen(self.listeners));
        Ok(Running { handle: self.handle, reactors })
    }
}

impl TargetBuilder {
    /// Replaces the whole configuration.
    #[must_use]
    pub fn config(mut self, config: ServeConfig) -> Self {
        self.config = config;
        self
    }

    /// Listens on these addresses too; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.config.listen.extend(addresses);
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
    pub fn limits(mut self, change: impl FnOnce(&mut crate::config::Limits)) -> Self {
        change(&mut self.config.limits);
        self
    }

    /// Changes how functions run.
    #[must_use]
    pub fn compute(mut self, change: impl FnOnce(&mut crate::config::ComputeConfig)) -> Self {
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
        let keys = KeyRing::read(&config.security, &config.known_hosts, &nqn(&config.nqn)?)?;
        let audit = AuditFile::open(config.security.audit.as_deref())
            .map_err(|error| TargetError::audit(&config.security, error))?;
        let own = config.volumes.iter().map(|spec| Ok((spec.clone(), handle::open(spec)?)));
        let own = own.collect::<Result<Vec<_>, TargetError>>()?;
        let media = own.into_iter().chain(media).collect();
        let (listeners, addresses) =
            if inherited.is_empty() { bind_all(&config)? } else { take_all(&config, inherited)? };
        Ok(Opened { config, keys, audit, media, listeners, addresses })
    }
}

impl Opened {
    /// The second half of [`TargetBuilder::build`]: opens the exports, and starts the threads of all but the reactors.
    pub fn build(self) -> Result<Target, TargetError> {
        let Self { config, mut keys, audit, media, listeners, addresses } = self;
        let (policy, tls) = keys.now();
        let subsystems = Subsystems::new();
        let computes = config.compute.enabled;
        let subsystem = subsystems.add(SubsystemConfig {
            command_sets: if computes { Compute::command_sets(&config.compute) } else { Vec::new() },
            allowed_hosts: allowed_hosts(&config.hosts, &config.known_hosts)?,
            authentication: policy,
            io_queues_max: config.limits.queues,
            queue_entries_max: config.limits.queue_entries,
            transfer_len_max: config.limits.transfer.bytes() as u32,
            ..SubsystemConfig::new(nqn(&config.nqn)?, identity::serial(&config.nqn))
        })?;
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
        let compute = if computes {
            let surroundings = Surroundings {
                volumes: Arc::clone(&volumes),
                volume_stats: Arc::clone(&volume_stats),
                exports: Arc::clone(&exports),
                quotas: Arc::clone(&quotas),
                reactors: Arc::clone(&mailboxes) as Arc<dyn Reactors>,
                watch: Arc::clone(&audit) as Arc<dyn Watch>,
            };
            let compute = Compute::start(config.compute.clone(), surroundings).map_err(TargetError::Compute)?;
            for namespace in compute.namespaces(|name| identity::volume_uuid(&config.nqn, name)) {
                subsystem.add_namespace(namespace)?;
            }
            Some(compute)
        } else {
            None
        };
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
            connections: (0..reactors).map(|_| AtomicUsize::new(0)).collect(),
            connections_refused: AtomicUsize::new(0),
            connections_given_up: AtomicUsize::new(0),
            notices: Default::default(),
            authenticates: AtomicBool::new(config.authenticates_hosts()),
            channels: AtomicBool::new(config.begins_with_tls()),
            authenticators: Authenticators::new(Arc::clone(&mailboxes), tls),
            half_open: HalfOpen::default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            mailboxes,
            confined_to: OnceLock::new(),
            config,
        });
        let handle = Handle::new(shared, addresses, keys);
        handle.set_rights(handle.shared().config.rights()?);
        handle.set_quotas(handle.shared().config.quotas()?);
        handle.shared().names.set(&handle.shared().config.known_hosts);
        for (spec, medium) in media {
            handle.add_medium(&spec, medium)?;
        }
        Ok(Target { handle, listeners })
    }
}

impl Running {
    /// What steers the target.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns when the target has stopped.
    pub fn wait(mut self) -> Result<(), TargetError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), TargetError> {
        let mut result = Ok(());
        for (index, reactor) in self.reactors.drain(..).enumerate() {
            let ended = reactor.join().unwrap_or_else(|_| Err(io::Error::other("the reactor's thread panicked")));
            if let Err(error) = ended {
                result = Err(TargetError::Reactor { index, error });
            }
        }
        if let Some(compute) = &self.handle.shared().compute {
            compute.stop();
        }
        // Closes the media, also where a handle is kept.
        self.handle.shared().volumes.clear();
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reactors.is_empty() {
            self.handle.stop_now();
            if let Err(error) = self.join() {
                tracing::error!(%error, "the target ended with an error");
            }
        }
    }
}

fn nqn(text: &str) -> Result<Nqn, ConfigError> {
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

/// Why an address cannot be listened on, and what can be done about it.
fn why_not_listening(address: SocketAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; stop it, or choose another port, or port 0 for a free one".into()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "this machine does not have the address {}; 0.0.0.0 and [::] stand for all that it has",
                address.ip()
            )
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one".into(),
        _ => return error.to_string(),
    };
    format!("{error}: {remedy}")
}

fn bind_all(config: &ServeConfig) -> Result<(Vec<Arc<OwnedFd>>, Vec<SocketAddr>), TargetError> {
    let options = SocketOptions { congestion_control: config.congestion_control.clone(), ..SocketOptions::default() };
    let mut bound = (Vec::new(), Vec::new());
    for &address in &config.listen {
        let in_listen = |error| TargetError::Listen { address, error };
        let socket = listen_patiently(address, BACKLOG, &options).map_err(in_listen)?;
        bound.1.push(local_address(&socket).map_err(in_listen)?);
        bound.0.push(Arc::new(socket));
    }
    Ok(bound)
}

fn take_all(
    config: &ServeConfig,
    given: Vec<TcpListener>,
) -> Result<(Vec<Arc<OwnedFd>>, Vec<SocketAddr>), TargetError> {
    let options = SocketOptions { congestion_control: config.congestion_control.clone(), ..SocketOptions::default() };
    let mut taken = (Vec::new(), Vec::new());
    for listener in given {
        let address = listener.local_addr().map_err(TargetError::Inherited)?;
        listener.set_nonblocking(true).map_err(TargetError::Inherited)?;
        let socket = OwnedFd::from(listener);
        tune(&socket, &options).map_err(|error| TargetError::Listen { address, error })?;
        taken.1.push(address);
        taken.0.push(Arc::new(socket));
    }
    config.check_listened(taken.1.iter())?;
    Ok(taken)
}

/// How long an address in use is waited for.
const LISTEN_PATIENCE: Duration = Duration::from_secs(5);
const LISTEN_POLL: Duration = Duration::from_millis(20);

/// Listens, also where a target that was killed a moment ago still does: the kernel takes down its ring, and the
/// accept that is pending there, some time after the process.
fn listen_patiently(address: SocketAddr, backlog: i32, options: &SocketOptions) -> io::Result<OwnedFd> {
    let started = Instant::now();
    loop {
        match listen_at(address, backlog, options) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && started.elapsed() < LISTEN_PATIENCE => {
                std::thread::sleep(LISTEN_POLL);
            }
            result => return result,
        }
    }
}

/// Says, once in a process, that its servers are slower than they could be.
fn tell_interface() {
    static TOLD: Once = Once::new();
    if let Ok(posix @ Interface::Posix(_)) = interface() {
        TOLD.call_once(|| tracing::warn!("this server uses {posix}"));
    }
}

type Started = (Arc<Mailbox>, JoinHandle<io::Result<()>>);

fn start_reactor(index: usize, shared: Arc<Shared>) -> io::Result<Started> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name(format!("diskside-{index}")).spawn(move || {
        let mut others = StopOthers { shared: Arc::clone(&shared), ended_well: false };
        // A command that comes while an engine computes on this processor shall not wait for the end of its time slice.
        if let Err(error) = diskside_sys::schedule::set_slice(SLICE) {
            tracing::debug!(index, %error, "a reactor has the usual time slice");
        }
        let made = pin(&shared, index).and_then(|()| Reactor::new(index, shared));
        match made {
            Err(error) => {
                // The other end waits for exactly this.
                let _ = sender.send(Err(error));
                Ok(())
            }
            Ok(mut reactor) => {
                let _ = sender.send(Ok(reactor.mailbox()));
                let ended = reactor.run();
                others.ended_well = ended.is_ok();
                ended
            }
        }
    })?;
    match receiver.recv() {
        Ok(Ok(mailbox)) => Ok((mailbox, thread)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the reactor's thread ended before it began")),
    }
}

/// When one reactor cannot go on, neither should the others, which share its controllers and volumes.
struct StopOthers {
    shared: Arc<Shared>,
    ended_well: bool,
}

impl Drop for StopOthers {
    fn drop(&mut self) {
        if !self.ended_well {
            for mailbox in self.shared.mailboxes.get().into_iter().flatten() {
                mailbox.send(Message::StopNow);
            }
        }
    }
}

fn pin(shared: &Shared, index: usize) -> io::Result<()> {
    let Some(&core) = shared.config.cores.get(index) else { return Ok(()) };
    let mut set = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no core {core}")));
    }
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|errno| io::Error::new(io::Error::from(errno).kind(), format!("core {core}: {errno}")))
}

/// The time slice that reactors ask for, the shortest that there is: who asks for short ones gets them soon.
const SLICE: Duration = Duration::from_micros(100);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
