//! `diskside cp`.

use super::exports::{refuse_directory, refuse_no_export, refuse_pattern, session};
use super::near::{explain_here, explain_session};
use super::volume::{Connect, host_failure, session_failure};
use super::waiting::Waiting;
use crate::error::Failure;
use crate::output::{self, bytes, rate};
use crate::progress::Progress;
use clap::Args;
use diskside::copy::{
    CopyError, End, FileCopyError, copy, copy_file_in_order, copy_in_order, copy_stream, copy_stream_in_order,
    find_content, verify,
};
use diskside::host::{Url, Volume};
use diskside::io::instance::{InstanceConfig, Instances};
use diskside::io::request::AsyncIo;
use diskside::io::stream::DescriptorStream;
use diskside::io::unanswered::{self, Asked};
use diskside::outfile::{Destination, OutFile};
use diskside::session::{self, FileWriter, LocalBytes, OpenMode, Session, SessionError};
use diskside::wire::file::FileKind;
use diskside::{ExportUrl, Location, LocationError};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Arguments of `cp`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside cp disk.img nvme-tcp://server:4420/nqn.2026-11.io.diskside:server/1 --verify
  diskside cp nvme-tcp://server:4420/nqn.2026-11.io.diskside:server/1 backup.img
  diskside cp report.csv diskside://server/data/reports")]
pub(crate) struct Cp {
    /// A file, a file of an export (diskside://HOST[:PORT]/EXPORT/PATH), a volume (nvme-tcp://HOST[:PORT]/NQN/NSID), or `-` for
    /// standard input
    source: OsString,
    /// The same, or `-` for standard output; in a directory the file keeps its name
    destination: OsString,
    /// Read both again and compare; not of what comes or goes as a stream, such as `-`
    #[arg(long)]
    verify: bool,
    /// Take *, ? and [ in the destination's URL for what they are
    #[arg(long)]
    literal: bool,
    /// Overwrite a volume or a block device that holds something
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The source, open.
enum Source {
    /// So many bytes, read at any position.
    At {
        io: Arc<dyn AsyncIo>,
        len: u64,
        fixed: bool,
        /// The file, if its URL names several servers.
        copies: Option<session::File>,
    },
    /// Bytes as they come.
    Stream(DescriptorStream),
}

/// The destination, open.
enum Target {
    /// A volume or a block device, overwritten from its start.
    Fixed { io: Arc<dyn AsyncIo>, len: u64 },
    /// A file here, and how it is written anywhere.
    File { io: Arc<dyn AsyncIo>, file: OutFile },
    /// A file of an export, removed when it is dropped.
    Export { io: Arc<dyn AsyncIo>, writer: Box<FileWriter> },
    /// What takes bytes as they come.
    Stream { file: OutFile, is_stdout: bool },
}

impl Cp {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let started = Instant::now();
        let session = session(&self.connect)?;
        let ends = [&self.source, &self.destination].into_iter().filter_map(|end| Location::try_from(&**end).ok());
        let _waiting = Waiting::watch(&session, ends);
        let source = self.open_source(&session)?;
        let mut target = self.open_target(&session)?;
        self.refuse_loss(&source, &target)?;
        let is_stdout = matches!(target, Target::Stream { is_stdout: true, .. });
        let steps = if self.verify { 2 } else { 1 };
        let progress = Progress::start(source.len().unwrap_or(0) * steps, is_stdout);
        let result = match &source {
            Source::At { copies: Some(file), .. } => self.copy_again(file, &source, &mut target, &progress),
            _ => self.copy(&source, &mut target, &progress),
        };
        progress.finish();
        let copied = result?;
        target.publish()?;
        self.report(copied, started.elapsed(), is_stdout)
    }

    fn report(&self, copied: u64, took: Duration, is_stdout: bool) -> Result<(), Failure> {
        if self.json {
            return Ok(output::print_json(json!({
                "source": self.source.to_string_lossy(), "destination": self.destination.to_string_lossy(), "bytes": copied,
                "verified": self.verify, "total_ns": took.as_nanos() as u64,
            }))?);
        }
        let verified = if self.verify { ", verified" } else { "" };
        let told = format!("{} copied{verified}, {}", bytes(copied), rate(copied, took));
        if is_stdout {
            output::say(told);
            return Ok(());
        }
        Ok(writeln!(output::stdout(), "{told}")?)
    }

    fn copy(&self, source: &Source, target: &mut Target, progress: &Progress) -> Result<u64, Failure> {
        let failed = |error| self.failed(error, false);
        if let Target::Stream { file, is_stdout } = target {
            let copied = match source {
                Source::At { .. } => copy_in_order(&source.end(), file, progress.done()),
                Source::Stream(stream) => copy_stream_in_order(stream, file, progress.done()),
            };
            return copied.map_err(|error| self.failed(error, *is_stdout));
        }
        let to = target.end();
        if let Source::Stream(stream) = source {
            return copy_stream(stream, &to, progress.done()).map_err(|error| failed(target.in_its_words(error)));
        }
        let from = source.end();
        let failed = |error| failed(target.in_its_words(error));
        let copied = copy(&from, &to, progress.done()).map_err(failed)?;
        if self.verify {
            verify(&from, &to, progress.done()).map_err(failed)?;
        }
        Ok(copied)
    }

    /// The same, from the beginning at another server when the one that is read vanishes.
    fn copy_again(
        &self,
        file: &session::File,
        source: &Source,
        target: &mut Target,
        progress: &Progress,
    ) -> Result<u64, Failure> {
        if let Target::Stream { file: out, is_stdout } = target {
            let is_stdout = *is_stdout;
            return copy_file_in_order(file, out, progress.done()).map_err(|error| match error {
                FileCopyError::Session(error) => session_failure(error),
                FileCopyError::Copy(error) => self.failed(error, is_stdout),
            });
        }
        let first_len = source.len();
        let copied = file.with_version(|io, len| {
            if Some(len) != first_len {
                let told = format!("{}: the copy at another server has another length", self.source.display());
                return Err(Failure::Environment(told));
            }
            progress.done().store(0, Ordering::Relaxed);
            let source = Source::At { io: Arc::clone(io), len, fixed: false, copies: None };
            self.copy(&source, target, progress)
        });
        copied.map_err(session_failure)?
    }

    fn failed(&self, error: CopyError, is_stdout: bool) -> Failure {
        match error {
            // The reader of our output has read enough.
            CopyError::Write { error, .. } if is_stdout && error.kind() == ErrorKind::BrokenPipe => {
                Failure::Output(error)
            }
            error => {
                Failure::Environment(format!("{} to {}: {error}", self.source.display(), self.destination.display()))
            }
        }
    }

    /// Why a volume is not overwritten: nothing is lost without somebody's knowledge.
    fn refuse_loss(&self, source: &Source, target: &Target) -> Result<(), Failure> {
        let (false, Target::Fixed { io, len }) = (self.force, target) else { return Ok(()) };
        let end = End { io, len: *len, fixed: true };
        let found = find_content(&end, source.len().unwrap_or(*len));
        let found = found.map_err(|error| Failure::Environment(format!("{}: {error}", self.destination.display())))?;
        match found {
            None => Ok(()),
            Some(content) => Err(Failure::Usage(format!(
                "{} holds {content}, which the copy would overwrite; --force does",
                self.destination.display()
            ))),
        }
    }

    fn open_source(&self, session: &Session) -> Result<Source, Failure> {
        match parse(&self.source)? {
            Location::Local(path) => self.open_local_source(&path),
            location @ Location::Export(_) => {
                self.refuse_directory_of(session, &location)?;
                let file = session
                    .open_as(&location, OpenMode::Read)
                    .map_err(|error| explain_session(session, &location, error))?;
                let (io, len) = file.version_io().map_err(session_failure)?;
                let copies = file.has_copies().then_some(file);
                Ok(Source::At { io, len, fixed: false, copies })
            }
            Location::Volume(url) => {
                let volume = self.connect(&url)?;
                Ok(Source::At { len: volume.len_bytes()?, io: Arc::new(volume), fixed: true, copies: None })
            }
        }
    }

    /// One of an export can be opened, and not read.
    fn refuse_directory_of(&self, session: &Session, location: &Location) -> Result<(), Failure> {
        let Location::Export(url) = location else { return Ok(()) };
        let found = session.look(url, |files| files.stat(&url.path)).map_err(session_failure)?;
        if found.is_ok_and(|info| info.kind == FileKind::Directory) {
            let why = "it is a directory, which has no bytes of its own: name the files in it";
            return Err(session_failure(SessionError::Unsupported { name: url.to_string(), why }));
        }
        Ok(())
    }

    fn open_local_source(&self, path: &Path) -> Result<Source, Failure> {
        let path = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
        let failed = |error: std::io::Error| {
            let failure = cannot_open(&self.source.to_string_lossy(), &error);
            if error.kind() == ErrorKind::NotFound { explain_here(path, failure) } else { failure }
        };
        // A pipe waits for who writes it, and not for a disk.
        let _asked = path.is_file().then(ask_disk);
        match LocalBytes::of(path) {
            Ok(LocalBytes::Stream(_)) if self.verify => {
                Err(Failure::Usage(format!("{}: what can be read only once cannot be verified", self.source.display())))
            }
            Ok(LocalBytes::Stream(stream)) => Ok(Source::Stream(stream)),
            Ok(LocalBytes::At { .. }) => {
                let (io, len) = File::open(path).and_then(by_position).map_err(failed)?;
                Ok(Source::At { io, len, fixed: false, copies: None })
            }
            Err(SessionError::Open { source, .. }) => Err(failed(source)),
            Err(error) => Err(session_failure(error)),
        }
    }

    fn open_target(&self, session: &Session) -> Result<Target, Failure> {
        if self.destination == "-" {
            return self.open_local(Destination::stdout());
        }
        match parse(&self.destination)? {
            Location::Local(path) => {
                let asked = ask_disk();
                let path = if path.is_dir() { path.join(self.name()?) } else { path };
                let found = Destination::find(&path);
                drop(asked);
                self.open_local(found)
            }
            Location::Export(url) => self.open_export(session, url),
            Location::Volume(url) => {
                let volume = self.connect(&url)?;
                if volume.is_read_only() {
                    return Err(Failure::Environment(format!(
                        "{}: the volume is read-only; serve it with `,rw`, and, if hosts have grants, grant it to this one as `rw`",
                        self.destination.display()
                    )));
                }
                Ok(Target::Fixed { len: volume.len_bytes()?, io: Arc::new(volume) })
            }
        }
    }

    fn open_local(&self, destination: std::io::Result<Destination>) -> Result<Target, Failure> {
        let destination = destination.map_err(cannot_write)?;
        let is_unreadable = destination.is_stream() && !destination.is_block_device();
        if self.verify && is_unreadable {
            let told = format!("{}: what takes bytes as they come cannot be verified", self.destination.display());
            return Err(Failure::Usage(told));
        }
        if self.json && destination.is_stdout() {
            return Err(Failure::Usage("the copy and --json would both go to standard output".into()));
        }
        Target::local(destination)
    }

    fn open_export(&self, session: &Session, mut url: ExportUrl) -> Result<Target, Failure> {
        refuse_no_export(&url)?;
        let files = session.files(&url).map_err(session_failure)?;
        if !self.literal {
            refuse_pattern(&files, &url, "--literal writes a file of this very name")?;
        }
        if files.stat(&url.path).is_ok_and(|info| info.kind == FileKind::Directory) {
            url = url.join(self.name()?.as_bytes());
        } else {
            refuse_directory(&self.destination.to_string_lossy())?;
        }
        let writer = FileWriter::create(session, &url).map_err(session_failure)?;
        let io = writer.file().io().map_err(session_failure)?;
        Ok(Target::Export { io, writer: Box::new(writer) })
    }

    fn connect(&self, url: &Url) -> Result<Volume, Failure> {
        Volume::connect(url, &self.connect.options()?).map_err(host_failure)
    }

    /// What the source is called where it is.
    fn name(&self) -> Result<OsString, Failure> {
        let name = match parse(&self.source)? {
            Location::Export(url) => OsStr::from_bytes(url.name()).to_owned(),
            Location::Local(_) | Location::Volume(_) => {
                Path::new(&self.source).file_name().unwrap_or_default().to_owned()
            }
        };
        let has_none = name.is_empty() || name == "-";
        if has_none {
            Err(Failure::Usage("standard input has no name: name the file to write".into()))
        } else {
            Ok(name)
        }
    }
}

impl Source {
    /// Bytes in all, where that is known.
    fn len(&self) -> Option<u64> {
        match self {
            Self::At { len, .. } => Some(*len),
            Self::Stream(_) => None,
        }
    }

    /// How it is read by position.
    fn end(&self) -> End<'_> {
        match self {
            Self::At { io, len, fixed, .. } => End { io: &**io, len: *len, fixed: *fixed },
            Self::Stream(_) => unreachable!("bytes come from there in their order"),
        }
    }
}

impl Target {
    fn local(destination: Destination) -> Result<Self, Failure> {
        if destination.is_block_device() {
            let path = destination.path();
            let shown = path.display().to_string();
            let device = File::options().read(true).write(true).open(path);
            let (io, len) = device.and_then(by_position).map_err(|error| cannot_open(&shown, &error))?;
            return Ok(Self::Fixed { io, len });
        }
        let (is_stream, is_stdout) = (destination.is_stream(), destination.is_stdout());
        // A pipe waits for who reads it.
        let _asked = (!is_stream).then(ask_disk);
        let file = destination.begin().map_err(cannot_write)?;
        if is_stream {
            return Ok(Self::Stream { file, is_stdout });
        }
        let (io, _) = file.file().try_clone().and_then(by_position).map_err(cannot_write)?;
        Ok(Self::File { io, file })
    }

    /// How it is written by position.
    fn end(&self) -> End<'_> {
        match self {
            Self::Fixed { io, len } => End { io, len: *len, fixed: true },
            Self::File { io, .. } | Self::Export { io, .. } => End { io, len: u64::MAX, fixed: false },
            Self::Stream { .. } => unreachable!("bytes go there in their order"),
        }
    }

    /// Why it could not be written, as its server says. The server may have refused a later part of several that were under way: up
    /// to which byte all is written, only the copy knows.
    fn in_its_words(&self, error: CopyError) -> CopyError {
        match (self, error) {
            (Self::Export { writer, .. }, CopyError::Write { offset, error }) => {
                let (kind, told) = (error.kind(), writer.in_words_of_target(error).to_string());
                CopyError::Write { offset, error: std::io::Error::new(kind, without_position(&told)) }
            }
            (_, error) => error,
        }
    }

    /// Gives a new file its name, now that it is whole.
    fn publish(self) -> Result<(), Failure> {
        match self {
            Self::Fixed { .. } => Ok(()),
            Self::File { file, .. } => {
                let _asked = ask_disk();
                file.publish().map_err(cannot_write)
            }
            Self::Stream { file, .. } => file.publish().map_err(cannot_write),
            Self::Export { writer, .. } => writer.publish().map_err(session_failure),
        }
    }
}

/// The reason alone of `write NAME at byte N: REASON`, since the name and a position are told already.
fn without_position(told: &str) -> &str {
    let reason = told.split_once(" at byte ").and_then(|(_, rest)| rest.split_once(": "));
    reason.filter(|(position, _)| position.bytes().all(|byte| byte.is_ascii_digit())).map_or(told, |(_, reason)| reason)
}

fn parse(text: &OsStr) -> Result<Location, Failure> {
    text.try_into().map_err(|error: LocationError| Failure::Usage(error.to_string()))
}

fn cannot_open(name: &str, error: &std::io::Error) -> Failure {
    Failure::Environment(format!("cannot open {name}: {error}"))
}

/// The error names the file.
fn cannot_write(error: std::io::Error) -> Failure {
    Failure::Environment(format!("cannot write {error}"))
}

/// A disk of this machine does not answer until this is dropped.
fn ask_disk() -> Asked {
    unanswered::here().ask(Instant::now())
}

fn by_position(file: File) -> std::io::Result<(Arc<dyn AsyncIo>, u64)> {
    let file = Instances::start(&InstanceConfig::default())?.file(file)?.watched();
    let len = file.len_bytes()?;
    Ok((Arc::new(file), len))
}
