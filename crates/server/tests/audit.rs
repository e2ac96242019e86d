//! The audit file: who came, who was refused, what was loaded, run and changed; whole lines, for hosts and for strangers.

#[path = "compute/client.rs"]
#[allow(dead_code, reason = "each test is a crate of its own and uses its part")]
mod client;
mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, locally, object};
use common::{Controller, builder, pattern};
use diskside_nvme::Status;
use diskside_server::config::{ServeConfig, Settings};
use serde_json::Value;

const ANN: &str = "nqn.2026-11.org.example:ann";
const STRANGER: &str = "nqn.2026-11.org.example:stranger";

fn config(grants: &str) -> ServeConfig {
    let text = format!(
        "[[host]]\nname = 'ann'\nnqn = '{ANN}'\n[[volume]]\nname = 'data'\npath = 'mem:1MiB'\nrw = true\n{grants}"
    );
    ServeConfig::resolve(Settings::from_toml(&text, "a test").unwrap()).unwrap()
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
    running.handle().reload_hosts(&config(&other)).unwrap();
    lines(&path, "reload", 1);
    ann.load(201, object("grep")).fails_with(Status::OPERATION_DENIED.dnr());
    assert_eq!(lines(&path, "program.load", 2)[1]["reason"], "this host may not run this program");

    // The file that was moved away is made anew by a reload.
    let old = directory.path().join("audit.jsonl.1");
    std::fs::rename(&path, &old).unwrap();
    running.handle().reload_hosts(&config(&other)).unwrap();
    lines(&path, "reload", 1);
    drop(ann);
    assert_eq!(lines(&path, "disconnect", 1)[0]["host"], ANN);
}
