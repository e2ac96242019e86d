//! `diskside attach` and `diskside detach`.

use super::volume::{Connect, host_failure, parse_url};
use crate::error::Failure;
use crate::output::say;
use clap::Args;
use diskside::host::{Url, Volume};
use diskside_attach::{AttachError, Attached, DeltaOptions, detach};
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `attach`.
#[derive(Args)]
#[command(after_help = "\
For kernels without nvme-tcp; with it, `nvme connect` is faster. Needs root, FUSE and loop devices. Stays \
until `diskside detach`, or until it is interrupted and nobody uses the device any more.

Example:
  diskside attach nvme-tcp://server:4420/nqn.2026-11.io.diskside:server/1 &
  mkfs.ext4 /dev/loop0 && mount /dev/loop0 /mnt")]
pub(crate) struct Attach {
    /// The volume, nvme-tcp://HOST[:PORT]/NQN/NSID
    #[arg(value_name = "URL", value_parser = parse_url)]
    volume: Url,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Send changed bytes of pages: base_cache=64MiB,page=16KiB (`atomic=` volumes)
    #[arg(long, value_name = "OPTIONS")]
    deltas: Option<DeltaOptions>,
    #[command(flatten)]
    connect: Connect,
}

/// Arguments of `detach`.
#[derive(Args)]
#[command(after_help = "\
Also when the process that attached it has died. Unmount what is mounted from it first.")]
pub(crate) struct Detach {
    /// The block device
    #[arg(value_name = "/dev/loopN")]
    device: PathBuf,
}

impl Attach {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let volume = Volume::connect(&self.volume, &self.connect.options()?).map_err(host_failure)?;
        let url = self.volume.to_string();
        let attached = Attached::with_deltas(&volume, &url, self.read_only, self.deltas).map_err(attach_failure)?;
        attached.detach_on_signal(|error| say(format_args!("diskside: {error}; waiting"))).map_err(attach_failure)?;
        {
            // People read it, and scripts wait for the line.
            let mut out = std::io::stdout().lock();
            writeln!(out, "{url} is {}", attached.device().display())?;
            out.flush()?;
        }
        attached.serve().map_err(attach_failure)
    }
}

impl Detach {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        detach(&self.device).map_err(attach_failure)
    }
}

fn attach_failure(error: AttachError) -> Failure {
    match error {
        AttachError::NotAttached(_) => Failure::Usage(error.to_string()),
        _ => Failure::Environment(error.to_string()),
    }
}
