//! File systems on images that the tests make, mount and look at behind the file system's back. Needs root.

#![allow(dead_code, reason = "each test uses its part")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use diskside_sys::lease::{Lease, Notice, release, take};
use diskside_sys::loopdev::{LoopDevice, LoopOptions};

/// What is made, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Ext4,
    Ext4WithBlocksOf1KiB,
    Ext4JournallingData,
    Xfs,
}

/// A mounted file system, and its image as the device has it.
pub(crate) struct Lab {
    _directory: tempfile::TempDir,
    pub(crate) mount: PathBuf,
    pub(crate) image: PathBuf,
    direct: File,
    device: Option<LoopDevice>,
}

impl Lab {
    /// Makes one; `None`, after saying so, where that cannot be done.
    pub(crate) fn new(kind: Kind) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("NOT TESTED: {kind:?} needs root and loop devices");
            return None;
        }
        let (program, options): (&str, &[&str]) = match kind {
            Kind::Ext4 => ("mkfs.ext4", &["-q", "-F", "-b", "4096"]),
            Kind::Ext4WithBlocksOf1KiB => ("mkfs.ext4", &["-q", "-F", "-b", "1024"]),
            Kind::Ext4JournallingData => ("mkfs.ext4", &["-q", "-F", "-b", "4096"]),
            Kind::Xfs => ("mkfs.xfs", &["-q", "-f", "-m", "reflink=1"]),
        };
        if Command::new(program).arg("-V").output().is_err() {
            eprintln!("NOT TESTED: {kind:?} needs {program}");
            return None;
        }
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let (image, mount) = (directory.path().join("image"), directory.path().join("mount"));
        std::fs::create_dir(&mount).expect("made");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&image).expect("an image");
        file.set_len(320 << 20).expect("sparse");
        run(Command::new(program).args(options).arg(&image));
        if matches!(kind, Kind::Ext4JournallingData) {
            run(Command::new("tune2fs").args(["-o", "journal_data"]).arg(&image));
        }
        let options = LoopOptions { block_len: 512, read_only: false, direct: true, autoclear: true };
        let device = LoopDevice::attach(&file, options).expect("a loop device");
        run(Command::new("mount").arg(device.path()).arg(&mount));
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&image).expect("open");
        Some(Self { _directory: directory, mount, image, direct, device: Some(device) })
    }

    /// What the device holds, past all caches.
    pub(crate) fn on_device(&self, offset: u64, len: usize) -> Vec<u8> {
        const BLOCK: u64 = 4096;
        let first = offset / BLOCK * BLOCK;
        let whole = (offset + len as u64).next_multiple_of(BLOCK) - first;
        // Memory for O_DIRECT has to be aligned: part of a larger piece is.
        let mut memory = vec![0; whole as usize + BLOCK as usize];
        let skip = memory.as_ptr().align_offset(BLOCK as usize);
        let aligned = &mut memory[skip..skip + whole as usize];
        self.direct.read_exact_at(aligned, first).expect("read");
        let skip = (offset - first) as usize;
        aligned[skip..skip + len].to_vec()
    }

    /// Unmounts. Children of other tests, between `fork` and `exec`, have files open for a moment.
    pub(crate) fn unmount(&self) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !Command::new("umount").arg(&self.mount).output().expect("it runs").status.success() {
            assert!(Instant::now() < patience, "{} is busy", self.mount.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Mounts it again, so that everything comes from the device.
    pub(crate) fn remount(&self) {
        self.unmount();
        run(Command::new("mount").arg(self.device()).arg(&self.mount));
    }

    /// The device's path.
    pub(crate) fn device(&self) -> &Path {
        self.device.as_ref().expect("attached").path()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A file that a failed test left open keeps it busy; then it goes when that is closed.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).output();
        self.device.take();
    }
}

/// Waits until nobody has a file open for writing: for a moment the children of other tests, between `fork` and `exec`,
/// still have what this one has closed.
pub(crate) fn until_nobody_writes(path: &Path) {
    let file = File::open(path).expect("open");
    let patience = Instant::now() + Duration::from_secs(20);
    while let Err(error) = take(&file, Lease::Read, Notice::Silent) {
        assert!(Instant::now() < patience, "someone writes {}: {error}", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
    release(&file).expect("released");
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
