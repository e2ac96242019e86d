//! From the device that a file system is on to the disk and the place on it, by what `/sys` tells.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::reason::{Reason, Refusal};

/// Where a file system begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// On which disk.
    pub disk: Disk,
    /// The kernel's name for the file system's own device: the disk, or a partition.
    pub device: String,
    /// First byte on that disk.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of the disk's logical block.
    pub block_len: u32,
}

/// A disk, by what others know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// A namespace that the kernel is connected to.
    Nvme(Namespace),
    /// A file that the kernel shows as a disk (a loop device).
    File(PathBuf),
    /// Any other, by its name in `/sys/block`.
    Other(String),
}

/// A namespace of an NVMe subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The subsystem's name.
    pub subsystem: String,
    /// Its identifier there.
    pub nsid: u32,
    /// Its UUID, if it has one.
    pub uuid: Option<[u8; 16]>,
    /// Its NGUID, if it has one.
    pub nguid: Option<[u8; 16]>,
    /// The targets that it is reached at: `transport` and `address` of each controller.
    pub paths: Vec<String>,
}

impl Place {
    /// Finds the disk of a device number. `sys` is `/sys`, or what a test has made.
    ///
    /// # Errors
    /// [`Reason::NoDevice`] for an anonymous device, [`Reason::Stacked`] for one that is made of others,
    /// [`Reason::Blocks`] for blocks with metadata.
    pub fn of_device(sys: &Path, major: u32, minor: u32) -> Result<Self, Refusal> {
        let link = sys.join(format!("dev/block/{major}:{minor}"));
        let device = fs::canonicalize(&link)
            .map_err(|_| Refusal::new(Reason::NoDevice, format!("device {major}:{minor} is not in /sys")))?;
        let (device, disk, start) = match number(&device.join("partition")) {
            Some(_) => {
                let start = expect_number(&device.join("start"))?.saturating_mul(SECTOR_LEN);
                let disk = device.parent().unwrap_or(&device).to_path_buf();
                (device, disk, start)
            }
            None => (device.clone(), device, 0),
        };
        let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let slaves = fs::read_dir(disk.join("slaves")).is_ok_and(|mut entries| entries.next().is_some());
        if slaves || disk.join("dm").exists() || disk.join("md").exists() {
            return Err(Refusal::new(Reason::Stacked, name));
        }
        let block_len = expect_number(&disk.join("queue/logical_block_size"))?;
        let len = expect_number(&device.join("size"))?.saturating_mul(SECTOR_LEN);
        let device = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (disk, offset) = Disk::of(&disk, name)?;
        Ok(Self {
            disk,
            device,
            offset: offset.saturating_add(start),
            len,
            block_len: u32::try_from(block_len).unwrap_or(u32::MAX),
        })
    }
}

impl Disk {
    /// The disk, and how many bytes of it come before the device's first.
    fn of(device: &Path, name: String) -> Result<(Self, u64), Refusal> {
        if let Some(backing) = text(&device.join("loop/backing_file")) {
            if backing.ends_with(" (deleted)") {
                return Err(Refusal::new(Reason::UnknownDisk, format!("the file behind {name} is deleted")));
            }
            return Ok((Self::File(backing.into()), expect_number(&device.join("loop/offset"))?));
        }
        let Some(nsid) = number(&device.join("nsid")) else { return Ok((Self::Other(name), 0)) };
        if number(&device.join("metadata_bytes")).is_some_and(|bytes| bytes != 0) {
            return Err(Refusal::new(Reason::Blocks, format!("the blocks of {name} carry metadata")));
        }
        // With multipath `device` is the subsystem, without it a controller. Both know the subsystem's name.
        let owner = device.join("device");
        let subsystem = text(&owner.join("subsysnqn"))
            .ok_or_else(|| Refusal::new(Reason::UnknownDisk, format!("/sys does not tell the subsystem of {name}")))?;
        let namespace = Namespace {
            subsystem,
            nsid: u32::try_from(nsid).unwrap_or(0),
            uuid: text(&device.join("uuid")).and_then(|text| bytes_of(&text)),
            nguid: text(&device.join("nguid")).and_then(|text| bytes_of(&text)),
            paths: paths_of(&owner),
        };
        Ok((Self::Nvme(namespace), 0))
    }
}

/// The controllers that lead to a namespace: `owner` itself, or those below a subsystem.
fn paths_of(owner: &Path) -> Vec<String> {
    let of = |controller: &Path| {
        Some(format!("{} {}", text(&controller.join("transport"))?, text(&controller.join("address"))?))
    };
    if let Some(path) = of(owner) {
        return vec![path];
    }
    let Ok(entries) = fs::read_dir(owner) else { return Vec::new() };
    let controllers = entries.flatten().filter(|entry| is_controller(&entry.file_name().to_string_lossy()));
    let mut paths: Vec<String> = controllers.filter_map(|entry| of(&entry.path())).collect();
    paths.sort();
    paths
}

/// `nvme0`, and neither `nvme0n1` nor `nvme0c0n1`.
fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// 32 hexadecimal digits, with any hyphens; all zeroes mean that there is none.
fn bytes_of(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    (bytes != [0; 16]).then_some(bytes)
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

fn expect_number(path: &Path) -> Result<u64, Refusal> {
    number(path).ok_or_else(|| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "no number there");
        Refusal::failed(&format!("reading {}", path.display()), source)
    })
}

/// What `/sys` counts in, whatever the device's blocks are.
const SECTOR_LEN: u64 = 512;
