//! `diskside serve`.

mod reload;

use crate::error::Failure;
use crate::output::{self, say};
use crate::traces::{Exporter, Exporting};
use clap::Args;
use diskside::target::config::parse_metrics_address;
use diskside::target::config::{
    ComputeSettings, ConfigError, ExportSpec, HostSpec, ListenSpec, Requirement, SecuritySettings, ServeConfig,
    Settings, VolumeSpec,
};
use diskside::target::confine::{Confinement, confine, give_up};
use diskside::target::service::{Service, inherited_listeners};
use diskside::target::{Handle, Target, TargetError};
use diskside_observe::{Observer, Watched};
use reload::Resolved;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write as _;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `serve`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside serve --volume data=/srv/data.img,rw,size=10GiB
  diskside serve --volume db=/dev/sdb --volume scratch=mem:1GiB,rw --listen 0.0.0.0:4420 --insecure
  diskside serve --export logs=/var/log --export out=/srv/out,rw
  diskside serve --config /etc/diskside.toml --print-config")]
pub(crate) struct Serve {
    /// A volume: a file, a block device, or mem:SIZE; hosts may write it if it says rw. Also: atomic=SIZE for writes that are never
    /// torn, journal=PATH, buffered, nsid=N, uuid=UUID; and for measurements latency_us=N and rate=SIZE (bytes a second)
    #[arg(long = "volume", value_name = "NAME=PATH[,rw][,size=SIZE][,block=4096][,OPTION...]")]
    volumes: Vec<VolumeSpec>,
    /// A directory, served by name; hosts may change what is in it if it says rw, as this user and group
    #[arg(long = "export", value_name = "NAME=PATH[,rw][,uid=N][,gid=N][,direct]")]
    exports: Vec<ExportSpec>,
    /// Address or name to listen on; port 0 takes a free one [default: 127.0.0.1:4420]. Hosts with several paths choose by STATE:
    /// optimized (the default), non-optimized or inaccessible
    #[arg(long, value_name = "HOST[:PORT][,path=STATE]")]
    listen: Vec<ListenSpec>,
    /// Listen beyond this machine although hosts are not authenticated: anybody who reaches it can use all that is
    /// served
    #[arg(long)]
    insecure: bool,
    /// NQN of the subsystem
    #[arg(long)]
    nqn: Option<String>,
    /// NQNs of the hosts that may connect, by name alone: anybody can say it [default: any]
    #[arg(long, value_delimiter = ',', value_name = "NQN")]
    hosts: Vec<String>,
    /// A host that may connect, by its key; others are refused. `diskside key allow` writes the same to a file
    #[arg(long = "host", value_name = "NAME=NQN[,tls-key=FILE][,key=FILE][,controller-key=FILE]")]
    known_hosts: Vec<HostSpec>,
    /// How hosts come: by their name (none), with a key as proof (auth), over TLS (tls), or both (tls+auth) [default:
    /// tls if hosts have keys of TLS alone, auth if they have others, else none]
    #[arg(long, value_name = "none|auth|tls|tls+auth", value_parser = parse_requirement)]
    require: Option<Requirement>,
    /// Reactors, one thread each
    #[arg(long)]
    reactors: Option<usize>,
    /// Functions that compute at a time [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    engines: Option<usize>,
    /// Serve data only: no functions, no loaded programs
    #[arg(long, conflicts_with = "engines")]
    no_compute: bool,
    /// The user that the server becomes where root starts it: a name, or UID:GID [default: diskside if there is such an account,
    /// else nobody if that one can open what is served]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Keep the rights of who starts it: no other user, all files and system calls
    #[arg(long, conflicts_with = "user")]
    no_confine: bool,
    /// TCP congestion control of connections, such as reno
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Tell at this address what the server does: a page for browsers at /, numbers for Prometheus at /metrics; without a port it is 9464 [default: nowhere]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_metrics_address)]
    metrics: Option<SocketAddr>,
    /// Read settings from a TOML file; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings in force, as TOML, and end
    #[arg(long)]
    print_config: bool,
}

impl Serve {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let some = |list: Vec<_>| (!list.is_empty()).then_some(list);
        let flags = Settings {
            listen: (!self.listen.is_empty()).then_some(self.listen),
            nqn: self.nqn,
            hosts: some(self.hosts),
            insecure: self.insecure.then_some(true),
            user: self.user,
            confine: self.no_confine.then_some(false),
            reactors: self.reactors,
            congestion_control: self.congestion_control,
            metrics: self.metrics,
            compute: ComputeSettings {
                enabled: self.no_compute.then_some(false),
                engines: self.engines,
                ..ComputeSettings::default()
            },
            security: SecuritySettings { require: self.require, ..SecuritySettings::default() },
            known_hosts: self.known_hosts,
            volumes: self.volumes,
            exports: self.exports,
            ..Settings::default()
        };
        let file = self.config;
        let read_anew: Vec<PathBuf> = file.iter().cloned().collect();
        let resolve = move || {
            let settings = file.as_deref().map(Settings::from_file).transpose()?.unwrap_or_default();
            let is_listen_overridden = settings.listen.is_some() && flags.listen.is_some();
            let settings = settings.overridden_by(flags.clone());
            let is_require_written = settings.security.require.is_some();
            let resolved = ServeConfig::resolve(settings).map(|config| Resolved {
                config,
                is_require_written,
                is_listen_overridden,
            });
            resolved.map_err(|error| match &file {
                Some(file) => in_file(error, file),
                None => error,
            })
        };
        let hangups = reload::hangups()?;
        let Resolved { config, is_listen_overridden, .. } = resolve().map_err(|e| Failure::Usage(e.to_string()))?;
        if self.print_config {
            return Ok(output::stdout().write_all(config.to_toml().as_bytes())?);
        }
        if config.volumes.is_empty() && config.exports.is_empty() {
            return Err(Failure::Usage(NOTHING_TO_SERVE.to_owned()));
        }
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        if is_listen_overridden {
            tracing::warn!("{}", reload::LISTEN_OVERRIDDEN);
        }
        let service = Arc::new(Service::from_environment());
        let inherited = inherited_listeners().map_err(|e| Failure::Environment(e.to_string()))?;
        let observed = config.metrics.map(observed_at).transpose()?;
        give_up(&config).map_err(|e| Failure::Environment(format!("cannot give up privileges: {e}")))?;
        let failed = |e: TargetError| Failure::Environment(e.to_string());
        let opened = Target::builder().config(config.clone()).inherited(inherited).open().map_err(failed)?;
        let exporter = Exporter::from_environment();
        let exporter_port = exporter.as_ref().map(Exporter::port);
        let confinement = config.confine.then(|| confine(&config, &read_anew, exporter_port)).transpose();
        let confinement = confinement.map_err(|e| Failure::Environment(e.to_string()))?;
        // Until the server has ended.
        let _exporting: Option<Exporting> = exporter.and_then(|exporter| exporter.start("diskside-server"));
        let target = opened.build().map_err(failed)?;
        if confinement.as_ref().is_some_and(Confinement::closes_files) {
            target.handle().is_confined();
        }
        let reloading = reload::on_hangup(hangups, target.handle(), config, Arc::clone(&service), resolve)?;
        let stopping = tell_of_stop(Arc::clone(&service))?;
        let told_at =
            observed.as_ref().map(TcpListener::local_addr).transpose().map_err(Failure::environment("the page"))?;
        if let Some(listener) = observed {
            Observer::start(listener, Watched::Here(target.handle())).map_err(Failure::environment("the page"))?;
        }
        watch(target.handle(), Arc::clone(&service))?;
        let served =
            target.serve_until_signal(|handle| announce(handle, confinement, told_at, &service)).map_err(failed);
        // With nothing in flight the server is faster than the thread that tells of it.
        service.stopping();
        reloading.close();
        stopping.close();
        served
    }
}

fn parse_requirement(text: &str) -> Result<Requirement, String> {
    match text {
        "none" => Ok(Requirement::None),
        "auth" => Ok(Requirement::Auth),
        "tls" => Ok(Requirement::Tls),
        "tls+auth" => Ok(Requirement::TlsAuth),
        _ => Err("write none, auth, tls or tls+auth".into()),
    }
}

const NOTHING_TO_SERVE: &str = "there is nothing to serve: give a directory (--export NAME=DIRECTORY), a volume \
    (--volume NAME=FILE, or --volume NAME=mem:1GiB,rw), or both in a file (--config FILE)";

/// Says where and what is served, once hosts are answered: people read it, and scripts wait for the line. Hosts are served
/// also when nobody reads it.
fn announce(handle: &Handle, confinement: Option<Confinement>, told_at: Option<SocketAddr>, service: &Service) {
    if let Some(mut confinement) = confinement {
        confinement.filter_calls();
        say(confinement.to_string());
    }
    if let Err(error) = print_urls(handle, told_at) {
        say(format_args!("diskside: the URLs are not printed: {error}"));
    }
    service.ready(&status(handle));
}

/// What is served, in a line.
fn status(handle: &Handle) -> String {
    let addresses: Vec<_> = handle.local_addresses().iter().map(ToString::to_string).collect();
    let (volumes, exports) = (handle.volumes().len(), handle.exports().names().len());
    format!("serving {exports} exports and {volumes} volumes at {}", addresses.join(", "))
}

/// The error with the line of the file that it is about.
pub(super) fn in_file(error: ConfigError, file: &Path) -> ConfigError {
    match std::fs::read_to_string(file) {
        Ok(text) => error.in_file(&file.display().to_string(), &text),
        Err(_) => error,
    }
}

fn observed_at(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|e| Failure::Environment(format!("cannot listen on {address} (metrics): {e}")))
}

/// Tells the service manager that the server is about to end.
fn tell_of_stop(service: Arc<Service>) -> Result<signal_hook::iterator::Handle, Failure> {
    let failed = Failure::environment("listening for signals");
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(&failed)?;
    let closer = signals.handle();
    let listen = move || signals.forever().for_each(|_| service.stopping());
    std::thread::Builder::new().name("stopping".into()).spawn(listen).map_err(failed)?;
    Ok(closer)
}

/// Tells the service manager that the server is well, three times as often as it must, as long as all reactors answer.
fn watch(handle: Handle, service: Arc<Service>) -> Result<(), Failure> {
    let Some(period) = service.watchdog().map(|within| within / 3) else { return Ok(()) };
    let watch = move || loop {
        std::thread::sleep(period);
        if handle.is_alive(period) {
            service.is_well();
        }
    };
    std::thread::Builder::new().name("watchdog".into()).spawn(watch).map_err(Failure::environment("the watchdog"))?;
    Ok(())
}

fn print_urls(handle: &Handle, told_at: Option<SocketAddr>) -> std::io::Result<()> {
    let mut out = output::stdout();
    if let Some(address) = told_at {
        writeln!(out, "what it does at http://{address}/")?;
    }
    for address in handle.local_addresses() {
        for volume in handle.volumes() {
            writeln!(out, "serving {} at nvme-tcp://{address}/{}/{}", volume.name, handle.nqn(), volume.nsid)?;
        }
        for export in handle.exports().names() {
            writeln!(out, "serving {export} at diskside://{address}/{export}")?;
        }
    }
    out.flush()
}
