//! Scans, as far as the server does them: what starts the process, and gives it its turns.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::client::{Client, start};
use crate::common::builder;
use diskside_scan::{Plan, SCAN_NAME, SCAN_PIND};
use diskside_server::config::{ExportSpec, ServeConfig, Settings};
use diskside_wire::file::{FileFlags, FileHandle};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, ProgramEntry, program_state};

/// Tells of two pieces of result, each of which is as long as is made before a host asks, and then computes without end.
const COMPUTES: &str = r"#!/bin/sh
command -p head -c 1 >/dev/null
for piece in 1 2; do
    printf '\021\0\0\0\0\0\020\0'
    command -p head -c 1048576 /dev/zero
done
while :; do :; done
";
const ANN: &str = "nqn.2026-11.org.example:ann";
const NAME: &str = "endless-scan";
/// Tells a process that it is the server, with that program.
const VARIABLE: &str = "DISKSIDE_TEST_SCANS";

/// While a host did not read the result of its scan, the process computed without a turn: many scans whose results were read slowly had
/// all processors, however small the share of their host.
#[test]
fn a_scan_whose_host_reads_slowly_stands_still() {
    if std::env::var_os(VARIABLE).is_some() {
        return read_slowly();
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join(NAME);
    let text = directory.path().join("text");
    std::fs::write(&text, COMPUTES).unwrap();
    // A file that this process writes may be held open for writing by one that another test starts: then it is not run.
    let installed = Command::new("install").args(["-m", "700"]).args([&text, &program]).status().unwrap();
    assert!(installed.success());
    again("a_scan_whose_host_reads_slowly_stands_still", &program);
}

/// Runs a test of this file in a process of its own, with that program, which is found by a variable: a process with threads does not
/// change one.
fn again(test: &str, program: &Path) {
    let mut inside = Command::new(std::env::current_exe().unwrap());
    inside.args(["--exact", &format!("scans::{test}")]).env(VARIABLE, "1").env("DISKSIDE_SCAN", program);
    let output = inside.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

/// Nobody could ask whether a server scans, short of having it try.
#[test]
fn a_host_that_may_scan_sees_so() {
    if std::env::var_os(VARIABLE).is_none() {
        // The second one disables scans.
        ["/bin/true", ""].iter().for_each(|program| again("a_host_that_may_scan_sees_so", Path::new(program)));
        return;
    }
    let has_program = std::env::var_os("DISKSIDE_SCAN").is_some_and(|program| !program.is_empty());
    let of_service = |client: &mut Client| {
        let programs = client.programs();
        let known = |entry: &ProgramEntry| (entry.pind.get(), entry.state, entry.functions.get(), entry.len.get());
        programs.iter().find(|entry| entry.name() == SCAN_NAME).map(known)
    };
    let state = program_state::DEVICE_DEFINED | program_state::ACTIVE;
    let running = start(builder());
    let found = of_service(&mut Client::connect(&running));
    assert_eq!(found, has_program.then_some((SCAN_PIND, state, 1, 0)));
    for (grant, may_scan) in [("shipped:scan", true), ("shipped:wc", false)] {
        let text = format!("[[host]]\nname = 'ann'\nnqn = '{ANN}'\n[[grant]]\nto = ['ann']\nfunctions = ['{grant}']\n");
        let config = ServeConfig::resolve(Settings::from_toml(&text, "a test").unwrap()).unwrap();
        let host = builder().host(config.known_hosts[0].clone());
        let running = start(host.grant(config.grants[0].clone()));
        let found = of_service(&mut Client::connect_as(&running, ANN));
        assert_eq!(found.is_some(), has_program && may_scan, "{grant}");
    }
}

fn read_slowly() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("table"), "a,b\n").unwrap();
    let running = start(builder().export(ExportSpec::new("data", directory.path())));
    let mut client = Client::connect(&running);
    let file = client.open("data/table", FileFlags::READ);
    let tag = client.tag();
    client.send(tag, &scan(file)).ok();
    // Between its turns it stands still for a moment, too.
    let looks = || (0..50).inspect(|_| sleep(Duration::from_millis(1)));
    until("it stands still", || looks().all(|_| state() == Some('T')));
    for read in 0..8 {
        client.receive(tag, read * (256 << 10), 256 << 10, 10_000);
    }
    until("it has its turn", || state() == Some('R'));
}

fn scan(file: FileHandle) -> FunctionRequest {
    let source = Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) };
    let args = Plan::default().to_bytes();
    FunctionRequest { args, sources: vec![source], ..FunctionRequest::new(FunctionKind::Read, SCAN_PIND) }
}

/// The kernel's letter for whether the process runs, sleeps or is stopped.
fn state() -> Option<char> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    lines.find_map(|stat| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse::<u32>().ok()?);
        (name == NAME && parent == std::process::id()).then_some(state)
    })
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: {:?}", state());
        sleep(Duration::from_millis(1));
    }
}
