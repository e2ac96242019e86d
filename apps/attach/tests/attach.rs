//! A volume of a real target as a block device with a file system, from making it to taking it away. Needs root.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::possible;
use diskside_attach::{AttachError, Attached, detach, url_of};
use diskside_host::mounted::{MountedFile, MountedOptions, Way};
use diskside_host::{ConnectOptions, Url, Volume};
use diskside_server::config::VolumeSpec;
use diskside_server::{Running, Target};

const NQN: &str = "nqn.2026-11.org.example:attach";

fn target(volume: VolumeSpec) -> (Running, Volume, String) {
    let builder = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]).volume(volume);
    let running = builder.build().expect("a target").start().expect("started");
    let url = format!("nvme-tcp://{}/{NQN}/1", running.handle().local_addresses()[0]);
    let parsed: Url = url.parse().expect("a URL");
    let volume = Volume::connect(&parsed, &ConnectOptions::default()).expect("connected");
    (running, volume, url)
}

fn run(program: &str, args: &[&Path]) {
    let output = Command::new(program).args(args).output().expect("the program runs");
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Unmounts also when a test fails, so that the device can go.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(device: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        run("mount", &[device, directory.path()]);
        Self(directory)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.path()]);
    }
}

fn backing_of(device: &Path) -> PathBuf {
    let name = device.file_name().expect("a name").to_string_lossy().into_owned();
    let text = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).expect("attached");
    PathBuf::from(text.trim_end())
}

#[test]
fn a_file_system_lives_on_an_attached_volume() {
    if !possible() {
        return;
    }
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let image = disk.path().join("image");
    fs::File::create(&image).expect("made").set_len(64 << 20).expect("sparse");
    let (_target, volume, url) = target(VolumeSpec::new("data", image.to_str().expect("a path")).writable());

    let attached = Attached::new(&volume, &url, false).expect("attached");
    let device = attached.device().to_path_buf();
    assert_eq!(url_of(&backing_of(&device)), Some(url.clone()));
    run("mkfs.ext4", &[Path::new("-q"), &device]);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    {
        let mount = Mount::new(&device);
        fs::write(mount.file("kept"), &bytes).expect("written");
        fs::write(mount.file("given up"), &bytes).expect("written");
        fs::remove_file(mount.file("given up")).expect("removed");
        run("fstrim", &[mount.0.path()]);

        // The volume knows where the file is, through two layers.
        let file = MountedFile::open(&mount.file("kept"), &volume, &MountedOptions::default()).expect("admitted");
        let mut buffer = vec![0; 100_000];
        assert_eq!(file.read_at(&mut buffer, 1_234_567).expect("read"), (100_000, Way::Volume));
        assert!(buffer == bytes[1_234_567..1_334_567]);

        let refused = detach(&device).expect_err("mounted");
        assert!(matches!(&refused, AttachError::InUse { by, .. } if by.contains("mounted at")), "{refused}");
    }
    attached.detach().expect("detached");

    // A second time, and the bytes are what was written.
    let attached = Attached::new(&volume, &url, true).expect("attached");
    let device = attached.device().to_path_buf();
    let is_read_only = format!("/sys/block/{}/ro", device.file_name().expect("a name").to_string_lossy());
    assert_eq!(fs::read_to_string(is_read_only).expect("told"), "1\n");
    run("e2fsck", &[Path::new("-fn"), &device]);
    {
        let mount = tempfile::tempdir().expect("a directory");
        run("mount", &[Path::new("-oro"), &device, mount.path()]);
        let mount = Mount(mount);
        assert!(fs::read(mount.file("kept")).expect("read") == bytes);
    }
    attached.detach().expect("detached");
}

#[test]
fn reads_and_writes_reach_the_volume_as_they_are() {
    if !possible() {
        return;
    }
    let (_target, volume, url) = target(VolumeSpec::new("data", "mem:16MiB").writable());
    let attached = Attached::new(&volume, &url, false).expect("attached");
    let device = fs::OpenOptions::new().read(true).write(true).open(attached.device()).expect("open");
    let bytes = vec![0x5a; 1 << 20];
    device.write_all_at(&bytes, 3 << 20).expect("written");
    device.sync_all().expect("durable");
    let backing = fs::File::open(backing_of(attached.device())).expect("open");
    let mut found = vec![0; 1 << 20];
    backing.read_exact_at(&mut found, 3 << 20).expect("read");
    assert!(found == bytes);
    assert_eq!(backing.metadata().expect("told").len(), 16 << 20);
    drop(device);
    attached.detach().expect("detached");
}

#[test]
fn other_devices_are_left_alone() {
    let refused = detach(Path::new("/dev/null")).expect_err("none of ours");
    assert!(matches!(refused, AttachError::NotAttached(_)), "{refused}");
    assert_eq!(url_of(Path::new("/tmp/volume")), None);
}
