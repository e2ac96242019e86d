//! Landlock: a server reaches only the files that it serves, and those that it reads again.
//!
//! It also holds for rings, which system call filters do not see into, and for threads with another user. A process
//! that is started again if it ends reads objects of stores: with such a volume, that program may be run, and TCP
//! connections may be made.

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use diskside_compute::LlvmOptions;
use diskside_scan::Program as Scanner;
use diskside_volume::Source;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags, path_beneath_rules,
};

use crate::config::ServeConfig;

/// How far the kernel went along.
#[derive(Debug)]
pub(super) enum Files {
    /// With what the version of this number has.
    Closed(i32),
    Open(String),
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(abi) => write!(f, "Landlock ABI {abi}"),
            Self::Open(why) => write!(f, "no Landlock ({why})"),
        }
    }
}

/// Closes all files to this thread, and to those that it starts, but those that a server of `config` opens later.
pub(super) fn close_others(
    config: &ServeConfig,
    read_anew: &[PathBuf],
    connects_to: Option<u16>,
    llvm: Option<&LlvmOptions>,
    scanner: Option<&Scanner>,
) -> Files {
    let mut rules = rules(config, read_anew, llvm, scanner);
    if connects_to.is_some() {
        rules.push((diskside_objects::files_of_connections(), READ));
    }
    let closed = rules.into_iter().try_fold(ruleset(has_objects(config), connects_to), |ruleset, (paths, access)| {
        // An absent path cannot be opened; its reader reports that.
        ruleset?.add_rules(path_beneath_rules(paths, access)).map(Ok)
    });
    let status = closed.and_then(|ruleset| ruleset?.restrict_self());
    match status {
        Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, landlock, .. }) => Files::Open(
            match landlock {
                LandlockStatus::NotEnabled => "it is not switched on: lsm=landlock,... on the kernel's command line",
                _ => "this kernel does not have it",
            }
            .into(),
        ),
        Ok(RestrictionStatus { landlock: LandlockStatus::Available { effective_abi, .. }, .. }) => {
            Files::Closed(effective_abi as i32)
        }
        Ok(_) => Files::Open("this kernel does not have it".into()),
        Err(error) => Files::Open(error.to_string()),
    }
}

/// Files of every kind, and TCP: listening sockets are open by now, and a server connects to nobody except stores of
/// objects, and to the one port that it is given.
fn ruleset(connects: bool, port: Option<u16>) -> Result<landlock::RulesetCreated, RulesetError> {
    let net = AccessNet::from_all(NEWEST);
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(if connects { net & !AccessNet::ConnectTcp } else { net })?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(port.filter(|_| !connects).map(|port| Ok(NetPort::new(port, AccessNet::ConnectTcp))))
}

type Rule = (Vec<PathBuf>, BitFlags<AccessFs>);

fn rules(
    config: &ServeConfig,
    read_anew: &[PathBuf],
    llvm: Option<&LlvmOptions>,
    scanner: Option<&Scanner>,
) -> Vec<Rule> {
    let exports = |rw: bool| {
        let chosen = config.exports.iter().filter(move |export| export.rw == rw);
        chosen.filter_map(|export| export.directory().map(Path::to_owned)).collect::<Vec<_>>()
    };
    let volumes = |rw: bool| {
        let chosen = config.volumes.iter().filter(move |volume| volume.rw == rw);
        chosen.filter_map(|volume| match volume.source() {
            Ok(Source::Path(path) | Source::Lossy(path)) => Some(path),
            _ => None,
        })
    };
    let directory =
        |path: &Path| path.parent().map(|parent| if parent == Path::new("") { ".".into() } else { parent.into() });
    // Whole directories: a file that is replaced is another one.
    let anew = super::opened_anew(config, read_anew).filter_map(directory);
    let audit = config.security.audit.iter().filter_map(|path| directory(path));
    let mut rules: Vec<Rule> = vec![
        (exports(false).into_iter().collect(), READ),
        (exports(true).into_iter().collect(), READ | CHANGE),
        (config.reach.clone(), READ | CHANGE),
        (volumes(false).collect(), AccessFs::ReadFile.into()),
        (volumes(true).collect(), make_bitflags!(AccessFs::{ReadFile | WriteFile})),
        (anew.collect(), AccessFs::ReadFile.into()),
        (audit.collect(), make_bitflags!(AccessFs::{ReadFile | WriteFile | MakeReg})),
        (OF_ALL.iter().map(PathBuf::from).collect(), READ),
        (vec!["/dev/null".into()], make_bitflags!(AccessFs::{ReadFile | WriteFile})),
    ];
    let children = llvm.map(|llvm| llvm.compiler.program()).into_iter().chain(scanner.map(Scanner::path));
    let of_objects = has_objects(config).then(diskside_objects::program).flatten();
    let of_objects = of_objects.as_ref().map(|program| program.path());
    let children: Vec<PathBuf> = children.chain(of_objects).map(Path::to_owned).collect();
    if has_objects(config) {
        rules.push((diskside_objects::files_of_connections(), READ));
    }
    if !children.is_empty() {
        let programs = LOADERS.iter().map(PathBuf::from).chain(children);
        rules.push((programs.collect(), make_bitflags!(AccessFs::{ReadFile | Execute})));
    }
    if let Some(store) = llvm.and_then(|llvm| llvm.store.as_ref()) {
        // It cannot be made later. Where it cannot be made at all, who opens it says so.
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(store);
        rules.push((vec![store.clone()], READ | CHANGE));
    }
    rules
}

pub(super) fn has_objects(config: &ServeConfig) -> bool {
    let of_volumes = config.volumes.iter().any(|volume| matches!(volume.source(), Ok(Source::Object(_))));
    of_volumes || config.exports.iter().any(|export| export.url().is_some())
}

/// The newest version whose rights are known here; older kernels have fewer.
const NEWEST: ABI = ABI::V7;

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// All that hosts can do to an export. Devices, pipes and sockets they cannot make.
const CHANGE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSym | Refer
});

/// Files that libraries read: names of addresses and their own settings, libraries that are loaded late, processors,
/// and the process itself. Landlock closes other processes in `/proc`, except what everybody sees.
const OF_ALL: &[&str] = &[
    "/proc",
    "/sys/fs/cgroup",
    "/sys/devices/system",
    "/dev/urandom",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/lib64",
    "/etc/machine-id",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/passwd",
    "/etc/group",
    "/etc/ssl/openssl.cnf",
    "/etc/crypto-policies",
];

/// What starts a program that is linked dynamically.
const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];
