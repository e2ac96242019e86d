//! A target in this process, over TCP, and functions for it.

use std::path::Path;
use std::time::{Duration, Instant};

use diskside::session::{File, RunOptions, Session, SessionFunction, SessionOptions, Where};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};

pub(crate) const NQN: &str = "nqn.2026-11.org.example:steer";
/// Longer than any of this takes, on however busy a machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Ends when it is stopped.
pub(crate) const SPIN: &str = "for (volatile __u64 i = 0; i < 1ull << 62; i++) *out = i;\nreturn 8;";

pub(crate) struct World {
    pub(crate) running: Running,
    pub(crate) dir: tempfile::TempDir,
}

impl World {
    /// With two engines, and a file `n` of as many numbers.
    pub(crate) fn new(count: u64) -> Self {
        Self::with_engines(count, 2)
    }

    pub(crate) fn with_engines(count: u64, engines: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("n"), numbers(count)).expect("written");
        Self { running: serve_with(dir.path(), "127.0.0.1:0", engines), dir }
    }

    pub(crate) fn address(&self) -> String {
        self.running.handle().local_addresses()[0].to_string()
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("diskside://{}/data/{name}", self.address())
    }

    pub(crate) fn open(&self, session: &Session) -> File {
        session.open(&self.url("n")).expect("it is there")
    }

    /// A function whose body is `body`.
    pub(crate) fn function(&self, session: &Session, name: &str, body: &str) -> SessionFunction {
        let source = format!(
            "#include \"diskside.h\"\nSEC(\"read/{name}\")\n\
             __s64 {name}(__u64 *out, const __u64 *in, __u64 in_len, const __u64 *args, const struct ds_call *call)\n\
             {{\n{body}\n}}\n"
        );
        let path = self.dir.path().join(format!("{name}.bpf.c"));
        std::fs::write(&path, source).expect("written");
        session.function(&path).expect("it compiles")
    }

    /// Engines that run a call now.
    pub(crate) fn engines_busy(&self, session: &Session) -> u32 {
        let url = format!("nvme-tcp://{}", self.address()).parse().expect("a URL");
        session.compute(&url).expect("functions").statistics().expect("statistics").0.engines_busy.get()
    }

    pub(crate) fn until_busy(&self, session: &Session, engines: u32) {
        until(&format!("{engines} engines run"), || self.engines_busy(session) == engines);
    }
}

pub(crate) fn serve(dir: &Path, listen: &str) -> Running {
    serve_with(dir, listen, 2)
}

fn serve_with(dir: &Path, listen: &str, engines: usize) -> Running {
    let builder = Target::builder().nqn(NQN).listen([listen.parse().expect("an address")]);
    let builder = builder.export(ExportSpec::new("data", dir).writable()).compute(|compute| compute.engines = engines);
    builder.build().expect("a target").start().expect("started")
}

pub(crate) fn session() -> Session {
    Session::new(SessionOptions::default())
}

pub(crate) fn numbers(count: u64) -> Vec<u8> {
    (0..count).flat_map(u64::to_le_bytes).collect()
}

/// Without an end of its own.
pub(crate) fn endless(place: Where) -> RunOptions {
    let mut options = RunOptions { place, ..RunOptions::default() };
    options.limits.budget = Some(u64::MAX);
    options
}

pub(crate) fn at(place: Where) -> RunOptions {
    RunOptions { place, ..RunOptions::default() }
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never was so: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
