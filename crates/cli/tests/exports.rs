//! Commands against a real server process: files of exports, and functions over them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server of one directory, as `data`.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
    url: String,
}

impl Server {
    fn start(extra: &str) -> Self {
        Self::start_with(extra, &[])
    }

    /// With more arguments of the command; it has no LLVM.
    fn start_with(extra: &str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let export = format!("data={}{extra}", dir.path().display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_diskside"))
            .args(["serve", "--listen", "127.0.0.1:0", "--export", &export])
            .args(args)
            .env("DISKSIDE_LLVM", "")
            .stdout(Stdio::piped())
            .spawn()
            .expect("diskside serves");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = said.find_map(|line| line.ok().filter(|line| line.contains("diskside://"))).expect("it says where");
        let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("a URL").to_owned();
        Self { child, dir, url }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    fn target(&self) -> &str {
        self.url.strip_suffix("/data").expect("the export's name")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exit code, standard output, standard error.
fn diskside(args: &[&str]) -> (i32, Vec<u8>, String) {
    // Nothing can be kept there, so no command knows what another one learnt.
    diskside_with_state("/dev/null/none", args)
}

fn diskside_with_state(state: &str, args: &[&str]) -> (i32, Vec<u8>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    let output = command.args(args).env("XDG_STATE_HOME", state).output().expect("diskside runs");
    (
        output.status.code().expect("ended by itself"),
        output.stdout,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn good(args: &[&str]) -> String {
    let (code, out, said) = diskside(args);
    assert_eq!(code, 0, "{args:?}: {said}");
    String::from_utf8(out).expect("text")
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&good(&[args, &["--json"]].concat())).expect("JSON")
}

fn numbers(count: u64) -> Vec<u8> {
    (0..count).flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).to_le_bytes()).collect()
}

fn lines(count: u32, seed: u32) -> String {
    (0..count)
        .map(|n| format!("{} line {n} of {seed}\n", if (n ^ seed).is_multiple_of(7) { "ERROR" } else { "info" }))
        .collect()
}

#[test]
fn a_function_gives_the_same_at_the_device_on_the_host_and_here() {
    let server = Server::start("");
    let local = server.file("n.u64", &numbers(400_000)).display().to_string();
    let remote = server.at("n.u64");
    let here = json(&["run", "stats64", &local]);
    for place in ["device", "host", "auto"] {
        let there = json(&["run", "stats64", &remote, "--where", place]);
        assert_eq!(there["rows"], here["rows"], "--where {place}");
        assert_eq!(there["stats"]["input_bytes"], 3_200_000, "--where {place}");
    }
    let device = json(&["run", "stats64", &remote, "--where", "device"]);
    let received = device["stats"]["received_bytes"].as_u64().expect("a number");
    assert!(received < 1024, "{received} bytes came for a result of 32");
    assert_eq!((&device["parts"][0]["side"], &device["decisions"][0]["reason"]), (&"device".into(), &"told".into()));
    let host = json(&["run", "stats64", &remote, "--where", "host"]);
    assert!(host["stats"]["received_bytes"].as_u64() >= Some(3_200_000), "{host}");
}

#[test]
fn lines_come_in_order_from_either_side_and_go_into_files() {
    let server = Server::start("");
    let text = lines(60_000, 3);
    let local = server.file("log", text.as_bytes()).display().to_string();
    let wanted: String = text.lines().filter(|l| l.contains("ERROR")).map(|l| format!("{l}\n")).collect();
    let arg = ["--arg", "pattern=ERROR", "--chunk", "100KB"];
    assert_eq!(good(&[&["run", "grep", &local], &arg[..]].concat()), wanted);
    for place in ["device", "host", "auto"] {
        let remote = server.at("log");
        let run = [&["run", "grep", &remote, "--where", place], &arg[..]].concat();
        assert_eq!(good(&run), wanted, "--where {place}");
        let out = server.dir.path().join("out").display().to_string();
        good(&[&run[..], &["--out", &out]].concat());
        assert_eq!(std::fs::read_to_string(&out).expect("written"), wanted, "--where {place} --out FILE");
        let url = server.at("found");
        good(&[&run[..], &["--out", &url]].concat());
        let found = server.dir.path().join("found");
        assert_eq!(std::fs::read_to_string(&found).expect("written"), wanted, "--where {place} --out URL");
        assert!(!found.with_added_extension("partial").exists());
    }
}

#[test]
fn files_of_several_servers_are_one_result() {
    let (one, two) = (Server::start(""), Server::start(""));
    let a = one.file("a", lines(1000, 1).as_bytes()).display().to_string();
    let b = two.file("b", lines(2000, 2).as_bytes()).display().to_string();
    let here = json(&["run", "wc", &a, &b]);
    let there = json(&["run", "wc", &one.at("a"), &two.at("b"), &a]);
    let all = json(&["run", "wc", &a, &b, &a]);
    assert_ne!(here["rows"], all["rows"]);
    assert_eq!(there["rows"], all["rows"]);
    assert_eq!(there["decisions"].as_array().map(Vec::len), Some(2), "the local file needs none");
}

#[test]
fn explain_says_where_it_ran_and_why_and_what_moved() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1_000_000));
    let (code, _, said) = diskside(&["run", "stats64", &server.at("n.u64"), "--explain"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("n.u64: device: one side is not measured yet, and the data is here"), "{said}");
    assert!(said.contains("7.6 MiB of data:"), "{said}");
}

/// A command is a process, and `auto` measures: without a memory each would begin by measuring.
#[test]
fn what_a_command_learnt_the_next_one_uses() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1_000_000));
    server.file("other.u64", &numbers(900_000));
    let home = tempfile::tempdir().expect("a temporary directory");
    let state = home.path().join("state").display().to_string();
    let explain = |state: &str, name: &str, more: &[&str]| {
        let url = server.at(name);
        let args = [&["run", "stats64", &url, "--explain"], more].concat();
        let (code, _, said) = diskside_with_state(state, &args);
        assert_eq!(code, 0, "{said}");
        said
    };
    let (unmeasured, recalled) = ("one side is not measured yet", "; as earlier runs measured it)");
    assert!(explain(&state, "n.u64", &["--stateless"]).contains(unmeasured));
    assert!(!Path::new(&state).exists(), "nothing is kept");
    assert!(explain(&state, "n.u64", &[]).contains(unmeasured));
    for name in ["n.u64", "other.u64"] {
        let said = explain(&state, name, &[]);
        assert!(said.contains(recalled) && !said.contains(unmeasured), "{said}");
    }
    assert!(explain(&state, "n.u64", &["--stateless"]).contains(unmeasured));

    let kept: Vec<_> = std::fs::read_dir(home.path().join("state/diskside/learnt")).expect("it is there").collect();
    let [Ok(only)] = &kept[..] else { panic!("one server, one function: {kept:?}") };
    assert!(only.metadata().expect("a file").len() < 4096);
    std::fs::write(only.path(), b"garbage \xff").expect("written");
    assert!(explain(&state, "n.u64", &[]).contains(unmeasured), "garbage is nothing learnt");
    assert!(explain(&state, "n.u64", &[]).contains(recalled), "and is written over");
    assert!(explain("/dev/null/none", "n.u64", &[]).contains("what was measured is not kept"), "which fails nothing");
}

#[test]
fn a_file_of_this_machine_has_no_device() {
    let server = Server::start("");
    let local = server.file("n.u64", &numbers(1000)).display().to_string();
    let remote = server.at("n.u64");
    for files in [vec![&local], vec![&local, &local], vec![&remote, &local]] {
        let files: Vec<&str> = files.into_iter().map(String::as_str).collect();
        let (code, _, said) = diskside(&[&["run", "stats64", "--where", "device"], &files[..]].concat());
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(&format!("{local}: it is on this machine, and no target serves it")), "{said}");
        assert!(said.contains("choose auto or host, or serve its directory"), "{said}");
        good(&[&["run", "stats64", "--where", "host"], &files[..]].concat());
    }
}

/// A result that stays at the server does not travel to the host and back.
#[test]
fn output_at_the_server_is_made_there() {
    let (server, other) = (Server::start(""), Server::start(""));
    let runs: Vec<u8> = (0..60_000_u32).flat_map(|n| [(n % 60) as u8, n as u8]).collect();
    let local = server.file("runs", &runs).display().to_string();
    let text = lines(50_000, 5);
    server.file("log", text.as_bytes());
    let here = server.dir.path().join("here").display().to_string();
    good(&["run", "bitmap", &local, "--out", &here]);
    let wanted = std::fs::read(&here).expect("written");
    let moved = |stats: &serde_json::Value| {
        let bytes = |name: &str| stats["stats"][name].as_u64().expect("a number");
        (bytes("sent_bytes"), bytes("received_bytes"))
    };
    let made = |server: &Server, args: &[&str]| {
        let stats = json(&[args, &["--out", &server.at("made")]].concat());
        let path = server.dir.path().join("made");
        let bytes = std::fs::read(&path).expect("made");
        std::fs::remove_file(path).expect("removed");
        assert!(!server.dir.path().join("made.partial").exists());
        (bytes, moved(&stats), stats)
    };
    for place in ["auto", "device"] {
        let (bytes, (sent, received), stats) = made(&server, &["run", "bitmap", &server.at("runs"), "--where", place]);
        assert!(bytes == wanted, "--where {place}");
        assert!(sent + received < 4096, "{sent} sent, {received} received");
        assert_eq!(stats["decisions"][0]["reason"], "in_place");
    }
    let (bytes, (_, received), _) = made(&server, &["run", "bitmap", &server.at("runs"), "--where", "host"]);
    assert!(bytes == wanted && received >= runs.len() as u64);
    // From this machine the input travels, the output does not.
    let (bytes, (sent, received), _) = made(&server, &["run", "bitmap", &local]);
    assert!(bytes == wanted && sent < runs.len() as u64 + 4096 && received < 4096, "{sent} sent, {received} received");
    // From one server to another it passes through here.
    let (bytes, _, _) = made(&other, &["run", "bitmap", &server.at("runs")]);
    assert!(bytes == wanted);
    // Any function will do, also one whose results fold, and several files.
    let (bytes, moved, _) =
        made(&server, &["run", "grep", &server.at("log"), &server.at("log"), "--arg", "pattern=ERROR"]);
    let found: String = text.lines().filter(|l| l.contains("ERROR")).map(|l| format!("{l}\n")).collect();
    assert!(bytes == found.repeat(2).as_bytes() && moved.0 + moved.1 < 4096, "{moved:?}");
    let (bytes, _, _) = made(&server, &["run", "stats64", &server.at("runs")]);
    let here = json(&["run", "stats64", &local]);
    assert_eq!(u64::from_le_bytes(bytes[..8].try_into().expect("a count")), here["rows"][0]["count"]);
    // What fails leaves nothing.
    let odd = server.file("odd", b"x").display().to_string();
    for file in [&server.at("odd"), &odd] {
        let (code, _, said) = diskside(&["run", "bitmap", file, "--out", &server.at("made")]);
        assert!(code == 1 && said.contains("bitmap"), "{code}: {said}");
        assert!(!server.dir.path().join("made").exists() && !server.dir.path().join("made.partial").exists());
    }
}

#[test]
fn files_are_listed_shown_copied_and_removed() {
    let server = Server::start("");
    std::fs::create_dir(server.dir.path().join("sub")).expect("made");
    let bytes: Vec<u8> = numbers(300_000);
    let source = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(source.path(), &bytes).expect("written");
    let source_path = source.path().display().to_string();
    good(&["cp", &source_path, &server.at("copy"), "--verify"]);
    assert_eq!(std::fs::read(server.dir.path().join("copy")).expect("copied"), bytes);
    good(&["cp", &source_path, &server.at("sub")]);
    let name = source.path().file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(std::fs::read(server.dir.path().join("sub").join(&name)).expect("in the directory").len(), bytes.len());
    let (code, out, said) = diskside(&["cat", &server.at("copy")]);
    assert!(code == 0 && out == bytes, "{said}");
    let back = server.dir.path().join("back").display().to_string();
    good(&["cp", &server.at("copy"), &back]);
    assert_eq!(std::fs::read(&back).expect("copied back"), bytes);

    let listed = json(&["ls", &server.url]);
    let names: Vec<_> = listed["entries"].as_array().expect("a list").iter().map(|e| e["name"].clone()).collect();
    assert_eq!(names, ["back", "copy", "sub"]);
    assert!(good(&["ls", &server.url]).contains("copy"));
    assert_eq!(json(&["ls", server.target()])["exports"][0]["name"], "data");
    let stat = json(&["stat", &server.at("copy")]);
    assert_eq!((&stat["kind"], &stat["size_bytes"]), (&"file".into(), &2_400_000.into()));
    good(&["rm", &server.at("copy")]);
    assert!(!server.dir.path().join("copy").exists());
    good(&["rm", &server.at(&format!("sub/{name}"))]);
    good(&["rm", "--dir", &server.at("sub")]);
    assert!(!server.dir.path().join("sub").exists());
}

/// A container's published port, or `ssh -L`: the target lists its subsystem at a port that its host never saw.
#[test]
fn a_forwarded_port_leads_to_the_files() {
    let server = Server::start("");
    let text = lines(1000, 3);
    server.file("lines.txt", text.as_bytes());
    let target = server.target().strip_prefix("diskside://").expect("a target").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("diskside://{}/data/lines.txt", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let far = TcpStream::connect(&target).expect("the server listens");
            let ends = [&near, &far].map(|end| end.try_clone().expect("an end of it"));
            let [near_too, far_too] = ends;
            std::thread::spawn(move || carry(near, far));
            std::thread::spawn(move || carry(far_too, near_too));
        }
    });
    assert_eq!(good(&["cat", &url]), text);
    assert!(good(&["run", "wc", &url, "--where", "device"]).contains("1000"));
}

/// Carries bytes until an end is closed.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    // However it ended, the other end is to hear of it.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_target_tells_its_functions_and_what_it_did() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1000));
    good(&["run", "stats64", &server.at("n.u64"), "--where", "device"]);
    let functions = json(&["functions", server.target()]);
    let programs = functions["programs"].as_array().expect("a list");
    assert!(programs.iter().any(|p| p["name"] == "stats64" && p["shipped"] == true), "{functions}");
    let top = json(&["top", server.target()]);
    assert!(top["succeeded"].as_u64() >= Some(1), "{top}");
    assert!(good(&["top", server.target()]).contains("engines"));
    server.file("text", b"some text");
    assert_eq!(good(&["cat", &server.at("text")]), "some text");
    let top = json(&["top", server.target()]);
    let entry = |kind: &str, field: &str| {
        let mut entries = top["entries"].as_array().expect("a list").iter();
        entries.find(|entry| entry["kind"] == kind).map(|entry| entry[field].clone())
    };
    assert_eq!(entry("export", "name").expect("an entry"), "data");
    assert_eq!(entry("export", "read_bytes").expect("an entry"), 9, "{top}");
    assert_eq!(entry("export, by functions", "read_bytes").expect("an entry"), 8000, "{top}");
    assert!(good(&["top", server.target()]).contains("export, by functions"));
}

/// A scraper asks, also after others that are none, and hears whether the target is there.
#[test]
fn prometheus_is_told_what_a_target_did() {
    let mut server = Server::start("");
    server.file("n.u64", &numbers(1000));
    good(&["run", "stats64", &server.at("n.u64"), "--where", "device"]);
    let by_functions = r#"diskside_operations_read_bytes_total{kind="export, by functions",id="0",name="data"} 8000"#;
    let once = good(&["metrics", server.target()]);
    assert!(once.contains(by_functions) && once.contains("\ndiskside_calls_succeeded_total 1\n"), "{once}");

    let mut exporter = Command::new(env!("CARGO_BIN_EXE_diskside"))
        .args(["metrics", server.target(), "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .map(KillOnDrop)
        .expect("diskside tells metrics");
    let mut url = String::new();
    BufReader::new(exporter.0.stdout.take().expect("piped")).read_line(&mut url).expect("it says where");
    let address = url.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).expect("a URL");
    let ask = |request: &str| {
        let mut connection = TcpStream::connect(address).expect("it listens");
        connection.write_all(request.as_bytes()).expect("sent");
        let mut reply = String::new();
        connection.read_to_string(&mut reply).expect("text");
        reply
    };
    drop(TcpStream::connect(address).expect("it listens"));
    assert!(ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let scrape = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    let reply = ask(scrape);
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.contains(by_functions), "{reply}");
    assert!(reply.contains("\ndiskside_up 1"), "{reply}");
    server.child.kill().expect("killed");
    server.child.wait().expect("ended");
    assert!(ask(scrape).contains("\ndiskside_up 0"));
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_function_that_fails_at_the_device_names_its_source_line() {
    let server = Server::start("");
    server.file("in", &[0; 64]);
    let source = "#include \"diskside.h\"\nSEC(\"read/f\")\n\
        __s64 f(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        *out = in[in_len / 8];\nreturn 8;\n}\n";
    let function = server.file("f.bpf.c", source.as_bytes()).display().to_string();
    let (code, _, said) = diskside(&["run", &function, &server.at("in"), "--where", "device"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("f.bpf.c:4: *out = in[in_len / 8];"), "{said}");
    assert!(said.contains("out-of-bounds read of 8 bytes of input at offset 64, which is 64 bytes long"), "{said}");
}

#[test]
fn what_is_not_there_or_not_allowed_is_named() {
    let server = Server::start(",ro");
    server.file("in", b"x");
    for (args, wanted_code, wanted) in [
        (vec!["run", "wc", "diskside://127.0.0.1:1/data/x", "--timeout-ms", "500"], 4, "cannot connect to 127.0.0.1:1"),
        (vec!["run", "wc", "http://server/x"], 2, "write diskside://HOST[:PORT]/EXPORT/PATH"),
        (vec!["cat", &server.at("missing")], 4, "No such file or directory"),
        (vec!["cat", &format!("{}/nothing/x", server.target())], 4, "there is no export `nothing`"),
        (vec!["cat", &server.at("../in")], 4, "the path leads out of the export"),
        (vec!["rm", &server.at("in")], 4, "the export is read-only"),
        (vec!["run", "wc", &server.at("in"), "--out", &server.at("out")], 4, "the export is read-only"),
    ] {
        let (code, _, said) = diskside(&args);
        assert_eq!(code, wanted_code, "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
    assert!(Path::new(&server.dir.path().join("in")).exists());
}

/// How long anything may take on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it never was so: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

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

/// A command that goes on meanwhile.
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
    let (remote, local) = (server.at("n"), server.dir.path().join("n").display().to_string());
    let out = server.dir.path().join("out");
    for (file, place) in [(&remote, "device"), (&remote, "host"), (&local, "auto")] {
        let to = out.to_str().expect("text");
        let child = begin(&["run", &spin, file, "--where", place, "--budget", &budget, "--out", to]);
        if place == "device" {
            server.until_busy(1, 0);
        }
        // It listens once the file that it writes is there.
        until("it has begun", || out.with_added_extension("partial").exists());
        interrupt(&child);
        let (code, said) = ended(child);
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains("cancelled"), "{said}");
        assert!(!out.exists() && !out.with_added_extension("partial").exists(), "nothing is left behind");
        server.until_busy(0, 0);
    }
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

/// What a write took is told stage by stage, as the target measured it.
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

/// Who asks for a compiler that the target has not is told so, and does not get another one.
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
    // What another run keeps connected keeps its state: it goes with the host's last connection.
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
