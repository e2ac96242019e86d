//! Two targets in this process, and sessions that know them by the names `one` and `two`, without a socket.
//!
//! They also listen, for other processes.

use crate::chunk;
use crate::input::Input;
use crate::web::Web;
use diskside::ChunkCodec;
use diskside::embedded;
use diskside::host::{ConnectOptions, Url};
use diskside::session::{Policy, Session, SessionOptions};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target, TargetBuilder};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Names that URLs have for the targets.
pub const HOSTS: [&str; 2] = ["one", "two"];

/// How a session finds files of a target.
#[derive(Debug)]
enum Remote {
    /// By URLs of exports, which have the same directory.
    Exports,
    /// By paths of a file system that is on a volume of the target.
    Mounted(PathBuf),
}

/// Targets and sessions.
#[derive(Debug)]
pub struct World {
    dir: tempfile::TempDir,
    /// Where sessions find what is at a target.
    remote: Remote,
    /// By which the targets export the same files as objects, if the program for that is there.
    web: Option<Web>,
    targets: Vec<Running>,
    /// Of inputs, and of inputs as chunks.
    files: Mutex<HashMap<(Input, Option<ChunkCodec>), PathBuf>>,
    /// Told where to run; what it read it keeps.
    pub told: Session,
    /// Chooses, by what it measures.
    pub adaptive: Session,
    /// Chooses as lambda-IO does: every other request is measured on both sides.
    pub alternating: Session,
}

impl World {
    /// New targets, with an empty directory. Both export the same one: a file is at each of them.
    ///
    /// # Panics
    /// When the machine lets no target run.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let web = diskside_objects::program().map(|_| Web::new(dir.path()));
        let is_told = std::env::var_os("DISKSIDE_OBJECTS").is_some_and(|program| !program.is_empty());
        assert!(web.is_some() || !is_told, "the program that DISKSIDE_OBJECTS names is not there");
        let serve = |name: &str| {
            let nqn = format!("nqn.2026-11.org.example:{name}");
            let listen = ["127.0.0.1:0".parse().expect("an address")];
            let builder = Target::builder().nqn(nqn).listen(listen).reactors(1);
            let files = ExportSpec::new("data", dir.path()).writable();
            let exports = [Some(files), web.as_ref().map(|web| ExportSpec::new("web", web.url()))];
            let builder = exports.into_iter().flatten().fold(builder, TargetBuilder::export);
            let builder = builder.compute(|compute| compute.engines = 2);
            builder.build().expect("a target").start().expect("started")
        };
        let targets: Vec<Running> = HOSTS.map(serve).into();
        let session = |policy: Policy| {
            let session = Session::new(SessionOptions { policy, ..SessionOptions::default() });
            for (host, target) in HOSTS.iter().zip(&targets) {
                let connection = embedded::connect(target.handle(), &ConnectOptions::default()).expect("connected");
                session.attach(host, connection).expect("it runs functions");
            }
            session
        };
        let alternating = "lambda-io:n=2,k=1".parse().expect("a policy");
        let [told, adaptive, alternating] = [Policy::Adaptive, Policy::Adaptive, alternating].map(session);
        let remote = Remote::Exports;
        Self { dir, remote, web, targets, files: Mutex::default(), told, adaptive, alternating }
    }

    /// Files in a directory of a file system that is on this volume of this target.
    ///
    /// # Panics
    /// When there is no room for a directory of plain files.
    #[must_use]
    pub fn mounted(target: Running, volume: &Url, directory: &Path) -> Self {
        let session = || {
            let mounted_volumes = vec![volume.clone()];
            Session::new(SessionOptions { mounted_volumes, ..SessionOptions::default() })
        };
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            remote: Remote::Mounted(directory.to_owned()),
            web: None,
            targets: vec![target],
            files: Mutex::default(),
            told: session(),
            adaptive: session(),
            alternating: session(),
        }
    }

    /// Writes files before they are used: what was just written is kept by no session, as it may change again unnoticed.
    pub fn prepare(&self, inputs: &[Input]) {
        inputs.iter().for_each(|input| drop(self.path(input)));
        // The time of the last change of a file cannot be set back: it has to pass.
        std::thread::sleep(Duration::from_millis(60));
    }

    /// The file with an input.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn path(&self, input: &Input) -> PathBuf {
        self.path_as(input, None)
    }

    fn path_as(&self, input: &Input, codec: Option<ChunkCodec>) -> PathBuf {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let number = files.len();
        let make = || {
            let path = self.dir.path().join(format!("n{number}"));
            let bytes = codec.map_or_else(|| input.stored(), |codec| chunk::encoded(codec, &input.bytes()));
            std::fs::write(&path, &bytes).expect("written");
            if let Remote::Mounted(mount) = &self.remote {
                let on_volume = std::fs::File::create(mount.join(format!("n{number}")));
                let written = on_volume.and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
                written.expect("written");
            }
            let before = SystemTime::now() - Duration::from_secs(60);
            std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(before)).expect("set");
            path
        };
        files.entry((*input, codec)).or_insert_with(make).clone()
    }

    /// What a session calls the file with an input at a target.
    #[must_use]
    pub fn url(&self, host: &str, input: &Input) -> String {
        self.url_as(host, input, None)
    }

    /// The same of an input that is a chunk.
    #[must_use]
    pub fn url_as(&self, host: &str, input: &Input, codec: Option<ChunkCodec>) -> String {
        let path = self.path_as(input, codec);
        let name = path.file_name().expect("it has a name").to_string_lossy();
        match &self.remote {
            Remote::Exports => format!("diskside://{host}/data/{name}"),
            Remote::Mounted(mount) => mount.join(&*name).display().to_string(),
        }
    }

    /// Whether files are in exports.
    #[must_use]
    pub fn has_exports(&self) -> bool {
        matches!(self.remote, Remote::Exports)
    }

    /// Whether they are also exported as objects of a store.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.web.is_some()
    }

    /// The directory of the files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The targets.
    #[must_use]
    pub fn targets(&self) -> &[Running] {
        &self.targets
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
