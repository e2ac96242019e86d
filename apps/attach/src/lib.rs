//! A volume as a block device of this machine, where the kernel has no NVMe over TCP: a FUSE file under a loop device.
//!
//! Needs root, since loop devices do. Reads, writes, flushes and discards of the device become commands on the volume's
//! connection; nothing is cached on the way but, for deltas, the old content of pages, and a flush is a Flush, so bytes that the file system made durable are
//! durable at the volume.
//!
//! When the process dies, the device fails all further requests, as a disk that was pulled out. Flushed bytes are at
//! the volume; the file system is mounted again after [`detach`] and a new [`Attached::new`].

#![forbid(unsafe_code)]

mod bases;
mod deltas;
mod file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use diskside_host::Volume;
pub use diskside_host::mounted::{ATTACHED_DIRECTORY as DIRECTORY, attached_url as url_of};
use diskside_host::mounted::{ATTACHED_URL as URL, ATTACHED_VOLUME as VOLUME};
use diskside_sys::loopdev::{LoopDevice, LoopOptions};
use fuser::{BackgroundSession, Config, MountOption, Session};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use deltas::DeltaOptions;
use file::VolumeFile;

/// The file with the counters of deltas, next to the volume's.
const DELTAS: &str = "deltas";

/// Why a volume cannot be attached or detached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The caller is not root.
    #[error("attaching needs root: loop devices and mounts do")]
    NotRoot,
    /// Something is missing or refused on this machine.
    #[error("{what}: {source}")]
    Environment {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The volume takes no deltas, or only of shorter pages.
    #[error(
        "the volume takes deltas of pages of up to {most} bytes, not {page}; serve it with `rw,atomic=` of that size, by a Diskside that knows deltas"
    )]
    Deltas {
        /// The longest page of the volume; 0: none.
        most: u32,
        /// The wanted page.
        page: u64,
    },
    /// The device is none of ours.
    #[error("{0} shows no attached volume; those are listed by `losetup`, with files below {DIRECTORY}")]
    NotAttached(PathBuf),
    /// The device is in use.
    #[error("{device} is in use: {by}; unmount it first")]
    InUse {
        /// The device.
        device: PathBuf,
        /// Where it is mounted, or what holds it.
        by: String,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> AttachError {
    let what = what.into();
    move |source| AttachError::Environment { what, source }
}

/// A volume that this process serves as a block device.
#[derive(Debug)]
pub struct Attached {
    session: BackgroundSession,
    device: PathBuf,
    directory: PathBuf,
}

impl Attached {
    /// Attaches a volume. `url` is what [`url_of`] will tell of the device.
    ///
    /// # Errors
    /// Why not; nothing is left behind.
    pub fn new(volume: &Volume, url: &str, read_only: bool) -> Result<Self, AttachError> {
        Self::with_deltas(volume, url, read_only, None)
    }

    /// The same; pages that are written travel as deltas, where their old content is known.
    ///
    /// # Errors
    /// Why not; nothing is left behind.
    pub fn with_deltas(
        volume: &Volume,
        url: &str,
        read_only: bool,
        deltas: Option<DeltaOptions>,
    ) -> Result<Self, AttachError> {
        if let Some(DeltaOptions { page, .. }) = deltas
            && page.bytes() > volume.delta_len_max().into()
        {
            return Err(AttachError::Deltas { most: volume.delta_len_max(), page: page.bytes() });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(AttachError::NotRoot);
        }
        diskside_sys::mark_as_writer_of_pages();
        let directory = make_directory()?;
        let read_only = read_only || volume.is_read_only();
        Self::in_directory(volume, url, read_only, deltas, &directory).inspect_err(|_| {
            // The first error is the one that matters.
            let _ = unmount(&directory, UnmountFlags::DETACH);
            let _ = fs::remove_dir(&directory);
        })
    }

    fn in_directory(
        volume: &Volume,
        url: &str,
        read_only: bool,
        deltas: Option<DeltaOptions>,
        directory: &Path,
    ) -> Result<Self, AttachError> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("diskside".into()),
            MountOption::Subtype("diskside".into()),
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
        ];
        let file = VolumeFile::new(volume.clone(), url, read_only, deltas);
        let session = Session::new(file, directory, &config)
            .and_then(Session::spawn)
            .map_err(failed("mounting a FUSE file system (is /dev/fuse there?)"))?;
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let path = directory.join(VOLUME);
        let file = open(&path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed(path.display().to_string())(e.into()))?;
        let options = LoopOptions { block_len: volume.block_len(), read_only, direct: true, autoclear: false };
        let device = LoopDevice::attach(file, options).map_err(failed("making a loop device"))?;
        Ok(Self { session, device: device.path().to_path_buf(), directory: directory.to_path_buf() })
    }

    /// The block device, `/dev/loopN`.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Serves until the device is detached from another process ([`detach`]).
    ///
    /// # Errors
    /// The FUSE connection failed.
    pub fn serve(self) -> Result<(), AttachError> {
        let result = end_of_session(self.session.join());
        let _ = fs::remove_dir(&self.directory);
        result.map_err(failed("serving the volume's file"))
    }

    /// From now on SIGINT and SIGTERM take the device away, as soon as nobody uses it; `waits` hears once who does.
    ///
    /// # Errors
    /// Signals cannot be heard.
    pub fn detach_on_signal(&self, waits: impl Fn(&AttachError) + Send + 'static) -> Result<(), AttachError> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed("listening for signals"))?;
        let device = self.device.clone();
        // Ends with the process.
        std::thread::spawn(move || {
            let Some(_) = signals.forever().next() else { return };
            let mut told = false;
            while let Err(error @ AttachError::InUse { .. }) = detach(&device) {
                if !std::mem::replace(&mut told, true) {
                    waits(&error);
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Ok(())
    }

    /// Takes the device away.
    ///
    /// # Errors
    /// It is in use, and stays as it is.
    pub fn detach(self) -> Result<(), AttachError> {
        detach(&self.device)?;
        // A program that has opened the volume's file itself, and not the device, is served until it closes it.
        if wait_until(|| self.session.guard.is_finished()) {
            return self.serve();
        }
        Ok(())
    }
}

/// Takes an attached device away, whichever process serves it, and also when that process died.
///
/// # Errors
/// It is none of ours, or in use.
pub fn detach(device: &Path) -> Result<(), AttachError> {
    let directory = directory_of(device)?;
    if let Some(by) = user_of(device) {
        return Err(AttachError::InUse { device: device.to_path_buf(), by });
    }
    LoopDevice::open(device).and_then(LoopDevice::detach).map_err(failed(device.display().to_string()))?;
    // The kernel releases the file when the last program that looks at the device, be it udev, has closed it.
    let backing = sys_of(device).join("loop/backing_file");
    wait_until(|| !backing.exists());
    // Ends the session of the process that serves it.
    match unmount(&directory, UnmountFlags::DETACH) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(failed(format!("unmounting {}", directory.display()))(errno.into())),
    }
    // The process that served it may be quicker.
    let _ = fs::remove_dir(&directory);
    Ok(())
}

/// The result of the end of a FUSE session. The kernel has two errors for a mount that is gone: ENODEV, which `fuser`
/// takes for what it is, and ECONNABORTED, when the mount went while a request was on its way to us.
fn end_of_session(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        result => result,
    }
}

/// A directory of this process's own. Those of processes that died before they had a device are removed.
fn make_directory() -> Result<PathBuf, AttachError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new(DIRECTORY).join(format!("{}-{number}", std::process::id()));
    let what = format!("making {}", directory.display());
    // A process that died may have had this number; its mount fails every access.
    let _ = unmount(&directory, UnmountFlags::DETACH);
    let _ = fs::remove_dir(&directory);
    fs::create_dir_all(&directory).map_err(failed(what))?;
    Ok(directory)
}

fn sys_of(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

fn directory_of(device: &Path) -> Result<PathBuf, AttachError> {
    let not_ours = || AttachError::NotAttached(device.to_path_buf());
    let backing = fs::read_to_string(sys_of(device).join("loop/backing_file")).map_err(|_| not_ours())?;
    let path = Path::new(backing.trim_end_matches('\n'));
    let is_ours = path.file_name().is_some_and(|name| name == VOLUME) && path.starts_with(DIRECTORY);
    path.parent().filter(|_| is_ours).map(Path::to_path_buf).ok_or_else(not_ours)
}

/// Where a device, or a partition of it, is mounted, or which device is made of it.
fn user_of(device: &Path) -> Option<String> {
    let sys = sys_of(device);
    if let Some(holder) = fs::read_dir(sys.join("holders")).ok()?.flatten().next() {
        return Some(format!("it is part of {}", holder.file_name().to_string_lossy()));
    }
    let name = device.to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let source = fields.next()?;
        let partition = source.strip_prefix(&name)?;
        let is_it = partition.is_empty() || partition.strip_prefix('p')?.parse::<u32>().is_ok();
        fields.next().filter(|_| is_it).map(str::to_owned)
    });
    if let Some(point) = mounted {
        return Some(format!("it is mounted at {point}"));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| line.split_whitespace().next() == Some(&name)).then(|| "it is swap space".into())
}

/// Waits for two seconds at most.
fn wait_until(over: impl Fn() -> bool) -> bool {
    for _ in 0..100 {
        if over() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    // A detach failed now and then, on a busy machine, when udev was looking at the device that went away.
    #[test]
    fn a_mount_that_goes_while_a_request_comes_is_a_plain_end() {
        use rustix::io::Errno;
        assert!(end_of_session(Ok(())).is_ok());
        assert!(end_of_session(Err(Errno::CONNABORTED.into())).is_ok());
        let failed = end_of_session(Err(Errno::IO.into())).expect_err("no plain end");
        assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
}
