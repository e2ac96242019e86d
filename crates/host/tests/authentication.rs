//! Hosts with keys, real targets, real sockets.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{NQN, address, builder, options, pattern, read, read_now, start, url, write, write_now};
use diskside_host::{ConnectOptions, InlineVolume, KeySource, Url, Volume, discover};
use diskside_io::request::{AsyncIo as _, block_on};
use diskside_keys::{HostKey, Kind, write_secret};
use diskside_nvme::Nqn;
use diskside_nvme::wire::IcResp;
use diskside_server::Running;
use diskside_server::config::{HostSpec, KeyFile, Requirement, VolumeSpec};
use zerocopy::IntoBytes as _;

/// A host's file, and what a server keeps of it.
struct Known {
    directory: tempfile::TempDir,
    key: HostKey,
}

impl Known {
    fn new(mutual: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = HostKey::new(None, if mutual { Kind::Mutual } else { Kind::Host });
        key.write(&directory.path().join("host")).unwrap();
        write_secret(&directory.path().join("key"), key.key.as_ref().unwrap()).unwrap();
        if let Some(server) = &key.server_key {
            write_secret(&directory.path().join("server"), server).unwrap();
        }
        Self { directory, key }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn spec(&self, name: &str) -> HostSpec {
        HostSpec {
            groups: Vec::new(),
            name: name.into(),
            nqn: self.key.nqn.to_string(),
            dhchap_keys: vec![KeyFile::new(self.file("key"))],
            dhchap_controller_key: self.key.server_key.is_some().then(|| KeyFile::new(self.file("server"))),
            ..HostSpec::default()
        }
    }

    fn options(&self) -> ConnectOptions {
        with_key(&self.file("host"))
    }
}

fn with_key(path: &Path) -> ConnectOptions {
    ConnectOptions { key: KeySource::File(path.into()), ..options() }
}

fn target(hosts: &[HostSpec]) -> Running {
    let volume = VolumeSpec::new("data", "mem:4MiB").writable();
    start(hosts.iter().cloned().fold(builder().volume(volume), diskside_server::TargetBuilder::host))
}

fn refused(running: &Running, options: &ConnectOptions) -> String {
    Volume::connect(&url(running), options).expect_err("it does not get in").to_string()
}

#[test]
fn a_host_with_its_key_reads_and_writes_over_several_queues() {
    for mutual in [false, true] {
        let known = Known::new(mutual);
        let running = target(&[known.spec("ann")]);
        let options = ConnectOptions { io_queues: 4, ..known.options() };
        let volume = Volume::connect(&url(&running), &options).unwrap();
        write_now(&volume, 4096, &[7; 8192]);
        assert_eq!(read_now(&volume, 8192, 4096), [7; 4096]);
        let mut inline = InlineVolume::connect(&url(&running), &known.options()).unwrap();
        let request = inline.submit(read(4096, 4096));
        assert_eq!(inline.block_on(request).into_read().unwrap().into_vec(), [7; 4096]);
    }
}

#[test]
fn every_group_that_is_allowed_is_used() {
    let known = Known::new(true);
    for group in ["ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"] {
        let volume = VolumeSpec::new("data", "mem:4MiB");
        let allowed = |security: &mut diskside_server::config::Security| security.dhchap_groups = vec![group.into()];
        let running = start(builder().volume(volume).host(known.spec("ann")).security(allowed));
        Volume::connect(&url(&running), &known.options()).unwrap_or_else(|error| panic!("{group}: {error}"));
    }
    // A server that wants none is not believed: an eavesdropper could try weak keys.
    let without = |security: &mut diskside_server::config::Security| security.dhchap_groups = vec!["null".into()];
    let volume = VolumeSpec::new("data", "mem:4MiB");
    let running = start(builder().volume(volume).host(known.spec("ann")).security(without));
    let error = refused(&running, &known.options());
    assert!(error.contains("no Diffie-Hellman group that both sides accept"), "{error}");
}

#[test]
fn who_does_not_get_in_is_told_what_to_do() {
    let (known, other) = (Known::new(true), Known::new(true));
    let running = target(&[known.spec("ann")]);
    let without = ConnectOptions { key: KeySource::None, ..options() };
    let error = refused(&running, &without);
    assert!(error.contains("does not let this host in"), "{error}");
    let mut named = without.clone();
    named.identity.nqn = known.key.nqn.clone();
    let error = refused(&running, &named);
    assert!(error.contains("has no key for it: make one (diskside key new)"), "{error}");
    assert!(refused(&running, &other.options()).contains("does not let this host in"));

    // The right name, with another key.
    let mut false_host = HostKey::new(Some(known.key.nqn.clone()), Kind::Host);
    false_host.write(&other.file("false")).unwrap();
    let error = refused(&running, &with_key(&other.file("false")));
    assert!(error.contains("the keys do not fit") && error.contains("diskside key show"), "{error}");

    // The right key, and a server that has another one than this host keeps for it.
    false_host.key = known.key.key.clone();
    false_host.server_key = Some(diskside_keys::new_secret());
    false_host.write(&other.file("false-server")).unwrap();
    let error = refused(&running, &with_key(&other.file("false-server")));
    assert!(error.contains("may not be the server that is meant"), "{error}");

    // Others are let in meanwhile.
    Volume::connect(&url(&running), &known.options()).unwrap();
}

/// Somebody who answers in the server's place would not ask.
#[test]
fn a_host_with_a_key_does_not_talk_to_a_server_that_does_not_ask() {
    let known = Known::new(false);
    let running = target(&[]);
    let error = refused(&running, &known.options());
    assert!(error.contains("does not ask for authentication") && error.contains("DISKSIDE_KEY=none"), "{error}");
    Volume::connect(&url(&running), &ConnectOptions { key: KeySource::None, ..options() }).unwrap();
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let known = Known::new(false);
    let running = target(&[known.spec("ann")]);
    std::fs::set_permissions(known.file("host"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused(&running, &known.options());
    assert!(error.contains("its mode is 0644") && error.contains("chmod 600"), "{error}");
    std::fs::set_permissions(known.file("key"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let volume = VolumeSpec::new("data", "mem:4MiB");
    let error = builder().volume(volume).host(known.spec("ann")).build().unwrap_err().to_string();
    assert!(error.contains("host `ann`") && error.contains("its mode is 0640"), "{error}");
}

/// While a key is changed for another there are two; a host whose key is taken away is out.
#[test]
fn a_host_may_have_several_keys() {
    let (first, second) = (Known::new(false), tempfile::tempdir().unwrap());
    let renewed = HostKey::new(Some(first.key.nqn.clone()), Kind::Host);
    renewed.write(&second.path().join("host")).unwrap();
    write_secret(&second.path().join("key"), renewed.key.as_ref().unwrap()).unwrap();
    let mut spec = first.spec("ann");
    spec.dhchap_keys.push(KeyFile::new(second.path().join("key")));
    let running = target(&[spec.clone()]);
    Volume::connect(&url(&running), &first.options()).unwrap();
    Volume::connect(&url(&running), &with_key(&second.path().join("host"))).unwrap();
    spec.dhchap_keys.remove(0);
    let running = target(&[spec]);
    assert!(refused(&running, &first.options()).contains("the keys do not fit"));
    Volume::connect(&url(&running), &with_key(&second.path().join("host"))).unwrap();
}

/// Without `require`, a host that has a key must use it all the same: else its name would be anybody's.
#[test]
fn hosts_without_keys_may_be_let_in_by_name_beside_those_with() {
    let known = Known::new(false);
    let by_name = HostSpec { dhchap_keys: Vec::new(), ..Known::new(false).spec("lab") };
    let volume = VolumeSpec::new("data", "mem:4MiB");
    let both = builder().volume(volume).host(known.spec("ann")).host(by_name.clone());
    let running = start(both.security(|security| security.require = Requirement::None));
    let mut named = ConnectOptions { key: KeySource::None, ..options() };
    named.identity.nqn = by_name.nqn.parse().unwrap();
    Volume::connect(&url(&running), &named).unwrap();
    named.identity.nqn = known.key.nqn.clone();
    assert!(refused(&running, &named).contains("has no key for it"));
    Volume::connect(&url(&running), &known.options()).unwrap();
}

#[test]
fn discovery_tells_hosts_that_are_known() {
    let known = Known::new(false);
    let running = target(&[known.spec("ann")]);
    let at: Url = format!("nvme-tcp://{}", address(&running)).parse().unwrap();
    let found = discover(&at, &known.options()).unwrap();
    assert_eq!(found.iter().map(|found| found.nqn.as_str()).collect::<Vec<_>>(), [NQN]);
    assert!(discover(&at, &ConnectOptions { key: KeySource::None, ..options() }).unwrap().is_empty());
}

/// Many at once, and some of them wrong: everybody gets the answer that is theirs.
#[test]
fn many_hosts_authenticate_side_by_side() {
    let (known, other) = (Known::new(true), Known::new(false));
    HostKey::new(Some(known.key.nqn.clone()), Kind::Host).write(&other.file("false")).unwrap();
    let running = target(&[known.spec("ann")]);
    std::thread::scope(|scope| {
        for index in 0..12 {
            let (running, known, other) = (&running, &known, &other);
            scope.spawn(move || {
                for _ in 0..3 {
                    if index % 3 == 0 {
                        assert!(refused(running, &with_key(&other.file("false"))).contains("the keys do not fit"));
                    } else {
                        let volume = Volume::connect(&url(running), &known.options()).unwrap();
                        assert_eq!(read_now(&volume, 0, 4096), [0; 4096]);
                    }
                }
            });
        }
    });
}

/// A peer that opened connections and said nothing took half of them, and nobody else got in until their time was over.
/// Now the oldest of the address that has most goes for each that comes.
#[test]
fn connections_that_do_not_authenticate_leave_room_for_others() {
    let known = Known::new(false);
    let volume = VolumeSpec::new("data", "mem:4MiB");
    let few = |limits: &mut diskside_server::config::Limits| limits.connections = 16;
    let running = start(builder().volume(volume).limits(few).host(known.spec("ann")));
    let silent = || TcpStream::connect(address(&running)).unwrap();
    let mut waiting: Vec<_> = (0..8).map(|_| silent()).collect();
    let given_up = || running.handle().stats().connections_given_up;
    while running.handle().stats().connections_half_open < 8 {
        std::thread::yield_now();
    }
    assert_eq!(given_up(), 0);
    // The first is closed for the ninth.
    waiting.push(silent());
    let first = &mut waiting[0];
    first.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut byte = [0];
    match std::io::Read::read(first, &mut byte) {
        Ok(0) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("it is not closed: {other:?}"),
    }
    assert_eq!((given_up(), running.handle().stats().connections_refused), (1, 0));
    // A host with a key gets in, and once it has proved it, it does not count.
    let volume = Volume::connect(&url(&running), &known.options()).unwrap();
    waiting.extend((0..20).map(|_| silent()));
    assert_eq!(read_now(&volume, 0, 4096), [0; 4096]);
    assert!(running.handle().stats().connections_half_open <= 8);
}

/// Each of these alone costs a peer next to nothing: connections by the thousand, handshakes that never end, and keys that are
/// wrong. Together they keep neither who is there from working, nor who comes from being let in, and leave nothing behind.
#[test]
fn storms_of_connections_slow_handshakes_and_wrong_keys_keep_nobody_out() {
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    let (known, other) = (Known::new(false), Known::new(false));
    let running = target(&[known.spec("ann")]);
    let volume = Volume::connect(&url(&running), &known.options()).unwrap();
    write_now(&volume, 0, &[5; 4096]);
    HostKey::new(Some(known.key.nqn.clone()), Kind::Host).write(&other.file("false")).unwrap();
    let (wrong, address, over) = (with_key(&other.file("false")), address(&running), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| (0..3000).for_each(|_| drop(TcpStream::connect(address).unwrap())));
        let slow = scope.spawn(|| {
            // More than there may be of an address: the oldest give way.
            let mut slow: Vec<_> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
            while !over.load(Ordering::Relaxed) {
                slow.iter_mut().for_each(|stream| drop(stream.write_all(&[0])));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let guess = scope.spawn(|| {
            for _ in 0..30 {
                // Which of them was closed for another is as it happens; none got in.
                Volume::connect(&url(&running), &wrong).expect_err("its key is wrong");
            }
        });
        while !(storm.is_finished() && guess.is_finished()) {
            assert_eq!(read_now(&volume, 0, 4096), [5; 4096]);
        }
        Volume::connect(&url(&running), &known.options()).expect("who has a key is let in meanwhile");
        assert!(running.handle().stats().connections_half_open <= 256 + 1);
        over.store(true, Ordering::Relaxed);
        slow.join().unwrap();
    });
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while running.handle().stats().connections_half_open > 0 {
        assert!(std::time::Instant::now() < until, "{:?}", running.handle().stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read_now(&volume, 0, 4096), [5; 4096]);
}

#[test]
fn hosts_come_and_go_while_the_target_serves() {
    let (ann, bob) = (Known::new(false), Known::new(true));
    let volume = VolumeSpec::new("data", "mem:4MiB");
    let running = start(builder().volume(volume).host(ann.spec("ann")));
    assert!(refused(&running, &bob.options()).contains("does not let this host in"));
    let of_ann = Volume::connect(&url(&running), &ann.options()).unwrap();
    let config = |hosts: &[HostSpec]| {
        let settings = diskside_server::config::Settings { known_hosts: hosts.to_vec(), ..Default::default() };
        diskside_server::config::ServeConfig::resolve(settings).unwrap()
    };
    running.handle().reload_hosts(&config(&[ann.spec("ann"), bob.spec("bob")])).unwrap();
    let of_bob = Volume::connect(&url(&running), &bob.options()).unwrap();
    assert_eq!(read_now(&of_ann, 0, 4096), [0; 4096]);
    // A configuration that is invalid changes nothing.
    let mut lost = ann.spec("ann");
    lost.dhchap_keys = vec![KeyFile::new("/nowhere/key")];
    let error = running.handle().reload_hosts(&config(&[lost])).unwrap_err().to_string();
    assert!(error.contains("/nowhere/key"), "{error}");
    assert_eq!(read_now(&of_bob, 0, 4096), [0; 4096]);
    running.handle().reload_hosts(&config(&[bob.spec("bob")])).unwrap();
    assert!(refused(&running, &ann.options()).contains("does not let this host in"));
    assert_eq!(read_now(&of_bob, 0, 4096), [0; 4096]);
}

/// A host without a key of TLS makes one by authenticating; from then on everything is sealed.
#[test]
fn a_host_comes_over_tls_with_a_key_that_authenticating_makes() {
    let known = Known::new(true);
    let volume = || VolumeSpec::new("data", "mem:4MiB").writable();
    let wants = |security: &mut diskside_server::config::Security| security.require = Requirement::Tls;
    // It wants TLS itself, or the server does.
    for (running, tls) in [
        (target(&[known.spec("ann")]), true),
        (start(builder().volume(volume()).host(known.spec("ann")).security(wants)), true),
        (start(builder().volume(volume()).host(known.spec("ann")).security(wants)), false),
    ] {
        let options = ConnectOptions { io_queues: 3, ..known.options() };
        let url = Url { tls, ..url(&running) };
        let connection = Volume::connect(&url, &options).unwrap();
        write_now(&connection, 4096, &[7; 8192]);
        assert_eq!(read_now(&connection, 8192, 4096), [7; 4096]);
        // Programs of one host do not take each other's keys away.
        let other = Volume::connect(&url, &options).unwrap();
        assert_eq!(read_now(&other, 4096, 4096), [7; 4096]);
        let mut inline = InlineVolume::connect(&url, &known.options()).unwrap();
        let request = inline.submit(read(4096, 4096));
        assert_eq!(inline.block_on(request).into_read().unwrap().into_vec(), [7; 4096]);
    }
}

/// Data over TLS was copied out of its records on both sides. Now most records are opened in the buffer where their data belongs,
/// whatever else is in the stream and wherever records are cut.
#[test]
fn data_over_tls_is_opened_where_it_belongs() {
    let known = Known::new(true);
    let running = target(&[known.spec("ann")]);
    let url = Url { tls: true, ..url(&running) };
    for (round, data_digest) in [false, true].into_iter().enumerate() {
        let volume = Volume::connect(&url, &ConnectOptions { data_digest, ..known.options() }).unwrap();
        let placed = || running.handle().stats().reactors.iter().map(|reactor| reactor.placed_bytes).sum::<u64>();
        let before = placed();
        let mut end = 0;
        let pieces: Vec<_> = [1, 3, 4, 5, 31, 32, 33, 64, 127, 200]
            .map(|blocks| {
                let (at, bytes) = (end, pattern(blocks * 4096, (round + blocks) as u32));
                end += bytes.len();
                (at, bytes)
            })
            .into();
        // All at once, so that headers and data of several are in one record.
        let writes: Vec<_> = pieces.iter().map(|(at, bytes)| volume.submit(write(*at as u64, bytes))).collect();
        for (written, (_, bytes)) in writes.into_iter().zip(&pieces) {
            assert_eq!(block_on(written).into_result().unwrap(), bytes.len() as u64);
        }
        let reads: Vec<_> = pieces.iter().map(|(at, bytes)| volume.submit(read(*at as u64, bytes.len()))).collect();
        for (found, (at, bytes)) in reads.into_iter().zip(&pieces) {
            assert!(block_on(found).into_read().unwrap().into_vec() == *bytes, "{} bytes at {at}", bytes.len());
        }
        let placed = placed() - before;
        assert!(placed > end as u64 / 2, "{placed} of {end} bytes");
    }
}

/// Without proof of the server, anybody in between could make the key, and a channel that is no better than none.
#[test]
fn a_url_that_wants_tls_needs_a_key_with_which_the_server_proves_itself() {
    let known = Known::new(false);
    let running = target(&[known.spec("ann")]);
    let error =
        Volume::connect(&Url { tls: true, ..url(&running) }, &known.options()).expect_err("refused").to_string();
    assert!(error.contains("has no key of TLS"), "{error}");
    // A server that demands a channel gets one: who listens learns nothing.
    let wants = |security: &mut diskside_server::config::Security| security.require = Requirement::Tls;
    let running = start(builder().volume(VolumeSpec::new("data", "mem:4MiB")).host(known.spec("ann")).security(wants));
    let volume = Volume::connect(&url(&running), &known.options()).unwrap();
    assert_eq!(read_now(&volume, 0, 4096), [0; 4096]);
}

/// Listens, and leads every connection to `to`; and everything that is said over them, in both directions.
fn relay(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let all = Arc::clone(&seen);
    std::thread::spawn(move || {
        for from in listener.incoming().map_while(Result::ok) {
            let to = TcpStream::connect(to).unwrap();
            for (mut from, mut to) in
                [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to.try_clone().unwrap(), from)]
            {
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let mut bytes = [0; 16 << 10];
                    while let Ok(len @ 1..) = from.read(&mut bytes) {
                        all.lock().unwrap().extend_from_slice(&bytes[..len]);
                        if to.write_all(&bytes[..len]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, seen)
}

/// The relay between host and server looks at what they say.
#[test]
fn what_is_written_over_such_a_channel_is_not_to_be_read_in_between() {
    let known = Known::new(true);
    let running = target(&[known.spec("ann")]);
    let (relay, seen) = relay(address(&running));
    let url = format!("nvme-tcp+tls://{relay}/{NQN}/1").parse().unwrap();
    let volume = Volume::connect(&url, &known.options()).unwrap();
    write_now(&volume, 0, &b"confidential".repeat(1024)[..8192]);
    assert_eq!(&read_now(&volume, 0, 4096)[..12], b"confidential");
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 16 << 10, "all of it went through here: {}", seen.len());
    let has = |what: &[u8]| seen.windows(what.len()).any(|part| part == what);
    assert!(!has(b"confidential") && has(NQN.as_bytes()), "names are to be seen, data are not");
}

/// Identities have both names in them: the longest are 521 bytes.
#[test]
fn names_of_223_bytes_authenticate_and_come_over_tls() {
    let long = |what: &str| Nqn::new(&format!("{what:x<223}")).unwrap();
    let (subsystem, host) = (long("nqn.2026-11.org.example:target-"), long("nqn.2026-11.org.example:host-"));
    for kind in [Kind::Mutual, Kind::Tls] {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let key = HostKey::new(Some(host.clone()), kind);
        key.write(&file("host")).unwrap();
        let mut spec = HostSpec { name: "long".into(), nqn: host.to_string(), ..HostSpec::default() };
        if let (Some(key), Some(server_key)) = (&key.key, &key.server_key) {
            write_secret(&file("key"), key).unwrap();
            write_secret(&file("server"), server_key).unwrap();
            spec.dhchap_keys = vec![KeyFile::new(file("key"))];
            spec.dhchap_controller_key = Some(KeyFile::new(file("server")));
        }
        if let Some(key) = &key.tls_key {
            diskside_keys::write_tls_secret(&file("tls"), key).unwrap();
            spec.tls_keys = vec![KeyFile::new(file("tls"))];
        }
        let running = start(builder().nqn(subsystem.as_str()).volume(VolumeSpec::new("data", "mem:4MiB")).host(spec));
        let url = Url { subsystem: Some(subsystem.clone()), tls: true, ..url(&running) };
        let volume = Volume::connect(&url, &with_key(&file("host"))).unwrap();
        assert_eq!(read_now(&volume, 0, 4096), [0; 4096]);
    }
}

/// The error of a host with a key of TLS at a server that does this with every connection; and the first byte that the host sent on
/// each.
fn told_of(answer: fn(&mut TcpStream), connect_timeout: Duration) -> (String, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("tls");
    HostKey::new(None, Kind::Tls).write(&key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, (said, heard)) = (common::url_at(listener.local_addr().unwrap()), std::sync::mpsc::channel());
    // It ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // A host that waits longer than it says would be told of a closed connection.
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut first = [0];
            if stream.read_exact(&mut first).is_ok() {
                said.send(first[0]).unwrap();
            }
            answer(&mut stream);
        }
    });
    let options = ConnectOptions { connect_timeout, ..with_key(&key) };
    let error = Volume::connect(&url, &options).expect_err("there is no TLS").to_string();
    (error, heard.try_iter().collect())
}

/// A peer that answers in the server's place would rather not speak TLS. Tests had only servers of ours, which all do.
#[test]
fn a_server_without_tls_is_told_nothing_by_a_host_that_must_have_it() {
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Bytes that an answer begins with, and nothing after them until the host goes.
    fn say(stream: &mut TcpStream, bytes: &[u8]) {
        // A host that goes early may reset the connection.
        let _ = stream.write_all(bytes);
        let _ = std::io::copy(stream, &mut std::io::sink());
    }
    let closed = "the server closed the connection while the secure channel was made";
    // At once, which resets the connection; and after the host's first record.
    let at_once: [fn(&mut TcpStream); 2] = [
        |_| {},
        |stream| {
            let mut head = [0; 4];
            stream.read_exact(&mut head).unwrap();
            stream.read_exact(&mut vec![0; u16::from_be_bytes([head[2], head[3]]).into()]).unwrap();
        },
    ];
    for answer in at_once {
        let (error, said) = told_of(answer, PATIENCE);
        assert!(error.contains(closed), "{error}");
        assert_eq!(said, [22; 4], "with each identity of the key, and in no other way");
    }
    // NVMe/TCP in the clear, another service, and what is as good as random.
    let plain: [fn(&mut TcpStream); 4] = [
        |stream| say(stream, IcResp::new(false, false, 1 << 20).as_bytes()),
        |stream| say(stream, &[3, 0, 24, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        |stream| say(stream, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        |stream| say(stream, &[0xff]),
    ];
    for answer in plain {
        let (error, said) = told_of(answer, PATIENCE);
        assert!(error.contains("the server does not speak TLS") && error.contains("--key none"), "{error}");
        assert_eq!(said, [22], "once");
    }
    // An answer that begins as TLS does, and is none; and a server of TLS that takes no such keys.
    let (error, said) = told_of(|stream| say(stream, b"\x16\x03\x03\0\x05hello"), PATIENCE);
    assert!(error.contains("the secure channel cannot be made: "), "{error}");
    assert_eq!(said, [22]);
    let (error, said) = told_of(|stream| say(stream, &[21, 3, 3, 0, 2, 2, 40]), PATIENCE);
    assert!(error.contains("the server refused the secure channel (handshake_failure)"), "{error}");
    assert_eq!(said, [22; 4]);
}

/// A server that takes the connection and is silent is given up as one in the clear is, with what may be the reason.
#[test]
fn a_server_that_is_silent_while_the_channel_is_made_is_given_up_in_time() {
    let until_it_goes = |stream: &mut TcpStream| drop(std::io::copy(stream, &mut std::io::sink()));
    let (error, _) = told_of(until_it_goes, Duration::from_millis(100));
    assert!(error.contains("did not answer while the secure channel was made"), "{error}");
    // One byte after the other, and never a whole record.
    let slow = |stream: &mut TcpStream| {
        let _ = stream.write_all(&[22, 3, 3, 0x40, 0]);
        while stream.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let (error, _) = told_of(slow, Duration::from_millis(100));
    assert!(error.contains("did not answer while the secure channel was made"), "{error}");
}
