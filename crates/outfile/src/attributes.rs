//! What a new file takes over from the one that it replaces.

use std::os::fd::BorrowedFd;

use rustix::fs::{self, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;

/// The longest value of an attribute, and the longest list of names, that Linux has.
const XATTR_LEN_MAX: usize = 64 << 10;
/// Said of content, by who wrote it: a new content has to earn them again. The kernel drops the first with every write.
const OF_CONTENT: [&[u8]; 3] = [CAPABILITY, b"security.ima", b"security.evm"];
const CAPABILITY: &[u8] = b"security.capability";
const ACL: &[u8] = b"system.posix_acl_access";
/// Whose a file is at a server that counts what hosts hold. It is of the one file that was written, so a new one neither takes
/// it over nor loses its own.
pub const OWNER_ATTRIBUTE: &str = "user.diskside.owner";

/// Gives `new` the owner, group, extended attributes, ACL and mode of `old`, and no others. Set-user-ID and set-group-ID bits
/// and capabilities are not given: they were for another content.
///
/// # Errors
/// This user cannot do it, or the file system. Then `new` may have some of it, and must not take the place of `old`.
pub fn keep_attributes(old: BorrowedFd<'_>, stat: &Stat, new: BorrowedFd<'_>) -> Result<(), Errno> {
    let own = fs::fstat(new)?;
    if (stat.st_uid, stat.st_gid) != (own.st_uid, own.st_gid) {
        fs::fchown(new, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    }
    let names = names(old)?;
    let is_kept = |name: &&Vec<u8>| !OF_CONTENT.contains(&&name[..]) && &name[..] != OWNER_ATTRIBUTE.as_bytes();
    for name in names.iter().filter(is_kept) {
        let Some(value) = value(old, name)? else { continue };
        if self::value(new, name).ok().flatten().as_ref() != Some(&value) {
            fs::fsetxattr(new, &name[..], &value, XattrFlags::empty())?;
        }
    }
    remove_attributes(new, |name| names.iter().any(|kept| kept == name))?;
    // Last: it is what an ACL makes of it, too.
    fs::fchmod(new, Mode::from_raw_mode(stat.st_mode & 0o777))
}

/// Takes from a file that had another content what a new one would not have, and gives it this mode.
///
/// # Errors
/// What the system says.
pub fn reset_attributes(file: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    remove_attributes(file, |_| false)?;
    fs::fchmod(file, mode)
}

fn remove_attributes(file: BorrowedFd<'_>, is_kept: impl Fn(&[u8]) -> bool) -> Result<(), Errno> {
    let is_extra = |name: &[u8]| match name {
        ACL => !is_kept(name),
        _ if name == OWNER_ATTRIBUTE.as_bytes() => false,
        _ if name.starts_with(b"user.") => !is_kept(name),
        _ => name == CAPABILITY,
    };
    for name in names(file)?.iter().filter(|name| is_extra(name)) {
        fs::fremovexattr(file, &name[..])?;
    }
    Ok(())
}

fn names(file: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = vec![0; XATTR_LEN_MAX];
    match fs::flistxattr(file, &mut list[..]) {
        Ok(len) => {
            Ok(list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
        Err(errno) => Err(errno),
    }
}

/// `None`: it went away.
fn value(file: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; XATTR_LEN_MAX];
    match fs::fgetxattr(file, name, &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(errno),
    }
}
