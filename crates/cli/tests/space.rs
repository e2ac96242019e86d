//! Quotas by the commands: what a host is refused of space and files and told, what it gets back, and what its operator sees of all
//! limits.

mod common;

use std::path::{Path, PathBuf};

use common::{Process, diskside, good, json, until};
use rustix::process::Signal;

const ANN: &str = "nqn.2026-11.org.example:ann";
const BOB: &str = "nqn.2026-11.org.example:bob";
const QUOTA: &str = "[[quota]]\nof = ['ann']\nspace = '100KiB'\nfiles = 4\n";

struct World {
    dir: tempfile::TempDir,
    process: Process,
    target: String,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("served")).expect("made");
        write_config(dir.path(), QUOTA);
        let (process, target) = serve(dir.path());
        Self { dir, process, target }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn local(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).expect("written");
        self.path(name).display().to_string()
    }

    fn at(&self, name: &str) -> String {
        format!("{}/data/{name}", self.target)
    }

    fn held(&self, host: &str) -> (u64, u64) {
        let top = json(&["top", &self.target, "--hostnqn", ANN]);
        let held = top["held"].as_array().expect("a list").iter().find(|held| held["host"] == host).cloned();
        let number = |field: &str| held.as_ref().map_or(0, |held| held[field].as_u64().expect("a number"));
        (number("bytes"), number("files"))
    }

    /// What a command of a host says that the quota refuses.
    fn refused(&self, host: &str, args: &[&str]) -> String {
        let (code, out, said) = diskside(&[args, &["--hostnqn", host]].concat());
        assert!(code != 0 && out.is_empty(), "{args:?}: {said}");
        assert!(said.contains("Disk quota exceeded") || said.contains("quota `"), "{args:?}: {said}");
        said
    }
}

fn write_config(dir: &Path, quota: &str) {
    let at = |name: &str| dir.join(name).display().to_string();
    let text = format!(
        "listen = ['127.0.0.1:0']\n[security]\nrequire = 'none'\naudit = '{}'\n[[host]]\nname = 'ann'\nnqn = '{ANN}'\n\
         [[host]]\nname = 'bob'\nnqn = '{BOB}'\n[[export]]\nname = 'data'\npath = '{}'\nrw = true\n\
         [[grant]]\nto = ['*']\nexports = {{ data = 'rw' }}\nfunctions = ['any']\nstatistics = true\n\
         {quota}",
        at("audit.jsonl"),
        at("served"),
    );
    std::fs::write(dir.join("diskside.toml"), text).expect("written");
}

fn serve(dir: &Path) -> (Process, String) {
    let config = dir.join("diskside.toml").display().to_string();
    let (process, line) = Process::start_until(&["serve", "--config", &config, "--user", "root"], "diskside://");
    let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("it says where");
    let target = url.strip_suffix("/data").expect("the export's name").to_owned();
    (process, target)
}

#[test]
fn a_host_holds_as_much_as_its_quota_says_by_every_way_to_write() {
    let world = World::new();
    let local = world.local("local", &[b'x'; 60 << 10]);
    let cp = |name: &str| ["cp".to_owned(), local.clone(), world.at(name)];
    let copy = |host: &str, name: &str| {
        let args = cp(name);
        good(&[&args[0], &args[1], &args[2], "--hostnqn", host])
    };
    copy(ANN, "a");
    let args = cp("b");
    let said = world.refused(ANN, &[&args[0], &args[1], &args[2]]);
    assert!(said.contains("ann may hold 100KiB in export `data` (quota `space`) and holds 61440 bytes, so"), "{said}");
    assert!(said.contains("more are too much; remove some of its files there, or have the quota raised"), "{said}");
    assert!(!world.path("served/b").exists());
    copy(BOB, "b");
    assert_eq!((world.held("ann"), world.held("bob")), ((60 << 10, 1), (60 << 10, 1)));

    // Results of functions, which are part there when it is too much: replacing, appending, and of kernels.
    std::fs::write(world.path("served/lines"), "a line with a word\n".repeat(10_000)).expect("written");
    let (lines, out) = (world.at("lines"), world.at("out"));
    for place in ["device", "host"] {
        world.refused(ANN, &["run", "grep", &lines, "--arg", "pattern=word", "--out", &out, "--where", place]);
        until("it is given back", || world.held("ann") == (60 << 10, 1));
        assert!(!world.path("served/out").exists());
    }
    let kernel = world.at("kernel");
    let filter = ["launch", "ndp_filter", &lines, "--arg", "unit=4096", "--arg", "pattern=word", "--write", &kernel];
    world.refused(ANN, &filter);
    until("what it did not write is given back", || {
        let len = std::fs::metadata(world.path("served/kernel")).map_or(0, |it| it.len());
        let made = u64::from(world.path("served/kernel").exists());
        len <= 40 << 10 && world.held("ann") == ((60 << 10) + len, 1 + made)
    });
    diskside(&["rm", &kernel, "--hostnqn", ANN]);
    assert_eq!(world.held("ann"), (60 << 10, 1));

    // Files.
    for name in ["1", "2", "3"] {
        good(&["mkdir", &world.at(name), "--hostnqn", ANN]);
    }
    let said = world.refused(ANN, &["mkdir", &world.at("4")]);
    assert!(said.contains("ann may have 4 files and directories in export `data` (quota `files`) and has 4"), "{said}");
    good(&["rm", "--dir", &world.at("1"), "--hostnqn", ANN]);
    good(&["mkdir", &world.at("4"), "--hostnqn", ANN]);

    // Who looks sees it.
    let top = good(&["top", &world.target, "--hostnqn", ANN]);
    let row = top.lines().find(|line| line.starts_with("ann ") && line.contains("data")).expect("a row");
    assert_eq!(row.split_whitespace().last(), Some("4"), "{top}");
    let metrics = good(&["metrics", &world.target, "--hostnqn", ANN]);
    for line in [
        "diskside_space_bytes{host=\"ann\",export=\"data\"} 61440",
        "diskside_space_max_bytes{host=\"ann\",export=\"data\"} 102400",
        "diskside_files{host=\"ann\",export=\"data\"} 4",
        "diskside_files_max{host=\"ann\",export=\"data\"} 4",
        "diskside_space_bytes{host=\"bob\",export=\"data\"} 61440",
    ] {
        assert!(metrics.lines().any(|it| it.starts_with(line)), "{line}: {metrics}");
    }
    // It told the limit alone, neither the export nor how much of it the host had.
    until("the audit file tells of it", || {
        let audit = std::fs::read_to_string(world.path("audit.jsonl")).unwrap_or_default();
        let told = "\"reason\":\"space: ann may hold 100KiB in export `data` (quota `space`) and holds 61440 bytes";
        audit.lines().any(|line| line.contains("\"event\":\"quota\"") && line.contains(told))
    });
}

/// An operator saw that a host had been refused something, but not what, nor how much it had of it.
#[test]
fn an_operator_sees_how_much_a_host_has_of_each_of_its_limits() {
    let world = World::new();
    let limits = "connections = 64\nprograms = 4\nstate = '1MiB'\nmemory = '128MiB'\niops = 1000000\n\
                  bytes_per_s = '1TiB'\ncpu_share = 50\n";
    write_config(world.dir.path(), &format!("{QUOTA}{limits}"));
    world.process.signal(Signal::HUP);
    let (small, large) = (world.local("small", &[b'x'; 60 << 10]), world.local("large", &[b'x'; 101 << 10]));
    good(&["cp", &small, &world.at("small"), "--hostnqn", ANN]);
    world.refused(ANN, &["cp", &large, &world.at("large")]);
    good(&["run", "wc", &world.at("small"), "--hostnqn", ANN, "--where", "device"]);
    // Who looks has connections, too: here it is the host itself.
    let mut top = serde_json::Value::Null;
    until("the limits are those of the file, and the call has ended", || {
        top = json(&["top", &world.target, "--hostnqn", ANN]);
        let quotas = top["quotas"].as_array().expect("a list");
        quotas.len() == 9 && quotas.iter().any(|quota| quota["run_us"].as_u64() > Some(0))
    });
    let quota = |name: &str| {
        let quotas = top["quotas"].as_array().expect("a list").iter();
        let mut found = quotas.filter(|quota| quota["host"] == "ann" && quota["quota"] == name);
        let numbers = |quota: &serde_json::Value| {
            ["used", "max", "refusals", "pauses", "paused_us"].map(|field| quota[field].as_u64())
        };
        numbers(found.next().expect("a row"))
    };
    let has = |used: u64, max: u64, refusals: u64| [Some(used), Some(max), Some(refusals), None, None];
    assert_eq!(quota("programs"), has(0, 4, 0));
    assert_eq!(quota("state"), has(0, 1 << 20, 0));
    assert_eq!(quota("files"), has(1, 4, 0));
    assert_eq!(quota("iops"), [None, Some(1_000_000), None, Some(0), Some(0)]);
    assert_eq!(quota("bytes_per_s"), [None, Some(1 << 40), None, Some(0), Some(0)]);
    assert_eq!(quota("cpu_share"), [None, Some(50), None, None, None]);
    let [connections, most, ..] = quota("connections");
    assert!(connections.is_some_and(|connections| (2..64).contains(&connections)) && most == Some(64), "{top}");
    let [space, most, refusals, ..] = quota("space");
    assert!((space, most) == (Some(60 << 10), Some(100 << 10)) && refusals > Some(0), "{top}");
    let [memory, most, ..] = quota("memory");
    assert!(memory < most && most == Some(128 << 20), "{top}");

    let text = good(&["top", &world.target, "--hostnqn", BOB]);
    let row = |start: &[&str]| {
        let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.find(|row| row.starts_with(start)).unwrap_or_else(|| panic!("{start:?}: {text}"))
    };
    assert_eq!(row(&["host", "quota"])[2..], ["used", "at", "most", "refused", "pauses", "paused", "functions", "ran"]);
    assert_eq!(row(&["ann", "files"])[2..], ["1", "4", "0", "-", "-", "-"]);
    assert_eq!(row(&["ann", "iops"])[2..], ["-", "1000000", "-", "0", "0.0", "ms", "-"]);
    assert_eq!(row(&["ann", "bytes_per_s"])[2..], ["-", "1.0", "TiB", "-", "0", "0.0", "ms", "-"]);
    assert_eq!(row(&["ann", "space"])[2..7], ["60.0", "KiB", "100.0", "KiB", &refusals.unwrap_or(0).to_string()]);
    let metrics = good(&["metrics", &world.target, "--hostnqn", BOB]);
    let value = |name: &str, quota: &str| {
        let is_it =
            |line: &&str| line.starts_with(&format!("{name}{{host=\"ann\",")) && line.contains(&format!("\"{quota}\""));
        metrics.lines().find(is_it).and_then(|line| line.split(' ').next_back()).unwrap_or_default()
    };
    assert_eq!(value("diskside_quota_used", "space"), "61440.0", "{metrics}");
    assert_eq!(value("diskside_quota_max", "connections"), "64.0", "{metrics}");
    assert_eq!(value("diskside_quota_pauses_total", "iops"), "0", "{metrics}");
}

#[test]
fn quotas_change_while_it_serves_and_what_hosts_hold_outlives_a_server() {
    let mut world = World::new();
    let local = world.local("local", &[b'x'; 60 << 10]);
    let copy = |world: &World, name: &str| diskside(&["cp", &local, &world.at(name), "--hostnqn", ANN]).0;
    assert_eq!((copy(&world, "a"), copy(&world, "b") == 0), (0, false));
    world.process.kill();
    let (process, target) = serve(world.dir.path());
    (world.process, world.target) = (process, target);
    assert_eq!(world.held("ann"), (60 << 10, 1));
    assert_ne!(copy(&world, "b"), 0);
    write_config(world.dir.path(), "[[quota]]\nof = ['ann']\nspace = '1MiB'\n");
    world.process.signal(Signal::HUP);
    until("it may have more", || copy(&world, "b") == 0);
    // A host that has more than it may have now keeps it, and gets no more.
    write_config(world.dir.path(), QUOTA);
    world.process.signal(Signal::HUP);
    until("it may have less", || copy(&world, "c") != 0);
    // The refusal may have come in time for a last one.
    let _ = diskside(&["rm", &world.at("c"), "--hostnqn", ANN]);
    assert_eq!(world.held("ann"), (120 << 10, 2));
    assert_eq!(good(&["cat", &world.at("a"), "--hostnqn", ANN]).len(), 60 << 10);
    // Files that the operator removes are noticed when the configuration is read again.
    std::fs::remove_file(world.path("served/a")).expect("removed");
    world.process.signal(Signal::HUP);
    until("it is counted anew", || world.held("ann") == (60 << 10, 1));
}

#[test]
fn what_is_no_quota_of_space_is_refused_with_its_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(dir.path().join("served")).expect("made");
    let config = dir.path().join("diskside.toml").display().to_string();
    for (quota, hint) in [
        ("space = '-1'", "`-1` is not a size"),
        ("space = -1", "a size: a number of bytes"),
        ("space = '99999999TiB'", "is more than 2^64 bytes"),
        ("space = 0", "space: 0 lets a host write nothing; a [[grant]] says that better"),
        ("files = 0", "files: 0 lets a host write nothing"),
        ("files = -5", "-5"),
        ("files = 99999999999999999999", "99999999999999999999"),
        ("files = 1.5", "1.5"),
        ("spaces = 1", "unknown field `spaces`"),
    ] {
        write_config(dir.path(), &format!("[[quota]]\nof = ['ann']\n{quota}\n"));
        for command in [&["check-config", &config][..], &["serve", "--config", &config, "--print-config"]] {
            let (code, _, said) = diskside(command);
            assert!(code == 2 && said.contains(hint), "{quota}: {code}: {said}");
        }
    }
    write_config(dir.path(), QUOTA);
    good(&["check-config", &config]);
    let printed = good(&["serve", "--config", &config, "--print-config"]);
    assert!(printed.contains("space = \"100KiB\"") && printed.contains("files = 4"), "{printed}");
    let overlapping = format!("{QUOTA}[[export]]\nname = 'part'\npath = '{}'\n", dir.path().join("served").display());
    write_config(dir.path(), &overlapping);
    let (code, _, said) = diskside(&["check-config", &config]);
    let want = "export `part`: it has files in common with export `data`, so quotas of space and files cannot be kept";
    assert!(code == 2 && said.contains(want), "{code}: {said}");
}
