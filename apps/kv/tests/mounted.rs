//! A store in a file of a mounted volume, followed by the volume's target: while nobody touches the file, and while others
//! write, move, replace and cut it. Needs root.

#[path = "../../../crates/layout/tests/lab/mod.rs"]
mod lab;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diskside::host::mounted::Reason;
use diskside::host::{ConnectOptions, Volume};
use diskside::target::config::{Size, VolumeSpec};
use diskside::target::{Running, Target};
use diskside_kv::create::{Creation, Keys};
use diskside_kv::format::{Value, counting_value};
use diskside_kv::mounted::MountedPushdown;
use diskside_kv::{Mode, Options, Store};
use lab::{Kind, Lab, until_nobody_writes};

const NQN: &str = "nqn.2026-11.org.example:kv-mounted";
const KEYS: u64 = 4096;

struct World {
    lab: Lab,
    _running: Running,
    volume: Volume,
}

impl World {
    fn new(kind: Kind) -> Option<Self> {
        let lab = Lab::new(kind)?;
        let spec = VolumeSpec::new("data", lab.image.to_str().expect("a path")).writable();
        let builder = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]);
        // The kernel writes the image itself, past the target: this one keeps nothing of what it read.
        let builder = builder.compute(|compute| compute.cache = Size::from_bytes(0)).volume(spec);
        let running = builder.build().expect("a target").start().expect("started");
        let url = format!("nvme-tcp://{}/{NQN}/1", running.handle().local_addresses()[0]);
        let volume = Volume::connect(&url.parse().expect("a URL"), &ConnectOptions::default()).expect("connected");
        Some(Self { lab, _running: running, volume })
    }

    fn path(&self) -> PathBuf {
        self.lab.mount.join("store")
    }

    fn pushdown(&self) -> MountedPushdown {
        MountedPushdown::over(&self.path(), &self.volume).expect("admitted")
    }
}

/// A store of six levels whose values begin with a version: `version + key` in tens of thousands.
fn store_of(path: &Path, version: u64) {
    let beside = path.with_extension("new");
    let file = File::create(&beside).expect("made");
    let pairs = (0..KEYS).map(|key| (key, value(key, version))).collect();
    Creation::new(Keys::Pairs(pairs)).fill(4).write(&file).expect("written");
    file.sync_all().expect("durable");
    fs::rename(&beside, path).expect("renamed");
}

fn value(key: u64, version: u64) -> Value {
    counting_value(version * 1_000_000 + key)
}

#[test]
fn a_target_follows_pointers_in_a_mounted_file() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { return };
        store_of(&world.path(), 1);
        until_nobody_writes(&world.path());
        let pushdown = world.pushdown();
        let counters = pushdown.counters().clone();
        let options = Options { mode: Mode::Pushdown, cache_levels: 1, ..Options::default() };
        let store = Store::open_mounted(pushdown, &options).expect("it opens");
        for key in (0..KEYS).step_by(97) {
            assert_eq!(store.block_on(store.get(key)).expect("read"), Some(value(key, 1)), "{kind:?}");
        }
        assert_eq!(store.block_on(store.get(KEYS)).expect("read"), None);
        let keys: Vec<u64> = (0..100).map(|i| i * 41).collect();
        let values = store.block_on(store.multi_get(&keys)).expect("read");
        assert!(keys.iter().zip(values).all(|(key, found)| found == (*key < KEYS).then(|| value(*key, 1))));
        let pairs = store.block_on(store.range(1000, 1500, u64::MAX)).expect("read");
        assert!(pairs.len() == 501 && pairs.iter().all(|(key, found)| *found == value(*key, 1)));
        let at_volume = counters.at_volume();
        assert!(at_volume > KEYS / 97 && counters.plain().is_empty(), "{counters}");

        // A writer is there: the store is read all the same, through the file system.
        let writer = OpenOptions::new().write(true).open(world.path()).expect("open");
        assert_eq!(store.block_on(store.get(5)).expect("read"), Some(value(5, 1)));
        assert_eq!(counters.plain(), [(Reason::Writer, 1)]);
        drop(writer);
        until_nobody_writes(&world.path());
        assert_eq!(store.block_on(store.get(6)).expect("read"), Some(value(6, 1)));
        assert_eq!(counters.at_volume(), at_volume + 1, "{counters}");
    }
}

/// Everything that others do happens while lookups run. No value is another file's or of a time that is over.
fn stress(kind: Kind) {
    let Some(world) = World::new(kind) else { return };
    let path = &world.path();
    store_of(path, 1);
    let (stop, rounds) = (&AtomicBool::new(false), &AtomicU64::new(0));
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (mount, xfs) = (&world.lab.mount, matches!(kind, Kind::Xfs));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _stop = Stop(stop);
            for round in 2.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let twin = mount.join("twin");
                match round % 6 {
                    // Another file takes the name; who has the old one open reads on in that.
                    0 => store_of(path, round),
                    // The same bytes once more, into the same blocks and into others.
                    1 => {
                        let bytes = fs::read(path).expect("read");
                        let file = OpenOptions::new().write(true).open(path).expect("open");
                        file.write_all_at(&bytes, 0).expect("written");
                    }
                    2 => {
                        let _ = Command::new(if xfs { "xfs_fsr" } else { "e4defrag" }).arg(path).output();
                    }
                    3 => {
                        fs::write(&twin, fs::read(path).expect("read")).expect("written");
                        let len = fs::metadata(path).expect("told").len();
                        let dedupe = format!("dedupe {} 0 0 {len}", twin.display());
                        let _ = Command::new("xfs_io").args(["-r", "-c", &dedupe]).arg(path).output();
                    }
                    4 => drop(fs::remove_file(&twin)),
                    // Blocks that were given up, with other bytes.
                    _ => {
                        let _ = fs::write(mount.join("foreign"), vec![0xee; 2 << 20]);
                        let _ = File::open(mount).map(rustix::fs::syncfs);
                        let _ = fs::remove_file(mount.join("foreign"));
                    }
                }
                rounds.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let _stop = Stop(stop);
        let (mut proved, mut refused) = (0, 0);
        let (least, most) = (Instant::now() + Duration::from_secs(4), Instant::now() + Duration::from_secs(120));
        while Instant::now() < least || (proved < 100 || refused == 0) && Instant::now() < most {
            // The file that has the name now: it keeps its version, whatever happens to its blocks.
            let pushdown = world.pushdown();
            let counters = pushdown.counters().clone();
            let own = pushdown.reopen().expect("open");
            let options = Options { mode: Mode::Pushdown, ..Options::default() };
            let store = Store::open_mounted(pushdown, &options).expect("it opens");
            let (mut version, mut writer) = (None, None);
            for at in 0..40 {
                // One lookup of each file is beside a writer for sure, whatever the others are up to.
                writer.take_if(|_| at == 21);
                if at == 20 {
                    writer = Some(OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", own.as_raw_fd())));
                }
                let key = at * 613 % KEYS;
                let found = store.block_on(store.get(key)).expect("read").expect("every version has every key");
                let text = String::from_utf8_lossy(&found);
                let number: u64 = text.trim_matches(['\0', ' ']).parse().expect("a number");
                assert_eq!(number % 1_000_000, key, "{kind:?}");
                assert_eq!(*version.get_or_insert(number / 1_000_000), number / 1_000_000, "one version of the file");
            }
            proved += counters.at_volume();
            refused += counters.retried() + counters.plain().iter().map(|(_, count)| count).sum::<u64>();
        }
        println!(
            "{kind:?}: {proved} at the volume, {refused} retried or refused, {} changes",
            rounds.load(Ordering::SeqCst)
        );
        assert!(proved >= 100, "{proved}: a guard that always refuses would pass");
        assert!(refused > 0, "a guard that never refuses would pass");
    });
}

#[test]
fn lookups_are_right_while_the_file_is_moved_and_replaced_on_ext4() {
    stress(Kind::Ext4);
}

#[test]
fn lookups_are_right_while_the_file_is_moved_and_replaced_on_xfs() {
    stress(Kind::Xfs);
}
