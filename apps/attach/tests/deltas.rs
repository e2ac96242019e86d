//! Writes through an attached volume whose pages travel as deltas. Needs root.

mod common;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use common::possible;
use diskside_attach::{AttachError, Attached, DeltaOptions};
use diskside_host::{ConnectOptions, Url, Volume};
use diskside_server::config::VolumeSpec;
use diskside_server::{Running, Target};

const NQN: &str = "nqn.2026-11.org.example:deltas";
const LEN: usize = 8 << 20;
const PAGE: usize = 16 << 10;

fn target(options: &str, image: &Path) -> (Running, Volume, String) {
    let spec: VolumeSpec = format!("data={},rw,size=8MiB{options}", image.display()).parse().expect("a volume");
    let builder = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]).volume(spec);
    let running = builder.build().expect("a target").start().expect("started");
    let url = format!("nvme-tcp://{}/{NQN}/1", running.handle().local_addresses()[0]);
    let parsed: Url = url.parse().expect("a URL");
    let volume = Volume::connect(&parsed, &ConnectOptions::default()).expect("connected");
    (running, volume, url)
}

/// The file behind the device: it has no cache of its own, so each write is a command, or some.
fn backing_of(attached: &Attached) -> PathBuf {
    let name = attached.device().file_name().expect("a name").to_string_lossy().into_owned();
    let text = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).expect("attached");
    PathBuf::from(text.trim_end())
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("open")
}

fn counters(backing: &Path) -> HashMap<String, u64> {
    let text = fs::read_to_string(backing.with_file_name("deltas")).expect("counters");
    let pair =
        |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.parse().expect("a number")));
    text.lines().filter_map(pair).collect()
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn random_writes_are_those_of_a_model_and_few_bytes_travel() {
    if !possible() {
        return;
    }
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let image = disk.path().join("image");
    let (running, volume, url) = target(",atomic=16KiB", &image);
    let options: DeltaOptions = "base_cache=2MiB,page=16KiB".parse().expect("options");
    let attached = Attached::with_deltas(&volume, &url, false, Some(options)).expect("attached");
    let backing = backing_of(&attached);
    let file = open(&backing);
    let mut chance = Chance(7);
    let mut model: Vec<u8> = (0..LEN).map(|_| chance.below(256) as u8).collect();
    // The kernel cuts longer writes where the memory's pages end, which is not where blocks do.
    for (index, part) in model.chunks(PAGE).enumerate() {
        file.write_all_at(part, (index * PAGE) as u64).expect("written");
    }
    for step in 0..3000 {
        let pages = 1 + chance.below(3);
        // Most writes are of a few pages, so that their bases are known.
        let hot = if chance.below(4) > 0 { 64 } else { LEN / PAGE };
        let at = (chance.below(hot) * PAGE).min(LEN - pages * PAGE);
        match chance.below(20) {
            0 => {
                let len = 4096 * (1 + chance.below(4));
                model[at..at + len].fill(0);
                rustix::fs::fallocate(
                    &file,
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
                    at as u64,
                    len as u64,
                )
                .expect("a hole");
            }
            1 => {
                // The same page elsewhere, as a doublewrite buffer is followed by the page.
                let to = (chance.below(LEN / PAGE)) * PAGE;
                let page = model[at..at + PAGE].to_vec();
                file.write_all_at(&page, at as u64).expect("written");
                file.write_all_at(&page, to as u64).expect("written");
                model[to..to + PAGE].copy_from_slice(&page);
            }
            _ => {
                let len = if chance.below(8) == 0 { 4096 } else { pages * PAGE };
                for _ in 0..1 + chance.below(5) {
                    let from = at + chance.below(len);
                    let to = (at + len).min(from + 1 + chance.below(60));
                    model[from..to].fill(chance.below(256) as u8);
                }
                file.write_all_at(&model[at..at + len], at as u64).expect("written");
            }
        }
        if step % 16 == 0 {
            file.sync_all().expect("durable");
            let from = chance.below(LEN - 100_000) / 4096 * 4096;
            let mut found = vec![0; 98_304];
            file.read_exact_at(&mut found, from as u64).expect("read");
            assert!(found == model[from..from + 98_304], "step {step}");
        }
    }
    let counters = counters(&backing);
    assert!(counters["delta_writes"] > 1000 && counters["copied_writes"] > 20, "{counters:?}");
    assert!(counters["delta_sent_bytes"] * 15 < counters["delta_bytes"], "{counters:?}");
    assert_eq!(counters["refused"], 0, "one host: each base is there");
    assert!(counters["cached_bytes"] <= 2 << 20 && counters["full_bytes"] >= LEN as u64, "{counters:?}");
    drop(file);
    attached.detach().expect("detached");
    drop(volume);
    drop(running);
    assert!(fs::read(&image).expect("read") == model, "all is in its place");
}

/// Another host changes a page: its base is not the known one any more, the target refuses the delta, and the page is written as it is.
#[test]
fn a_page_that_another_host_changed_is_written_in_full() {
    if !possible() {
        return;
    }
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (_running, volume, url) = target(",atomic=16KiB", &disk.path().join("image"));
    let attached = Attached::with_deltas(&volume, &url, false, Some(DeltaOptions::default())).expect("attached");
    let other = Attached::new(&volume, &url, false).expect("attached");
    let (backing, others) = (backing_of(&attached), backing_of(&other));
    let (file, others) = (open(&backing), open(&others));
    let mut page = vec![1; PAGE];
    file.write_all_at(&page, 0).expect("written");
    others.write_all_at(&[2; PAGE], 0).expect("written");
    page[77] = 3;
    file.write_all_at(&page, 0).expect("written");
    assert_eq!(counters(&backing)["refused"], 1);
    let mut found = vec![0; PAGE];
    others.read_exact_at(&mut found, 0).expect("read");
    assert!(found == page);
    page[78] = 3;
    file.write_all_at(&page, 0).expect("written");
    assert_eq!((counters(&backing)["refused"], counters(&backing)["delta_writes"]), (1, 2));
    drop((file, others));
    attached.detach().expect("detached");
    other.detach().expect("detached");
}

#[test]
fn a_volume_without_atomic_writes_takes_no_deltas() {
    if !possible() {
        return;
    }
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (_plain, volume, url) = target("", &disk.path().join("image"));
    let refused = Attached::with_deltas(&volume, &url, false, Some(DeltaOptions::default())).expect_err("no deltas");
    assert!(matches!(refused, AttachError::Deltas { most: 0, page: 16384 }), "{refused}");
    let (_short, volume, url) = target(",atomic=4KiB", &disk.path().join("short"));
    let refused = Attached::with_deltas(&volume, &url, false, Some(DeltaOptions::default())).expect_err("too long");
    assert!(refused.to_string().contains("deltas of pages of up to 4096 bytes, not 16384"), "{refused}");
}
