//! `diskside cp`.

use super::exports::session;
use super::volume::{Connect, host_failure, session_failure};
use crate::error::Failure;
use crate::output::{self, bytes, rate};
use crate::progress::Progress;
use clap::Args;
use diskside::copy::{End, copy, verify};
use diskside::host::Volume;
use diskside::io::instance::{InstanceConfig, Instances};
use diskside::io::request::AsyncIo;
use diskside::session::FileWriter;
use diskside::wire::file::FileKind;
use diskside::{ExportUrl, Location};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `cp`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside cp disk.img nvme-tcp://server:4420/nqn.2026-11.io.diskside:server/1 --verify
  diskside cp nvme-tcp://server:4420/nqn.2026-11.io.diskside:server/1 backup.img
  diskside cp report.csv diskside://server/data/reports")]
pub(crate) struct Cp {
    /// A file, a file of an export (diskside://HOST[:PORT]/EXPORT/PATH), or a volume (nvme-tcp://HOST[:PORT]/NQN/NSID)
    source: String,
    /// The same; in a directory of an export the file keeps its name
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
        let url = match what.parse().map_err(|e: diskside::LocationError| Failure::Usage(e.to_string()))? {
            Location::Local(path) => return Opened::file(&path, write),
            Location::Export(url) if write => return self.open_to_write(url),
            Location::Export(_) => {
                let file = session(&self.connect)?.open(what).map_err(session_failure)?;
                let (io, len) = (file.io().map_err(session_failure)?, file.len_bytes().map_err(session_failure)?);
                return Ok(Opened { io, len, fixed: false, partial: None });
            }
            Location::Volume(url) => url,
        };
        let volume = Volume::connect(&url, &self.connect.options()?).map_err(host_failure)?;
        if write && volume.is_read_only() {
            return Err(Failure::Environment(format!("{what}: the volume is read-only")));
        }
        let len = volume.len_bytes()?;
        Ok(Opened { io: Arc::new(volume), len, fixed: true, partial: None })
    }

    fn open_to_write(&self, mut url: ExportUrl) -> Result<Opened, Failure> {
        let session = session(&self.connect)?;
        let files = session.files(&url).map_err(session_failure)?;
        if files.stat(url.path.as_bytes()).is_ok_and(|info| info.kind == FileKind::Directory) {
            let name = self.source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            url = url.join(name);
        }
        let writer = FileWriter::create(&session, &url).map_err(session_failure)?;
        let io = writer.file().io().map_err(session_failure)?;
        Ok(Opened { io, len: u64::MAX, fixed: false, partial: Some(Partial::Export(Box::new(writer))) })
    }
}

/// One end, open.
struct Opened {
    io: Arc<dyn AsyncIo>,
    len: u64,
    fixed: bool,
    /// A new file under its temporary name, and what it will be called.
    partial: Option<Partial>,
}

enum Partial {
    Local {
        temporary: PathBuf,
        path: PathBuf,
    },
    /// Removed when it is dropped.
    Export(Box<FileWriter>),
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
                (file, Some(Partial::Local { temporary, path: path.to_owned() }))
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
        match self.partial.take() {
            None => Ok(()),
            Some(Partial::Local { temporary, path }) => std::fs::rename(&temporary, &path)
                .map_err(|e| Failure::Environment(format!("cannot write {}: {e}", path.display()))),
            Some(Partial::Export(writer)) => writer.publish().map_err(session_failure),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(Partial::Local { temporary, .. }) = &self.partial {
            // The error that matters was reported.
            let _ = std::fs::remove_file(temporary);
        }
    }
}
