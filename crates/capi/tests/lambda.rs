//! lambda-IO's calls in a C program: on descriptors, here and at the target of a mounted volume.

mod build;
#[path = "../../layout/tests/lab/mod.rs"]
mod lab;

use build::{compile, libraries, root};
use diskside_server::Target;
use diskside_server::config::{Size, VolumeSpec};
use lab::{Kind, Lab, until_nobody_writes};
use rust::session::{Session, SessionOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

const NQN: &str = "nqn.2026-11.org.example:lambda";

fn numbers() -> Vec<u8> {
    (0..100_u64).flat_map(u64::to_le_bytes).collect()
}

fn program(dir: &Path) -> PathBuf {
    compile(dir, &root().join("tests/lambda.c"))
}

fn run(program: &Path, how: &str, path: &Path, variables: &[(&str, &str)]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg(how).arg(path).env("LD_LIBRARY_PATH", libraries()).envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Files were opened once more by /proc/self/fd: `pwrite_lambda` by a descriptor for reading wrote what the file's mode let it
/// write, one that was received or opened with rights since given up failed, and a position made the file a stream that began
/// there. Each descriptor is used as it is.
#[test]
fn a_descriptor_is_used_as_it_is() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = program(dir.path());
    for how in ["rights", "without"] {
        let path = dir.path().join(how);
        std::fs::write(&path, numbers()).expect("written");
        assert_eq!(run(&program, how, &path, &[]).as_deref(), Ok("good\n"), "{how}");
    }
    let path = dir.path().join("at");
    std::fs::write(&path, numbers()).expect("written");
    let told = run(&program, "at", &path, &[("DISKSIDE_POLICY", "best")]).expect_err("it is no policy");
    let wanted = "DISKSIDE_POLICY=best: `best` is no policy; policies are adaptive, host, device, and lambda-io or \
                  lambda-io:n=N,k=K\n";
    assert_eq!(told, wanted);
    assert_eq!(run(&program, "at", &path, &[]).as_deref(), Ok("good\n"));
}

/// A program that opens its file for reading and writing, as programs for lambda-IO do, was never pushed down: its own
/// descriptor was \"someone\" who has the file open for writing. Needs root.
#[test]
fn functions_run_at_the_target_of_a_mounted_volume() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { return };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let program = program(dir.path());
        let path = lab.mount.join("numbers");
        std::fs::write(&path, numbers()).expect("written");
        until_nobody_writes(&path);
        let volume = VolumeSpec::new("data", lab.image.to_str().expect("a path")).writable();
        let builder = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]);
        // The kernel writes the image itself, past the target: this one keeps nothing of what it read.
        let builder = builder.compute(|compute| compute.cache = Size::from_bytes(0)).volume(volume);
        let running = builder.build().and_then(Target::start).expect("it serves");
        let url = format!("nvme-tcp://{}/{NQN}/1", running.handle().local_addresses()[0]);
        let calls = || {
            let session = Session::new(SessionOptions::default());
            let compute = session.compute(&url.parse().expect("a URL")).expect("functions");
            compute.statistics().expect("statistics").0.succeeded.get()
        };
        let on = |place| [("DISKSIDE_VOLUMES", url.as_str()), ("DISKSIDE_POLICY", place)];
        std::fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.sync_all()).expect("on the device");
        until_nobody_writes(&path);
        assert_eq!(run(&program, "at", &path, &on("host")).as_deref(), Ok("good\n"), "{kind:?}");
        assert_eq!(calls(), 0);
        std::fs::write(&path, numbers()).expect("written");
        until_nobody_writes(&path);
        assert_eq!(run(&program, "at", &path, &on("device")).as_deref(), Ok("good\n"), "{kind:?}");
        // Three that read, and one whose output comes back to be written here.
        assert_eq!(calls(), 4, "{kind:?}");
    }
}
