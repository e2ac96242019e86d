//! `diskside cp`.

use super::volume::{Connect, host_failure};
use crate::error::Failure;
use crate::output::{self, bytes, rate};
use crate::progress::Progress;
use clap::Args;
use diskside::copy::{End, copy, verify};
use diskside::host::{Url, Volume};
use diskside::io::instance::{InstanceConfig, Instances};
use diskside::io::request::AsyncIo;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `cp`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside cp disk.img nvme-tcp://server:4420/nqn.2026-11.io.diskside:server/1 --verify
  diskside cp nvme-tcp://server:4420/nqn.2026-11.io.diskside:server/1 backup.img")]
pub(crate) struct Cp {
    /// A file, or a volume: nvme-tcp://HOST[:PORT]/NQN/NSID
    source: String,
    /// A file, or a volume
    destination: String,
    /// Read both again and compare
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Cp {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let started = Instant::now();
        let source = self.open(&self.source, false)?;
        let destination = self.open(&self.destination, true)?;
        let steps = if self.verify { 2 } else { 1 };
        let progress = Progress::start(source.end().len * steps);
        let result = self.copy(&source, &destination, &progress);
        progress.finish();
        let copied = result?;
        destination.publish()?;
        if self.json {
            output::print_json(json!({
                "source": self.source, "destination": self.destination, "bytes": copied,
                "verified": self.verify, "total_ns": started.elapsed().as_nanos() as u64,
            }))?;
        } else {
            let verified = if self.verify { ", verified" } else { "" };
            println!("{} copied{verified}, {}", bytes(copied), rate(copied, started.elapsed()));
        }
        Ok(())
    }

    fn copy(&self, source: &Opened, destination: &Opened, progress: &Progress) -> Result<u64, Failure> {
        let failed = |e: diskside::copy::CopyError| {
            Failure::Environment(format!("{} to {}: {e}", self.source, self.destination))
        };
        let copied = copy(&source.end(), &destination.end(), progress.done()).map_err(failed)?;
        if self.verify {
            verify(&source.end(), &destination.end(), progress.done()).map_err(failed)?;
        }
        Ok(copied)
    }

    fn open(&self, what: &str, write: bool) -> Result<Opened, Failure> {
        if !what.contains("://") {
            return Opened::file(Path::new(what), write);
        }
        let url: Url = what.parse().map_err(|e: diskside::host::UrlError| Failure::Usage(e.to_string()))?;
        let volume = Volume::connect(&url, &self.connect.options()?).map_err(host_failure)?;
        if write && volume.is_read_only() {
            return Err(Failure::Environment(format!("{what}: the volume is read-only")));
        }
        let len = volume.len_bytes()?;
        Ok(Opened { io: Arc::new(volume), len, fixed: true, partial: None })
    }
}

/// One end, open.
struct Opened {
    io: Arc<dyn AsyncIo>,
    len: u64,
    fixed: bool,
    /// A new file under its temporary name, and what it will be called.
    partial: Option<(PathBuf, PathBuf)>,
}

impl Opened {
    fn file(path: &Path, write: bool) -> Result<Self, Failure> {
        use std::os::unix::fs::FileTypeExt;
        let failed = |e: std::io::Error| Failure::Environment(format!("cannot open {}: {e}", path.display()));
        let is_device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
        let mut options = std::fs::OpenOptions::new();
        let (file, partial) = match (write, is_device) {
            (false, _) => (options.read(true).open(path), None),
            (true, true) => (options.read(true).write(true).open(path), None),
            (true, false) => {
                let temporary = path.with_added_extension("partial");
                let file = options.read(true).write(true).create(true).truncate(true).open(&temporary);
                (file, Some((temporary, path.to_owned())))
            }
        };
        let instances = Instances::start(&InstanceConfig::default()).map_err(failed)?;
        let file = instances.file(file.map_err(failed)?).map_err(failed)?;
        let len = file.len_bytes().map_err(failed)?;
        Ok(Self { io: Arc::new(file), len, fixed: is_device, partial })
    }

    fn end(&self) -> End<'_> {
        End { io: &*self.io, len: self.len, fixed: self.fixed }
    }

    /// Gives a new file its name, now that it is whole.
    fn publish(mut self) -> Result<(), Failure> {
        let Some((temporary, path)) = self.partial.take() else { return Ok(()) };
        std::fs::rename(&temporary, &path)
            .map_err(|e| Failure::Environment(format!("cannot write {}: {e}", path.display())))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.partial {
            // The error that matters was reported.
            let _ = std::fs::remove_file(temporary);
        }
    }
}
