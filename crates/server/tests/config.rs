//! Configurations: users' texts, and the errors where they are wrong.

use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

use diskside_server::Target;
use diskside_server::config::{ServeConfig, Settings, Size, VolumeSpec};

fn resolve(text: &str) -> Result<ServeConfig, String> {
    Settings::from_toml(text, "d.toml").and_then(ServeConfig::resolve).map_err(|error| error.to_string())
}

#[test]
fn a_volume_is_enough() {
    let config = resolve("[[volume]]\nname = 'data'\npath = 'mem:1MiB'").unwrap();
    assert_eq!(config.listen, ["127.0.0.1:4420".parse().unwrap()]);
    assert!(config.nqn.starts_with("nqn.2026-11.io.diskside:"));
    assert!((1..=8).contains(&config.reactors), "one for each core");
    assert_eq!(config.poll_us, 100);
    assert!(config.hosts.is_empty());
}

#[test]
fn what_is_printed_gives_the_same_configuration() {
    let config = resolve(
        r#"
        listen = ["127.0.0.1:0", "[::1]:4421,path=non-optimized"]
        nqn = "nqn.2026-11.org.example:store"
        hosts = ["nqn.2014-08.org.nvmexpress:uuid:0a"]
        reactors = 2
        cores = [0, 1]
        congestion_control = "reno"
        [limits]
        memory = "64MiB"
        transfer = 131072
        [compute]
        cache = "1GiB"
        [[volume]]
        name = "data"
        path = "/srv/data, with a comma.img"
        rw = true
        size = "1GiB"
        block = 512
        [[volume]]
        name = "fast"
        path = "mem:64MiB"
        nsid = 9
        [[export]]
        name = "files"
        path = "/srv/files"
        rw = true
        uid = 1000
        groups = [4, 27]
        "#,
    )
    .unwrap();
    let writable = |name: &str| config.volumes.iter().any(|volume| volume.name == name && volume.rw);
    assert_eq!((writable("data"), writable("fast"), config.exports[0].rw), (true, false, true));
    assert_eq!((config.exports[0].uid, config.exports[0].gid), (Some(1000), None));
    let printed = config.to_toml();
    assert_eq!(resolve(&printed).unwrap(), config, "{printed}");
    assert!(printed.contains("transfer = \"128KiB\"") && printed.contains("cache = \"1GiB\""), "{printed}");
}

#[test]
fn flags_win_and_their_volumes_join() {
    let file = Settings::from_toml(
        "poll_us = 7\nreactors = 4\n[limits]\nqueues = 3\n[[volume]]\nname='a'\npath='mem:1MiB'\n[[volume]]\nname='b'\npath='mem:1MiB'",
        "d.toml",
    )
    .unwrap();
    let mut flags = Settings {
        reactors: Some(2),
        volumes: vec!["b=mem:2MiB".parse().unwrap(), "c=mem:3MiB".parse().unwrap()],
        ..Settings::default()
    };
    flags.limits.memory = Some(Size::from_mib(100));
    let config = ServeConfig::resolve(file.overridden_by(flags)).unwrap();
    assert_eq!((config.reactors, config.poll_us, config.limits.queues), (2, 7, 3));
    assert_eq!(config.limits.memory, Size::from_mib(100));
    let paths: Vec<&str> = config.volumes.iter().map(|volume| volume.path.as_str()).collect();
    assert_eq!(paths, ["mem:1MiB", "mem:2MiB", "mem:3MiB"]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let volume = "[[volume]]\nname='a'\npath='mem:1MiB'\n";
    for (text, message) in [
        ("\nlisten = [\"local host\"]", "d.toml:2: "),
        (
            "\nlisten = ['127.0.0.1', '127.0.0.1:1,path=fast']",
            "d.toml:2: `127.0.0.1:1,path=fast`: `fast` is not a state of a path; write path=optimized, path=non-optimized or",
        ),
        ("listen = ['127.0.0.1,rw']", "d.toml:1: `127.0.0.1,rw`: `rw` is not an option of an address; write path="),
        ("lisen = []", "d.toml:1: unknown field `lisen`"),
        ("\n\n[limits]\nmemory = \"1G\"", "d.toml:4: `1G` does not say which unit"),
        ("[limits]\nmemory = []", "d.toml:2: a size: a number of bytes, or text"),
        ("reactors = ", "d.toml:1: "),
        ("[[volume]]\npath='x'", "missing field `name`"),
        ("listen = []", "listen: no address"),
        ("nqn = 'data'", "nqn: `data` is not an NQN"),
        ("nqn = 'nqn.2014-08.org.nvmexpress.discovery'", "nqn: this is the discovery"),
        ("hosts = ['me']", "hosts: `me` is not an NQN"),
        ("reactors = 0", "reactors: 0 is not between"),
        ("cores = [0]\nreactors = 2", "cores: 1 cores for 2 reactors"),
        ("[limits]\ntransfer = '100KiB'", "limits.transfer: 100KiB is not a power of two"),
        ("[limits]\nconnection_memory = '4KiB'", "limits.connection_memory: 4KiB does not hold"),
        ("reactors = 1\n[limits]\nmemory = '4MiB'", "limits.memory: 4MiB over 1 reactors"),
        // It read as if nothing could be loaded, and everything could.
        ("[security]\nrequire_signed_by = []", "security.require_signed_by: it names nobody"),
        (
            "[[host]]\nname='a'\nnqn='nqn.2026-11.io.diskside:a'\ndhchap_keys=['file:/k', 'file:/k']",
            "host `a`: /k is there twice; once is enough",
        ),
        ("[compute]\nactive_programs = 0", "compute.active_programs: 0 lets nobody run a program of their own"),
        ("[compute]\ncall_ms = 0", "compute.call_ms: 0 lets nobody compute; write enabled = false"),
        ("[compute]\nexecution_ms = 0", "compute.execution_ms: 0 is not between 1 and 3600000"),
        ("[compute]\nmemory_wait_ms = 3600001", "compute.memory_wait_ms: 3600001 is not between 1 and 3600000"),
        ("[limits]\nqueue_entries = 1", "limits.queue_entries: 1 is less than 2"),
        ("[[volume]]\nname='a'\npath='x'\nblock=100", "volume `a`: a block of 100 bytes"),
        (&format!("{volume}{volume}"), "volume `a`: there are two of this name"),
        (
            "[[volume]]\nname='a'\npath='x'\nnsid=1\n[[volume]]\nname='b'\npath='x'\nnsid=1",
            "volume `b`: namespace ID 1 is taken",
        ),
    ] {
        let error = resolve(text).unwrap_err();
        assert!(error.contains(message), "{text:?} gives {error:?}");
    }
}

/// Anybody who reached the port of a server could use all that it served, and one flag was enough to be reached by all.
#[test]
fn listening_beyond_this_machine_is_refused_unless_it_is_said_to_be_insecure() {
    for local in ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        resolve(&format!("listen = ['{local}']")).unwrap();
    }
    for open in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"] {
        let listen = format!("listen = ['127.0.0.1:1', '{open}']\n");
        let error = resolve(&listen).unwrap_err();
        assert!(error.starts_with(&format!("listen: {open} is reached from other machines")), "{error}");
        assert!(error.contains("--insecure (insecure = true in the file)"), "{error}");
        let config = resolve(&(listen + "insecure = true")).unwrap();
        assert_eq!(resolve(&config.to_toml()).unwrap(), config, "it is printed");
    }
    // A list of names lets in anybody who claims one.
    resolve("listen = ['0.0.0.0:1']\nhosts = ['nqn.2026-11.org.example:a']").unwrap_err();
}

#[test]
fn a_missing_file_is_named() {
    let error = Settings::from_file("/nowhere/d.toml".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nowhere/d.toml: "), "{error}");
}

#[test]
fn a_volume_made_in_code_is_checked_too() {
    let settings = Settings { volumes: vec![VolumeSpec::new("a/b", "x").writable()], ..Settings::default() };
    let error = ServeConfig::resolve(settings).unwrap_err().to_string();
    assert!(error.contains("the name `a/b` must be"), "{error}");
}

#[test]
fn exports_are_checked_and_joined_like_volumes() {
    let export = |name: &str| format!("[[export]]\nname = '{name}'\npath = '/srv'\n");
    let error = resolve(&(export("a") + &export("a"))).unwrap_err();
    assert_eq!(error, "export `a`: there are two of this name");
    let error = resolve("[[export]]\nname = '..'\npath = '/srv'").unwrap_err();
    assert!(error.starts_with("export `..`: a name of dots alone"), "{error}");
    let many: String = (0..257).map(|n| export(&n.to_string())).collect();
    assert_eq!(resolve(&many).unwrap_err(), "export: 257 exports; at most 256");
    let file = Settings::from_toml(&(export("a") + &export("b")), "d.toml").unwrap();
    let flags = Settings { exports: vec!["b=/other,rw".parse().unwrap()], ..Settings::default() };
    let config = ServeConfig::resolve(file.overridden_by(flags)).unwrap();
    let told: Vec<_> = config.exports.iter().map(|export| (export.name.as_str(), export.rw)).collect();
    assert_eq!(told, [("a", false), ("b", true)]);
}

const ANN: &str = "[[host]]\nname = 'ann'\nnqn = 'nqn.2014-08.org.example:ann'\n";

#[test]
fn hosts_with_keys_are_demanded_to_use_them_and_their_keys_are_not_printed() {
    let text = format!("{ANN}dhchap_keys = ['file:/k/ann', 'file:/k/ann.2']\ndhchap_controller_key = 'file:/k/server'");
    let config = resolve(&text).unwrap();
    assert!(config.authenticates_hosts());
    let printed = config.to_toml();
    assert_eq!(resolve(&printed).unwrap(), config, "{printed}");
    assert!(printed.contains("require = \"auth\"") && printed.contains("\"file:/k/ann.2\""), "{printed}");
    // Others may reach it then.
    resolve(&format!("listen = ['0.0.0.0:4420']\n{text}")).unwrap();
    let by_name = resolve(ANN).unwrap();
    assert!(!by_name.authenticates_hosts());
    assert!(resolve(&format!("listen = ['0.0.0.0:4420']\n{ANN}")).unwrap_err().contains("diskside key new"));
    let not_all = format!("listen = ['0.0.0.0:4420']\n[security]\nrequire = 'none'\n{text}");
    assert!(resolve(&not_all).is_err(), "some hosts need only say their name");
}

/// The last host could not be withdrawn from a server that others reach: without it such a server was no configuration.
#[test]
fn a_server_may_be_closed_to_everybody_until_hosts_have_keys() {
    for require in ["auth", "tls", "tls+auth"] {
        let config = resolve(&format!("listen = ['0.0.0.0:4420']\n[security]\nrequire = '{require}'\n")).unwrap();
        assert!(config.authenticates_hosts() && config.known_hosts.is_empty());
    }
}

#[test]
fn keys_are_beside_the_file_that_names_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.toml");
    std::fs::write(&path, format!("{ANN}dhchap_keys = ['file:keys/ann', 'file:/k/ann']")).unwrap();
    let config = ServeConfig::resolve(Settings::from_file(&path).unwrap()).unwrap();
    let keys: Vec<_> = config.known_hosts[0].dhchap_keys.iter().map(ToString::to_string).collect();
    assert_eq!(keys, [format!("file:{}", directory.path().join("keys/ann").display()), "file:/k/ann".into()]);
}

/// A server that was started from another directory made its volume there, and then did not find its exports.
#[test]
fn exports_and_volumes_are_beside_the_file_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.toml");
    let volumes = ["disk.img", "lossy:disk.img", "/disk.img", "mem:1MiB", "https://example.org/disk.img"];
    let volume = |(at, path): (usize, &&str)| format!("[[volume]]\nname = 'v{at}'\npath = '{path}'\n");
    let volumes: String = volumes.iter().enumerate().map(volume).collect();
    std::fs::write(
        &path,
        format!("[[export]]\nname = 'a'\npath = 'logs'\n[[export]]\nname = 'b'\npath = 's3://logs'\n{volumes}"),
    )
    .unwrap();
    let read = Settings::from_file(&path).unwrap();
    let beside = |name: &str| directory.path().join(name).display().to_string();
    let exports: Vec<_> = read.exports.iter().map(|export| export.path.display().to_string()).collect();
    assert_eq!(exports, [beside("logs"), "s3://logs".into()]);
    let paths: Vec<_> = read.volumes.iter().map(|volume| volume.path.clone()).collect();
    let lossy = format!("lossy:{}", beside("disk.img"));
    assert_eq!(paths, [&beside("disk.img"), &lossy, "/disk.img", "mem:1MiB", "https://example.org/disk.img"]);
}

/// The error of a misspelt word in the third grant had the line of the first, and a function that does not exist was
/// granted.
#[test]
fn what_is_wrong_about_one_of_several_grants_is_told_with_its_line() {
    let text = format!(
        "{ANN}[[grant]]\nto = ['*']\nstatistics = true\n[[grant]]\nto = ['ann']\nfunctions = ['shipped:wcc']\n"
    );
    let error =
        ServeConfig::resolve(Settings::from_toml(&text, "d.toml").unwrap()).unwrap_err().in_file("d.toml", &text);
    let line = text.lines().position(|line| line == "to = ['ann']").unwrap();
    let want = format!("d.toml:{line}: grant 2: no function `wcc` comes with the server");
    assert!(error.to_string().starts_with(&want), "{error}");
}

#[test]
fn quotas_are_printed_and_what_is_wrong_about_them_is_said() {
    let all = "iops = 50000\nbytes_per_s = '2GiB'\ncpu_share = 50\nmemory = '256MiB'\nprograms = 8\nconnections = 16\n\
               state = '16MiB'\nspace = '10GiB'\nfiles = 1000\n";
    let text = format!("{ANN}groups = ['readers']\n[[quota]]\nof = ['readers', 'ann', '*']\n{all}");
    let config = resolve(&text).unwrap();
    let printed = config.to_toml();
    assert_eq!(resolve(&printed).unwrap(), config, "{printed}");
    assert!(printed.contains("[[quota]]") && printed.contains("memory = \"256MiB\""), "{printed}");
    for (quota, want) in [
        ("of = ['*']", "quota: it limits nothing: write one of iops, bytes_per_s, cpu_share, memory"),
        ("of = []\niops = 1", "quota: `of` is empty"),
        ("of = ['carl']\niops = 1", "quota: `carl` is neither a [[host]] nor a group of one"),
        ("of = ['nqn.carl']\niops = 1", "quota: `nqn.carl` is not an NQN"),
        ("of = ['*']\niops = 0", "quota: iops: 0 lets nobody do anything"),
        ("of = ['*']\nbytes_per_s = 1000", "quota: bytes_per_s: 1000 is less than 64KiB"),
        ("of = ['*']\ncpu_share = 0", "quota: cpu_share: 0 is not between 1 and 10000"),
        ("of = ['*']\nmemory = '1MiB'", "quota: memory: 1MiB is less than the 128MiB that one call may need"),
        ("of = ['*']\nmemory = '1GiB'", "1GiB is more than the 512MiB that every host may have (compute.host_memory)"),
        ("of = ['*']\nprograms = 33", "33 is more than the 32 that every host may have (compute.host_programs)"),
        ("of = ['*']\nconnections = 1", "quota: connections: 1 is less than 2: an admin queue and one more"),
        ("of = ['*']\nconnections = 5000", "5000 is more than the 4096 that every host may have (limits.connections)"),
        ("of = ['*']\nstate = '65MiB'", "65MiB is more than the 64MiB that every host may have"),
        ("of = ['*']\nspace = 0", "quota: space: 0 lets a host write nothing; a [[grant]] says that better"),
    ] {
        let error = resolve(&format!("{ANN}[[quota]]\n{quota}\n")).unwrap_err();
        assert!(error.contains(want), "{quota}: {error}");
    }
}

#[test]
fn what_is_wrong_about_hosts_and_keys_is_said() {
    let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let two = format!("{ANN}dhchap_keys = ['file:/a']\n[[host]]\nname = 'bob'\nnqn = 'nqn.2014-08.org.example:ann'");
    for (text, want) in [
        ("[security]\nrequire = 'ssl'", "unknown variant"),
        ("[security]\ndhchap_groups = ['ffdhe1024']", "security.dhchap_groups: \"ffdhe1024\" is no group"),
        ("[security]\ndhchap_hashes = []", "security.dhchap_hashes: nobody could authenticate"),
        (&format!("[security]\nrequire = 'auth'\n{ANN}"), "host `ann`: security.require is \"auth\", and it has no"),
        (&format!("hosts = ['nqn.2014-08.org.example:bob']\n{ANN}dhchap_keys = ['file:/a']"), "bob has no key"),
        (&format!("{ANN}{ANN}"), "host `ann`: there are two of this name"),
        (&two, "host `bob`: another host has the NQN"),
        (&ANN.replace("ann'", "../ann'"), "is not a name for a host"),
        (&ANN.replace("nqn.2014-08.", "iqn."), "host `ann`: `iqn.org.example:ann` is not an NQN"),
        (&format!("{ANN}dhchap_controller_key = 'file:/a'"), "of no use without dhchap_keys"),
        (&format!("{ANN}dhchap_keys = ['{secret}']"), "a key stands in a file, and is written file:PATH"),
        (&format!("{ANN}dhchap_keys = ['/k/ann']"), "a key stands in a file, and is written file:PATH"),
        (&format!("{ANN}dhchap_key = 'file:/a'"), "unknown field"),
    ] {
        let error = resolve(text).expect_err(text);
        assert!(error.contains(want) && !error.contains("AAECAwQ"), "{text}: {error}");
    }
}

/// `check-config` found nothing wrong with a link that the server then refused to follow.
#[test]
fn a_link_that_the_server_would_refuse_is_a_problem_before_it_starts() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("image"), [0; 8192]).unwrap();
    std::fs::write(at("audit.jsonl"), "").unwrap();
    symlink("image", at("volume")).unwrap();
    symlink("audit.jsonl", at("audit")).unwrap();
    let text = "[security]\naudit = 'audit'\n[[volume]]\nname = 'data'\npath = 'volume'";
    std::fs::write(at("d.toml"), text).unwrap();
    let problems = || {
        let settings = Settings::from_file(&at("d.toml")).unwrap();
        Target::problems_of(&ServeConfig::resolve(settings).unwrap())
    };
    let set_mode = |mode| std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o755);
    assert_eq!(problems(), [""; 0]);
    set_mode(0o777);
    let found = problems();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("security.audit: ") && found[0].contains("it is a link"), "{}", found[0]);
    set_mode(0o755);
    // Only root can give a link away, and only root must not follow it then.
    if lchown(at("volume"), Some(65534), None).is_ok() {
        let found = problems();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("volume `data`: ") && found[0].contains("is a link of user 65534"),
            "{}",
            found[0]
        );
    }
}

/// A configuration of any user was obeyed by root, who had served any file to the hosts that this user named.
#[test]
fn root_obeys_no_configuration_of_somebody_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.toml");
    std::fs::write(&path, "[[volume]]\nname = 'data'\npath = 'mem:1MiB'").unwrap();
    Settings::from_file(&path).unwrap();
    if chown(&path, Some(65534), None).is_ok() {
        let told = Settings::from_file(&path).unwrap_err().to_string();
        assert!(told.contains("it belongs to user 65534, who could have root serve any file by it"), "{told}");
        // A command that changes the file only may still read it.
        diskside_server::config::read_config(&path).unwrap();
    }
}
