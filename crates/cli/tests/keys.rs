//! `diskside key`, from the laptop to the server and back; and no key in anything that is printed.

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Process, command, fed, said};

/// Exit code, standard output, standard error, as a host with the key of this file.
fn with_key(key: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command(args).env("DISKSIDE_KEY", key).output().expect("diskside runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ended by itself"), text(&output.stdout), text(&output.stderr))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Makes a key; the line for the operator.
fn new_key(file: &Path, more: &[&str]) -> String {
    let (code, line, said) = with_key(file, &[&["key", "new"], more].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(path(file)), "{said}");
    assert_eq!(line.lines().count(), 1);
    line
}

fn allow(config: &Path, name: &str, line: &str) -> (i32, String, String) {
    let output = fed(&["key", "allow", "--name", name, "--config", path(config)], line.as_bytes());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().expect("it ended by itself"), text, said(&output))
}

/// A server of a directory, with a configuration; everything that it logs, and where it is.
struct Server {
    process: Process,
    url: String,
}

impl Server {
    fn start(config: &Path, directory: &Path) -> Self {
        let export = format!("data={}", directory.display());
        let args = ["serve", "--listen", "127.0.0.1:0", "--config", path(config), "--export", &export];
        let mut serve = Command::new(env!("CARGO_BIN_EXE_diskside"));
        serve.args(args).env("DISKSIDE_LLVM", "").env("DISKSIDE_LOG", "trace");
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("diskside runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains("diskside://")).expect("it serves");
        let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("it says where");
        Self { url: url.to_owned(), process: Process(child) }
    }

    /// What it logged, once it has ended.
    fn log(mut self) -> String {
        self.process.kill();
        let mut log = String::new();
        self.process.0.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
        log
    }
}

/// Keys as text, without their form; and what would show them in another one.
fn secrets(lines: &[&str]) -> Vec<String> {
    let words = lines.iter().flat_map(|line| line.split_whitespace()).filter(|word| word.starts_with("DHHC-1:"));
    words.map(|word| word[10..40].to_owned()).collect()
}

#[test]
fn a_laptop_gets_in_by_three_commands() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let (key, config, data) = (file("key"), file("server/diskside.toml"), file("data"));
    std::fs::create_dir_all(file("server")).expect("made");
    std::fs::create_dir(&data).expect("made");
    std::fs::write(data.join("f"), b"one\n").expect("written");

    std::fs::write(&config, "[security]\naudit = \"audit.jsonl\"\n").expect("written");
    let line = new_key(&key, &["--mutual"]);
    assert_eq!(std::fs::metadata(&key).expect("it is there").mode() & 0o7777, 0o600);
    let (code, out, error) = allow(&config, "ann", &line);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("ann may connect") && out.contains("diskside serve --config"), "{out}");
    assert_eq!(std::fs::metadata(file("server/keys/ann")).expect("it is there").mode() & 0o7777, 0o600);
    let server = Server::start(&config, &data);
    let target = server.url.strip_suffix("/data").expect("the export");
    let url = format!("{}/f", server.url);
    assert_eq!(with_key(&key, &["cat", &url]), (0, "one\n".into(), String::new()));
    assert_eq!(with_key(&key, &["run", "wc", &url]).0, 0);

    // Others do not get in, and the error says what to do.
    let (code, out, error) = with_key(Path::new("none"), &["cat", &url]);
    assert_eq!((code, out.as_str()), (4, ""), "{error}");
    let stranger = file("stranger");
    let other = new_key(&stranger, &[]);
    assert_eq!(with_key(&stranger, &["cat", &url]).0, 4);
    let nqn = line.split_whitespace().next().expect("a name");
    let thief = file("thief");
    let stolen = new_key(&thief, &["--nqn", nqn]);
    let (code, _, error) = with_key(&thief, &["cat", &url]);
    assert!(code == 4 && error.contains("the keys do not fit"), "{error}");

    // Another host joins while it serves.
    assert_eq!(allow(&config, "bob", &other).0, 0);
    server.process.signal(rustix::process::Signal::HUP);
    common::until("the new host gets in", || with_key(&stranger, &["cat", &url]).0 == 0);

    // What is printed and logged has no key in it.
    let secrets = secrets(&[&line, &other, &stolen]);
    assert_eq!(secrets.len(), 4);
    let explained = with_key(
        &key,
        &["key", "explain", &format!("{}/nqn.2026-11.org.example:s", target.replace("diskside", "nvme-tcp"))],
    );
    assert!(explained.1.contains("--dhchap-ctrl-secret") && explained.1.contains(nqn), "{explained:?}");
    let printed = with_key(&key, &["serve", "--config", path(&config), "--print-config"]);
    assert!(printed.1.contains("require = \"auth\"") && printed.1.contains("file:/"), "{printed:?}");
    let metrics = with_key(&key, &["metrics", target]);
    assert!(metrics.0 == 0 && metrics.1.contains("diskside_up"), "{metrics:?}");
    let audited = || std::fs::read_to_string(file("server/audit.jsonl")).expect("text");
    for told in ["\"connect\"", "\"connect.refused\"", "\"auth.fail\"", "\"reload\"", "\"principal\":\"ann\""] {
        common::until(told, || audited().contains(told));
    }
    let log = server.log();
    assert!(log.contains("did not authenticate"), "{log}");
    assert!(log.contains(nqn), "a host is named");
    let written = std::fs::read_to_string(&config).expect("text");
    for (what, text) in [
        ("key explain", format!("{explained:?}")),
        ("--print-config", format!("{printed:?}")),
        ("metrics", format!("{metrics:?}")),
        ("the log", log),
        ("the audit file", audited()),
        ("an error", error),
        ("the configuration", written),
        ("key allow", out),
    ] {
        let found = secrets.iter().find(|secret| text.contains(secret.as_str()));
        assert_eq!(found, None, "{what} has a key in it");
    }
}

#[test]
fn a_key_is_made_once_and_shown_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let key = directory.path().join("a/key");
    let line = new_key(&key, &[]);
    assert_eq!(with_key(&key, &["key", "show"]), (0, line, String::new()));
    let (code, out, error) = with_key(&key, &["key", "new"]);
    assert_eq!((code, out.as_str()), (4, ""));
    assert!(error.contains("it exists"), "{error}");
    let (code, _, error) = with_key(&directory.path().join("nowhere"), &["key", "show"]);
    assert!(code == 4 && error.contains("No such file"), "{error}");
    let (code, _, error) = with_key(&key, &["key", "new", "--nqn", "iqn.a", "--file", "/dev/null/none"]);
    assert!(code == 2 && error.contains("an NQN starts with"), "{error}");
}

#[test]
fn what_people_wrote_beside_it_stays_and_a_second_key_joins_the_first() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (config, key) = (directory.path().join("d.toml"), directory.path().join("key"));
    std::fs::write(&config, "# ours\nlisten = [\"127.0.0.1:4420\"] # here\n\n[limits]\nqueues = 4\n").expect("written");
    let line = new_key(&key, &[]);
    assert_eq!(allow(&config, "ann", &line).0, 0);
    let nqn = line.split_whitespace().next().expect("a name");
    let renewed = new_key(&directory.path().join("renewed"), &["--nqn", nqn]);
    assert_eq!(allow(&config, "ann", &renewed).0, 0);
    let text = std::fs::read_to_string(&config).expect("text");
    assert!(text.starts_with("# ours\nlisten = [\"127.0.0.1:4420\"] # here\n"), "{text}");
    assert!(text.contains("dhchap_keys = [\"file:keys/ann\", \"file:keys/ann.2\"]"), "{text}");

    // The same line once more, as a script gives it that runs again, filled the list with copies of one key.
    let (code, out, _) = allow(&config, "ann", &renewed);
    assert!(code == 0 && out.contains("with this key already; nothing was changed"), "{out}");
    let rotated = fed(&["key", "rotate", "--name", "ann", "--config", path(&config)], renewed.as_bytes());
    assert!(rotated.status.code() == Some(2) && said(&rotated).contains("makes a new one"), "{}", said(&rotated));

    // Another host of this name is another; and nothing is left behind.
    let other = new_key(&directory.path().join("other"), &[]);
    let (code, _, error) = allow(&config, "ann", &other);
    assert!(code == 2 && error.contains("choose another name"), "{error}");
    for (name, line, want) in [
        ("../ann", line.as_str(), "is not a name for a host"),
        ("bob", "", "not the line that `diskside key new` prints"),
        ("bob", "nqn.2026-01.test:a DHHC-1:01:AAAA:", "the key has"),
        ("bob", line.as_str(), "another host has the NQN"),
    ] {
        let (code, out, error) = allow(&config, name, line);
        assert!(code == 2 && out.is_empty() && error.contains(want), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&config).expect("text"), text);
    let mut keys: Vec<_> = std::fs::read_dir(directory.path().join("keys")).expect("there").collect();
    assert_eq!(keys.drain(..).count(), 2);
}

/// A server began with a configuration that everybody on the machine could write, and so let himself in by.
#[test]
fn a_configuration_that_everybody_may_write_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("d.toml");
    std::fs::write(&config, "listen = [\"127.0.0.1:0\"]\n").expect("written");
    let check = |mode| {
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(mode)).expect("changed");
        with_key(&directory.path().join("none"), &["check-config", path(&config)])
    };
    let (code, _, error) = check(0o646);
    assert!(code == 2 && error.contains("its mode is 0646") && error.contains("`chmod o-w`"), "{code}: {error}");
    let (code, _, error) = check(0o664);
    assert_eq!(code, 0, "{error}");
}

/// The link became a file of its own, and the file that it led to, which others kept, had nothing of the new host.
#[test]
fn a_configuration_and_a_key_may_be_behind_links() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("real.toml"), "# kept\n").expect("written");
    std::fs::write(at("config.toml.new"), "mine").expect("written");
    std::os::unix::fs::symlink("real.toml", at("config.toml")).expect("linked");
    let line = new_key(&at("real-key"), &[]);
    let (code, _, said) = allow(&at("config.toml"), "ann", &line);
    assert_eq!(code, 0, "{said}");
    let kept = std::fs::read_to_string(at("real.toml")).expect("there");
    assert!(kept.contains("# kept\n") && kept.contains("name = \"ann\""), "{kept}");
    assert!(at("config.toml").is_symlink());
    assert_eq!(std::fs::read_to_string(at("config.toml.new")).expect("there"), "mine");

    std::os::unix::fs::symlink("real-key", at("key")).expect("linked");
    let old = std::fs::read_to_string(at("real-key")).expect("there");
    for args in [&["key", "rotate"][..], &["key", "rotate", "--finish"]] {
        let (code, _, said) = with_key(&at("key"), args);
        assert_eq!(code, 0, "{said}");
    }
    assert!(at("key").is_symlink() && std::fs::read_to_string(at("real-key")).expect("there") != old);
    assert_eq!(std::fs::metadata(at("real-key")).expect("there").mode() & 0o777, 0o600);
}
