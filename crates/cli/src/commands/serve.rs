//! `diskside serve`.

use crate::error::Failure;
use clap::Args;
use diskside::target::Target;
use diskside::target::config::{ComputeSettings, ExportSpec, ServeConfig, Settings, VolumeSpec};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Arguments of `serve`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside serve --volume data=/srv/data.img,size=10GiB
  diskside serve --volume db=/dev/sdb --volume scratch=mem:1GiB --listen 0.0.0.0:4420
  diskside serve --export data=/srv/data --export logs=/var/log,ro --listen 0.0.0.0:4420
  diskside serve --config /etc/diskside.toml --print-config")]
pub(crate) struct Serve {
    /// A volume: a file, a block device, or mem:SIZE
    #[arg(long = "volume", value_name = "NAME=PATH[,size=SIZE][,ro][,block=4096]")]
    volumes: Vec<VolumeSpec>,
    /// A directory, served by name; files in it are opened, made and written as this user and group
    #[arg(long = "export", value_name = "NAME=PATH[,ro][,uid=N][,gid=N][,direct]")]
    exports: Vec<ExportSpec>,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// NQN of the subsystem
    #[arg(long)]
    nqn: Option<String>,
    /// NQNs of the hosts that may connect [default: any]
    #[arg(long, value_delimiter = ',', value_name = "NQN")]
    hosts: Vec<String>,
    /// Reactors, one thread each
    #[arg(long)]
    reactors: Option<usize>,
    /// Functions that compute at a time [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    engines: Option<usize>,
    /// Serve data only: no functions, no loaded programs
    #[arg(long, conflicts_with = "engines")]
    no_compute: bool,
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
        let file = match &self.config {
            Some(path) => Settings::from_file(path).map_err(|e| Failure::Usage(e.to_string()))?,
            None => Settings::default(),
        };
        let some = |list: Vec<_>| (!list.is_empty()).then_some(list);
        let flags = Settings {
            listen: (!self.listen.is_empty()).then_some(self.listen),
            nqn: self.nqn,
            hosts: some(self.hosts),
            reactors: self.reactors,
            congestion_control: self.congestion_control,
            compute: ComputeSettings {
                enabled: self.no_compute.then_some(false),
                engines: self.engines,
                ..ComputeSettings::default()
            },
            volumes: self.volumes,
            exports: self.exports,
            ..Settings::default()
        };
        let config = ServeConfig::resolve(file.overridden_by(flags)).map_err(|e| Failure::Usage(e.to_string()))?;
        if self.print_config {
            print!("{}", config.to_toml());
            return Ok(());
        }
        let failed = |e: diskside::target::TargetError| Failure::Environment(e.to_string());
        let target = Target::builder().config(config).build().map_err(failed)?;
        announce(&target)?;
        target.serve_until_signal().map_err(failed)
    }
}

/// Says where and what is served: people read it, and scripts wait for the line.
fn announce(target: &Target) -> std::io::Result<()> {
    use std::io::Write;
    let handle = target.handle();
    let mut out = std::io::stdout().lock();
    for address in handle.local_addresses() {
        for volume in handle.volumes() {
            writeln!(out, "serving {} at nvme-tcp://{address}/{}/{}", volume.name, handle.nqn(), volume.nsid)?;
        }
        for export in handle.exports().names() {
            writeln!(out, "serving {export} at diskside://{address}/{export}")?;
        }
        if handle.volumes().is_empty() && handle.exports().is_empty() {
            writeln!(out, "serving no volumes at nvme-tcp://{address}/{}", handle.nqn())?;
        }
    }
    out.flush()
}
