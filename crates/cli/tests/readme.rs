//! The README's own function and the README's own commands, run as written.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The longest line of the log that the commands are run over, as the README shows it.
const LONGEST: usize = 1187;

#[test]
fn the_function_in_the_readme_compiles_and_finds_the_longest_line() {
    let reader = Reader::new();
    let source = function();
    let lines = source.lines().filter(|l| !l.trim().is_empty()).count();
    assert!(lines <= 20, "a first function is short; this one has {lines} lines");
    let run = |extra: &str| reader.good(&format!("diskside run ./longest.bpf.c server.log {extra}"));
    assert_eq!(run(""), "bytes  1187\n");
    assert_eq!(run("--chunk 64"), "bytes  1187\n", "a line longer than a chunk is still one line");
    assert_eq!(run("--tier interp"), "bytes  1187\n");
    let json: serde_json::Value = serde_json::from_str(&run("--json")).expect("JSON");
    assert_eq!((json["schema"].as_u64(), json["rows"][0]["bytes"].as_u64()), (Some(1), Some(1187)));
    // What the README says that it prints.
    let shown = console("A function of your own");
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(reader.good(&shown[0].command), shown[0].printed);
}

#[test]
fn the_commands_over_files_of_this_machine_work() {
    let reader = Reader::new();
    let shown = console("Run a function over a file");
    let commands = shown.iter().map(|shown| shown.command.as_str()).filter(|command| !command.starts_with("make "));
    let printed: Vec<String> = commands.map(|command| reader.good(command)).collect();
    let [functions, stats, grep, wc, histogram, piped, compressed] = &printed[..] else { panic!("{shown:?}") };
    assert!(functions.contains("stats64") && functions.contains("pattern"), "{functions}");
    assert!(stats.contains("count  512") && stats.contains("max") && stats.contains("511"), "{stats}");
    assert_eq!(grep, "ERROR: one\nERROR: two\n");
    assert!(piped.starts_with(&grep[..]), "{piped}");
    assert_eq!(compressed, grep);
    assert!(wc.contains("lines"), "{wc}");
    let histogram: serde_json::Value = serde_json::from_str(histogram).expect("JSON");
    assert_eq!(histogram["function"], "histogram");
}

/// Five minutes of a new user: serve a directory, run functions on it from another process, their own among them.
#[test]
fn a_directory_is_served_and_functions_run_on_it_from_another_process() {
    let server = tempfile::tempdir().expect("a temporary directory");
    let data = server.path().join("data");
    std::fs::create_dir(&data).expect("made");
    std::fs::write(data.join("server.log"), log()).expect("written");
    let reader = Reader::new();
    // The laptop has the function, and nothing of the data.
    for local in ["server.log", "other.log", "data.bin"] {
        std::fs::remove_file(reader.dir.path().join(local)).expect("it was there");
    }
    let shown = console("Run it where the data is");
    let [key, allow, serve, others @ ..] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((&key.who[..], &allow.who[..], &serve.who[..]), ("laptop", "server", "server"));
    // The line that the laptop prints is what is pasted at the server.
    let line = reader.good(&key.command);
    std::fs::write(server.path().join("pasted"), line).expect("written");
    let allowed =
        shell(&format!("{} <pasted", without_comment(&allow.command)), server.path()).output().expect("a shell");
    assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    let serving = Serving::start(&serve.command, server.path(), &data);
    // Who has no key is not let in.
    let stranger = format!("DISKSIDE_KEY=none diskside ls {}", serving.url);
    let refused = reader.run(&stranger);
    assert!(!refused.status.success(), "{refused:?}");
    let printed: Vec<(String, String)> = others
        .iter()
        .map(|shown| {
            assert_eq!(shown.who, "laptop", "{shown:?}");
            assert!(shown.command.contains("diskside://server/data"), "{shown:?}");
            let output = reader.run(&shown.command.replace("diskside://server/data", &serving.url));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}: {said}", shown.command);
            (String::from_utf8(output.stdout).expect("text"), said)
        })
        .collect();
    let [(ls, _), (longest, explained), (grep, _), (counted, _)] = &printed[..] else { panic!("{shown:?}") };
    assert!(ls.contains("server.log"), "{ls}");
    assert_eq!(longest, "bytes  1187\n");
    // As it says, it says why.
    let name = format!("{}/server.log: ", serving.url);
    assert!(explained.contains(&name) && explained.contains("received"), "{explained}");
    assert_eq!(grep, "ERROR: one\nERROR: two\n");
    assert_eq!(counted, "rows  2\n");
}

fn without_comment(command: &str) -> &str {
    command.split("  #").next().unwrap_or_default().trim_end()
}

/// The demo passed `--where`, so it did not see that results depended on the place.
#[test]
fn the_demo_lets_diskside_choose_and_shows_the_store() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let demo = std::fs::read_to_string(root.join("scripts/demo")).expect("the demo is there");
    assert!(!demo.contains("--where"), "a user would not pass it");
    assert!(demo.contains("diskside-kv") && readme().contains("$ diskside-kv get"), "it shows what the README shows");
}

/// The first example of docs/functions.md had no `combine`: it gave two or three sums by URL, and one here.
#[test]
fn the_first_function_of_the_guide_has_one_result_wherever_it_runs() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/functions.md")).expect("the guide is there");
    let source = guide.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it shows a function");
    let (reader, server) = (Reader::new(), tempfile::tempdir().expect("a temporary directory"));
    std::fs::write(reader.dir.path().join("sum.bpf.c"), source).expect("written");
    // More than two pieces, of elements that differ.
    let numbers: Vec<u8> = (0..5_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let sum: u64 = (0..5_000_000_u32).map(|n| u64::from(n.wrapping_mul(2_654_435_761))).sum();
    std::fs::write(server.path().join("data.bin"), &numbers).expect("written");
    std::fs::write(reader.dir.path().join("data.bin"), &numbers).expect("written");
    let serving = Serving::start(
        "diskside serve --export data=/srv/data --listen 0.0.0.0:4420 --insecure",
        server.path(),
        server.path(),
    );
    let here = reader.good("diskside run ./sum.bpf.c data.bin");
    assert_eq!(here, format!("total  {sum}\n"));
    for extra in ["", "--threads 3", "--where host", "--where device --chunk 64KiB"] {
        let there = reader.good(&format!("diskside run ./sum.bpf.c {}/data.bin {extra}", serving.url));
        assert_eq!(there, here, "{extra}");
    }
}

/// The guide's function of this name, as written.
fn everyday(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/functions.md")).expect("the guide is there");
    let mut blocks = guide.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.contains(&format!("SEC(\"read/{name}\")"))).expect("it shows the function").to_owned()
}

/// A counter of statuses and a sum by key were what users wrote first, and neither compiled as they wrote it.
#[test]
fn the_guides_everyday_functions_compile_and_count_right() {
    let reader = Reader::new();
    let path = |name: &str| reader.dir.path().join(name);
    std::fs::write(path("by_status.bpf.c"), everyday("by_status")).expect("written");
    let statuses = ["200", "200", "404", "200", "500", "200", "304"];
    let log: String = (0..20_000)
        .map(|i| {
            format!("10.0.{}.1 - - [22/Nov/2026:10:00:00 +0000] \"GET /{i} HTTP/1.1\" {} 512\n", i % 9, statuses[i % 7])
        })
        .collect();
    std::fs::write(path("access.log"), log).expect("written");
    let count = |status: &str| (0..20_000).filter(|i| statuses[i % 7] == status).count();
    for extra in ["", "--chunk 64KiB --threads 2", "--tier interp"] {
        let printed = reader.good(&format!("diskside run ./by_status.bpf.c access.log {extra}"));
        let rows: Vec<Vec<&str>> = printed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let expected: Vec<Vec<String>> =
            ["200", "304", "404", "500"].map(|status| vec![status.to_owned(), count(status).to_string()]).into();
        assert_eq!(rows, expected, "{extra}");
    }

    std::fs::write(path("by_shop.bpf.c"), everyday("by_shop")).expect("written");
    let sales: Vec<[u32; 2]> = (0..100_000_u32).map(|i| [i.wrapping_mul(2_654_435_761) >> 25, i % 9973]).collect();
    let bytes: Vec<u8> = sales.iter().flatten().flat_map(|n| n.to_le_bytes()).collect();
    std::fs::write(path("sales.bin"), bytes).expect("written");
    let printed = reader.good("diskside run ./by_shop.bpf.c sales.bin --json --chunk 64KiB --threads 2");
    let json: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    for shop in 0..256 {
        let cents: u64 = sales.iter().filter(|sale| sale[0] == shop).map(|sale| u64::from(sale[1])).sum();
        assert_eq!(json["rows"][shop as usize]["cents"].as_u64(), Some(cents), "shop {shop}");
    }
}

/// A directory with what the commands name, and a shell in it that finds `diskside`.
struct Reader {
    dir: tempfile::TempDir,
}

impl Reader {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let numbers: Vec<u8> = (0..512_u64).flat_map(u64::to_le_bytes).collect();
        let files = [
            ("longest.bpf.c", function().into_bytes()),
            ("server.log", log().into_bytes()),
            ("other.log", b"a line\n".to_vec()),
            ("data.bin", numbers),
        ];
        for (name, bytes) in files {
            std::fs::write(dir.path().join(name), bytes).expect("written");
        }
        Self { dir }
    }

    fn run(&self, command: &str) -> Output {
        shell(command, self.dir.path()).output().expect("a shell")
    }

    fn good(&self, command: &str) -> String {
        let output = self.run(command);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

fn shell(command: &str, dir: &Path) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_diskside")).parent().expect("it is in a directory");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([programs.to_owned()].into_iter().chain(std::env::split_paths(&path)));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(dir).env("PATH", path.expect("directories without colons"));
    // No command knows what another one learnt.
    shell.env("XDG_STATE_HOME", "/dev/null/none");
    // Keys are made in this directory, and those of the user who runs the tests are not looked for.
    shell.env("XDG_CONFIG_HOME", dir.join("config")).env_remove("DISKSIDE_KEY");
    shell
}

/// The README's server, with a directory and an address of this test's.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    /// A command in this directory, with the data in another or the same.
    fn start(command: &str, dir: &Path, data: &Path) -> Self {
        assert!(command.contains("/srv/data") && command.contains("0.0.0.0:4420"), "{command}");
        let command = command.replace("/srv/data", &data.display().to_string()).replace("0.0.0.0:4420", "127.0.0.1:0");
        // The shell becomes the server, so that ending one ends the other.
        let mut shell = shell(&format!("exec {command}"), dir);
        let mut child = shell.stdout(Stdio::piped()).spawn().expect("a shell");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let url = said.find_map(|line| {
            let line = line.expect("text");
            line.split_whitespace().find(|word| word.starts_with("diskside://")).map(str::to_owned)
        });
        Self { child, url: url.expect("it says what it serves, and where") }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log() -> String {
    format!("short\nERROR: one\n{}\nERROR: two\nlast", "x".repeat(LONGEST))
}

fn readme() -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join("README.md")).expect("the README is there")
}

fn function() -> String {
    let readme = readme();
    let source = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    source.expect("the README shows a function in C").to_owned()
}

/// A command that the README shows.
#[derive(Debug)]
struct Shown {
    /// On which machine; empty if there is only one.
    who: String,
    command: String,
    /// What the README says that it prints.
    printed: String,
}

/// The commands of a section's console blocks.
fn console(section: &str) -> Vec<Shown> {
    let readme = readme();
    let text = readme.split("\n## ").find_map(|text| text.strip_prefix(section)?.strip_prefix('\n'));
    let text = text.unwrap_or_else(|| panic!("the README has no section `{section}`"));
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut all: Vec<Shown> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match line.split_once("$ ").filter(|(who, _)| who.chars().all(char::is_alphanumeric)) {
            Some((who, command)) => {
                all.push(Shown { who: who.to_owned(), command: command.to_owned(), printed: String::new() });
            }
            None => {
                let shown = all.last_mut().expect("a block begins with a command");
                shown.printed += line;
                shown.printed.push('\n');
            }
        }
    }
    all
}
