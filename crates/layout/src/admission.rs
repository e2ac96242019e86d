//! Which files may be read at the volume at all.

use std::fs::{self, File};
use std::path::Path;

use diskside_sys::attributes::{self, FileSystem, XFLAG_DAX, XFLAG_REALTIME};
use rustix::fs::{AtFlags, FileType, IFlags, StatxAttributes, StatxFlags, fstatfs, ioctl_getflags, statx};

use crate::place::{Disk, Place};
use crate::reason::{Reason, Refusal};

/// A file that may be read at the volume.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Where its file system is.
    pub place: Place,
    /// Which file system.
    pub file_system: FileSystem,
    /// The file system's UUID, to compare with what the volume holds; `None` where the kernel does not tell.
    pub uuid: Option<[u8; 16]>,
    /// Which file on the device: its inode number.
    pub inode: u64,
}

/// Looks at an open file and at what it is on.
///
/// # Errors
/// Why not.
pub fn admit(file: &File) -> Result<Admitted, Refusal> {
    let wanted = StatxFlags::BASIC_STATS;
    let told = statx(file, "", AtFlags::EMPTY_PATH, wanted).map_err(|e| Refusal::failed("statx", e.into()))?;
    if FileType::from_raw_mode(told.stx_mode.into()) != FileType::RegularFile {
        return Err(Reason::NotRegular.into());
    }
    let file_system = attributes::file_system(file).map_err(|e| Refusal::failed("fstatfs", e))?;
    if let FileSystem::Other(magic) = file_system {
        return Err(Refusal::new(Reason::FileSystem, format!("file system {magic:#x}")));
    }
    refuse_attributes(told.stx_attributes)?;
    refuse_flags(file)?;
    let place = Place::of_device(Path::new("/sys"), told.stx_dev_major, told.stx_dev_minor)?;
    if file_system == FileSystem::Ext4 {
        refuse_data_journal(Path::new("/proc"), &place.device)?;
    }
    let block_len = fstatfs(file).map_err(|e| Refusal::failed("fstatfs", e.into()))?.f_bsize as u64;
    if u64::from(place.block_len) > block_len {
        let found = format!("{} bytes on the device, {block_len} in the file system", place.block_len);
        return Err(Refusal::new(Reason::Blocks, found));
    }
    let uuid = attributes::file_system_uuid(file).map_err(|e| Refusal::failed("the file system's UUID", e))?;
    Ok(Admitted { place, file_system, uuid, inode: told.stx_ino })
}

impl Admitted {
    /// Whether extents can move under a read lease: where there is deduplication.
    #[must_use]
    pub fn moves_under_lease(&self) -> bool {
        self.file_system != FileSystem::Ext4
    }

    /// Compares the start of the file system, as the volume holds it, with what is mounted. `superblock` is the first
    /// [`SUPERBLOCK_LEN`] bytes at [`Place::offset`].
    ///
    /// # Errors
    /// [`Reason::OtherVolume`].
    pub fn check_superblock(&self, superblock: &[u8]) -> Result<(), Refusal> {
        let Some(uuid) = self.uuid else { return Ok(()) };
        let (magic, magic_at, uuid_at) = match self.file_system {
            FileSystem::Ext4 => (&b"\x53\xef"[..], 0x438, 0x468),
            _ => (&b"XFSB"[..], 0, 0x20),
        };
        let has = |at: usize, bytes: &[u8]| superblock.get(at..at + bytes.len()) == Some(bytes);
        if has(magic_at, magic) && has(uuid_at, &uuid) {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::OtherVolume,
            match &self.place.disk {
                Disk::Nvme(namespace) => format!("{}, namespace {}", namespace.subsystem, namespace.nsid),
                Disk::File(path) => path.display().to_string(),
                Disk::Other(name) => name.clone(),
            },
        ))
    }
}

/// Bytes of a file system's start that tell which it is.
pub const SUPERBLOCK_LEN: usize = 4096;

fn refuse_attributes(attributes: StatxAttributes) -> Result<(), Refusal> {
    let refused = [
        (StatxAttributes::ENCRYPTED, Reason::Encrypted),
        (StatxAttributes::COMPRESSED, Reason::Compressed),
        (StatxAttributes::VERITY, Reason::Verity),
        (StatxAttributes::DAX, Reason::Dax),
    ];
    match refused.iter().find(|(attribute, _)| attributes.contains(*attribute)) {
        Some((_, reason)) => Err((*reason).into()),
        None => Ok(()),
    }
}

/// File systems without such flags have nothing to refuse by them.
fn refuse_flags(file: &File) -> Result<(), Refusal> {
    if ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::JOURNALING)) {
        return Err(Refusal::new(Reason::DataJournal, "chattr +j"));
    }
    let extended = attributes::extended_flags(file).unwrap_or(0);
    if extended & XFLAG_REALTIME != 0 {
        return Err(Reason::Realtime.into());
    }
    if extended & XFLAG_DAX != 0 {
        return Err(Reason::Dax.into());
    }
    Ok(())
}

/// Refuses ext4's `data=journal`. `/proc/mounts` would not do: it leaves out what is the default of this file system, and
/// a superblock can make `data=journal` the default.
fn refuse_data_journal(proc: &Path, device: &str) -> Result<(), Refusal> {
    let path = proc.join("fs/ext4").join(device).join("options");
    let options = fs::read_to_string(&path)
        .map_err(|e| Refusal { source: Some(e), ..Refusal::new(Reason::DataJournal, path.display().to_string()) })?;
    if options.lines().any(|option| option == "data=journal") {
        return Err(Refusal::new(Reason::DataJournal, "mounted with data=journal"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_journalling_is_refused_and_so_is_not_knowing() {
        let proc = tempfile::tempdir().expect("a directory");
        for (device, options) in [("sda1", "rw\ndata=ordered\n"), ("sda2", "rw\ndata=journal\n")] {
            let directory = proc.path().join("fs/ext4").join(device);
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("options"), options).expect("written");
        }
        refuse_data_journal(proc.path(), "sda1").expect("ordered");
        assert_eq!(refuse_data_journal(proc.path(), "sda2").expect_err("journalled").reason, Reason::DataJournal);
        assert_eq!(refuse_data_journal(proc.path(), "sda3").expect_err("not told").reason, Reason::DataJournal);
    }

    #[test]
    fn a_volume_with_another_file_system_is_refused() {
        let place =
            Place { disk: Disk::Other("sdz".into()), device: "sdz".into(), offset: 0, len: 1 << 20, block_len: 512 };
        let mut admitted = Admitted { place, file_system: FileSystem::Ext4, uuid: Some([7; 16]), inode: 1 };
        let mut superblock = vec![0; SUPERBLOCK_LEN];
        superblock[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        superblock[0x468..0x478].copy_from_slice(&[7; 16]);
        admitted.check_superblock(&superblock).expect("the same");
        assert_eq!(admitted.check_superblock(&superblock[..512]).expect_err("cut").reason, Reason::OtherVolume);
        superblock[0x468] = 8;
        let refusal = admitted.check_superblock(&superblock).expect_err("another");
        assert_eq!((refusal.reason, refusal.found.as_str()), (Reason::OtherVolume, "sdz"));
        admitted.file_system = FileSystem::Xfs;
        superblock[..4].copy_from_slice(b"XFSB");
        superblock[0x20..0x30].copy_from_slice(&[7; 16]);
        admitted.check_superblock(&superblock).expect("the same");
    }
}
