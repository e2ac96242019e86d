//! What the process of a server gives up before it serves, so that whoever gets the better of it has little.
//!
//! These are threads' own, so they must be given up before the first thread is started. An embedder may need them for
//! other things: a [`Target`](crate::Target) alone gives up nothing.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, geteuid, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use crate::config::ServeConfig;

/// Gives up what a server of `config` does not need: new rights by what it starts, its memory in a core dump, and of root's
/// capabilities all but those to open, make and own files, and what `config` asks for.
///
/// # Errors
/// The kernel refuses it.
pub fn give_up(config: &ServeConfig) -> io::Result<()> {
    set_no_new_privs(true)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // Memory has hosts' data in it, and a core dump may be handed to a program whatever the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let kept = needed(config);
    let had = capabilities(None)?;
    let reduced = CapabilitySets {
        effective: had.effective & kept,
        permitted: had.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, reduced)?;
    if geteuid().is_root() {
        tracing::warn!("{RUNS_AS_ROOT}");
    }
    Ok(())
}

/// Without `FSETID`, which is not among them, the kernel takes the set-user-ID bit from a program that a host overwrites.
fn needed(config: &ServeConfig) -> CapabilitySet {
    let mut needed = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::IPC_LOCK;
    if config.exports.iter().any(|export| export.uid.is_some() || export.gid.is_some()) {
        needed |= CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    if config.listen.iter().any(|address| (1..PORTS_OF_ALL).contains(&address.port())) {
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    if config.congestion_control.is_some() {
        needed |= CapabilitySet::NET_ADMIN;
    }
    needed
}

/// Lower ones need a privilege.
const PORTS_OF_ALL: u16 = 1024;

const RUNS_AS_ROOT: &str = "diskside serve runs as root: run it as a user of its own (in a systemd unit, User=diskside; by \
    hand, setpriv --reuid diskside --regid diskside --init-groups diskside serve ...), and give that user what it serves";
