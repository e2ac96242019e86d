//! `diskside serve` as a new user starts it: with nothing, with names, on a port that is taken.

mod common;

use common::{Process, Server, diskside, good};

/// Exit code and message; a server of root warns before it.
fn failed(args: &[&str]) -> (i32, String) {
    let (code, out, said) = diskside(args);
    assert_eq!(out, b"", "{args:?}");
    let is_message = |line: &&str| !line.contains(" WARN ");
    (code, said.split_inclusive('\n').filter(is_message).collect())
}

/// It served nothing, until it was stopped.
#[test]
fn a_server_of_nothing_says_what_to_give() {
    let expected = "diskside: there is nothing to serve: give a directory (--export NAME=DIRECTORY), a volume \
                    (--volume NAME=FILE, or --volume NAME=mem:1GiB,rw), or both in a file (--config FILE)\n";
    assert_eq!(failed(&["serve"]), (2, expected.to_owned()));
    assert!(good(&["serve", "--print-config"]).contains("listen = [\"127.0.0.1:4420\"]"));
}

#[test]
fn names_and_ipv6_addresses_are_listened_on_and_connected_to() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("f"), b"one\n").expect("written");
    let server = Server::listening("localhost:0", dir.path(), "", &[]);
    let port = server.target().rsplit(':').next().expect("a port").to_owned();
    assert_eq!(server.url, format!("diskside://127.0.0.1:{port}/data"));
    assert_eq!(good(&["cat", &format!("diskside://localhost:{port}/data/f")]), "one\n");
    // A machine may have no IPv6.
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let server = Server::listening("[::1]:0", dir.path(), "", &[]);
        assert!(server.url.starts_with("diskside://[::1]:"), "{}", server.url);
        assert_eq!(good(&["cat", &server.at("f")]), "one\n");
    }
}

#[test]
fn an_address_that_is_none_says_what_one_is() {
    let expected = "error: invalid value '::1' for '--listen <HOST[:PORT][,path=STATE]>': `::1` is not an address: an IPv6 address \
                    stands in brackets, as in [::1]:4420\n\nFor more information, try '--help'.\n";
    assert_eq!(failed(&["serve", "--listen", "::1"]), (2, expected.to_owned()));
}

#[test]
fn a_state_that_no_path_has_says_which_there_are() {
    let (code, said) = failed(&["serve", "--volume", "a=mem:1MiB", "--listen", "127.0.0.1:0,path=slow"]);
    let expected = "`slow` is not a state of a path; write path=optimized, path=non-optimized or path=inaccessible";
    assert!(code == 2 && said.contains(expected), "{code}: {said}");
    let printed =
        good(&["serve", "--volume", "a=mem:1MiB", "--listen", "127.0.0.1:7,path=non-optimized", "--print-config"]);
    assert!(printed.contains("listen = [\"127.0.0.1:7,path=non-optimized\"]"), "{printed}");
}

#[test]
fn names_are_addresses_in_a_configuration_too() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("diskside.toml");
    std::fs::write(&file, "listen = [\"localhost:7\"]\n").expect("written");
    let config = ["serve", "--config", file.to_str().expect("text"), "--print-config"];
    assert!(good(&config).contains("listen = [\"127.0.0.1:7\"]"));
    std::fs::write(&file, "\nlisten = [\"localhost:x\"]\n").expect("written");
    let said = format!("diskside: {}:2: `x` is not a port: a number from 0 to 65535\n", file.display());
    assert_eq!(failed(&config), (2, said));
}

#[test]
fn a_port_that_is_taken_says_what_to_do() {
    let server = Server::start("");
    let address = server.target().strip_prefix("diskside://").expect("its scheme").to_owned();
    let export = format!("data={}", server.dir.display());
    let expected = format!(
        "diskside: cannot listen on {address}: Address already in use (os error 98): another program listens there; stop \
         it, or choose another port, or port 0 for a free one\n"
    );
    assert_eq!(failed(&["serve", "--listen", &address, "--export", &export]), (4, expected));
}

#[test]
fn who_is_reached_by_others_must_say_that_it_is_insecure() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let export = format!("data={}", dir.path().display());
    let serve = ["serve", "--export", &export, "--listen", "0.0.0.0:0"];
    let expected = "diskside: listen: 0.0.0.0:0 is reached from other machines, and hosts are not authenticated: anybody who \
                    reaches it can use all that is served. Give hosts keys (`diskside key new` there, `diskside key allow \
                    --name NAME --config FILE` here, and serve with --config FILE); or write require = \"auth\" below \
                    [security], and nobody is let in until hosts have keys; or listen on 127.0.0.1 and reach it \
                    through ssh (ssh -L 4420:localhost:4420 SERVER); or, where everybody on the network may, say so with \
                    --insecure (insecure = true in the file)\n";
    assert_eq!(failed(&serve), (2, expected.to_owned()));
    let (_server, line) = Process::start(&[&serve[..], &["--insecure"]].concat());
    assert!(line.starts_with("serving data at diskside://0.0.0.0:"), "{line}");
}

#[test]
fn nothing_is_written_that_does_not_say_rw() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("f"), vec![b'x'; 1 << 20]).expect("written");
    let (export, volume) = (format!("data={}", dir.path().display()), format!("disk={}/f", dir.path().display()));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--export", &export, "--volume", &volume];
    let (_server, disk, data) = {
        let (process, line) = Process::start_until(&serve, "diskside://");
        let export = line.split_whitespace().last().expect("a URL").to_owned();
        let address = export.split('/').nth(2).expect("an address").to_owned();
        (process, address, export)
    };
    let (code, _, said) = diskside(&["cp", &format!("{data}/f"), &format!("{data}/g")]);
    assert_eq!(code, 4);
    assert!(said.contains("the export is read-only; serve it with `,rw`"), "{said}");
    let found = good(&["discover", &format!("nvme-tcp://{disk}")]);
    let nqn = found.split_whitespace().find(|word| word.starts_with("nqn.2026")).expect("its name");
    let (code, _, said) = diskside(&["cp", &format!("{data}/f"), &format!("nvme-tcp://{disk}/{nqn}/1"), "--force"]);
    assert_eq!(code, 4);
    assert!(said.contains("the volume is read-only; serve it with `,rw`"), "{said}");
}

/// A server of root's had all of root's capabilities, and would have left its memory in a core dump.
#[test]
fn a_server_has_few_privileges_and_leaves_no_core_dump() {
    let server = Server::start("");
    let read = |name: &str| {
        let path = format!("/proc/{}/{name}", server.process.0.id());
        std::fs::read_to_string(path).expect("it runs")
    };
    let status = read("status");
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there").trim();
    assert_eq!(field("NoNewPrivs:"), "1");
    for set in ["CapEff:", "CapPrm:", "CapInh:"] {
        let held = u64::from_str_radix(field(set), 16).expect("a number");
        // CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER and CAP_IPC_LOCK: of root's, nothing else.
        assert_eq!(held & !(0b1111 | 1 << 14), 0, "{set} {held:#x}");
    }
    let limits = read("limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("it is there");
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
}

/// The URLs were printed before the first thread ran, and also when none could.
#[test]
fn urls_are_printed_only_when_hosts_are_answered() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let export = format!("data={}", dir.path().display());
    let file = dir.path().join("diskside.toml");
    // No machine has this core, so the reactor cannot start.
    std::fs::write(&file, "cores = [1000000]\n").expect("written");
    let config = ["serve", "--listen", "127.0.0.1:0", "--export", &export, "--config", file.to_str().expect("text")];
    let (code, said) = failed(&config);
    assert_eq!((code, said.as_str()), (4, "diskside: reactor 0: there is no core 1000000\n"));
    let (_server, line) = Process::start(&config[..5]);
    assert!(line.starts_with("serving data at diskside://127.0.0.1:"), "{line}");
}

#[test]
fn a_file_is_no_export_and_its_directory_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("f");
    std::fs::write(&file, b"x").expect("written");
    let export = format!("data={}", file.display());
    let expected = format!(
        "diskside: export `data`: {} is a file; export its directory, {}\n",
        file.display(),
        dir.path().display()
    );
    assert_eq!(failed(&["serve", "--listen", "127.0.0.1:0", "--export", &export]), (4, expected));
}

/// What was said was an errno, or the name of a status.
#[test]
fn a_server_that_does_not_answer_as_wanted_says_what_to_do() {
    let server =
        Server::start_with("", &["--hosts", "nqn.2014-08.org.example:other", "--nqn", "nqn.2014-08.org.example:s"]);
    let address = server.target().strip_prefix("diskside://").expect("its scheme").to_owned();
    let expected = format!(
        "diskside: {address}: the controller refused the connection: Connect Invalid Host (SCT 1h, SC 84h, do not \
         retry): the target does not let this host in; let it in there (diskside key allow, or \
         diskside serve --hosts NQN,...), or connect as a host that may (--key FILE, --hostnqn NQN)\n"
    );
    let info = ["info", &format!("nvme-tcp://{address}/nqn.2014-08.org.example:s")];
    assert_eq!(failed(&info), (4, expected));
    // Discovery does not list what a host may not use.
    let expected = format!(
        "diskside: nvme-tcp://{address}: it lists no subsystem that this host may use; let the host in there (diskside \
         key allow, or diskside serve --hosts NQN,...), or connect as a host that may (--key FILE, --hostnqn NQN)\n"
    );
    assert_eq!(failed(&["ls", &format!("diskside://{address}")]), (4, expected));
    let expected = format!(
        "diskside: {address}: the controller refused the connection: Connect Invalid Parameters (SCT 1h, SC 82h, do not \
         retry); it objects to the subsystem's NQN: there is no such subsystem here; `diskside discover \
         nvme-tcp://HOST:PORT` lists the subsystems that are\n"
    );
    assert_eq!(failed(&["info", &format!("nvme-tcp://{address}/nqn.2014-08.org.example:other")]), (4, expected));
    let nobody = "diskside: cannot connect to 127.0.0.1:1: Connection refused (os error 111): no \
                  server listens there; start one there (diskside serve --listen), or check the host and the port\n";
    assert_eq!(failed(&["ls", "diskside://127.0.0.1:1"]), (4, nobody.to_owned()));
    // A server of something else: it answers, and closes.
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("bound");
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("a connection");
        let mut asked = [0; 128];
        std::io::Read::read_exact(&mut stream, &mut asked).expect("the first PDU");
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("written");
    });
    let (code, said) = failed(&["ls", &format!("diskside://{address}")]);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.ends_with(
            "; if that is so each time, what listens there is no NVMe/TCP server: check the port; or one that wants TLS \
             (diskside key new --tls, and URLs with +tls; a key of `diskside join` is used where the URL names the server as the \
             invitation does)\n"
        ),
        "{said}"
    );
    answers.join().expect("it answered");
}

#[test]
fn a_url_without_a_file_says_how_one_is_written() {
    let server = Server::start("");
    for url in [server.target(), &server.url] {
        let expected = format!(
            "diskside: {url} names no file: write diskside://HOST[:PORT]/EXPORT/PATH; `diskside ls` lists the exports of a \
             target, and their files\n"
        );
        assert_eq!(failed(&["run", "wc", url]), (2, expected));
    }
}
