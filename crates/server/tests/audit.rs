//! The audit file: who came, who was refused, what was loaded, run and changed; whole lines, for hosts and for strangers.

#[path = "compute/client.rs"]
#[allow(dead_code, reason = "each test is a crate of its own and uses its part")]
mod client;
mod common;
#[path = "support/sealed.rs"]
mod sealed;

use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, locally, object};
use common::{Controller, Queue, builder, pattern};
use diskside_keys::write_tls_secret;
use diskside_nvme::auth::{Derivation, Hash, IdentityVersion, Names, TlsSecret};
use diskside_nvme::wire::{CONTROLLER_ID_DYNAMIC, IcReq};
use diskside_nvme::{Nqn, Status};
use diskside_server::config::{HostSpec, KeyFile, Requirement, ServeConfig, Settings, VolumeSpec};
use diskside_wire::file::{FileFlags, FileRequest, OpenedFile};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest};
use rustix::io::Errno;
use sealed::Sealed;
use serde_json::Value;
use zerocopy::{FromBytes as _, IntoBytes as _};

const ANN: &str = "nqn.2026-11.org.example:ann";
const STRANGER: &str = "nqn.2026-11.org.example:stranger";

fn config(grants: &str) -> ServeConfig {
    let text = format!(
        "[[host]]\nname = 'ann'\nnqn = '{ANN}'\n[[volume]]\nname = 'data'\npath = 'mem:1MiB'\nrw = true\n{grants}"
    );
    ServeConfig::resolve(Settings::from_toml(&text, "a test").unwrap()).unwrap()
}

/// The same, told in this file.
fn telling(path: &Path, grants: &str) -> ServeConfig {
    let mut config = config(grants);
    config.security.audit = Some(path.to_owned());
    config
}

/// The lines, once there are so many of this event.
fn lines(path: &Path, event: &str, count: usize) -> Vec<Value> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let all: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let found: Vec<_> = all.into_iter().filter(|line| line["event"] == event).collect();
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < until, "{count} of {event}: {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_hosts_do_is_told_by_name_and_strangers_have_few_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let all = "[[grant]]\nto = ['ann']\nvolumes = { data = 'rw' }\nfunctions = ['any']\n";
    let start = config(all);
    let mut builder = builder().security(|security| security.audit = Some(path.clone()));
    builder = builder.host(start.known_hosts[0].clone()).grant(start.grants[0].clone());
    let running = client::start(builder.volume(start.volumes[0].clone()));

    let mut ann = Client::connect_as(&running, ANN);
    let connected = &lines(&path, "connect", 1)[0];
    assert_eq!((&connected["host"], &connected["principal"]), (&ANN.into(), &"ann".into()));
    assert_eq!(
        (&connected["authenticated"], &connected["queue"], &connected["v"]),
        (&false.into(), &0.into(), &1.into())
    );
    assert!(connected["peer"].as_str().unwrap().starts_with("127.0.0.1:") && connected["t_ms"].as_u64().unwrap() > 0);

    // A refused host leaves a line, and a thousand times refused it leaves ten.
    for _ in 0..200 {
        assert_eq!(
            Controller::connect_as(running.handle(), STRANGER, 0).err(),
            Some(Status::CONNECT_INVALID_HOST.dnr())
        );
    }
    let refused = lines(&path, "connect.refused", 10);
    assert_eq!((refused.len(), &refused[0]["host"]), (10, &STRANGER.into()));
    assert!(running.handle().stats().audit_lines_left_out >= 190);

    // Programs: loaded, run, refused.
    let bytes = pattern(4096, 1);
    ann.fill(&bytes);
    let request = ann.over("stats64", &[], 4096);
    assert_eq!(ann.result(&request), locally("stats64", &[], &bytes));
    let ran = &lines(&path, "program.run", 1)[0]["program"];
    assert_eq!((&ran["function"], &ran["bytes"]), (&"stats64".into(), &4096.into()));
    assert_eq!(ran["sha256"].as_str().map(str::len), Some(64));
    ann.load(200, object("wc")).ok();
    let loaded = &lines(&path, "program.load", 1)[0];
    assert_eq!((&loaded["principal"], &loaded["program"]["bytes"]), (&"ann".into(), &object("wc").len().into()));
    assert_eq!(loaded["reason"], Value::Null);
    let other = format!("[[grant]]\nto = ['ann']\nfunctions = ['sha256:{}']\n", "00".repeat(32));
    running.handle().reload_hosts(&telling(&path, &other)).unwrap();
    lines(&path, "reload", 1);
    ann.load(201, object("grep")).fails_with(Status::OPERATION_DENIED.dnr());
    let refused = &lines(&path, "program.load", 2)[1];
    let sha256 = refused["program"]["sha256"].as_str().unwrap();
    let reason =
        format!("this host may not run this program; a [[grant]] with functions = [\"sha256:{sha256}\"] would let it");
    assert_eq!(refused["reason"], reason);

    // A reload makes the file again that was moved away.
    let old = directory.path().join("audit.jsonl.1");
    std::fs::rename(&path, &old).unwrap();
    running.handle().reload_hosts(&telling(&path, &other)).unwrap();
    lines(&path, "reload", 1);

    // Another file than before was not noticed.
    let next = directory.path().join("next.jsonl");
    running.handle().reload_hosts(&telling(&next, &other)).unwrap();
    lines(&next, "reload", 1);
    lines(&path, "reload", 2);
    drop(ann);
    assert_eq!(lines(&next, "disconnect", 1)[0]["host"], ANN);
    let nowhere = directory.path().join("missing/audit.jsonl");
    let error = running.handle().reload_hosts(&telling(&nowhere, "")).unwrap_err().to_string();
    assert!(error.contains("missing/audit.jsonl: No such file"), "{error}");
}

#[test]
fn what_is_beyond_a_quota_leaves_a_few_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let start = config("[[quota]]\nof = ['ann']\nprograms = 1\n");
    let mut builder = builder().security(|security| security.audit = Some(path.clone()));
    builder = builder.host(start.known_hosts[0].clone()).quota(start.quotas[0].clone());
    let running = client::start(builder.volume(start.volumes[0].clone()));
    let mut ann = Client::connect_as(&running, ANN);
    ann.load(200, object("wc")).ok();
    for _ in 0..50 {
        ann.load(201, object("wc")).fails_with(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr());
    }
    let told = lines(&path, "quota", 10);
    assert_eq!((&told[0]["host"], &told[0]["principal"]), (&ANN.into(), &"ann".into()));
    assert_eq!(told[0]["reason"], "programs: it may have 1, and wanted more");
    assert_eq!(lines(&path, "program.load", 51).len(), 51, "each is told as what it is");
    assert_eq!((lines(&path, "quota", 10).len(), running.handle().stats().audit_lines_left_out), (10, 40));
}

/// Loads that were refused before their object was read left no line, and neither did calls of a prepared request; the
/// line of an Execute Program said that it had read nothing. A host that tried one volume after the other, and to write
/// what it may only read, left no line: only connections and programs did.
#[test]
fn what_a_host_has_no_right_to_leaves_a_few_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let start = config("[[grant]]\nto = ['ann']\nvolumes = { data = 'r' }\nfunctions = ['shipped:wc']\n");
    let mut builder = builder().security(|security| security.audit = Some(path.clone()));
    builder = builder.host(start.known_hosts[0].clone()).grant(start.grants[0].clone());
    let hidden = VolumeSpec { name: "hidden".into(), nsid: Some(7), ..start.volumes[0].clone() };
    let running = client::start(builder.volume(start.volumes[0].clone()).volume(hidden));
    let mut ann = Client::connect_as(&running, ANN);
    let told = |count: usize| lines(&path, "deny", count)[count - 1]["reason"].as_str().unwrap().to_owned();

    ann.queue.read(7, 0, 1).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    assert_eq!(told(1), "to use volume hidden");
    ann.queue.write(1, 0, &pattern(4096, 1)).fails_with(Status::NAMESPACE_WRITE_PROTECTED.dnr());
    assert_eq!(told(2), "to use volume data");
    let over = |nsid| vec![Endpoint::new(EndpointKind::Volume(nsid), 0, 4096)];
    let request = FunctionRequest { sources: over(7), ..ann.over("wc", &[], 4096) };
    let never = "there is no volume with namespace ID 7";
    ann.is_refused(FunctionKind::Read, &request, Status::NAMESPACE_NOT_REACHABLE.dnr(), never);
    assert_eq!(told(3), "to read volume hidden");
    let pind = Client::connect_loop(&running).pind("stats64");
    let request = FunctionRequest { pind, ..ann.over("wc", &[], 4096) };
    ann.is_refused(FunctionKind::Read, &request, Status::NO_PROGRAM.dnr(), "");
    assert!(told(4).starts_with(&format!("to run program {pind}, sha256:")), "{}", told(4));
    // A volume that never was is not a denial, and a host that tries on has ten lines a minute.
    ann.queue.read(9, 0, 1).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    for _ in 0..50 {
        ann.queue.read(7, 0, 1).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    }
    assert_eq!((lines(&path, "deny", 10).len(), running.handle().stats().audit_lines_left_out), (10, 44));
}

/// One program that was refused left six lines, five of them without a reason: a host tries indexes until one is free.
#[test]
fn an_index_that_is_taken_is_no_refusal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let rule = format!("sha256:{}", "0".repeat(64));
    let start = config(&format!("[[grant]]\nto = ['ann']\nvolumes = {{ data = 'rw' }}\nfunctions = ['{rule}']\n"));
    let mut builder = builder().security(|security| security.audit = Some(path.clone()));
    builder = builder.host(start.known_hosts[0].clone()).grant(start.grants[0].clone());
    let running = client::start(builder.volume(start.volumes[0].clone()));
    let mut ann = Client::connect_as(&running, ANN);
    let shipped = Client::connect_loop(&running).pind("wc");
    ann.load(shipped, object("wc")).fails_with(Status::PROGRAM_INDEX_NOT_DOWNLOADABLE.dnr());
    ann.load(200, object("wc")).fails_with(Status::OPERATION_DENIED.dnr());
    let refused = &lines(&path, "program.load", 1)[0];
    let sha256 = refused["program"]["sha256"].as_str().unwrap();
    let reason =
        format!("this host may not run this program; a [[grant]] with functions = [\"sha256:{sha256}\"] would let it");
    assert_eq!(refused["reason"], reason);
}

/// Exports were in no test of this: those that a host may not use, those that it may only read, and files that it had open when
/// its rights were taken away, of which reads left no line.
#[test]
fn exports_to_which_a_host_has_no_right_leave_a_line_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let exports = ["data", "hidden"].map(|name| {
        let root = directory.path().join(name);
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("f"), "one").unwrap();
        format!("[[export]]\nname = '{name}'\npath = '{}'\nrw = true\n", root.display())
    });
    let grants = |mode: &str| exports.concat() + &format!("[[grant]]\nto = ['ann']\nexports = {{ {mode} }}\n");
    let start = config(&grants("data = 'r'"));
    let mut builder = builder().security(|security| security.audit = Some(path.clone()));
    builder = builder.host(start.known_hosts[0].clone()).grant(start.grants[0].clone());
    let running = client::start(start.exports.iter().cloned().fold(builder, diskside_server::TargetBuilder::export));
    let mut ann = Client::connect_as(&running, ANN);
    let mut ask = |request: FileRequest<'_>| {
        let args = request.to_bytes();
        let (result, trailer) = ann.run(&FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) });
        (result, -trailer.returned)
    };
    let mut count = 0;
    let mut told = |what: &str| {
        count += 1;
        let line = &lines(&path, "deny", count)[count - 1];
        assert_eq!((&line["host"], &line["principal"], &line["reason"]), (&ANN.into(), &"ann".into(), &what.into()));
    };
    let lookup = |path, flags| FileRequest::Lookup { dir: None, path, flags };
    let [noent, rofs, stale] = [Errno::NOENT, Errno::ROFS, Errno::STALE].map(|errno| i64::from(errno.raw_os_error()));

    // What was never there is not a denial.
    assert_eq!(ask(lookup(b"never/f", FileFlags::READ)).1, noent);
    assert_eq!(ask(lookup(b"hidden/f", FileFlags::READ)).1, noent);
    told("to use export hidden");
    let mode = 0o600;
    assert_eq!(ask(FileRequest::Create { dir: None, path: b"hidden/g", mode, flags: FileFlags::READ_WRITE }).1, noent);
    told("to use export hidden");
    assert_eq!(ask(FileRequest::Create { dir: None, path: b"data/g", mode, flags: FileFlags::READ_WRITE }).1, rofs);
    told("to change export data");
    assert_eq!(ask(lookup(b"data/f", FileFlags::READ_WRITE)).1, rofs);
    told("to change export data");

    // A file that stays open while rights are taken away.
    running.handle().reload_hosts(&telling(&path, &grants("data = 'rw'"))).unwrap();
    let (opened, _) = ask(lookup(b"data/f", FileFlags::READ_WRITE));
    let file = OpenedFile::read_from_bytes(&opened).unwrap().handle();
    let write = FileRequest::Write { file, offset: 0, data: b"two", flags: FileFlags::NONE };
    let read = FileRequest::Read { file, offset: 0, len: 3 };
    assert_eq!(ask(write).1, -3);
    running.handle().reload_hosts(&telling(&path, &grants("data = 'r'"))).unwrap();
    assert_eq!(ask(read), (b"two".to_vec(), -3));
    assert_eq!(ask(write).1, rofs);
    told("to change export data");
    running.handle().reload_hosts(&telling(&path, &grants("hidden = 'r'"))).unwrap();
    assert_eq!(ask(read).1, stale);
    told("to use export data");
    assert_eq!(ask(FileRequest::Close { file }).1, 0);
    assert_eq!(ask(read).1, stale);
    drop(running);
    assert_eq!(lines(&path, "deny", count).len(), count, "a handle that is closed is none of an export");
}

#[test]
fn what_is_refused_and_what_was_prepared_is_told_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let start =
        config("[[grant]]\nto = ['ann']\nvolumes = { data = 'rw' }\nfunctions = ['shipped:*']\nmemory = 'own'\n");
    let mut builder = builder().security(|security| security.audit = Some(path.clone()));
    builder = builder.host(start.known_hosts[0].clone()).grant(start.grants[0].clone());
    let running = client::start(builder.volume(start.volumes[0].clone()));
    let mut ann = Client::connect_as(&running, ANN);

    ann.load(200, object("wc")).fails_with(Status::OPERATION_DENIED.dnr());
    let refused = &lines(&path, "program.load", 1)[0];
    assert!(
        refused["reason"].as_str().is_some_and(|why| why.starts_with("this host may load no programs")),
        "{refused}"
    );
    assert_eq!(
        (&refused["program"]["bytes"], &refused["program"]["sha256"]),
        (&object("wc").len().into(), &Value::Null)
    );

    let bytes = pattern(4096, 1);
    ann.fill(&bytes);
    let request = ann.over("stats64", &[], 4096);
    let handle = ann.prepare(&request);
    let expected = locally("stats64", &[], &bytes);
    for _ in 0..50 {
        assert_eq!(ann.call(handle, &[], expected.len() as u32).ok(), expected);
    }
    let first = &lines(&path, "program.run", 1)[0]["program"];
    assert_eq!((&first["calls"], &first["bytes"], &first["function"]), (&1.into(), &4096.into(), &"stats64".into()));
    drop(ann);
    let rest = &lines(&path, "program.run", 2)[1];
    let program = &rest["program"];
    assert_eq!(
        (&rest["principal"], &program["calls"], &program["bytes"]),
        (&"ann".into(), &49.into(), &(49 * 4096).into())
    );
}

/// A host that was refused while the secure channel was made left no line, and one that had proved its identity with it
/// was nobody in particular in the file. Neither was one with another key, if its identity had a digest of that.
#[test]
fn hosts_of_tls_are_told_with_what_they_proved_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let (path, key) = (directory.path().join("audit.jsonl"), directory.path().join("ann"));
    let secret = TlsSecret::new(&[7; 32], Some(Hash::Sha256)).unwrap();
    write_tls_secret(&key, &secret).unwrap();
    let ann =
        HostSpec { name: "ann".into(), nqn: ANN.into(), tls_keys: vec![KeyFile::new(&key)], ..HostSpec::default() };
    let mut builder = builder().host(ann).volume(VolumeSpec::new("data", "mem:1MiB"));
    builder = builder.security(|security| {
        security.audit = Some(path.clone());
        security.require = Requirement::Tls;
    });
    let running = client::start(builder);
    let address = running.handle().local_addresses()[0];
    let names = Names { host: Nqn::new(ANN).unwrap(), subsystem: Nqn::new(common::NQN).unwrap() };

    let psk = |secret: &TlsSecret, version| secret.psk(&names, version, Derivation::Standard).unwrap();
    let other = TlsSecret::new(&[8; 32], Some(Hash::Sha256)).unwrap();
    assert!(Sealed::make(common::tcp(address), psk(&other, IdentityVersion::V1)).is_none());
    assert!(Sealed::make(common::tcp(address), psk(&other, IdentityVersion::V0)).is_none());
    let mut plain = common::tcp(address);
    plain.write_all(IcReq::new(false, false).as_bytes()).unwrap();
    assert_eq!(plain.read(&mut [0; 8]).unwrap(), 0);
    let refused = lines(&path, "auth.fail", 3);
    let reason = |index: usize| refused[index]["reason"].as_str().unwrap();
    assert!(reason(0).contains("it has another key than is kept for nqn."), "{}", reason(0));
    assert!(reason(1).contains("it has another key"), "{}", reason(1));
    for line in &refused[..2] {
        assert_eq!((&line["host"], &line["principal"]), (&ANN.into(), &"ann".into()));
    }
    assert!(reason(2).contains("does not speak TLS"), "{}", reason(2));
    assert!(refused.iter().all(|line| line["peer"].as_str().unwrap().starts_with("127.0.0.1:")));

    let sealed = Sealed::make(common::tcp(address), psk(&secret, IdentityVersion::V1)).unwrap();
    let mut queue = Queue::negotiate(Box::new(sealed)).unwrap();
    queue.connect(common::NQN, ANN, 0, 32, CONTROLLER_ID_DYNAMIC, 0).unwrap();
    let connected = &lines(&path, "connect", 1)[0];
    assert_eq!((&connected["host"], &connected["authenticated"]), (&ANN.into(), &true.into()));
    drop(queue);
    assert_eq!(lines(&path, "disconnect", 1)[0]["host"], ANN);
    let text = std::fs::read_to_string(&path).unwrap();
    let key = std::fs::read_to_string(&key).unwrap();
    assert!(!text.contains(key.trim()) && !text.contains(key.split(':').nth(2).unwrap()), "a key is in no line");
}
