//! Sessions: connections, files, directories and runs.

use crate::batch::{self, Handles, Wanted};
use crate::error::Failure;
use crate::file::File;
use crate::function::Function;
use crate::here::Here;
use crate::options;
use crate::ran::Ran;
use crate::request::{Output, Request, interruptible};
use crate::scan::{self, Scan};
use crate::server::Server;
use crate::writer::Writer;
use diskside::host::function::FileInfo;
use diskside::session::{FileWriter, OpenMode, ScanOptions, SessionOptions};
use diskside::wire::file::{FileFlags, FileKind};
use diskside::{Call, CallError, ExportUrl, Location, PathText, PutTogether};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections to targets, what was read of their files, and what was measured of functions. And the targets that are connected.
#[pyclass(frozen)]
pub(crate) struct Session(Here<diskside::session::Session>, Here<Arc<Handles>>, Mutex<HashSet<String>>);

/// A range of a file of an export, as Python gives it.
type Ranged = (String, i64, Option<u64>, Option<u64>);

/// The metadata of a file: kind, length, time of its last change, version, permission bits.
type Info = (&'static str, u64, f64, u64, u32);

#[pymethods]
impl Session {
    #[new]
    fn new(
        cache: [u64; 2],
        policy: Option<&str>,
        learnt_directory: Option<PathBuf>,
        volumes: Vec<String>,
        host_nqn: Option<&str>,
        timeouts: [Option<f64>; 3],
        io: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let wrong = |what: &str, why: &dyn std::fmt::Display| Failure::usage(format!("{what}: {why}"));
        let mut options = SessionOptions::from_environment().map_err(Failure::usage)?;
        [options.cache_len_bytes, options.footers_len_bytes] = cache;
        options.learnt_directory = learnt_directory;
        if let Some(policy) = policy {
            options.policy = policy.parse().map_err(|error| wrong("policy", &error))?;
        }
        for volume in volumes {
            options.mounted_volumes.push(volume.parse().map_err(|error| wrong("volumes", &error))?);
        }
        if let Some(nqn) = host_nqn {
            options.connect.identity.nqn = nqn.parse().map_err(|error| wrong("host_nqn", &error))?;
        }
        let seconds =
            |name: &str, given: f64| std::time::Duration::try_from_secs_f64(given).map_err(|error| wrong(name, &error));
        let connect = &mut options.connect;
        let known = [
            ("connect_timeout", &mut connect.connect_timeout),
            ("loss_timeout", &mut connect.loss_timeout),
            ("keep_alive", &mut connect.keep_alive),
        ];
        for ((name, timeout), given) in known.into_iter().zip(timeouts) {
            if let Some(given) = given {
                *timeout = seconds(name, given)?;
            }
        }
        options.instances = options::instances(io)?;
        Ok(Self(Here::new(diskside::session::Session::new(options)), Here::new(Arc::default()), Mutex::default()))
    }

    /// Opens what a path or URL names: for "read", "write", or "create".
    fn open(&self, py: Python<'_>, name: PathBuf, mode: &str) -> PyResult<File> {
        let mode = match mode {
            "read" => OpenMode::Read,
            "write" => OpenMode::Write,
            "create" => OpenMode::Create,
            other => return Err(Failure::usage(format!("mode: {other:?} is none of read, write, create")).into()),
        };
        let location = location(&name)?;
        let session = self.0.get()?.clone();
        Ok(File::of(interruptible(py, move || Ok(session.open_as(&location, mode)?))?))
    }

    /// What a path or URL names, to be opened when it is used.
    fn open_late(&self, py: Python<'_>, name: PathBuf) -> PyResult<File> {
        let location = location(&name)?;
        let session = self.0.get()?.clone();
        let target = match &location {
            Location::Export(url) => Some(ExportUrl { path: Vec::new(), ..url.clone() }.to_string()),
            Location::Local(_) | Location::Volume(_) => None,
        };
        let known = || self.2.lock().unwrap_or_else(PoisonError::into_inner);
        // Only connecting takes long.
        if target.as_ref().is_none_or(|target| known().contains(target)) {
            return Ok(File::of(py.detach(|| session.open_late(&location)).map_err(Failure::from)?));
        }
        let file = interruptible(py, move || Ok(session.open_late(&location)?))?;
        known().extend(target);
        Ok(File::of(file))
    }

    /// Begins a run over files; with `out` its result becomes that file.
    fn run(
        &self,
        py: Python<'_>,
        files: Vec<PyRef<'_, File>>,
        function: &Function,
        args: &[u8],
        given: &Bound<'_, PyDict>,
        out: Option<PathBuf>,
    ) -> PyResult<Request> {
        let (session, (options, cancel, progress)) = (self.0.get()?, options::read(given)?);
        let function = function.over_bytes()?;
        let files: Vec<diskside::session::File> =
            files.iter().map(|file| Ok(file.get()?.clone())).collect::<Result<_, Failure>>()?;
        let out = out.map(|out| location(&out)).transpose()?;
        Ok(py.detach(|| {
            let pending = session.submit_run(&files, function, args, &options, out);
            Request::begin_run(pending, cancel, Some(progress))
        }))
    }

    /// The files that a scan would read, and whether they are one that is named by its path.
    fn scan_files(&self, py: Python<'_>, names: Vec<PathBuf>) -> PyResult<(Vec<String>, bool)> {
        let session = self.0.get()?.clone();
        let named = names.iter().map(|name| location(name)).collect::<Result<Vec<_>, _>>()?;
        let files = py.detach(|| session.scan_files_of(&named)).map_err(Failure::from)?;
        Ok((files.all().iter().map(ToString::to_string).collect(), files.plain().is_some()))
    }

    /// Begins a scan of a table in files.
    fn scan(
        &self,
        names: Vec<PathBuf>,
        wanted: scan::Wanted,
        place: &Bound<'_, PyAny>,
        partitions: bool,
    ) -> PyResult<Scan> {
        let session = self.0.get()?.clone();
        let options = ScanOptions { place: options::scan_place(place)?, partitions, ..ScanOptions::default() };
        let named = names.iter().map(|name| location(name)).collect::<Result<Vec<_>, _>>()?;
        let find = move |session: &diskside::session::Session| session.scan_files_of(&named);
        Ok(Scan::begin(session, find, wanted, options)?)
    }

    /// Begins a scan of the files of a table.
    fn scan_table(&self, table: scan::Table, wanted: scan::Wanted, place: &Bound<'_, PyAny>) -> PyResult<Scan> {
        let session = self.0.get()?.clone();
        let options = ScanOptions { place: options::scan_place(place)?, ..ScanOptions::default() };
        let files = table.files()?;
        Ok(Scan::begin(session, move |_| Ok(files), wanted, options)?)
    }

    /// Folds results of a function, in this order.
    fn fold(
        &self,
        py: Python<'_>,
        function: &Function,
        args: &[u8],
        results: Vec<Vec<u8>>,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<Ran> {
        let (session, (options, ..)) = (self.0.get()?, options::read(given)?);
        let function = function.over_bytes()?;
        let folded: Result<PutTogether, CallError> = py.detach(|| {
            let call = Call { limits: options.limits, ..Call::new(function, Vec::new(), args.to_vec()) };
            let names: Vec<_> = (0..results.len()).map(|index| format!("result {index}")).collect();
            let parts: Vec<_> = names.iter().zip(&results).map(|(name, part)| (name.as_str(), &part[..])).collect();
            session.engine().fold(&call, &parts)
        });
        let folded = folded.map_err(|error| Failure::from(diskside::session::SessionError::Call(error)))?;
        let PutTogether { result, fold } = folded;
        Ok(Ran::of(diskside::session::Ran { result, fold, ..diskside::session::Ran::default() }))
    }

    /// Reads ranges of files of exports, all at once; see [`batch`]. A range is a URL, a start, an end, which may be `None`,
    /// and the version that it was chosen for, if it was; a start below 0 counts from the file's end. With `anew`, files are looked
    /// for that were open just now.
    #[pyo3(signature = (wanted, anew = false))]
    fn fetch(&self, py: Python<'_>, wanted: Vec<Ranged>, anew: bool) -> PyResult<Request> {
        let wanted_of = |(url, start, end, version): Ranged| Ok(Wanted { url: export(&url)?, start, end, version });
        let wanted = wanted.into_iter().map(wanted_of);
        let wanted = wanted.collect::<Result<Vec<_>, Failure>>()?;
        let (session, handles) = (self.0.get()?, self.1.get()?);
        py.detach(|| {
            let fetched = batch::fetch(session, handles, wanted, anew)?;
            Ok(Request::begin(async move { Ok(Output::Many(fetched.await)) }))
        })
        .map_err(|error: Failure| error.into())
    }

    /// Writes a file of an export whole: it appears with all of these bytes, or not at all.
    fn write_whole(&self, py: Python<'_>, url: &str, bytes: PyBackedBytes) -> PyResult<()> {
        let writer = self.writer(py, url)?;
        writer.write(py, bytes)?;
        writer.publish(py)
    }

    /// Begins a file of an export that will appear whole, or not at all.
    fn writer(&self, py: Python<'_>, url: &str) -> PyResult<Writer> {
        let (session, url) = (self.0.get()?.clone(), export(url)?);
        let of = url.clone();
        let writer = interruptible(py, move || Ok(FileWriter::create(&session, &of)?))?;
        Ok(Writer::of(url, writer, Arc::clone(self.1.get()?)))
    }

    /// What is known of a file or directory of an export.
    fn stat(&self, py: Python<'_>, url: &str) -> PyResult<Info> {
        self.look(py, url, |files, path| files.stat(path)).map(|found| info(&found))
    }

    /// The entries of a directory of an export: names, and what is known of them.
    fn entries(&self, py: Python<'_>, url: &str) -> PyResult<Vec<(String, Option<Info>)>> {
        let listed = self.look(py, url, |files, path| files.list(path))?;
        let entry =
            |one: &diskside::host::function::Listed| (PathText(&one.name).to_string(), one.info.as_ref().map(info));
        Ok(listed.iter().map(entry).collect())
    }

    /// The files that a pattern means, or those below a directory: paths from the export's name on, as URLs have them. With `links`,
    /// symbolic links below a directory, too, those to directories among them.
    #[pyo3(signature = (url, recursive, links=false))]
    fn find(&self, py: Python<'_>, url: &str, recursive: bool, links: bool) -> PyResult<Vec<(String, Option<Info>)>> {
        let flags = FileFlags::ATTRIBUTES | FileFlags::RECURSIVE.when(recursive) | FileFlags::LINKS.when(links);
        let found = self.look(py, url, move |files, path| files.find(path, flags))?;
        let found = found.into_iter().filter(|one| links || one.kind != FileKind::Directory);
        Ok(found.map(|one| (PathText(&one.path).to_string(), one.info.as_ref().map(info))).collect())
    }

    /// The exports of a target: names, and whether they are read-only.
    fn exports(&self, py: Python<'_>, url: &str) -> PyResult<Vec<(String, bool)>> {
        let (session, url) = (self.0.get()?.clone(), export(url)?);
        let exports = interruptible(py, move || Ok(session.exports(&url)?))?;
        Ok(exports.into_iter().map(|one| (one.name, one.read_only)).collect())
    }

    fn make_directory(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        self.with_files(py, url, |files, path| files.make_directory(path, 0o777))
    }

    fn remove_directory(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        self.with_files(py, url, |files, path| files.remove_directory(path))
    }

    fn unlink(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        self.1.get()?.forget(&export(url)?);
        self.with_files(py, url, |files, path| files.unlink(path))
    }

    /// Gives a file another name in the same export.
    fn rename(&self, py: Python<'_>, from_: &str, to: &str, replace: bool) -> PyResult<()> {
        let to = export(to)?;
        self.1.get()?.forget(&export(from_)?);
        self.1.get()?.forget(&to);
        self.with_files(py, from_, move |files, path| files.rename(path, &to.path, replace))
    }

    /// Gives the targets that URLs call `host` a connection to a server of this process, without a socket.
    fn attach(&self, py: Python<'_>, host: &str, server: &Server) -> PyResult<()> {
        let (session, handle) = (self.0.get()?, server.handle()?);
        py.detach(|| {
            let connection = diskside::embedded::connect(&handle, &diskside::host::ConnectOptions::default());
            let connection = connection.map_err(Failure::environment)?;
            session.attach(host, connection).map_err(Failure::from)
        })
        .map_err(Into::into)
    }

    /// Zeroes a named state of calls that ran here, or with a URL, of calls of this host at that target.
    fn clear_state(&self, py: Python<'_>, name: &str, url: Option<&str>) -> PyResult<()> {
        let (session, name) = (self.0.get()?.clone(), name.to_owned());
        let target = url.map(export).transpose()?;
        let target = target.map(|url| url.one_target().map_err(Failure::usage)).transpose()?;
        interruptible(py, move || {
            Ok(match target {
                None => session.clear_state(&name, 0..u64::MAX),
                Some(target) => session.clear_state_at(&target, &name, 0..u64::MAX),
            }?)
        })
    }

    /// What it counts, as OpenMetrics text.
    fn metrics(&self) -> PyResult<String> {
        Ok(self.0.get()?.metrics())
    }

    /// Forgets all bytes of files of exports that are kept.
    fn drop_cache(&self, py: Python<'_>) -> PyResult<()> {
        let session = self.0.get()?;
        py.detach(|| session.drop_cache());
        Ok(())
    }

    #[getter]
    fn cached_bytes(&self) -> PyResult<u64> {
        Ok(self.0.get()?.cached_bytes())
    }

    fn save_learnt(&self, py: Python<'_>) -> PyResult<()> {
        let session = self.0.get()?;
        Ok(py.detach(|| session.save_learnt())?)
    }

    /// Which tiers run functions here.
    #[getter]
    fn has_llvm(&self) -> PyResult<bool> {
        Ok(self.0.get()?.engine().code().has_llvm())
    }

    /// Whether this process made it: a forked one has none of its threads.
    #[getter]
    fn is_here(&self) -> bool {
        self.0.is_here()
    }
}

impl Session {
    /// Looks at files; of several servers at those of one that answers.
    fn look<T: Send + 'static>(
        &self,
        py: Python<'_>,
        url: &str,
        look: impl Fn(&diskside::host::function::Files, &[u8]) -> Result<T, diskside::host::function::FunctionError>
        + Send
        + 'static,
    ) -> PyResult<T> {
        let (session, url) = (self.0.get()?.clone(), export(url)?);
        interruptible(py, move || {
            let done = session.look(&url, |files| look(files, &url.path))?;
            Ok(done.map_err(|source| diskside::session::SessionError::Device { name: url.to_string(), source })?)
        })
    }

    fn with_files<T: Send + 'static>(
        &self,
        py: Python<'_>,
        url: &str,
        work: impl FnOnce(&diskside::host::function::Files, &[u8]) -> Result<T, diskside::host::function::FunctionError>
        + Send
        + 'static,
    ) -> PyResult<T> {
        let (session, url) = (self.0.get()?.clone(), export(url)?);
        interruptible(py, move || {
            let files = session.files(&url)?;
            let done = work(&files, &url.path);
            Ok(done.map_err(|source| diskside::session::SessionError::Device { name: url.to_string(), source })?)
        })
    }
}

/// What a path or URL names.
pub(crate) fn location(name: &std::path::Path) -> Result<Location, Failure> {
    Location::try_from(name.as_os_str()).map_err(Failure::usage)
}

fn export(url: &str) -> Result<ExportUrl, Failure> {
    url.parse().map_err(Failure::usage)
}

fn info(of: &FileInfo) -> Info {
    let kind = match of.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        _ => "other",
    };
    let modified = of.modified.0 as f64 + f64::from(of.modified.1) / 1e9;
    (kind, of.len_bytes, modified, of.version, of.permissions)
}
