//! `diskside serve`.

use crate::error::Failure;
use crate::output::{self, say};
use clap::Args;
use diskside::target::config::parse_address;
use diskside::target::config::{
    ComputeSettings, ConfigError, ExportSpec, HostSpec, Requirement, SecuritySettings, ServeConfig, Settings,
    VolumeSpec,
};
use diskside::target::confine::{Confinement, confine, give_up};
use diskside::target::{Handle, Target, TargetError};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Arguments of `serve`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside serve --volume data=/srv/data.img,rw,size=10GiB
  diskside serve --volume db=/dev/sdb --volume scratch=mem:1GiB,rw --listen 0.0.0.0:4420 --insecure
  diskside serve --export logs=/var/log --export out=/srv/out,rw
  diskside serve --config /etc/diskside.toml --print-config")]
pub(crate) struct Serve {
    /// A volume: a file, a block device, or mem:SIZE; hosts may write it if it says rw
    #[arg(long = "volume", value_name = "NAME=PATH[,rw][,size=SIZE][,block=4096]")]
    volumes: Vec<VolumeSpec>,
    /// A directory, served by name; hosts may change what is in it if it says rw, as this user and group
    #[arg(long = "export", value_name = "NAME=PATH[,rw][,uid=N][,gid=N][,direct]")]
    exports: Vec<ExportSpec>,
    /// Address or name to listen on; port 0 takes a free one [default: 127.0.0.1:4420]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
    /// Listen beyond this machine although hosts are not authenticated: whoever reaches it can use all that is served
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
    /// What hosts must do: say their name (none), prove it by a key (auth), come over TLS (tls), or both (tls+auth) [default: tls
    /// if hosts have keys of TLS alone, auth if they have others, else none]
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
            ServeConfig::resolve(settings.overridden_by(flags.clone()))
        };
        let config = resolve().map_err(|e| Failure::Usage(e.to_string()))?;
        if self.print_config {
            return Ok(output::stdout().write_all(config.to_toml().as_bytes())?);
        }
        if config.volumes.is_empty() && config.exports.is_empty() {
            return Err(Failure::Usage(NOTHING_TO_SERVE.to_owned()));
        }
        give_up(&config).map_err(|e| Failure::Environment(format!("cannot give up privileges: {e}")))?;
        let failed = |e: TargetError| Failure::Environment(e.to_string());
        let opened = Target::builder().config(config.clone()).open().map_err(failed)?;
        let confinement = config.confine.then(|| confine(&config, &read_anew)).transpose();
        let confinement = confinement.map_err(|e| Failure::Environment(e.to_string()))?;
        let target = opened.build().map_err(failed)?;
        let reloading = reload_on_hangup(target.handle(), config, resolve)?;
        let served = target.serve_until_signal(|handle| announce(handle, confinement)).map_err(failed);
        reloading.close();
        served
    }
}

/// Reads the hosts and their keys anew at each SIGHUP. What cannot be is said, and nothing changes.
fn reload_on_hangup(
    handle: Handle,
    at_start: ServeConfig,
    resolve: impl Fn() -> Result<ServeConfig, ConfigError> + Send + 'static,
) -> Result<signal_hook::iterator::Handle, Failure> {
    let failed = |error| Failure::Environment(format!("listening for signals: {error}"));
    let mut signals = Signals::new([SIGHUP]).map_err(failed)?;
    let closer = signals.handle();
    let listen = move || {
        for _ in signals.forever() {
            let reloaded = resolve().map_err(|e| e.to_string());
            match reloaded.and_then(|config| handle.reload_hosts(&config).map_err(|e| e.to_string()).map(|()| config)) {
                Ok(config) => {
                    say("diskside: the hosts and their keys were read anew");
                    tell_what_waits(&at_start, &config);
                }
                Err(error) => {
                    let hint = if at_start.confine { CONFINED_TO } else { "" };
                    say(format_args!("diskside: the hosts stay as they were: {error}{hint}"));
                }
            }
        }
    };
    std::thread::Builder::new().name("reload".into()).spawn(listen).map_err(failed)?;
    Ok(closer)
}

/// Says of what is served otherwise than at the start that it is not: the process can reach nothing more than then.
fn tell_what_waits(at_start: &ServeConfig, now: &ServeConfig) {
    let exports = now.exports.iter().filter(|export| !at_start.exports.contains(export));
    let volumes = now.volumes.iter().filter(|volume| !at_start.volumes.contains(volume));
    let new = exports.map(|export| format!("export `{}`", export.name));
    let new = new.chain(volumes.map(|volume| format!("volume `{}`", volume.name))).collect::<Vec<_>>();
    if !new.is_empty() {
        let new = new.join(", ");
        say(format_args!("diskside: {new}: new or changed, and as it was until the server is started again"));
    }
}

const CONFINED_TO: &str = "; a server reaches only the directories of the files that it had at its start: for keys, an audit \
    file or a configuration elsewhere start it again";

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
fn announce(handle: &Handle, confinement: Option<Confinement>) {
    if let Some(mut confinement) = confinement {
        confinement.filter_calls();
        say(confinement.to_string());
    }
    if let Err(error) = print_urls(handle) {
        say(format_args!("diskside: the URLs are not printed: {error}"));
    }
}

fn print_urls(handle: &Handle) -> std::io::Result<()> {
    let mut out = output::stdout();
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
