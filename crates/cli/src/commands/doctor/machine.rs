//! The kernel, limits, programs and links of this machine.

use super::super::configuration::PACKAGED;
use super::findings::Finding;
use diskside::compile::has_lowering;
use diskside::io::ring::{Interface, interface};
use diskside::target::config::{PORT, ServeConfig, Settings};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Rings of a server lock so much, at least.
const LOCKED_MIN: u64 = 8 << 20;
/// Descriptors for connections and files of a small server.
const FILES_MIN: u64 = 4096;
/// Nobody's clock is before this, unless it was never set.
const SET_SINCE: Duration = Duration::from_secs(1_760_000_000);

/// Everything but file systems.
pub(super) fn all() -> Vec<Finding> {
    let mut findings = vec![
        kernel(),
        rings(),
        locked_memory(),
        open_files(),
        landlock(),
        clang(),
        llvm(),
        scanner(),
        objects(),
        port(),
    ];
    findings.extend(configuration());
    findings.push(clock());
    findings.extend(clock_source());
    findings.extend(links());
    findings
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel() -> Finding {
    let Some(release) = text("/proc/sys/kernel/osrelease") else {
        return Finding::missing("kernel", "/proc is not there", "mount it: mount -t proc proc /proc");
    };
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version {
        (0..=5, _) if version < (5, 10) => {
            Finding::missing("kernel", format!("Linux {release}"), "Linux 5.10 or later is needed")
        }
        _ if version < (6, 12) => Finding::slow(
            "kernel",
            format!("Linux {release}"),
            "Linux 6.12 has what keeps reads quick beside functions",
        ),
        _ => Finding::good("kernel", format!("Linux {release}")),
    }
}

const LOCK_MORE: &str = "ulimit -l unlimited as root, LimitMEMLOCK=infinity in a unit, or `* - memlock unlimited` in /etc/security/limits.conf";

fn rings() -> Finding {
    match interface() {
        Ok(Interface::IoUring) => Finding::good("io_uring", "there is one for each reactor"),
        Ok(chosen @ Interface::Posix(_)) if chosen.is_asked_for() => Finding::slow(
            "io_uring",
            "not used: the variable DISKSIDE_IO is posix, whatever the kernel has",
            "unset DISKSIDE_IO (in a unit, Environment=), and ask again: then the kernel decides",
        ),
        Ok(Interface::Posix(why)) if why.contains("RLIMIT_MEMLOCK") => {
            Finding::slow("io_uring", format!("not used: {why}"), LOCK_MORE)
        }
        Ok(Interface::Posix(why)) => Finding::slow(
            "io_uring",
            format!("not used: {why}"),
            "sysctl kernel.io_uring_disabled=0; in a container, a profile that allows it (packaging/container/seccomp.json)",
        ),
        Err(error) => Finding::missing("io_uring", error.to_string(), "DISKSIDE_IO=posix does without it"),
    }
}

/// A limit of this process by its name in /proc.
fn limit(name: &str) -> Option<u64> {
    let limits = text("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    // The hard one, up to which programs raise it themselves.
    let hard = line.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

fn locked_memory() -> Finding {
    match limit("Max locked memory") {
        Some(u64::MAX) => Finding::good("memlock", "unlimited"),
        Some(bytes) if bytes >= LOCKED_MIN => Finding::good("memlock", format!("{} KiB", bytes >> 10)),
        Some(bytes) => {
            Finding::slow("memlock", format!("{} KiB: buffers of files are not registered", bytes >> 10), LOCK_MORE)
        }
        None => Finding::slow("memlock", "the limit is not known", "mount /proc"),
    }
}

fn open_files() -> Finding {
    match limit("Max open files") {
        Some(files) if files >= FILES_MIN => Finding::good("open files", files.to_string()),
        Some(files) => Finding::slow(
            "open files",
            files.to_string(),
            "each connection and file needs one: LimitNOFILE=65536, or ulimit -Hn",
        ),
        None => Finding::slow("open files", "the limit is not known", "mount /proc"),
    }
}

fn landlock() -> Finding {
    match text("/sys/kernel/security/lsm") {
        Some(list) if list.split(',').any(|name| name == "landlock") => {
            Finding::good("landlock", "a server closes itself to other files")
        }
        Some(_) => Finding::slow(
            "landlock",
            "not switched on: a server reaches all files of its user",
            "lsm=landlock,... on the kernel's command line",
        ),
        None => Finding::good(
            "landlock",
            "not known here (/sys/kernel/security is not mounted); `diskside serve` says what holds",
        ),
    }
}

fn clang() -> Finding {
    let found = std::env::var("DISKSIDE_CLANG").ok().into_iter().chain((14..=30).rev().map(|n| format!("clang-{n}")));
    let found = found.chain(["clang".to_owned()]).find_map(|name| {
        let targets = Command::new(&name).arg("-print-targets").stderr(Stdio::null()).output().ok()?;
        Some((name, String::from_utf8_lossy(&targets.stdout).contains("bpf")))
    });
    match found {
        Some((name, true)) => Finding::good("clang", format!("{name} compiles functions")),
        Some((name, false)) => Finding::missing(
            "clang",
            format!("{name} has no target bpf"),
            "install Debian's clang, and name it in DISKSIDE_CLANG",
        ),
        None => Finding::slow("clang", "not here: only shipped and compiled functions run", "apt install clang"),
    }
}

fn llvm() -> Finding {
    match has_lowering() {
        true => Finding::good("LLVM", "diskside-llvm is here: functions run vectorised, with floating-point numbers"),
        false => Finding::slow(
            "LLVM",
            "diskside-llvm is not here: functions run by Cranelift",
            "install the package diskside-llvm, or build it: make llvm",
        ),
    }
}

fn scanner() -> Finding {
    match diskside::scan::Program::find() {
        Some(_) => Finding::good("scans", "diskside-scan is here"),
        None => Finding::slow(
            "scans",
            "diskside-scan is not here: no Parquet files",
            "install the package diskside-scan, or build it: make scan",
        ),
    }
}

fn objects() -> Finding {
    match diskside_objects::program() {
        Some(_) => Finding::good("objects", "diskside-objects is here"),
        None => Finding::slow(
            "objects",
            "diskside-objects is not here: no exports of buckets and web servers",
            "install the package diskside-objects, or build it: make objects",
        ),
    }
}

fn port() -> Finding {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)) {
        Ok(_) => Finding::good("port", format!("{PORT} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Finding::good(
            "port",
            format!("{PORT} is taken: by a server, or by another program (ss -ltnp 'sport = :{PORT}')"),
        ),
        Err(error) => Finding::missing("port", format!("{PORT}: {error}"), "ip link set lo up"),
    }
}

fn configuration() -> Option<Finding> {
    match File::open(PACKAGED).map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound) => return None,
        // It is the server's own, and this may be anybody.
        Err(ErrorKind::PermissionDenied) => {
            return Some(Finding::good("configuration", format!("{PACKAGED} is closed to this user")));
        }
        _ => {}
    }
    let resolved = Settings::from_file(Path::new(PACKAGED)).and_then(ServeConfig::resolve);
    Some(match resolved {
        Ok(_) => Finding::good("configuration", PACKAGED),
        Err(error) => Finding::missing("configuration", error.to_string(), format!("diskside check-config {PACKAGED}")),
    })
}

fn clock() -> Finding {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if now < SET_SINCE {
        return Finding::missing(
            "clock",
            "it was never set: keys with an end are refused or last for ever",
            "start systemd-timesyncd or chrony",
        );
    }
    let keepers = ["/run/systemd/timesync/synchronized", "/run/chrony", "/run/ntpd.pid", "/run/openntpd.pid"];
    match keepers.iter().find(|path| Path::new(path).exists()) {
        Some(keeper) => Finding::good("clock", format!("kept by a program ({keeper})")),
        None => Finding::slow(
            "clock",
            "set, and no program here keeps it right",
            "matters for keys with an end and the audit file: systemd-timesyncd or chrony",
        ),
    }
}

fn clock_source() -> Option<Finding> {
    let source = text("/sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    Some(match source.as_str() {
        "hpet" | "acpi_pm" | "jiffies" => Finding::slow(
            "clock source",
            format!("{source}: each reading costs a microsecond or more"),
            "clocksource=tsc on the kernel's command line, if the processor's is stable",
        ),
        _ => Finding::good("clock source", source),
    })
}

/// Each link that is up, but loopback.
fn links() -> Vec<Finding> {
    let Ok(names) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let mut names: Vec<String> = names.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let links = names.iter().filter(|name| *name != "lo").filter_map(|name| {
        let of = |what: &str| text(format!("/sys/class/net/{name}/{what}"));
        (of("operstate")? != "down").then(|| link(name, of("speed").and_then(|speed| speed.parse().ok()), of("mtu")))
    });
    links.collect()
}

fn link(name: &str, speed_mb: Option<i64>, mtu: Option<String>) -> Finding {
    let what = format!("link {name}");
    let mtu = mtu.unwrap_or_else(|| "unknown".into());
    match speed_mb {
        Some(speed @ 1..1000) => Finding::slow(
            &what,
            format!("{speed} Mb/s, MTU {mtu}"),
            "a gigabit link needs a cable and a switch for it; pushing functions pays most here",
        ),
        Some(speed @ 10_000..) if mtu == "1500" => Finding::slow(
            &what,
            format!("{speed} Mb/s, MTU 1500"),
            format!("ip link set {name} mtu 9000, if all of the network has it, takes less processor time"),
        ),
        Some(speed @ 1..) => Finding::good(&what, format!("{speed} Mb/s, MTU {mtu}")),
        _ => Finding::good(&what, format!("speed not told, MTU {mtu}")),
    }
}

/// The file system that a path is on.
pub(super) fn file_system(path: &Path) -> Finding {
    let what = format!("path {}", path.display());
    let Ok(full) = path.canonicalize() else {
        return Finding::missing(
            &what,
            "it is not there, or not for this user",
            "name a directory or a file that a server may serve",
        );
    };
    let mounts = text("/proc/self/mounts").unwrap_or_default();
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind, options) =
            (fields.next()?, fields.next()?.replace("\\040", " "), fields.next()?, fields.next()?);
        full.starts_with(&at).then(|| (at.len(), kind.to_owned(), options.to_owned()))
    });
    let Some((_, kind, options)) = mounted.max_by_key(|(len, ..)| *len) else {
        return Finding::slow(&what, "its file system is not known", "mount /proc");
    };
    let found = format!("{kind} ({options})");
    let has = |option: &str| options.split(',').any(|one| one == option);
    match kind.as_str() {
        _ if has("ro") => Finding::slow(&what, found, "hosts can change nothing: it is mounted read-only"),
        "nfs" | "nfs4" | "cifs" | "9p" | "virtiofs" => {
            Finding::slow(&what, found, "it is on another machine: run the server there")
        }
        kind if kind.starts_with("fuse") => {
            Finding::slow(&what, found, "each access takes a program's time: serve what is below it")
        }
        "tmpfs" | "ramfs" => Finding::slow(&what, found, "it is memory: it is gone with the next start of the machine"),
        "overlay" => {
            Finding::slow(&what, found, "for much data, a volume of the container that is a directory of the machine")
        }
        _ if has("sync") => {
            Finding::slow(&what, found, "sync makes each write wait for the disk: hosts can ask for that themselves")
        }
        _ => Finding::good(&what, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::State;
    use super::*;

    #[test]
    fn a_slow_link_says_what_to_do_and_an_unknown_one_is_no_fault() {
        assert_eq!(link("eth0", Some(100), Some("1500".into())).state, State::Slow);
        assert_eq!(link("eth0", Some(1000), Some("1500".into())).state, State::Good);
        let fast = link("eth0", Some(25_000), Some("1500".into()));
        assert!(fast.remedy.expect("a remedy").starts_with("ip link set eth0 mtu 9000"));
        assert_eq!(link("eth0", Some(-1), None).found, "speed not told, MTU unknown");
    }

    #[test]
    fn the_file_system_is_that_of_the_longest_mount_point() {
        let proc = file_system(Path::new("/proc/self"));
        assert!(proc.found.starts_with("proc ("), "{}", proc.found);
        assert_eq!(file_system(Path::new("/nowhere/at/all")).state, State::Missing);
    }
}
