//! The mark of a volume's file: an extended attribute, there as long as the file's journal may have writes that the file lacks.
//!
//! It names the journal, by its identifier and by its path. Without it nothing tied a file to its journal: a file could be served without
//! it, and written, and later have old writes carried out over new ones; or with the journal of another file.
//!
//! Devices have no attributes, and some file systems do not; there only the journal itself says what it can.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, fsync};
use rustix::io::Errno;

/// The attribute's name.
pub(crate) const ATTRIBUTE: &str = "user.diskside.journal";
/// The longest value: an identifier and a path.
const VALUE_LEN_MAX: usize = 17 + 4096;

/// A mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The journal's identifier.
    pub(crate) id: u64,
    /// Where the journal was.
    pub(crate) journal: PathBuf,
}

impl Mark {
    /// The mark of a file; `None`: it has none. `OPNOTSUPP`: it cannot have one.
    pub(crate) fn of(file: impl AsFd) -> Result<Option<Self>, Errno> {
        let mut value = vec![0; VALUE_LEN_MAX];
        match fgetxattr(file, ATTRIBUTE, &mut value[..]) {
            Ok(len) => Ok(Self::parse(&value[..len])),
            Err(Errno::NODATA) => Ok(None),
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => Err(Errno::OPNOTSUPP),
            Err(errno) => Err(errno),
        }
    }

    /// Marks a file, durably.
    pub(crate) fn put(&self, file: impl AsFd) -> Result<(), Errno> {
        fsetxattr(&file, ATTRIBUTE, &self.value(), XattrFlags::empty())?;
        fsync(&file)
    }

    /// Removes the mark of a file.
    pub(crate) fn remove(file: impl AsFd) -> Result<(), Errno> {
        match fremovexattr(&file, ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            result => result,
        }
    }

    /// As `setfattr` takes it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.value()).into_owned()
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value.get(..16)?).ok()?;
        let (id, path) = (u64::from_str_radix(text, 16).ok()?, value.get(17..)?);
        Some(Self { id, journal: Path::new(OsStr::from_bytes(path)).to_owned() })
    }

    fn value(&self) -> Vec<u8> {
        let mut value = format!("{:016x} ", self.id).into_bytes();
        value.extend_from_slice(self.journal.as_os_str().as_bytes());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_put_and_nothing_else_is_one() {
        let mark = Mark { id: 0xabc, journal: "/srv/data.img.journal".into() };
        assert_eq!(mark.text(), "0000000000000abc /srv/data.img.journal");
        assert_eq!(Mark::parse(&mark.value()), Some(mark.clone()));
        for other in ["", "0000000000000abc", "xyz", "000000000000zabc /a"] {
            assert_eq!(Mark::parse(other.as_bytes()), None, "{other}");
        }
        let file = tempfile::NamedTempFile::new_in(std::env::current_dir().unwrap()).unwrap();
        match mark.put(&file) {
            Err(Errno::OPNOTSUPP) => return,
            result => result.unwrap(),
        }
        assert_eq!(Mark::of(&file), Ok(Some(mark)));
        assert_eq!((Mark::remove(&file), Mark::of(&file), Mark::remove(&file)), (Ok(()), Ok(None), Ok(())));
    }
}
