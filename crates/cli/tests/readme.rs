//! The README's own function and the README's own commands, run as they stand there.

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
    let commands = shown.iter().map(|shown| shown.command.as_str()).filter(|command| command.starts_with("diskside "));
    let printed: Vec<String> = commands.map(|command| reader.good(command)).collect();
    let [functions, stats, grep, wc, histogram] = &printed[..] else { panic!("{shown:?}") };
    assert!(functions.contains("stats64") && functions.contains("pattern"), "{functions}");
    assert!(stats.contains("count  512") && stats.contains("max") && stats.contains("511"), "{stats}");
    assert_eq!(grep, "ERROR: one\nERROR: two\n");
    assert!(wc.contains("lines"), "{wc}");
    let histogram: serde_json::Value = serde_json::from_str(histogram).expect("JSON");
    assert_eq!(histogram["function"], "histogram");
}

/// Five minutes of a new user: serve a directory, run functions on it from another process, their own among them.
#[test]
fn a_directory_is_served_and_functions_run_on_it_from_another_process() {
    let server = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(server.path().join("server.log"), log()).expect("written");
    let reader = Reader::new();
    // The laptop has the function, and nothing of the data.
    for local in ["server.log", "other.log", "data.bin"] {
        std::fs::remove_file(reader.dir.path().join(local)).expect("it was there");
    }
    let shown = console("Run it where the data is");
    let (serve, others) = shown.split_first().expect("there are commands");
    assert_eq!(serve.who, "server");
    let serving = Serving::start(&serve.command, server.path());
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
    let [(ls, _), (longest, explained), (grep, _)] = &printed[..] else { panic!("{shown:?}") };
    assert!(ls.contains("server.log"), "{ls}");
    assert_eq!(longest, "bytes  1187\n");
    // As it says, it says why.
    let name = format!("{}/server.log: ", serving.url);
    assert!(explained.contains(&name) && explained.contains("received"), "{explained}");
    assert_eq!(grep, "ERROR: one\nERROR: two\n");
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
    shell
}

/// The README's server, with a directory and an address of this test's.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    fn start(command: &str, dir: &Path) -> Self {
        assert!(command.contains("/srv/data") && command.contains("0.0.0.0:4420"), "{command}");
        let command = command.replace("/srv/data", &dir.display().to_string()).replace("0.0.0.0:4420", "127.0.0.1:0");
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
