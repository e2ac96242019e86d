//! As whom an export's threads run.

use std::io;

use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::ExportSpec;

/// The user and groups of an export.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    pub(super) uid: u32,
    pub(super) gid: u32,
    groups: Vec<u32>,
    /// Whether a thread has to take them on: the process has others.
    foreign: bool,
}

impl Credentials {
    /// What `spec` asks for, if this process can give it.
    pub(super) fn of(spec: &ExportSpec) -> Result<Self, String> {
        let (own_uid, own_gid) = (geteuid().as_raw(), getegid().as_raw());
        let (uid, gid) = (spec.uid.unwrap_or(own_uid), spec.gid.unwrap_or(own_gid));
        let foreign = uid != own_uid || gid != own_gid;
        if foreign && own_uid != 0 && !may_act_as_others() {
            return Err(format!(
                "this process runs as uid {own_uid}, gid {own_gid} and cannot act as uid {uid}, gid {gid}; \
                 run it as root, or leave uid= and gid= out"
            ));
        }
        if !foreign && !spec.groups.is_empty() {
            return Err("`groups` needs a uid or gid other than the target's own".into());
        }
        Ok(Self { uid, gid, groups: spec.groups.clone(), foreign })
    }

    /// Whether every thread of this process has them, and no right that [`take_on`](Self::take_on) gives up.
    pub(super) fn are_process(&self) -> bool {
        let keeps_set_user_id =
            || capabilities(None).map_or(true, |held| held.effective.contains(CapabilitySet::FSETID));
        !self.foreign && !keeps_set_user_id()
    }

    /// Makes the calling thread run as this user from here on. There is no way back, and with a user other than root
    /// no capability is left.
    pub(super) fn take_on(&self) -> io::Result<()> {
        give_up_set_user_id()?;
        if !self.foreign {
            return Ok(());
        }
        let groups: Vec<Gid> = self.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        if uid.is_root() {
            return Ok(());
        }
        // The kernel takes them from who was root; the process may be somebody else who kept the right to change.
        let none = CapabilitySet::empty();
        Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
    }
}

/// Who was root may have kept this right.
fn may_act_as_others() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    capabilities(None).is_ok_and(|held| held.effective.contains(needed))
}

/// A process with this capability overwrites a program of root's and leaves it root's: the kernel takes the set-user-ID
/// bit from a file that anybody else writes.
fn give_up_set_user_id() -> io::Result<()> {
    let CapabilitySets { mut effective, mut permitted, mut inheritable } = capabilities(None)?;
    if !permitted.contains(CapabilitySet::FSETID) {
        return Ok(());
    }
    for set in [&mut effective, &mut permitted, &mut inheritable] {
        set.remove(CapabilitySet::FSETID);
    }
    Ok(set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?)
}
