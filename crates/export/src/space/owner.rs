//! Whose a file is: an extended attribute of it, which stays with it when it gets another name, is copied or restored.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use diskside_outfile::OWNER_ATTRIBUTE;
use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

/// The longest NQN.
const NQN_LEN_MAX: usize = 223;

/// The owner of an open file, which may be open for its path alone. `None`: it has none, or it cannot be told.
pub(crate) fn owner(file: BorrowedFd<'_>) -> Option<String> {
    let mut value = [0; NQN_LEN_MAX];
    let len = match fs::fgetxattr(file, OWNER_ATTRIBUTE, &mut value[..]) {
        Err(Errno::BADF) => fs::getxattr(path_of(file), OWNER_ATTRIBUTE, &mut value[..]),
        len => len,
    };
    parse(value.get(..len.ok()?)?)
}

/// The owner of a name in a directory; a symbolic link has none.
pub(crate) fn owner_at(directory: BorrowedFd<'_>, name: &[u8]) -> Option<String> {
    let mut path = format!("{}/", path_of(directory)).into_bytes();
    path.extend_from_slice(name);
    let mut value = [0; NQN_LEN_MAX];
    let len = fs::lgetxattr(&*path, OWNER_ATTRIBUTE, &mut value[..]).ok()?;
    parse(value.get(..len)?)
}

pub(crate) fn set_owner(file: BorrowedFd<'_>, nqn: &str) -> Result<(), Errno> {
    match fs::fsetxattr(file, OWNER_ATTRIBUTE, nqn.as_bytes(), XattrFlags::empty()) {
        Err(Errno::BADF) => fs::setxattr(path_of(file), OWNER_ATTRIBUTE, nqn.as_bytes(), XattrFlags::empty()),
        set => set,
    }
}

pub(crate) fn remove_owner(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let removed = match fs::fremovexattr(file, OWNER_ATTRIBUTE) {
        Err(Errno::BADF) => fs::removexattr(path_of(file), OWNER_ATTRIBUTE),
        removed => removed,
    };
    if removed == Err(Errno::NODATA) { Ok(()) } else { removed }
}

/// Whether the file system of a directory keeps such attributes.
pub(crate) fn has_owners(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    match fs::getxattr(path_of(directory), OWNER_ATTRIBUTE, &mut [0; NQN_LEN_MAX][..]) {
        // Whether it may be read is another question.
        Ok(_) | Err(Errno::NODATA | Errno::ACCESS | Errno::PERM | Errno::RANGE) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Anybody on this machine who may write the file can write anything there.
fn parse(value: &[u8]) -> Option<String> {
    std::str::from_utf8(value).ok().filter(|nqn| is_owner(nqn)).map(str::to_owned)
}

/// Whether a host of this name can own files: all can that have a name at all.
pub(crate) fn is_owner(nqn: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    nqn.len() <= NQN_LEN_MAX && nqn.starts_with("nqn.") && nqn.chars().all(is_plain)
}

fn path_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_stays_with_the_file_and_what_is_no_name_is_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(owner(file.as_fd()), None);
        set_owner(file.as_fd(), "nqn.a").unwrap();
        std::fs::rename(&path, dir.path().join("b")).unwrap();
        let by_path = fs::open(dir.path().join("b"), fs::OFlags::PATH, fs::Mode::empty()).unwrap();
        let directory = fs::open(dir.path(), fs::OFlags::PATH, fs::Mode::empty()).unwrap();
        assert_eq!(owner(by_path.as_fd()).as_deref(), Some("nqn.a"));
        assert_eq!(owner_at(directory.as_fd(), b"b").as_deref(), Some("nqn.a"));
        set_owner(by_path.as_fd(), "nqn.b").unwrap();
        std::fs::remove_file(dir.path().join("b")).unwrap();
        remove_owner(by_path.as_fd()).unwrap();
        remove_owner(file.as_fd()).unwrap();
        assert_eq!((owner(by_path.as_fd()), owner(file.as_fd())), (None, None));
        has_owners(directory.as_fd()).unwrap();
        for value in [&b"root"[..], b"nqn.\xff", b"nqn.a b", b"nqn.a\n", b"", &[b'n'; 300]] {
            let made = std::fs::File::create(dir.path().join("c")).unwrap();
            fs::fsetxattr(&made, OWNER_ATTRIBUTE, value, XattrFlags::empty()).unwrap();
            assert_eq!(owner(made.as_fd()), None);
        }
    }
}
