//! Commands against a real server process: files of exports, and functions over them.

mod common;

use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;

use common::{Server, diskside, diskside_with_state, good, json, numbers};

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
        let out = server.dir.join("out").display().to_string();
        good(&[&run[..], &["--out", &out]].concat());
        assert_eq!(std::fs::read_to_string(&out).expect("written"), wanted, "--where {place} --out FILE");
        let url = server.at("found");
        good(&[&run[..], &["--out", &url]].concat());
        let found = server.dir.join("found");
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
fn a_file_that_one_of_several_servers_has_not_is_named_and_nothing_is_printed() {
    let (one, two) = (Server::start(""), Server::start(""));
    one.file("a", lines(1000, 1).as_bytes());
    for function in [&["wc"][..], &["grep", "--arg", "pattern=1"]] {
        let (code, out, said) = diskside(&[&["run"], function, &[&one.at("a"), &two.at("missing")]].concat());
        assert_eq!((code, &out[..]), (4, &b""[..]), "{said}");
        let wanted = format!("{}: lookup data/missing: No such file or directory (os error 2)", two.at("missing"));
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn explain_says_where_it_ran_and_why_and_what_moved() {
    let server = Server::start("");
    server.file("n.u64", &numbers(1_000_000));
    let (code, _, said) = diskside(&["run", "stats64", &server.at("n.u64"), "--explain"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("n.u64: device: one side is not measured yet"), "{said}");
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
    let here = server.dir.join("here").display().to_string();
    good(&["run", "bitmap", &local, "--out", &here]);
    let wanted = std::fs::read(&here).expect("written");
    let moved = |stats: &serde_json::Value| {
        let bytes = |name: &str| stats["stats"][name].as_u64().expect("a number");
        (bytes("sent_bytes"), bytes("received_bytes"))
    };
    let made = |server: &Server, args: &[&str]| {
        let stats = json(&[args, &["--out", &server.at("made")]].concat());
        let path = server.dir.join("made");
        let bytes = std::fs::read(&path).expect("made");
        std::fs::remove_file(path).expect("removed");
        assert!(!server.dir.join("made.partial").exists());
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
        assert!(!server.dir.join("made").exists() && !server.dir.join("made.partial").exists());
    }
}

#[test]
fn files_are_listed_shown_copied_and_removed() {
    let server = Server::start("");
    std::fs::create_dir(server.dir.join("sub")).expect("made");
    let bytes: Vec<u8> = numbers(300_000);
    let source = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(source.path(), &bytes).expect("written");
    let source_path = source.path().display().to_string();
    good(&["cp", &source_path, &server.at("copy"), "--verify"]);
    assert_eq!(std::fs::read(server.dir.join("copy")).expect("copied"), bytes);
    good(&["cp", &source_path, &server.at("sub")]);
    let name = source.path().file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(std::fs::read(server.dir.join("sub").join(&name)).expect("in the directory").len(), bytes.len());
    let (code, out, said) = diskside(&["cat", &server.at("copy")]);
    assert!(code == 0 && out == bytes, "{said}");
    let back = server.dir.join("back").display().to_string();
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
    assert!(!server.dir.join("copy").exists());
    good(&["rm", &server.at(&format!("sub/{name}"))]);
    good(&["rm", "--dir", &server.at("sub")]);
    assert!(!server.dir.join("sub").exists());
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
    assert!(server.dir.join("in").exists());
}
