//! `diskside invite` and `diskside join`, and a key that is changed for another one.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Process, command, said};
use diskside::target::config::Moment;

/// A server with a configuration, and a host with files of its own.
struct Place {
    directory: tempfile::TempDir,
    process: Process,
    address: String,
}

impl Place {
    /// Serves two directories; `more` is in the configuration, too.
    fn new(more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("server")).expect("made");
        let mut config = format!("nqn = \"nqn.2026-11.test:server\"\n{more}\n");
        for (name, rw) in [("logs", true), ("out", true)] {
            std::fs::create_dir(at(name)).expect("made");
            std::fs::write(at(name).join("f"), b"one\n").expect("written");
            config += &format!("[[export]]\nname = \"{name}\"\npath = \"{}\"\nrw = {rw}\n", at(name).display());
        }
        std::fs::write(at("server/diskside.toml"), config).expect("written");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_diskside"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(at("server/diskside.toml"));
        let mut child = serve.env("DISKSIDE_LLVM", "").stdout(Stdio::piped()).spawn().expect("diskside runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains("diskside://")).expect("it serves");
        let url = line.split_once("diskside://").expect("it says where").1;
        let address = url.split('/').next().expect("an address").to_owned();
        Self { directory, process: Process(child), address }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("diskside://{}/{path}", self.address)
    }

    /// A command of the host, whose files are in `home`, with these bytes at its standard input.
    fn host(&self, home: &str, args: &[&str], input: &str) -> Output {
        let mut host = command(args);
        host.env("XDG_CONFIG_HOME", self.at(home)).env_remove("DISKSIDE_KEY").stdin(Stdio::piped());
        run(&mut host, input)
    }

    /// A command of the server's operator.
    fn operator(&self, args: &[&str], input: &str) -> Output {
        let mut operator = command(args);
        operator.arg("--config").arg(self.at("server/diskside.toml")).stdin(Stdio::piped());
        run(&mut operator, input)
    }

    fn invite(&self, args: &[&str]) -> String {
        let output = self.operator(&[&["invite", "--at", &self.address], args].concat(), "");
        assert!(output.status.success(), "{}", said(&output));
        assert!(!said(&output).contains("diskside-invitation"), "what goes to a log is no secret");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Has the server read its hosts again, and waits until it is so.
    fn reload(&self, what: &str, is_so: impl FnMut() -> bool) {
        self.process.signal(rustix::process::Signal::HUP);
        common::until(what, is_so);
    }

    fn config(&self) -> String {
        std::fs::read_to_string(self.at("server/diskside.toml")).expect("text")
    }

    fn kept(&self, home: &str) -> PathBuf {
        self.at(home).join("diskside/servers").join(&self.address)
    }
}

fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command.spawn().expect("diskside runs");
    // Who needs no more of it closes the pipe.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it is ours")
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").mode() & 0o7777
}

fn fails(output: &Output, code: i32, want: &str) {
    assert!(output.status.code() == Some(code) && said(output).contains(want), "{output:?}");
}

#[test]
fn an_invited_host_joins_and_may_do_what_was_granted() {
    let place = Place::new("");
    let text = place.invite(&["--name", "ann", "--read", "logs", "--write", "out", "--function", "shipped:wc"]);
    assert_eq!(text.lines().count(), 1);
    let (logs, out) = (place.url("logs/f"), place.url("out/f"));

    // Before the server knows it, the key is kept, and it is said what to try.
    fails(&place.host("ann", &["join"], &text), 4, "the key is kept: try again with diskside ls diskside://");
    assert_eq!(mode(&place.kept("ann")), 0o600);
    place.reload("the invited host gets in", || place.host("ann", &["join"], &text).status.success());
    let joined = place.host("ann", &["join"], &text);
    let told = String::from_utf8_lossy(&joined.stdout).into_owned();
    let access = |name: &str| told.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{told}"));
    assert!(access("/logs").contains("read") && !access("/logs").contains("write"), "{told}");
    assert!(access("/out").contains("read, write"), "{told}");
    assert!(told.contains("functions of the server: 1 "), "{told}");

    // From now on the key is found for this server, and nothing more than that is allowed.
    assert_eq!(place.host("ann", &["cat", &logs], "").stdout, b"one\n");
    assert!(place.host("ann", &["run", "wc", &logs], "").status.success());
    assert!(
        !place
            .host("ann", &["run", "--where", "device", "grep_count", "--args", "pattern=o", &logs], "")
            .status
            .success()
    );
    assert!(place.host("ann", &["rm", &out], "").status.success());
    fails(&place.host("ann", &["rm", &logs], ""), 4, "");
    fails(&place.host("stranger", &["cat", &logs], ""), 4, "");
    // Linux uses the same key, of which no file has to be named.
    let explained =
        place.host("ann", &["key", "explain", &format!("nvme-tcp://{}/nqn.2026-11.test:server", place.address)], "");
    let kept = place.kept("ann").display().to_string();
    assert!(String::from_utf8_lossy(&explained.stdout).contains(&kept), "{explained:?}");

    // No secret is in what is printed or written beside.
    let secret = &text.trim()[60..];
    for (what, text) in [("join", format!("{joined:?}")), ("the configuration", place.config())] {
        assert!(!text.contains(secret) && !text.contains("NVMeTLSkey"), "{what}");
    }
}

/// A host that was invited to read could pull whole files, and ran nothing at the server: nobody had thought of
/// `--function`.
#[test]
fn who_may_read_may_run_the_shipped_functions_at_the_server() {
    let place = Place::new("");
    for (name, more, runs) in [("ann", &[][..], true), ("bob", &["--no-functions"][..], false)] {
        let text = place.invite(&[&["--name", name, "--read", "logs"], more].concat());
        place.reload("the invited host gets in", || place.host(name, &["join"], &text).status.success());
        let run = place.host(name, &["run", "wc", "--where", "device", &place.url("logs/f")], "");
        assert_eq!(run.status.success(), runs, "{run:?}");
    }
    assert_eq!(place.config().matches("functions = [\"shipped:*\"]").count(), 1, "{}", place.config());
}

#[test]
fn an_invitation_stays_off_the_command_line_and_replaces_no_key() {
    let place = Place::new("");
    let file = place.at("ann.invitation");
    let written = ["--name", "ann", "--out", file.to_str().expect("text")];
    assert_eq!(place.invite(&written), "", "it is in the file");
    assert_eq!(mode(&file), 0o600);
    let text = std::fs::read_to_string(&file).expect("text");
    let from = ["join", "--from", file.to_str().expect("text"), "--timeout-ms", "500"];

    fails(&place.host("home", &["join", text.trim()], ""), 2, "unexpected argument");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("set");
    fails(&place.host("home", &from, ""), 4, "its mode is 0644");
    assert!(!place.kept("home").exists());
    fails(&place.host("home", &["join"], &text[..text.len() - 9]), 2, "damaged");
    fails(&place.host("home", &["join"], "hello\n"), 2, "not what `diskside invite` prints");

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
    place.reload("the host gets in", || place.host("home", &from, "").status.success());
    let kept = std::fs::read(place.kept("home")).expect("it is there");
    let other = place.invite(&["--name", "bob"]);
    fails(&place.host("home", &["join"], &other), 2, "--force replaces it");
    assert_eq!(std::fs::read(place.kept("home")).expect("it is there"), kept);
    place.reload("the other gets in", || place.host("home", &["join", "--force"], &other).status.success());
    assert_ne!(std::fs::read(place.kept("home")).expect("it is there"), kept);
    assert_eq!(mode(&place.kept("home")), 0o600);

    // What cannot be invited changes nothing.
    let before = place.config();
    for (args, want) in [
        (&["--name", "ann"][..], "is known already"),
        (&["--name", "eve", "--read", "nothing"], "no [[export]] and no [[volume]]"),
        (&["--name", "eve", "--until", "1999-01-01"], "is over"),
        (&["--name", "eve", "--until", "soon"], "is not a moment"),
        (&["--name", "eve", "--function", "everything"], "everything"),
    ] {
        fails(&place.operator(&[&["invite", "--at", "h"], args].concat(), ""), 2, want);
    }
    fails(&place.operator(&["invite", "--name", "eve"], ""), 2, "--at HOST[:PORT]");
    fails(&place.operator(&["invite", "--name", "eve", "--at", "a/b"], ""), 2, "a name or an address");
    assert_eq!(place.config(), before);
}

/// A configuration for others to reach it had no host yet, and was refused before it could get its first.
#[test]
fn the_first_host_of_a_server_that_others_reach_is_invited() {
    let place = Place::new("");
    std::fs::write(place.at("server/diskside.toml"), "listen = [\"0.0.0.0:4420\"]\n").expect("written");
    let output = place.operator(&["invite", "--name", "ann", "--at", "server.example"], "");
    assert!(output.status.success() && said(&output).contains("it is the first host"), "{}", said(&output));
    let output = place.operator(&["invite", "--name", "bob", "--at", "server.example"], "");
    assert!(output.status.success() && !said(&output).contains("it is the first host"), "{}", said(&output));
}

#[test]
fn a_key_is_rotated_and_the_old_one_ends() {
    let place = Place::new("");
    let text = place.invite(&["--name", "ann"]);
    place.reload("ann gets in", || place.host("ann", &["join"], &text).status.success());
    let (logs, kept) = (place.url("logs/f"), place.kept("ann"));
    let reads = || place.host("ann", &["cat", &logs], "").stdout == b"one\n";
    let with = |key: &Path| {
        let output = command(&["cat", &logs]).env("DISKSIDE_KEY", key).output().expect("diskside runs");
        output.status.success()
    };

    // At the host: the new key is beside the old one, which stays valid.
    let server = ["--server", &place.address];
    fails(&place.host("ann", &[&["key", "rotate", "--finish"], &server[..]].concat(), ""), 4, "there is no new key");
    let begun = place.host("ann", &[&["key", "rotate"], &server[..]].concat(), "");
    assert!(begun.status.success(), "{}", said(&begun));
    let line = String::from_utf8(begun.stdout).expect("text");
    let next = kept.with_added_extension("next");
    assert!(mode(&next) == 0o600 && reads());
    fails(&place.host("ann", &[&["key", "rotate"], &server[..]].concat(), ""), 4, "a new key is there already");
    // It was used at once, and the host was locked out.
    let early = place.host("ann", &[&["key", "rotate", "--finish"], &server[..]].concat(), "");
    fails(&early, 4, "does not let in who has the new key, and the old one stays");
    assert!(next.exists() && reads());

    // At the server: both are taken.
    fails(&place.operator(&["key", "rotate", "--name", "bob"], &line), 2, "no host is called `bob`");
    let added = place.operator(&["key", "rotate", "--name", "ann", "--old-until", "7d"], &line);
    assert!(added.status.success(), "{}", said(&added));
    assert!(place.config().contains("{ file = \"keys/ann.tls\", until = \"20"), "{}", place.config());
    place.reload("the new key is taken", || with(&next));
    let old = place.at("old");
    std::fs::copy(&kept, &old).expect("copied");
    assert!(reads() && with(&old));
    let printed = command(&["serve", "--print-config", "--config"]).arg(place.at("server/diskside.toml")).output();
    let printed = String::from_utf8(printed.expect("diskside runs").stdout).expect("text");
    assert!(printed.contains("until = \"20") && !printed.contains("NVMeTLSkey"), "{printed}");

    // The host uses the new one, and the operator takes the old one away.
    let finished = place.host("ann", &[&["key", "rotate", "--finish"], &server[..]].concat(), "");
    assert!(finished.status.success(), "{}", said(&finished));
    assert!(!next.exists() && reads());
    assert!(place.operator(&["key", "rotate", "--name", "ann", "--finish"], "").status.success());
    assert!(place.config().contains("tls_keys = [\"file:keys/ann.tls.2\"]"), "{}", place.config());
    assert!(!place.at("server/keys/ann.tls").exists());
    place.reload("the old key is refused", || !with(&old));
    assert!(reads());
    fails(&place.operator(&["key", "rotate", "--name", "ann", "--finish"], ""), 2, "has one key");
}

/// Nobody has to be there when it ends, and a host whose only key has ended is not one without a key, whose name would do. The
/// audit said that its identity was unknown, or its key another, so the operator looked for a mistake.
#[test]
fn a_key_ends_by_itself_while_the_server_serves() {
    for kind in [&[][..], &["--no-tls"]] {
        let place = Place::new("[security]\naudit = \"audit.jsonl\"");
        let text = place.invite(&[&["--name", "ann"], kind].concat());
        place.reload("ann gets in", || place.host("ann", &["join"], &text).status.success());
        let logs = place.url("logs/f");
        let until = Moment::after(Duration::from_secs(2)).to_string();
        let list = if kind.is_empty() { "ann.tls" } else { "ann" };
        let ending = format!("{{ file = \"keys/{list}\", until = \"{until}\" }}");
        let config = place.config().replace(&format!("\"file:keys/{list}\""), &ending);
        assert!(config.contains(&until));
        std::fs::write(place.at("server/diskside.toml"), config).expect("written");
        place.process.signal(rustix::process::Signal::HUP);
        common::until("the key has ended", || !place.host("ann", &["cat", &logs], "").status.success());
        let key = std::fs::read_to_string(place.kept("ann")).expect("text");
        let nqn = key.lines().find_map(|line| line.strip_prefix("nqn ")).expect("a name").to_owned();
        fails(&place.host("ann", &["cat", "--key", "none", "--hostnqn", &nqn, &logs], ""), 4, "");
        let audited = || std::fs::read_to_string(place.at("server/audit.jsonl")).unwrap_or_default();
        let told = if kind.is_empty() { format!("ended at {until}") } else { "have ended".to_owned() };
        common::until(&told, || audited().contains(&told));
    }
}

/// `key allow` took no rights: a host whose line came from a laptop was let in, and got nothing until somebody wrote a grant.
#[test]
fn a_host_is_allowed_with_rights_and_an_end_as_one_is_invited() {
    let place = Place::new("");
    let introduced = place.host("ann", &["key", "new", "--tls"], "");
    let line = String::from_utf8(introduced.stdout).expect("text");
    let allow = |more: &[&str]| place.operator(&[&["key", "allow", "--name", "ann"], more].concat(), &line);
    fails(&allow(&["--read", "nothing"]), 2, "has no [[export]] and no [[volume]] of this name");
    assert!(!place.config().contains("[[host]]"), "a mistake changes nothing");
    let allowed = allow(&["--read", "logs", "--until", "7d"]);
    assert!(allowed.status.success(), "{allowed:?}");
    assert!(
        place.config().contains("exports = { logs = \"r\" }") && place.config().contains("until = \"20"),
        "{}",
        place.config()
    );
    let (logs, out) = (place.url("logs/f"), place.url("out/f"));
    place.reload("ann reads", || place.host("ann", &["cat", &logs], "").status.success());
    fails(&place.host("ann", &["cat", &out], ""), 4, "");
    fails(&place.host("ann", &["cp", "-", &logs], "two\n"), 4, "");

    // More rights for a host that is known, whose key stays the one that it is.
    assert!(allow(&["--read", "out"]).status.success());
    place.reload("ann reads more", || place.host("ann", &["cat", &out], "").status.success());
    assert_eq!(place.config().matches("keys/ann.tls").count(), 1, "{}", place.config());
    fails(&allow(&["--until", "7d"]), 2, "whose end stays");
}

/// A host whose keys had ended got a new one that had ended, too, and the command said that it was good.
#[test]
fn a_host_whose_keys_have_ended_gets_a_new_one() {
    let place = Place::new("");
    place.invite(&["--name", "ann"]);
    let ended = "{ file = \"keys/ann.tls\", until = \"2020-01-01\" }";
    let config = place.config().replace("\"file:keys/ann.tls\"", ended);
    std::fs::write(place.at("server/diskside.toml"), &config).expect("written");
    let nqn = config.lines().find_map(|line| line.strip_prefix("nqn = \"nqn.2014")).expect("a name");
    let nqn = format!("nqn.2014{}", nqn.trim_end_matches('"'));
    let introduced = place.host("ann", &["key", "new", "--tls", "--nqn", &nqn], "");
    let line = String::from_utf8(introduced.stdout).expect("text");
    let checked = command(&["check-config"]).arg(place.at("server/diskside.toml")).output().expect("diskside runs");
    assert!(checked.status.success() && said(&checked).contains("host `ann`: all its keys have ended"), "{checked:?}");
    for verb in ["allow", "rotate"] {
        fails(
            &place.operator(&["key", verb, "--name", "ann"], &line),
            2,
            "ended at 2020-01-01T00:00:00Z: say until when",
        );
    }
    assert_eq!(place.config(), config);
    // A file that nothing names any more was in the way of the new key.
    std::fs::write(place.at("server/keys/ann.tls.2"), "old").expect("written");
    let rotated = place.operator(&["key", "rotate", "--name", "ann", "--until", "never"], &line);
    assert!(rotated.status.success(), "{rotated:?}");
    assert!(place.config().contains("\"file:keys/ann.tls.3\""), "{}", place.config());
    place.reload("ann gets in", || place.host("ann", &["cat", &place.url("logs/f")], "").status.success());
}

/// A server that took hosts over TLS alone took them in the clear as soon as a key without TLS was allowed, and nothing said so.
#[test]
fn a_key_without_tls_does_not_open_a_server_of_tls() {
    let place = Place::new("");
    place.invite(&["--name", "ann"]);
    let introduced = place.host("bob", &["key", "new"], "");
    let line = String::from_utf8(introduced.stdout).expect("text");
    let before = place.config();
    fails(&place.operator(&["key", "allow", "--name", "bob"], &line), 2, "takes nobody in the clear");
    fails(
        &place.operator(&["invite", "--name", "eve", "--no-tls", "--at", "x.example"], ""),
        2,
        "takes nobody in the clear",
    );
    assert_eq!(place.config(), before);
    std::fs::write(place.at("server/diskside.toml"), format!("security.require = \"auth\"\n{before}"))
        .expect("written");
    assert!(place.operator(&["key", "allow", "--name", "bob"], &line).status.success());
}

/// A host that may use a volume and nothing else was told that the server runs no functions, and that joining had failed.
#[test]
fn a_host_that_may_use_a_volume_alone_joins() {
    let place = Place::new("[[volume]]\nname = \"vol\"\npath = \"mem:1MiB\"\nrw = true");
    let text = place.invite(&["--name", "bob", "--write", "vol", "--no-functions"]);
    place.reload("bob joins", || place.host("bob", &["join"], &text).status.success());
    let joined = place.host("bob", &["join"], &text);
    let told = String::from_utf8_lossy(&joined.stdout);
    assert!(told.contains("read, write") && told.contains("functions of the server: 0"), "{told}");
}

/// Keys are found by the name in the URL. A host that had joined `127.0.0.1` and asked `localhost` was told to make a key.
#[test]
fn a_host_that_joined_by_another_name_is_told_which() {
    let place = Place::new("[security]\nrequire = \"auth\"");
    let text = place.invite(&["--name", "ann", "--read", "logs"]);
    place.reload("the invited host gets in", || place.host("ann", &["join"], &text).status.success());
    let port = place.address.rsplit_once(':').expect("a port").1;
    let other = format!("diskside://localhost:{port}/logs/f");
    let hint =
        format!("this user has a key for the same server under the name {}: write that name in the URL", place.address);
    fails(&place.host("ann", &["cat", &other], ""), 4, &hint);
    assert!(!said(&place.host("stranger", &["cat", &other], "")).contains("under the name"), "it has joined nothing");
    assert_eq!(place.host("ann", &["cat", &place.url("logs/f")], "").stdout, b"one\n");
}
