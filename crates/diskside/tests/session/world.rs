//! A target in this process, and a session.

use diskside::host::ConnectOptions;
use diskside::session::{Policy, RunOptions, Session, SessionOptions, Where};
use diskside::target::config::{ExportSpec, VolumeSpec};
use diskside::target::{Running, Target};
use std::path::Path;
use std::time::Duration;

pub(crate) const NQN: &str = "nqn.2026-11.org.example:session";

pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) dir: tempfile::TempDir,
}

impl Served {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { running: serve(dir.path(), "127.0.0.1:0"), dir }
    }

    pub(crate) fn address(&self) -> String {
        self.running.handle().local_addresses()[0].to_string()
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("diskside://{}/data/{name}", self.address())
    }

    /// A file old enough that its version tells every further change.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::open(path)
            .unwrap()
            .set_modified(std::time::SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        // The time of the change of attributes cannot be set: let it pass.
        std::thread::sleep(Duration::from_millis(60));
    }
}

pub(crate) fn serve(dir: &Path, listen: &str) -> Running {
    let builder = Target::builder().nqn(NQN).listen([listen.parse().unwrap()]);
    let builder =
        builder.export(ExportSpec::new("data", dir).writable()).volume(VolumeSpec::new("disk", "mem:16MiB").writable());
    // On a busy machine a call may take longer than a server usually waits for its end.
    let builder = builder.limits(|limits| limits.stop_ms = 120_000);
    builder.build().unwrap().start().unwrap()
}

pub(crate) fn session(policy: Policy) -> Session {
    let connect = ConnectOptions {
        reconnect_delay_min: Duration::from_millis(10),
        reconnect_delay_max: Duration::from_millis(100),
        ..ConnectOptions::default()
    };
    Session::new(SessionOptions { connect, policy, ..SessionOptions::default() })
}

pub(crate) fn numbers(count: u64, seed: u64) -> Vec<u8> {
    (0..count).flat_map(|n| (n * 7 + seed).to_le_bytes()).collect()
}

pub(crate) fn at(place: Where) -> RunOptions {
    RunOptions { place, ..RunOptions::default() }
}
