//! As whom a server runs that root started.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{User as Account, getgrouplist};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::config::ServeConfig;

/// Why the process is not the user that it should be.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// There is none of this name.
    #[error(
        "user: there is no user `{0}` on this machine (useradd --system {0} makes one; UID:GID names one by its numbers)"
    )]
    Unknown(String),
    /// Only root can become somebody else.
    #[error("user: this process runs as {0} and cannot become {1}; start it as root, or as that user")]
    NotRoot(String, String),
    /// The kernel refuses it.
    #[error("user: cannot become it: {0}")]
    System(#[from] io::Error),
}

/// A user that a process can become.
#[derive(Debug)]
pub(super) struct User {
    pub(super) name: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// As whom to serve.
#[derive(Debug)]
pub(super) enum Choice {
    Become(User),
    /// Stay the user that started the server; `why`, where that is root and nobody said so.
    Stay {
        name: String,
        why: Option<String>,
    },
}

impl Choice {
    /// The named user. Without a name root becomes the usual account; else nobody, where nobody can open what is
    /// served.
    pub(super) fn of(config: &ServeConfig, read_anew: &[PathBuf]) -> Result<Self, UserError> {
        let own = geteuid();
        let Some(name) = &config.user else {
            return Ok(if own.is_root() { Self::of_root(config, read_anew)? } else { Self::stay(None) });
        };
        let user = User::find(name)?.ok_or_else(|| UserError::Unknown(name.clone()))?;
        match (user.uid == own, own.is_root()) {
            (true, _) => Ok(Self::stay(None)),
            (false, true) => Ok(Self::Become(user)),
            (false, false) => Err(UserError::NotRoot(name_of(own), user.name)),
        }
    }

    fn of_root(config: &ServeConfig, read_anew: &[PathBuf]) -> io::Result<Self> {
        let (user, tried) = if let Some(user) = User::find(USUAL)? {
            let tried = user.try_on(|| None);
            (user, tried)
        } else if let Some(nobody) = User::find(NOBODY)? {
            let tried = nobody.try_on(|| closed(config, read_anew));
            (nobody, tried)
        } else {
            return Ok(Self::stay(Some(format!("there is no account {USUAL}"))));
        };
        Ok(match tried {
            Ok(None) => Self::Become(user),
            Ok(Some(path)) => {
                let why =
                    format!("there is no account {USUAL}, and account {} cannot open {}", user.name, path.display());
                Self::stay(Some(why))
            }
            // In some containers root is the only user.
            Err(error) => Self::stay(Some(format!("it cannot become {}: {error}", user.name))),
        })
    }

    fn stay(why: Option<String>) -> Self {
        Self::Stay { name: name_of(geteuid()), why }
    }
}

impl User {
    /// By its name, or by the numbers `UID:GID`, also where no account has them.
    fn find(text: &str) -> io::Result<Option<Self>> {
        let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
        if let Some((uid, gid)) = text.split_once(':').and_then(|(uid, gid)| Some((number(uid)?, number(gid)?))) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            return Ok(Some(Self { name: text.to_owned(), uid, gid, groups: vec![gid] }));
        }
        let account = match Account::from_name(text) {
            // As getpwnam_r(3) has it, where there is no file of accounts.
            Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => None,
            found => found?,
        };
        let Some(account) = account else { return Ok(None) };
        let name = CString::new(text).expect("an account was found by it");
        let groups = getgrouplist(&name, account.gid)?.iter().map(|gid| Gid::from_raw(gid.as_raw())).collect();
        let (uid, gid) = (Uid::from_raw(account.uid.as_raw()), Gid::from_raw(account.gid.as_raw()));
        Ok(Some(Self { name: text.to_owned(), uid, gid, groups }))
    }

    /// Becomes this user for good. Capabilities stay permitted.
    pub(super) fn take_on(&self) -> io::Result<()> {
        set_keep_capabilities(true)?;
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        set_thread_res_uid(self.uid, self.uid, self.uid)?;
        Ok(set_keep_capabilities(false)?)
    }

    /// Looks as this user, and is who it was again.
    fn try_on<T>(&self, look: impl FnOnce() -> T) -> io::Result<T> {
        let (uid, gid, groups) = (geteuid(), getegid(), getgroups()?);
        set_thread_groups(&self.groups)?;
        let taken = set_thread_res_gid(gid, self.gid, gid).and_then(|()| set_thread_res_uid(uid, self.uid, uid));
        let seen = taken.map(|()| look());
        set_thread_res_uid(uid, uid, uid)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_groups(&groups)?;
        Ok(seen?)
    }
}

/// The user that a process of root's becomes to serve, as far as is known before anything is opened.
pub(crate) fn user_to_be(config: &ServeConfig) -> Option<u32> {
    if !geteuid().is_root() {
        return None;
    }
    let user = User::find(config.user.as_deref().unwrap_or(USUAL)).ok().flatten()?;
    Some(user.uid.as_raw())
}

/// Whether the process can read a file of this name.
pub(super) fn may_read(path: &Path) -> bool {
    may(path, Access::READ_OK)
}

/// The first path that a server of `config` opens by its name and that is closed to this user.
fn closed(config: &ServeConfig, read_anew: &[PathBuf]) -> Option<PathBuf> {
    let directories = config.exports.iter().filter(|export| export.uid.is_none()).filter_map(|export| {
        let change = if export.rw { Access::WRITE_OK } else { Access::empty() };
        Some((export.directory()?, Access::READ_OK | Access::EXEC_OK | change))
    });
    let audit = config.security.audit.iter().flat_map(|path| {
        [(path.as_path(), Access::WRITE_OK), (path.parent().unwrap_or(path), Access::WRITE_OK | Access::EXEC_OK)]
    });
    let files = super::opened_anew(config, read_anew).map(|path| (path, Access::READ_OK));
    let mut all = directories.chain(audit).chain(files);
    all.find(|(path, access)| !may(path, *access)).map(|(path, _)| path.to_owned())
}

fn may(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

fn name_of(uid: Uid) -> String {
    let account = Account::from_uid(nix::unistd::Uid::from_raw(uid.as_raw())).ok().flatten();
    account.map_or_else(|| uid.as_raw().to_string(), |account| account.name)
}

/// The account that packages make for the server.
const USUAL: &str = "diskside";
/// The account that owns nothing.
const NOBODY: &str = "nobody";
