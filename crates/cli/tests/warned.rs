//! An operator is told what a server does not do as meant: settings without an effect, disks that fail, files that are gone.

mod common;

use std::process::Command;

use common::place::{Logged, Place, serve};
use common::{diskside, good, until};
use rustix::process::Signal;

/// A processor that the process may not use was found out by the server alone, once it had been stopped for its new configuration.
#[test]
fn the_processors_of_a_configuration_are_checked_as_the_process_may_use_them() {
    let place = Place::new();
    let cpus = std::fs::read_to_string("/proc/self/status").expect("text");
    let allowed = cpus.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("it says so").trim();
    let numbers = allowed.split([',', '-']).map(|number| number.parse::<usize>().expect("a number"));
    let (first, last) = (numbers.clone().min().expect("one"), numbers.max().expect("one"));
    let checked_on = |core: usize| {
        let mut command = Command::new("taskset");
        command.args(["-c", &first.to_string(), env!("CARGO_BIN_EXE_diskside"), "check-config", place.config()]);
        place.write(&format!("reactors = 1\ncores = [{core}]\n{}", place.export("one")));
        let output = command.output().expect("taskset is everywhere");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(checked_on(first), (Some(0), String::new()));
    let told = format!("cores: this machine has no processor {last}, or this process may not use it");
    let (code, said) = checked_on(last);
    assert!(first == last || code == Some(2) && said.contains(&told), "{said}");
}

/// The threads that compute began with the processor of the reactor that started them: with `cores`, all functions ran on the reactors'
/// processors, which those were to have for themselves.
#[test]
fn functions_run_on_other_processors_than_pinned_reactors() {
    let place = Place::new();
    let allowed = |status: &str| {
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.expect("it says so").trim().to_owned()
    };
    let all = allowed(&std::fs::read_to_string("/proc/self/status").expect("text"));
    let first = all.split([',', '-']).next().expect("one").to_owned();
    if all == first {
        return eprintln!("not tested: this process may use one processor");
    }
    place.write(&format!("reactors = 1\ncores = [{first}]\n{}", place.export("one")));
    let server = Logged::start(&place, &mut serve(place.config()));
    good(&["run", "wc", &format!("{}/one/f", server.target), "--where", "device"]);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process.0.id())).expect("its threads");
    let of_thread = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.expect("a thread").path();
        let read = |name| std::fs::read_to_string(path.join(name)).expect("text");
        (read("comm").trim().to_owned(), allowed(&read("status")))
    };
    let threads: Vec<(String, String)> = tasks.map(of_thread).collect();
    let of =
        |name: &str| threads.iter().filter(|(own, _)| own == name).map(|(_, cpus)| cpus.as_str()).collect::<Vec<_>>();
    assert_eq!(of("diskside-0"), [first.as_str()]);
    let engines = of("engine");
    let is_first = |cpus: &&str| cpus.split([',', '-']).next() == Some(&first);
    assert!(!engines.is_empty() && !engines.iter().any(is_first), "{threads:?}");
}

/// A file gave a path another state while `--listen` was given, and nothing said that this has no effect.
#[test]
fn a_server_says_that_its_command_line_takes_the_place_of_the_file_s_paths() {
    let place = Place::new();
    place.write(&place.export("one"));
    let overridden =
        "listen: --listen takes the place of the file's, whose addresses and states of paths have no effect";
    let mut command = serve(place.config());
    let server = Logged::start(&place, command.args(["--listen", "127.0.0.1:0,path=non-optimized"]));
    let lines = || {
        let log = std::fs::read_to_string(&server.log).expect("text");
        log.lines().filter(|line| line.contains(overridden)).count()
    };
    assert_eq!(lines(), 1, "at the start");
    server.process.signal(Signal::HUP);
    server.says("the configuration was read again");
    until("and at each reload", || lines() == 2);
    drop(server);
    // Not where the file says nothing of it, and not where the command line does not.
    std::fs::write(&place.file, place.export("one")).expect("written");
    let mut command = serve(place.config());
    let server = Logged::start(&place, command.args(["--listen", "127.0.0.1:0"]));
    server.process.signal(Signal::HUP);
    server.says("the configuration was read again");
    assert!(!std::fs::read_to_string(&server.log).expect("text").contains("--listen"));
}

/// An image was removed while it was served: everything went well until the server ended, and then all of it was gone.
#[test]
fn a_reload_tells_of_volumes_whose_file_was_removed() {
    let place = Place::new();
    let image = place.dir.path().join("image");
    let volume = format!("[[volume]]\nname = \"disk\"\npath = \"{}\"\nrw = true\nsize = \"1MiB\"\n", image.display());
    place.write(&format!("{}{volume}", place.export("one")));
    let server = Logged::start(&place, &mut serve(place.config()));
    let told = "volume `disk`: its file was removed: all that hosts write is lost when the server ends";
    server.process.signal(Signal::HUP);
    server.says("the configuration was read again");
    assert!(!std::fs::read_to_string(&server.log).expect("text").contains(told), "it is there");
    std::fs::remove_file(&image).expect("it was there");
    server.process.signal(Signal::HUP);
    server.says(told);
}

/// A disk that failed left no line in the log, and later one for each command: both hid it.
#[test]
fn the_log_tells_of_a_failed_disk_once_with_the_volume_and_the_error() {
    let place = Place::new();
    let image = place.dir.path().join("image");
    let volume = format!("[[volume]]\nname = \"disk\"\npath = \"{}\"\nrw = true\nsize = \"1MiB\"\n", image.display());
    place.write(&format!("nqn = \"nqn.2026-11.org.example:logged\"\n{}{volume}", place.export("one")));
    let server = Logged::start(&place, &mut serve(place.config()));
    let url = format!("{}/nqn.2026-11.org.example:logged/1", server.target.replace("diskside://", "nvme-tcp://"));
    good(&["ping", &url, "-c", "1"]);
    // What a volume was opened with is not there any more.
    std::fs::write(&image, b"").expect("cut");
    let began = std::time::Instant::now();
    let failed = (0..8).filter(|_| diskside(&["ping", &url, "-c", "1"]).0 != 0).count();
    assert_eq!(failed, 8);
    server.says("the volume's medium failed a command");
    let log = std::fs::read_to_string(&server.log).expect("text");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("medium failed a command")).collect();
    assert!(lines[0].contains("disk") && lines[0].contains("Read") && lines[0].contains("error 5"), "{log}");
    // The same once in five seconds.
    assert!(lines.len() as u64 <= 1 + began.elapsed().as_secs() / 5, "{log}");
}
