//! The tutorial, from its first command to its last, in two directories as its two machines.

mod common;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Process;

#[test]
fn every_command_of_the_tutorial_does_what_stands_there() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
    let page = std::fs::read_to_string(page).expect("the tutorial is there");
    let mut machines = Machines::new();
    let mut done = 0;
    for block in blocks(&page) {
        match block {
            // The function grows from page to page.
            Block::Source(source) => machines.append("slow.bpf.c", &source),
            Block::Command(shown) => {
                machines.follow(&shown);
                done += 1;
            }
        }
    }
    assert!(done > 15, "the page has commands");
}

enum Block {
    Source(String),
    Command(Shown),
}

/// A command, who types it, and what stands below it.
#[derive(Debug)]
struct Shown {
    who: String,
    command: String,
    printed: String,
}

/// The page's C and its commands, in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut all = Vec::new();
    for fenced in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = fenced.split_once('\n').expect("a block has a first line");
        match language {
            "c" => all.push(Block::Source(text.to_owned() + "\n")),
            "console" => all.extend(commands(text).into_iter().map(Block::Command)),
            _ => {}
        }
    }
    all
}

fn commands(text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in text.lines() {
        match line.split_once("$ ").filter(|(who, _)| ["server", "laptop"].contains(who)) {
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

/// Whether this was printed; `…` matches anything.
fn fits(printed: &str, shown: &str) -> bool {
    let (first, rest) = shown.split_once('…').unwrap_or((shown, ""));
    let Some(mut left) = printed.strip_prefix(first) else { return false };
    if first.len() == shown.len() {
        return left.is_empty();
    }
    let mut parts = rest.split('…').peekable();
    while let Some(part) = parts.next() {
        let Some(at) = (if parts.peek().is_some() { left.find(part) } else { left.strip_suffix(part).map(str::len) })
        else {
            return false;
        };
        left = &left[at..][part.len()..];
    }
    true
}

struct Machines {
    dir: tempfile::TempDir,
    servers: Vec<Process>,
    /// The page's URLs of servers, and where these are in truth.
    addresses: HashMap<String, String>,
    /// What `diskside key new` printed, for the operator to paste.
    key: String,
}

impl Machines {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for who in ["server", "laptop"] {
            std::fs::create_dir_all(dir.path().join(who).join("home")).expect("created");
        }
        Self { dir, servers: Vec::new(), addresses: HashMap::new(), key: String::new() }
    }

    fn append(&self, name: &str, text: &str) {
        let path = self.dir.path().join("laptop").join(name);
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("opened");
        file.write_all(text.as_bytes()).expect("written");
    }

    fn shell(&self, who: &str, command: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_diskside")).parent().expect("it is in a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        let home = self.dir.path().join(who);
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&home).env("PATH", format!("{}:{path}", programs.display()));
        shell.env("HOME", home.join("home")).env("DISKSIDE_LLVM", "");
        for variable in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "DISKSIDE_KEY"] {
            shell.env_remove(variable);
        }
        shell
    }

    fn follow(&mut self, shown: &Shown) {
        if let Some(command) = shown.command.strip_suffix(" &") {
            return self.serve(&shown.who, command);
        }
        let mut command = shown.command.clone();
        for (url, truth) in &self.addresses {
            command = command.replace(&format!("{url}/"), &format!("{truth}/"));
        }
        let mut child = self
            .shell(&shown.who, &command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let paste = if shown.command.starts_with("diskside key allow") { self.key.as_str() } else { "" };
        child.stdin.take().expect("piped").write_all(paste.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        if shown.command.starts_with("diskside key new") {
            self.key.clone_from(&out);
        }
        // A failure is shown by its message.
        let fails = shown.printed.starts_with("diskside: ");
        assert_eq!(!output.status.success(), fails, "{shown:?}: {out}{err}");
        let mut printed = if fails { err } else { out };
        for (url, truth) in &self.addresses {
            printed = printed.replace(&format!("{truth}/"), &format!("{url}/"));
        }
        assert!(shown.printed.is_empty() || fits(&printed, &shown.printed), "{}\n{printed}", shown.command);
    }

    /// A server at a free port, which replaces the page's address from now on.
    fn serve(&mut self, who: &str, command: &str) {
        let (command, port) = match command.split_once(" --listen 0.0.0.0:") {
            Some((command, port)) => (command, format!(":{port}")),
            None => (command, String::new()),
        };
        let mut shell = self.shell(who, &format!("exec {command} --listen 127.0.0.1:0"));
        let mut child = shell.stdout(Stdio::piped()).spawn().expect("a shell");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        self.servers.push(Process(child));
        let line = lines.map_while(Result::ok).find(|line| line.contains("diskside://")).expect("it serves");
        let url = line.split_whitespace().find(|word| word.starts_with("diskside://")).expect("it says where");
        let (server, _) = url.rsplit_once('/').expect("a server and an export");
        self.addresses.insert(format!("diskside://localhost{port}"), server.to_owned());
    }
}
