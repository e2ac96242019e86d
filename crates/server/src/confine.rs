//! The privileges that a server's process drops, so that an attacker who takes it over has little.
//!
//! Users, capabilities, Landlock and system call filters are threads' own or once and for all, so their order matters:
//!
//! 1. [`give_up`], before anything is opened: new rights by what it starts, core dumps, capabilities.
//! 2. [`TargetBuilder::open`](crate::TargetBuilder::open): keys, volumes and addresses, which may need root's rights.
//! 3. [`confine`], before the first thread: from here on the process is another user, and reaches only the files that it serves.
//! 4. [`Opened::build`](crate::Opened::build) and the target's start.
//! 5. [`Confinement::filter_calls`], when all that the start needs has been called.
//!
//! An embedder may need what is given up for other things: a [`Target`](crate::Target) alone gives up nothing.

mod calls;
mod files;
mod user;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{DumpableBehavior, Resource, Rlimit, geteuid, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

pub use user::UserError;
pub(crate) use user::user_to_be;

use crate::config::ServeConfig;
use diskside_compute::LlvmOptions;
use files::Files;
use user::Choice;

/// Gives up what a server of `config` does not need to open what it serves: new rights by what it starts, its memory in a core
/// dump, and of root's capabilities all but those to open, make and own files, to become another user, and what `config` asks
/// for.
///
/// # Errors
/// The kernel refuses it.
pub fn give_up(config: &ServeConfig) -> io::Result<()> {
    set_no_new_privs(true)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // Memory has hosts' data in it, and a core dump may be handed to a program whatever the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut kept = while_serving(config) | OF_FILES;
    if config.confine {
        // Root may lock any memory, which rings do with their buffers; who root becomes may as much as this says. Without the
        // right to raise it the limit stays, and buffers that are beyond it are not locked.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
        kept |= CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    if config.listen.iter().any(|listen| (1..PORTS_OF_ALL).contains(&listen.address.port())) {
        kept |= CapabilitySet::NET_BIND_SERVICE;
    }
    keep(kept)?;
    if geteuid().is_root() && !config.confine {
        tracing::warn!("{RUNS_AS_ROOT}");
    }
    Ok(())
}

/// What holds for a server's process.
#[derive(Debug)]
pub struct Confinement {
    user: String,
    files: Files,
    calls: Option<Result<(), String>>,
    starts_children: bool,
    acts_as_others: bool,
}

/// Becomes the user that `config` names, and closes all files except those that a server of `config` opens later.
/// `read_anew` are further files that it reads again at a reload, and `connects_to` a port that it connects to.
///
/// Call it before the process has other threads. Files that are open stay open.
///
/// # Errors
/// There is no such user, or the kernel refuses it.
pub fn confine(
    config: &ServeConfig,
    read_anew: &[PathBuf],
    connects_to: Option<u16>,
) -> Result<Confinement, UserError> {
    let choice = Choice::of(config, read_anew)?;
    let mut kept = while_serving(config);
    let user = match &choice {
        Choice::Become(user) => {
            user.take_on()?;
            tell_of_what_cannot_be_read_anew(config, read_anew, &user.name);
            user.name.clone()
        }
        Choice::Stay { name, why: None } => name.clone(),
        Choice::Stay { name, why: Some(why) } => {
            kept |= OF_FILES;
            tracing::warn!("{RUNS_AS_ROOT}");
            format!("{name} ({why})")
        }
    };
    keep(kept)?;
    // Becoming another user may have undone it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
    let llvm = config.compute.enabled.then(LlvmOptions::find).flatten();
    let scanner = config.compute.enabled.then(diskside_scan::Program::find).flatten();
    let files = files::close_others(config, read_anew, connects_to, llvm.as_ref(), scanner.as_ref());
    let starts_children = llvm.is_some() || scanner.is_some() || files::has_objects(config);
    Ok(Confinement { user, files, calls: None, starts_children, acts_as_others: acts_as_others(config) })
}

impl Confinement {
    /// Whether the process reaches no other files than those of its configuration.
    pub fn closes_files(&self) -> bool {
        matches!(self.files, Files::Closed(_))
    }

    /// Refuses the system calls that a server which has started does not make, in all of its threads.
    pub fn filter_calls(&mut self) {
        self.calls = Some(calls::filter(self.starts_children, self.acts_as_others));
    }
}

/// What holds, in a line.
impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "confined: user {}, {}", self.user, self.files)?;
        match &self.calls {
            None => Ok(()),
            Some(Ok(())) => f.write_str(", seccomp"),
            Some(Err(why)) => write!(f, ", no seccomp ({why})"),
        }
    }
}

/// Keys, and the directory of the audit file: what is opened again at SIGHUP, with how it is.
fn opened_anew<'a>(config: &'a ServeConfig, read_anew: &'a [PathBuf]) -> impl Iterator<Item = &'a Path> {
    let keys = config.known_hosts.iter().flat_map(|host| {
        host.dhchap_keys.iter().chain(&host.tls_keys).chain(&host.dhchap_controller_key).map(|key| key.path.as_path())
    });
    keys.chain(read_anew.iter().map(PathBuf::as_path))
}

fn tell_of_what_cannot_be_read_anew(config: &ServeConfig, read_anew: &[PathBuf], user: &str) {
    if let Some(path) = opened_anew(config, read_anew).find(|path| !user::may_read(path)) {
        tracing::warn!(
            "user {user} cannot read {}: SIGHUP will change nothing until it can (chown {user} {})",
            path.display(),
            path.display()
        );
    }
}

/// Without `FSETID`, which is not among them, the kernel takes the set-user-ID bit from a program that a host overwrites.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    let had = capabilities(None)?;
    let reduced = CapabilitySets {
        effective: had.permitted & kept,
        permitted: had.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, reduced)?)
}

fn while_serving(config: &ServeConfig) -> CapabilitySet {
    let mut needed = CapabilitySet::empty();
    if acts_as_others(config) {
        needed |= CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    if config.congestion_control.is_some() {
        needed |= CapabilitySet::NET_ADMIN;
    }
    needed
}

/// Threads of exports then run as other users.
fn acts_as_others(config: &ServeConfig) -> bool {
    config.exports.iter().any(|export| export.uid.is_some() || export.gid.is_some())
}

/// The capabilities of root over files: these go with root.
const OF_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK);

/// Lower ones need a privilege.
const PORTS_OF_ALL: u16 = 1024;

const RUNS_AS_ROOT: &str = "diskside serve runs as root: make it a user of its own (useradd --system diskside), and give that \
    user what it serves; --user names another";
