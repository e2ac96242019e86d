//! Local files that are on a volume which this machine has mounted: functions run over them at the volume's target.

use super::Session;
use super::descriptor::Descriptor;
use super::link::Link;
use diskside_host::Volume;
use diskside_host::mounted::{
    MountedCalls, MountedFile, MountedOptions, MountedWriter, Reason, Refusal, place_of, volume_urls,
};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A file on a mounted volume.
#[derive(Debug)]
pub(super) struct Mounted {
    path: PathBuf,
    /// The file that the caller has opened: then nothing else is opened.
    descriptor: Option<Arc<Descriptor>>,
    pub(super) link: Arc<Link>,
    volume: Volume,
    options: MountedOptions,
    /// Open as long as nobody writes: a file is written at its volume only if nobody else has it open.
    reader: Mutex<Option<Arc<MountedCalls>>>,
}

/// Parts of a file of which it is asked whether the page cache holds them.
const CACHE_PARTS: u64 = 128;
const CACHE_PART_LEN_MIN: u64 = 1 << 20;

/// File systems that were found to be on no volume, by device, and when. Another may be mounted there later.
#[derive(Debug, Default)]
pub(super) struct PlainDisks {
    found: Mutex<HashMap<u64, (Reason, String, Instant)>>,
}

const PLAIN_KNOWN_FOR: Duration = Duration::from_secs(1);

impl PlainDisks {
    fn refusal(&self, device: u64) -> Option<Refusal> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (reason, what, _) = found.get(&device).filter(|(.., when)| when.elapsed() < PLAIN_KNOWN_FOR)?;
        Some(Refusal::new(*reason, what.clone()))
    }

    fn note(&self, device: u64, refusal: &Refusal) {
        let found = (refusal.reason, refusal.found.clone(), Instant::now());
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(device, found);
    }
}

impl Mounted {
    /// Finds the volume and connects to it, if it is one.
    pub(super) fn find(session: &Session, path: &Path, descriptor: Option<&Arc<Descriptor>>) -> Result<Self, Refusal> {
        let failed = |error| Refusal::failed(&path.display().to_string(), error);
        let found = std::fs::metadata(path).map_err(failed)?;
        // Who opens a pipe takes it from its writer when it is closed.
        if !found.is_file() {
            return Err(Reason::NotRegular.into());
        }
        // Many files are mostly of one file system, and what that is takes some fifty calls of the kernel to find.
        let device = found.dev();
        if let Some(refusal) = session.plain_disks().refusal(device) {
            return Err(refusal);
        }
        let found = Self::look(session, path, descriptor);
        if let Err(refusal) = &found
            && matches!(refusal.reason, Reason::FileSystem | Reason::NoDevice | Reason::UnknownDisk)
        {
            session.plain_disks().note(device, refusal);
        }
        found
    }

    fn look(session: &Session, path: &Path, descriptor: Option<&Arc<Descriptor>>) -> Result<Self, Refusal> {
        let failed = |error| Refusal::failed(&path.display().to_string(), error);
        let open = descriptor.map_or_else(|| std::fs::File::open(path), |descriptor| descriptor.duplicate());
        let place = place_of(&open.map_err(failed)?)?;
        // What the kernel tells, then what the caller names.
        let (mut urls, mut why) = match volume_urls(&place) {
            Ok(urls) => (urls, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        };
        urls.extend(session.mounted_volumes().iter().cloned());
        for url in &urls {
            match Self::at(session, path, descriptor, url) {
                Ok(found) => return Ok(found),
                // That it is not one of the others says less.
                Err(refusal) if why.is_none() || refusal.reason != Reason::OtherVolume => why = Some(refusal),
                Err(_) => {}
            }
        }
        Err(why.unwrap_or_else(|| Reason::UnknownDisk.into()))
    }

    fn at(
        session: &Session,
        path: &Path,
        descriptor: Option<&Arc<Descriptor>>,
        url: &diskside_host::Url,
    ) -> Result<Self, Refusal> {
        let failed = |error| Refusal::failed(&url.to_string(), io::Error::other(error));
        let nsid = url.nsid.ok_or_else(|| Refusal::new(Reason::UnknownDisk, format!("{url} names no volume")))?;
        let link = session.link(url).map_err(|error| failed(error.to_string()))?;
        let volume = link.connection.volume(nsid).map_err(|error| failed(error.to_string()))?;
        link.compute().map_err(|error| failed(error.to_string()))?;
        let (counters, proof) = (Arc::clone(session.mounted_counters()), session.mounted_proof());
        let options = MountedOptions { counters, proof, ..MountedOptions::default() };
        let (path, descriptor) = (path.to_owned(), descriptor.cloned());
        let this = Self { path, descriptor, link, volume, options, reader: Mutex::default() };
        this.reader()?;
        Ok(this)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs functions over the file.
    pub(super) fn reader(&self) -> Result<Arc<MountedCalls>, Refusal> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*reader {
            return Ok(Arc::clone(reader));
        }
        let file = match self.duplicate() {
            Some(open) => MountedFile::of_duplicate(open?, &self.volume, &self.options),
            None => MountedFile::open(&self.path, &self.volume, &self.options),
        };
        let file = Arc::new(file?);
        let compute = self.link.compute().map_err(|e| Refusal::failed("functions", io::Error::other(e.to_string())))?;
        Ok(Arc::clone(reader.insert(Arc::new(MountedCalls::new(&file, compute)?))))
    }

    /// Writes the output of functions into the file. For one request: meanwhile nobody else can open it.
    pub(super) fn writer(&self) -> Result<MountedWriter, Refusal> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        let compute = self.link.compute().map_err(|e| Refusal::failed("functions", io::Error::other(e.to_string())))?;
        match self.duplicate() {
            Some(open) => MountedWriter::of_duplicate(open?, &self.volume, compute, &self.options),
            None => MountedWriter::open(&self.path, &self.volume, compute, &self.options),
        }
    }

    fn duplicate(&self) -> Option<Result<std::fs::File, Refusal>> {
        let descriptor = self.descriptor.as_ref()?;
        Some(descriptor.duplicate().map_err(|error| Refusal::failed(&self.path.display().to_string(), error)))
    }

    /// Parts of a range that the page cache holds. Where the kernel does not tell, none.
    pub(super) fn cached(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let Ok(reader) = self.reader() else { return Vec::new() };
        let part_len = ((range.end - range.start) / CACHE_PARTS).next_multiple_of(CACHE_PART_LEN_MIN);
        let part_len = part_len.max(CACHE_PART_LEN_MIN);
        let mut held: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let part = at..(at + part_len).min(range.end);
            let Some(cached_bytes) = reader.file().cached_bytes(part.clone()) else { return Vec::new() };
            if cached_bytes >= part.end - part.start {
                match held.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => held.push(part.clone()),
                }
            }
            at = part.end;
        }
        held
    }
}

/// Whether a refusal is worth telling: most files of a machine are on no volume at all.
pub(super) fn is_telling(refusal: &Refusal) -> bool {
    !matches!(refusal.reason, Reason::NotRegular | Reason::FileSystem | Reason::NoDevice | Reason::UnknownDisk)
}
