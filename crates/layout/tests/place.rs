//! The forms of `/sys` for the devices that matter, and how they are read.

use std::fs;

use diskside_layout::{Disk, Namespace, Place, Reason};

/// A made-up `/sys`.
struct Sys(tempfile::TempDir);

impl Sys {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("below /sys")).expect("made");
        fs::write(path, format!("{text}\n")).expect("written");
        self
    }

    fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("below /sys")).expect("made");
        std::os::unix::fs::symlink(self.0.path().join(to), path).expect("linked");
        self
    }

    /// A disk of 1 GiB.
    fn disk(&self, path: &str, number: &str) -> &Self {
        self.file(&format!("{path}/size"), "2097152")
            .file(&format!("{path}/queue/logical_block_size"), "512")
            .link(&format!("dev/block/{number}"), path)
    }

    fn place(&self, major: u32, minor: u32) -> Result<Place, Reason> {
        Place::of_device(self.0.path(), major, minor).map_err(|refusal| refusal.reason)
    }
}

const UUID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const UUID_BYTES: [u8; 16] =
    [0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];

#[test]
fn a_partition_of_a_namespace_with_multipath() {
    let sys = Sys::new();
    let head = "devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1";
    let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
    sys.disk(head, "259:0")
        .file(&format!("{head}/nsid"), "3")
        .file(&format!("{head}/uuid"), UUID)
        .file(&format!("{head}/nguid"), "00000000-0000-0000-0000-000000000000")
        .link(&format!("{head}/device"), subsystem)
        .file(&format!("{subsystem}/subsysnqn"), "nqn.2026-11.io.diskside:server")
        .file(&format!("{subsystem}/nvme0c0n1/nsid"), "3")
        .file("devices/nvme1/transport", "tcp")
        .file("devices/nvme1/address", "traddr=10.0.0.2,trsvcid=4420")
        .link(&format!("{subsystem}/nvme1"), "devices/nvme1")
        .file(&format!("{head}/nvme0n1p2/partition"), "2")
        .file(&format!("{head}/nvme0n1p2/start"), "4096")
        .file(&format!("{head}/nvme0n1p2/size"), "1024")
        .link("dev/block/259:2", &format!("{head}/nvme0n1p2"));
    let namespace = Namespace {
        subsystem: "nqn.2026-11.io.diskside:server".into(),
        nsid: 3,
        uuid: Some(UUID_BYTES),
        nguid: None,
        paths: vec!["tcp traddr=10.0.0.2,trsvcid=4420".into()],
    };
    let disk = Disk::Nvme(namespace);
    let whole = Place { disk: disk.clone(), device: "nvme0n1".into(), offset: 0, len: 1 << 30, block_len: 512 };
    assert_eq!(sys.place(259, 0), Ok(whole));
    let part = Place { disk, device: "nvme0n1p2".into(), offset: 4096 * 512, len: 1024 * 512, block_len: 512 };
    assert_eq!(sys.place(259, 2), Ok(part));
}

#[test]
fn a_namespace_without_multipath() {
    let sys = Sys::new();
    let (disk, controller) =
        ("devices/virtual/nvme-fabrics/ctl/nvme2/nvme2n1", "devices/virtual/nvme-fabrics/ctl/nvme2");
    sys.disk(disk, "259:7")
        .file(&format!("{disk}/nsid"), "1")
        .file(&format!("{disk}/uuid"), UUID)
        .link(&format!("{disk}/device"), controller)
        .file(&format!("{controller}/subsysnqn"), "nqn.2026-11.io.diskside:other")
        .file(&format!("{controller}/transport"), "tcp")
        .file(&format!("{controller}/address"), "traddr=::1,trsvcid=4420");
    let Disk::Nvme(namespace) = sys.place(259, 7).expect("found").disk else { panic!("a namespace") };
    assert_eq!((namespace.subsystem.as_str(), namespace.nsid), ("nqn.2026-11.io.diskside:other", 1));
    assert_eq!(namespace.paths, ["tcp traddr=::1,trsvcid=4420"]);

    sys.file(&format!("{disk}/metadata_bytes"), "8");
    assert_eq!(sys.place(259, 7), Err(Reason::Blocks), "data and metadata alternate on the wire");
}

#[test]
fn a_loop_device_begins_where_it_was_told_to() {
    let sys = Sys::new();
    sys.disk("devices/virtual/block/loop0", "7:0")
        .file("devices/virtual/block/loop0/loop/backing_file", "/run/diskside/a b/volume")
        .file("devices/virtual/block/loop0/loop/offset", "1048576");
    let place = sys.place(7, 0).expect("found");
    assert_eq!(place.disk, Disk::File("/run/diskside/a b/volume".into()));
    assert_eq!(place.offset, 1 << 20);
    sys.file("devices/virtual/block/loop0/loop/backing_file", "/tmp/image (deleted)");
    assert_eq!(sys.place(7, 0), Err(Reason::UnknownDisk));
}

#[test]
fn devices_made_of_others_are_refused() {
    let sys = Sys::new();
    sys.disk("devices/virtual/block/dm-0", "253:0").file("devices/virtual/block/dm-0/dm/name", "vg-lv");
    assert_eq!(sys.place(253, 0), Err(Reason::Stacked));
    sys.disk("devices/virtual/block/md0", "9:0").link("devices/virtual/block/md0/slaves/sda", "devices/sda");
    assert_eq!(sys.place(9, 0), Err(Reason::Stacked));
}

#[test]
fn an_anonymous_device_is_none() {
    assert_eq!(Sys::new().place(0, 41), Err(Reason::NoDevice));
}

/// Whatever stands in `/sys`, it is an answer and no panic.
#[test]
fn nonsense_is_refused() {
    let sys = Sys::new();
    sys.disk("devices/block/x", "1:1").file("devices/block/x/size", "many");
    assert_eq!(sys.place(1, 1), Err(Reason::Failed));
    sys.file("devices/block/x/size", "8").file("devices/block/x/nsid", "1");
    assert_eq!(sys.place(1, 1), Err(Reason::UnknownDisk), "no subsystem");
    sys.disk("devices/block/y", "1:2");
    assert_eq!(sys.place(1, 2).expect("found").disk, Disk::Other("y".into()));
}
