//! Commands that steer what they start: interrupt it, put it behind others, choose a policy or a compiler, keep its state.

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Server, diskside, diskside_with_state, good, json, numbers, until};

impl Server {
    /// A function without an end.
    fn spin(&self) -> String {
        let text = "#include \"diskside.h\"\nSEC(\"read/spin\")\n\
            __s64 spin(__u64 *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
            for (volatile __u64 i = 0; i < 1ull << 62; i++) *out = i;\nreturn 8;\n}\n";
        self.file("spin.bpf.c", text.as_bytes()).display().to_string()
    }

    /// Waits until so many engines run a call, and so many calls wait for one.
    fn until_busy(&self, engines: u32, queued: u32) {
        let session = diskside::session::Session::new(diskside::session::SessionOptions::default());
        let url: diskside::ExportUrl = self.url.parse().expect("a URL");
        let compute = session.compute(&url.target()).expect("functions");
        until(&format!("{engines} calls run and {queued} wait"), || {
            let page = compute.statistics().expect("statistics").0;
            (page.engines_busy.get(), page.queued.get()) == (engines, queued)
        });
    }
}

/// A command that runs meanwhile.
fn begin(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    command.args(args).args(["--stateless"]).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("diskside runs")
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
}

/// Exit code and standard error.
fn ended(mut child: Child) -> (Option<i32>, String) {
    until("the command ends", || child.try_wait().expect("a child").is_some());
    let mut said = String::new();
    Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut said).expect("text");
    (child.wait().expect("ended").code(), said)
}

/// Ctrl-C in a command whose function runs at the server stops the function there, and the command says so.
#[test]
fn an_interrupted_run_stops_its_function_wherever_it_runs() {
    let server = Server::start("");
    server.file("n", &numbers(8));
    let (spin, budget) = (server.spin(), u64::MAX.to_string());
    let (remote, local) = (server.at("n"), server.dir.join("n").display().to_string());
    let out = server.dir.join("out");
    for (file, place) in [(&remote, "device"), (&remote, "host"), (&local, "auto")] {
        let to = out.to_str().expect("text");
        let child = begin(&["run", &spin, file, "--where", place, "--budget", &budget, "--out", to]);
        if place == "device" {
            server.until_busy(1, 0);
        }
        // It listens once the file that it writes is there, which has no name yet.
        until("it has begun", || writes_unnamed(child.id(), &server.dir));
        interrupt(&child);
        let (code, said) = ended(child);
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains("cancelled"), "{said}");
        assert!(!out.exists(), "nothing is left behind");
        server.until_busy(0, 0);
    }
}

/// Whether a process has a file open in this directory that has no name.
fn writes_unnamed(process: u32, dir: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    let mut names = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    names.any(|name| name.starts_with(dir) && name.to_string_lossy().ends_with(" (deleted)"))
}

/// One engine, and a call without an end. One in the background waits for it for good, however short it is; a normal one
/// that comes later has its turns.
#[test]
fn a_normal_run_goes_before_one_in_the_background_that_came_first() {
    let server = Server::start_with("", &["--engines", "1"]);
    server.file("n", &numbers(8));
    let (spin, budget, file) = (server.spin(), u64::MAX.to_string(), server.at("n"));
    let holds = begin(&["run", &spin, &file, "--where", "device", "--budget", &budget]);
    server.until_busy(1, 0);
    let mut behind = begin(&["run", "stats64", &file, "--where", "device", "--background"]);
    server.until_busy(1, 1);
    for _ in 0..3 {
        let (code, said) = ended(begin(&["run", "stats64", &file, "--where", "device"]));
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(behind.try_wait().expect("a child"), None, "others go first");
    interrupt(&holds);
    assert_eq!(ended(holds).0, Some(130));
    let (code, said) = ended(behind);
    assert_eq!(code, Some(0), "now it is its turn: {said}");
}

#[test]
fn a_policy_is_chosen_and_decisions_are_counted_over_several_files() {
    let server = Server::start("");
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| drop(server.file(name, &numbers(1000))));
    let files: Vec<String> = names.iter().map(|name| server.at(name)).collect();
    let run = [&["run", "stats64"], &files.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
    let paper = json(&[&run[..], &["--policy", "lambda-io:n=10,k=1"]].concat());
    assert_eq!(paper["decision_counts"]["plans"]["both"], 3, "{}", paper["decision_counts"]);
    assert_eq!(paper["decision_counts"]["reasons"]["profiling"], 3);
    let told = json(&[&run[..], &["--where", "host"]].concat());
    assert_eq!(told["decision_counts"]["total"], 3);
    assert_eq!((&told["decision_counts"]["plans"]["host"], &told["rows"]), (&3.into(), &paper["rows"]));
    let (code, _, said) = diskside(&[&run[..], &["--where", "device", "--explain", "--stats"]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("3 decisions: device 3; told 3"), "{said}");
    assert!(["queue", "wait", "run", "write", "send"].iter().all(|stage| said.contains(stage)), "{said}");
    let (code, _, said) = diskside(&[&run[..], &["--policy", "lambda-io:k=9,n=3"]].concat());
    assert!(code == 2 && said.contains("k is from 1 to n"), "{said}");
}

/// Each command was the first request of its period: `--policy lambda-io` ran on both sides, and fetched the whole
/// file, whatever had been measured. A command continues where the one before it ended.
#[test]
fn a_period_goes_on_from_command_to_command() {
    let server = Server::start("");
    server.file("n", &numbers(1000));
    let file = server.at("n");
    let state = tempfile::tempdir().expect("a directory");
    let plan = |more: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_diskside"))
            .args(["run", "stats64", &file, "--json"])
            .args(more)
            .env("XDG_STATE_HOME", state.path())
            .env("DISKSIDE_POLICY", "lambda-io:n=4,k=2")
            .output()
            .expect("it runs");
        let ran: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        let plans = ran["decision_counts"]["plans"].as_object().expect("plans");
        let used: Vec<&str> = plans.iter().filter(|(_, count)| **count != 0).map(|(plan, _)| plan.as_str()).collect();
        used.join(" ")
    };
    let plans: Vec<String> = (0..8).map(|_| plan(&[])).collect();
    for (request, plan) in plans.iter().enumerate() {
        assert_eq!(plan == "both", request % 4 < 2, "request {request}: {plans:?}");
    }
    assert_eq!(plan(&["--stateless"]), "both", "it remembers nothing");
    assert_eq!(plan(&["--policy", "host"]), "host", "what is said in the command counts");
}

/// The time of a write is shown stage by stage, as the target measured it.
#[test]
fn stages_of_a_write_at_the_device_are_told() {
    let server = Server::start("");
    let input: Vec<u8> = (0..400_000_u32).flat_map(|n| [64, n as u8]).collect();
    server.file("in", &input);
    let ran = json(&["run", "bitmap", &server.at("in"), "--out", &server.at("out")]);
    let part = &ran["parts"][0];
    let ns = |stage: &str| part[stage].as_u64().unwrap_or_else(|| panic!("{stage} in {part}"));
    assert!(ns("write_ns") > 0 && ns("run_ns") > 0 && ns("total_ns") >= ns("write_ns"), "{part}");
    for stage in ["queue_ns", "wait_ns", "run_ns", "write_ns", "send_ns"] {
        assert_eq!(ran["stats"][stage], part[stage], "{stage}: there is one part");
    }
}

/// A user who asks for a compiler that the target lacks gets an error, and not another compiler.
#[test]
fn a_tier_that_the_target_has_not_is_refused() {
    let server = Server::start("");
    server.file("n", &numbers(8));
    let (code, _, said) = diskside(&["run", "stats64", &server.at("n"), "--where", "device", "--tier", "llvm"]);
    assert!(code != 0 && said.to_lowercase().contains("llvm"), "{code}: {said}");
}

#[test]
fn a_named_state_is_kept_from_run_to_run() {
    let server = Server::start("");
    server.file("in", &[1; 24]);
    let source = "#include \"diskside.h\"\nSEC(\"read/count\")\n\
        __s64 count(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        __u64 *runs = DS_STATE(__u64);\nout[0] = ++*runs;\nreturn 8;\n}\n";
    let function = server.file("count.bpf.c", source.as_bytes()).display().to_string();
    let out = server.file("out", b"").display().to_string();
    let input = server.at("in");
    // Another run that stays connected keeps its state: it goes with the host's last connection.
    let both = [&input[..], &input[..], &input[..]];
    let run =
        [&["run", &function[..]], &both[..], &["--state", "runs=64", "--where", "device", "--out", &out]].concat();
    good(&run);
    let mut counts: Vec<u64> = std::fs::read(&out)
        .expect("written")
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("a word")))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3], "three calls of one run");
    let (code, _, said) = diskside(&["run", &function, &input, "--where", "device"]);
    assert_ne!(code, 0);
    assert!(said.contains("count.bpf.c:5"), "{said}");
    for (wrong, told) in [("runs", "a name and a size"), ("=8", "1 to 64 bytes"), ("runs=17MiB", "1 byte to 16MiB")] {
        let (_, _, said) = diskside(&["run", &function, &input, "--state", wrong]);
        assert!(said.contains(told), "{wrong}: {said}");
    }
}

/// A function whose output goes out as it comes was never measured on the host, though each run said that it was.
#[test]
fn the_other_side_of_what_is_streamed_is_measured_too() {
    let server = Server::start("");
    server.file("log", "a line of no interest\n".repeat(2_000_000).as_bytes());
    server.file("few", b"a line\n");
    let state = tempfile::tempdir().expect("a directory");
    let path = state.path().to_str().expect("text");
    let (log, few) = (server.at("log"), server.at("few"));
    let explained = |file: &str| {
        let args = ["run", "grep", file, "--arg", "pattern=ERROR", "--explain"];
        let (code, _, said) = diskside_with_state(path, &args);
        assert_eq!(code, 0, "{said}");
        said
    };
    // What a few bytes take says nothing of many.
    explained(&few);
    let first = explained(&log);
    assert!(first.contains("one side is not measured yet"), "{first}");
    until("both sides are known", || !explained(&log).contains("one side is not measured yet"));
}
