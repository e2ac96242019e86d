//! A server with a configuration file, whose log goes to a file.

use super::{Process, diskside, numbers, until};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A configuration file, and what is beside it: `one` and `two` are directories with a file each.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub file: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // The user that the server becomes may read it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("ours");
        for name in ["one", "two"] {
            std::fs::create_dir(dir.path().join(name)).expect("made");
            std::fs::write(dir.path().join(name).join("f"), numbers(1000)).expect("written");
        }
        let file = dir.path().join("diskside.toml");
        Self { dir, file }
    }

    pub fn write(&self, text: &str) {
        let whole = format!("listen = [\"127.0.0.1:0\"]\n{text}");
        // As editors do: hosts never see half of a file.
        let new = self.dir.path().join("new");
        std::fs::write(&new, whole).expect("written");
        std::fs::rename(&new, &self.file).expect("renamed");
    }

    pub fn export(&self, name: &str) -> String {
        format!("[[export]]\nname = \"{name}\"\npath = \"{}\"\n", self.dir.path().join(name).display())
    }

    pub fn config(&self) -> &str {
        self.file.to_str().expect("text")
    }
}

/// What the server says on standard error goes to a file.
pub struct Logged {
    pub process: Process,
    pub log: PathBuf,
    pub target: String,
}

impl Logged {
    pub fn start(place: &Place, command: &mut Command) -> Self {
        Self::start_after(place, command, |_| {})
    }

    /// Does something with the process before it serves.
    pub fn start_after(place: &Place, command: &mut Command, first: impl FnOnce(&Process)) -> Self {
        let log = place.dir.path().join("log");
        let said = std::fs::File::create(&log).expect("created");
        let mut process = Process(command.stdout(Stdio::piped()).stderr(said).spawn().expect("diskside runs"));
        first(&process);
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(process.0.stdout.take().expect("piped")));
        let line = lines.find_map(|line| line.ok().filter(|line| line.contains("diskside://"))).expect("it serves");
        let url = line.split_whitespace().last().expect("a URL");
        let target = url.rsplit_once('/').expect("an export").0.to_owned();
        Self { process, log, target }
    }

    pub fn says(&self, what: &str) {
        until(what, || std::fs::read_to_string(&self.log).is_ok_and(|log| log.contains(what)));
    }

    pub fn reads(&self, name: &str) -> bool {
        diskside(&["cat", &format!("{}/{name}/f", self.target)]).0 == 0
    }
}

pub fn serve(config: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
    command.args(["serve", "--config", config]).env("DISKSIDE_LLVM", "");
    command
}
